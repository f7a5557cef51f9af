// Models without some of their parts: against plain loops that are written from the formulas alone, and the way of such a model
// through training, checkpoints, predictions and generated text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "generate/generate.h"
#include "io/huggingface.h"
#include "model/abilities.h"
#include "ops/tape.h"
#include "runtime/engine.h"
#include "support/close.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/train.h"

namespace vitrine {
namespace {

using Rows = std::vector<std::vector<double>>;
const std::vector<int32_t> kIds = {5, 3, 7, 9, 11, 40, 2, 60, 33, 8, 5, 3};

struct Switches {
  bool norms = true, affine = true, residual = true, mlp = true, positions = true, mask = true, turned_values = false;
};

Json keys_of(const Switches& on) {
  Json keys = Json::object();
  if (!on.norms) keys["vitrine_norms"] = "off";
  if (!on.affine) keys["vitrine_affine"] = false;
  if (!on.residual) keys["vitrine_residual"] = false;
  if (!on.mlp) keys["vitrine_mlp"] = false;
  if (!on.positions) keys["vitrine_positions"] = false;
  if (!on.mask) keys["vitrine_causal"] = false;
  if (on.turned_values) keys["vitrine_rotary_value"] = true;
  return keys;
}

// A GPT-2 (learned positions, LayerNorm, biases) or a Llama (rotary positions, RMSNorm, gated MLP, shared keys) in double, one
// number after the other.
class Loops {
 public:
  explicit Loops(const std::string& name) : llama_(name == "llama") {
    const std::string path = Golden::open(name).model();
    config_ = Json::parse(read_file(path + "/config.json"));
    const Checkpoint file = open_safetensors(path + "/model.safetensors");
    for (const auto& [tensor, stored] : file.tensors()) {
      const GoldenTensor values = golden_tensor(file, tensor);
      std::string own = tensor;
      for (const char* prefix : {"transformer.", "model."})
        if (own.starts_with(prefix)) own.erase(0, std::string_view(prefix).size());
      numbers_[own].assign(values.begin(), values.end());
    }
    d_ = config_.at(llama_ ? "hidden_size" : "n_embd");
    heads_ = config_.at(llama_ ? "num_attention_heads" : "n_head");
    groups_ = llama_ ? config_.at("num_key_value_heads").get<size_t>() : heads_;
    layers_ = config_.at(llama_ ? "num_hidden_layers" : "n_layer");
    size_ = d_ / heads_;
  }

  std::vector<double>& numbers(const std::string& name) { return numbers_.at(name); }

  Rows logits(const std::vector<int32_t>& ids, const Switches& on) const {
    const std::vector<double>& table = numbers_.at(llama_ ? "embed_tokens.weight" : "wte.weight");
    Rows x;
    for (size_t t = 0; t < ids.size(); ++t) {
      x.emplace_back(table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(ids[t]) * d_),
                     table.begin() + static_cast<std::ptrdiff_t>((static_cast<size_t>(ids[t]) + 1) * d_));
      for (size_t i = 0; !llama_ && on.positions && i < d_; ++i) x[t][i] += numbers_.at("wpe.weight")[t * d_ + i];
    }
    for (size_t layer = 0; layer < layers_; ++layer) {
      const std::string at = (llama_ ? "layers." : "h.") + std::to_string(layer) + ".";
      join(x, attend(norm(x, at + (llama_ ? "input_layernorm" : "ln_1"), on), at, on), on);
      if (on.mlp) join(x, feed(norm(x, at + (llama_ ? "post_attention_layernorm" : "ln_2"), on), at), on);
    }
    x = norm(x, llama_ ? "norm" : "ln_f", on);
    const std::vector<double>& head = llama_ ? numbers_.at("lm_head.weight") : table;
    Rows z;
    for (const auto& row : x) {
      std::vector<double>& to = z.emplace_back();
      for (size_t v = 0; v < head.size() / d_; ++v)
        to.push_back(std::inner_product(row.begin(), row.end(), head.begin() + static_cast<std::ptrdiff_t>(v * d_), 0.0));
    }
    return z;
  }

  // The mean of -log softmax of each next token.
  double loss(const std::vector<int32_t>& ids, const Switches& on) const {
    const Rows z = logits(ids, on);
    double sum = 0;
    for (size_t t = 0; t + 1 < ids.size(); ++t) {
      double total = 0;
      for (const double x : z[t]) total += std::exp(x);
      sum += std::log(total) - z[t][static_cast<size_t>(ids[t + 1])];
    }
    return sum / static_cast<double>(ids.size() - 1);
  }

 private:
  static void join(Rows& x, const Rows& update, const Switches& on) {
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] = (on.residual ? x[t][i] : 0) + update[t][i];
  }

  Rows norm(const Rows& x, const std::string& name, const Switches& on) const {
    if (!on.norms) return x;
    Rows y = x;
    for (auto& row : y) {
      double mean = 0, squares = 0;
      for (const double v : row) mean += v / static_cast<double>(d_);
      if (llama_) mean = 0;
      for (const double v : row) squares += (v - mean) * (v - mean) / static_cast<double>(d_);
      for (size_t i = 0; i < d_; ++i) {
        row[i] = (row[i] - mean) / std::sqrt(squares + 1e-5);
        if (on.affine) row[i] *= numbers_.at(name + ".weight")[i];
        if (on.affine && !llama_) row[i] += numbers_.at(name + ".bias")[i];
      }
    }
    return y;
  }

  // x through a matrix: GPT-2's are [in, out] with a bias, Llama's [out, in] without.
  Rows through(const Rows& x, const std::string& name) const {
    const std::vector<double>& w = numbers_.at(name + ".weight");
    const size_t in = x[0].size(), out = w.size() / in;
    Rows y(x.size(), std::vector<double>(out));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t j = 0; j < out; ++j) {
        double sum = llama_ ? 0 : numbers_.at(name + ".bias")[j];
        for (size_t i = 0; i < in; ++i) sum += x[t][i] * (llama_ ? w[j * in + i] : w[i * out + j]);
        y[t][j] = sum;
      }
    return y;
  }

  // Each head's halves as pairs, turned by position · 10000^(-2i/size).
  void turn(Rows& x) const {
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t head = 0; head < x[t].size() / size_; ++head)
        for (size_t i = 0; i < size_ / 2; ++i) {
          const double angle =
              static_cast<double>(t) * std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(size_));
          double &a = x[t][head * size_ + i], &b = x[t][head * size_ + size_ / 2 + i];
          const double before = a;
          a = before * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + before * std::sin(angle);
        }
  }

  Rows attend(const Rows& x, const std::string& at, const Switches& on) const {
    Rows q, k, v;
    if (llama_) {
      q = through(x, at + "self_attn.q_proj"), k = through(x, at + "self_attn.k_proj"), v = through(x, at + "self_attn.v_proj");
      if (on.positions) turn(q), turn(k);
      if (on.turned_values) turn(v);
    } else {
      for (const auto& row : through(x, at + "attn.c_attn")) {
        const auto from = [&](size_t third) {
          return std::vector<double>(row.begin() + static_cast<std::ptrdiff_t>(third * d_),
                                     row.begin() + static_cast<std::ptrdiff_t>((third + 1) * d_));
        };
        q.push_back(from(0)), k.push_back(from(1)), v.push_back(from(2));
      }
    }
    Rows z(x.size(), std::vector<double>(d_, 0.0));
    for (size_t head = 0; head < heads_; ++head) {
      const size_t group = head / (heads_ / groups_);
      for (size_t t = 0; t < x.size(); ++t) {
        const size_t end = on.mask ? t + 1 : x.size();
        std::vector<double> weights;
        double total = 0;
        for (size_t s = 0; s < end; ++s) {
          double score = 0;
          for (size_t i = 0; i < size_; ++i) score += q[t][head * size_ + i] * k[s][group * size_ + i];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size_))));
          total += weights.back();
        }
        for (size_t s = 0; s < end; ++s)
          for (size_t i = 0; i < size_; ++i) z[t][head * size_ + i] += weights[s] / total * v[s][group * size_ + i];
      }
    }
    return through(z, at + (llama_ ? "self_attn.o_proj" : "attn.c_proj"));
  }

  Rows feed(const Rows& x, const std::string& at) const {
    if (!llama_) {
      Rows hidden = through(x, at + "mlp.c_fc");
      for (auto& row : hidden)
        for (double& h : row) h = 0.5 * h * (1 + std::tanh(std::sqrt(2 / M_PI) * (h + 0.044715 * h * h * h)));
      return through(hidden, at + "mlp.c_proj");
    }
    Rows gate = through(x, at + "mlp.gate_proj");
    const Rows in = through(x, at + "mlp.up_proj");
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = gate[t][i] / (1 + std::exp(-gate[t][i])) * in[t][i];
    return through(gate, at + "mlp.down_proj");
  }

  bool llama_;
  Json config_;
  std::map<std::string, std::vector<double>> numbers_;
  size_t d_, heads_, groups_, layers_, size_;
};

std::vector<float> all_logits(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<int64_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto frame = engine.context().frame();
  const Tensor z = engine.run(Step::of(ids), rows);
  return {z.data<float>(), z.data<float>() + z.count()};
}

std::vector<std::pair<std::string, Switches>> cases() {
  std::vector<std::pair<std::string, Switches>> all;
  for (const char* model : {"gpt2_a", "llama"}) {
    all.push_back({model, {}});
    all.push_back({model, {.affine = false}});
    all.push_back({model, {.mlp = false}});
    all.push_back({model, {.positions = false}});
    all.push_back({model, {.mask = false}});
    all.push_back({model, {.norms = false, .residual = false, .mlp = false}});  // attention alone
    all.push_back({model, {.norms = false, .mlp = false}});
    all.push_back({model, {.affine = false, .mlp = false, .positions = false, .mask = false}});
  }
  all.push_back({"llama", {.turned_values = true}});
  all.push_back({"llama", {.mlp = false, .mask = false, .turned_values = true}});
  return all;
}

TEST(PartsOff, LogitsAreThoseOfPlainLoops) {
  for (const auto& [name, on] : cases()) {
    SCOPED_TRACE(name + " " + keys_of(on).dump());
    Engine engine(golden_with_keys(name, keys_of(on)), {2, {.f32 = true, .exact = false}});
    std::vector<double> want;
    for (const auto& row : Loops(name).logits(kIds, on)) want.insert(want.end(), row.begin(), row.end());
    const std::vector<float> got = all_logits(engine, kIds);
    EXPECT_CLOSE(std::span<const float>(got), std::span<const double>(want), (Tolerance{.abs = 5e-5, .rel = 2e-4}));
  }
}

TEST(PartsOff, GradientsAreThoseOfPlainLoops) {
  ThreadPool pool(2);
  for (const auto& [name, on] : cases()) {
    SCOPED_TRACE(name + " " + keys_of(on).dump());
    const OpenedModel model = golden_with_keys(name, keys_of(on));
    const Parameters parameters(*model.model);
    Context ctx(pool);
    Tape tape;
    ctx.record_on(&tape);
    std::vector<int32_t> labels(kIds.begin() + 1, kIds.end());
    labels.push_back(kNotScored);
    tape.backward(ctx, cross_entropy(ctx, model.model->residual(ctx, Step::of(kIds)), model.model->head(), labels));
    Loops loops(name);
    const double base = loops.loss(kIds, on);
    EXPECT_GT(base, 0);
    size_t compared = 0;
    for (const Parameter& p : parameters.list()) {
      if (p.constant || (p.layer > 0 && p.layer != 2)) continue;
      std::string own = p.name;
      for (const char* prefix : {"transformer.", "model."})
        if (own.starts_with(prefix)) own.erase(0, std::string_view(prefix).size());
      std::vector<double>& numbers = loops.numbers(own);
      // The element with the largest gradient, so that rounding is small beside it.
      const std::span<const float> gradient(parameters.gradients(p), p.count);
      size_t most = 0;
      for (size_t i = 0; i < p.count; ++i)
        if (std::abs(gradient[i]) > std::abs(gradient[most])) most = i;
      const double before = numbers[most], step = 1e-4;
      numbers[most] = before + step;
      const double above = loops.loss(kIds, on);
      numbers[most] = before - step;
      const double below = loops.loss(kIds, on);
      numbers[most] = before;
      const double want = (above - below) / (2 * step);
      EXPECT_NEAR(static_cast<double>(gradient[most]), want, 1e-6 + 2e-3 * std::abs(want)) << p.name << " " << most;
      ++compared;
    }
    EXPECT_GT(compared, 4u);
  }
}

TEST(PartsOff, TensorsAndHooksOfWhatIsOffAreNotThere) {
  const OpenedModel bare =
      golden_with_keys("gpt2_a", {{"vitrine_norms", "off"}, {"vitrine_mlp", false}, {"vitrine_positions", false}});
  for (const TensorLine& line : bare.model->tensors())
    EXPECT_TRUE(line.ours == "W_E" || line.ours.find(".attn.") != std::string::npos) << line.ours;
  for (const std::string& hook : bare.model->hook_names()) {
    EXPECT_EQ(hook.find("mlp"), std::string::npos) << hook;
    EXPECT_EQ(hook.find("ln"), std::string::npos) << hook;
    EXPECT_NE(hook, "hook_pos_embed");
  }
  EXPECT_EQ(bare.model->shape().d_ff, 0);
  // Scale and shift are there as constants and count as no parameters.
  const OpenedModel own = golden_with_keys("gpt2_a", Json::object()),
                    plain = golden_with_keys("gpt2_a", {{"vitrine_affine", false}});
  EXPECT_EQ(plain.model->tensors().size(), own.model->tensors().size());
  EXPECT_EQ(parameter_count(*own.model) - parameter_count(*plain.model), (3 * 2 + 1) * 2 * 48);
}

TEST(PartsOff, WithoutTheMaskLaterTokensCountAndTextIsGeneratedAllTheSame) {
  Engine engine(golden_with_keys("gpt2_a", {{"vitrine_causal", false}}), {2, {.f32 = true, .exact = false}});
  EXPECT_FALSE(is_causal(engine.model()));
  EXPECT_TRUE(predicts_next(engine.model()));
  std::vector<int32_t> changed = kIds;
  changed.back() = 4;
  EXPECT_NE(all_logits(engine, kIds)[0], all_logits(engine, changed)[0]);
  // Each token is the most likely after the whole text so far, which is run again.
  std::vector<int32_t> text(kIds.begin(), kIds.begin() + 4);
  const Loops loops("gpt2_a");
  GenerateOptions options;
  options.max_tokens = 5;
  options.sampling.temperature = 0;
  const Generation made = generate(engine, text, options);
  ASSERT_EQ(made.tokens.size(), 5u);
  for (const int32_t token : made.tokens) {
    const std::vector<double> z = loops.logits(text, {.mask = false}).back();
    EXPECT_EQ(token, std::max_element(z.begin(), z.end()) - z.begin());
    text.push_back(token);
  }
  EXPECT_EQ(engine.predict(kIds, 1, false).at(0).position, std::ssize(kIds) - 1);
  EXPECT_EQ(engine.predict_batch({kIds, {5, 3}}, 1).size(), 2u);
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.make_cache(0); }), "\"vitrine_causal\": false");
}

// 12 steps of a small model of each kind, its checkpoint, and its resumption.
TEST(PartsOff, RunsKeepThem) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 3);
  small_data(scratch, "valid", 8, 4);
  const std::vector<std::pair<std::string, Json>> parts = {
      {"  mlp: off\n", {{"vitrine_mlp", false}}},
      {"  affine: off\n", {{"vitrine_affine", false}}},
      {"  positions: off\n", {{"vitrine_positions", false}}},
      {"  mask: off\n", {{"vitrine_causal", false}}},
      {"  norms: off\n  residual: off\n  mlp: off\n",
       {{"vitrine_norms", "off"}, {"vitrine_residual", false}, {"vitrine_mlp", false}}},
      {"  mlp: on\n  affine: on\n  positions: on\n  mask: causal\n  rotary_values: off\n  residual: add\n", Json::object()}};
  int number = 0;
  for (const auto& [lines, keys] : parts) {
    SCOPED_TRACE(lines);
    const std::string run = scratch / ("run" + std::to_string(number++));
    std::string text = small_config(scratch, run, "layers_every: 4\n");
    text.insert(text.find("data:"), lines);
    const TrainConfig config = parse_train_config(text, "run.yaml");
    train_up_to(config, 6);
    const TrainResult result = train(config, true);
    EXPECT_EQ(result.step, 12);
    const Json saved = Json::parse(read_file(run + "/last/config.json"));
    for (const char* key : {"vitrine_norms", "vitrine_residual", "vitrine_mlp", "vitrine_affine", "vitrine_positions",
                            "vitrine_causal", "vitrine_rotary_value"})
      EXPECT_EQ(saved.contains(key), keys.contains(key)) << key;
    for (const auto& [key, value] : keys.items()) EXPECT_EQ(saved.at(key), value);
    const std::vector<Json> lines_of_run = metrics_of(run);
    EXPECT_TRUE(lines_of_run.back().contains("val_loss"));
    EXPECT_TRUE(lines_of_run.back().contains("layer_grad_norm"));
    Engine engine(open_model(run + "/last"), {});
    EXPECT_NO_THROW(engine.predict({std::vector<int32_t>{3, 6, 12}}, 3, true));
  }
}

TEST(PartsOff, NormsWithoutScaleAndShiftAreOrdinaryNorms) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 3);
  small_data(scratch, "valid", 8, 4);
  const std::string own = scratch / "own", run = scratch / "run", more = scratch / "more";
  train(parse_train_config(small_config(scratch, own), "run.yaml"), false);
  std::string text = small_config(scratch, run);
  text.insert(text.find("data:"), "  affine: off\n");
  train(parse_train_config(text, "run.yaml"), false);
  const auto check_identity = [](const std::string& folder) {
    const Checkpoint weights = open_safetensors(folder + "/last/model.safetensors");
    for (const char* name : {"transformer.h.0.ln_1", "transformer.h.1.ln_2", "transformer.ln_f"}) {
      for (const float w : golden_tensor(weights, std::string(name) + ".weight")) EXPECT_EQ(w, 1.0f);
      for (const float b : golden_tensor(weights, std::string(name) + ".bias")) EXPECT_EQ(b, 0.0f);
    }
  };
  check_identity(run);
  // Read as the family's, it computes the same bits.
  const std::vector<int32_t> ids = {3, 6, 12, 25, 51, 41};
  ModelFiles ordinary = resolve_model(run + "/last");
  ordinary.config.erase("vitrine_affine");
  Engine marked(open_model(run + "/last"), {}), plain(open_model(ordinary), {});
  EXPECT_EQ(all_logits(marked, ids), all_logits(plain, ids));
  // A model that has learned them loses them.
  EXPECT_NE(golden_tensor(open_safetensors(own + "/last/model.safetensors"), "transformer.h.0.ln_1.weight").values[0], 1.0f);
  text = small_config(scratch, more);
  const size_t begin = text.find("  config:"), end = text.find("data:");
  text.replace(begin, end - begin, "  path: " + own + "/last\n  affine: off\n");
  train(parse_train_config(text, "run.yaml"), false);
  check_identity(more);
}

TEST(PartsOff, WhatMeansNothingIsRefusedByName) {
  const auto refused = [](const std::string& name, const Json& keys) -> std::string {
    try {
      golden_with_keys(name, keys);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_CONTAINS(refused("gpt2_a", {{"vitrine_rotary_value", true}}), "the family gpt2 has no RoPE");
  EXPECT_CONTAINS(refused("llama", {{"vitrine_rotary_value", true}, {"vitrine_positions", false}}), "leaves RoPE out");
  EXPECT_CONTAINS(refused("gpt2_a", {{"vitrine_affine", false}, {"vitrine_norms", "off"}}), "vitrine_affine");
  EXPECT_CONTAINS(refused("gemma2", {{"vitrine_causal", false}}), "see a window");
  EXPECT_CONTAINS(refused("lfm2", {{"vitrine_causal", false}}), "layers without attention");
  EXPECT_CONTAINS(refused("gpt2_a", {{"vitrine_mlp", "no"}}), "vitrine_mlp");
  EXPECT_CONTAINS(refused("classic_pre", {{"vitrine_mlp", false}}), "vitrine_mlp");
  EXPECT_CONTAINS(refused("gemma4", {{"vitrine_mlp", false}}), "no other form for");
  const Scratch scratch;
  const auto config_refused = [&](const std::string& lines) -> std::string {
    std::string text = small_config(scratch, scratch / "x");
    text.insert(text.find("data:"), lines);
    try {
      parse_train_config(text, "run.yaml");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_CONTAINS(config_refused("  mlp: of\n"), "Expected one of on, off");
  EXPECT_CONTAINS(config_refused("  mask: on\n"), "causal");
  EXPECT_CONTAINS(config_refused("  mpl: off\n"), "Did you mean \"mlp\"?");
}

}  // namespace
}  // namespace vitrine
