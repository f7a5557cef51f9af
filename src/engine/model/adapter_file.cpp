// Adapters in the files of PEFT: adapter_config.json and adapter_model.safetensors.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "model/adapter_modules.h"
#include "model/expert_modules.h"
#include "model/module_pattern.h"

namespace vitrine {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr int64_t kLargestRank = 1 << 16;
constexpr size_t kMostPatterns = 1 << 14;

using Module = Adapter::Module;

// The keys of an object of the document, as they come one after the other. No value is kept: at the end of each that is, the
// parser looks through all before it.
std::vector<std::string> keys_in_order(const std::string& text, const std::string& object) {
  std::vector<std::string> keys;
  bool inside = false;
  const auto collect = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event != Json::parse_event_t::key) return false;
    if (depth == 1) inside = value == object;
    if (depth == 2 && inside) keys.push_back(value.get<std::string>());
    return false;
  };
  [[maybe_unused]] const Json document = Json::parse(text, collect);
  return keys;
}

// What rank_pattern or alpha_pattern gives a module: the number of the first key, in the file's order, that fits its name.
class Pattern {
 public:
  /// text: what the object was read from.
  Pattern(const ConfigReader& config, const Json& object, const std::string& text, const char* key) : config_(config), key_(key) {
    if (!object.contains(key) || object.at(key).is_null()) return;
    if (!object.at(key).is_object()) config.fail(key, "is no object; expected module names with numbers");
    if (object.at(key).size() > kMostPatterns)
      config.fail(key, "has too many keys; expected at most " + std::to_string(kMostPatterns));
    for (const std::string& name : keys_in_order(text, key)) {
      const Json& value = object.at(key).at(name);
      if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>()))
        config.fail(key, "gives \"" + name + "\" " + value.dump() + "; expected a number above 0");
      try {
        entries_.push_back({name, ModulePattern(name), value.get<double>()});
      } catch (const InputError& error) {
        config.fail(key, "has the pattern \"" + name + "\", which is no regular expression: " + error.what());
      }
    }
  }
  double of(const std::string& module, double fallback) const {
    for (const Entry& e : entries_) {
      try {
        if (e.pattern.fits(module)) return e.value;
      } catch (const InputError& error) {
        config_.fail(key_, "has the pattern \"" + e.name + "\", which cannot be matched with " + module + ": " + error.what());
      }
    }
    return fallback;
  }

 private:
  struct Entry {
    std::string name;
    ModulePattern pattern;
    double value;
  };
  const ConfigReader& config_;
  const char* key_;
  std::vector<Entry> entries_;
};

void refuse_setting(const ConfigReader& config, std::string_view key) {
  config.fail(key,
              "is not supported; expected an adapter of A and B alone. Merge it into its base model with PEFT "
              "(merge_and_unload) and open the result");
}

bool is_nothing(const Json& value) {
  return value.is_null() || value == false || value == "none" || ((value.is_object() || value.is_array()) && value.empty());
}

AdapterOptions read_options(const ConfigReader& config, const Json& object) {
  if (const std::string type = config.string("peft_type"); type != "LORA")
    config.fail("peft_type", "is not supported; expected LORA");
  AdapterOptions o;
  o.rank = config.positive("r");
  if (o.rank > kLargestRank) config.fail("r", "is no rank; expected at most " + std::to_string(kLargestRank));
  o.alpha = config.number("lora_alpha");
  o.rslora = config.flag("use_rslora", {}, false);
  o.dropout = config.number("lora_dropout", {}, 0.0);
  if (!(o.dropout >= 0 && o.dropout < 1)) config.fail("lora_dropout", "is no share; expected a number from 0 to below 1");
  if (const Json& targets = object.value("target_modules", Json()); targets.is_array())
    o.targets = config.strings("target_modules");
  if (const Json& targets = object.value("target_parameters", Json()); targets.is_array())
    for (const std::string& target : config.strings("target_parameters")) o.targets.push_back(target);
  // Which modules there are is what the tensors say. Bases that an initialization changed are not those that are opened.
  if (const Json& init = object.value("init_lora_weights", Json());
      init.is_string() && init != "gaussian" && init != "eva" && init != "orthogonal")
    refuse_setting(config, "init_lora_weights");
  config.ignore({"target_modules",    "target_parameters", "exclude_modules", "layers_to_transform",     "layers_pattern",
                 "init_lora_weights", "eva_config",        "auto_mapping",    "base_model_name_or_path", "fan_in_fan_out",
                 "inference_mode",    "megatron_core",     "peft_version",    "qalora_group_size",       "rank_pattern",
                 "alpha_pattern",     "revision",          "task_type",       "ensure_weight_tying",     "bias"});
  if (!is_nothing(object.value("bias", Json()))) refuse_setting(config, "bias");
  for (const std::string& key : config.unread())
    if (!object.contains(key) || !is_nothing(object.at(key))) refuse_setting(config, key);
  return o;
}

// Before memory of that shape is taken: a rank is a number in a file.
void check_stored(const StoredTensor& t, const std::vector<int64_t>& shape) {
  if (t.shape != shape)
    throw FileError(*t.file, "tensor \"" + t.name + "\" is " + shape_text(t.shape) + " (header byte " +
                                 std::to_string(t.described_at) + "); expected " + shape_text(shape) +
                                 " from the base model and the adapter's rank.\n  Does the adapter belong to this model?");
  if (t.dtype != DType::f32 && t.dtype != DType::f16 && t.dtype != DType::bf16)
    throw FileError(
        *t.file, "tensor \"" + t.name + "\" has element type " + std::string(name_of(t.dtype)) + "; expected f32, f16 or bf16");
}

void check_finite(const StoredTensor& t) {
  for (size_t i = 0; i < static_cast<size_t>(t.shape[0] * t.shape[1]); ++i)
    if (const float x = element_at(t.dtype, t.data, i); !std::isfinite(x))
      throw FileError(*t.file, "tensor \"" + t.name + "\" (header byte " + std::to_string(t.described_at) + "): number " +
                                   std::to_string(i) + " is " + std::to_string(x) +
                                   "; expected finite numbers. Is the file damaged?");
}

// A as f32, its columns in our order.
void copy_a(const StoredTensor& t, const std::vector<int64_t>& file_column, float* to) {
  const auto rows = static_cast<size_t>(t.shape[0]), width = static_cast<size_t>(t.shape[1]);
  for (size_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < width; ++i)
      *to++ = element_at(t.dtype, t.data, row * width + (file_column.empty() ? i : static_cast<size_t>(file_column[i])));
}

// A of a module in the file's order of columns.
std::vector<float> file_a(const Module& m) {
  std::vector<float> a(m.A(), m.A() + m.a_count());
  if (m.file_column.empty()) return a;
  for (int64_t row = 0; row < m.experts * m.rank; ++row)
    for (int64_t i = 0; i < m.in; ++i)
      a[static_cast<size_t>(row * m.in + m.file_column[static_cast<size_t>(i)])] = m.A()[row * m.in + i];
  return a;
}

// f(number in memory, number in the file) for each of B's.
template <class F>
void each_of_b(const Module& m, F&& f) {
  size_t i = 0;
  for (int64_t expert = 0; expert < m.experts; ++expert)
    for (int64_t out = 0; out < m.out; ++out)
      for (int64_t rank = 0; rank < m.rank; ++rank) f(i++, place_in_file(m, expert, out, rank));
}

std::shared_ptr<Adapter> adapter_in(const OpenedModel& opened, const std::string& directory, size_t most_bytes) {
  const std::string config_path = directory + "/" + kConfig, weights_path = directory + "/" + kWeights;
  if (directory.ends_with(".gguf"))
    throw FileError(directory,
                    "is an adapter in a GGUF file, which is not read; expected the folder that it was converted from, with "
                    "adapter_config.json and adapter_model.safetensors");
  if (!is_folder(directory))
    throw FileError(directory, "is no folder; expected one with adapter_config.json and adapter_model.safetensors");
  if (!present(config_path))
    throw FileError(directory, std::string("holds no ") + kConfig +
                                   (present(directory + "/config.json") ? ", but a config.json: it is a model; give it as --model"
                                                                        : "; expected the folder of a LoRA adapter"));
  if (!present(weights_path))
    throw FileError(directory,
                    std::string("holds no ") + kWeights +
                        (present(directory + "/adapter_model.bin")
                             ? ", but an adapter_model.bin, which can run code when it is read. Save it again with PEFT "
                               "and safe_serialization"
                             : ""));
  const std::string text = read_file(config_path, size_t{16} << 20);
  const Json object = parse_json(text, config_path);
  const ConfigReader config(object, config_path);
  const AdapterOptions options = read_options(config, object);
  const Pattern ranks(config, object, text, "rank_pattern"), alphas(config, object, text, "alpha_pattern");
  const Checkpoint stored = open_safetensors(weights_path);

  std::vector<Module> all = modules_of(opened), chosen;
  for (Module& m : parameters_of(opened, options)) all.push_back(std::move(m));
  std::set<std::string, std::less<>> used;
  size_t bytes = 0;
  for (size_t index = 0; index < all.size(); ++index) {
    Module& m = all[index];
    const StoredTensor* const A = stored.find(m.tensor_name('A'));
    const StoredTensor* const B = stored.find(m.tensor_name('B'));
    if (A == nullptr && B == nullptr) continue;
    if (A == nullptr || B == nullptr)
      throw FileError(weights_path, "holds \"" + m.tensor_name(A == nullptr ? 'B' : 'A') + "\" without \"" +
                                        m.tensor_name(A == nullptr ? 'A' : 'B') + "\"; expected both. Is the file damaged?");
    const double rank = ranks.of(m.name, static_cast<double>(options.rank));
    if (rank > kLargestRank || rank != std::floor(rank)) config.fail("rank_pattern", "gives " + m.name + " no rank");
    check_stored(*A, {m.experts * static_cast<int64_t>(rank), m.in});
    check_stored(*B, {m.out, m.experts * static_cast<int64_t>(rank)});
    bytes += static_cast<size_t>(A->shape[0] * A->shape[1] + B->shape[0] * B->shape[1]) * sizeof(float);
    if (bytes > most_bytes)
      throw FileError(weights_path, "has more than " + bytes_text(static_cast<double>(most_bytes)) +
                                        " of numbers, counted as f32; expected at most what is left for adapters");
    check_finite(*A);
    check_finite(*B);
    set_size(m, static_cast<int64_t>(rank), alphas.of(m.name, options.alpha), options, index);
    copy_a(*A, m.file_column, m.values.data());
    each_of_b(
        m, [&, to = m.values.data() + m.a_count()](size_t i, size_t in_file) { to[i] = element_at(B->dtype, B->data, in_file); });
    used.insert({A->name, B->name});
    chosen.push_back(std::move(m));
  }
  for (const auto& [name, tensor] : stored.tensors())
    if (used.count(name) == 0)
      throw FileError(weights_path, "tensor \"" + name + "\" (header byte " + std::to_string(tensor.described_at) +
                                        ") belongs to no matrix of a block of " + opened.files.name +
                                        "; expected names such as \"" + modules_of(opened).front().tensor_name('A') +
                                        "\".\n  Does the adapter belong to this model?");
  if (!stored.unreadable().empty())
    throw FileError(weights_path, "tensor \"" + stored.unreadable().begin()->first + "\" has element type " +
                                      stored.unreadable().begin()->second.type + "; expected f32, f16 or bf16");
  // Lists of targets may name matrices of other models; PEFT passes over them.
  const bool partly = config.has("exclude_modules") || config.has("layers_to_transform");
  std::vector<Module> matrices = modules_of(opened);
  for (Module& m : parameters_of(opened, options)) matrices.push_back(std::move(m));
  for (const std::string& target : options.targets) {
    const auto names = [&](const Module& m) { return named_by(target, m); };
    if (!partly && target != kAllLinear && std::none_of(chosen.begin(), chosen.end(), names) &&
        std::any_of(matrices.begin(), matrices.end(), names))
      config.fail("target_modules", "names \"" + target + "\", for which " + kWeights + " holds no tensor. Is the file damaged?");
  }
  if (chosen.empty()) throw FileError(weights_path, "holds no tensor");
  return std::make_shared<Adapter>(options, std::move(chosen), directory);
}

}  // namespace

std::vector<std::string> adapter_files(const std::string& directory) {
  return {directory + "/" + kConfig, directory + "/" + kWeights};
}

std::shared_ptr<const Adapter> read_adapter(const OpenedModel& opened, const std::string& directory, size_t most_bytes) {
  return adapter_in(opened, directory, most_bytes);
}

void open_adapter(OpenedModel& opened, const std::string& directory) {
  attach_adapter(opened, adapter_in(opened, directory, SIZE_MAX));
}

void write_adapter(const Adapter& adapter, const std::string& directory, const std::string& base) {
  const AdapterOptions& o = adapter.options();
  std::vector<TensorToWrite> tensors;
  std::vector<std::vector<float>> stored;  // A and B in the file's order
  for (const Module& m : adapter.modules()) {
    stored.push_back(file_a(m));
    tensors.push_back({m.tensor_name('A'), DType::f32, {m.experts * m.rank, m.in}, stored.back().data()});
    std::vector<float>& b = stored.emplace_back(static_cast<size_t>(m.b_count()));
    each_of_b(m, [&](size_t i, size_t in_file) { b[in_file] = m.B()[i]; });
    tensors.push_back({m.tensor_name('B'), DType::f32, {m.out, m.experts * m.rank}, b.data()});
  }
  std::vector<std::string> modules, parameters;
  for (const Module& m : adapter.modules())
    if (m.of_parameter) {
      const std::string parameter = (m.name.find(".mlp.") == std::string::npos ? "" : "mlp.") + short_name(m);
      if (std::find(parameters.begin(), parameters.end(), parameter) == parameters.end()) parameters.push_back(parameter);
    }
  const bool all = std::find(o.targets.begin(), o.targets.end(), kAllLinear) != o.targets.end();
  for (const std::string& target : all ? last_names(adapter.modules()) : o.targets)
    if (std::any_of(adapter.modules().begin(), adapter.modules().end(),
                    [&](const Module& m) { return !m.of_parameter && named_by(target, m); }))
      modules.push_back(target);
  const bool whole = o.alpha == std::floor(o.alpha) && o.alpha < 0x1p53;
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", o.rank},
                       {"lora_alpha", whole ? Json(static_cast<int64_t>(o.alpha)) : Json(o.alpha)},
                       {"lora_dropout", o.dropout},
                       {"use_rslora", o.rslora},
                       {"target_modules", modules},
                       {"target_parameters", parameters.empty() ? Json(nullptr) : Json(parameters)},
                       {"fan_in_fan_out", adapter.modules().front().by_columns},
                       {"bias", "none"},
                       {"modules_to_save", nullptr},
                       {"init_lora_weights", true},
                       {"inference_mode", true}};
  write_file_atomically(directory + "/" + kConfig, config.dump(2) + "\n");
  write_safetensors(directory + "/" + kWeights, tensors, {{"format", "pt"}});
}

}  // namespace vitrine
