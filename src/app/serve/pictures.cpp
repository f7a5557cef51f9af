// GET /v1/pictures, POST /v1/pictures/{name}: the pictures of the walk-through, as data or SVG. GET /v1/model: what the model is.
#include "base/error.h"
#include "inspect/info.h"
#include "picture/data/document.h"
#include "picture/svg/drawings.h"
#include "requests/shared.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"

namespace vitrine::serve {

namespace {

// `text` with the model's name where its path stands.
std::string with_name(std::string text, const std::string& path, const std::string& name) {
  for (size_t at = 0; !path.empty() && (at = text.find(path, at)) != std::string::npos; at += name.size())
    text.replace(at, path.size(), name);
  return text;
}

}  // namespace

void model_facts(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  InfoOptions options;
  OrderedJson json = OrderedJson::parse(to_json(model_info(service.engine().name(), options)).dump());
  if (!service.options().show_paths) {
    const std::string path = json["path"];
    for (const char* const where : {"tokenizer", "no_tokenizer"})
      if (json.contains(where) && json[where].is_string()) json[where] = with_name(json[where], path, service.name());
    json["model"] = json["path"] = service.name();
  }
  const ModelShape shape = service.engine().shape();
  json["n_layers"] = shape.n_layers;
  json["n_heads"] = shape.n_heads;
  json["command"] = command_line(service, {"info", "--json"}, {});
  exchange->respond(json_response(json));
}

void list_pictures(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  OrderedJson list = OrderedJson::array();
  for (const PictureInfo& info : pictures())
    list.push_back({{"name", info.name}, {"title", info.title}, {"summary", info.summary}});
  exchange->respond(json_response({{"pictures", std::move(list)}}));
}

const std::vector<Field>& picture_fields() {
  static const std::vector<Field> table = joined(
      {{model_field()},
       prompt_fields(),
       lora_fields(),
       {{"layer", type::integer, "For pictures of one layer: the layer. Default: the picture's choice.", Use::honored, 0, 1e6},
        {"head", type::integer, "For pictures of one head: the head.", Use::honored, 0, 1e6},
        {"position", type::integer, "For pictures of one token: the position.", Use::honored, 0, 1e9},
        {"format", type::text, "data (the default): the picture's numbers; svg: the drawing."}}});
  return table;
}

void picture(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const std::string& path = exchange->request().path;
  const std::string name = path.substr(path.rfind('/') + 1);
  Fields fields(exchange->request().body, picture_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  PicturePrompt prompt = read_prompt(host_of(service), fields);
  const std::string format = fields.text("format").value_or("data");
  if (format != "data" && format != "svg") throw invalid("format", "\"format\" is \"" + format + "\"; expected data or svg");
  PictureOptions options;
  options.layer = fields.integer("layer");
  options.head = fields.integer("head");
  options.position = fields.integer("position");
  try {
    check_picture_name(name);
  } catch (const InputError& error) {
    throw ApiError(404, "not_found", error.what());
  }
  if (prompt.text) prompt.pieces = service.engine().tokenizer().encode_with_offsets(*prompt.text, prompt.special);
  if (!read_adapters(fields, service).empty())  // some pictures read the matrices, which adapters of requests leave as they are
    throw invalid("lora",
                  "pictures show the model without the adapters of requests; send \"lora\": [] for that, or start the server "
                  "with --adapter",
                  "unsupported_parameter");
  InsideRun run(service, exchange, {});
  PictureJson document;
  run([&](Engine& engine) { document = picture_document(engine, prompt, name, options); });
  if (format == "svg") return exchange->respond({200, "image/svg+xml", picture_svg(document, name, options), {}});
  exchange->respond(json_response(std::move(document), fields));
}

}  // namespace vitrine::serve
