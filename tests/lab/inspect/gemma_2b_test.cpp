// The walk-through's own prompt through the walk-through's own model, where google/gemma-2b lies in the user's Hugging Face
// cache; left out where it does not. The same steps run on a small Gemma in a cache made here, so that they are known to work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "hooks/trace.h"
#include "io/huggingface.h"
#include "runtime/engine.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

constexpr const char* kName = "google/gemma-2b";

double rms(std::span<const float> x) {
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares / static_cast<double>(x.size()));
}

double variance(std::span<const float> x) {
  double mean = 0, squares = 0;
  for (const float v : x) mean += static_cast<double>(v) / static_cast<double>(x.size());
  for (const float v : x) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  return squares / static_cast<double>(x.size());
}

// What the walk-through reads off a prompt.
struct WalkThrough {
  std::vector<int32_t> ids;
  std::vector<double> rms_before, rms_after;  // of each token, around the final norm
  std::vector<double> attention, mlp;         // of each layer: sqrt(σr² / (σr² + σs²)) over all tokens and components
  std::vector<double> hidden;                 // σ of the stream before each sub-layer
  std::string most_likely;                    // next piece
};

WalkThrough walk_through(Engine& engine, const std::vector<int32_t>& ids) {
  WalkThrough walk;
  walk.ids = ids;
  const std::vector<std::string> hooks = {"blocks.*.hook_resid_*", "blocks.*.hook_attn_out", "blocks.*.hook_mlp_out",
                                          "ln_final.hook_normalized"};
  const Recorder seen = trace_to_memory(engine, ids, hooks);
  const auto numbers = [&](const std::string& name) -> const FloatVector& { return seen.values().at(name).values; };
  const auto d = static_cast<size_t>(engine.shape().d_model);
  const std::string last = "blocks." + std::to_string(engine.shape().n_layers - 1) + ".hook_resid_post";
  for (size_t t = 0; t < ids.size(); ++t) {
    walk.rms_before.push_back(rms(std::span(numbers(last)).subspan(t * d, d)));
    walk.rms_after.push_back(rms(std::span(numbers("ln_final.hook_normalized")).subspan(t * d, d)));
  }
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const auto scale = [&](const char* update, const char* skip) {
      const double r = variance(numbers(block + update)), s = variance(numbers(block + skip));
      walk.hidden.push_back(std::sqrt(s));
      return std::sqrt(r / (r + s));
    };
    walk.attention.push_back(scale("hook_attn_out", "hook_resid_pre"));
    walk.mlp.push_back(scale("hook_mlp_out", "hook_resid_mid"));
  }
  walk.most_likely = engine.tokenizer().piece(engine.predict(ids, 1, false)[0].top[0].token);
  return walk;
}

// Its folder with weights in the user's cache, or why there is none.
std::optional<std::string> installed(std::string& why) {
  try {
    const ModelFiles files = resolve_model(kName);
    if (!files.weights.empty()) return files.directory;
    why = files.directory + " holds no weights";
  } catch (const FileError& e) {
    why = e.what();
  }
  return {};
}

TEST(Gemma2B, TheWalkThroughsNumbers) {
  std::string why;
  if (!installed(why))
    GTEST_SKIP() << "left out: the prediction, RMS values and update scales of Gemma 2B on \"I want to move\". " << why;
  Engine engine(kName);
  const WalkThrough walk = walk_through(engine, engine.prompt_ids("I want to move"));
  EXPECT_EQ(walk.ids, (std::vector<int32_t>{2, 235285, 1938, 577, 3124}));
  EXPECT_EQ(walk.most_likely, "▁my");
  const double before[] = {88.5, 16.3, 14.4, 12.9, 12.6};
  // Printed with one digit, in the walk-through's precision: half a digit, and 1 % for bf16 activations.
  for (size_t t = 0; t < 5; ++t) {
    EXPECT_NEAR(walk.rms_before[t], before[t], 0.05 + 0.01 * before[t]) << "token " << t;
    EXPECT_NEAR(walk.rms_after[t], 2.2, 0.05 + 0.01 * 2.2) << "token " << t;
  }
  // "Most points hover around the 0.05 mark, with the first layer having a big attention update, and the last layer having a big
  // mlp update."
  ASSERT_EQ(walk.attention.size(), 18u);
  std::vector<double> all = walk.attention;
  all.insert(all.end(), walk.mlp.begin(), walk.mlp.end());
  std::sort(all.begin(), all.end());
  const double median = all[all.size() / 2];
  EXPECT_GT(median, 0.025);
  EXPECT_LT(median, 0.1);
  EXPECT_EQ(std::max_element(walk.attention.begin(), walk.attention.end()) - walk.attention.begin(), 0);
  EXPECT_EQ(std::max_element(walk.mlp.begin(), walk.mlp.end()) - walk.mlp.begin(), 17);
  EXPECT_GT(walk.attention[0], 3 * median);
  EXPECT_GT(walk.mlp[17], 3 * median);
  // With its norms, the stream's scale "remains under 10^2 for all 18 layers".
  EXPECT_LT(*std::max_element(walk.hidden.begin(), walk.hidden.end()), 100);
}

// Environment variables with other values, while it lives.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, std::optional<std::string>>>& values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name);
      before_.emplace_back(name, before == nullptr ? std::nullopt : std::optional<std::string>(before));
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const char* name, const std::optional<std::string>& value) {
    value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

// A cache as huggingface_hub lays it out, with a small Gemma under the large one's name: the test above would find and run it.
TEST(Gemma2B, IsFoundInTheUsersCacheAndWalkedThrough) {
  const Scratch home;
  const Golden gold = Golden::open("gemma");
  const std::filesystem::path hub = home / ".cache/huggingface/hub", folder = hub / "models--google--gemma-2b";
  std::filesystem::create_directories(folder / "blobs");
  std::filesystem::create_directories(folder / "refs");
  std::filesystem::create_directories(folder / "snapshots/9cf48e5");
  std::ofstream(folder / "refs/main") << "9cf48e5";
  for (const auto& file : std::filesystem::directory_iterator(gold.model())) {
    const std::string name = file.path().filename().string();
    std::filesystem::copy_file(file.path(), folder / "blobs" / name);
    std::filesystem::create_symlink("../../blobs/" + name, folder / "snapshots/9cf48e5" / name);
  }
  using Values = std::vector<std::pair<const char*, std::optional<std::string>>>;
  const std::string elsewhere = home / "nothing";
  for (const Values& values : {Values{{"HF_HUB_CACHE", hub}, {"HF_HOME", elsewhere}, {"HOME", elsewhere}},
                               Values{{"HF_HUB_CACHE", {}}, {"HF_HOME", home / ".cache/huggingface"}, {"HOME", elsewhere}},
                               Values{{"HF_HUB_CACHE", {}}, {"HF_HOME", {}}, {"XDG_CACHE_HOME", {}}, {"HOME", home.path()}}}) {
    const Environment environment(values);
    std::string why;
    EXPECT_EQ(installed(why), (folder / "snapshots/9cf48e5").string()) << why;
    Engine engine(kName, {2, {}});
    EXPECT_FALSE(walk_through(engine, engine.prompt_ids("I want to move")).most_likely.empty());

    // The numbers, on a prompt whose hooks transformers computed.
    const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/hooks/gemma.safetensors");
    const GoldenTensor ids = golden_tensor(file, "ids"), stream = golden_tensor(file, "blocks.2.hook_resid_post"),
                       attn_out = golden_tensor(file, "blocks.0.hook_attn_out"),
                       resid_pre = golden_tensor(file, "blocks.0.hook_resid_pre");
    ASSERT_EQ(engine.shape().n_layers, 3);
    const WalkThrough walk = walk_through(engine, {ids.begin(), ids.end()});
    const auto d = static_cast<size_t>(engine.shape().d_model);
    for (size_t t = 0; t < ids.size(); ++t)
      EXPECT_NEAR(walk.rms_before[t], rms(std::span(stream.values).subspan(t * d, d)), 1e-4 * walk.rms_before[t]);
    const double r = variance(attn_out.values), s = variance(resid_pre.values);
    EXPECT_NEAR(walk.attention[0], std::sqrt(r / (r + s)), 1e-4);
  }
  const Environment nowhere(Values{{"HF_HUB_CACHE", elsewhere}});
  std::string why;
  EXPECT_FALSE(installed(why).has_value());
  EXPECT_CONTAINS(why, elsewhere);
}

}  // namespace
}  // namespace vitrine
