#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/permutation.h"
#include "ops/head.h"
#include "runtime/engine.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "tokenizer/load.h"
#include "tokenizer/sentencepiece_writer.h"
#include "train/data/batch_source.h"
#include "train/data/characters.h"
#include "train/data/prepare.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

const std::string kFables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";

std::shared_ptr<const Tokenizer> tales_tokenizer() { return load_tokenizer(std::string(VITRINE_SOURCE) + "/models/tales9m"); }

std::vector<int32_t> all_ids(const TokenData& data) {
  std::vector<int32_t> ids(data.tokens());
  data.read(0, ids);
  return ids;
}

/// Token data of these documents in a folder of `scratch`.
TokenData make_data(const Scratch& scratch, const std::vector<std::vector<int32_t>>& documents, int64_t vocab_size = 1000,
                    uint64_t shard_tokens = TokenDataWriter::kShardTokens) {
  const std::string dir = scratch / "data";
  fs::remove_all(dir);
  fs::create_directories(dir);
  TokenDataWriter writer(dir, {vocab_size, 0xfedcba9876543210u}, shard_tokens);
  for (const auto& document : documents) {
    writer.add(document, 3 * document.size());
    writer.end_document();
  }
  writer.finish();
  return TokenData::open(dir);
}

/// Documents of 1, 2, 3, … ids, counting up over all: the id is the place.
std::vector<std::vector<int32_t>> counting(int documents) {
  std::vector<std::vector<int32_t>> result;
  int32_t next = 0;
  for (int i = 1; i <= documents; ++i) {
    result.emplace_back(i);
    std::iota(result.back().begin(), result.back().end(), next);
    next += i;
  }
  return result;
}

TEST(Permutation, IsABijectionThatDependsOnItsKey) {
  for (const uint64_t n : {1u, 2u, 3u, 7u, 8u, 9u, 1000u, 4096u, 4097u}) {
    std::vector<bool> seen(n);
    int same = 0;
    const Permutation one(n, 1), two(n, 2);
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_LT(one(i), n);
      EXPECT_FALSE(seen[one(i)]) << n;
      seen[one(i)] = true;
      same += one(i) == two(i) ? 1 : 0;
    }
    EXPECT_LT(same, n >= 1000 ? 10 : 9) << n;
  }
  // No trace of the order: over many keys each place goes everywhere (chi-square of 7 degrees of freedom, p about 1e-6).
  std::vector<int> hits(8);
  for (uint64_t key = 0; key < 8000; ++key) ++hits[Permutation(8, key)(3)];
  double distance = 0;
  for (const int n : hits) distance += (n - 1000.0) * (n - 1000.0) / 1000;
  EXPECT_LT(distance, 40);
}

TEST(TokenData, KeepsIdsAndDocumentsOverManyShards) {
  const Scratch scratch;
  const auto documents = counting(40);
  for (const int64_t vocab_size : {1000, 65536, 65537}) {
    for (const uint64_t shard_tokens : {1u, 50u, 10000u}) {
      const TokenData data = make_data(scratch, documents, vocab_size, shard_tokens);
      EXPECT_EQ(data.tokens(), 820u);
      EXPECT_EQ(data.documents(), 40u);
      EXPECT_EQ(data.text_bytes(), 2460u);
      EXPECT_EQ(data.vocab_size(), vocab_size);
      EXPECT_EQ(data.tokenizer(), 0xfedcba9876543210u);
      const auto ids = all_ids(data);
      for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<int32_t>(i));
      std::vector<uint64_t> starts;
      for (const auto& document : documents) starts.push_back(static_cast<uint64_t>(document[0]));
      EXPECT_EQ(data.document_starts(0, 820), starts);
      EXPECT_EQ(data.document_starts(3, 16), (std::vector<uint64_t>{3, 6, 10, 15}));
      EXPECT_EQ(data.document_starts(4, 6), std::vector<uint64_t>{});
      EXPECT_EQ(data.document_starts(820, 900), std::vector<uint64_t>{});
      std::vector<int32_t> part(100);
      data.read(333, part);
      EXPECT_EQ(part.front(), 333);
      EXPECT_EQ(part.back(), 432);
      data.verify();
    }
  }
}

TEST(TokenData, RefusesDamagedFiles) {
  const Scratch scratch;
  make_data(scratch, counting(5));
  const std::string dir = scratch / "data", index = read_file(dir + "/index.json"), shard = read_file(dir + "/00000.tokens");
  const auto message = [&](const std::string& changed_index, const std::string& changed_shard) {
    scratch.write("data/index.json", changed_index);
    scratch.write("data/00000.tokens", changed_shard);
    return message_of([&] {
      const TokenData data = TokenData::open(dir);
      all_ids(data);
      data.verify();
    });
  };
  const auto with_index = [&](const char* field, const Json& value) {
    Json changed = parse_json(index, "index");
    if (value.is_discarded())
      changed.erase(field);
    else
      changed[field] = value;
    return message(changed.dump(), shard);
  };
  const auto with_shard = [&](size_t at, const std::string& bytes) {
    std::string changed = shard;
    changed.replace(at, bytes.size(), bytes);
    return message(index, changed);
  };
  EXPECT_CONTAINS(message(index, shard.substr(0, 30)), "00000.tokens: has 30 bytes; a shard's header alone has 64");
  EXPECT_CONTAINS(message(index, shard.substr(0, shard.size() - 1)),
                  "00000.tokens: has 135 bytes; expected 136 for 15 tokens in 5 documents");
  EXPECT_CONTAINS(message(index, shard + " "), "has 137 bytes; expected 136");
  EXPECT_CONTAINS(with_shard(0, "VITRTOK2"), "does not begin with VITRTOK1");
  EXPECT_CONTAINS(with_shard(8, raw(uint32_t{4})), "id_bytes is 4 in the header; expected 2 from index.json");
  EXPECT_CONTAINS(with_shard(12, raw(uint32_t{7})), "vocab_size is 7 in the header; expected 1000");
  EXPECT_CONTAINS(with_shard(16, raw(UINT64_MAX)), "the header claims 18446744073709551615 tokens");
  EXPECT_CONTAINS(with_shard(16, raw(uint64_t{1} << 47)), "has 136 bytes; expected 281474976710760");
  EXPECT_CONTAINS(with_shard(24, raw(uint64_t{16})), "the header claims 15 tokens in 16 documents, which cannot be");
  EXPECT_CONTAINS(with_shard(64 + 2 * 7, raw(uint16_t{1000})),
                  "00000.tokens: token 7 (byte 78) is 1000; expected less than 1000");
  EXPECT_CONTAINS(with_shard(64 + 2 * 7, raw(uint16_t{8})), "its content does not fit the header's checksum");
  EXPECT_CONTAINS(with_shard(96, raw(uint64_t{0})), "document 0 ends at token 0; expected more than 0");
  EXPECT_CONTAINS(with_shard(104, raw(uint64_t{1})), "document 1 ends at token 1; expected more than 1");
  EXPECT_CONTAINS(with_shard(128, raw(uint64_t{16})), "document 4 ends at token 16; expected more than 10 and at most 15");
  EXPECT_CONTAINS(with_shard(128, raw(uint64_t{14})), "its documents end at token 14; expected 15");
  EXPECT_CONTAINS(with_index("tokens", 16), "index.json: \"tokens\" is 16, and the shards hold 15");
  EXPECT_CONTAINS(with_index("documents", -1), "index.json: \"documents\" is -1; expected a whole number");
  EXPECT_CONTAINS(with_index("format", 3), "\"format\" is 3; this version reads 1 and 2");
  EXPECT_CONTAINS(with_index("tokenizer", "xyz"), "\"tokenizer\" is \"xyz\"; expected up to 16 hexadecimal digits");
  EXPECT_CONTAINS(with_index("tokenizer", "fedcba9876543211"), "Do these files come from the same run?");
  EXPECT_CONTAINS(with_index("shards", Json::array({"../x"})), "\"shards\" holds \"../x\"; expected \"00000.tokens\"");
  EXPECT_CONTAINS(with_index("shards", Json::array({"00000.tokens", "00000.tokens"})),
                  "\"shards\" holds \"00000.tokens\"; expected \"00001.tokens\"");
  EXPECT_CONTAINS(with_index("shards", Json::array({"00000.tokens", "00001.tokens"})), "00001.tokens: cannot be opened");
  EXPECT_CONTAINS(with_index("vocab_size", Json(Json::value_t::discarded)), "has no field \"vocab_size\"");
  EXPECT_CONTAINS(message("[]", shard), "index.json: is no JSON object");
  fs::remove(dir + "/index.json");
  EXPECT_CONTAINS(message_of([&] { TokenData::open(dir); }), "index.json: cannot be opened");
}

BatchOptions batches(int64_t length, int64_t batch, bool documents = false) {
  return {.sequence_length = length, .batch = batch, .seed = 5, .documents = documents};
}

TEST(BatchSource, GivesEveryWindowOfAnEpochOnceAndShuffled) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, counting(40));  // 820 ids
  BatchSource source(data, batches(10, 3));
  const uint64_t windows = source.windows_per_epoch();
  EXPECT_EQ(windows, 81u);
  EXPECT_EQ(source.batches_per_epoch(), 27u);
  std::vector<std::vector<int32_t>> orders;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> starts;
    for (int i = 0; i < 27; ++i) {
      EXPECT_EQ(source.position(),
                (i == 0 && epoch > 0 ? DataPosition{epoch - 1, windows} : DataPosition{epoch, uint64_t(3 * i)}));
      const Batch batch = source.next();
      ASSERT_EQ(batch.tokens.size(), 30u);
      EXPECT_EQ(batch.lengths, (std::vector<int64_t>{10, 10, 10}));
      for (size_t row = 0; row < 30; ++row) {
        EXPECT_EQ(batch.tokens[row], batch.tokens[row / 10 * 10] + int32_t(row % 10));
        EXPECT_EQ(batch.labels[row], batch.tokens[row] + 1);
      }
      for (size_t row = 0; row < 30; row += 10) starts.push_back(batch.tokens[row]);
    }
    orders.push_back(starts);
    std::sort(starts.begin(), starts.end());
    for (size_t i = 0; i < starts.size(); ++i) EXPECT_EQ(starts[i], starts[0] + int32_t(10 * i)) << "each window once";
    EXPECT_LT(starts[0], 10);
    EXPECT_NE(orders.back(), starts) << "shuffled";
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

// Also the tokens behind the last whole window.
TEST(BatchSource, EveryTokenIsLearnedInSomeEpoch) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, counting(14));  // the ids 0 to 104
  for (const int64_t length : {32, 26, 35, 52, 53, 100, 104}) {
    BatchSource source(data, batches(length, 1));
    std::set<int32_t> read, scored;
    for (int i = 0; i < 2000; ++i) {
      const Batch batch = source.next();
      read.insert(batch.tokens.begin(), batch.tokens.end());
      scored.insert(batch.labels.begin(), batch.labels.end());
    }
    EXPECT_EQ(read.size(), 104u) << length;
    EXPECT_EQ(*scored.begin(), 1) << length;
    EXPECT_EQ(scored.size(), 104u) << length;
    EXPECT_EQ(*scored.rbegin(), 104) << length;
  }
}

TEST(BatchSource, GoesOnFromAnyPosition) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, counting(40));
  for (const bool documents : {false, true}) {
    BatchSource source(data, batches(16, 4, documents));
    for (int i = 0; i < 40; ++i) {  // over several epochs, which 4 windows do not divide
      const DataPosition place = source.position();
      const Batch batch = source.next();
      BatchSource other(data, batches(16, 4, documents));
      other.seek(place);
      const Batch again = other.next();
      ASSERT_EQ(again.tokens, batch.tokens);
      ASSERT_EQ(again.labels, batch.labels);
      ASSERT_EQ(again.lengths, batch.lengths);
      ASSERT_EQ(other.position(), source.position());
    }
    EXPECT_GE(source.position().epoch, 2u);
    EXPECT_CONTAINS(message_of<InputError>([&] { source.seek({0, 51}); }), "place 51 of an epoch of 50 sequences does not exist");
  }
}

TEST(BatchSource, RanksSeeTogetherWhatOneSees) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, counting(40));
  for (const bool documents : {false, true}) {
    for (const bool shuffle : {true, false}) {
      BatchOptions whole = batches(7, 6, documents);
      whole.shuffle = shuffle;
      BatchSource one(data, whole);
      std::vector<BatchSource> ranks;
      for (int rank = 0; rank < 3; ++rank) {
        BatchOptions part = whole;
        part.batch = 2;
        part.rank = rank;
        part.ranks = 3;
        ranks.emplace_back(data, part);
      }
      EXPECT_EQ(one.batches_per_epoch(), ranks[0].batches_per_epoch());
      for (int i = 0; i < 45; ++i) {
        const Batch expected = one.next();
        Batch together;
        for (BatchSource& rank : ranks) {
          const Batch part = rank.next();
          together.tokens.insert(together.tokens.end(), part.tokens.begin(), part.tokens.end());
          together.labels.insert(together.labels.end(), part.labels.begin(), part.labels.end());
          together.lengths.insert(together.lengths.end(), part.lengths.begin(), part.lengths.end());
          ASSERT_EQ(rank.position(), one.position());
        }
        ASSERT_EQ(together.tokens, expected.tokens);
        ASSERT_EQ(together.labels, expected.labels);
        ASSERT_EQ(together.lengths, expected.lengths);
      }
    }
  }
}

TEST(BatchSource, CutsWindowsAtDocuments) {
  const Scratch scratch;
  const auto documents = counting(12);
  const TokenData data = make_data(scratch, documents, 1000, 20);
  std::set<int32_t> lasts;
  for (const auto& document : documents) lasts.insert(document.back());
  BatchSource source(data, batches(9, 2, true));
  for (int i = 0; i < 30; ++i) {
    const Batch batch = source.next();
    EXPECT_EQ(batch.tokens.size(), 18u);
    EXPECT_EQ(std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0}), 18);
    for (size_t row = 0; row < 18; ++row)
      EXPECT_EQ(batch.labels[row], lasts.contains(batch.tokens[row]) ? kNotScored : batch.tokens[row] + 1);
    size_t row = 0;
    for (const int64_t length : batch.lengths) {
      for (int64_t r = 0; r + 1 < length; ++r)
        EXPECT_FALSE(lasts.contains(batch.tokens[row + static_cast<size_t>(r)])) << "a border inside";
      row += static_cast<size_t>(length);
      EXPECT_TRUE(lasts.contains(batch.tokens[row - 1]) || row % 9 == 0) << "cut where no document ends";
    }
  }
}

TEST(BatchSource, ReadsEverythingInOrderForValidation) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, counting(40));  // 820 ids, 819 to score
  BatchOptions options = batches(100, 4);
  options.shuffle = false;
  BatchSource source(data, options);
  EXPECT_EQ(source.batches_per_epoch(), 3u);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int32_t next = 0;
    for (int i = 0; i < 3; ++i) {
      const Batch batch = source.next();
      for (size_t row = 0; row < batch.tokens.size(); ++row) {
        EXPECT_EQ(batch.tokens[row], next++);
        EXPECT_EQ(batch.labels[row], next);
      }
      EXPECT_EQ(batch.lengths.back(), i < 2 ? 100 : 19);
    }
    EXPECT_EQ(next, 819);
  }
}

TEST(BatchSource, RefusesDataThatHoldsNoWindow) {
  const Scratch scratch;
  const TokenData data = make_data(scratch, {{1, 2, 3}, {4, 5}});
  EXPECT_EQ(BatchSource(data, batches(4, 8)).next().tokens.size(), 32u);  // one window, again and again
  EXPECT_CONTAINS(message_of<InputError>([&] { BatchSource(data, batches(5, 1)); }),
                  "holds 5 tokens; a sequence of 5 and the token that follows it need 6");
  EXPECT_THROW(BatchSource(data, batches(0, 1)), UsageError);
  EXPECT_THROW(BatchSource(data, batches(1, 0)), UsageError);
}

// Preparing -----------------------------------------------------------------------------------------------------------

Prepared prepare(const PrepareOptions& options, const std::string& out, int threads = 2,
                 const std::function<void(const PrepareProgress&)>& progress = {}) {
  static const auto tokenizer = tales_tokenizer();
  ThreadPool pool(threads);
  return prepare_data(*tokenizer, pool, options, out, {}, progress);
}

TEST(PrepareData, GivesTheIdsOfSentencePiece) {  // tests/golden/token_data/make.py
  const Scratch scratch;
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/token_data/fables.json");
  const Prepared made = prepare({.files = {kFables}, .text = {.separator = "\n\n\n"}}, scratch / "out");
  EXPECT_FALSE(made.valid);
  const TokenData data = TokenData::open(scratch / "out/train");
  std::vector<int32_t> expected;
  std::vector<uint64_t> starts;
  for (const Json& document : golden["documents"]) {
    starts.push_back(expected.size());
    for (const Json& id : document) expected.push_back(id.get<int32_t>());
  }
  EXPECT_EQ(all_ids(data), expected);
  EXPECT_EQ(data.document_starts(0, data.tokens()), starts);
  EXPECT_EQ(data.tokenizer(), tokenizer_fingerprint(*tales_tokenizer()));
  EXPECT_EQ(made.train.tokens, expected.size());
  EXPECT_EQ(made.train.text_bytes, read_file(kFables).size() - 3 * (starts.size() - 1) - 1);
}

TEST(PrepareData, WritesTheSameBytesForAnyNumberOfThreads) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 100; ++i) text += read_file(kFables) + "\n\n\n";
  const std::string file = scratch.write("long.txt", text), whole = scratch.write("whole.txt", text);
  for (const int threads : {1, 2, 3})
    prepare({.files = {file, whole}, .text = {.separator = "\n\n\n"}, .valid = 0.1, .seed = 3, .shard_tokens = 100'000},
            scratch / ("out" + std::to_string(threads)), threads);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "out1")) {
    if (!entry.is_regular_file()) continue;
    const std::string name = fs::relative(entry.path(), scratch / "out1").string();
    for (const char* other : {"out2/", "out3/"})
      EXPECT_EQ(read_file(scratch / (other + name)) == read_file(entry.path()), true) << name;
    ++files;
  }
  EXPECT_GE(files, 8u);
  const TokenData train = TokenData::open(scratch / "out1/train"), valid = TokenData::open(scratch / "out1/valid");
  EXPECT_EQ(train.documents() + valid.documents(), 4800u);
  EXPECT_NEAR(static_cast<double>(valid.documents()), 480, 80);
}

TEST(PrepareData, TokenizesALongDocumentInPieces) {
  const Scratch scratch;
  const auto tokenizer = load_tokenizer(std::string(VITRINE_GOLDEN) + "/tokenizers/gpt2");
  std::string text = read_file(kFables);
  ThreadPool pool(2);
  prepare_data(*tokenizer, pool, {.files = {kFables}, .text = {.longest = 200}}, scratch / "out");
  std::vector<int32_t> expected = tokenizer->encode(text, false, Special::text);
  expected.push_back(*tokenizer->eos());
  const TokenData data = TokenData::open(scratch / "out/train");
  EXPECT_EQ(data.documents(), 1u);
  EXPECT_EQ(all_ids(data), expected);
}

// A user-defined piece and an added token that hold a space, in documents with a cut at nearly every place of them. The text as a
// whole is encoded as sentencepiece 0.2.3 and tokenizers 0.23.3 do it: 2,002 ids.
TEST(PrepareData, CutsNoTokenThatHoldsWhiteSpace) {
  const Scratch scratch;
  std::string text = "zz";
  for (int i = 0; i < 1000; ++i) text += "x y ";
  SentencePieceSpec spec;
  for (const char* piece : {"<unk>", "x▁y", "▁", "x", "y", "z"}) spec.pieces.push_back({piece, 0, PieceType::normal});
  spec.pieces[0].type = PieceType::unknown, spec.pieces[1].type = PieceType::user_defined;
  spec.add_dummy_prefix = spec.remove_extra_whitespaces = false;
  Json json = Json::parse(R"({"added_tokens": [{"id": 4, "content": "x y", "special": false}],
      "model": {"type": "BPE", "vocab": {"Ġ": 0, "x": 1, "y": 2, "z": 3}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");
  ThreadPool pool(2);
  const std::string file = scratch.write("a.txt", text);
  for (const auto& tokenizer : {tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {}),
                                tokenizer_from_json(json.dump(), "tokenizer.json", {})}) {
    const std::vector<int32_t> expected = tokenizer->encode(text, false, Special::text);
    EXPECT_EQ(expected.size(), 2002u);
    for (size_t longest = 16; longest < 64; ++longest) {
      prepare_data(*tokenizer, pool, {.files = {file}, .text = {.longest = longest}, .special = false}, scratch / "out");
      ASSERT_EQ(all_ids(TokenData::open(scratch / "out/train")), expected) << longest;
    }
  }
}

TEST(PrepareData, LeavesControlTokensInTheTextAsText) {
  const Scratch scratch;
  const std::string file = scratch.write("a.txt", "one<eos>two");
  prepare({.files = {file}}, scratch / "out");
  const auto tokenizer = tales_tokenizer();
  const TokenData data = TokenData::open(scratch / "out/train");
  const auto ids = all_ids(data);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->eos()), 1);
  prepare({.files = {file}, .special = false}, scratch / "out");
  EXPECT_EQ(all_ids(TokenData::open(scratch / "out/train")), tokenizer->encode("one<eos>two", false, Special::text));
}

TEST(PrepareData, ReplacesOnlyTokenDataAndOnlyWithCompleteData) {
  const Scratch scratch;
  const std::string good = scratch.write("good.txt", "once upon a time"),
                    bad = scratch.write("bad.jsonl", "{\"text\": \"a\"}\n{}\n");
  const std::string out = scratch / "out";
  fs::create_directories(out);  // an empty folder is no obstacle
  prepare({.files = {good}, .valid_files = {kFables}}, out + "/");
  const auto before = all_ids(TokenData::open(out + "/train"));
  EXPECT_CONTAINS(message_of([&] { prepare({.files = {good, bad}}, out); }), "bad.jsonl line 2: has no key \"text\"");
  EXPECT_EQ(all_ids(TokenData::open(out + "/train")), before);
  prepare({.files = {kFables}}, out);
  EXPECT_NE(all_ids(TokenData::open(out + "/train")), before);
  EXPECT_FALSE(fs::exists(out + "/valid"));
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    EXPECT_TRUE(entry.path().filename() == "out" || entry.is_regular_file()) << entry.path();

  scratch.write("full/thesis.tex", "x");
  EXPECT_CONTAINS(message_of<InputError>([&] { prepare({.files = {good}}, scratch / "full"); }),
                  "full: holds thesis.tex, which is no token data");
  EXPECT_CONTAINS(message_of<InputError>([&] { prepare({.files = {good}}, good); }), "is a file; token data is a folder");
  // The names that it works under may be somebody's too.
  for (const char* name : {"out.replaced", "out.unfinished"}) {
    scratch.write(std::string(name) + "/train/notes.txt", "x");
    EXPECT_CONTAINS(message_of<InputError>([&] { prepare({.files = {good}}, out); }),
                    std::string(name) + ": holds train, which is no token data");
    fs::remove(scratch / (std::string(name) + "/train/notes.txt"));
    for (const char* mine :
         {"train/big.tokens/book.txt", "train/war-and-peace.tokens.txt", "train/index.json.bak", "tokenizer.json.bak"}) {
      const std::string path = scratch.write(std::string(name) + "/" + mine, "x");
      EXPECT_CONTAINS(message_of<InputError>([&] { prepare({.files = {good}}, out); }), "which is no token data") << mine;
      EXPECT_TRUE(fs::exists(path));
      fs::remove_all(scratch / name);
    }
    scratch.write(std::string(name) + "/train/00000.tokens.tmp.1.0", "half");  // of a run that was killed
    prepare({.files = {good}}, out);
    EXPECT_FALSE(fs::exists(scratch / name));
  }
}

TEST(PrepareData, SaysBeforeItStartsThatAFolderCannotBeReplaced) {
  const Scratch scratch;
  const auto message = [](const std::string& out) { return message_of<InputError>([&] { prepare({.files = {kFables}}, out); }); };
  fs::create_directory_symlink(scratch / "nowhere", scratch / "dangling");
  EXPECT_CONTAINS(message(scratch / "dangling"), "dangling: is a link to nothing");
  EXPECT_CONTAINS(message("/proc"), "/proc: is where a file system is mounted");
  EXPECT_CONTAINS(message("/"), "/: is where a file system is mounted");
  EXPECT_CONTAINS(message("."), ".: is the folder that this runs in");
  EXPECT_CONTAINS(message("/proc/tokens"), "/proc/tokens.unfinished: cannot be made: ");
  fs::create_directories(scratch / "disk/tokens");
  fs::create_directory_symlink(scratch / "disk/tokens", scratch / "link");
  prepare({.files = {kFables}}, scratch / "link");
  prepare({.files = {kFables}}, scratch / "disk/tokens/../tokens/");
  EXPECT_TRUE(fs::is_symlink(scratch / "link"));
  EXPECT_GT(TokenData::open(scratch / "disk/tokens/train").tokens(), 0u);
  for (const auto& entry : fs::directory_iterator(scratch / "disk")) EXPECT_EQ(entry.path().filename(), "tokens");
}

TEST(PrepareData, OneProcessWritesAFolder) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const PrepareOptions halves{.files = {kFables}, .text = {.separator = "\n\n\n"}, .valid = 0.5};
  bool asked = false;
  prepare({.files = {kFables}}, out, 2, [&](const PrepareProgress&) {
    if (std::exchange(asked, true)) return;
    EXPECT_CONTAINS(message_of<UsageError>([&] { prepare(halves, out + "/"); }),
                    "out: another process writes it. Wait for it, or name another folder");
  });
  EXPECT_TRUE(asked);
  EXPECT_GT(TokenData::open(out + "/train").tokens(), 0u);
  EXPECT_FALSE(fs::exists(out + "/valid"));
  prepare(halves, out);
  EXPECT_TRUE(fs::exists(out + "/valid"));
  EXPECT_FALSE(fs::exists(out + ".unfinished"));
}

TEST(PrepareData, LeavesTheOldDataWhenTheDiskIsFull) {
  const Scratch scratch;
  prepare({.files = {kFables}}, scratch / "out");
  const auto before = all_ids(TokenData::open(scratch / "out/train"));
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{4096, old.rlim_max};  // stands for a full disk: no file may grow beyond it
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<RunError>([&] { prepare({.files = {kFables}}, scratch / "out"); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_CONTAINS(message, "out.unfinished/train/00000.tokens: cannot be written at byte");
  EXPECT_EQ(all_ids(TokenData::open(scratch / "out/train")), before);
  EXPECT_FALSE(fs::exists(scratch / "out.unfinished"));
}

TEST(PrepareData, SaysWhatIsWrongWithACorpus) {
  const Scratch scratch;
  const std::string empty = scratch.write("empty.txt", "\n\n"), one = scratch.write("one.txt", "a document");
  const auto message = [&](const PrepareOptions& options) {
    return message_of<InputError>([&] { prepare(options, scratch / "out"); });
  };
  EXPECT_CONTAINS(message({.files = {empty}, .text = {.separator = "---"}}), "the corpus is empty: " + empty + " holds no text");
  EXPECT_CONTAINS(message({.files = {}}), "name at least one file");
  EXPECT_CONTAINS(message({.files = {scratch / "none"}}), "none: cannot be opened");
  EXPECT_CONTAINS(message({.files = {one}, .valid = 0.1}), "of 1 document none was left to validate on");
  EXPECT_CONTAINS(message({.files = {one}, .valid = 0.9999}), "of 1 document none was left to train on");
  EXPECT_CONTAINS(
      message({.files = {one}, .valid_files = {scratch / "../" + fs::path(scratch.path()).filename().string() + "/one.txt"}}),
      "is among the files to train on as well");
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_FALSE(fs::exists(scratch / "out.unfinished"));
}

// Characters ----------------------------------------------------------------------------------------------------------

std::shared_ptr<const Tokenizer> characters(const std::string& file) {
  return tokenizer_from_json(character_tokenizer_files(characters_of({file}, {})).at("tokenizer.json"), "characters", {});
}

TEST(Characters, AreNumberedAsNanoGptDoes) {  // tests/golden/token_data/make.py
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/token_data/fables.json");
  const auto tokenizer = characters(kFables);
  const std::string text = read_file(kFables);
  EXPECT_EQ(tokenizer->vocab_size(), golden["characters"].get<int32_t>());
  const auto ids = tokenizer->encode(text);
  ASSERT_EQ(ids.size(), text.size());
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 400), golden["text"].get<std::vector<int32_t>>());
  EXPECT_EQ(tokenizer->decode(ids), text);

  const Scratch scratch;
  const std::string odd =
      "a\tb\"\\ \n\xE6\x97\xA5\xF0\x9F\x90\x9F\xC2\xA0"
      "a";
  const auto few = characters(scratch.write("odd.txt", odd));
  EXPECT_EQ(few->encode(odd), (std::vector<int32_t>{5, 0, 6, 3, 4, 2, 1, 8, 9, 7, 5}));
  EXPECT_EQ(few->decode(few->encode(odd)), odd);
  EXPECT_TRUE(few->encode("z").empty());
  EXPECT_CONTAINS(message_of<InputError>([] { character_tokenizer_files({}); }), "at least one");
}

TEST(Characters, APromptOfNoneOfThemIsNotCalledEmpty) {
  const Scratch scratch;
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(Golden::open("gpt2_a").model() + "/" + file, scratch / file);
  for (const auto& [name, text] : character_tokenizer_files(characters_of({kFables}, {}))) scratch.write(name, text);
  const Engine engine(scratch.path());
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.prompt_ids("\xE6\x97\xA5"); }), "no token for any character of the prompt");
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.prompt_ids(""); }), "the prompt is empty");
}

TEST(Characters, GiveTinyShakespeareOf65) {
  const char* folder = std::getenv("VITRINE_DATA");
  if (folder == nullptr)
    GTEST_SKIP() << "left out: tinyshakespeare by characters. Set VITRINE_DATA to the folder with corpora/tinyshakespeare.txt";
  const Scratch scratch;
  const std::string file = std::string(folder) + "/corpora/tinyshakespeare.txt", text = read_file(file);
  const size_t border = text.size() * 9 / 10;  // nanoGPT's
  const std::string train = scratch.write("train.txt", text.substr(0, border)),
                    valid = scratch.write("valid.txt", text.substr(border));
  const auto tokenizer = characters(file);
  EXPECT_EQ(tokenizer->vocab_size(), 65);
  ThreadPool pool(2);
  const Prepared made = prepare_data(*tokenizer, pool, {.files = {train}, .valid_files = {valid}}, scratch / "out");
  EXPECT_EQ(made.train.tokens, 1'003'854u);
  EXPECT_EQ(made.valid.value().tokens, 111'540u);
  const TokenData data = TokenData::open(scratch / "out/train");
  BatchSource source(data, batches(64, 12));
  const Batch batch = source.next();
  EXPECT_EQ(batch.tokens.size(), 768u);
  EXPECT_NE(text.find(tokenizer->decode(std::span(batch.tokens).first(64))), std::string::npos);
}

}  // namespace
}  // namespace vitrine
