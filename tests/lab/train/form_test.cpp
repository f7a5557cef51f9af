// Models without their norms, with their norms moved, without residual connections: numbers of transformers' modules, joined
// otherwise (tests/golden/forms), and the way of such a form from the configuration into checkpoints and back.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/huggingface.h"
#include "ops/tape.h"
#include "support/close.h"
#include "train/layer_watch.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/train.h"

namespace vitrine {
namespace {

const Checkpoint& golden_forms() {
  static const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/forms/forms.safetensors");
  return file;
}

struct Form {
  const char *model, *form;
  Json keys;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> list = [] {
    std::vector<Form> all;
    for (const char* model : {"gpt2_a", "gemma", "gemma2", "llama"}) {
      all.push_back({model, "off", {{"vitrine_norms", "off"}}});
      all.push_back({model, "post", {{"vitrine_norms", "post"}}});
      all.push_back({model, "off_replace", {{"vitrine_norms", "off"}, {"vitrine_residual", false}}});
      all.push_back({model, "own_replace", {{"vitrine_residual", false}}});
    }
    all.push_back({"gemma2", "pre", {{"vitrine_norms", "pre"}}});
    return all;
  }();
  return list;
}

double largest(const GoldenTensor& t) {
  double most = 0;
  for (const float x : t) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

TEST(Forms, LogitsAndGradientsAreThoseOfTransformersModules) {
  const GoldenTensor stored = golden_tensor(golden_forms(), "ids");
  const std::vector<int32_t> ids(stored.begin(), stored.end());
  std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(kNotScored);
  std::vector<int64_t> rows(ids.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  ThreadPool pool(2);
  for (const Form& form : forms()) {
    const std::string at = std::string(form.model) + "/" + form.form;
    SCOPED_TRACE(at);
    const OpenedModel opened = golden_with_keys(form.model, form.keys);
    const Parameters parameters(*opened.model);
    const float scale = golden_tensor(golden_forms(), at + "/scale").values[0];
    for (size_t i = 0; i < parameters.size(); ++i) parameters.weights()[i] *= scale;

    Context ctx(pool);
    const Step step = Step::of(ids);
    const GoldenTensor want_logits = golden_tensor(golden_forms(), at + "/logits");
    {
      const auto frame = ctx.frame();
      const Tensor got = logits(ctx, opened.model->residual(ctx, step), opened.model->head(), rows);
      const auto distance = static_cast<double>(golden_tensor(golden_forms(), at + "/distance").values[0]);
      EXPECT_CLOSE(std::span(got.data<float>(), static_cast<size_t>(got.count())), want_logits,
                   (Tolerance{.abs = std::max(2e-5, 3 * distance), .rel = 1e-4}));
    }
    LayerWatch watch(*opened.model);
    Tape tape;
    ctx.listen(&watch);
    ctx.record_on(&tape);
    tape.backward(ctx, cross_entropy(ctx, opened.model->residual(ctx, step), opened.model->head(), labels));
    const GoldenTensor stream = golden_tensor(golden_forms(), at + "/stream");
    ASSERT_EQ(watch.stream_gradients().size(), stream.size() + 1);
    for (size_t i = 0; i < stream.size(); ++i)
      EXPECT_NEAR(watch.stream_gradients()[i], static_cast<double>(stream.values[i]),
                  2e-4 * static_cast<double>(stream.values[i]))
          << "layer " << i;
    double squares = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto g = static_cast<double>(parameters.gradients()[i]);
      squares += g * g;
    }
    const auto whole = static_cast<double>(golden_tensor(golden_forms(), at + "/grad_norm").values[0]);
    EXPECT_NEAR(std::sqrt(squares), whole, 1e-4 * whole);
    size_t compared = 0;
    for (const Parameter& p : parameters.list()) {
      if (golden_forms().find(at + "/grad." + p.name) == nullptr) continue;
      SCOPED_TRACE(p.name);
      const GoldenTensor want = golden_tensor(golden_forms(), at + "/grad." + p.name);
      EXPECT_CLOSE(std::span(parameters.gradients(p), p.count), want, (Tolerance{.abs = 1e-4 * largest(want), .rel = 0}));
      ++compared;
    }
    EXPECT_GT(compared, 0u);
  }
}

// What the watch says about the norms, against plain sums over what a recorder sees.
TEST(Forms, WatchedActivationsAreThoseOfTheHooks) {
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11};
  for (const auto& [name, norms] : std::vector<std::pair<std::string, std::string>>{
           {"gpt2_a", ""}, {"gemma2", ""}, {"llama", "post"}, {"classic_post", ""}}) {
    SCOPED_TRACE(name + " " + norms);
    const OpenedModel opened = golden_with_keys(name, norms.empty() ? Json::object() : Json{{"vitrine_norms", norms}});
    ThreadPool pool(1);
    Context ctx(pool);
    LayerWatch watch(*opened.model);
    ctx.listen(&watch);
    opened.model->residual(ctx, Step::of(ids));
    const bool gemma2 = name == "gemma2", classic = name == "classic_post";
    ASSERT_EQ(watch.norms().size(), static_cast<size_t>(opened.model->shape().n_layers) * (gemma2 ? 4 : 2) + (classic ? 0u : 1u));
    for (const LayerWatch::Norm& norm : watch.norms()) {
      SCOPED_TRACE(norm.name);
      EXPECT_EQ(norm.before.has_value(), !norm.name.ends_with("ln2_post"));
      EXPECT_TRUE(std::isfinite(norm.after.mean) && norm.after.variance > 0);
    }
    // A LayerNorm of weight 1 and bias 0 would give mean 0 and variance 1; here its input decides what the hook's scale says.
    struct Scales final : Listener {
      std::vector<double> mean_square;
      bool wants(std::string_view hook) const override { return hook.ends_with(".hook_scale"); }
      Tensor see(Context&, std::string_view, const Tensor& value) override {
        double sum = 0;
        for (int64_t i = 0; i < value.count(); ++i)
          sum += static_cast<double>(value.data<float>()[i]) * static_cast<double>(value.data<float>()[i]);
        mean_square.push_back(sum / static_cast<double>(value.count()));
        return {};
      }
    } scales;
    ctx.listen(&scales);
    opened.model->residual(ctx, Step::of(ids));
    ASSERT_EQ(scales.mean_square.size(), watch.norms().size());
    if (opened.model->layer(0).rms) continue;  // its scale also holds the mean
    for (size_t i = 0; i < watch.norms().size(); ++i)
      EXPECT_NEAR(watch.norms()[i].before->variance + opened.model->layer(0).norm.eps, scales.mean_square[i],
                  1e-4 * scales.mean_square[i])
          << watch.norms()[i].name;
  }
}

TEST(Forms, WatchingChangesNoBit) {
  const std::string model = Golden::open("gemma2").model();
  Learner alone(open_model(model), {}), watched(open_model(model), {});
  const Batch batch = golden_batch(Golden::open("gemma2").prompt("train"));
  LayerWatch watch(watched.engine().model());
  const StepReport a = alone.step(std::span(&batch, 1), 1e-3), w = watched.step(std::span(&batch, 1), 1e-3, false, &watch);
  EXPECT_EQ(a.loss, w.loss);
  EXPECT_EQ(a.gradient_norms, w.gradient_norms);
  EXPECT_FALSE(watch.norms().empty());
  EXPECT_EQ(watch.stream_gradients().size(), static_cast<size_t>(watched.engine().shape().n_layers) + 1);
}

std::string form_config(const Scratch& scratch, const std::string& out, const std::string& model_lines) {
  return "model:\n  config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,\n"
         "           num_attention_heads: 2, vocab_size: 61, max_position_embeddings: 32}\n" +
         model_lines + "data: {train: " + scratch / "data" +
         "}\nsequence_length: 16\nbatch: 2\nsteps: 2\nlayers_every: 1\n"
         "optimizer: {name: adamw, lr: 1e-2}\nout: " +
         out + "\n";
}

TrainConfig parsed(const std::string& text) { return parse_train_config(text, "run.yaml"); }

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Forms, CheckpointsKeepThemAndOtherReadersCannotMistakeThem) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 3);
  const std::string run = scratch / "off";
  train(parsed(form_config(scratch, run, "  norms: off\n  residual: off\n")), false);
  const std::string checkpoint = run + "/step-2";
  const Json config = Json::parse(read_file(checkpoint + "/config.json"));
  EXPECT_EQ(config.at("vitrine_norms"), "off");
  EXPECT_EQ(config.at("vitrine_residual"), false);
  const Checkpoint weights = open_safetensors(checkpoint + "/model.safetensors");
  EXPECT_EQ(weights.find("model.norm.weight"), nullptr);
  EXPECT_EQ(weights.find("model.layers.0.input_layernorm.weight"), nullptr);

  // The run path gives what the trainer computes.
  const std::vector<int32_t> ids = {3, 6, 12, 25, 51, 41};
  Batch batch{.tokens = ids, .labels = {ids.begin() + 1, ids.end()}, .lengths = {6}};
  batch.labels.push_back(kNotScored);
  Learner learner(open_model(checkpoint), {});
  const double loss = learner.evaluate(batch).loss;
  Engine engine(open_model(checkpoint), {});
  double sum = 0;
  for (const float logprob : engine.token_logprobs(ids)) sum -= static_cast<double>(logprob);
  EXPECT_NEAR(sum, loss, 1e-5 * loss);

  // Read as an ordinary model, it lacks tensors.
  ModelFiles ordinary = resolve_model(checkpoint);
  ordinary.config.erase("vitrine_norms");
  EXPECT_NE(error_of([&] { open_model(ordinary); }).find("lacks the tensor \"model.layers.0.input_layernorm.weight\""),
            std::string::npos);

  // Metrics: no norm, so no activations around any; the stream's gradients of both layers and of its end.
  const Json line = metrics_of(run).back();
  EXPECT_FALSE(line.contains("layer_activation"));
  EXPECT_EQ(line.at("layer_stream_grad_norm").size(), 3u);
}

TEST(Forms, AnExistingModelCanLoseItsNorms) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 3);
  train(parsed(form_config(scratch, scratch / "own", "")), false);
  EXPECT_FALSE(Json::parse(read_file(scratch / "own" + "/step-2/config.json")).contains("vitrine_norms"));
  EXPECT_EQ(metrics_of(scratch / "own").back().at("layer_activation").size(), 5u);
  std::string text = form_config(scratch, scratch / "lost", "");
  const size_t begin = text.find("  config:"), end = text.find("data:");
  text.replace(begin, end - begin, "  path: " + scratch / "own" + "/last\n  norms: off\n");
  train(parsed(text), false);
  EXPECT_EQ(Json::parse(read_file(scratch / "lost" + "/step-2/config.json")).at("vitrine_norms"), "off");
  EXPECT_NO_THROW(open_model(scratch / "lost" + "/last"));
}

TEST(Forms, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 3);
  EXPECT_NE(error_of([&] { parsed(form_config(scratch, "x", "  norms: of\n")); }).find("did you mean \"off\"?"),
            std::string::npos);
  const std::string run = scratch / "run";
  train(parsed(form_config(scratch, run, "  norms: post\n")), false);
  TrainConfig other = parsed(form_config(scratch, run, "  norms: off\n"));
  other.steps = 4;
  EXPECT_NE(error_of([&] { train(other, true); }).find("must not change when a run is resumed"), std::string::npos);
  other = parsed(form_config(scratch, run, ""));  // as_is: as the checkpoint has them
  other.steps = 4;
  EXPECT_EQ(train(other, true).step, 4);

  EXPECT_NE(error_of([] { golden_with_keys("llama", {{"vitrine_norms", "behind"}}); }).find("expected off, pre or post"),
            std::string::npos);
  EXPECT_NE(error_of([] { golden_with_keys("classic_pre", {{"vitrine_norms", "off"}}); }).find("vitrine_norms"),
            std::string::npos);
  TrainConfig classic = parsed(form_config(scratch, scratch / "c", "  norms: off\n"));
  EXPECT_NE(error_of([&] { with_form({{"model_type", "classic_decoder"}}, classic); }).find("norm_order"), std::string::npos);
}

}  // namespace
}  // namespace vitrine
