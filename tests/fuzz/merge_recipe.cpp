// Any bytes as a recipe file of `vitrine merge`: read, put in order, planned with a few tiny models, and merged if that is small;
// or refused by an error of the project. Seeds name the models a, b, c and d.
#include <cmath>
#include <fstream>
#include <map>

#include "base/error.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "merge/output.h"
#include "merge/plan_json.h"
#include "merge/recipe_file.h"
#include "merge/run.h"

namespace {

using namespace vitrine;

constexpr const char* kTokenizer = R"({"version": "1.0", "added_tokens": [{"id": 6, "content": "<x>", "special": true}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5}, "merges": []}})";
constexpr const char* kOtherTokenizer = R"({"version": "1.0", "added_tokens": [],
  "model": {"type": "BPE", "vocab": {"g": 0, "b": 1, "a": 2, "h": 3}, "merges": []}})";

// Models of a family that nobody knows: two alike, one of 16 bit with another vocabulary and fewer layers, one with other
// tensors.
class Models {
 public:
  Models() {
    const auto layers = [](int64_t n, DType dtype) {
      std::map<std::string, TensorPlan> tensors;
      for (int64_t i = 0; i < n; ++i)
        for (const char* part : {".self_attn.q_proj.weight", ".mlp.up_proj.weight"})
          add(tensors, "model.layers." + std::to_string(i) + part, dtype, {4, 6});
      return tensors;
    };
    for (const char* name : {"a", "b"}) {
      auto tensors = layers(3, DType::f32);
      add(tensors, "model.embed_tokens.weight", DType::f32, {8, 6});
      add(tensors, "model.norm.weight", DType::f32, {6});
      make(name, tensors, R"({"model_type": "strange", "num_hidden_layers": 3, "vocab_size": 8})", kTokenizer);
    }
    auto other = layers(2, DType::bf16);
    add(other, "model.embed_tokens.weight", DType::bf16, {4, 6});
    add(other, "model.norm.weight", DType::bf16, {6});
    add(other, "lm_head.weight", DType::bf16, {4, 6});
    make("c", other, R"({"model_type": "strange", "num_hidden_layers": 2, "vocab_size": 4, "layer_types": ["x", "y"]})",
         kOtherTokenizer);
    auto odd = layers(3, DType::f32);
    add(odd, "model.embed_tokens.weight", DType::f32, {8, 6});
    add(odd, "model.norm.weight", DType::i64, {6});
    add(odd, "vision.layers.0.w", DType::f32, {});
    add(odd, "vision.layers.1.w", DType::f32, {0, 3});
    make("d", odd, R"({"model_type": "strange", "num_hidden_layers": 3, "text_config": {"num_hidden_layers": 3}})", "");
  }

  /// Whether the models of a recipe are among these; then they are found.
  bool place(MergeRecipe& recipe) const {
    bool known = true;
    const auto put = [&](ModelReference& model) {
      if (model.path.size() != 1 || model.path < "a" || model.path > "d" || !model.adapter.empty()) {
        known = false;
      } else {
        model.path = folder_.path() + "/" + model.path;
      }
    };
    for (ModuleRecipe& module : recipe.modules)
      for (OutputSlice& slice : module.slices) {
        for (SliceSource& source : slice.sources) put(source.model);
        if (slice.base_model) put(*slice.base_model);
      }
    if (recipe.base_model) put(*recipe.base_model);
    if (recipe.tokenizer) {
      if (recipe.tokenizer->source == TokenizerRecipe::Source::model) put(recipe.tokenizer->model);
      for (auto& [token, rule] : recipe.tokenizer->tokens)
        if (!rule.model.path.empty()) put(rule.model);
    }
    return known;
  }

 private:
  static void add(std::map<std::string, TensorPlan>& to, const std::string& name, DType dtype, std::vector<int64_t> shape) {
    to[name] = {name, dtype, std::move(shape)};
  }
  void make(const std::string& name, const std::map<std::string, TensorPlan>& tensors, const char* config,
            const char* tokenizer) {
    const std::string folder = folder_.path() + "/" + name;
    std::filesystem::create_directory(folder);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorToWrite> list;
    for (const auto& [key, plan] : tensors) {
      size_t n = 1;
      for (const int64_t size : plan.shape) n *= static_cast<size_t>(size);
      auto& data = bytes.emplace_back(row_bytes(plan.dtype, n));
      for (size_t i = 0; i < n && plan.dtype == DType::f32; ++i) {
        const float value = static_cast<float>((i * 7 + key.size() * 3 + name.back() % 11u) % 13) / 8 - 0.75f;
        std::memcpy(&data[4 * i], &value, 4);
      }
      list.push_back({key, plan.dtype, plan.shape, data.data()});
    }
    write_safetensors(folder + "/model.safetensors", list);
    std::ofstream(folder + "/config.json") << config;
    if (*tokenizer != '\0') std::ofstream(folder + "/tokenizer.json") << tokenizer;
  }

  TemporaryFolder folder_;
};

class Nowhere final : public TensorSink {
 public:
  explicit Nowhere(const MergePlan& plan) : plan_(plan) {}
  void write(size_t tensor, uint64_t offset, const void*, size_t n) override {
    const PlannedTensor& planned = plan_.tensors[tensor];
    if (offset + n > row_bytes(planned.dtype, static_cast<size_t>(planned.elements()))) __builtin_trap();
  }

 private:
  const MergePlan& plan_;
};

void check(const MergePlan& plan) {
  uint64_t bytes = 0;
  for (const PlannedShard& shard : plan.shards)
    for (const size_t i : shard.tensors) {
      const PlannedTensor& tensor = plan.tensors.at(i);
      if (tensor.sources.empty() || tensor.base >= static_cast<int>(tensor.sources.size())) __builtin_trap();
      for (const auto& [name, value] : tensor.parameters.shared)
        if (!std::isfinite(value)) __builtin_trap();
      bytes += row_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()));
    }
  if (bytes != plan.bytes_written()) __builtin_trap();
}

// A Karcher mean may be told to iterate for seconds.
bool is_quick(const MergePlan& plan) {
  for (const PlannedTensor& tensor : plan.tensors)
    if (const auto most = tensor.parameters.shared.find("max_iter"); most != tensor.parameters.shared.end() && most->second > 50)
      return false;
  return plan.bytes_written() <= size_t{1} << 16;
}

void plan_and_merge(const MergeRecipe& recipe) {
  MergeOptions options;
  // Which of the options are on is up to the recipe, too.
  options.allow_missing = recipe.yaml.find("missing") != std::string::npos;
  options.truncate_embeddings = recipe.yaml.find("truncate") != std::string::npos;
  options.allow_nan = recipe.yaml.find("nan") != std::string::npos;
  options.shard_bytes = 200;
  const MergePlan plan = plan_merge(recipe, options);
  check(plan);
  static_cast<void>(plan_json(plan, 1).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  refuse_problems(plan);
  static_cast<void>(merge_companions(plan, "fuzz"));
  if (!is_quick(plan)) return;
  static ThreadPool pool(1);
  Nowhere sink(plan);
  merge_tensors(plan, pool, sink, {}, {}, [](size_t, const TensorMeasure&) {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Models models;
  try {
    std::vector<MergeRecipe> recipes = parse_merge_recipes({reinterpret_cast<const char*>(data), size}, "fuzz.yml");
    for (MergeStep& step : merge_steps(std::move(recipes), "out", "parts")) try {
        if (models.place(step.recipe)) plan_and_merge(step.recipe);
      } catch (const Error&) {
      }
  } catch (const Error&) {
  }
  return 0;
}
