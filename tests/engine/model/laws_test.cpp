// What holds for every family whatever its weights: later tokens and neighbors change nothing, heads add up, watching does
// not disturb, what a listener puts in flows on, recomputation and threads change no bit of a gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "ops/tape.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Listening to these computes attention in steps.
bool stepwise(std::string_view hook) { return hook.ends_with("hook_attn_scores") || hook.ends_with("hook_pattern"); }

// Shows every wanted value to a function that may change it.
class Change final : public Listener {
 public:
  Change(std::string name, std::function<float(float)> f) : name_(std::move(name)), f_(std::move(f)) {}
  bool wants(std::string_view name) const override { return name == name_; }
  Tensor see(Context&, std::string_view, const Tensor& value) override {
    ++times;
    values = numbers_of(value);
    for (float& x : values) x = f_(x);
    return {values.data(), DType::f32, value.shape()};
  }
  int times = 0;
  std::vector<float> values;

 private:
  std::string name_;
  std::function<float(float)> f_;
};

class Law : public testing::TestWithParam<std::string> {
 protected:
  std::vector<int32_t> tokens(size_t n, size_t from = 0) const {
    std::vector<int32_t> ids = gold_.prompt("long").ids[0];
    return {ids.begin() + static_cast<std::ptrdiff_t>(from), ids.begin() + static_cast<std::ptrdiff_t>(from + n)};
  }
  std::vector<float> run(const std::vector<std::vector<int32_t>>& sequences, Numerics numerics = {}, Listener* listener = nullptr,
                         int sequence = 0) {
    Context ctx(pool_);
    ctx.numerics = numerics;
    ctx.listen(listener, sequence);
    Step step;
    for (const auto& ids : sequences) step.add(ids);
    return all_logits(ctx, model(), step);
  }
  const Model& model() const { return *opened_.model; }
  size_t vocab() const { return static_cast<size_t>(model().shape().vocab_size); }
  // Rows [first, first + n) of a table of logits.
  std::vector<float> rows(const std::vector<float>& all, size_t first, size_t n) const {
    return {all.begin() + static_cast<std::ptrdiff_t>(first * vocab()),
            all.begin() + static_cast<std::ptrdiff_t>((first + n) * vocab())};
  }

  Golden gold_ = Golden::open(GetParam());
  OpenedModel opened_ = open_model(gold_.model());
  ThreadPool pool_{2};
  // Between the fused and the stepwise form of attention: 1e-5, or what f32 itself costs this model (the distance of the
  // reference's logits from float64) where that is more.
  Tolerance close_{.abs = std::max(1e-5, gold_.tolerance().abs > 2e-5 ? gold_.tolerance().abs / 3 : 0.0), .rel = 1e-5};
};

TEST_P(Law, ALaterTokenChangesNoEarlierLogit) {
  for (const bool exact : {false, true}) {
    const std::vector<int32_t> ids = tokens(30);
    const std::vector<float> before = run({ids}, {.exact = exact});
    for (const size_t place : {size_t{1}, size_t{12}, size_t{29}}) {
      std::vector<int32_t> changed = ids;
      changed[place] = (changed[place] + 1) % static_cast<int32_t>(vocab());
      const std::vector<float> after = run({changed}, {.exact = exact});
      EXPECT_EQ(rows(before, 0, place), rows(after, 0, place)) << place;
      EXPECT_NE(rows(before, place, 1), rows(after, place, 1)) << place;
    }
    EXPECT_EQ(rows(before, 0, 17), run({tokens(17)}, {.exact = exact})) << "tokens that are not there yet";
  }
}

TEST_P(Law, NeighborsInABatchChangeNoLogit) {
  const std::vector<int32_t> a = tokens(12), b = tokens(20, 5), c = tokens(9, 20);
  for (const bool exact : {false, true}) {
    const std::vector<float> all = run({a, b, c}, {.exact = exact});
    EXPECT_EQ(rows(all, 0, 12), run({a}, {.exact = exact}));
    EXPECT_EQ(rows(all, 12, 20), run({b}, {.exact = exact}));
    EXPECT_EQ(rows(all, 32, 9), run({c}, {.exact = exact}));
  }
  // With few rows another kernel class may run; under exact numerics it may not.
  const std::vector<int32_t> two = tokens(2, 7);
  EXPECT_EQ(rows(run({a, two}, {.exact = true}), 12, 2), run({two}, {.exact = true}));
}

TEST_P(Law, HeadResultsAndTheBiasSumToTheOutput) {
  std::map<std::string, const Vector*> biases;
  for (const TensorLine& line : model().tensors())
    if (line.vector != nullptr) biases[line.ours] = line.vector;
  Recorder seen({{"*hook_result"}, {"*attn.hook_out"}, {"*delta.hook_out"}, {"*ssm.hook_out"}});
  run({tokens(11)}, {}, &seen);
  for (int64_t layer = 0; layer < model().shape().n_layers; ++layer) {
    const std::optional<DeltaSpec> delta = model().layer(layer).delta;
    if (!model().layer(layer).has_attention() && !delta) continue;
    const std::string block = "blocks." + std::to_string(layer) +
                              (!delta                                                                                ? ".attn."
                               : model().record().hook("blocks." + std::to_string(layer) + ".ssm.hook_z") != nullptr ? ".ssm."
                                                                                                                     : ".delta.");
    const Recorder::Value &result = seen.values().at(block + "hook_result"), &out = seen.values().at(block + "hook_out");
    const auto n_heads = static_cast<size_t>(delta ? delta->n_heads : model().shape().n_heads),
               d = static_cast<size_t>(model().shape().d_model);
    ASSERT_EQ(result.shape, (std::vector<int64_t>{11, static_cast<int64_t>(n_heads), static_cast<int64_t>(d)}));
    const auto bias = biases.find(block + "b_O");
    std::vector<double> sums;
    for (size_t r = 0; r < 11; ++r)
      for (size_t j = 0; j < d; ++j) {
        double sum = bias == biases.end() ? 0 : bias->second->at<double>(static_cast<int64_t>(j));
        for (size_t h = 0; h < n_heads; ++h) sum += static_cast<double>(result.values[(r * n_heads + h) * d + j]);
        sums.push_back(sum);
      }
    EXPECT_CLOSE(out.values, sums, (Tolerance{.abs = 1e-5, .rel = 1e-5}));
  }
}

TEST_P(Law, ListeningChangesNoLogit) {
  const std::vector<std::vector<int32_t>> ids = {tokens(19)};
  const std::vector<float> alone = run(ids);
  for (const std::string& hook : model().hook_names()) {
    Recorder seen({{hook}});
    const std::vector<float> watched = run(ids, {}, &seen);
    EXPECT_EQ(seen.order(), std::vector<std::string>{hook});
    if (stepwise(hook)) {
      EXPECT_CLOSE(watched, alone, close_) << hook;
    } else {
      EXPECT_EQ(watched, alone) << hook;
    }
  }
}

TEST_P(Law, ListeningToOneSequenceLeavesTheOthersAsTheyAre) {
  const std::vector<std::vector<int32_t>> ids = {tokens(10), tokens(13, 3), tokens(9, 11)};
  const std::vector<float> alone = run(ids);
  Recorder seen({{"*"}});
  const std::vector<float> watched = run(ids, {}, &seen, 1);
  EXPECT_EQ(rows(watched, 0, 10), rows(alone, 0, 10));
  EXPECT_EQ(rows(watched, 23, 9), rows(alone, 23, 9));
  EXPECT_CLOSE(rows(watched, 10, 13), rows(alone, 10, 13), close_);
}

TEST_P(Law, AReplacedHookFlowsOn) {
  const std::vector<std::vector<int32_t>> ids = {tokens(10), tokens(13, 3)};
  const std::vector<float> alone = run(ids);
  for (const std::string& hook : model().hook_names()) {
    SCOPED_TRACE(hook);
    const auto experts = model().shape().n_layers > 0 ? model().layer(model().shape().n_layers - 1).experts : std::nullopt;
    Change change(hook, [&](float x) {
      if (hook.ends_with("hook_expert_indices")) return std::fmod(x + 1, static_cast<float>(experts->count));
      return std::isfinite(x) ? 0.7f * x + 0.5f * std::abs(x) + 0.1f : x;  // no norm undoes it
    });
    const std::vector<float> after = run(ids, {}, &change, 1);
    EXPECT_EQ(change.times, 1);
    float most = 0;
    for (size_t i = 10 * vocab(); i < after.size(); ++i) most = std::max(most, std::abs(after[i] - alone[i]));
    // Where norms follow on queries, keys and values alike, what they read may be of any length.
    if (!(hook.ends_with(".ln1.hook_scale") && model().layer(0).value_norm)) {
      EXPECT_GT(most, 1e-3f);
    }
    EXPECT_EQ(rows(after, 0, 10), rows(alone, 0, 10));
    Change same(hook, [](float x) { return x; });  // the same values from elsewhere
    EXPECT_CLOSE(run(ids, {}, &same, 1), alone, close_);
  }
  Change last("hook_logits", [](float x) { return 2 * x; });
  EXPECT_EQ(rows(run(ids, {}, &last, 1), 10, 13), last.values);
}

// The gradients of a model some or all of whose blocks run again in backward, on any number of threads, are those of everything
// kept.
void expect_same_gradients(const std::string& dir, const std::vector<std::vector<int32_t>>& sequences) {
  std::map<std::string, std::vector<std::byte>> first;
  float first_loss = 0;
  for (const int64_t recomputed : {int64_t{0}, int64_t{1}, Tape::kAllBlocks})
    for (const int threads : {1, 2, 4}) {
      SCOPED_TRACE("recomputed " + std::to_string(recomputed) + ", threads " + std::to_string(threads));
      OpenedModel opened = open_model(dir);
      ThreadPool pool(threads);
      Context ctx(pool);
      ctx.step_of_training.seed = 5;
      ctx.step_of_training.number = 3;
      Tape tape(recomputed);
      ctx.record_on(&tape);
      Gradients gradients(*opened.model, false);
      Step step;
      std::vector<int32_t> labels;
      for (const auto& ids : sequences) {
        step.add(ids);
        labels.insert(labels.end(), ids.begin() + 1, ids.end());
        labels.push_back(kNotScored);
      }
      const Tensor loss = cross_entropy(ctx, opened.model->residual(ctx, step), opened.model->head(), labels);
      tape.backward(ctx, loss);
      if (first.empty()) {
        first_loss = *loss.data<float>();
        for (const auto& [name, buffer] : gradients.buffers()) first[name] = buffer.data;
        continue;
      }
      EXPECT_EQ(*loss.data<float>(), first_loss);
      for (const auto& [name, buffer] : gradients.buffers()) EXPECT_TRUE(buffer.data == first.at(name)) << name;
    }
}

TEST_P(Law, RecomputationAndThreadsChangeNoBitOfAGradient) { expect_same_gradients(gold_.model(), {tokens(14), tokens(9, 4)}); }

TEST(Dropout, IsTheSameWhenRecomputedAndOnAnyNumberOfThreads) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"gpt2_a", {"attn_pdrop", "embd_pdrop", "resid_pdrop"}}, {"classic_post", {"dropout"}}, {"llama", {"attention_dropout"}}};
  for (const auto& [name, keys] : cases) {
    SCOPED_TRACE(name);
    const Golden gold = Golden::open(name);
    const Scratch scratch;
    Json config = read_json(gold.model() + "/config.json");
    for (const std::string& key : keys) config[key] = 0.3;
    scratch.write("config.json", config.dump());
    std::filesystem::copy_file(gold.model() + "/model.safetensors", scratch / "model.safetensors");
    const std::vector<int32_t> ids = gold.prompt("long").ids[0];
    expect_same_gradients(scratch.path(), {{ids.begin(), ids.begin() + 15}, {ids.begin() + 3, ids.begin() + 12}});
    // It acts while a tape records, and then only.
    const OpenedModel opened = open_model(scratch.path()), plain = open_model(gold.model());
    ThreadPool pool(1);
    EXPECT_EQ(run_forward(*opened.model, ids, {}, pool).logits, run_forward(*plain.model, ids, {}, pool).logits);
    Context ctx(pool);
    Tape tape;
    ctx.record_on(&tape);
    EXPECT_NE(numbers_of(opened.model->residual(ctx, Step::of(ids))), run_forward(*plain.model, ids, {}, pool, false).hidden[0]);
  }
}

// Falcon's reference drops numbers of the sum of attention and MLP: an update is 0 or twice as large.
TEST(Dropout, OfFalconIsOneDrawForBothSublayers) {
  for (const std::string name : {"falcon", "falcon_40b"}) {
    SCOPED_TRACE(name);
    const Golden gold = Golden::open(name);
    ModelFiles files = resolve_model(gold.model());
    files.config["hidden_dropout"] = 0.5;
    const OpenedModel opened = open_model(files);
    const std::vector<int32_t> ids = gold.prompt("long").ids[0];
    ThreadPool pool(1);
    const auto updates = [&](Tape* tape) {
      Context ctx(pool);
      ctx.numerics = {.f32 = true};
      Recorder seen({{"blocks.0.hook_resid_p*"}});
      ctx.listen(&seen);
      if (tape != nullptr) ctx.record_on(tape);
      opened.model->residual(ctx, Step::of(ids));
      std::vector<float> update;
      const auto &before = seen.values().at("blocks.0.hook_resid_pre").values,
                 &after = seen.values().at("blocks.0.hook_resid_post").values;
      for (size_t i = 0; i < after.size(); ++i) update.push_back(after[i] - before[i]);
      return update;
    };
    Tape tape;
    const std::vector<float> whole = updates(nullptr), dropped = updates(&tape);
    size_t zeros = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      const bool zero = dropped[i] == 0;
      zeros += zero;
      EXPECT_NEAR(dropped[i], zero ? 0 : 2 * whole[i], 1e-5) << i;
    }
    EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(whole.size()), 0.5, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Law, testing::ValuesIn(Golden::all()), [](const auto& test) { return test.param; });

// Sizes from a configuration alone.
std::map<std::string, std::vector<int64_t>> shapes_of(const Json& config, int64_t* parameters) {
  ModelFiles files;
  files.config_path = "config.json";
  files.config = config;
  const std::unique_ptr<Model> model = model_from_config(files);
  *parameters = parameter_count(*model);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const FileTensor& tensor : file_tensors(*model, false)) shapes[tensor.name] = tensor.shape;
  return shapes;
}

TEST(Sizes, Gemma2BEmbeddingHolds524288000Numbers) {
  int64_t parameters = 0;
  const auto shapes = shapes_of({{"model_type", "gemma"},
                                 {"vocab_size", 256000},
                                 {"hidden_size", 2048},
                                 {"intermediate_size", 16384},
                                 {"num_hidden_layers", 18},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 256}},
                                &parameters);
  const std::vector<int64_t> embedding = shapes.at("model.embed_tokens.weight");
  EXPECT_EQ(embedding[0] * embedding[1], 524288000);
  EXPECT_EQ(parameters, 2506172416);  // transformers' count
}

TEST(Sizes, GroupedQueriesOfLlama) {
  int64_t parameters = 0;
  const auto shapes = shapes_of({{"model_type", "llama"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 4096},
                                 {"intermediate_size", 11008},
                                 {"num_hidden_layers", 32},
                                 {"num_attention_heads", 32},
                                 {"num_key_value_heads", 8}},
                                &parameters);
  EXPECT_EQ(shapes.at("model.layers.31.self_attn.q_proj.weight"), (std::vector<int64_t>{4096, 4096}));
  EXPECT_EQ(shapes.at("model.layers.31.self_attn.k_proj.weight"), (std::vector<int64_t>{1024, 4096}));
  EXPECT_EQ(shapes.at("model.layers.31.self_attn.v_proj.weight"), (std::vector<int64_t>{1024, 4096}));
  EXPECT_EQ(shapes.at("model.layers.31.self_attn.o_proj.weight"), (std::vector<int64_t>{4096, 4096}));
}

}  // namespace
}  // namespace vitrine
