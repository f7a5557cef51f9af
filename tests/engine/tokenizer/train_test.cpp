// Vocabularies against those that Hugging Face's tokenizers and sentencepiece train on the same texts
// (golden/tokenizer_training/make.py), piece by piece and merge by merge.
#include "tokenizer/train.h"

#include <algorithm>
#include <random>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "support/scratch.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_words.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/tokenizer_training/";

/// Texts in pieces of `piece_bytes`.
CorpusSource source_of(std::vector<std::string> texts, size_t piece_bytes = size_t{1} << 16) {
  return [texts = std::move(texts), piece_bytes, text = size_t{0}, at = size_t{0}](CorpusPiece& piece) mutable {
    if (text == texts.size()) return false;
    const std::string_view rest = std::string_view(texts[text]).substr(at, piece_bytes);
    at += rest.size();
    const bool ends = at == texts[text].size();
    piece = {rest, ends};
    if (ends) ++text, at = 0;
    return true;
  };
}

TrainedTokenizer train(const std::string& text, const TrainTokenizerOptions& options, int threads = 1,
                       size_t piece_bytes = size_t{1} << 16) {
  ThreadPool pool(threads);
  return train_tokenizer(source_of({text}, piece_bytes), options, pool);
}

TrainTokenizerOptions byte_options(int64_t vocab_size) {
  TrainTokenizerOptions options;
  options.vocab_size = vocab_size;
  return options;
}
TrainTokenizerOptions sentencepiece_options(int64_t vocab_size) {
  TrainTokenizerOptions options = byte_options(vocab_size);
  options.kind = TokenizerKind::sentencepiece_bpe;
  return options;
}

std::vector<std::string> spelled(const TrainedTokenizer& trained) {
  std::vector<std::string> pieces;
  for (const auto& piece : trained.pieces) pieces.push_back(piece.text);
  return pieces;
}
std::vector<std::string> merges_of(const TrainedTokenizer& trained) {
  std::vector<std::string> merges;
  for (const TrainedMerge& m : trained.merges)
    merges.push_back(trained.pieces[size_t(m.left)].text + " " + trained.pieces[size_t(m.right)].text);
  return merges;
}

std::string write_files(const Scratch& scratch, const TrainedTokenizer& trained, const std::string& which) {
  scratch.write("tokenizer_config.json", tokenizer_config_json(trained));
  return scratch.write(which, which == "tokenizer.model" ? tokenizer_model(trained) : tokenizer_json(trained));
}

TrainTokenizerOptions options_of(const Json& c) {
  TrainTokenizerOptions o = byte_options(c.at("vocab_size"));
  o.kind = c.at("kind") == "byte-bpe" ? TokenizerKind::byte_bpe : TokenizerKind::sentencepiece_bpe;
  o.min_frequency = c.value("min_frequency", 0);
  o.special = c.value("special", std::vector<std::string>());
  o.user_defined = c.value("user_defined", std::vector<std::string>());
  o.character_coverage = c.value("character_coverage", 0.9995);
  o.byte_fallback = c.value("byte_fallback", true);
  o.split_digits = c.value("split_digits", false);
  o.dummy_prefix = c.value("dummy_prefix", false);
  o.whitespace_pieces = c.value("whitespace_pieces", false);
  return o;
}

TEST(TrainTokenizer, EqualsTheReferences) {
  const Json golden = read_json(kFolder + "expected.json");
  for (const Json& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("kind").get<std::string>() + " " + c.at("text").get<std::string>() + " " + c.at("vocab_size").dump());
    const TrainedTokenizer trained = train(read_file(kFolder + c.at("text").get<std::string>()), options_of(c));
    const auto pieces = c.at("pieces").get<std::vector<std::string>>(), ours = spelled(trained);
    const auto [a, b] = std::mismatch(pieces.begin(), pieces.end(), ours.begin(), ours.end());
    EXPECT_TRUE(a == pieces.end() && b == ours.end())
        << "piece " << a - pieces.begin() << " of " << pieces.size() << " and " << ours.size() << ": \""
        << (a == pieces.end() ? "" : *a) << "\" there, \"" << (b == ours.end() ? "" : *b) << "\" here";
    if (c.contains("merges")) {
      EXPECT_EQ(merges_of(trained), c.at("merges").get<std::vector<std::string>>());
    } else {
      for (size_t i = 0; i < trained.pieces.size(); ++i)
        ASSERT_EQ(trained.pieces[i].score, c.at("scores").at(i).get<float>()) << i;
    }
  }
}

// Merges that a second, direct recount of all pairs confirmed when the file was made.
TEST(TrainTokenizer, EqualsTheDirectRecount) {
  const Json golden = read_json(kFolder + "bpe_training.json");
  ASSERT_TRUE(golden.at("agrees_with_direct_recount").get<bool>());
  const std::string text = read_file(kFolder + "shakespeare.txt").substr(0, golden.at("first_bytes"));
  std::vector<std::string> expected;
  for (const Json& pair : golden.at("merges")) expected.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  EXPECT_EQ(merges_of(train(text, byte_options(golden.at("vocab_size")))), expected);
}

// The example of the texts: four letters "a" in a row are joined first, then what follows from them.
TEST(TrainTokenizer, JoinsTheExampleOfTheTexts) {
  const TrainedTokenizer trained = train("aaabdaaabac", byte_options(256 + 3));
  EXPECT_EQ(merges_of(trained), (std::vector<std::string>{"a a", "a b", "aa ab"}));
  EXPECT_EQ(trained.merges[0].count, 4u);
  EXPECT_EQ(trained.merges[2].id, 258);
  const Scratch scratch;
  const auto tokenizer = load_tokenizer(write_files(scratch, trained, "tokenizer.json"));
  std::string pieces;
  for (const int32_t id : tokenizer->encode("aaabdaaabac")) pieces += tokenizer->piece(id) + " ";
  EXPECT_EQ(pieces, "aaab d aaab a c ");
}

TEST(TrainTokenizer, SpaceAndTIsTheFirstMergeOfEnglish) {
  const TrainedTokenizer trained = train(read_file(kFolder + "shakespeare.txt"), byte_options(300));
  EXPECT_EQ(merges_of(trained).front(), "Ġ t");
}

// Random text of all kinds of characters: what the pattern makes of them, the scanner must make.
std::string random_corpus(std::mt19937& random, size_t characters) {
  static const std::vector<std::string> kAlphabet = {
      "a",      "Z",      "s",      "t",      "re", "ll", "ve", "m",          "d",          "'",          "'",    "0",
      "7",      " ",      " ",      " ",      "\n", "\t", "\r", ".",          "-",          "_",          "\"",   "é",
      "ß",      "Ж",      "中",     "の",     "한", "ا",  "०",  "Ⅷ",          "²",          "½",          "́",     "\u00A0",
      "\u3000", "\u2028", "\u0085", "\u200B", "€",  "…",  "’",  "\U0001F600", "\U00010400", "\U0001D7D8", "\x01", "\x1C"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kAlphabet[random() % kAlphabet.size()];
  return text;
}

TEST(Gpt2Words, AreThoseOfThePattern) {
  const Regex pattern(kGpt2Pattern, "test", "pattern");
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    std::string text = random_corpus(random, 1 + random() % (round % 2 == 0 ? 60 : 400));
    // The faster way is for texts without these.
    for (const std::string_view white : {"\u00A0", "\u3000", "\u2028", "\u0085"})
      for (size_t at = 0; round % 4 != 0 && (at = text.find(white)) != std::string::npos;) text.erase(at, white.size());
    std::vector<std::pair<size_t, size_t>> expected, found;
    pattern.each_match(text, [&](size_t begin, size_t end) { expected.emplace_back(begin, end); });
    each_gpt2_word(text, [&](size_t begin, size_t end) { found.emplace_back(begin, end); });
    ASSERT_EQ(found, expected) << Json(text);
    std::vector<uint64_t> starts;
    found.clear();
    each_gpt2_word(text, starts, [&](size_t begin, size_t end) { found.emplace_back(begin, end); });
    ASSERT_EQ(found, expected) << Json(text);
  }
}

// As Hugging Face's ByteLevel cuts them (tokenizers 0.23.3), whose letters and numbers are those of Unicode 16.
TEST(Gpt2Words, LettersAndNumbersOfToday) {
  const auto words = [](std::string_view text) {
    std::vector<std::string> list;
    each_gpt2_word(text, [&](size_t begin, size_t end) { list.emplace_back(text.substr(begin, end - begin)); });
    return list;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(words("a\uA7CBb a\U0002EBF0b a\U00031350b"), (List{"a\uA7CBb", " a\U0002EBF0b", " a\U00031350b"}));
  EXPECT_EQ(words("1\U0001CCF12 a\U0001CCF1 \U0001CC00x"), (List{"1\U0001CCF12", " a", "\U0001CCF1", " \U0001CC00", "x"}));
}

TEST(Gpt2Words, DoNotCrossSafeCuts) {
  std::mt19937 random(12);
  const auto words = [](std::string_view text) {
    std::vector<std::string> list;
    each_gpt2_word(text, [&](size_t begin, size_t end) { list.emplace_back(text.substr(begin, end - begin)); });
    return list;
  };
  int cuts = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = random_corpus(random, 40);
    if (round % 4 == 0) text.erase(random() % text.size(), 1);  // not always UTF-8
    const size_t cut = gpt2_safe_cut(text, 0, random() % (text.size() + 1));
    if (cut == 0) continue;
    ++cuts;
    std::vector<std::string> parts = words(std::string_view(text).substr(0, cut));
    for (const std::string& word : words(std::string_view(text).substr(cut))) parts.push_back(word);
    ASSERT_EQ(parts, words(text)) << Json(utf8_lossy(text)) << " at " << cut;
  }
  EXPECT_GT(cuts, 1500);
}

// Text without a letter of ASCII has such places too: behind 。 at a line's end, say.
TEST(Gpt2Words, SafeCutsFollowCharactersBeyondAscii) {
  EXPECT_EQ(gpt2_safe_cut("你好。\n他", 0, 13), 9u);
  EXPECT_EQ(gpt2_safe_cut("你好 他", 0, 10), 6u);
  EXPECT_EQ(gpt2_safe_cut("\u00E9 \U0001F600 ", 0, 8), 7u);
  EXPECT_EQ(gpt2_safe_cut("\u00E9 \U0001F600 ", 0, 6), 2u);
  EXPECT_EQ(gpt2_safe_cut("你\u3000\n他", 0, 10), 0u);                             // inside a run of white space
  EXPECT_EQ(gpt2_safe_cut("\xBD\xA0 \xE4\xBD \x80\x80\x80\x80\x80 ", 0, 12), 0u);  // no characters
  EXPECT_EQ(gpt2_safe_cut("a\u0085 \u2028 ", 0, 8), 0u);
}

/// `bytes` of lines of made-up words, of which a few are frequent.
std::string long_text(size_t bytes) {
  std::mt19937 random(13);
  std::string text;
  while (text.size() < bytes) {
    const uint32_t rank = random() % (1 + random() % 6000);
    for (uint32_t r = rank + 3; r > 0; r /= 7) text += char('a' + r * 5 % 26);
    text += random() % 11 == 0 ? ".\n" : random() % 200 == 0 ? " é\xFFł 中文 " : " ";
  }
  return text;
}

TEST(TrainTokenizer, ThreadsAndPiecesChangeNothing) {
  const std::string text = long_text(size_t{9} << 20);  // more than two blocks
  for (TrainTokenizerOptions options : {byte_options(700), sentencepiece_options(700)}) {
    options.dummy_prefix = options.kind == TokenizerKind::sentencepiece_bpe;
    const TrainedTokenizer one = train(text, options);
    EXPECT_EQ(one.bytes, text.size());
    EXPECT_EQ(one.merges.back().id, options.kind == TokenizerKind::byte_bpe ? 699 : 259 + int32_t(one.merges.size()));
    for (const int threads : {2, 3})
      for (const size_t piece : {size_t{70001}, size_t{1} << 22}) {
        const TrainedTokenizer other = train(text, options, threads, piece);
        EXPECT_EQ(tokenizer_json(other), tokenizer_json(one));
        EXPECT_EQ(other.words, one.words);
        EXPECT_EQ(other.distinct_words, one.distinct_words);
      }
  }
}

TEST(TrainTokenizer, CountsAreThoseOfTheText) {
  // Every space begins a word, and every merge's count is what a recount of the words so far gives.
  const TrainedTokenizer trained = train("low low low lower newest newest", byte_options(256 + 4));
  EXPECT_EQ(trained.words, 6u);
  EXPECT_EQ(trained.distinct_words, 4u);  // "low" and " low" differ
  EXPECT_EQ(merges_of(trained), (std::vector<std::string>{"l o", "lo w", "Ġ low", "e s"}));
  std::vector<uint64_t> counts;
  for (const TrainedMerge& m : trained.merges) counts.push_back(m.count);
  EXPECT_EQ(counts, (std::vector<uint64_t>{4, 4, 3, 2}));
}

TEST(TrainTokenizer, TextsDoNotRunIntoEachOther) {
  ThreadPool pool(1);
  const TrainedTokenizer apart = train_tokenizer(source_of({"ab", "ab", "ab"}), byte_options(300), pool);
  EXPECT_EQ(apart.texts, 3u);
  EXPECT_EQ(spelled(apart).back(), "ab");
  EXPECT_EQ(spelled(train("ababab", byte_options(300))).back(), "ababab");
}

TEST(TrainTokenizer, MemoryIsBoundedByLeavingOutRareWords) {
  std::mt19937 random(14);
  std::string text;
  while (text.size() < (size_t{24} << 20)) {  // ever new words among a few frequent ones
    text += "the king ";
    for (int i = 0; i < 6; ++i) text += char('a' + random() % 26);
    text += ' ';
  }
  TrainTokenizerOptions options = byte_options(400);
  options.memory_bytes = size_t{64} << 20;
  const TrainedTokenizer trained = train(text, options, 1), again = train(text, options, 2);
  EXPECT_GT(trained.pruned_words, 10000u);
  EXPECT_GT(trained.pruned_below, 1u);
  EXPECT_LE(words_memory(trained.distinct_words, 0), options.memory_bytes);
  EXPECT_EQ(tokenizer_json(trained), tokenizer_json(again));
  EXPECT_EQ(trained.pruned_words, again.pruned_words);
  const auto pieces = spelled(trained);
  EXPECT_NE(std::find(pieces.begin(), pieces.end(), "Ġking"), pieces.end());
}

/// The lines in which no control token is spelled and no U+2581 stands for itself: those every tokenizer reads alike.
std::string plain_lines(const std::string& text) {
  std::string plain;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find('<') == std::string::npos && line.find("\xE2\x96\x81") == std::string::npos) plain += line + "\n";
  return plain;
}

// What was trained must read every text, ids of both files alike.
TEST(TrainTokenizer, ItsFilesLoadAndSpellEveryText) {
  const std::string world = plain_lines(read_file(kFolder + "world.txt")), shakespeare = read_file(kFolder + "shakespeare.txt");
  TrainTokenizerOptions with_pieces = sentencepiece_options(1400);
  with_pieces.user_defined = {"\n", "king"};
  with_pieces.special = {"<turn>"};
  for (const TrainTokenizerOptions& options : {byte_options(900), sentencepiece_options(1400), with_pieces}) {
    const TrainedTokenizer trained = train(shakespeare + world, options);
    const Scratch scratch;
    const auto json = load_tokenizer(write_files(scratch, trained, "tokenizer.json"));
    EXPECT_EQ(json->vocab_size(), int32_t(trained.pieces.size()));
    for (const std::string& text : {world, shakespeare}) {
      EXPECT_EQ(json->decode(json->encode(text, false), true), text);
      if (options.kind == TokenizerKind::byte_bpe) continue;
      const auto model = load_tokenizer(write_files(scratch, trained, "tokenizer.model"));
      EXPECT_EQ(model->bos(), 2);
      EXPECT_EQ(model->encode(text), json->encode(text));
    }
  }
}

TEST(TrainTokenizer, PiecesInFrontStandWhereTheyAreSpelled) {
  TrainTokenizerOptions options = sentencepiece_options(320);
  options.user_defined = {"king"};
  options.special = {"<turn>"};
  const TrainedTokenizer trained = train("<turn>my king and thinking <turn>of kings", options);
  EXPECT_EQ(trained.pieces[4].text, "<turn>");
  EXPECT_EQ(trained.pieces[4].type, PieceType::control);
  EXPECT_EQ(trained.pieces[5].type, PieceType::user_defined);
  for (const auto& piece : trained.pieces) {
    if (piece.type == PieceType::normal) {
      EXPECT_EQ(piece.text.find("ki"), std::string::npos) << piece.text;
    }
  }
  const Scratch scratch;
  const auto tokenizer = load_tokenizer(write_files(scratch, trained, "tokenizer.json"));
  const auto ids = tokenizer->encode("thinking", false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 5), 1);
}

// The longest of the pieces that fit, as SentencePiece takes it, in both files.
TEST(TrainTokenizer, PiecesInFrontWithAndWithoutSpaces) {
  TrainTokenizerOptions options = sentencepiece_options(320);
  options.user_defined = {"\n", "\n  ", "  ", "x y", "y"};
  const TrainedTokenizer trained = train("some words for a vocabulary", options);
  const Scratch scratch;
  const auto json = load_tokenizer(write_files(scratch, trained, "tokenizer.json")),
             model = load_tokenizer(write_files(scratch, trained, "tokenizer.model"));
  for (const char* text : {"a\n  b", "x y", "x yy x", "  \n\n   x  y", "y x y\n"}) {
    EXPECT_EQ(json->encode(text), model->encode(text)) << text;
    EXPECT_EQ(json->decode(json->encode(text), true), text);
  }
}

// A line that is cut for its length is not cut inside a piece in front.
TEST(TrainTokenizer, LongLinesOfPiecesInFront) {
  std::string text = "the mouse\n";
  for (int i = 0; i < 500'000; ++i) text += "q z";
  TrainTokenizerOptions options = sentencepiece_options(300);
  options.user_defined = {"q z"};
  options.character_coverage = 1;
  const TrainedTokenizer trained = train(text, options, 2);
  EXPECT_GT(trained.merges.size(), 5u);
  for (const TrainedMerge& merge : trained.merges) EXPECT_EQ(merge.count, 1u);
  for (const auto& piece : trained.pieces) EXPECT_TRUE(piece.text != "q" && piece.text != "z");
}

// sentencepiece 0.2.3. U+2581 in a text is a space, so a line is not cut between the two.
TEST(TrainTokenizer, LongLinesOfMarksBesideSpaces) {
  const auto long_line = [](const std::string& part) {
    std::string line;
    for (int i = 0; i < 200'000; ++i) line += part;
    return line + "\n";
  };
  const auto pieces = [](const TrainedTokenizer& trained) {
    const auto all = spelled(trained);
    return std::vector<std::string>(all.begin() + 4, all.end());  // behind <pad>, <eos>, <bos>, <unk>
  };
  TrainTokenizerOptions options = sentencepiece_options(20);
  options.byte_fallback = false;
  options.character_coverage = 1;
  TrainTokenizerOptions runs = options;
  options.user_defined = {"  "};
  runs.whitespace_pieces = true;
  EXPECT_EQ(pieces(train(long_line("a▁ b"), options)), (std::vector<std::string>{"▁▁", "ba", "a", "b"}));
  EXPECT_EQ(pieces(train(long_line("ab▁ "), runs)), (std::vector<std::string>{"ab", "▁▁", "▁", "a", "b"}));
}

// sentencepiece 0.2.3. Lines are texts, and a piece in front that holds a line's end is spelled in none.
TEST(TrainTokenizer, PiecesInFrontDoNotReachOverLines) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "ba\ncd ba\ncd bacd\n";
  TrainTokenizerOptions options = sentencepiece_options(14);
  options.user_defined = {"a\n"};
  options.byte_fallback = false;
  options.character_coverage = 1;
  EXPECT_EQ(spelled(train(text, options)), (std::vector<std::string>{"<pad>", "<eos>", "<bos>", "<unk>", "a\n", "ba", "cd", "▁ba",
                                                                     "▁bacd", "a", "b", "c", "d", "▁"}));
}

TEST(TrainTokenizer, BytesThatAreNotUtf8) {
  const TrainedTokenizer bytes = train("\xFF\xFE\xFF\xFE \xFF\xFE", byte_options(258));
  EXPECT_EQ(merges_of(bytes).front(), byte_level_alphabet()[0xFF] + " " + byte_level_alphabet()[0xFE]);
  EXPECT_EQ(bytes.invalid_characters, 0u);
  const TrainedTokenizer pieces = train("a\xFF b\xFF", sentencepiece_options(300));
  EXPECT_EQ(pieces.invalid_characters, 2u);
  const auto spellings = spelled(pieces);
  EXPECT_NE(std::find(spellings.begin(), spellings.end(), "\xEF\xBF\xBD"), spellings.end());
}

TEST(TrainTokenizer, OneLongWordTakesNoTimeWorthMentioning) {
  std::string text(size_t{1} << 20, 'a');
  const TrainedTokenizer runs = train(text, byte_options(300));
  EXPECT_EQ(merges_of(runs)[0], "a a");
  EXPECT_EQ(runs.merges.size(), 20u);  // two to the power of 20 letters
  std::mt19937 random(15);
  for (char& c : text) c = char('a' + random() % 4);
  EXPECT_EQ(train(text, byte_options(1500)).pieces.size(), 1500u);
}

TEST(TrainTokenizer, RefusesWithNumbers) {
  const auto message = [](const std::string& text, const TrainTokenizerOptions& options) -> std::string {
    try {
      train(text, options);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_CONTAINS(message("", byte_options(300)), "there is no word in 0 bytes of text");
  EXPECT_CONTAINS(message("\n\n", sentencepiece_options(300)), "there is no word in 2 bytes of text");
  EXPECT_CONTAINS(
      message("<unk><0x41>\n<pad>", sentencepiece_options(300)),
      "there is no character that could be a piece in 17 bytes of text, beside special, user-defined and byte pieces; "
      "name files that hold words.");
  EXPECT_CONTAINS(message(std::string(5, '\0'), sentencepiece_options(300)), "there is no character that could be a piece");
  TrainTokenizerOptions covered = sentencepiece_options(300);
  covered.user_defined = {"<x>"};
  std::string spelled;
  for (int i = 0; i < 10000; ++i) spelled += "<x>";
  EXPECT_CONTAINS(
      message(spelled + "a b", covered),
      "none of the 3 characters of 30003 bytes of text would be a piece: the pieces that it spells cover 0.9995 of it");
  covered.user_defined = {""};
  covered.dummy_prefix = true;
  EXPECT_CONTAINS(message("a", covered), "is empty; give it a spelling");
  EXPECT_CONTAINS(message("a", byte_options(255)), "a vocabulary of 255 is too small");
  EXPECT_CONTAINS(message("a", byte_options(255)), "make 256 pieces before the first merge. Ask for 256 or more.");
  EXPECT_EQ(train("a", byte_options(256)).pieces.size(), 256u);
  EXPECT_CONTAINS(message("ab", sentencepiece_options(100)),
                  "260 special, user-defined and byte pieces and 2 characters make 262 pieces");
  TrainTokenizerOptions options = byte_options(300);
  options.special = {"<a>", "<a>"};
  EXPECT_CONTAINS(message("a", options), "the special token \"<a>\" is given twice");
  options.special = {""};
  EXPECT_CONTAINS(message("a", options), "a special token is empty");
  options = sentencepiece_options(300);
  options.user_defined = {"<bos>"};
  EXPECT_CONTAINS(message("a", options), "the piece \"<bos>\" is given twice; <pad>, <eos>, <bos>, <unk>");
  options.dummy_prefix = true;
  for (const char* piece : {"  ", "<x>"}) {
    options.user_defined = {piece};
    EXPECT_CONTAINS(message("a", options), "the user-defined piece \"" + std::string(piece) +
                                               "\" cannot be used together with a space before every line: tokenizer.json has no "
                                               "form for both. Leave one of them out.");
  }
  options.user_defined.clear();
  options.special = {"\u2581The"};
  EXPECT_CONTAINS(message("The cat\nThe dog\nThe king", options),
                  "the control token \"\u2581The\" begins with U+2581, a space, and cannot be used together with a space before "
                  "every line");
  options.dummy_prefix = false;
  EXPECT_EQ(message("The cat\nThe dog\nThe king", options), "no error");
  options = byte_options(300);
  options.memory_bytes = 64;
  EXPECT_CONTAINS(message("a b c d e f g h", options), "0 MiB do not hold the words of 1 MiB of text; allow more memory.");
}

}  // namespace
}  // namespace vitrine
