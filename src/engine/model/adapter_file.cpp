// Adapters in the files of PEFT: adapter_config.json and adapter_model.safetensors.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "model/adapter_gguf.h"
#include "model/adapter_modules.h"
#include "model/adapter_whole.h"
#include "model/expert_modules.h"
#include "model/export.h"
#include "model/layer_name.h"
#include "model/module_pattern.h"

namespace vitrine {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
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
              "is not supported. Merge it into its base model with PEFT "
              "(merge_and_unload) and open the result");
}

bool is_nothing(const Json& value) {
  return value.is_null() || value == false || value == "none" || ((value.is_object() || value.is_array()) && value.empty());
}

AdapterOptions read_options(const ConfigReader& config, const Json& object) {
  if (const std::string type = config.string("peft_type"); type != "LORA")
    config.fail("peft_type",
                "is not supported; expected LORA. Merge the adapter into its base model with PEFT (merge_and_unload) and "
                "open the result");
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
    config.fail(
        "init_lora_weights",
        "is not supported: that initialization changes the base model, and the adapter stands beside the changed one. Save it "
        "as a plain LoRA (PEFT's save_pretrained with path_initial_model_for_weight_conversion), or merge it with PEFT "
        "(merge_and_unload) and open the result");
  o.dora = config.flag("use_dora", {}, false);
  o.tied = config.flag("ensure_weight_tying", {}, false);
  if (const Json& bias = object.value("bias", Json()); bias == "all" || bias == "lora_only")
    o.bias = bias == "all" ? AdapterOptions::Bias::all : AdapterOptions::Bias::of_targets;
  else if (!is_nothing(bias))
    config.fail("bias", "is not supported; expected none, all or lora_only");
  if (const Json& saved = object.value("modules_to_save", Json()); saved.is_array()) o.saved = config.strings("modules_to_save");
  config.ignore({"lora_bias",
                 "modules_to_save",
                 "trainable_token_indices",
                 "target_modules",
                 "target_parameters",
                 "exclude_modules",
                 "layers_to_transform",
                 "layers_pattern",
                 "init_lora_weights",
                 "eva_config",
                 "auto_mapping",
                 "base_model_name_or_path",
                 "fan_in_fan_out",
                 "inference_mode",
                 "megatron_core",
                 "peft_version",
                 "qalora_group_size",
                 "rank_pattern",
                 "alpha_pattern",
                 "revision",
                 "task_type",
                 "ensure_weight_tying",
                 "bias"});
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
  size_t count = 1;
  for (const int64_t n : t.shape) count *= static_cast<size_t>(n);
  for (size_t i = 0; i < count; ++i)
    if (const float x = element_at(t.dtype, t.data, i); !std::isfinite(x))
      throw FileError(*t.file, "tensor \"" + t.name + "\" (header byte " + std::to_string(t.described_at) + "): number " +
                                   std::to_string(i) + " is " + std::to_string(x) +
                                   "; expected finite numbers. Is the file damaged?");
}

bool are_transposed(const StoredTensor& a, const StoredTensor& b) {
  if (a.shape.size() != 2 || b.shape != std::vector<int64_t>{a.shape[1], a.shape[0]}) return false;
  const auto rows = static_cast<size_t>(a.shape[0]), columns = static_cast<size_t>(a.shape[1]);
  for (size_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < columns; ++i)
      if (element_at(a.dtype, a.data, row * columns + i) != element_at(b.dtype, b.data, i * rows + row)) return false;
  return true;
}

// Whether the tensors of the two have the same numbers.
bool are_equal(const StoredTensor& a, const FileTensor& b) {
  const auto rows = static_cast<size_t>(b.rows()), width = static_cast<size_t>(b.width());
  std::vector<float> row(width);
  for (size_t r = 0; r < rows; ++r) {
    read_rows(b, static_cast<int64_t>(r), 1, row.data());
    for (size_t i = 0; i < width; ++i)
      if (element_at(a.dtype, a.data, r * width + i) != row[i]) return false;
  }
  return true;
}

// The shapes of what becomes A and B.
std::vector<int64_t> shape_of_a(const Module& m, int64_t rank) {
  return m.exchanged ? std::vector<int64_t>{m.in, m.experts * rank} : std::vector<int64_t>{m.experts * rank, m.in};
}
std::vector<int64_t> shape_of_b(const Module& m, int64_t rank) {
  return m.exchanged ? std::vector<int64_t>{m.experts * rank, m.out} : std::vector<int64_t>{m.out, m.experts * rank};
}

// Where row `row` (expert · rank + which) and column i of A lie in the file, and those of B.
size_t place_of_a(const Module& m, size_t row, size_t i) {
  const size_t column = m.file_column.empty() ? i : static_cast<size_t>(m.file_column[i]);
  const auto rank = static_cast<size_t>(m.rank), experts = static_cast<size_t>(m.experts);
  if (m.exchanged) return (column * rank + row % rank) * experts + row / rank;  // experts of a rank side by side
  return row * static_cast<size_t>(m.in) + column;
}
size_t place_of_b(const Module& m, int64_t expert, int64_t out, int64_t rank) {
  return m.exchanged ? static_cast<size_t>((expert * m.rank + rank) * m.out + out) : place_in_file(m, expert, out, rank);
}

// A as f32, its columns in our order.
void copy_a(const StoredTensor& t, const Module& m, float* to) {
  for (size_t row = 0; row < static_cast<size_t>(m.experts * m.rank); ++row)
    for (size_t i = 0; i < static_cast<size_t>(m.in); ++i) *to++ = element_at(t.dtype, t.data, place_of_a(m, row, i));
}

// A of a module in the file's order of columns.
std::vector<float> file_a(const Module& m) {
  std::vector<float> a(static_cast<size_t>(m.a_count()));
  const float* from = m.A();
  for (size_t row = 0; row < static_cast<size_t>(m.experts * m.rank); ++row)
    for (size_t i = 0; i < static_cast<size_t>(m.in); ++i) a[place_of_a(m, row, i)] = *from++;
  return a;
}

// f(number in memory, number in the file) for each of B's.
template <class F>
void each_of_b(const Module& m, F&& f) {
  size_t i = 0;
  for (int64_t expert = 0; expert < m.experts; ++expert)
    for (int64_t out = 0; out < m.out; ++out)
      for (int64_t rank = 0; rank < m.rank; ++rank) f(i++, place_of_b(m, expert, out, rank));
}

constexpr std::string_view kAdapterPrefix = "base_model.model.";
constexpr std::string_view kTokenRows = ".token_adapter.trainable_tokens_delta";

// The name in the model's file of a tensor that the adapter's file has whole.
std::string whole_name(std::string name) {
  if (name.starts_with(kAdapterPrefix)) name = name.substr(kAdapterPrefix.size());
  for (const std::string_view part : {".base_layer", ".modules_to_save"})
    if (const size_t at = name.rfind(part); at != std::string::npos) name.erase(at, part.size());
  return name;
}

// Whether the file has something of a module besides the model's own numbers, or trained tokens of it.
bool file_changes(const Checkpoint& stored, const std::string& module) {
  const std::string before = std::string(kAdapterPrefix) + module + ".";
  return std::any_of(stored.tensors().begin(), stored.tensors().end(), [&](const auto& entry) {
    const std::string& name = entry.first;
    return name.starts_with(before) && !name.ends_with(kTokenRows) && !name.ends_with(".base_layer.weight");
  });
}
bool file_has_tokens(const Checkpoint& stored, const std::string& module) {
  return stored.find(std::string(kAdapterPrefix) + module + std::string(kTokenRows)) != nullptr;
}

// Whether the adapter changes the embedding or the head of a tied model alone. Tokens of the embedding are the head's too,
// whatever ensure_weight_tying says, and those of the head its own.
bool file_parts_embedding(const OpenedModel& opened, const AdapterOptions& options, const Checkpoint& stored) {
  if (!opened.model->shape().tied) return false;
  const EmbeddingNames names = embedding_names(*opened.model);
  if (file_has_tokens(stored, names.head)) return true;
  return !options.tied && (file_changes(stored, names.embedding) || file_changes(stored, names.head));
}

// The adapter's files, checked so far as they do not depend on the model.
struct AdapterFiles {
  explicit AdapterFiles(const std::string& directory);
  std::string config_path, weights_path, text;
  Json object;
  AdapterOptions options;
  Checkpoint stored{""};
};

// Takes the tensors of an adapter out of its file.
class AdapterReader {
 public:
  AdapterReader(const OpenedModel& opened, const AdapterFiles& files, size_t most_bytes)
      : opened_(opened),
        files_(files),
        stored_(files.stored),
        options_(files.options),
        config_(files.object, files.config_path),
        most_bytes_(most_bytes) {}

  Adapter::Parts read();

 private:
  void modules();
  void tokens();
  void add_tokens(const StoredTensor& t, const std::string& module, const std::vector<int64_t>& ids, bool in_both);
  void biases_of_b();
  void wholes();
  void refuse_rest() const;
  void add(int64_t numbers) {
    bytes_ += static_cast<size_t>(numbers) * sizeof(float);
    if (bytes_ > most_bytes_)
      throw FileError(files_.weights_path, "has more than " + bytes_text(static_cast<double>(most_bytes_)) +
                                               " of numbers, counted as f32; expected at most what is left for adapters");
  }
  // Embedding and head change as one.
  bool stays_tied() const { return opened_.model->shape().tied && options_.tied; }
  // The head's A and B beside such an embedding: the embedding's once more.
  bool is_tied_copy(const Module& m) const { return stays_tied() && m.outside && !m.lookup; }
  void check_tied_copy(const StoredTensor& A, const StoredTensor& B) const;
  [[noreturn]] void refuse_tied_copy(const std::string& name) const;

  const OpenedModel& opened_;
  const AdapterFiles& files_;
  const Checkpoint& stored_;
  const AdapterOptions& options_;
  const ConfigReader config_;
  const size_t most_bytes_;
  size_t bytes_ = 0;
  std::set<std::string, std::less<>> used_;
  Adapter::Parts parts_;
};

AdapterFiles::AdapterFiles(const std::string& directory) {
  config_path = directory + "/" + kConfig;
  weights_path = directory + "/" + kWeights;
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
  text = read_file(config_path, size_t{16} << 20);
  object = parse_json(text, config_path);
  options = read_options(ConfigReader(object, config_path), object);
  stored = open_safetensors(weights_path);
}

void AdapterReader::refuse_tied_copy(const std::string& name) const {
  const EmbeddingNames names = embedding_names(*opened_.model);
  config_.fail("ensure_weight_tying", "makes " + names.head + " and " + names.embedding + " one, and in " + kWeights + " \"" +
                                          name + "\" is not what " + names.embedding +
                                          " has; expected both with the same numbers. Set it to false if they are two");
}

// Of the head: the embedding's, transposed and exchanged.
void AdapterReader::check_tied_copy(const StoredTensor& A, const StoredTensor& B) const {
  const std::string before = std::string(kAdapterPrefix) + embedding_names(*opened_.model).embedding + ".lora_embedding_";
  for (const auto& [of_head, of_embedding] : {std::pair{&A, stored_.find(before + "B")}, {&B, stored_.find(before + "A")}})
    if (of_embedding == nullptr || !are_transposed(*of_head, *of_embedding)) refuse_tied_copy(of_head->name);
}

void AdapterReader::modules() {
  const Pattern ranks(config_, files_.object, files_.text, "rank_pattern"),
      alphas(config_, files_.object, files_.text, "alpha_pattern");
  std::vector<Module> all = modules_of(opened_);
  for (Module& m : parameters_of(opened_, options_)) all.push_back(std::move(m));
  for (size_t index = 0; index < all.size(); ++index) {
    Module& m = all[index];
    // Mixtral's published files call a layer's mixture otherwise than transformers 5 does.
    if (const size_t at = m.name.find(".block_sparse_moe."); at != std::string::npos) {
      Module other = m;
      other.name.replace(at, std::string_view(".block_sparse_moe.").size(), ".mlp.");
      if (stored_.find(other.tensor_name('A')) != nullptr) m = std::move(other);
    }
    const StoredTensor* const A = stored_.find(m.tensor_name('A'));
    const StoredTensor* const B = stored_.find(m.tensor_name('B'));
    if (A == nullptr && B == nullptr) continue;
    if (A == nullptr || B == nullptr)
      throw FileError(files_.weights_path, "holds \"" + m.tensor_name(A == nullptr ? 'B' : 'A') + "\" without \"" +
                                               m.tensor_name(A == nullptr ? 'A' : 'B') +
                                               "\"; expected both. Is the file damaged?");
    used_.insert({A->name, B->name});
    if (is_tied_copy(m)) {
      check_tied_copy(*A, *B);
      continue;
    }
    const double rank = ranks.of(m.name, static_cast<double>(options_.rank));
    if (rank > kLargestRank || rank != std::floor(rank)) config_.fail("rank_pattern", "gives " + m.name + " no rank");
    const auto n = static_cast<int64_t>(rank);
    const StoredTensor &a = *(m.exchanged ? B : A), &b = *(m.exchanged ? A : B);
    check_stored(a, shape_of_a(m, n));
    check_stored(b, shape_of_b(m, n));
    add(A->shape[0] * A->shape[1] + B->shape[0] * B->shape[1]);
    check_finite(*A);
    check_finite(*B);
    set_size(m, n, alphas.of(m.name, options_.alpha), options_, index);
    copy_a(a, m, m.values.data());
    each_of_b(
        m, [&, to = m.values.data() + m.a_count()](size_t i, size_t in_file) { to[i] = element_at(b.dtype, b.data, in_file); });
    m.also_head = m.lookup && m.ours == "W_E" && stays_tied();
    if (options_.dora) {
      if (m.outside || m.of_parameter)
        config_.fail("use_dora", "is not supported for " + m.name + "; expected matrices of blocks alone");
      const StoredTensor* const magnitudes = stored_.find(m.tensor_name('M'));
      if (magnitudes == nullptr)
        throw FileError(files_.weights_path, "lacks \"" + m.tensor_name('M') + "\", and use_dora is true in " + kConfig);
      check_stored(*magnitudes, {m.out});
      check_finite(*magnitudes);
      add(m.out);
      used_.insert(magnitudes->name);
      m.dora = true;
      m.values.resize(static_cast<size_t>(m.a_count() + m.b_count() + m.out));
      for (size_t i = 0; i < static_cast<size_t>(m.out); ++i)
        m.values[static_cast<size_t>(m.a_count() + m.b_count()) + i] =
            element_at(magnitudes->dtype, magnitudes->data, m.file_row.empty() ? i : static_cast<size_t>(m.file_row[i]));
    }
    parts_.modules.push_back(std::move(m));
  }
}

void AdapterReader::tokens() {
  const Json& given = files_.object.value("trainable_token_indices", Json());
  const EmbeddingNames names = embedding_names(*opened_.model);
  const bool one = opened_.model->shape().tied || opened_.files.untied, of_head = file_has_tokens(stored_, names.head);
  for (const std::string& module : {names.embedding, names.head}) {
    const StoredTensor* const t = stored_.find(std::string(kAdapterPrefix) + module + std::string(kTokenRows));
    if (t == nullptr) continue;
    Json rows = given;
    if (given.is_object()) {
      rows = Json();
      for (const auto& [name, ids] : given.items())
        if (module.ends_with(name)) rows = ids;
    }
    if (!rows.is_array() || !std::all_of(rows.begin(), rows.end(), [](const Json& id) { return id.is_number_integer(); }))
      config_.fail("trainable_token_indices",
                   "lists no tokens of " + module + ", and " + kWeights + " holds \"" + t->name + "\"");
    const auto ids = rows.get<std::vector<int64_t>>();
    used_.insert(t->name);
    const bool in_both = one && !of_head;
    if (in_both && file_changes(stored_, names.head))
      config_.fail("trainable_token_indices", "lists tokens of " + module + ", which are those of " + names.head + " too, and " +
                                                  kWeights + " changes " + names.head +
                                                  " another way as well; both together are not supported");
    const std::vector<Module> all = modules_of(opened_);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Module& m) { return m.name == module; });
    check_stored(*t, {std::ssize(ids), found == all.end() ? 0 : found->in});
    check_finite(*t);
    if (ids.empty()) continue;
    // What another adapter has parted is two matrices, with the same rows.
    const bool twice = in_both && !opened_.model->shape().tied;
    add_tokens(*t, module, ids, in_both && !twice);
    if (twice) add_tokens(*t, names.head, ids, false);
  }
}

void AdapterReader::add_tokens(const StoredTensor& t, const std::string& module, const std::vector<int64_t>& ids, bool in_both) {
  Adapter::Tokens tokens = [&] {
    try {
      return tokens_of(opened_, module, ids, in_both);
    } catch (const InputError& error) {
      throw FileError(files_.config_path, error.what());
    }
  }();
  add(t.shape[0] * t.shape[1]);
  const auto width = static_cast<size_t>(t.shape[1]);
  for (size_t from = 0; from < ids.size(); ++from) {
    const std::vector<int64_t>& sorted = tokens.part.rows;
    const auto to = static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), ids[from]) - sorted.begin());
    for (size_t i = 0; i < width; ++i) tokens.values[to * width + i] = element_at(t.dtype, t.data, from * width + i);
  }
  parts_.tokens.push_back(std::move(tokens));
}

// PEFT's lora_bias: B has a bias, which its scale multiplies. It is one with the bias of the adapted matrix.
void AdapterReader::biases_of_b() {
  for (const Module& m : parts_.modules) {
    const StoredTensor* const t = stored_.find(std::string(kAdapterPrefix) + m.name + ".lora_B.bias");
    if (t == nullptr) continue;
    check_stored(*t, {m.out});
    check_finite(*t);
    used_.insert(t->name);
    add(m.out);
    std::vector<float> values(static_cast<size_t>(m.out));
    for (size_t i = 0; i < values.size(); ++i) values[i] = element_at(t->dtype, t->data, i);
    std::optional<Adapter::Whole> bias;
    try {
      bias = whole_of(opened_, m.name + ".bias");
    } catch (const InputError& error) {
      throw FileError(files_.weights_path, error.what());
    }
    if (!bias) {
      if (std::all_of(values.begin(), values.end(), [](float b) { return b == 0; })) continue;
      config_.fail("lora_bias", "gives " + m.name + " a bias, which is not supported: the model's matrix has none");
    }
    bias->name = std::string(kAdapterPrefix) + m.name + ".base_layer.bias";
    bias->values.resize(values.size());
    read_rows(bias->tensor, 0, bias->tensor.rows(), bias->values.data());
    for (size_t i = 0; i < values.size(); ++i)
      bias->values[i] += static_cast<float>(m.parts.front().scale * static_cast<double>(values[i]));
    parts_.wholes.push_back(std::move(*bias));
  }
}

void AdapterReader::wholes() {
  const StoredTensor* tied_copy = nullptr;  // a tied head's numbers
  for (const auto& [name, tensor] : stored_.tensors()) {
    if (used_.count(name) != 0) continue;
    std::optional<Adapter::Whole> whole;
    try {
      if (name.starts_with(kAdapterPrefix)) whole = whole_of(opened_, whole_name(name));
    } catch (const InputError& error) {
      throw FileError(files_.weights_path, error.what());
    }
    if (!whole) continue;
    if (const std::vector<int64_t>& ours = whole->tensor.shape; tensor.shape.size() == 2 && ours.size() == 2 &&
                                                                tensor.shape[1] == ours[1] && tensor.shape[0] != ours[0] &&
                                                                split_layer(whole->tensor.parts.front()->ours).first < 0)
      throw FileError(files_.weights_path, "tensor \"" + name + "\" has " + std::to_string(tensor.shape[0]) + " rows, and " +
                                               opened_.files.name + " has " + std::to_string(ours[0]) +
                                               ": the vocabulary was resized. Resize that of the base model first, as "
                                               "transformers' resize_token_embeddings does");
    check_stored(tensor, whole->tensor.shape);
    check_finite(tensor);
    used_.insert(name);
    if (name.ends_with(".base_layer.weight")) {  // of an adapted embedding PEFT writes the base's, too
      if (are_equal(tensor, whole->tensor)) continue;
      throw FileError(files_.weights_path, "tensor \"" + name + "\" differs from that of " + opened_.files.name +
                                               "; expected the same numbers. Does the adapter belong to this model?");
    }
    const bool as_one = stays_tied() && whole->tensor.parts.front()->ours == "W_E";
    if (as_one && !whole->lookup) {
      tied_copy = &tensor;
      continue;
    }
    add(whole->count());
    whole->name = name;
    whole->values.resize(static_cast<size_t>(whole->count()));
    for (size_t i = 0; i < whole->values.size(); ++i) whole->values[i] = element_at(tensor.dtype, tensor.data, i);
    whole->product = whole->product || as_one;
    parts_.wholes.push_back(std::move(*whole));
  }
  if (tied_copy != nullptr) {
    const auto has = [&](size_t i, float value) { return element_at(tied_copy->dtype, tied_copy->data, i) == value; };
    const auto same = [&](const Adapter::Whole& w) {
      if (!w.lookup || !w.product) return false;
      for (size_t i = 0; i < w.values.size(); ++i)
        if (!has(i, w.values[i])) return false;
      return true;
    };
    if (std::none_of(parts_.wholes.begin(), parts_.wholes.end(), same)) refuse_tied_copy(tied_copy->name);
  }
  // In the model's order, as a fresh adapter has them: sums over them are the same to the bit.
  const auto place = [](const Adapter::Whole& w) { return w.tensor.parts.front(); };
  std::sort(parts_.wholes.begin(), parts_.wholes.end(),
            [&](const Adapter::Whole& a, const Adapter::Whole& b) { return place(a) < place(b); });
}

void AdapterReader::refuse_rest() const {
  for (const auto& [name, tensor] : stored_.tensors())
    if (used_.count(name) == 0)
      throw FileError(files_.weights_path, "tensor \"" + name + "\" (header byte " + std::to_string(tensor.described_at) +
                                               ") belongs to no matrix of a block of " + opened_.files.name +
                                               ", nor to another of its tensors; expected names such as \"" +
                                               modules_of(opened_).front().tensor_name('A') +
                                               "\".\n  Does the adapter belong to this model?");
  if (!stored_.unreadable().empty())
    throw FileError(files_.weights_path, "tensor \"" + stored_.unreadable().begin()->first + "\" has element type " +
                                             stored_.unreadable().begin()->second.type + "; expected f32, f16 or bf16");
}

Adapter::Parts AdapterReader::read() {
  modules();
  tokens();
  biases_of_b();
  wholes();
  refuse_rest();
  if (stays_tied()) parts_.tied_head = embedding_names(*opened_.model).head;
  // Lists of targets may name matrices of other models; PEFT ignores them.
  const bool partly = config_.has("exclude_modules") || config_.has("layers_to_transform");
  std::vector<Module> matrices = modules_of(opened_);
  for (Module& m : parameters_of(opened_, options_)) matrices.push_back(std::move(m));
  // A module that learns whole is not adapted, too.
  const auto is_whole = [&](const Module& m) {
    return std::any_of(parts_.wholes.begin(), parts_.wholes.end(), [&](const Adapter::Whole& w) {
      return w.matrix() && w.tensor.parts.front()->weight == m.weights.front() && (m.lookup ? w.lookup : w.product);
    });
  };
  for (const std::string& target : options_.targets) {
    const auto names = [&](const Module& m) { return named_by(target, m); };
    if (!partly && target != kAllLinear && std::none_of(parts_.modules.begin(), parts_.modules.end(), names) &&
        std::any_of(matrices.begin(), matrices.end(),
                    [&](const Module& m) { return names(m) && !is_tied_copy(m) && !is_whole(m); }))
      config_.fail("target_modules",
                   "names \"" + target + "\", for which " + kWeights + " holds no tensor. Is the file damaged?");
  }
  if (parts_.modules.empty() && parts_.wholes.empty() && parts_.tokens.empty())
    throw FileError(files_.weights_path, "holds no tensor");
  return std::move(parts_);
}

}  // namespace

namespace {

bool is_gguf(const std::string& path) { return path.ends_with(".gguf"); }

std::shared_ptr<Adapter> adapter_in(const OpenedModel& opened, const std::string& path, size_t most_bytes) {
  try {
    if (is_gguf(path)) {
      AdapterOptions options;
      Adapter::Parts parts = read_gguf_adapter(opened, path, most_bytes, options);
      return std::make_shared<Adapter>(options, std::move(parts), path);
    }
    refuse_held_factors(opened);
    const AdapterFiles files(path);
    AdapterOptions options = files.options;
    if (files.object.value("lora_bias", Json()) == true && options.bias == AdapterOptions::Bias::none)
      options.bias = AdapterOptions::Bias::of_targets;  // what they have become
    return std::make_shared<Adapter>(options, AdapterReader(opened, files, most_bytes).read(), path);
  } catch (const FileError&) {
    throw;
  } catch (const InputError& error) {  // of parts that do not go together
    throw FileError(path, error.what());
  }
}

// Of the embedding and the head that a tied model has in one.
bool changes_one_of_two(const OpenedModel& opened, const std::string& path) {
  if (is_gguf(path)) return gguf_adapter_parts_embedding(opened, path);
  const AdapterFiles files(path);
  return file_parts_embedding(opened, files.options, files.stored);
}

}  // namespace

std::vector<std::string> adapter_files(const std::string& directory) {
  if (is_gguf(directory)) return {directory};
  return {directory + "/" + kConfig, directory + "/" + kWeights};
}

std::shared_ptr<const Adapter> read_adapter(const OpenedModel& opened, const std::string& directory, size_t most_bytes) {
  std::shared_ptr<const Adapter> adapter = adapter_in(opened, directory, most_bytes);
  if (const std::string why = adapter->only_attached(); !why.empty()) throw FileError(directory, why);
  return adapter;
}

void open_adapter(OpenedModel& opened, const std::string& directory) {
  if (changes_one_of_two(opened, directory)) untie(opened);
  attach_adapter(opened, adapter_in(opened, directory, SIZE_MAX));
}

void continue_adapter(OpenedModel& opened, const std::string& directory) {
  open_adapter(opened, directory);
  try {
    check_modules_of_peft(opened, *opened.adapter);
    check_dropout(opened.adapter->options(), opened.adapter->modules());
  } catch (const InputError& error) {
    throw FileError(directory, error.what());
  }
}

namespace {

// The tensors of the adapter's file, and the numbers of those that lie otherwise in it.
class AdapterTensors {
 public:
  explicit AdapterTensors(const Adapter& adapter) {
    const std::string& head = adapter.tied_head();
    for (const Module& m : adapter.modules()) {
      add(m);
      if (!m.also_head) continue;
      Module once_more = m;  // as PEFT has it
      once_more.name = head;
      once_more.lookup = once_more.exchanged = false;
      add(once_more);
    }
    for (const Adapter::Whole& whole : adapter.wholes()) {
      list.push_back({whole.name, DType::f32, whole.tensor.shape, whole.data});
      if (whole.lookup && whole.product)
        list.push_back({std::string(kAdapterPrefix) + head + ".weight", DType::f32, whole.tensor.shape, whole.data});
    }
    for (const Adapter::Tokens& rows : adapter.tokens())
      list.push_back({rows.tensor_name(), DType::f32, {rows.part.A.out, rows.part.A.in}, rows.part.A.data});
  }
  std::vector<TensorToWrite> list;

 private:
  void add(const Module& m) {
    const float* const a = numbers_.emplace_back(file_a(m)).data();
    std::vector<float>& b = numbers_.emplace_back(static_cast<size_t>(m.b_count()));
    each_of_b(m, [&](size_t i, size_t in_file) { b[in_file] = m.B()[i]; });
    list.push_back({m.tensor_name(m.exchanged ? 'B' : 'A'), DType::f32, shape_of_a(m, m.rank), a});
    list.push_back({m.tensor_name(m.exchanged ? 'A' : 'B'), DType::f32, shape_of_b(m, m.rank), b.data()});
    if (!m.dora) return;
    std::vector<float>& magnitudes = numbers_.emplace_back(static_cast<size_t>(m.out));
    for (size_t i = 0; i < magnitudes.size(); ++i)
      magnitudes[m.file_row.empty() ? i : static_cast<size_t>(m.file_row[i])] = m.magnitudes()[i];
    list.push_back({m.tensor_name('M'), DType::f32, {m.out}, magnitudes.data()});
  }
  std::vector<std::vector<float>> numbers_;
};

// PEFT's target_modules and target_parameters: the adapter's own words for its modules where it has them, and names in full.
struct Targets {
  explicit Targets(const Adapter& adapter) {
    const std::vector<std::string>& own = adapter.options().targets;
    const bool all = std::find(own.begin(), own.end(), kAllLinear) != own.end();
    const std::vector<std::string> words = all ? last_names(adapter.modules()) : own;
    for (const Module& m : adapter.modules()) {
      if (m.of_parameter) {
        add(parameters, (m.name.find(".mlp.") == std::string::npos ? "" : "mlp.") + short_name(m));
        continue;
      }
      bool named = false;
      for (const std::string& word : words) {
        const bool parameter = word.ends_with(kWeight) && named_by(word.substr(0, word.size() - kWeight.size()), m);
        if (!parameter && !named_by(word, m)) continue;
        add(parameter ? parameters : modules, word);
        named = true;
      }
      if (!named) add(modules, m.name);
    }
  }
  std::vector<std::string> modules, parameters;

 private:
  static constexpr std::string_view kWeight = ".weight";  // of a router
  static void add(std::vector<std::string>& to, const std::string& name) {
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  }
};

Json number_in_json(double x) {
  const bool whole = x == std::floor(x) && std::abs(x) < 0x1p53;
  return whole ? Json(static_cast<int64_t>(x)) : Json(x);
}

// rank_pattern or alpha_pattern: what is not the usual number.
template <class F>
Json pattern_of(const Adapter& adapter, double usual, F&& number) {
  std::map<std::string, double> numbers;
  for (const Module& m : adapter.modules()) numbers[m.name] = number(m);
  Json pattern = Json::object();
  for (const auto& [key, value] : pattern_keys(numbers, usual)) pattern[key] = number_in_json(value);
  return pattern;
}

}  // namespace

void write_adapter(const Adapter& adapter, const std::string& directory, const std::string& base) {
  const AdapterOptions& o = adapter.options();
  const AdapterTensors tensors(adapter);
  const Targets targets(adapter);
  Json tokens = o.tokens.empty() ? Json() : Json(o.tokens);
  if (!adapter.tokens().empty()) tokens = Json::object();
  for (const Adapter::Tokens& rows : adapter.tokens()) tokens[rows.name.substr(rows.name.rfind('.') + 1)] = rows.part.rows;
  const bool learns_score = std::find(o.saved.begin(), o.saved.end(), "score") != o.saved.end();  // of a reward model
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", learns_score ? "SEQ_CLS" : "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", o.rank},
                       {"lora_alpha", number_in_json(o.alpha)},
                       {"rank_pattern", pattern_of(adapter, static_cast<double>(o.rank),
                                                   [](const Module& m) { return static_cast<double>(m.rank); })},
                       {"alpha_pattern", pattern_of(adapter, o.alpha, [](const Module& m) { return m.alpha; })},
                       {"lora_dropout", o.dropout},
                       {"use_rslora", o.rslora},
                       {"target_modules", targets.modules},
                       {"target_parameters", targets.parameters.empty() ? Json(nullptr) : Json(targets.parameters)},
                       {"fan_in_fan_out", !adapter.modules().empty() && adapter.modules().front().by_columns},
                       {"bias", o.bias == AdapterOptions::Bias::none  ? "none"
                                : o.bias == AdapterOptions::Bias::all ? "all"
                                                                      : "lora_only"},
                       {"modules_to_save", o.saved.empty() ? Json() : Json(o.saved)},
                       {"trainable_token_indices", tokens},
                       {"use_dora", o.dora},
                       {"ensure_weight_tying", o.tied},
                       {"init_lora_weights", true},
                       {"inference_mode", true}};
  write_file_atomically(directory + "/" + kConfig, config.dump(2) + "\n");
  write_safetensors(directory + "/" + kWeights, tensors.list, {{"format", "pt"}});
}

}  // namespace vitrine
