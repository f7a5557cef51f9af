// vitrine info: what a model is, from its files' headers or a config.json alone.
#include "inspect/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"
#include "hub/headers.h"
#include "inspect/contents.h"

namespace vitrine::cli {
namespace {

struct InfoArguments {
  ModelOptions model;
  int64_t context = 0, batch = 1, rows = 1, position = 0;
  bool hooks = false, tensors = false, hub = false, ops = false, training = false;
};

constexpr int kName = 12;  // columns of a line's name

void line(const char* what, const std::string& value) {
  print("{}\n", wrapped(bold(pad_right(what, kName)) + "  " + value, terminal().columns, kName + 2));
}

std::string context_text(const ModelInfo& info) {
  const auto sees = [](int count) { return plural(int64_t{count}, "layer") + (count == 1 ? " sees" : " see"); };
  std::map<int64_t, int> layers;
  for (const int64_t window : info.windows) ++layers[window];
  std::string text = info.shape.context_length > 0 ? plural(info.shape.context_length, "position") : "any length";
  for (const auto& [window, count] : layers)
    text += window == kNoWindow
                ? fmt::format("; {} everything before{}", sees(count), info.causal ? "" : " and after")
                : fmt::format("; {} {}{}", sees(count), info.chunked ? "chunks of " : "", plural(window, "position"));
  return text;
}

std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string weights_text(const ModelInfo& info) {
  const auto size = size_text;
  return fmt::format("f32 {}, bf16 {}, q8_0 {}, q4_0 {}", size(info.f32_bytes), size(info.bf16_bytes), size(info.q8_0_bytes),
                     size(info.q4_0_bytes));
}

// "18.0 MiB, 16.00 bits each: embedding bf16; attention bf16; MLP bf16; norms bf16", the type with most bytes first.
std::string stored_text(const ModelInfo& info) {
  int64_t all = 0;
  std::string text;
  for (const auto& [group, types] : info.groups) {
    std::vector<std::pair<int64_t, std::string>> order;
    for (const auto& [type, bytes] : types) {
      order.emplace_back(-bytes, type);
      all += bytes;
    }
    std::sort(order.begin(), order.end());
    text += (text.empty() ? "" : "; ") + group;
    for (size_t i = 0; i < order.size(); ++i) text += (i == 0 ? " " : ", ") + order[i].second;
  }
  return fmt::format("{}, {:.2f} bits each: {}", bytes_text(static_cast<double>(all)), info.bits_per_weight, text);
}

// The cells of one op, without the number of its layer.
std::vector<std::string> op_cells(const Json& op) {
  std::string name = op.at("name"), outputs, spec;
  constexpr std::string_view kBlocks = "blocks.";
  if (name.starts_with(kBlocks)) name = name.substr(std::min(name.find('.', kBlocks.size()), name.size() - 1) + 1);
  if (!op.at("layer").is_null() && op.at("name") == fmt::format("blocks.{}", op.at("layer").get<int64_t>())) name.clear();
  for (const Json& output : op.at("outputs")) outputs += (outputs.empty() ? "" : " ") + output.at("shape").dump();
  if (op.at("spec").is_object())
    for (const auto& [key, value] : op.at("spec").items())
      if (!value.is_null() && value != false && value != 0)
        spec += (spec.empty() ? "" : ", ") + key + " " + (value.is_string() ? value.get<std::string>() : value.dump());
  const auto number = [&](const char* key) { return static_cast<double>(op.at(key).get<int64_t>()); };
  return {"  " + op.at("op").get<std::string>(),
          name,
          outputs,
          number("multiply_adds") > 0 ? fmt::format("{:.4g}", number("multiply_adds") / 1e6) : "",
          number("bytes_read") > 0 ? bytes_text(number("bytes_read")) : "",
          spec};
}

// Layers that have the same ops are listed once.
void print_ops(const Json& step) {
  line("step", fmt::format("{} at position {}: {:.6g} million multiply-adds, {} of weights read, activations {} at most{}",
                           plural(step.at("rows").get<int64_t>(), "token"), step.at("position").get<int64_t>(),
                           static_cast<double>(step.at("multiply_adds").get<int64_t>()) / 1e6,
                           size_text(step.at("bytes_read").get<int64_t>()), size_text(step.at("peak_bytes").get<int64_t>()),
                           step.at("kept_bytes") > 0
                               ? fmt::format(", {} kept for the gradients", size_text(step.at("kept_bytes").get<int64_t>()))
                               : ""));
  struct Group {  // a run of ops, and the layers that have it
    std::vector<std::vector<std::string>> ops;
    std::vector<int64_t> layers;
  };
  std::vector<Group> groups;
  int64_t before = -2;
  for (const Json& op : step.at("ops")) {
    const int64_t layer = op.at("layer").is_null() ? -1 : op.at("layer").get<int64_t>();
    if (layer != before) groups.push_back({{}, {layer}});
    groups.back().ops.push_back(op_cells(op));
    before = layer;
  }
  for (size_t i = 0; i < groups.size(); ++i)
    for (size_t j = i + 1; j < groups.size();)
      if (groups[j].layers[0] >= 0 && groups[j].ops == groups[i].ops) {
        groups[i].layers.push_back(groups[j].layers[0]);
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(j));
      } else {
        ++j;
      }
  TextTable table{{{"  op", true}, {"name", true}, {"result", true}, {"10^6 ma"}, {"weights"}, {"with", true}}, {}};
  for (const Group& group : groups) {
    table.before.resize(table.rows.size() + 1);
    if (group.layers[0] >= 0)
      table.before.back() = fmt::format("{} {}:", group.layers.size() == 1 ? "layer" : "layers", fmt::join(group.layers, ", "));
    table.rows.insert(table.rows.end(), group.ops.begin(), group.ops.end());
  }
  print_table(table);
}

void print_contents(const InfoArguments& o, const FileContents& contents) {
  if (o.model.json) {
    OrderedJson types = OrderedJson::object();
    for (const auto& [name, type] : contents.types)
      types[name] = {{"tensors", type.tensors}, {"elements", type.elements}, {"bytes", type.bytes}};
    return print_json({{"model", o.model.model},
                       {"path", contents.path},
                       {"family", contents.architecture},
                       {"runs", false},
                       {"why", contents.why},
                       {"types", types}});
  }
  line("model", o.model.model);
  line("at", contents.path);
  line("family", contents.architecture.empty() ? "not said" : contents.architecture);
  std::string types;
  for (const auto& [name, type] : contents.types)
    types += fmt::format("{}{} in {}", types.empty() ? "" : ", ", name, plural(type.tensors, "tensor"));
  line("weights",
       fmt::format("{}, {} numbers: {}", bytes_text(static_cast<double>(contents.bytes())), grouped(contents.elements()), types));
  line("runs", "no: " + contents.why);
}

/// The same of a model that is at the hub, from the headers of its files.
ModelInfo hub_info(const InfoArguments& o, const InfoOptions& options) {
  const HubSettings settings = hub_settings();
  const HeaderFolder headers(read_pull_name(o.model.model, "main"), settings);
  ModelInfo info = model_info(headers.path(), options);
  info.name = o.model.model;
  info.path = fmt::format("{}/{} at commit {}; {} of {} read", settings.endpoint,
                          o.model.model.substr(0, o.model.model.find(':')), headers.commit(),
                          bytes_text(static_cast<double>(headers.fetched())), bytes_text(static_cast<double>(headers.bytes())));
  if (!headers.left_out().empty()) info.no_tokenizer = headers.left_out() + ", not read from the hub";
  return info;
}

/// A model that is not run is refused all the same, but what its files hold is printed first.
ModelInfo local_info(const InfoArguments& o, const InfoOptions& options) {
  const std::string model = model_or_shipped(o.model.model);
  try {
    return model_info(model, options);
  } catch (const FileError&) {
    if (const auto contents = unread_contents(model)) print_contents(o, *contents);
    throw;
  }
}

void run_info(const InfoArguments& o) {
  InfoOptions options = {.context = o.context,
                         .batch = o.batch,
                         .window = o.model.window,
                         .numerics = {.f32 = o.model.compute == "f32", .exact = o.model.exact},
                         .cache_keys = cache_type(o.model.cache_keys, "--cache-type-k"),
                         .cache_values = cache_type(o.model.cache_values, "--cache-type-v")};
  if (o.ops)
    options.step = StepSize{.rows = o.rows,
                            .position = o.position,
                            .cached = !o.training,
                            .numerics = options.numerics,
                            .threads = usable_cores(),
                            .every_logit = o.training,
                            .tape = o.training};
  const ModelInfo info = o.hub ? hub_info(o, options) : local_info(o, options);
  if (o.model.json) {
    print_json(to_json(info));
    return;
  }
  const ModelShape& s = info.shape;
  line("model", o.model.model.empty() ? "tales9m, which ships with vitrine" : info.name);
  line("at", info.path);
  line("family", s.family + (info.kind == "config" ? " (configuration only, no weights)" : ""));
  line("parameters", fmt::format("{} ({} in the embedding{})", grouped(info.parameters), grouped(info.embedding_parameters),
                                 s.tied          ? ", which is also the head"
                                 : info.has_head ? ""
                                                 : "; the files hold no head: hidden states and embeddings, no predictions"));
  line("shape", fmt::format("{}, width {}, {} and {} of {}, {}, vocabulary {}", plural(s.n_layers, "layer"), s.d_model,
                            plural(s.n_heads, "query head"), plural(s.n_kv_heads, "key/value head"), s.head_dim,
                            s.d_ff > 0 ? fmt::format("MLP {}", s.d_ff) : "no MLP", s.vocab_size));
  line("context", context_text(info));
  if (!info.groups.empty()) line("weights", stored_text(info));
  if (!info.packing.empty()) line("packed", info.packing + ", unpacked into memory when the model opens");
  line(info.groups.empty() ? "weights" : "other types", weights_text(info));
  line("cache", fmt::format("{} for {} of {}", bytes_text(static_cast<double>(info.cache_bytes)), plural(info.batch, "sequence"),
                            plural(info.context, "position")));
  line("memory", fmt::format("{} for such a run: weights{} {}, cache {}, and {} for activations, vocabulary and the program",
                             size_text(info.run.bytes()), info.groups.empty() ? " as bf16" : "", size_text(info.run.weights),
                             size_text(info.run.cache), size_text(info.run.working)));
  line("tokenizer", info.tokenizer.empty() ? info.no_tokenizer : info.tokenizer);
  line("chat", info.chat_template ? "has a template" : "no template");
  line("compute", fmt::format("{}, kernels {}: {}", info.compute, info.kernels, info.numerics));
  line("hooks", fmt::format("{}{}", plural(info.hooks.size(), "name"), o.hooks ? ":" : "; --hooks lists them"));
  if (o.hooks)
    for (const std::string& pattern : hook_patterns(info.hooks)) print("  {}\n", pattern);
  if (!info.step.is_null()) print_ops(info.step);
  if (o.tensors) {
    line("tensors", fmt::format("{} in the model's files:", info.tensors.size()));
    for (const FileTensor& tensor : info.tensors) print("  {} {}\n", tensor.name, shape_text(tensor.shape));
  }
}

Action define_info(CLI::App& app) {
  auto o = std::make_shared<InfoArguments>();
  add_model_name(app, o->model.model);
  add_window(app, o->model.window);
  add_run_options(app, o->model);
  add_decoding_cache_types(app, o->model);
  add_count(app, "--context", o->context, 1, int64_t{1} << 40,
            "Compute the cache's size for this many positions; default: the model's context length");
  add_count(app, "--batch", o->batch, 1, int64_t{1} << 20, "Compute the cache's size for this many sequences (default 1)");
  app.add_flag("--hooks", o->hooks, "List the hook names, * for every layer");
  app.add_flag("--tensors", o->tensors, "List the tensors of the model's files");
  CLI::Option* const ops = app.add_flag(
      "--ops", o->ops,
      "List the ops of one step with their shapes, multiply-adds and bytes; nothing is run, and no weights are needed");
  add_count(app, "--rows", o->rows, 1, int64_t{1} << 20, "Tokens of that step (default 1)")->needs(ops);
  CLI::Option* const position =
      add_count(app, "--position", o->position, 0, int64_t{1} << 40, "Position of its first token, after a cache (default 0)")
          ->needs(ops);
  app.add_flag("--training", o->training, "The same for a training step, without a cache")->needs(ops)->excludes(position);
  app.add_flag(
         "--hub", o->hub,
         "Read a model of the Hugging Face hub, OWNER/NAME or OWNER/NAME:TYPE, without downloading it: only the headers of its "
         "files are fetched")
      ->needs("--model");
  return [o] { run_info(*o); };
}

}  // namespace

const Command info_command = {
    "info", "Show shapes, parameters, memory and hook names of a model",
    "A directory with only config.json, or a bare configuration file, is enough. GGUF files are described by their "
    "metadata.",
    "vitrine info\nvitrine info --hooks --context 512 --batch 4", define_info};

}  // namespace vitrine::cli
