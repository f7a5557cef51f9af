#include "inspect/info.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "inspect/step_json.h"
#include "kernels/table.h"
#include "model/abilities.h"
#include "model/packed_weights.h"
#include "runtime/engine.h"
#include "runtime/model_tokenizer.h"

namespace vitrine {
namespace {

constexpr int64_t kContextOfEndless = 2048;
constexpr double kMostBytes = 9e18;  // what an int64_t holds
constexpr int64_t kMostSize = INT32_MAX;

// Bytes of all weights if matrices were stored as one type, in blocks along their inputs; vectors are f32, and so are
// matrices that no whole number of blocks fits.
int64_t bytes_as(const Model& model, DType type) {
  int64_t bytes = 0;
  for (const TensorLine& line : model.tensors()) {
    if (line.layout.constant) continue;
    const bool matrix = line.weight != nullptr;
    const bool fits = matrix && line.in.size % static_cast<int64_t>(block_elements(type)) == 0;
    bytes +=
        line.out.size * static_cast<int64_t>(row_bytes(fits ? type : DType::f32, static_cast<size_t>(matrix ? line.in.size : 1)));
  }
  return bytes;
}

// Bytes of the cache of `batch` sequences of `positions`.
int64_t cache_bytes(const std::vector<CacheLayer>& layers, int64_t positions, int64_t batch) {
  const KvCache cache(layers, positions, std::min(positions, kPrefillChunk));
  const size_t bytes = cache.bytes_for(positions);
  if (static_cast<double>(bytes) * static_cast<double>(batch) > kMostBytes)
    throw UsageError("a cache of " + std::to_string(batch) + " sequences of " + std::to_string(positions) +
                     " positions has more bytes than a number can say; ask for a smaller context or batch");
  return static_cast<int64_t>(bytes) * batch;
}

void describe_tokenizer(const OpenedModel& opened, ModelInfo& info) {
  try {
    if (opened.gguf != nullptr) {
      if (has_vocabulary(*opened.gguf))
        info.tokenizer = tokenizer_from_gguf(*opened.gguf)->description();
      else
        info.no_tokenizer = opened.gguf->path() + ": has no tokenizer in its metadata";
    } else {
      info.tokenizer = load_tokenizer(opened.files.directory)->description();
    }
  } catch (const InputError& error) {  // a model runs on ids without one
    info.no_tokenizer = error.what();
  }
}

// In which type products are computed, in words (docs/numerics.md).
std::string numerics_text(const std::set<DType>& matrices, const Numerics& numerics) {
  std::string text;
  const KernelTable& k = kernels();
  const bool bf16 = k.panel_bf16.outputs != 0, int8 = k.panel_int8.outputs != 0 && k.panel_int8_rows == SIZE_MAX;
  const size_t few = k.panel_int8.outputs != 0 && !numerics.exact ? k.panel_int8_rows : kFewRows;
  const auto has = [&](DType type) { return matrices.contains(type); };
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (numerics.f32) {
    add("stored weights are widened, every product is f32");
  } else {
    if (has(DType::f32) || matrices.empty()) add("f32 weights multiply in f32");
    if (has(DType::bf16) || has(DType::f16))
      add(bf16 ? "16-bit weights multiply f32 activations up to 8 rows and bf16 ones above, with f32 sums"
               : "16-bit weights are widened and multiply in f32");
    if (std::any_of(matrices.begin(), matrices.end(), is_block))
      add(std::string("quantized weights multiply activations in int8 blocks of 32") +
          (int8 ? "" : " up to " + std::to_string(few) + " rows and in " + (bf16 ? "bf16" : "f32") + " above") +
          ", with f32 sums");
  }
  add(numerics.exact ? "one kernel class whatever the number of rows (exact)" : "norms, softmax, angles and sums are f32");
  return text;
}

// The metadata of a GGUF file lie in front of its tensors.
int64_t header_bytes(const OpenedModel& opened) {
  if (opened.gguf == nullptr || opened.checkpoint.files().empty() || opened.checkpoint.tensors().empty()) return 0;
  const std::span<const std::byte> first = opened.checkpoint.files().front().bytes();
  size_t begin = first.size();
  for (const auto& [name, tensor] : opened.checkpoint.tensors())
    if (tensor.data >= first.data() && tensor.data < first.data() + first.size())
      begin = std::min(begin, static_cast<size_t>(tensor.data - first.data()));
  return static_cast<int64_t>(begin);
}

// Which types each part of the model is stored in.
void describe_weights(Model& model, bool has_weights, ModelInfo& info) {
  if (!has_weights) return;
  info.groups = {{"embedding", {}}, {"attention", {}}, {"convolution", {}}, {"recurrence", {}},
                 {"MLP", {}},       {"head", {}},      {"norms", {}}};
  int64_t bits = 0;
  for (const TensorLine& line : model.tensors()) {
    if (line.weight != nullptr && line.weight->absent) continue;
    const std::string_view name = line.ours;
    const auto within = [&](std::string_view part) { return name.find(part) != name.npos; };
    const size_t group = name.starts_with("W_E") || name == "W_pos" ? 0
                         : within(".attn.")                         ? 1
                         : within(".conv.")                         ? 2
                         : within(".delta.") || within(".ssm.")     ? 3
                         : within(".mlp.") || within("per_layer")   ? 4
                         : name == "W_U"                            ? 5
                                                                    : 6;
    const auto bytes = static_cast<int64_t>(
        line.weight != nullptr ? line.weight->bytes() : row_bytes(line.vector->dtype, static_cast<size_t>(line.vector->size)));
    info.groups[group].second[std::string(name_of(line.weight != nullptr ? line.weight->dtype : line.vector->dtype))] += bytes;
    bits += 8 * bytes;
  }
  std::erase_if(info.groups, [](const auto& group) { return group.second.empty(); });
  info.bits_per_weight = static_cast<double>(bits) / static_cast<double>(info.parameters);
}

}  // namespace

ModelInfo model_info(std::string_view name, const InfoOptions& options) {
  OpenedModel opened;
  opened.files = resolve_model(name);
  opened.files.window = options.window;
  opened.files.may_lack_head = true;
  const bool has_weights = !opened.files.weights.empty();
  if (has_weights)
    opened = open_headers(std::move(opened.files));
  else
    opened.model = model_from_config(opened.files);
  Model& model = *opened.model;

  ModelInfo info;
  info.name = opened.files.name;
  info.path = opened.gguf != nullptr ? opened.gguf->path() : opened.files.directory;
  info.kind = opened.gguf != nullptr ? "gguf" : has_weights ? "huggingface" : "config";
  info.shape = model.shape();
  info.has_head = !model.head().weight->absent;
  info.packing = packing_method(opened.files);
  info.parameters = parameter_count(model);
  info.embedding_parameters = info.shape.vocab_size * info.shape.d_model;
  for (const auto& [key, tensor] : opened.checkpoint.tensors())
    info.stored_bytes[std::string(name_of(tensor.dtype))] += static_cast<int64_t>(tensor.bytes);
  describe_weights(model, has_weights, info);
  info.f32_bytes = bytes_as(model, DType::f32);
  info.bf16_bytes = bytes_as(model, DType::bf16);
  info.q8_0_bytes = bytes_as(model, DType::q8_0);
  info.q4_0_bytes = bytes_as(model, DType::q4_0);

  const int64_t longest = info.shape.context_length;
  if (options.context < 0 || options.batch < 1 || options.context > kMostSize || options.batch > kMostSize)
    throw UsageError("a context of " + std::to_string(options.context) + " and a batch of " + std::to_string(options.batch) +
                     " are no sizes; expected whole numbers of at least 1");
  if (longest > 0 && options.context > longest)
    throw UsageError("a context of " + std::to_string(options.context) + " is longer than that of " + info.name + " (" +
                     std::to_string(longest) + " positions)");
  info.context = options.context > 0 ? options.context : longest > 0 ? longest : kContextOfEndless;
  info.batch = options.batch;
  info.causal = is_causal(model);
  const CacheTypes decoding = cache_types_for(opened, options.numerics);
  const CacheTypes types = {options.cache_keys.value_or(decoding.keys), options.cache_values.value_or(decoding.values)};
  std::vector<CacheLayer> layers = model.cache_layers(types);
  info.cache_bytes = cache_bytes(layers, info.context, info.batch);
  for (CacheLayer& layer : layers) {
    info.windows.push_back(layer.window);
    if (layer.head_dim > 0) layer.window = kNoWindow;  // a convolution has its taps
  }
  for (int64_t layer = 0; layer < info.shape.n_layers; ++layer)
    info.chunked = info.chunked || model.layer(layer).attention.chunked;
  info.cache_bytes_full = cache_bytes(layers, info.context, info.batch);
  info.bytes_per_position = static_cast<int64_t>(KvCache(layers, 1, 1).bytes_per_position());

  info.hooks = model.hook_names();
  info.tensors = file_tensors(model, opened.gguf != nullptr);
  describe_tokenizer(opened, info);
  RunSizes sizes = {.context = info.context,
                    .batch = info.batch,
                    .cache_types = types,
                    .cache_bytes = info.cache_bytes,
                    .header_bytes = header_bytes(opened),
                    .pieces = info.tokenizer.empty() ? 0 : info.shape.vocab_size};
  for (const auto& [type, bytes] : info.stored_bytes) sizes.weights_bytes += bytes;
  if (!has_weights) sizes.weights_bytes = info.bf16_bytes;
  info.run = run_memory(model, sizes, options.numerics);
  if (options.step) {
    if (longest > 0 && options.step->position + options.step->rows > longest)
      throw UsageError("a step of " + std::to_string(options.step->rows) + " tokens at position " +
                       std::to_string(options.step->position) + " ends beyond the " + std::to_string(longest) + " positions of " +
                       info.name);
    StepSize step = *options.step;
    step.types = types;
    info.step = step_json(model, step);
  }
  info.chat_template = chat_template_of(opened).has_value();
  std::set<DType> matrices;
  for (const auto& [key, tensor] : opened.checkpoint.tensors())
    if (tensor.shape.size() > 1) matrices.insert(tensor.dtype);
  info.kernels = kernels().name;
  info.compute = options.numerics.f32 ? "f32" : "auto";
  info.numerics = numerics_text(matrices, options.numerics);
  return info;
}

std::vector<std::string> hook_patterns(const std::vector<std::string>& names) {
  constexpr std::string_view kBlocks = "blocks.";
  std::vector<std::string> patterns;
  std::set<std::string> seen;
  for (std::string name : names) {
    if (name.starts_with(kBlocks)) name = "blocks.*" + name.substr(name.find('.', kBlocks.size()));
    if (seen.insert(name).second) patterns.push_back(std::move(name));
  }
  return patterns;
}

static Json run_json(const RunMemory& run) {
  return {{"bytes", run.bytes()}, {"weights", run.weights}, {"cache", run.cache}, {"working", run.working}};
}

Json to_json(const ModelInfo& info) {
  const ModelShape& s = info.shape;
  Json windows = Json::array(), tensors = Json::array();
  for (const int64_t window : info.windows) windows.push_back(window == kNoWindow ? Json(nullptr) : Json(window));
  for (const FileTensor& tensor : info.tensors) tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  Json groups = Json::object();
  for (const auto& [group, types] : info.groups) groups[group] = types;
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json json = {{"model", info.name},
               {"path", info.path},
               {"kind", info.kind},
               {"family", s.family},
               {"shape",
                {{"d_model", s.d_model},
                 {"n_layers", s.n_layers},
                 {"n_heads", s.n_heads},
                 {"n_kv_heads", s.n_kv_heads},
                 {"head_dim", s.head_dim},
                 {"d_ff", s.d_ff},
                 {"vocab_size", s.vocab_size},
                 {"context_length", s.context_length > 0 ? Json(s.context_length) : Json(nullptr)},
                 {"tied", s.tied},
                 {"has_head", info.has_head},
                 {"windows", std::move(windows)},
                 {"chunked", info.chunked}}},
               {"parameters", info.parameters},
               {"embedding_parameters", info.embedding_parameters},
               {"weight_bytes",
                {{"packing", text_or_null(info.packing)},
                 {"stored", info.stored_bytes.empty() ? Json(nullptr) : Json(info.stored_bytes)},
                 {"groups", info.groups.empty() ? Json(nullptr) : std::move(groups)},
                 {"bits_per_weight", info.groups.empty() ? Json(nullptr) : Json(info.bits_per_weight)},
                 {"f32", info.f32_bytes},
                 {"bf16", info.bf16_bytes},
                 {"q8_0", info.q8_0_bytes},
                 {"q4_0", info.q4_0_bytes}}},
               {"cache",
                {{"context", info.context},
                 {"batch", info.batch},
                 {"bytes", info.cache_bytes},
                 {"bytes_without_windows", info.cache_bytes_full},
                 {"bytes_per_position", info.bytes_per_position}}},
               {"run", run_json(info.run)},
               {"compute", {{"mode", info.compute}, {"kernels", info.kernels}, {"numerics", info.numerics}}},
               {"tokenizer", text_or_null(info.tokenizer)},
               {"no_tokenizer", text_or_null(info.no_tokenizer)},
               {"chat_template", info.chat_template},
               {"tensors", std::move(tensors)},
               {"hooks", info.hooks}};
  if (!info.step.is_null()) json["step"] = info.step;
  return json;
}

}  // namespace vitrine
