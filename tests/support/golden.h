#pragma once
// The golden models of tests/golden/models: a Hugging Face directory and the numbers a reference implementation gave.
// Needs the library vitrine_io and VITRINE_GOLDEN, the path of tests/golden.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "support/close.h"

namespace vitrine {

/// A golden tensor as floats (integers too), readable as a range.
struct GoldenTensor {
  using value_type = float;
  std::vector<int64_t> shape;
  std::vector<float> values;

  const float* data() const { return values.data(); }
  size_t size() const { return values.size(); }
  auto begin() const { return values.begin(); }
  auto end() const { return values.end(); }
  /// The part at `index` of the outermost dimension: batch[0] is the first sequence.
  GoldenTensor at(size_t index) const {
    const size_t each = values.size() / static_cast<size_t>(shape.at(0));
    if (index >= static_cast<size_t>(shape[0])) throw std::out_of_range("GoldenTensor::at");
    return {{shape.begin() + 1, shape.end()},
            {values.begin() + static_cast<std::ptrdiff_t>(index * each),
             values.begin() + static_cast<std::ptrdiff_t>((index + 1) * each)}};
  }
};

/// One stored tensor of a plain type as floats.
inline GoldenTensor as_floats(const StoredTensor& tensor) {
  GoldenTensor result{tensor.shape, {}};
  const size_t n = tensor.bytes / row_bytes(tensor.dtype, 1);
  result.values.resize(n);
  for (size_t i = 0; i < n; ++i) {
    switch (tensor.dtype) {
      case DType::f64: result.values[i] = static_cast<float>(reinterpret_cast<const double*>(tensor.data)[i]); break;
      case DType::i64: result.values[i] = static_cast<float>(reinterpret_cast<const int64_t*>(tensor.data)[i]); break;
      case DType::i32: result.values[i] = static_cast<float>(reinterpret_cast<const int32_t*>(tensor.data)[i]); break;
      case DType::u8: result.values[i] = static_cast<float>(reinterpret_cast<const uint8_t*>(tensor.data)[i]); break;
      default: result.values[i] = element_at(tensor.dtype, tensor.data, i);
    }
  }
  return result;
}

/// The named tensor of a golden safetensors file. Errors: std::out_of_range naming file and tensor.
inline GoldenTensor golden_tensor(const Checkpoint& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) throw std::out_of_range(file.path() + " holds no tensor " + name);
  return as_floats(*tensor);
}

/// A prompt of prompts.json: [sequence][position]. Only positions whose mask is 1 are to be compared.
struct GoldenPrompt {
  std::vector<std::vector<int32_t>> ids, mask, positions, labels;
};

/// The golden numbers of one model.
class Golden {
 public:
  /// name: a folder of tests/golden/models ("gemma2"). Errors: std::invalid_argument if it is not there.
  static Golden open(const std::string& name) { return Golden(std::string(VITRINE_GOLDEN) + "/models/" + name); }
  /// Every model there, sorted.
  static std::vector<std::string> all() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/models"))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// Those of them whose name has a file in another folder of numbers as well, such as "gguf" or "circuits", sorted.
  static std::vector<std::string> with(const std::string& folder) {
    std::vector<std::string> names = all(), here;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/" + folder))
      here.push_back(entry.path().stem().string());
    std::erase_if(names, [&](const std::string& name) { return std::find(here.begin(), here.end(), name) == here.end(); });
    return names;
  }

  const std::string& dir() const { return dir_; }
  /// The Hugging Face directory, for resolve_model.
  std::string model() const { return dir_ + "/model"; }

  /// forward.safetensors: "<prompt>/logits", "<prompt>/hidden.i", "<prompt>/attn.layer", "<prompt>/resid_final".
  GoldenTensor operator[](const std::string& name) const { return golden_tensor(forward(), name); }
  bool has(const std::string& name) const { return forward().find(name) != nullptr; }
  /// Names of forward.safetensors that begin with `prefix`.
  std::vector<std::string> names(const std::string& prefix = "") const { return names_in(forward(), prefix); }
  /// train.safetensors: "grad/<parameter>", "adamw1/<parameter>", "adamw10/<parameter>".
  Checkpoint train() const { return open_safetensors(dir_ + "/golden/train.safetensors"); }
  /// sampling.safetensors: "raw", "<rules>/logits", "<rules>/probs".
  Checkpoint sampling() const { return open_safetensors(dir_ + "/golden/sampling.safetensors"); }
  static std::vector<std::string> names_in(const Checkpoint& file, const std::string& prefix = "") {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file.tensors())
      if (name.starts_with(prefix)) names.push_back(name);
    return names;
  }

  /// A JSON file of the folder: "prompts", "generate", "train", "meta".
  Json json(const std::string& name) const { return read_json(dir_ + "/golden/" + name + ".json"); }
  std::vector<std::string> prompts() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : written_prompts().items()) names.push_back(name);
    return names;
  }
  GoldenPrompt prompt(const std::string& name) const {
    using Rows = std::vector<std::vector<int32_t>>;
    const Json& written = written_prompts().at(name);
    if (written.is_object())
      return {written.at("input_ids").get<Rows>(), written.at("attention_mask").get<Rows>(),
              written.at("position_ids").get<Rows>(), written.at("labels").get<Rows>()};
    GoldenPrompt result{written.get<Rows>(), {}, {}, {}};  // the classic decoders list ids alone; nothing is padded
    result.labels = result.ids;
    for (const auto& row : result.ids) {
      result.mask.emplace_back(row.size(), 1);
      auto& positions = result.positions.emplace_back(row.size());
      for (size_t i = 0; i < row.size(); ++i) positions[i] = static_cast<int32_t>(i);
    }
    return result;
  }
  /// Tolerance of logits and hidden states in f32: 2e-5 + 1e-4 relative, or three times the distance of the reference from
  /// float64 where that is more.
  Tolerance tolerance() const {
    Tolerance result{.abs = 2e-5, .rel = 1e-4};
    const std::string meta = dir_ + "/golden/meta.json";
    if (std::filesystem::exists(meta))
      result.abs = std::max(result.abs, 3 * read_json(meta).value("max_logit_difference_to_a_float64_run_long", 0.0));
    return result;
  }

 private:
  explicit Golden(std::string dir) : dir_(std::move(dir)) {
    if (!std::filesystem::is_directory(dir_)) throw std::invalid_argument(dir_ + " is not there");
  }

  // Read when first used: every start of a program of tests names the models of its suites.
  const Checkpoint& forward() const {
    if (!forward_) forward_ = open_safetensors(dir_ + "/golden/forward.safetensors");
    return *forward_;
  }
  const Json& written_prompts() const {
    if (prompts_.is_null()) {
      prompts_ = json("prompts");
      if (prompts_.contains("prompts")) prompts_ = Json(prompts_.at("prompts"));
    }
    return prompts_;
  }

  std::string dir_;
  mutable std::optional<Checkpoint> forward_;
  mutable Json prompts_;
};

}  // namespace vitrine
