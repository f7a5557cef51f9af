// vitrine info: what a model is, from its files' headers or a config.json alone.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "kernels/table.h"

namespace vitrine::cli {
namespace {

struct InfoOptions {
  ModelOptions model;
  int64_t context = 0, batch = 1;
  bool hooks = false, tensors = false;
};

/// Bytes of all weights when matrices are stored as `type` and vectors as f32. Rows that no block fits stay f32.
double stored_bytes(const std::vector<FileTensor>& tensors, DType type) {
  double bytes = 0;
  for (const FileTensor& tensor : tensors) {
    double count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<double>(size);
    const bool fits = tensor.shape.size() == 2 && (!is_block(type) || tensor.shape[1] % static_cast<int64_t>(kBlock) == 0);
    const DType used = fits ? type : DType::f32;
    bytes += count * static_cast<double>(row_bytes(used, kBlock)) / static_cast<double>(kBlock);
  }
  return bytes;
}

/// Bytes of keys and values of `positions` positions; a window layer keeps no more than its window.
double cache_bytes(const std::vector<CacheLayer>& layers, int64_t positions) {
  double bytes = 0;
  for (const CacheLayer& layer : layers) {
    const int64_t kept = layer.window == kNoWindow ? positions : std::min(positions, layer.window);
    bytes += static_cast<double>(kept) * static_cast<double>(layer.n_kv_heads * (layer.head_dim + layer.v_dim)) * sizeof(float);
  }
  return bytes;
}

/// "blocks.*.attn.hook_q" for each layer's, in order, once.
std::vector<std::string> hook_patterns(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  std::set<std::string> seen;
  for (std::string name : names) {
    if (name.starts_with("blocks.")) name = "blocks.*" + name.substr(name.find('.', 7));
    if (seen.insert(name).second) patterns.push_back(name);
  }
  return patterns;
}

void info(const InfoOptions& o) {
  const std::string name = model_or_shipped(o.model.model);
  const ModelFiles files = resolve_model(name);
  const bool has_weights = !files.weights.empty();
  OpenedModel opened;
  if (has_weights) {
    opened = open_model(name);
  } else {
    opened.files = files;
    opened.model = model_from_config(files);
  }
  Model& model = *opened.model;
  const ModelShape s = model.shape();
  const auto tensors = file_tensors(model, opened.gguf != nullptr);
  const auto layers = model.cache_layers();
  const int64_t parameters = parameter_count(model), embedding = s.vocab_size * s.d_model;
  const int64_t context = o.context > 0 ? o.context : s.context_length > 0 ? s.context_length : 2048;
  if (s.context_length > 0 && context > s.context_length)
    throw UsageError(fmt::format("--context: {} is longer than the model's context of {}.", context, s.context_length));
  const double cache = cache_bytes(layers, context) * static_cast<double>(o.batch);

  std::map<int64_t, int> windows;
  for (const CacheLayer& layer : layers) ++windows[layer.window];
  std::map<std::string, int64_t> by_type;
  for (const auto& [key, tensor] : opened.checkpoint.tensors())
    by_type[std::string(name_of(tensor.dtype))] += static_cast<int64_t>(tensor.bytes);
  const auto hooks = model.hook_names();

  if (o.model.json) {
    OrderedJson window_list = OrderedJson::array(), tensor_list = OrderedJson::array(), stored = nullptr;
    for (const CacheLayer& layer : layers)
      window_list.push_back(layer.window == kNoWindow ? OrderedJson(nullptr) : OrderedJson(layer.window));
    for (const FileTensor& tensor : tensors) tensor_list.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    if (has_weights) stored = OrderedJson(by_type);
    print_json(
        {{"model", files.name},
         {"family", s.family},
         {"shape",
          {{"d_model", s.d_model},
           {"n_layers", s.n_layers},
           {"n_heads", s.n_heads},
           {"n_kv_heads", s.n_kv_heads},
           {"head_dim", s.head_dim},
           {"d_ff", s.d_ff},
           {"vocab_size", s.vocab_size},
           {"context_length", s.context_length > 0 ? OrderedJson(s.context_length) : OrderedJson(nullptr)},
           {"tied", s.tied},
           {"windows", window_list}}},
         {"parameters", parameters},
         {"embedding_parameters", embedding},
         {"weight_bytes",
          {{"stored", stored},
           {"f32", stored_bytes(tensors, DType::f32)},
           {"bf16", stored_bytes(tensors, DType::bf16)},
           {"q8_0", stored_bytes(tensors, DType::q8_0)},
           {"q4_0", stored_bytes(tensors, DType::q4_0)}}},
         {"cache", {{"context", context}, {"batch", o.batch}, {"bytes", cache}, {"bytes_per_position", cache_bytes(layers, 1)}}},
         {"compute", {{"mode", o.model.compute}, {"exact", o.model.exact}, {"kernels", kernels().name}}},
         {"tensors", tensor_list},
         {"hooks", hooks}});
    return;
  }

  const auto line = [](const char* what, const std::string& value) { print("{}  {}\n", bold(pad_right(what, 12)), value); };
  line("model", files.name);
  line("family", s.family + (has_weights ? "" : " (configuration only, no weights)"));
  line("parameters", fmt::format("{} ({} in the embedding{})", grouped(parameters), grouped(embedding),
                                 s.tied ? ", which is also the head" : ""));
  line("shape", fmt::format("{} layers, width {}, {} query heads and {} key/value heads of {}, MLP {}, vocabulary {}", s.n_layers,
                            s.d_model, s.n_heads, s.n_kv_heads, s.head_dim, s.d_ff, s.vocab_size));
  std::string spans;
  for (const auto& [window, count] : windows)
    spans += fmt::format("{}{} layers see {}", spans.empty() ? "" : ", ", count,
                         window == kNoWindow ? std::string("everything before") : fmt::format("{} positions", window));
  line("context",
       (s.context_length > 0 ? fmt::format("{} positions", s.context_length) : std::string("any length")) + "; " + spans);
  std::string stored;
  for (const auto& [type, bytes] : by_type) stored += fmt::format("{} {} stored, ", type, bytes_text(static_cast<double>(bytes)));
  line("weights", fmt::format("{}as f32 {}, bf16 {}, q8_0 {}, q4_0 {}", stored, bytes_text(stored_bytes(tensors, DType::f32)),
                              bytes_text(stored_bytes(tensors, DType::bf16)), bytes_text(stored_bytes(tensors, DType::q8_0)),
                              bytes_text(stored_bytes(tensors, DType::q4_0))));
  line("cache",
       fmt::format("{} for {} sequence{} of {} positions (f32)", bytes_text(cache), o.batch, o.batch == 1 ? "" : "s", context));
  line("compute", fmt::format("{}{}, kernels {}", o.model.compute, o.model.exact ? ", exact" : "", kernels().name));
  line("hooks", fmt::format("{} names{}", hooks.size(), o.hooks ? ":" : "; --hooks lists them"));
  if (o.hooks)
    for (const std::string& pattern : hook_patterns(hooks)) print("  {}\n", pattern);
  if (o.tensors) {
    line("tensors", fmt::format("{} in the model's files:", tensors.size()));
    for (const FileTensor& tensor : tensors) print("  {} {}\n", tensor.name, shape_text(tensor.shape));
  }
}

}  // namespace

Action define_info(CLI::App& app) {
  auto o = std::make_shared<InfoOptions>();
  add_model_options(app, o->model);
  add_count(app, "--context", o->context, 1, int64_t{1} << 40, "Positions for the cache's size; default: the model's context");
  add_count(app, "--batch", o->batch, 1, int64_t{1} << 20, "Sequences for the cache's size (default 1)");
  app.add_flag("--hooks", o->hooks, "List the hook names, * for every layer");
  app.add_flag("--tensors", o->tensors, "List the tensors of the model's files");
  return [o] { info(*o); };
}

}  // namespace vitrine::cli
