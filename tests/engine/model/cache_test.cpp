// Running with a cache, in any number of steps, gives what one run over the whole sequence gives.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "model/load.h"
#include "ops/recorder.h"
#include "support/close.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

Json gemma2_config(int64_t window, int64_t context) {
  return {{"model_type", "gemma2"},
          {"vocab_size", 97},
          {"hidden_size", 24},
          {"intermediate_size", 40},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"query_pre_attn_scalar", 12},
          {"sliding_window", window},
          {"attn_logit_softcapping", 5.0},
          {"final_logit_softcapping", 30.0},
          {"max_position_embeddings", context},
          {"hidden_activation", "gelu_pytorch_tanh"}};
}
Json mistral_config(int64_t window) {
  return {{"model_type", "mistral"},        {"vocab_size", 97},       {"hidden_size", 24},
          {"intermediate_size", 40},        {"num_hidden_layers", 2}, {"num_attention_heads", 3},
          {"num_key_value_heads", 1},       {"head_dim", 8},          {"sliding_window", window},
          {"max_position_embeddings", 4096}};
}

Json lfm2_config(int64_t taps) {
  return {{"model_type", "lfm2"},     {"vocab_size", 97},
          {"hidden_size", 24},        {"intermediate_size", 40},
          {"num_hidden_layers", 4},   {"num_attention_heads", 3},
          {"num_key_value_heads", 1}, {"layer_types", {"conv", "full_attention", "conv", "conv"}},
          {"conv_L_cache", taps},     {"max_position_embeddings", 4096}};
}

// Three layers with chunks, and one that sees everything.
Json llama4_config(int64_t chunk) {
  return {{"model_type", "llama4_text"},
          {"vocab_size", 97},
          {"hidden_size", 24},
          {"intermediate_size", 40},
          {"intermediate_size_mlp", 40},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"moe_layers", Json::array()},
          {"attention_chunk_size", chunk},
          {"floor_scale", 50},
          {"max_position_embeddings", 4096}};
}

// Layers 3 to 5 read the keys and values of layers 1 and 2, whose heads have other sizes.
Json gemma4_config(int64_t window) {
  const Json types = {"sliding_attention", "sliding_attention", "full_attention",
                      "sliding_attention", "sliding_attention", "full_attention"};
  return {{"model_type", "gemma4_text"},
          {"vocab_size", 97},
          {"vocab_size_per_layer_input", 97},
          {"hidden_size", 24},
          {"intermediate_size", 40},
          {"num_hidden_layers", 6},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"global_head_dim", 16},
          {"num_kv_shared_layers", 3},
          {"use_double_wide_mlp", true},
          {"hidden_size_per_layer_input", 6},
          {"sliding_window", window},
          {"layer_types", types},
          {"max_position_embeddings", 4096}};
}

std::vector<int32_t> some_tokens(int64_t n, uint64_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(philox(seed, i, 0)[0] % 97);
  return tokens;
}

std::vector<int64_t> range(int64_t n) {
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

class Runner {
 public:
  explicit Runner(const Json& config) {
    write_random_model(directory_.path(), config);
    opened_ = std::make_unique<OpenedModel>(open_model(directory_.path()));
  }
  const Model& model() const { return *opened_->model; }
  Context& context() { return ctx_; }
  CacheTypes types;  // of the caches
  std::unique_ptr<KvCache> cache(int64_t context, int64_t largest_step) const {
    return std::make_unique<KvCache>(model().cache_layers(types), context, largest_step);
  }
  /// Logits of all rows of the step, not committed.
  std::vector<float> run(const Step& step) {
    const auto frame = ctx_.frame();
    const Tensor z = logits(ctx_, model().residual(ctx_, step), model().head(), range(step.rows()));
    return {z.data<float>(), z.data<float>() + z.count()};
  }
  std::vector<float> whole(const std::vector<int32_t>& tokens) { return run(Step::of(tokens)); }
  /// The tokens through a cache in steps of these sizes (the last one repeats).
  std::vector<float> in_steps(const std::vector<int32_t>& tokens, const std::vector<int64_t>& sizes) {
    const auto pages = cache(static_cast<int64_t>(tokens.size()), *std::max_element(sizes.begin(), sizes.end()));
    CacheSequence sequence = pages->sequence();
    std::vector<float> all;
    for (size_t done = 0, i = 0; done < tokens.size(); ++i) {
      const auto n = std::min(static_cast<size_t>(sizes[std::min(i, sizes.size() - 1)]), tokens.size() - done);
      Step step;
      step.add(std::span(tokens).subspan(done, n), &sequence);
      const std::vector<float> part = run(step);
      step.commit();
      all.insert(all.end(), part.begin(), part.end());
      done += n;
    }
    return all;
  }

 private:
  Scratch directory_;
  std::unique_ptr<OpenedModel> opened_;
  ThreadPool pool_{2};
  Context ctx_{pool_};
};

TEST(Cache, EqualsOneRunAroundTheWindowInAnyChunks) {
  for (const bool chunked : {false, true})
    for (const int64_t window : {8, 255, 256, 257}) {
      Runner runner(chunked ? llama4_config(window) : gemma2_config(window, 4096));
      for (const int64_t length : {window - 1, window, window + 1, 2 * window, 2 * window + 1}) {
        const std::vector<int32_t> tokens = some_tokens(length, 7);
        const std::vector<float> expected = runner.whole(tokens);
        for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{length}, {1, 1, 5, 17}, {100}, {window, 1}}) {
          SCOPED_TRACE((chunked ? "chunk " : "window ") + std::to_string(window) + ", length " + std::to_string(length) +
                       ", first step " + std::to_string(sizes[0]));
          EXPECT_CLOSE(runner.in_steps(tokens, sizes), expected, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
        }
      }
    }
}

TEST(Cache, ExactModeChangesNoBit) {
  for (const Json& config : {gemma2_config(70, 4096), llama4_config(70)}) {
    Runner runner(config);
    runner.context().numerics.exact = true;
    const std::vector<int32_t> tokens = some_tokens(600, 3);
    const std::vector<float> expected = runner.whole(tokens);
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{600}, {1}, {3, 1, 9, 64}, {256, 1}, {257, 100}})
      EXPECT_EQ(runner.in_steps(tokens, sizes), expected) << "first step " << sizes[0];
  }
}

constexpr CacheTypes kNarrow[] = {{DType::f16, DType::f16},
                                  {DType::q8_0, DType::q8_0},
                                  {DType::q4_0, DType::q4_0},
                                  {DType::q8_0, DType::q4_0},
                                  {DType::f32, DType::q8_0}};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(apart / size);
}

class NarrowCache : public testing::TestWithParam<bool> {};

TEST_P(NarrowCache, IsTheSameInAnyChunksAndNearF32) {
  Runner runner(GetParam() ? llama4_config(70) : gemma2_config(70, 4096));
  runner.context().numerics.exact = true;
  const std::vector<int32_t> tokens = some_tokens(600, 3);
  const std::vector<float> wide = runner.whole(tokens);
  for (const CacheTypes& types : kNarrow) {
    SCOPED_TRACE(std::string(name_of(types.keys)) + " " + std::string(name_of(types.values)));
    runner.types = types;
    const std::vector<float> expected = runner.in_steps(tokens, {600});
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {3, 1, 9, 64}, {256, 1}, {257, 100}})
      EXPECT_EQ(runner.in_steps(tokens, sizes), expected) << "first step " << sizes[0];
    const bool four_bits = types.values == DType::q4_0;
    EXPECT_LT(distance(expected, wide), types.keys == DType::f16 ? 1e-3 : four_bits ? 0.15 : 1e-2);
    EXPECT_GT(distance(expected, wide), 1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(WindowsAndChunks, NarrowCache, testing::Bool(),
                         [](const auto& info) { return info.param ? "chunks" : "windows"; });

// What a narrow cache holds does not depend on how it came there: rows that were not committed, and copies that went on.
TEST(Cache, NarrowTypesForgetRejectedRowsAndShareTheirPages) {
  Runner runner(gemma2_config(300, 2048));
  runner.context().numerics.exact = true;
  const std::vector<int32_t> tokens = some_tokens(450, 11), wrong = some_tokens(450, 12);
  for (const CacheTypes& types : kNarrow) {
    runner.types = types;
    const std::vector<float> expected = runner.in_steps(tokens, {450});
    const auto pages = runner.cache(600, 450);
    CacheSequence sequence = pages->sequence();
    Step first;
    first.add(std::span(tokens).first(405), &sequence);
    runner.run(first);
    first.commit();
    CacheSequence other = sequence;  // shares the pages, and writes other positions
    Step elsewhere;
    elsewhere.add(std::span(wrong).first(30), &other);
    runner.run(elsewhere);
    elsewhere.commit();
    Step draft;
    draft.add(std::span(wrong).first(45), &sequence);
    runner.run(draft);
    draft.commit(0, 0);
    Step rest;
    rest.add(std::span(tokens).subspan(405), &sequence);
    const std::vector<float> got = runner.run(rest);
    EXPECT_EQ(got, std::vector<float>(expected.end() - 45 * 97, expected.end())) << name_of(types.keys);
  }
}

// Who listens to the pattern gets the stepwise form, which reads the same numbers.
TEST(Cache, NarrowTypesShowTheirPattern) {
  Runner runner(gemma2_config(300, 2048));
  const std::vector<int32_t> tokens = some_tokens(420, 13);
  for (const CacheTypes& types : kNarrow) {
    runner.types = types;
    const std::vector<float> expected = runner.in_steps(tokens, {200, 57});
    Recorder recorder(std::vector<HookRequest>{HookRequest{.glob = "blocks.3.attn.hook_pattern"}});
    runner.context().listen(&recorder);
    EXPECT_CLOSE(runner.in_steps(tokens, {200, 57}), expected, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
    runner.context().listen(nullptr);
    EXPECT_EQ(recorder.values().size(), 1U);
  }
}

TEST(Cache, NarrowTypesTakeTheirBytes) {
  // A layer of 2 heads of 64 + 64 numbers, of 256 positions: codes, and an f16 for every 32.
  const auto bytes = [](CacheTypes types) { return KvCache({{kNoWindow, 2, 64, 64, 0, types}}, 256, 1).bytes_for(256); };
  EXPECT_EQ(bytes({}), 256u * 2 * 128 * 4);
  EXPECT_EQ(bytes({DType::f16, DType::f16}), 256u * 2 * 128 * 2);
  EXPECT_EQ(bytes({DType::q8_0, DType::q8_0}), 256u * 2 * 128 * 34 / 32);
  EXPECT_EQ(bytes({DType::q4_0, DType::q4_0}), 256u * 2 * 128 * 18 / 32);
  EXPECT_EQ(bytes({DType::q8_0, DType::f32}), 256u * 2 * (64 * 34 / 32 + 64 * 4));
}

TEST(Cache, ConvolutionsGoOnInAnyChunks) {
  const std::vector<int32_t> tokens = some_tokens(600, 3);
  for (const int64_t taps : {1, 3, 300}) {
    Runner runner(lfm2_config(taps));
    runner.context().numerics.exact = true;
    const std::vector<float> expected = runner.whole(tokens);
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{600}, {1}, {3, 1, 9, 64}, {256, 1}, {257, 100}})
      EXPECT_EQ(runner.in_steps(tokens, sizes), expected) << taps << " taps, first step " << sizes[0];
  }
}

// LongRoPE goes by the prompt that a sequence began with: one that grows past the border keeps its factors, so that what is
// cached and what is new turn alike, and a prompt in chunks turns as a whole one.
TEST(Cache, LongRopeGoesByThePrompt) {
  const Json config = {
      {"model_type", "phi3"},
      {"vocab_size", 97},
      {"hidden_size", 24},
      {"intermediate_size", 40},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"max_position_embeddings", 256},
      {"original_max_position_embeddings", 20},
      {"rope_theta", 20.0},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0, 1.5, 2.0}}, {"long_factor", {2.0, 5.0, 9.0}}}}};
  Runner runner(config);
  Json always_short = config;
  always_short["rope_scaling"]["long_factor"] = always_short["rope_scaling"]["short_factor"];
  const std::vector<int32_t> tokens = some_tokens(30, 7);
  const std::vector<float> as_one = runner.whole(tokens), grown = runner.in_steps(tokens, {12, 1}),
                           as_short = Runner(always_short).whole(tokens);
  EXPECT_CLOSE(grown, as_short, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
  float apart = 0;
  for (size_t i = 0; i < grown.size(); ++i) apart = std::max(apart, std::abs(grown[i] - as_one[i]));
  EXPECT_GT(apart, 1e-2F);

  const auto pages = runner.cache(30, 30);
  CacheSequence sequence = pages->sequence();
  std::vector<float> chunks;
  for (size_t done = 0; done < tokens.size(); done += 10) {
    Step step;
    step.add(std::span(tokens).subspan(done, 10), &sequence, static_cast<int64_t>(tokens.size()));
    const std::vector<float> part = runner.run(step);
    step.commit();
    chunks.insert(chunks.end(), part.begin(), part.end());
  }
  EXPECT_CLOSE(chunks, as_one, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
  CacheSequence fork = sequence;  // and what grows out of it
  EXPECT_EQ(fork.begun(), 30);
  sequence.truncate(0);
  Step again;
  again.add(std::span(tokens).first(5), &sequence);
  EXPECT_EQ(sequence.begun(), 5);
}

TEST(Cache, LayersThatReadEarlierKeysKeepNone) {
  Runner runner(gemma4_config(20));
  const std::vector<CacheLayer> layers = runner.model().cache_layers();
  EXPECT_EQ(layers[2].head_dim, 16);
  EXPECT_EQ(layers[5].n_kv_heads, 0);
  EXPECT_EQ(runner.cache(256, 20)->bytes_for(256), 256u * (2 * 2 * 16 + 2 * 32) * sizeof(float));
  const std::vector<int32_t> tokens = some_tokens(700, 5);
  const std::vector<float> expected = runner.whole(tokens);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{700}, {1, 1, 5, 17}, {130, 1, 7}}) {
    SCOPED_TRACE("first step " + std::to_string(sizes[0]));
    EXPECT_CLOSE(runner.in_steps(tokens, sizes), expected, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
  }
  runner.context().numerics.exact = true;
  EXPECT_EQ(runner.in_steps(tokens, {257, 100, 1, 64}), runner.whole(tokens));
}

TEST(Cache, RingIsReusedManyTimes) {
  Runner runner(mistral_config(20));
  const std::vector<int32_t> tokens = some_tokens(1700, 5);
  const std::vector<float> expected = runner.whole(tokens);
  EXPECT_CLOSE(runner.in_steps(tokens, {130, 1, 7}), expected, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
  // 1,700 positions of two layers of one head of 8 + 8 numbers; the ring keeps two or three pages of 256.
  const auto pages = runner.cache(1700, 130);
  EXPECT_LE(pages->bytes_for(1700), 2u * 16u * 3u * 256u * sizeof(float));
}

TEST(Cache, RejectedRowsLeaveNoTrace) {
  for (const int64_t window : {16, 300}) {
    Runner runner(gemma2_config(window, 2048));
    runner.context().numerics.exact = true;
    const auto pages = runner.cache(1200, 64);
    CacheSequence sequence = pages->sequence();
    const std::vector<int32_t> tokens = some_tokens(900, 11), wrong = some_tokens(900, 12);
    const std::vector<float> expected = runner.whole(tokens);
    const size_t vocab = 97;
    for (size_t done = 0, turn = 0; done < tokens.size(); ++turn) {
      Step draft;  // never committed, or only its first rows
      draft.add(std::span(wrong).subspan(0, 64), &sequence);
      runner.run(draft);
      draft.commit(0, 0);
      const size_t n = std::min<size_t>(turn % 2 == 0 ? 64 : 37, tokens.size() - done), kept = std::min<size_t>(n, 20 + turn);
      Step step;
      step.add(std::span(tokens).subspan(done, n), &sequence);
      const std::vector<float> got = runner.run(step);
      step.commit(0, static_cast<int64_t>(kept));
      const std::vector<float> want(expected.begin() + static_cast<std::ptrdiff_t>(done * vocab),
                                    expected.begin() + static_cast<std::ptrdiff_t>((done + n) * vocab));
      ASSERT_EQ(got, want) << "window " << window << " at " << done;
      done += kept;
    }
  }
}

class CacheOfManySequences : public testing::TestWithParam<Json> {};

TEST_P(CacheOfManySequences, SequencesOfOneStepDoNotTouchEachOther) {
  Runner runner(GetParam());
  runner.context().numerics.exact = true;
  const auto pages = runner.cache(700, 64);
  std::vector<CacheSequence> sequences;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> expected;
  for (uint64_t i = 0; i < 4; ++i) {
    sequences.push_back(pages->sequence());
    tokens.push_back(some_tokens(300 + 37 * static_cast<int64_t>(i), 20 + i));
    expected.push_back(runner.whole(tokens.back()));
  }
  std::vector<size_t> done(4, 0);
  for (size_t turn = 0; done[3] < tokens[3].size(); ++turn) {
    Step step;
    std::vector<std::pair<size_t, size_t>> parts;  // sequence, rows
    for (size_t i = 0; i < 4; ++i) {
      const size_t n = std::min<size_t>(1 + (turn * 13 + i * 29) % 64, tokens[i].size() - done[i]);
      if (n == 0) continue;
      step.add(std::span(tokens[i]).subspan(done[i], n), &sequences[i]);
      parts.emplace_back(i, n);
    }
    const std::vector<float> got = runner.run(step);
    step.commit();
    size_t row = 0;
    for (const auto& [i, n] : parts) {
      for (size_t r = 0; r < n; ++r)
        ASSERT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>((row + r) * 97),
                               got.begin() + static_cast<std::ptrdiff_t>((row + r + 1) * 97),
                               expected[i].begin() + static_cast<std::ptrdiff_t>((done[i] + r) * 97)))
            << "sequence " << i << " position " << done[i] + r;
      row += n;
      done[i] += n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CacheOfManySequences, testing::Values(gemma2_config(12, 2048), gemma4_config(12)),
                         [](const auto& test) { return test.param.at("model_type").template get<std::string>(); });

TEST(Cache, ForksShareTheirPastAndPartCompany) {
  Runner runner(gemma2_config(10, 2048));
  runner.context().numerics.exact = true;
  const auto pages = runner.cache(700, 64);
  CacheSequence a = pages->sequence();
  const std::vector<int32_t> prefix = some_tokens(300, 1), left = some_tokens(200, 2), right = some_tokens(200, 3);
  const auto feed = [&](CacheSequence& sequence, const std::vector<int32_t>& tokens) {
    std::vector<float> all;
    for (size_t i = 0; i < tokens.size(); i += 50) {
      Step step;
      step.add(std::span(tokens).subspan(i, 50), &sequence);
      const std::vector<float> part = runner.run(step);
      step.commit();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  feed(a, prefix);
  CacheSequence b = a;
  const auto continued = [&](const std::vector<int32_t>& tail) {
    std::vector<int32_t> all = prefix;
    all.insert(all.end(), tail.begin(), tail.end());
    const std::vector<float> z = runner.whole(all);
    return std::vector<float>(z.begin() + 300 * 97, z.end());
  };
  EXPECT_EQ(feed(a, left), continued(left));
  EXPECT_EQ(feed(b, right), continued(right));
}

TEST(Cache, CanGoBackAsFarAsItsWindowsAllow) {
  Runner runner(mistral_config(20));
  runner.context().numerics.exact = true;
  const auto pages = runner.cache(2000, 64);
  CacheSequence sequence = pages->sequence();
  const std::vector<int32_t> tokens = some_tokens(1024, 9);
  for (size_t i = 0; i < tokens.size(); i += 64) {
    Step step;
    step.add(std::span(tokens).subspan(i, 64), &sequence);
    runner.run(step);
    step.commit();
  }
  sequence.truncate(1000);
  Step step;
  step.add(std::span(tokens).subspan(1000, 24), &sequence);
  const std::vector<float> whole = runner.whole(tokens);
  EXPECT_EQ(runner.run(step), std::vector<float>(whole.begin() + 1000 * 97, whole.end()));
  EXPECT_THROW(sequence.truncate(100), UsageError);
  sequence.truncate(0);
  EXPECT_EQ(sequence.length(), 0);
}

TEST(Cache, RefusesWhatItCannotHold) {
  Runner runner(mistral_config(20));
  const auto pages = runner.cache(100, 64);
  CacheSequence sequence = pages->sequence();
  const std::vector<int32_t> tokens = some_tokens(101, 9);
  Step step;
  EXPECT_THROW(step.add(tokens, &sequence), UsageError);  // a larger step than the cache was made for
  step.add(std::span(tokens).subspan(0, 64), &sequence);
  runner.run(step);
  step.commit();
  Step next;
  try {
    next.add(std::span(tokens).subspan(64), &sequence);
    FAIL() << "the context is too short";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "the sequence needs 101 positions; the context holds 100. Shorten the prompt or ask for fewer tokens");
  }
  EXPECT_THROW(next.add({}, &sequence), InputError);
}

}  // namespace
}  // namespace vitrine
