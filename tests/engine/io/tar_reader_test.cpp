// Tar archives as corpora, and folders and patterns of files: what is read, in which order, and what hostile archives get.
#include "io/tar_reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "io/corpus_files.h"
#include "io/text_reader.h"
#include "pieces.h"
#include "support/scratch.h"
#include "support/tar.h"

namespace vitrine {
namespace {

// "name: content" of each file.
std::vector<std::string> files_of(const std::string& path) {
  const auto stream = ByteStream::open(path);
  TarReader reader(*stream, path);
  std::vector<std::string> files;
  while (reader.next()) {
    std::string content;
    char some[100];
    while (const size_t got = reader.read(some)) content.append(some, got);
    files.push_back(reader.name() + ": " + content);
  }
  return files;
}

std::string pax(const std::string& key, const std::string& value) {
  const std::string record = " " + key + "=" + value + "\n";
  size_t length = record.size() + 1;
  while (std::to_string(length).size() + record.size() != length) ++length;
  return std::to_string(length) + record;
}

TEST(TarReader, ReadsTheFilesOfAnArchive) {
  const Scratch scratch;
  const std::string name(300, 'n'), large(70'000, 'x');
  const std::string archive =
      tar_member("folder/", "", '5') + tar_member("folder/a.txt", "one") + tar_member("b", large) + tar_member("link", "", '2') +
      tar_member("././@LongLink", name + '\0', 'L') + tar_member("short", "two") +
      tar_member("PaxHeaders/x", pax("mtime", "1.5") + pax("path", "näme.txt"), 'x') + tar_member("c", "") +
      tar_member("pax_global", pax("comment", "x"), 'g') + tar_member("d\n\x1b[2J", "512");
  const std::vector<std::string> expected = {"folder/a.txt: one", "b: " + large, name + ": two", "näme.txt: ", "d??[2J: 512"};
  EXPECT_EQ(files_of(scratch.write("a.tar", archive + tar_end() + "anything")), expected);
  EXPECT_EQ(files_of(scratch.write("b.tar", archive)), expected);  // without an end, as some write them
  EXPECT_TRUE(files_of(scratch.write("c.tar", tar_end())).empty());
}

TEST(TarReader, RefusesHostileArchives) {
  const Scratch scratch;
  const auto message = [&](const std::string& content) {
    return message_of<FileError>([&] { files_of(scratch.write("x.tar", content)); });
  };
  const std::string one = tar_member("a.txt", "one");
  EXPECT_CONTAINS(message(std::string(600, 'x')),
                  "x.tar: is not a tar archive, or is damaged: a header does not match its checksum (byte 512");
  EXPECT_CONTAINS(message(one.substr(0, 300)), "ends within a header");
  EXPECT_CONTAINS(message(one.substr(0, 514)), "ends within a.txt (byte 514 of the archive)");
  EXPECT_CONTAINS(message(one.substr(0, 700)), "ends too early");
  EXPECT_CONTAINS(message(tar_member("x", std::string(5000, 'n'), 'L')), "a name or records of 5000 bytes");
  EXPECT_CONTAINS(message(tar_member("x", pax("path", std::string(5000, 'n')), 'x') + one), "a name of 5000 bytes");
  EXPECT_CONTAINS(message(tar_member("x", "99 path=a\n", 'x') + one), "damaged pax records");
  EXPECT_CONTAINS(message(tar_member("x", pax("size", "-1"), 'x') + one), "damaged pax records");
  EXPECT_CONTAINS(message(tar_member("x", pax("size", "18446744073709551615"), 'x') + one), "a size that no file has");
  EXPECT_CONTAINS(message(tar_member("x", pax("size", "9000000000000000000"), 'x') + one), "ends within a.txt");
  EXPECT_CONTAINS(message(tar_member("x", "long", 'L')), "ends after a long name");
  // Any byte may be another, and any end be missing: read, or refused by name.
  const std::string archive = tar_member("x", "a long name.txt", 'L') + tar_member("short", "text") +
                              tar_member("x", pax("path", "b.json"), 'x') + tar_member("c", "{\"text\": 1}") + tar_end();
  for (size_t i = 0; i < archive.size(); i += 29) {
    for (const std::string& damaged : {archive.substr(0, i), [&] {
                                         std::string other = archive;
                                         other[i] = static_cast<char>(other[i] ^ (1 << (i % 8)));
                                         return other;
                                       }()}) {
      try {
        files_of(scratch.write("y.tar", damaged));
      } catch (const FileError& error) {
        EXPECT_CONTAINS(error.what(), "y.tar: ");
      }
    }
  }
}

TEST(TextReader, ReadsMembersOfArchives) {
  const Scratch scratch;
  const std::string tar = scratch.write("a.tar", tar_member("000.txt", "one") + tar_member("000.jpg", "\xff\xd8") +
                                                     tar_member("001.json", "{\n \"text\": \"two\"\n}\n") +
                                                     tar_member("002.jsonl", "{\"text\": \"three\"}\n\n{\"text\": \"four\"}\n") +
                                                     tar_member("._002.txt", "hidden") + tar_member("003.txt", "") +
                                                     tar_member("d/004.json", "[{\"text\": \"five\"}]") + tar_end());
  EXPECT_EQ(documents_of(tar), (std::vector<std::string>{"one", "two", "three", "four", "five"}));
  EXPECT_EQ(documents_of(tar, {.format = TextFormat::text}), std::vector<std::string>{"one"});
  EXPECT_EQ(documents_of(tar, {.format = TextFormat::jsonl}), (std::vector<std::string>{"two", "three", "four", "five"}));
  const auto pieces = pieces_of(tar);
  EXPECT_EQ(pieces[3].member, "002.jsonl");
  EXPECT_EQ(pieces[3].line, 3u);
  EXPECT_EQ(documents_of(scratch.write("b.tar", tar_member("a.txt", "one|two")), {.separator = "|"}),
            (std::vector<std::string>{"one", "two"}));

  const auto message = [&](const std::string& content, const TextOptions& options = {}) {
    return message_of<FileError>([&] { pieces_of(scratch.write("x.tar", content), options); });
  };
  EXPECT_CONTAINS(message(tar_member("a.jpg", "") + tar_end()),
                  "x.tar: is a tar archive without a member ending in .txt, .json or .jsonl; it holds a.jpg");
  EXPECT_CONTAINS(message(tar_end(), {.format = TextFormat::objects}), "ending in .json or .jsonl; it is empty");
  EXPECT_CONTAINS(
      message(tar_member("0.txt", "a") + tar_member("1.json", "{\n\"text\": \"b\"}\n{\"body\": 1}")),
      "x.tar: 1.json line 3: has no key \"text\"; its keys are \"body\". Name the one that holds the text, or read .txt members");
  EXPECT_CONTAINS(message(tar_member("0.json", "text")), "x.tar: 0.json line 1: holds 't' where an object was expected");
  EXPECT_CONTAINS(message(tar_member("7.json", "{\"text\": \"b\"}") + tar_member("7.txt", "a")),
                  "x.tar: holds 7.json and 7.txt of one sample. Say which are the texts: --format text or jsonl");
  EXPECT_CONTAINS(message(tar_member("0.txt", "text").substr(0, 514)), "ends within 0.txt");
}

TEST(CorpusFiles, AreThoseOfFoldersAndPatterns) {
  const Scratch scratch;
  for (const char* name : {"s/b.jsonl", "s/a.jsonl.gz", "s/c.txt", "s/info.json", "s/README.md", "s/.hidden.txt", "s/d.tar",
                           "o/b.json", "o/a.json.zst", "n/x.bin", "p/x.parquet"})
    scratch.write(name, "x");
  std::filesystem::create_directory(scratch / "s/sub.txt");
  const auto in = [&](const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(scratch / name);
    return paths;
  };
  EXPECT_EQ(corpus_files(in({"s"})), in({"s/a.jsonl.gz", "s/b.jsonl", "s/c.txt", "s/d.tar"}));
  EXPECT_EQ(corpus_files(in({"o"})), in({"o/a.json.zst", "o/b.json"}));
  EXPECT_EQ(corpus_files(in({"s/c.txt", "s/*.jsonl*", "missing"})), in({"s/c.txt", "s/a.jsonl.gz", "s/b.jsonl", "missing"}));
  EXPECT_CONTAINS(message_of<FileError>([&] { corpus_files(in({"n"})); }),
                  "n: is a folder without text files; expected names ending in .txt");
  EXPECT_CONTAINS(message_of<FileError>([&] { corpus_files(in({"p"})); }),
                  "holds Parquet files, such as x.parquet. Write it as JSON lines");
  EXPECT_CONTAINS(message_of<FileError>([&] { corpus_files(in({"s/*.csv"})); }), "s/*.csv: matches no file");
}

}  // namespace
}  // namespace vitrine
