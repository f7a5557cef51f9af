// A vocabulary from the shell: files in, a folder out that tokenize reads.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/program.h"

namespace vitrine {
namespace {

const std::string kTrainingText = std::string(VITRINE_GOLDEN) + "/tokenizer_training/shakespeare.txt";

std::vector<std::string> words_of(const std::string& command, const std::string& out) {
  std::vector<std::string> words = {"tokenizer", "train"};
  std::istringstream split(command);
  for (std::string word; split >> word;) words.push_back(word);
  words.insert(words.end(), {"--out", out});
  return words;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), unsigned(text.size())), int(text.size()));
  gzclose(file);
}

TEST(TokenizerTrain, WritesAFolderThatTokenizeReads) {
  const Scratch scratch;
  for (const char* kind : {"byte-bpe", "sentencepiece-bpe"}) {
    const std::string folder = scratch / kind;
    const Outcome trained =
        vitrine(words_of(kTrainingText + " --vocab-size 900 --special <|endoftext|> --threads 2 --kind " + kind, folder));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(trained.out, "");
    EXPECT_CONTAINS(trained.err, "39.1 KiB of text, ");
    EXPECT_CONTAINS(trained.err, "The first merge: ");
    EXPECT_CONTAINS(trained.err, "900 pieces written to " + folder);
    EXPECT_EQ(std::filesystem::exists(folder + "/tokenizer.model"), kind == std::string("sentencepiece-bpe"));
    const std::string text = "First Citizen: we are accounted poor citizens";
    const Json ids = vitrine({"tokenize", "--json", "--no-special", "--model", folder, text}).json().at("tokens");
    EXPECT_LT(ids.size(), text.size() / 2);
    std::string list;
    for (const Json& id : ids) list += (list.empty() ? "" : ",") + id.dump();
    EXPECT_EQ(vitrine({"detokenize", "--model", folder, list}).out, text + "\n");
  }
  const std::string pieces = scratch / "sentencepiece-bpe";
  const Outcome equal =
      vitrine({"tokenize", "--model", pieces, "--compare", pieces + "/tokenizer.model", "--file", kTrainingText});
  EXPECT_CONTAINS(equal.out, "equal over 40000 bytes");
}

TEST(TokenizerTrain, KeepsTheBracketsOfControlTokens) {
  const Scratch scratch;
  const std::string folder = scratch / "bert";
  const Outcome trained = vitrine(words_of(kTrainingText + " --vocab-size 300 --special [PAD] --special [a,b]", folder));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string written = read_file(folder + "/tokenizer.json");
  for (const char* token : {"\"[PAD]\"", "\"[a,b]\""}) EXPECT_CONTAINS(written, token);
}

TEST(TokenizerTrain, ShowsEachMergeWithItsCount) {
  const Scratch scratch;
  const std::string text = scratch.write("example.txt", "aaabdaaabac");
  const Outcome table = vitrine(words_of(text + " --vocab-size 259 --show-merges", scratch / "table"));
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(table.out,
            "     id         count  piece  joins\n"
            "    256             4  aa     a + a\n"
            "    257             2  ab     a + b\n"
            "    258             2  aaab   aa + ab\n");
  EXPECT_EQ(vitrine({"detokenize", "--model", scratch / "table", "258"}).out, "aaab\n");
  const Json document = vitrine(words_of(text + " --vocab-size 259 --show-merges --json", scratch / "json")).json();
  EXPECT_EQ(document.at("vocab_size").get<int>(), 259);
  EXPECT_EQ(document.at("merge_list").size(), 3u);
  EXPECT_EQ(document.at("merge_list")[2].dump(), R"({"count":2,"id":258,"left":"aa","piece":"aaab","right":"ab"})");
}

TEST(TokenizerTrain, ReadsCompressedFilesAndJsonLines) {
  const Scratch scratch;
  const std::string text = read_file(kTrainingText), lines = "the first part\nthe second part";
  write_gzip(scratch / "text.txt.gz", text);
  const auto vocabulary = [&](const std::string& command, const std::string& name) {
    const Outcome outcome = vitrine(words_of(command, scratch / name));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_file((scratch / name) + "/tokenizer.json");
  };
  EXPECT_EQ(vocabulary((scratch / "text.txt.gz") + " --vocab-size 500", "gz"),
            vocabulary(kTrainingText + " --vocab-size 500", "plain"));
  scratch.write("a.txt", "the first part");
  scratch.write("b.txt", "the second part");
  scratch.write("both.txt", "the first part||the second part");
  scratch.write("both.jsonl", "{\"text\": \"the first part\"}\n{\"text\": \"the second part\"}\n");
  const std::string two = vocabulary((scratch / "a.txt") + " " + (scratch / "b.txt") + " --vocab-size 280", "two");
  EXPECT_EQ(vocabulary((scratch / "both.jsonl") + " --vocab-size 280", "lines"), two);
  EXPECT_EQ(vocabulary((scratch / "both.txt") + " --document || --vocab-size 280", "documents"), two);
  scratch.write("keyed.jsonl", "{\"body\": \"the first part\"}\n{\"body\": \"the second part\"}\n");
  EXPECT_EQ(vocabulary((scratch / "keyed.jsonl") + " --key body --vocab-size 280", "keyed"), two);
  // Bytes that are not UTF-8 are the same bytes with documents.
  scratch.write("bytes.txt", "\xFF\xFE one||\xFF\xFE two");
  scratch.write("a.txt", "\xFF\xFE one");
  scratch.write("b.txt", "\xFF\xFE two");
  EXPECT_EQ(vocabulary((scratch / "bytes.txt") + " --document || --vocab-size 258", "bytes"),
            vocabulary((scratch / "a.txt") + " " + (scratch / "b.txt") + " --vocab-size 258", "files"));
}

TEST(TokenizerTrain, SaysWhatItLeftOut) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", "one two\xFF one two three \xE4\xB8\xAD");
  const Outcome outcome =
      vitrine(words_of(text + " --kind sentencepiece-bpe --vocab-size 5000 --character-coverage 0.9", scratch / "out"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.err, "Bytes that are not UTF-8 were counted as U+FFFD, 1 time.");
  EXPECT_CONTAINS(outcome.err, "are rare and spelled in bytes");
  EXPECT_CONTAINS(outcome.err, "No pair is left to merge: ");
}

TEST(TokenizerTrain, RefusesBeforeItReads) {
  const Scratch scratch;
  const std::string out = scratch / "out", empty = scratch.write("empty.txt", "");
  const auto refused = [&](const std::string& command, const std::vector<std::string>& parts) {
    expect_refused(words_of(command, out), parts);
    EXPECT_FALSE(std::filesystem::exists(out + "/tokenizer.json"));
  };
  refused("--vocab-size 300", {"FILES"});
  refused(kTrainingText, {"--vocab-size is required"});
  refused(kTrainingText + " --vocab-size 0", {"--vocab-size", "0 is not between 1"});
  refused(kTrainingText + " --vocab-size 100", {"a vocabulary of 100 is too small: 256 bytes", "Ask for 256 or more"});
  refused(kTrainingText + " --vocab-size 300 --kind words", {"\"words\" is none of byte-bpe|sentencepiece-bpe"});
  refused((scratch / "missing.txt") + " --vocab-size 300", {"missing.txt"});
  refused(empty + " --vocab-size 300", {"there is no word in 0 bytes of text"});
  refused(kTrainingText + " --vocab-size 300 --user-defined x", {"--user-defined is for --kind sentencepiece-bpe"});
  for (const std::string flag : {"--split-digits", "--dummy-prefix", "--whitespace-pieces", "--character-coverage 0.9"})
    refused(kTrainingText + " --vocab-size 300 " + flag, {flag.substr(0, flag.find(' ')) + " is for --kind sentencepiece-bpe"});
  refused(kTrainingText + " --vocab-size 300 --byte-fallback off", {"--byte-fallback off is for --kind sentencepiece-bpe"});
  refused(kTrainingText + " --vocab-size 300 --key body", {"--key is for JSON lines"});
  refused(scratch.write("a.jsonl", "{\"text\": \"a\"}") + " --vocab-size 300 --document ||", {"--document is for plain text"});
  refused(kTrainingText + " --vocab-size 300 --special a\\q", {"--special: \"a\\q\" has a \\ that means nothing"});
  expect_refused({"tokenizer"}, {"name a command of this group, such as `vitrine tokenizer train`"});
  expect_refused({"tokenizer", "trian"}, {"trian is no command; did you mean train?"});
  expect_refused({"tokenizer", "train", kTrainingText, "--out", out, "--vocab-size", "300", "--show-merge"},
                 {"did you mean --show-merges?", "vitrine tokenizer train --help"});
}

TEST(TokenizerTrain, KeepsATokenizerThatIsThere) {
  const Scratch scratch;
  const std::string out = scratch / "out", json = scratch.write("out/tokenizer.json", "kept"),
                    model = scratch.write("out/tokenizer.model", "an older one"),
                    map = scratch.write("out/special_tokens_map.json", "{}");
  expect_refused(words_of(kTrainingText + " --vocab-size 300", out), {"holds a tokenizer.json already", "--overwrite"});
  EXPECT_EQ(read_file(json), "kept");
  const Outcome replaced = vitrine(words_of(kTrainingText + " --vocab-size 300 --overwrite", out));
  EXPECT_EQ(replaced.code, 0) << replaced.err;
  for (const std::string& older : {model, map}) EXPECT_FALSE(std::filesystem::exists(older));  // not of this vocabulary
  const std::string file = scratch.write("file", "");
  expect_refused(words_of(kTrainingText + " --vocab-size 300", file), {"is no folder"});
}

TEST(TokenizerTrain, ReplacesAllFilesOrNone) {
  const Scratch scratch;
  const std::string out = scratch / "out", json = scratch.write("out/tokenizer.json", "kept"),
                    model = scratch.write("out/tokenizer.model", "kept");
  std::filesystem::create_symlink("nothing", out + "/tokenizer_config.json");
  expect_refused(words_of(kTrainingText + " --vocab-size 900 --kind sentencepiece-bpe --overwrite", out), {"points at nothing"});
  for (const std::string& file : {json, model}) EXPECT_EQ(read_file(file), "kept");
}

TEST(TokenizerTrain, KeepsWhatItReads) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"}) {
    const Scratch scratch;
    const std::string text = read_file(kTrainingText), corpus = scratch.write(std::string("out/") + name, text);
    for (const char* flag : {"", " --overwrite"})
      expect_refused(words_of(kTrainingText + " " + corpus + " --vocab-size 300" + flag, scratch / "out"),
                     {corpus + " is a file that this run reads, and would be lost; name another."});
    EXPECT_EQ(read_file(corpus), text);
  }
}

// On a terminal, once it takes more than a moment.
TEST(TokenizerTrain, ShowsHowFarItIs) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; text.size() < 120'000'000; ++i) text += "word" + std::to_string(i % 100'000) + (i % 10 == 0 ? "\n" : " ");
  const std::string file = scratch.write("text", text);
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const int held = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);  // so that what was written can be read after
  const Outcome outcome =
      run_program({"/bin/sh", "-c", "exec \"$0\" tokenizer train \"$1\" --vocab-size 300 --threads 1 --out \"$2\" 2> \"$3\"",
                   VITRINE_PROGRAM, file, scratch / "out", ::ptsname(terminal)});
  EXPECT_EQ(outcome.code, 0);
  char shown[4096];
  const ssize_t size = ::read(terminal, shown, sizeof shown);
  ::close(held);
  ::close(terminal);
  ASSERT_GT(size, 0);
  EXPECT_CONTAINS(std::string(shown, static_cast<size_t>(size)), "reading ");
}

}  // namespace
}  // namespace vitrine
