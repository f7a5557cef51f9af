#include "io/text_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <vector>

#include "base/json.h"
#include "pieces.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string gzip(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&z, text.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

// 3 MB of lines that do not repeat within a block.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += "line " + std::to_string(i * 7919) + " ends; été\n";
  return text;
}

TEST(TextReader, ReadsTheSameFromPlainGzipAndZstandard) {
  const Scratch scratch;
  const std::string text = long_text(), half = text.substr(0, 1'000'000), rest = text.substr(1'000'000);
  const std::vector<std::string> files = {
      scratch.write("plain.txt", text), scratch.write("one.txt.gz", gzip(text)), scratch.write("two.gz", gzip(half) + gzip(rest)),
      scratch.write("one.txt.zst", zstd(text)), scratch.write("two.zst", zstd(half) + zstd("") + zstd(rest))};
  for (const std::string& file : files) {
    const auto documents = documents_of(file);
    ASSERT_EQ(documents.size(), 1u) << file;
    EXPECT_EQ(documents[0] == text, true) << file;
    TextReader reader(file, {});
    for (TextPiece piece; reader.next(piece);) continue;
    EXPECT_EQ(reader.consumed(), reader.file_bytes()) << file;
  }
}

// What zstd --long=31 writes: a frame whose window is 2 GiB. RFC 8878: magic, descriptor, window, one raw block that is the last.
TEST(TextReader, ReadsTheLargestWindowOfZstandard) {
  const Scratch scratch;
  const std::string text = "a document", block = raw(static_cast<uint32_t>(text.size() << 3 | 1)).substr(0, 3);
  const std::string frame = std::string("\x28\xb5\x2f\xfd\0\xa8", 6) + block + text;
  EXPECT_EQ(documents_of(scratch.write("long.zst", frame)), std::vector<std::string>{text});
}

// As gzip itself has it: tar pads to a block of a tape.
TEST(TextReader, ZerosBehindGzipAreNoText) {
  const Scratch scratch;
  const std::string text = long_text(), zeros(400'000, '\0');
  for (const size_t padding : {size_t{1}, size_t{512}, zeros.size()}) {
    const std::string file = scratch.write("padded.gz", gzip(text) + zeros.substr(0, padding));
    EXPECT_TRUE(documents_of(file) == std::vector<std::string>{text}) << padding;
    TextReader reader(file, {});
    for (TextPiece piece; reader.next(piece);) continue;
    EXPECT_EQ(reader.consumed(), reader.file_bytes());
  }
  for (const std::string& rest : {std::string("x"), gzip(text), zeros.substr(0, 300'000) + "x"})
    EXPECT_CONTAINS(message_of([&] { documents_of(scratch.write("garbage.gz", gzip(text) + zeros.substr(0, 5) + rest)); }),
                    "zeros after gzip data, and then something else");
  EXPECT_CONTAINS(message_of([&] { documents_of(scratch.write("garbage.gz", gzip(text) + "more")); }), "damaged gzip data");
}

TEST(TextReader, CutsDocumentsAtSeparators) {
  const Scratch scratch;
  const std::string text = "\n\nfirst\ntale\n<|end|>\n\nsecond\r\n<|end|><|end|>\n<|end|>third<|end|>\n";
  const std::vector<std::string> expected = {"first\ntale", "second", "third"};
  EXPECT_EQ(documents_of(scratch.write("a.txt", text), {.separator = "<|end|>"}), expected);
  EXPECT_EQ(documents_of(scratch.write("a.txt", text), {.separator = "<|end|>", .longest = 16}), expected);
  EXPECT_EQ(documents_of(scratch.write("b.txt", text)), std::vector<std::string>{text});
  EXPECT_EQ(documents_of(scratch.write("c.txt", "a\n\n\nb\n\nc"), {.separator = "\n\n\n"}),
            (std::vector<std::string>{"a", "b\n\nc"}));
}

TEST(TextReader, FindsASeparatorWhereverItLies) {
  const Scratch scratch;
  for (size_t before = 0; before < 80; ++before) {  // across the end of a piece, of 32 bytes, too
    const std::string first(before, 'x'), second(50, 'y');
    const auto documents =
        documents_of(scratch.write("a.txt", first + "<|end|>" + second), {.separator = "<|end|>", .longest = 32});
    std::vector<std::string> expected = {first, second};
    if (before == 0) expected.erase(expected.begin());
    ASSERT_EQ(documents, expected) << before;
  }
}

// What stands between documents in Python: [d.strip("\r\n") for d in text.split(separator)], without the empty ones.
TEST(TextReader, FindsSeparatorsThatBeginWithLineEnds) {
  const Scratch scratch;
  const std::string end = "\n<|end|>\n";
  const auto documents = [&](const std::string& text, const std::string& separator, size_t longest = size_t{1} << 20) {
    return documents_of(scratch.write("a.txt", text), {.separator = separator, .longest = longest});
  };
  const std::vector<std::string> expected = {"story", "last"};
  for (const size_t longest : {size_t{16}, size_t{1} << 20})
    EXPECT_EQ(documents(end + "story" + end + "\n\n" + "<|end|>\nlast", end, longest), expected);
  EXPECT_EQ(documents("<|end|>\nstory", end), std::vector<std::string>{"<|end|>\nstory"});  // no line end in front: no separator
  EXPECT_EQ(documents("\r\n\r\na\r\n\r\n\r\nb\n", "\r\n\r\n"), (std::vector<std::string>{"a", "b"}));
  // At every place of what is read at once, with all that is read before it blank.
  const size_t read = size_t{256} << 10;
  for (size_t blank = read - 2 * end.size(); blank < read + 4; ++blank)
    ASSERT_EQ(documents(std::string(blank, '\n') + end + "story" + end + std::string(blank, '\n') + end + "last", end, 16),
              expected)
        << blank;
}

TEST(TextReader, CutsLongDocumentsBeforeWhiteSpaceAfterALetter) {
  const Scratch scratch;
  const auto pieces =
      pieces_of(scratch.write("a.txt", "one two three.\n\nfour five\nsix seven eight nine ten\n"), {.longest = 20});
  std::vector<std::string> texts;
  for (const TextPiece& piece : pieces) texts.push_back(piece.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"one two three.\n\nfour", " five\nsix seven", " eight nine ten\n"}));
  const std::string accents = "éééééééééééééééééééééééééé";  // nowhere to cut but between characters
  for (const TextPiece& piece : pieces_of(scratch.write("b.txt", accents), {.longest = 17})) EXPECT_EQ(piece.text.size() % 2, 0u);
}

TEST(TextReader, CutsNothingThatIsToStayWhole) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "ab cd ";
  const auto texts = [&](const std::string& file, const std::string& whole) {
    const auto lies_across = [whole](std::string_view in, size_t at) {
      const size_t from = at - std::min(at, whole.size() - 1);
      return in.substr(from, at - from + whole.size() - 1).find(whole) != std::string_view::npos;
    };
    return pieces_of(file, {.longest = 32, .lies_across = lies_across});
  };
  for (const std::string& file : {scratch.write("a.txt", text), scratch.write("a.jsonl", "{\"text\": \"" + text + "\"}")}) {
    for (const TextPiece& piece : texts(file, "b c")) EXPECT_TRUE(piece.ends || piece.text.ends_with("d")) << piece.text;
    for (const TextPiece& piece : texts(file, " ")) EXPECT_TRUE(piece.ends || piece.text.size() > 16) << piece.text;
  }
  for (const TextPiece& piece : texts(scratch.write("b.txt", text), "ab cd ab cd"))
    EXPECT_LE(piece.text.size(), 32u);  // no other place
}

TEST(TextReader, ReadsJsonLines) {
  const Scratch scratch;
  const std::string lines =
      "{\"text\": \"one\\ntwo\"}\n\n  \r\n{\"id\": 7, \"text\": \"\"}\n{\"text\": \"caf\\u00e9\"}\r\n{\"text\": \"last\"}";
  const std::vector<std::string> expected = {"one\ntwo", "café", "last"};
  EXPECT_EQ(documents_of(scratch.write("a.jsonl", lines)), expected);
  EXPECT_EQ(documents_of(scratch.write("a.jsonl.gz", gzip(lines))), expected);
  EXPECT_EQ(documents_of(scratch.write("a.ndjson.zst", zstd(lines))), expected);
  EXPECT_EQ(documents_of(scratch.write("a.txt", lines), {.format = TextFormat::jsonl}), expected);
  EXPECT_EQ(documents_of(scratch.write("b.jsonl", "{\"body\": \"x\"}"), {.key = "body"}), std::vector<std::string>{"x"});
  const auto pieces = pieces_of(scratch.write("a.jsonl", lines));
  EXPECT_EQ(pieces[1].line, 5u);
  EXPECT_EQ(pieces[2].line, 6u);
  const std::string document = long_text();
  EXPECT_EQ(documents_of(scratch.write("c.jsonl", Json{{"text", document}}.dump() + "\n{\"text\": \"z\"}\n")),
            (std::vector<std::string>{document, "z"}));
}

TEST(TextReader, ReadsAListOfObjects) {
  const Scratch scratch;
  const std::string list =
      "\xef\xbb\xbf \n[\n  {\"text\": \"one [{\",\n   \"of\": [{}, {\"a\": \"\\\"}\"}]},\n{\"text\": \"\"} , {\"text\": "
      "\"two\"}\n]\n\n";
  for (const std::string& file : {scratch.write("a.jsonl", list), scratch.write("a.jsonl.gz", gzip(list))}) {
    const auto pieces = pieces_of(file);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].text, "one [{");
    EXPECT_EQ(pieces[0].line, 3u);
    EXPECT_EQ(pieces[1].text, "two");
    EXPECT_EQ(pieces[1].line, 5u);
  }
  EXPECT_TRUE(pieces_of(scratch.write("b.jsonl", "[ ]")).empty());
  EXPECT_EQ(
      documents_of(scratch.write("c.json", list), {.format = TextFormat::objects}),
      (std::vector<std::string>{R"({"text": "one [{",    "of": [{}, {"a": "\"}"}]})", R"({"text": ""})", R"({"text": "two"})"}));
  EXPECT_EQ(documents_of(scratch.write("d.jsonl", "{\"a\": 1}\r\n\n{\"a\": 2}"), {.format = TextFormat::objects}),
            (std::vector<std::string>{"{\"a\": 1} ", "{\"a\": 2}"}));
  EXPECT_EQ(documents_of(scratch.write("e.json", "[{\"a\": \"\xff\\ud800\"}]"),
                         {.format = TextFormat::objects, .invalid = InvalidText::replace}),
            std::vector<std::string>{"{\"a\": \"\xEF\xBF\xBD\\ufffd\"}"});
  std::string many = "[";  // over the border of what is read at once
  for (int i = 0; i < 30'000; ++i)
    many += (i == 0 ? "" : ",\n") + std::string("{\"text\": \"number ") + std::to_string(i) + "\"}";
  const std::vector<std::string> numbers = documents_of(scratch.write("f.jsonl", many + "]"));
  ASSERT_EQ(numbers.size(), 30'000u);
  EXPECT_EQ(numbers.back(), "number 29999");

  const auto message = [&](const std::string& content) {
    return message_of<FileError>([&] { pieces_of(scratch.write("x.jsonl", content)); });
  };
  EXPECT_CONTAINS(message("[{\"text\": \"a\"}\n"), "x.jsonl line 2: the list of objects does not end");
  EXPECT_CONTAINS(message("["), "x.jsonl line 1: the list of objects does not end");
  EXPECT_CONTAINS(message("[{\"text\": \"a\"},"), "the list of objects does not end");
  EXPECT_CONTAINS(message("[\n{\"text\": \"a\""), "x.jsonl line 2: begins an object that the file does not end");
  EXPECT_CONTAINS(message("[{\"text\": \"a\n\"}]"), "with a string that does not end in its line");
  EXPECT_CONTAINS(message("[1]"), "holds '1' where an object was expected to begin with {");
  EXPECT_CONTAINS(message("[{\"text\": \"a\"} {}]"), "holds '{' where a list of objects was expected to go on with ,");
  EXPECT_CONTAINS(message("[{\"text\": \"a\"}]\n{}"), "x.jsonl line 2: holds '{' where the file was expected to end");
  EXPECT_CONTAINS(message("[{\"text\": \"a\" \"b\"}]"), "is not valid JSON");
  EXPECT_CONTAINS(message("[{\"text\": \"a\"]]"), "is not valid JSON");
  EXPECT_CONTAINS(message("[{\"text\": \"\xff\"}]"), "byte 0xff is not UTF-8");
}

TEST(TextReader, SaysWhatIsWrongWithALine) {
  const Scratch scratch;
  const auto message = [&](const std::string& name, const std::string& content, const TextOptions& options = {}) {
    const std::string path = scratch.write(name, content);
    return message_of([&] { pieces_of(path, options); });
  };
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\", \"id\": 1}\n"),
                  "a.jsonl line 2: has no key \"text\"; its keys are \"body\", \"id\"");
  EXPECT_CONTAINS(message("a.jsonl", "\n\n1\n"), "a.jsonl line 3: is no JSON object");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": 7}\n"), "a.jsonl line 1: has a JSON number under \"text\"; expected a string");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": []}\n"), "has a JSON array under \"text\"; expected a string");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \n"), "a.jsonl line 2");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"\xff\"}\n"), "a.jsonl line 1");
  EXPECT_CONTAINS(message("a.txt", "one\ntwo\n\xff three"), "a.txt line 3: byte 0xff is not UTF-8");
  EXPECT_EQ(documents_of(scratch.write("b.txt", "one \xff two"), {.invalid = InvalidText::replace}),
            std::vector<std::string>{"one \xEF\xBF\xBD two"});
  EXPECT_EQ(documents_of(scratch.write("b.jsonl", "{\"text\": \"\xff\"}"), {.invalid = InvalidText::replace}),
            std::vector<std::string>{"\xEF\xBF\xBD"});
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"\xff\"}\n"), "a.jsonl line 1: byte 0xff is not UTF-8");
  const std::string halves = "{\"text\": \"\\ud800 \\ud83d\\ude00 \\udc00\\ud83d\\\\ud800\"}";
  EXPECT_CONTAINS(message("a.jsonl", halves),
                  "a.jsonl line 1: holds \\ud800, half of a surrogate pair, which is no character by itself");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"\\ud83d\\ude00 \\uDC01\"}"), "holds \\uDC01, half of a surrogate pair");
  EXPECT_CONTAINS(message("a.jsonl", "{\"text\": \"\\ud800\""), "holds half of a surrogate pair");  // and it does not end
  EXPECT_EQ(documents_of(scratch.write("c.jsonl", halves), {.invalid = InvalidText::replace}),
            std::vector<std::string>{"\uFFFD \U0001F600 \uFFFD\uFFFD\\ud800"});
  EXPECT_EQ(documents_of(scratch.write("d.txt", "\xff\xfe"), {.invalid = InvalidText::keep}),
            std::vector<std::string>{"\xff\xfe"});
}

TEST(TextReader, NamesWhatReadsParquet) {
  const Scratch scratch;
  EXPECT_CONTAINS(message_of<FileError>([&] { pieces_of(scratch.write("a.parquet", "PAR1\x15\x04\x15")); }),
                  "a.parquet: is a Parquet file. Write it as JSON lines first: python -m vitrine.parquet");
}

// pzstd puts a frame to skip in front.
TEST(TextReader, ReadsZstandardBehindASkippableFrame) {
  const Scratch scratch;
  const std::string skipped("\x5e\x2a\x4d\x18\x04\0\0\0\1\2\3\4", 12), text = long_text();
  EXPECT_EQ(documents_of(scratch.write("a.zst", skipped + zstd(text))), std::vector<std::string>{text});
}

TEST(TextReader, RefusesDamagedFiles) {
  const Scratch scratch;
  const std::string text = long_text(), packed = gzip(text), frame = zstd(text);
  const auto message = [&](const std::string& name, const std::string& content) {
    const std::string path = scratch.write(name, content);
    return message_of([&] { pieces_of(path); });
  };
  EXPECT_CONTAINS(message("cut.gz", packed.substr(0, packed.size() / 2)), "cut.gz: gzip data that ends too early (byte ");
  EXPECT_CONTAINS(message("tail.gz", packed + "more"), "tail.gz: damaged gzip data");
  EXPECT_CONTAINS(message("cut.zst", frame.substr(0, frame.size() / 2)), "cut.zst: zstd data that ends too early (byte ");
  EXPECT_CONTAINS(message("tail.zst", frame + "more"), "tail.zst: damaged zstd data");
  std::string bad = packed;
  bad[bad.size() - 6] = static_cast<char>(bad[bad.size() - 6] ^ 0x55);  // the checksum
  EXPECT_CONTAINS(message("bad.gz", bad), "bad.gz: damaged gzip data");
  bad = frame;
  bad[4] = '\xff';
  EXPECT_CONTAINS(message("bad.zst", bad), "bad.zst: damaged zstd data");
  EXPECT_CONTAINS(message_of([&] { pieces_of(scratch / "none.txt"); }), "none.txt: cannot be opened");
  EXPECT_CONTAINS(message_of([&] { pieces_of(scratch.path()); }), "is a directory");
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_CONTAINS(message_of([&] { pieces_of(scratch / "pipe"); }), "is not a regular file");
  EXPECT_TRUE(pieces_of(scratch.write("empty.txt", "")).empty());
  EXPECT_TRUE(pieces_of(scratch.write("blank.txt", "\n\n"), {.separator = "###"}).empty());
}

}  // namespace
}  // namespace vitrine
