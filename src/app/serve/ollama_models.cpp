// GET /api/version, /api/tags and /api/ps, POST /api/show: the served model as Ollama's clients ask for it. What would change a
// list of models is refused with what to do instead.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/utc_time.h"
#include "model/load.h"
#include "serve/endpoints.h"
#include "serve/model_lists.h"
#include "serve/ollama.h"
#include "serve/process.h"
#include "serve/tool_calls.h"
#include "vitrine/version.h"

namespace vitrine::serve {
namespace {

// Clients compare it with the version that brought a field: this one brought the last that is here, logprobs.
constexpr const char* kOllamaVersion = "0.12.11";

// "9.4M", "1.2B"
std::string short_count(int64_t n) {
  const auto x = static_cast<double>(n);
  if (n >= 1'000'000'000) return fmt::format("{:.1f}B", x / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f}M", x / 1e6);
  return fmt::format("{:.1f}K", x / 1e3);
}

// The type of the most bytes: "BF16", "Q4_K".
std::string main_type(const OpenedModel& opened) {
  std::map<DType, size_t> bytes;
  for (const auto& [name, tensor] : opened.checkpoint.tensors()) bytes[tensor.dtype] += tensor.bytes;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  std::string name(most == bytes.end() ? "" : name_of(most->first));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c); });
  return name;
}

OrderedJson details_json(const Service& service) {
  const OpenedModel& opened = service.engine().opened();
  const std::string& family = service.engine().shape().family;
  return {{"parent_model", ""},
          {"format", opened.gguf != nullptr ? "gguf" : "safetensors"},
          {"family", family},
          {"families", OrderedJson::array({family})},
          {"parameter_size", short_count(parameter_count(service.engine().model()))},
          {"quantization_level", main_type(opened)}};
}

std::string started_at(const Service& service) { return utc_time(std::chrono::system_clock::from_time_t(service.started())); }

// The model and its adapters, each with `more`.
void add_models(OrderedJson& list, const Service& service, const OrderedJson& more) {
  const std::string& print = service.fingerprint();
  const auto add = [&](const std::string& name) {
    OrderedJson json = {{"name", ollama_name(name)},
                        {"model", ollama_name(name)},
                        {"modified_at", started_at(service)},
                        {"size", service.engine().opened().checkpoint.bytes()},
                        {"digest", print.substr(print.rfind('-') + 1)},
                        {"details", details_json(service)}};
    json.update(more);
    list.push_back(std::move(json));
  };
  add(service.name());
  for (const AdapterList::Entry& entry : service.adapters().all()) add(entry.name);
}

// Of one that is not loaded: what its files hold is not known.
OrderedJson ollama_unloaded_json(const ServedModel& model) {
  return {{"name", ollama_name(model.name)},
          {"model", ollama_name(model.name)},
          {"modified_at", utc_time(std::chrono::system_clock::from_time_t(process_started()))},
          {"size", model.bytes},
          {"digest", ""},
          {"details",
           {{"parent_model", ""},
            {"format", model.path.ends_with(".gguf") ? "gguf" : "safetensors"},
            {"family", ""},
            {"families", OrderedJson::array()},
            {"parameter_size", ""},
            {"quantization_level", ""}}}};
}

std::string end_of(const ServedModel& model) {
  if (!model.seconds_left) return "9999-12-31T23:59:59Z";  // it stays
  return utc_time(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                                         std::chrono::duration<double>(*model.seconds_left)));
}

}  // namespace

OrderedJson ollama_tags_json(std::span<const ServedModel> models) {
  OrderedJson list = OrderedJson::array();
  for (const ServedModel& model : models) {
    if (model.service != nullptr)
      add_models(list, *model.service, OrderedJson::object());
    else
      list.push_back(ollama_unloaded_json(model));
  }
  return {{"models", std::move(list)}};
}

OrderedJson ollama_ps_json(std::span<const ServedModel> models) {
  OrderedJson list = OrderedJson::array();
  for (const ServedModel& model : models)
    if (model.service != nullptr)
      add_models(list, *model.service,
                 {{"expires_at", end_of(model)}, {"size_vram", 0}, {"context_length", model.service->scheduler().positions()}});
  return {{"models", std::move(list)}};
}

Field ollama_keep_alive_field() {
  return {"keep_alive", type::number | type::text,
          "Of several models (--models): seconds, or a time such as \"5m\", that this one stays loaded after the answer; "
          "0: it is unloaded then; negative: it stays. A single model always stays."};
}

int64_t ollama_nanoseconds(double milliseconds) { return std::max<int64_t>(1, std::llround(milliseconds * 1e6)); }

int64_t ollama_nanoseconds_since(std::chrono::steady_clock::time_point begin) {
  return ollama_nanoseconds(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
}

std::string ollama_name(const std::string& name) { return name + ":latest"; }

std::string without_ollama_tag(const std::string& name) {
  const std::string tag = ollama_name("");
  return name.size() > tag.size() && name.ends_with(tag) ? name.substr(0, name.size() - tag.size()) : name;
}

std::string ollama_model(const Service& service, const std::optional<std::string>& wanted) {
  std::string name = wanted.value_or("");
  if (std::string shorter = without_ollama_tag(name); shorter != name) {
    try {
      return service.model_named(name);
    } catch (const ApiError&) {
      name = std::move(shorter);
    }
  }
  try {
    return service.model_named(name);
  } catch (const ApiError& error) {
    throw ApiError(404, error.code, "model '" + name + "' not found: " + error.what(), error.param);
  }
}

bool ollama_thinks(const Service& service) {
  const std::string& format = service.options().reasoning_format;
  if (format == "none") return false;
  const std::string source = service.chat_template();
  return reasoning_syntax_named(format, source).value_or(nullptr) != nullptr || tool_form(source) == ToolForm::harmony;
}

void ollama_version(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response({{"version", kOllamaVersion}, {"vitrine", version()}}));
}

void ollama_tags(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(ollama_tags_json(only(service))));
}

void ollama_ps(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(ollama_ps_json(only(service))));
}

const std::vector<Field>& ollama_show_fields() {
  static const std::vector<Field> table = [] {
    Field old = model_field();
    old.name = "name", old.same_as = "model", old.about = "The same as `model`.";
    return std::vector<Field>{model_field(), old, Field::ignored("verbose", "Vocabulary and merges are not part of the answer.")};
  }();
  return table;
}

void ollama_show(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Fields fields(exchange->request().body, ollama_show_fields(), service.options().strict_fields);
  ollama_model(service, fields.text("model"));
  const ModelShape& shape = service.engine().shape();
  const std::string of = shape.family + ".";
  OrderedJson can = OrderedJson::array({"completion"});
  if (service.chat_reads_tools()) can.push_back("tools");
  if (ollama_thinks(service)) can.push_back("thinking");
  OrderedJson json = {{"template", service.chat_template()},
                      {"details", details_json(service)},
                      {"model_info",
                       {{"general.architecture", shape.family},
                        {"general.basename", service.name()},
                        {"general.parameter_count", parameter_count(service.engine().model())},
                        {of + "block_count", shape.n_layers},
                        {of + "context_length", shape.context_length},
                        {of + "embedding_length", shape.d_model},
                        {of + "feed_forward_length", shape.d_ff},
                        {of + "attention.head_count", shape.n_heads},
                        {of + "attention.head_count_kv", shape.n_kv_heads},
                        {of + "vocab_size", shape.vocab_size}}},
                      {"capabilities", std::move(can)},
                      {"modified_at", started_at(service)}};
  exchange->respond(json_response(std::move(json), fields));
}

void ollama_manage(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  static const std::map<std::string, const char*> instead = {
      {"push", "upload its files with the tools of the place where they shall go"},
      {"create", "`vitrine convert` writes and quantizes models, and `vitrine serve --model NAME --template FILE` serves one"},
      {"copy", "`vitrine serve --alias NAME` gives it another name"},
      {"delete", "end the server and delete the model's files"}};
  const std::string& path = exchange->request().path;
  throw unsupported("", path + " is not supported: this server serves one model, \"" + service.name() + "\". Instead, " +
                            instead.at(path.substr(path.rfind('/') + 1)));
}

}  // namespace vitrine::serve
