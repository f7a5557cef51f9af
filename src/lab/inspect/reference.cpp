#include "inspect/reference.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "hooks/hooks.h"
#include "inspect/reference_prompts.h"
#include "io/safetensors.h"
#include "model/registry.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

struct TensorName {
  std::string prompt, quantity;    // "short", "hidden.3"
  std::optional<size_t> sequence;  // of "#1"
};
TensorName split_name(const std::string& name) {
  TensorName split;
  const size_t slash = name.rfind('/'), hash = name.rfind('#');
  if (slash != std::string::npos) split.prompt = name.substr(0, slash);
  std::string_view rest = std::string_view(name).substr(slash == std::string::npos ? 0 : slash + 1);
  if (hash != std::string::npos && (slash == std::string::npos || hash > slash)) {
    size_t number = 0;
    const auto [end, error] = std::from_chars(name.data() + hash + 1, name.data() + name.size(), number);
    if (error == std::errc{} && end == name.data() + name.size()) {
      split.sequence = number;
      rest = rest.substr(0, rest.rfind('#'));
    }
  }
  split.quantity = rest;
  return split;
}

// The hook a tensor's name stands for: a hook name, an alias of exactly one, or one of the short names of the golden folders.
class HookNames {
 public:
  HookNames(const Model& model, bool last_hidden_is_normed)
      : names_(model.hook_names()), n_layers_(model.shape().n_layers), last_hidden_is_normed_(last_hidden_is_normed) {}

  std::optional<std::string> find(const std::string& quantity) const {
    if (known(quantity)) return quantity;
    const std::string last = "blocks." + std::to_string(n_layers_ - 1) + ".hook_resid_post";
    if (quantity == "resid_final") return last;
    if (const auto layer = number_after(quantity, "attn.")) return checked("blocks." + *layer + ".attn.hook_pattern");
    if (const auto layer = number_after(quantity, "hidden.")) {
      if (*layer != std::to_string(n_layers_)) return checked("blocks." + *layer + ".hook_resid_pre");
      return last_hidden_is_normed_ && known("ln_final.hook_normalized") ? "ln_final.hook_normalized" : last;
    }
    const std::optional<std::string> alias = hook_alias(quantity, names_);
    return alias ? checked(*alias) : std::nullopt;  // an alias of one hook, not of every layer's
  }
  size_t place(const std::string& name) const {
    return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

 private:
  bool known(const std::string& name) const { return place(name) < names_.size(); }
  std::optional<std::string> checked(const std::string& name) const { return known(name) ? std::optional(name) : std::nullopt; }
  static std::optional<std::string> number_after(const std::string& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return {};
    const std::string rest = text.substr(prefix.size());
    if (rest.empty() || rest.find_first_not_of("0123456789") != std::string::npos) return {};
    return rest;
  }
  std::vector<std::string> names_;
  int64_t n_layers_;
  bool last_hidden_is_normed_;
};

// The sequences of all prompts, padding taken out; ids are checked by whoever runs them.
std::map<std::string, std::vector<ReferenceSequence>> sequences_of(const ReferencePrompts& prompts, const std::string& path) {
  std::map<std::string, std::vector<ReferenceSequence>> result;
  for (const auto& [name, prompt] : prompts)
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      const std::vector<int32_t>& ids = prompt.ids[i];
      ReferenceSequence sequence;
      sequence.name = name.empty() ? "sequence " + std::to_string(i) : name + ", sequence " + std::to_string(i);
      if (!prompt.mask.empty() && (i >= prompt.mask.size() || prompt.mask[i].size() != ids.size()))
        throw FileError(path, "\"" + name + "\": \"attention_mask\" has another shape than \"input_ids\"");
      for (size_t t = 0; t < ids.size(); ++t) {
        if (!prompt.mask.empty() && prompt.mask[i][t] == 0) continue;
        sequence.ids.push_back(ids[t]);
        sequence.places.push_back(static_cast<int64_t>(t));
      }
      sequence.stored_positions = static_cast<int64_t>(ids.size());
      result[name].push_back(std::move(sequence));
    }
  return result;
}

bool is_plain(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16 || type == DType::f64; }

// Gives a tensor to the sequence or the batch of sequences it is for. Errors: FileError for a shape that does not fit.
void place_tensor(const StoredTensor& t, const std::string& hook, const TensorName& name, const Model& model,
                  std::vector<ReferenceSequence>& sequences) {
  const auto refuse = [&](const std::vector<int64_t>& expected, const std::string& why) {
    throw FileError(*t.file, "tensor \"" + t.name + "\" is " + shape_text(t.shape) + " (header byte " +
                                 std::to_string(t.described_at) + "); expected " + shape_text(expected) + " for " + hook + why);
  };
  const auto full = [&](const ReferenceSequence& s) { return hook_shape(model, hook, s.stored_positions); };
  if (!is_plain(t.dtype))
    throw FileError(*t.file, "tensor \"" + t.name + "\" has element type " + std::string(name_of(t.dtype)) +
                                 "; expected f32, f16, bf16 or f64");
  if (name.sequence || t.shape.size() == full(sequences[0]).size()) {
    const size_t i = name.sequence.value_or(0);
    if (i >= sequences.size() || (!name.sequence && sequences.size() > 1))
      throw FileError(*t.file, "tensor \"" + t.name + "\" is of one sequence, and there are tokens for " +
                                   std::to_string(sequences.size()) + "; call it \"" + name.quantity + "#0\" and so on");
    if (t.shape != full(sequences[i])) refuse(full(sequences[i]), " of " + std::to_string(sequences[i].ids.size()) + " tokens");
    sequences[i].tensors.push_back({hook, &t, -1});
    return;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::vector<int64_t> expected = full(sequences[i]);
    expected.insert(expected.begin(), static_cast<int64_t>(sequences.size()));
    if (t.shape != expected) refuse(expected, " of a batch");
    sequences[i].tensors.push_back({hook, &t, static_cast<int64_t>(i)});
  }
}

float number_at(const StoredTensor& t, size_t i) {
  if (t.dtype == DType::f64) {
    double value;
    std::memcpy(&value, t.data + i * sizeof value, sizeof value);
    return static_cast<float>(value);
  }
  return element_at(t.dtype, t.data, i);
}

// A golden folder, its parent, or a folder or file of traces: the files to read.
std::vector<std::string> files_at(const std::string& path, std::string& directory) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw FileError(path, "does not exist; --reference takes a folder or a safetensors file");
  if (!fs::is_directory(path, ignored)) {
    directory = fs::path(path).parent_path().string();
    return {path};
  }
  for (const fs::path& candidate : {fs::path(path), fs::path(path) / "golden"})
    if (fs::exists(candidate / "forward.safetensors", ignored)) {
      directory = candidate.string();
      return {(candidate / "forward.safetensors").string()};
    }
  directory = path;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  if (files.empty()) throw FileError(path, "holds no .safetensors file; `vitrine trace` writes one, or see the manual of verify");
  return files;
}

}  // namespace

std::vector<float> ReferenceSequence::numbers(const ReferenceTensor& tensor) const {
  const StoredTensor& t = *tensor.stored;
  const size_t first_axis = tensor.batch_index < 0 ? 0 : 1;
  std::vector<size_t> shape;
  for (size_t i = first_axis; i < t.shape.size(); ++i) shape.push_back(static_cast<size_t>(t.shape[i]));
  size_t each = 1;
  for (const size_t size : shape) each *= size;
  const size_t base = tensor.batch_index < 0 ? 0 : static_cast<size_t>(tensor.batch_index) * each;
  const bool pattern = heads_first(tensor.hook);
  std::vector<float> result;
  if (pattern) {
    const size_t n = shape[2];
    for (size_t h = 0; h < shape[0]; ++h)
      for (const int64_t q : places)
        for (const int64_t k : places)
          result.push_back(number_at(t, base + (h * n + static_cast<size_t>(q)) * n + static_cast<size_t>(k)));
    return result;
  }
  const size_t row = each / std::max<size_t>(1, shape[0]);
  for (const int64_t place : places)
    for (size_t i = 0; i < row; ++i) result.push_back(number_at(t, base + static_cast<size_t>(place) * row + i));
  return result;
}

Reference open_reference(const std::string& path, const Model& model) {
  Reference reference;
  reference.path = path;
  std::string directory;
  const std::vector<std::string> files = files_at(path, directory);
  const auto beside = [&](const char* name) { return (fs::path(directory) / name).string(); };
  ReferencePrompts shared;
  // References made with transformers give the normed stream as the last hidden state; those of plain layers do not.
  bool normed = family_of(model).last_hidden_is_normed;
  if (fs::exists(beside("prompts.json"))) shared = read_prompts_json(beside("prompts.json"));
  if (shared.empty() && fs::exists(beside("golden.json"))) shared = read_golden_json(beside("golden.json"));
  if (fs::exists(beside("meta.json"))) {
    const Json meta = read_json(beside("meta.json"));
    if (const auto it = meta.find("last_hidden_is_after_final_norm"); it != meta.end() && it->is_boolean())
      normed = it->get<bool>();
    if (const auto it = meta.find("max_logit_difference_to_a_float64_run_long"); it != meta.end() && it->is_number())
      reference.distance_from_f64 = it->get<double>();
  }
  const HookNames names(model, normed);
  for (const std::string& file : files) {
    const Checkpoint& checkpoint = reference.files.emplace_back(open_safetensors(file));
    ReferencePrompts prompts = shared;
    if (const auto tokens = checkpoint.metadata().find("tokens"); tokens != checkpoint.metadata().end())
      prompts[""] = parse_tokens_text(tokens->second, file);
    std::map<std::string, TensorName> to_place;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      TensorName split = split_name(name);
      const bool tokens = split.quantity == "tokens" || split.quantity == "input_ids";
      if (!tokens || !read_tokens_tensor(tensor, split.prompt, split.sequence, prompts)) to_place[name] = std::move(split);
    }
    auto sequences = sequences_of(prompts, file);
    for (const auto& [name, split] : to_place) {
      const std::optional<std::string> hook = names.find(split.quantity);
      if (!hook) {
        reference.not_compared.push_back(name);
        continue;
      }
      const auto prompt = sequences.find(split.prompt);
      if (prompt == sequences.end())
        throw FileError(file, "tensor \"" + name + "\" has no tokens" +
                                  (split.prompt.empty() ? "" : " of the prompt \"" + split.prompt + "\"") +
                                  "; give them as metadata \"tokens\" (2,651;2,1175), as an integer tensor \"" +
                                  (split.prompt.empty() ? "" : split.prompt + "/") +
                                  "tokens\", or in prompts.json beside the file");
      place_tensor(*checkpoint.find(name), *hook, split, model, prompt->second);
    }
    for (auto& [name, prompt] : sequences)
      for (ReferenceSequence& sequence : prompt) {
        if (sequence.tensors.empty()) continue;
        std::sort(sequence.tensors.begin(), sequence.tensors.end(), [&](const ReferenceTensor& a, const ReferenceTensor& b) {
          return std::pair(names.place(a.hook), a.stored->name) < std::pair(names.place(b.hook), b.stored->name);
        });
        if (files.size() > 1) sequence.name = fs::path(file).filename().string() + ", " + sequence.name;
        reference.sequences.push_back(std::move(sequence));
      }
  }
  if (reference.sequences.empty())
    throw FileError(path, "holds no number to compare" +
                              (reference.not_compared.empty() ? std::string()
                                                              : ": \"" + reference.not_compared[0] + "\" is no hook of this " +
                                                                    model.shape().family + " model") +
                              ". Tensors are called as `vitrine info --hooks` lists them, or <prompt>/logits, <prompt>/hidden.3, "
                              "<prompt>/attn.3");
  return reference;
}

}  // namespace vitrine
