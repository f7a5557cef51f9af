// Pictures of the chapter on what makes a model trainable, against the formulas and against what ships.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/mapped_file.h"
#include "io/safetensors.h"
#include "support.h"

namespace vitrine {
namespace {

const PicturePrompt kFourIds = ids_prompt({3, 5, 7, 9});

Engine golden(const std::string& name) { return Engine(open_model(resolve_model(Golden::open(name).model())), kF32); }

void expect_numbers(const PictureJson& got, const std::vector<double>& want, double tolerance = 1e-5) {
  const std::vector<double> numbers = doubles(got);
  ASSERT_EQ(numbers.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(numbers[i], want[i], tolerance) << i;
}

TEST(Trainable, ANormByHand) {
  Engine engine = golden("llama");
  const PictureJson p = picture_of(engine, kFourIds, "norm-by-hand");
  const PictureJson &three = p.at("vectors")[0], &two = p.at("vectors")[1];
  expect_numbers(three.at("centered"), {-2, 0, 2});
  expect_numbers(three.at("squares"), {4, 0, 4});
  EXPECT_NEAR(three.at("variance").get<double>(), 8.0 / 3, 1e-6);
  expect_numbers(three.at("normed"), {-std::sqrt(1.5), 0, std::sqrt(1.5)});
  EXPECT_NEAR(three.at("variance_after").get<double>(), 1, 1e-6);
  expect_numbers(three.at("over_variance"), {-0.75, 0, 0.75});
  EXPECT_NEAR(three.at("variance_over_variance").get<double>(), 0.375, 1e-6);  // 1 / variance
  expect_numbers(three.at("longer_normed"), doubles(three.at("normed")));
  expect_numbers(three.at("longer_over_variance"), {-0.0075, 0, 0.0075}, 1e-8);
  expect_numbers(three.at("rms_normed"), {2 / std::sqrt(56.0 / 3), 4 / std::sqrt(56.0 / 3), 6 / std::sqrt(56.0 / 3)});
  expect_numbers(two.at("normed"), {-1, 1});
  EXPECT_NEAR(two.at("degrees").get<double>(), std::acos(4 / std::sqrt(52.0)) * 180 / M_PI, 1e-3);
  EXPECT_NEAR(two.at("rms_degrees").get<double>(), 0, 0.05);
}

TEST(Trainable, SignalsAreLeveled) {
  Engine engine = golden("llama");
  for (const PictureJson& signal : picture_of(engine, kFourIds, "mixing-desk").at("signals")) {
    const std::vector<double> after = doubles(signal.at("after"));
    double mean = 0, squares = 0;
    for (const double v : after)
      mean += v / static_cast<double>(after.size()), squares += v * v / static_cast<double>(after.size());
    EXPECT_NEAR(mean, 0, 1e-4);
    EXPECT_NEAR(squares, 1, 1e-3);
    EXPECT_GT(std::abs(signal.at("mean").get<double>()) + signal.at("sigma").get<double>(), 0.1);
  }
}

// The error is -ln p(target), so that the gradient of the target's row of an output matrix of its own is (p - 1) times what it is
// multiplied with.
TEST(Trainable, TheStepOfARowIsTheFormula) {
  const PicturePrompt prompt = ids_prompt({3, 5, 7, 9});
  Engine engine = golden("llama");
  const std::vector<Prediction> before = engine.predict(prompt.ids, 2, false);
  const PictureJson p = picture_of(engine, prompt, "gradient-step");
  const int32_t target = before[0].top[1].token;
  EXPECT_EQ(p.at("target"), target);
  EXPECT_NEAR(p.at("probability").at("before").get<double>(), before[0].top[1].prob(), 1e-6);
  EXPECT_NEAR(p.at("loss").at("before").get<double>(), -std::log(before[0].top[1].prob()), 1e-5);
  EXPECT_GT(p.at("probability").at("after").get<double>(), p.at("probability").at("before").get<double>());
  const FloatVector all = hook_value(engine, prompt.ids, "ln_final.hook_normalized").values;
  const FloatVector x(all.end() - engine.shape().d_model, all.end());
  const Checkpoint file = open_safetensors(Golden::open("llama").model() + "/model.safetensors");
  const GoldenTensor head = golden_tensor(file, "lm_head.weight");
  ASSERT_EQ(p.at("weights").size(), x.size());
  double last = INFINITY;
  for (const PictureJson& weight : p.at("weights")) {
    const size_t i = weight.at("component");
    const double w = head.values[static_cast<size_t>(target) * x.size() + i];
    const double gradient = (before[0].top[1].prob() - 1) * static_cast<double>(x[i]);
    EXPECT_NEAR(weight.at("before").get<double>(), w, 1e-6);
    EXPECT_NEAR(weight.at("gradient").get<double>(), gradient, 1e-3 * std::abs(gradient) + 1e-4);
    EXPECT_NEAR(weight.at("after").get<double>(), w - 0.003 * gradient, 2e-6);
    EXPECT_LE(std::abs(weight.at("change").get<double>()), last);
    last = std::abs(weight.at("change").get<double>());
  }
  // The engine's own weights are as they were.
  EXPECT_EQ(engine.predict(prompt.ids, 2, false)[0].top[1].logprob, before[0].top[1].logprob);
}

TEST(Trainable, ScaleAndShiftAreThoseOfTheFile) {
  for (const auto& [name, tensor, ours] :
       {std::tuple{"gpt2_a", "transformer.h.1.ln_2", "blocks.1.ln2"}, std::tuple{"gemma2", "model.norm", "ln_final"}}) {
    SCOPED_TRACE(name);
    Engine engine = golden(name);
    const PictureJson p = picture_of(engine, kFourIds, "norm-weights");
    const Checkpoint file = open_safetensors(Golden::open(name).model() + "/model.safetensors");
    GoldenTensor w = golden_tensor(file, std::string(tensor) + ".weight");
    if (std::string(name) == "gemma2")
      for (float& v : w.values) v += 1;
    const auto norm =
        std::find_if(p.at("norms").begin(), p.at("norms").end(), [&](const PictureJson& n) { return n.at("name") == ours; });
    ASSERT_NE(norm, p.at("norms").end());
    EXPECT_NEAR(norm->at("scale").at("most").get<double>(), *std::max_element(w.begin(), w.end()), 1e-6);
    EXPECT_NEAR(norm->at("scale").at("least").get<double>(), *std::min_element(w.begin(), w.end()), 1e-6);
    EXPECT_EQ(norm->at("shift").is_null(), std::string(name) == "gemma2");
  }
}

TEST(Trainable, TheLadderIsThatWhichShips) {
  Engine engine = golden("llama");
  const Json runs = Json::parse(read_file(std::string(VITRINE_SOURCE) + "/models/book/ladder/ladder.json")).at("runs");
  const auto run_of = [&](const std::string& name) -> const Json& {
    return *std::find_if(runs.begin(), runs.end(), [&](const Json& run) { return run.at("name") == name; });
  };
  const PictureJson loss = picture_of(engine, kFourIds, "ladder-loss");
  ASSERT_EQ(loss.at("runs").size(), 4u);
  for (const PictureJson& run : loss.at("runs")) {
    const Json& shipped = run_of(run.at("name"));
    EXPECT_EQ(doubles(run.at("loss").at("value")), doubles(shipped.at("loss").at("value")));
    EXPECT_EQ(run.at("last").get<double>(), shipped.at("loss").at("value").back().get<double>());
  }
  EXPECT_NEAR(loss.at("guess")[0].at("y").get<double>(), std::log(1024.0), 1e-5);
  const PictureJson gradients = picture_of(engine, kFourIds, "ladder-gradients");
  const Json& stream = run_of("vanishing").at("gradients").at("stream")[0];
  const double first = stream[0], before_last = stream[11], end = stream[12];
  EXPECT_NEAR(gradients.at("deep")[0].at("ratio").get<double>(), first / before_last, 1e-3 * first / before_last);
  const auto vanishing = std::find_if(gradients.at("runs").begin(), gradients.at("runs").end(),
                                      [](const PictureJson& run) { return run.at("name") == "vanishing"; });
  EXPECT_NEAR(vanishing->at("decades")[0][0].get<double>(), std::log10(first / end), 1e-5);
  // What the chapter tells: the gradient vanishes, explodes, and stays.
  EXPECT_LT(gradients.at("deep")[0].at("ratio").get<double>(), 1e-5);
  EXPECT_GT(gradients.at("deep")[1].at("ratio").get<double>(), 1e5);
  EXPECT_LT(std::abs(std::log10(gradients.at("deep")[2].at("ratio").get<double>())), 1);
  const PictureJson switches = picture_of(engine, kFourIds, "ladder-switches");
  EXPECT_EQ(switches.at("prose").at("no_mask_loss"), switches.at("runs")[3].at("last"));
}

// Models without parts: what needs the part is refused by name, the rest is drawn.
TEST(Trainable, PicturesOfModelsWithoutParts) {
  ModelFiles files = resolve_model(Golden::open("gpt2_a").model());
  files.config["vitrine_mlp"] = false;
  files.config["vitrine_positions"] = false;
  Engine bare(open_model(files), kF32);
  EXPECT_CONTAINS(message_of<InputError>([&] { picture_of(bare, kFourIds, "update-scale"); }), "vitrine_mlp");
  EXPECT_CONTAINS(message_of<InputError>([&] { picture_of(bare, kFourIds, "activation-curves"); }), "vitrine_mlp");
  for (const char* name : {"attention", "next-tokens", "logit-lens", "logit-attribution", "gradient-norms", "gradient-hooks",
                           "gradient-step", "norm-weights", "position-vectors", "interpolation"})
    EXPECT_NO_THROW(picture_of(bare, kFourIds, name)) << name;
  files = resolve_model(Golden::open("gpt2_a").model());
  files.config["vitrine_affine"] = false;
  Engine plain(open_model(files), kF32);
  EXPECT_EQ(picture_of(plain, kFourIds, "norm-weights").at("learned"), false);
  EXPECT_NO_THROW(picture_of(plain, kFourIds, "norm-statistics"));
}

}  // namespace
}  // namespace vitrine
