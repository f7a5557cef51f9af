// Traces: values, names, gradients and files against the golden numbers.
#include "hooks/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "inspect/support.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "model/abilities.h"

namespace vitrine {
namespace {

const std::vector<std::vector<int32_t>> kOne = {{5, 3, 7, 9}};

class TraceOfEveryFamily : public testing::TestWithParam<std::string> {
 protected:
  Golden gold = Golden::open(GetParam());
  Engine engine{gold.model(), {2, {}}};
  Scratch scratch;
};

TEST_P(TraceOfEveryFamily, ValuesAreTheReferences) {
  const GoldenPrompt prompt = gold.prompt("long");
  std::vector<std::string> hooks = {"hook_logits", "residual"};
  if (has_attention(engine.model())) hooks.emplace_back("pattern");
  const Trace made = trace(engine, prompt.ids, {.hooks = hooks}, scratch / "t.safetensors");
  const Checkpoint file = open_safetensors(scratch / "t.safetensors");
  ASSERT_EQ(file.tensors().size(), made.tensors.size());
  size_t bytes = 0;
  for (const TracedTensor& tensor : made.tensors) {
    ASSERT_NE(file.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(file.find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(file.find(tensor.name)->dtype, DType::f32);
    bytes += file.find(tensor.name)->bytes;
  }
  EXPECT_EQ(made.bytes, bytes);
  EXPECT_FALSE(made.loss.has_value());
  EXPECT_CLOSE(golden_tensor(file, "hook_logits"), gold["long/logits"].at(0), gold.tolerance());
  EXPECT_EQ(golden_tensor(file, "hook_logits").shape, gold["long/logits"].at(0).shape);  // [position, vocab]
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".", n = std::to_string(layer);
    EXPECT_CLOSE(golden_tensor(file, block + "hook_resid_pre"), gold["long/hidden." + n].at(0), gold.tolerance());
    if (!gold.has("long/attn." + n)) continue;
    EXPECT_CLOSE(golden_tensor(file, block + "attn.hook_pattern"), gold["long/attn." + n].at(0), gold.tolerance());
    EXPECT_EQ(golden_tensor(file, block + "attn.hook_pattern").shape, gold["long/attn." + n].at(0).shape);  // [head, query, key]
  }
}

TEST_P(TraceOfEveryFamily, GradientsAreTheReferences) {
  const GoldenPrompt prompt = gold.prompt("train");
  const Trace made = trace(engine, prompt.ids, {.gradients = true, .labels = prompt.labels}, scratch / "g.safetensors");
  const Checkpoint file = open_safetensors(scratch / "g.safetensors"), expected = gold.train();
  ASSERT_TRUE(made.loss.has_value());
  const Json train = gold.json("train");
  const Json& losses = train.contains("losses_before_each_step") ? train.at("losses_before_each_step").at("adamw")
                                                                 : train.at("adamw").at("losses_before_each_step");
  EXPECT_NEAR(*made.loss, losses.at(0).get<double>(), 2e-5);
  std::vector<std::string> wanted, found;
  for (const std::string& name : Golden::names_in(expected, "grad/")) wanted.push_back("grad." + name.substr(5));
  for (const auto& [name, tensor] : file.tensors()) found.push_back(name);
  EXPECT_EQ(found, wanted);  // every parameter once, tied ones too
  for (const std::string& name : found) {
    SCOPED_TRACE(name);
    const GoldenTensor want = golden_tensor(expected, "grad/" + name.substr(5)), got = golden_tensor(file, name);
    EXPECT_EQ(got.shape, want.shape);
    float largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(value));
    EXPECT_CLOSE(got, want, (Tolerance{.abs = std::max(1e-4 * static_cast<double>(largest), 1e-7), .rel = 0}));
  }
}

TEST_P(TraceOfEveryFamily, GradientsOf16BitWeightsAreF32AndThoseOfTheSameNumbersWidened) {
  const auto to_bf16 = [](bool widened) {
    return [widened](std::vector<OwnedTensor>& tensors) {
      for (OwnedTensor& t : tensors) t = rounded(t, widened);
    };
  };
  const EngineOptions options{2, {.f32 = true, .exact = false}};
  Engine narrow(copy_of(gold, scratch / "bf16", to_bf16(false)), options);
  Engine wide(copy_of(gold, scratch / "f32", to_bf16(true)), options);
  const auto ids = gold.prompt("train").ids;
  const LossGradients a = loss_gradients(narrow, ids, ids), b = loss_gradients(wide, ids, ids);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, value] : a.gradients) {
    EXPECT_EQ(value.shape, b.gradients.at(name).shape);
    EXPECT_CLOSE(value.values, b.gradients.at(name).values, (Tolerance{.abs = 1e-7, .rel = 1e-5})) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TraceOfEveryFamily, testing::ValuesIn(Golden::all()),
                         [](const auto& test) { return test.param; });

class TraceGguf : public testing::TestWithParam<std::string> {
 protected:
  const std::string path = std::string(VITRINE_GOLDEN) + "/gguf/" + GetParam() + ".gguf";
};

TEST_P(TraceGguf, GradientsHaveTheFilesNamesAndShapes) {
  Engine engine(path, {2, {}}), original(Golden::open(GetParam()).model(), {2, {}});
  const std::vector<std::vector<int32_t>> ids = {{5, 3, 7, 9, 2}};
  const LossGradients made = loss_gradients(engine, ids, ids), expected = loss_gradients(original, ids, ids);
  EXPECT_NEAR(made.loss, expected.loss, 1e-5);
  const Gguf file = open_gguf(path);
  size_t parameters = 0;
  for (const auto& [name, tensor] : file.checkpoint.tensors()) {
    // Factors of RoPE and of the stream are no parameters.
    if (name.starts_with("rope_") || name.ends_with("layer_output_scale.weight")) continue;
    if (name.ends_with("exp_probs_b.bias") || name.ends_with("attn_v_b.weight")) continue;  // not learned; one with attn_k_b
    ++parameters;
    if (const size_t at = name.find("attn_k_b"); at != std::string::npos) {
      EXPECT_TRUE(made.gradients.contains(name.substr(0, at) + "attn_kv_b.weight")) << name;
      continue;
    }
    ASSERT_TRUE(made.gradients.contains(name)) << name;
    EXPECT_EQ(made.gradients.at(name).shape, tensor.shape) << name;
  }
  // Every number of every parameter, however the files cut experts.
  const auto numbers = [](const LossGradients& of) {
    size_t n = 0;
    for (const auto& [name, value] : of.gradients) n += value.values.size();
    return n;
  };
  ASSERT_EQ(numbers(made), numbers(expected));
  EXPECT_EQ(made.gradients.size(), parameters);
  for (const auto& [name, value] : made.gradients) {  // an expert after the other
    if (!name.ends_with("ffn_gate_exps.weight")) continue;
    const std::string layer = "model.layers." + name.substr(4, name.find('.', 4) - 4);
    const bool mixtral = GetParam() == "mixtral" || GetParam() == "phimoe";
    std::vector<float> joined;
    const bool together = GetParam() == "gpt_oss" || GetParam() == "llama4";
    if (together) {  // [experts, in, gate and up], by turns or side by side
      const bool turns = GetParam() == "gpt_oss";
      const auto& both = expected.gradients.at(layer + (turns ? ".mlp" : ".feed_forward") + ".experts.gate_up_proj").values;
      const auto experts = static_cast<size_t>(value.shape[0]), out = static_cast<size_t>(value.shape[1]);
      const auto in = static_cast<size_t>(value.shape[2]);
      for (size_t e = 0; e < experts; ++e)
        for (size_t j = 0; j < out; ++j)
          for (size_t i = 0; i < in; ++i) joined.push_back(both[(e * in + i) * 2 * out + (turns ? 2 : 1) * j]);
    }
    for (int64_t e = 0; !together && e < value.shape[0]; ++e) {
      const std::string expert = std::to_string(e);
      const auto& part = expected.gradients.at(mixtral ? layer + ".block_sparse_moe.experts." + expert + ".w1.weight"
                                                       : layer + ".mlp.experts." + expert + ".gate_proj.weight");
      joined.insert(joined.end(), part.values.begin(), part.values.end());
    }
    EXPECT_CLOSE(value.values, joined, (Tolerance{.abs = 1e-5, .rel = 1e-4})) << name;
  }
  // The embedding lies the same way in both files; Falcon-H1's GGUF file holds its factor in it.
  const auto embedding = std::find_if(expected.gradients.begin(), expected.gradients.end(), [](const auto& g) {
    return g.first.ends_with("wte.weight") || g.first.ends_with("embed_tokens.weight") || g.first.ends_with("embed_in.weight") ||
           g.first.ends_with("embeddings.weight");
  });
  ASSERT_NE(embedding, expected.gradients.end());
  FloatVector made_embedding = made.gradients.at("token_embd.weight").values;
  if (GetParam() == "falcon_h1") {
    const auto factor = read_json(Golden::open(GetParam()).model() + "/config.json").at("embedding_multiplier").get<float>();
    for (float& g : made_embedding) g *= factor;
  }
  EXPECT_CLOSE(made_embedding, embedding->second.values, (Tolerance{.abs = 1e-5, .rel = 1e-4}));
}

INSTANTIATE_TEST_SUITE_P(Golden, TraceGguf, testing::ValuesIn(Golden::with("gguf")), [](const auto& test) { return test.param; });

TEST(TraceQuantized, GradientsAreThoseOfTheNumbersThatTheBlocksMean) {
  for (const char* type : {"q8_0", "q4_0"}) {
    const std::string path = std::string(VITRINE_GOLDEN) + "/gguf/llama_" + type + ".gguf";
    const Gguf quantized = open_gguf(path);
    GgufKeys keys;
    for (const auto& [key, value] : quantized.metadata.values())
      if (key != "general.alignment") keys.emplace_back(key, value);
    std::vector<TensorPlan> plan;
    std::vector<std::vector<float>> widened;
    for (const auto& [name, t] : quantized.checkpoint.tensors()) {
      plan.push_back({name, DType::f32, t.shape});
      size_t n = 1;
      for (const int64_t size : t.shape) n *= static_cast<size_t>(size);
      std::vector<float>& numbers = widened.emplace_back(n);
      for (size_t i = 0; i < n; ++i) numbers[i] = element_at(t.dtype, t.data, i);
    }
    const Scratch scratch;
    GgufWriter writer(scratch / "f32.gguf", keys, plan);
    for (size_t i = 0; i < widened.size(); ++i) writer.write(i, std::as_bytes(std::span(widened[i])));
    writer.finish();
    const EngineOptions options{2, {.f32 = true, .exact = false}};
    Engine narrow(path, options), wide(scratch / "f32.gguf", options);
    const std::vector<std::vector<int32_t>> ids = {{5, 3, 7, 9, 2, 11, 4, 1, 8, 30, 12}};
    const LossGradients a = loss_gradients(narrow, ids, ids), b = loss_gradients(wide, ids, ids);
    EXPECT_NEAR(a.loss, b.loss, 1e-6);
    ASSERT_EQ(a.gradients.size(), b.gradients.size());
    for (const auto& [name, value] : a.gradients)
      EXPECT_CLOSE(value.values, b.gradients.at(name).values, (Tolerance{.abs = 1e-6, .rel = 1e-4})) << type << " " << name;
  }
}

class TraceGpt2 : public testing::Test {
 protected:
  Golden gold = Golden::open("gpt2_a");
  Engine engine{gold.model(), {2, {}}};
  Scratch scratch;
  std::string refused(const std::vector<std::vector<int32_t>>& ids, const TraceOptions& options) {
    return message_of<InputError>([&] { trace(engine, ids, options, scratch / "no.safetensors"); });
  }
};

TEST_F(TraceGpt2, SeveralSequencesAreNumberedAndEachIsItsOwn) {
  const std::vector<std::vector<int32_t>> ids = {{5, 3, 7}, {9, 2, 4, 8, 1}};
  const Trace made = trace(engine, ids, {.hooks = {"resid_post.1", "logits"}}, scratch / "two.safetensors");
  std::vector<std::string> names;
  for (const TracedTensor& tensor : made.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"blocks.1.hook_resid_post#0", "hook_logits#0", "blocks.1.hook_resid_post#1",
                                             "hook_logits#1"}));
  const Checkpoint file = open_safetensors(scratch / "two.safetensors");
  EXPECT_EQ(file.metadata().at("tokens"), "5,3,7;9,2,4,8,1");
  for (size_t i = 0; i < ids.size(); ++i) {
    trace(engine, std::span(&ids[i], 1), {.hooks = {"logits"}}, scratch / "one.safetensors");
    const Checkpoint alone = open_safetensors(scratch / "one.safetensors");
    EXPECT_EQ(golden_tensor(file, "hook_logits#" + std::to_string(i)).values, golden_tensor(alone, "hook_logits").values);
  }
}

TEST_F(TraceGpt2, HooksAndGradientsFitInOneFile) {
  const Trace made = trace(engine, kOne, {.hooks = {"logits"}, .gradients = true}, scratch / "both.safetensors");
  EXPECT_EQ(made.tensors[0].name, "hook_logits");
  EXPECT_EQ(made.scored, 3);
  // The loss by hand: the mean of -log softmax(logits at t)[token t + 1].
  const Checkpoint file = open_safetensors(scratch / "both.safetensors");
  const GoldenTensor z = golden_tensor(file, "hook_logits");
  double loss = 0;
  for (size_t t = 0; t + 1 < kOne[0].size(); ++t) {
    const GoldenTensor row = z.at(t);
    double total = 0;
    for (const float x : row) total += std::exp(static_cast<double>(x));
    loss += std::log(total) - static_cast<double>(row.values[static_cast<size_t>(kOne[0][t + 1])]);
  }
  EXPECT_NEAR(*made.loss, loss / 3, 1e-5);
}

TEST_F(TraceGpt2, UnscoredLabelsCountForNothing) {
  const std::vector<std::vector<int32_t>> ids = {{5, 3, 7, 9}}, masked = {{-100, 3, -100, -100}}, shorter = {{5, 3}};
  const LossGradients a = loss_gradients(engine, ids, masked), b = loss_gradients(engine, shorter, shorter);
  EXPECT_EQ(a.scored, 1);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  for (const auto& [name, value] : a.gradients)
    EXPECT_CLOSE(value.values, b.gradients.at(name).values, (Tolerance{.abs = 1e-6, .rel = 1e-4})) << name;
}

TEST_F(TraceGpt2, DropoutOfTheConfigurationDoesNotAct) {
  const auto drop = [](Json& config) {
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[key] = 0.5;
  };
  Engine dropping(copy_of(gold, scratch / "dropping", {}, drop), {2, {}});
  const LossGradients a = loss_gradients(engine, kOne, kOne), b = loss_gradients(dropping, kOne, kOne);
  EXPECT_EQ(a.loss, b.loss);
  for (const auto& [name, value] : a.gradients) EXPECT_EQ(value.values, b.gradients.at(name).values) << name;
}

TEST_F(TraceGpt2, GradientsHaveTheNamesOfTheModelsOwnFile) {
  const auto bare = [](std::vector<OwnedTensor>& tensors) {  // files of the bare model lack the prefix
    for (OwnedTensor& t : tensors)
      if (t.name.starts_with("transformer.")) t.name = t.name.substr(12);
  };
  Engine plain(copy_of(gold, scratch / "bare", bare), {2, {}});
  const LossGradients made = loss_gradients(plain, kOne, kOne);
  EXPECT_TRUE(made.gradients.contains("h.0.attn.c_attn.weight"));
  const int64_t d = engine.shape().d_model;
  EXPECT_EQ(made.gradients.at("h.0.attn.c_attn.weight").shape, (std::vector<int64_t>{d, 3 * d}));  // [in, out]
  for (const auto& [name, value] : made.gradients) EXPECT_FALSE(name.starts_with("transformer.")) << name;
}

TEST_F(TraceGpt2, ReplacesTheFileInOneStepOrNotAtAll) {
  const std::string path = scratch.write("t.safetensors", "old");
  EXPECT_CONTAINS(message_of<InputError>([&] { trace(engine, kOne, {.hooks = {"nonsense"}}, path); }), "no hook");
  EXPECT_EQ(read_all(path), "old");
  trace(engine, kOne, {.hooks = {"logits"}}, path);
  EXPECT_EQ(open_safetensors(path).tensors().size(), 1u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);  // nothing temporary is left
  EXPECT_CONTAINS(
      message_of<RunError>([&] { trace(engine, kOne, {.hooks = {"logits"}}, scratch / "no/such/folder.safetensors"); }),
      "no/such/folder.safetensors");
}

TEST_F(TraceGpt2, RefusesMoreThanMemoryHoldsBeforeItRuns) {
  const std::string message = refused({std::vector<int32_t>(40, 7)}, {.hooks = {"*"}, .memory = 100 << 10});
  EXPECT_CONTAINS(message, "The hooks of sequence 0 would take ");
  EXPECT_CONTAINS(message, " KiB of memory; 100 KiB are left");
  EXPECT_CONTAINS(message, "slices");
  const std::vector<std::string> all = {"*"};
  EXPECT_CONTAINS(message_of<InputError>([&] { trace_to_memory(engine, kOne[0], all, nullptr, 100); }), "These hooks would take");
}

TEST_F(TraceGpt2, RefusesWhatHasNoAnswer) {
  EXPECT_CONTAINS(refused(kOne, {}), "nothing to trace");
  EXPECT_CONTAINS(refused({}, {.hooks = {"*"}}), "no tokens");
  EXPECT_CONTAINS(refused({{5, 100000}}, {.hooks = {"*"}}), "token 100000 at place 1 is outside the vocabulary");
  EXPECT_CONTAINS(refused({{}}, {.hooks = {"*"}}), "no tokens");
  EXPECT_CONTAINS(refused(kOne, {.gradients = true, .labels = {{1, 2}}}), "has 4 tokens and 2 labels");
  EXPECT_CONTAINS(refused(kOne, {.gradients = true, .labels = {{1}, {2}}}), "labels for 2 sequence(s) and tokens for 1");
  EXPECT_CONTAINS(refused(kOne, {.gradients = true, .labels = {{1, 2, 3, 100000}}}), "label 100000 at place 3 of sequence 0");
  EXPECT_CONTAINS(refused(kOne, {.gradients = true, .labels = {{1, 2, 3, -1}}}), "-100 means not scored");
  EXPECT_CONTAINS(refused({{5}}, {.gradients = true}), "no position is scored, so there is no loss");
  EXPECT_CONTAINS(refused({{5}}, {.gradients = true}), "a sequence of two tokens or more");
  for (const int32_t first : {-100, 5}) {
    const std::string none = refused(kOne, {.gradients = true, .labels = {{first, -100, -100, -100}}});
    EXPECT_CONTAINS(none, "no position is scored");
    EXPECT_CONTAINS(none, "every label from the second on is -100, which means not scored");
    EXPECT_EQ(none.find("two tokens"), std::string::npos) << none;
  }
}

TEST_F(TraceGpt2, NanIsShownInHooksAndRefusedAsLoss) {
  const auto poison = [](std::vector<OwnedTensor>& tensors) {
    for (OwnedTensor& t : tensors) {
      if (t.name != "transformer.h.0.mlp.c_proj.bias") continue;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(t.bytes.data(), &nan, sizeof nan);
    }
  };
  Engine poisoned(copy_of(gold, scratch / "nan", poison), {1, {}});
  const std::vector<std::string> hooks = {"mlp_out.0", "attn_out.0"};
  const Recorder seen = trace_to_memory(poisoned, kOne[0], hooks);
  EXPECT_TRUE(std::isnan(seen.values().at("blocks.0.hook_mlp_out").values[0]));
  EXPECT_FALSE(std::isnan(seen.values().at("blocks.0.hook_attn_out").values[0]));
  EXPECT_CONTAINS(message_of<RunError>([&] { loss_gradients(poisoned, kOne, kOne); }), "NaN");
  EXPECT_EQ(poisoned.context().tape(), nullptr);
  EXPECT_EQ(poisoned.context().listener(), nullptr);
}

}  // namespace
}  // namespace vitrine
