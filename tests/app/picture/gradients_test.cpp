// Pictures of gradients, against numbers of torch (tests/golden/forms, tests/golden/attribution) and of traces.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hooks/trace.h"
#include "inspect/attribution.h"
#include "inspect/circuits.h"
#include "io/huggingface.h"
#include "model/load.h"
#include "picture/data/studio.h"
#include "picture/data/tables.h"
#include "picture/support.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

OpenedModel with_key(const std::string& model, const char* key, const Json& value) {
  ModelFiles files = resolve_model(Golden::open(model).model());
  files.config[key] = value;
  return open_model(std::move(files));
}

TEST(Gradients, ReachEachLayerAsTorchSays) {
  const Checkpoint gold = open_safetensors(std::string(VITRINE_GOLDEN) + "/forms/forms.safetensors");
  const GoldenTensor stored = golden_tensor(gold, "ids");
  const PicturePrompt prompt = ids_prompt({stored.begin(), stored.end()});
  for (const char* model : {"gpt2_a", "gemma2", "llama"}) {
    SCOPED_TRACE(model);
    Engine engine(with_key(model, "vitrine_norms", "post"), kF32);
    const PictureJson document = picture_document(engine, prompt, "gradient-norms");
    const PictureJson& p = document.at("pictures").at("gradient-norms");
    const std::vector<double> got = doubles(p.at("norms"));
    const GoldenTensor want = golden_tensor(gold, std::string(model) + "/post/stream");
    ASSERT_EQ(got.size(), want.size() + 1);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], static_cast<double>(want.values[i]), 2e-4 * static_cast<double>(want.values[i]));
    ASSERT_EQ(p.at("withoutNorms").size(), got.size());  // the second curve: the same weights, norms off
    EXPECT_NE(doubles(p.at("withoutNorms"))[0], got[0]);
    EXPECT_CONTAINS(picture_svg(document, "gradient-norms"), "without norms");
    const double all = golden_tensor(gold, std::string(model) + "/post/grad_norm").values[0];  // of all parameters together
    EXPECT_NEAR(p.at("parameters").at("all").get<double>(), all, 2e-4 * all);
  }
  Engine off(with_key("llama", "vitrine_norms", "off"), kF32);
  EXPECT_TRUE(picture_of(off, prompt, "gradient-norms").at("withoutNorms").is_null());
}

// So small a cap is reached by every logit: the loss is finite, and no gradient passes.
TEST(Gradients, ThatAreZeroHaveVanished) {
  Engine engine(with_key("gemma2", "final_logit_softcapping", 1e-20), kF32);
  const PictureJson document = picture_document(engine, ids_prompt({3, 5, 7, 9}), "gradient-norms");
  EXPECT_EQ(doubles(document.at("pictures").at("gradient-norms").at("norms"))[0], 0);
  EXPECT_CONTAINS(document.dump(), "The gradient at the first layer is zero: it has vanished");
}

TEST(Gradients, AtTheEmbeddingsOfTheTokensBeforeThePrediction) {
  Engine engine(open_model(Golden::open("llama").model()), kF32);
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42, 8, 200, 33};
  const PictureJson p = picture_of(engine, ids_prompt(ids), "input-attribution");
  EXPECT_EQ(p.at("saliency").size(), ids.size());
  EXPECT_LT(p.at("target").at("logprob").get<double>(), 0);
  for (const double s : doubles(p.at("saliency"))) EXPECT_GT(s, 0);
  const PictureJson early = picture_of(engine, ids_prompt(ids), "input-attribution", {.position = 3});
  EXPECT_EQ(early.at("saliency").size(), 4u);
  EXPECT_THROW(picture_document(engine, ids_prompt(ids), "input-attribution", {.position = 8}), InputError);
}

// Lengths of a traced gradient, row by row.
std::vector<double> lengths(const Recorder::Value& value) {
  const size_t rows = static_cast<size_t>(value.shape[0]), size = value.values.size() / rows;
  std::vector<double> norms;
  for (size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += std::pow(static_cast<double>(value.values[r * size + i]), 2);
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}
const PictureJson& at_hook(const PictureJson& picture, const std::string& hook) {
  for (const PictureJson& one : picture.at("hooks"))
    if (one.at("hook") == hook) return one.at("norms");
  throw std::runtime_error("no hook " + hook);
}

TEST(Gradients, OfEachTokenAreThoseOfTorchAndOfATrace) {
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42, 8, 200, 33};
  const Checkpoint gold = open_safetensors(std::string(VITRINE_GOLDEN) + "/attribution/gradients.safetensors");
  for (const std::string model : {"gpt2_a", "gemma", "gemma2", "llama", "mistral", "qwen2"}) {
    SCOPED_TRACE(model);
    Engine engine(open_model(Golden::open(model).model()), kF32);
    const auto layers = static_cast<size_t>(engine.shape().n_layers);
    const PictureJson p = picture_of(engine, ids_prompt(ids), "gradient-hooks");
    EXPECT_EQ(p.at("positions")[0], 0);
    const std::vector<double> stream = unpacked(at_hook(p, "blocks.*.hook_resid_pre"));
    ASSERT_EQ(stream.size(), layers * ids.size());
    for (size_t l = 0; l < layers; ++l) {
      const GoldenTensor want = golden_tensor(gold, model + "/hidden." + std::to_string(l));
      const std::vector<double> expected = lengths({want.shape, {want.begin(), want.end()}});
      for (size_t t = 0; t < ids.size(); ++t)
        EXPECT_NEAR(stream[l * ids.size() + t], expected[t], 1e-4 * expected[0]) << l << " " << t;
      EXPECT_EQ(stream[(l + 1) * ids.size() - 1], 0);  // nothing is scored after the last token
    }
    // Every hook of the picture, against a trace of it.
    EXPECT_GE(p.at("hooks").size(), 14u);
    for (const PictureJson& hook : p.at("hooks")) {
      const std::vector<std::string> wanted = {hook.at("hook")};
      SCOPED_TRACE(wanted[0]);
      const HookGradients traced = hook_gradients(engine, {&ids, 1}, {&ids, 1}, wanted);
      std::vector<double> expected;
      for (const std::string& name : traced.order)
        for (const double norm : lengths(traced.values[0].at(name))) expected.push_back(norm);
      const double most = *std::max_element(expected.begin(), expected.end());
      EXPECT_GT(most, 0);
      EXPECT_CLOSE(unpacked(hook.at("norms")), expected, (Tolerance{.abs = 1e-5 * most, .rel = 1e-4}));
    }
  }
}

// Lengths of the gradients of those parameters in whose names in the model's file one of these words stands.
double length_of(const LossGradients& traced, std::initializer_list<std::string> words) {
  double squares = 0;
  for (const auto& [name, value] : traced.gradients)
    for (const std::string& word : words)
      if (name.find(word) != std::string::npos)
        for (const float g : value.values) squares += static_cast<double>(g) * static_cast<double>(g);
  return std::sqrt(squares);
}

TEST(Gradients, OfParametersAreThoseOfATrace) {
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42, 8, 200, 33};
  const std::string gguf = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
  for (const std::string& model : {Golden::open("gemma2").model(), Golden::open("gpt2_a").model(), gguf}) {
    SCOPED_TRACE(model);
    Engine engine(open_model(model), kF32);
    const LossGradients traced = loss_gradients(engine, {&ids, 1}, {&ids, 1});
    const PictureJson p = picture_of(engine, ids_prompt(ids), "gradient-norms");
    const PictureJson& parameters = p.at("parameters");
    const auto expect = [&](const PictureJson& found, std::initializer_list<std::string> words) {
      const double want = length_of(traced, words);
      EXPECT_GT(want, 0);
      EXPECT_NEAR(found.get<double>(), want, 1e-4 * want);
    };
    EXPECT_NEAR(p.at("loss").get<double>(), traced.loss, 1e-5);
    expect(parameters.at("all"), {""});
    ASSERT_EQ(parameters.at("mlp").size(), static_cast<size_t>(engine.shape().n_layers));
    const PictureJson &attention = parameters.at("attention")[1], &mlp = parameters.at("mlp")[1];
    if (model == gguf) {
      expect(attention, {"blk.1.attn"});
      expect(mlp, {"blk.1.ffn"});
      EXPECT_FALSE(p.at("withoutNorms").is_null());
    } else if (engine.shape().family == "gpt2") {
      expect(attention, {"h.1.attn", "h.1.ln_1"});
      expect(mlp, {"h.1.mlp", "h.1.ln_2"});
    } else {
      expect(attention, {"layers.1.self_attn", "layers.1.input_layernorm", "layers.1.post_attention_layernorm"});
      expect(mlp, {"layers.1.mlp", "layers.1.pre_feedforward_layernorm", "layers.1.post_feedforward_layernorm"});
    }
    EXPECT_EQ(parameters.at("rest")[0].at("name"), "W_E");
    expect(parameters.at("rest")[0].at("norm"), {"embed_tokens", "wte", "token_embd"});
  }
}

TEST(Gradients, OfTheInputAreThoseOfAttribute) {
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42, 8, 200, 33};
  Engine engine(open_model(Golden::open("gemma").model()), kF32);
  const Attribution found = attribute(engine, ids);
  const PictureJson p = picture_of(engine, ids_prompt(ids), "input-attribution");
  EXPECT_EQ(p.at("target").at("id"), found.token);
  EXPECT_CLOSE(doubles(p.at("saliency")), found.saliency, (Tolerance{.abs = 0, .rel = 1e-6}));
  EXPECT_CLOSE(doubles(p.at("gradientInput")), found.gradient_input, (Tolerance{.abs = 1e-12, .rel = 1e-6}));
  const PictureJson& integrated = p.at("integrated");
  EXPECT_CLOSE(doubles(integrated.at("parts")), *found.integrated, (Tolerance{.abs = 1e-12, .rel = 1e-6}));
  double sum = 0;
  for (const double part : doubles(integrated.at("parts"))) sum += part;
  EXPECT_NEAR(sum,
              p.at("target").at("logprob").get<double>() - integrated.at("baselineLogprob").get<double>() +
                  integrated.at("gap").get<double>(),
              1e-5);
  EXPECT_LT(std::abs(integrated.at("gap").get<double>()), 1e-2);
}

TEST(Gradients, AreDrawnAndTabled) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PicturePrompt prompt = text_prompt(engine, "Once upon a time there was a king");
  for (const char* name : {"gradient-norms", "gradient-hooks", "input-attribution"}) {
    SCOPED_TRACE(name);
    const PictureJson document = picture_document(engine, prompt, name);
    const std::string svg = picture_svg(document, name);
    EXPECT_TRUE(svg.starts_with("<svg "));
    EXPECT_TRUE(svg.find("nan") == std::string::npos && svg.find("inf") == std::string::npos);
    const std::vector<PictureTable> tables = picture_tables(document, name);
    ASSERT_EQ(tables.size(), 1u);
    EXPECT_GE(tables[0].rows.size(), 8u);
    for (const auto& row : tables[0].rows) EXPECT_EQ(row.size(), tables[0].columns.size());
  }
  for (const char* name : {"gradient-norms", "gradient-hooks"}) {
    const PictureJson one = picture_of(engine, ids_prompt({5}), name);
    EXPECT_FALSE(one.at("available").get<bool>());
  }
}

std::vector<std::string> drawn_steps(const PictureJson& document) {
  std::vector<std::string> ids;
  for (const PictureJson& step : document.at("steps")) ids.push_back(step.at("id"));
  return ids;
}
bool has(const std::vector<std::string>& list, const char* what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

// On the page they are what they are alone, to the bit.
TEST(Gradients, AreStepsOfThePage) {
  const PicturePrompt prompt = ids_prompt({5, 17, 3, 101, 42, 8});
  for (const char* model : {"gemma2", "gpt2_a", "classic_post", "classic_pre"}) {
    SCOPED_TRACE(model);
    Engine engine(open_model(Golden::open(model).model()), kF32);
    const PictureJson page = explain_document(engine, prompt);
    for (const char* name : {"gradient-norms", "gradient-hooks", "input-attribution"})
      EXPECT_EQ(page.at("pictures").at(name), picture_of(engine, prompt, name)) << name;
    const std::vector<std::string> steps = drawn_steps(page);
    EXPECT_TRUE(has(steps, "input-attribution"));
    EXPECT_TRUE(has(steps, "back-propagation"));
    EXPECT_EQ(steps[steps.size() - 2], "merging");
    EXPECT_EQ(steps.back(), "recap");
  }
  // The shipped model's numbers overflow without norms: nothing comes back, and the step says so.
  Engine tales(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson page = explain_document(tales, text_prompt(tales, "Once upon a time"));
  EXPECT_TRUE(page.at("pictures").at("gradient-norms").at("lossWithoutNorms").is_null());
  const size_t at = page.at("steps").size() - 3;
  EXPECT_EQ(drawn_steps(page)[at], "back-propagation");
  EXPECT_CONTAINS(page.at("steps")[at].at("engineers").at("text").dump(), "leave the range of 32-bit floats");
}

TEST(Gradients, ThatAreSwitchedOffOrDoNotFitLeaveTheirStepsOut) {
  const PicturePrompt prompt = ids_prompt({5, 17, 3, 101, 42, 8, 200, 33});
  Engine engine(open_model(Golden::open("llama").model()), kF32);
  const auto expect_none = [&](const PictureJson& page, const char* name, const char* why) {
    EXPECT_FALSE(page.at("pictures").at(name).at("available").get<bool>()) << name;
    EXPECT_CONTAINS(page.at("pictures").at(name).at("reason").get<std::string>(), why);
  };
  const PictureJson off = explain_document(engine, prompt, {.gradients = false});
  for (const char* name : {"gradient-norms", "gradient-hooks", "input-attribution"}) expect_none(off, name, "switched off");
  EXPECT_FALSE(has(drawn_steps(off), "input-attribution"));
  EXPECT_FALSE(has(drawn_steps(off), "back-propagation"));
  EXPECT_TRUE(has(drawn_steps(off), "reach"));

  // What all layers' tape takes, and not a byte more: no room for the gradients of the parameters.
  const auto n = static_cast<int64_t>(prompt.ids.size());
  const size_t tape = backward_bytes(engine.model(), n, engine.shape().n_layers);
  const auto with_memory = [&](const char* name, size_t memory) { return picture_of(engine, prompt, name, {.memory = memory}); };
  EXPECT_TRUE(with_memory("gradient-norms", tape).at("parameters").is_null());
  EXPECT_CONTAINS(with_memory("gradient-norms", tape).at("caption").get<std::string>(), "Gradients of all parameters would take");
  EXPECT_FALSE(with_memory("gradient-norms", size_t{1} << 30).at("parameters").is_null());
  const PictureJson none = with_memory("gradient-norms", tape - 1);
  EXPECT_FALSE(none.at("available").get<bool>());
  EXPECT_CONTAINS(none.at("reason").get<std::string>(), "would take");
  EXPECT_TRUE(with_memory("input-attribution", tape - 1).at("available").get<bool>());  // one layer at a time
  EXPECT_FALSE(with_memory("input-attribution", 1000).at("available").get<bool>());
}

// The rule above rests on it: more than is taken, and not by far.
TEST(Gradients, TakeTheMemoryThatIsExpected) {
  for (const std::string& model : Golden::all())
    for (const int64_t tokens : {8, 32}) {
      Engine engine(open_model(Golden::open(model).model()), kF32);
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < tokens; ++i) ids.push_back(i * 7 % 40);
      const size_t expected = backward_bytes(engine.model(), tokens, engine.shape().n_layers);
      const size_t taken = run_backward(engine, ids, {.hooks = true, .parameters = false}).bytes;
      EXPECT_LE(taken, expected) << model << " " << tokens;
      EXPECT_GT(3 * taken, expected) << model << " " << tokens;
    }
}

// As many points as `attribute` takes, fewer for what is larger or longer, none where too few would be left.
TEST(Gradients, AreIntegratedAtFewerPointsWhereOneTakesLonger) {
  ModelFacts tales, gpt2, gemma;
  tales.shape = {"gemma2", 256, 8, 4, 2, 64, 1024, 4096, 1024, true};
  tales.parameter_count = 8'921'344;
  gpt2.shape = {"gpt2", 768, 12, 12, 12, 64, 3072, 50257, 1024, true};
  gpt2.parameter_count = 124'439'808;
  gemma.shape = {"gemma", 2048, 18, 8, 1, 256, 16384, 256000, 8192, true};
  gemma.parameter_count = 2'506'172'416;
  EXPECT_EQ(integral_points(tales, 12), AttributionOptions{}.steps);
  EXPECT_EQ(integral_points(tales, 80), AttributionOptions{}.steps);
  EXPECT_EQ(integral_points(tales, 120), AttributionOptions{}.steps / 2);
  EXPECT_EQ(integral_points(tales, 250), 16);
  EXPECT_EQ(integral_points(tales, 257), 0);  // numbers by token are given up to 256
  EXPECT_EQ(integral_points(gpt2, 6), 16);    // the weights are read once for each point, however short the prompt
  EXPECT_EQ(integral_points(gpt2, 60), 0);
  EXPECT_EQ(integral_points(gemma, 1), 0);
}

// Long runs keep to the gradients of one point.
TEST(Gradients, AreNotIntegratedWhereThatTakesLong) {
  const Scratch folder;
  write_random_model(folder.path(), small_gemma(1, 128));
  Engine engine(folder.path(), kF32);
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) ids.push_back((i * 37 + i / 7) % 64);
  const PictureJson p = picture_of(engine, ids_prompt(ids), "input-attribution");
  EXPECT_TRUE(p.at("integrated").is_null());
  EXPECT_EQ(p.at("saliency").size(), ids.size());
  EXPECT_CONTAINS(p.at("caption").get<std::string>(), "`vitrine attribute`");
  // Of many tokens the last ones are shown.
  const PictureJson hooks = picture_of(engine, ids_prompt(ids), "gradient-hooks");
  EXPECT_EQ(hooks.at("positions")[0], 300 - 256);
  EXPECT_EQ(hooks.at("hooks")[0].at("norms").at("shape"), (std::vector<int64_t>{1, 256}));
}

// What is written for a family's own norms does not run on other ones.
TEST(Gradients, OtherPicturesRefuseFormsTheyDoNotKnow) {
  Engine off(with_key("llama", "vitrine_norms", "off"), kF32);
  const auto refused = [&](auto&& f) {
    try {
      f();
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("nothing refused");
  };
  EXPECT_CONTAINS(refused([&] { picture_document(off, ids_prompt({1, 2, 3}), "norm-statistics"); }), "vitrine_norms");
  EXPECT_CONTAINS(refused([&] { explain_document(off, ids_prompt({1, 2, 3})); }), "vitrine_norms");
  EXPECT_NO_THROW(picture_document(off, ids_prompt({1, 2, 3}), "update-scale"));
  EXPECT_NO_THROW(picture_document(off, ids_prompt({1, 2, 3}), "logit-attribution"));
  Engine replace(with_key("llama", "vitrine_residual", false), kF32);
  EXPECT_CONTAINS(refused([&] { picture_document(replace, ids_prompt({1, 2, 3}), "logit-attribution"); }), "vitrine_residual");
  EXPECT_CONTAINS(refused([&] { picture_document(replace, ids_prompt({1, 2, 3}), "update-scale"); }), "vitrine_residual");
  EXPECT_CONTAINS(refused([&] { picture_document(replace, ids_prompt({1, 2, 3}), "embedding-rescaling"); }), "vitrine_residual");
  EXPECT_CONTAINS(refused([&] { circuit_table(replace); }), "vitrine_residual");
}

}  // namespace
}  // namespace vitrine
