// POST /v1/inspect and the like, POST /v1/live/{request}: the requests of src/app/requests. GET /v1/live: what the page at
// /explain begins with.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/shell_word.h"
#include "picture/data/request.h"
#include "requests/request.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

using Tables = std::map<std::string, std::vector<Field>, std::less<>>;

const Tables& live_tables() {
  static const Tables tables = [] {
    const Field lora = Field::refused("lora", "the page shows the model without the adapters of requests", "[[]]");
    Tables made;
    for (const Request& request : requests()) made[request.name] = joined({{model_field(), lora}, request.fields});
    return made;
  }();
  return tables;
}

const Request& request_of(const std::string& path) {
  try {
    return find_request(path.substr(path.rfind('/') + 1));
  } catch (const InputError& error) {
    throw ApiError(404, "not_found", error.what());
  }
}

}  // namespace

const std::vector<Field>& endpoint_fields(std::string_view name) {
  static const Tables tables = [] {
    Tables made;
    for (const Request& request : requests()) {
      std::vector<Field> own = {model_field()};
      std::ranges::copy_if(request.fields, std::back_inserter(own), [](const Field& field) {
        return std::ranges::find(sampling_fields(), field.name, &Field::name) == sampling_fields().end();
      });
      made[request.name] = request.generates ? joined({own, sampling_fields(), foreign_fields()}) : joined({own, lora_fields()});
    }
    return made;
  }();
  return tables.find(name)->second;
}

const std::vector<Field>& live_fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> fields;
    OrderedJson uses;  // of each field: what it does, and the requests for which it does that
    for (const Request& request : requests())
      for (const Field& field : live_tables().at(request.name)) {
        if (field.use == Use::refused && field.name != "lora") continue;
        const auto listed = std::ranges::find(fields, field.name, &Field::name);
        if (listed == fields.end()) {
          fields.push_back(field);
          continue;
        }
        listed->types |= field.types;
        listed->low = std::min(listed->low, field.low);
        listed->high = std::max(listed->high, field.high);
      }
    for (const Request& request : requests())
      for (const Field& field : live_tables().at(request.name)) {
        if (field.use == Use::refused && field.name != "lora") continue;
        const auto listed = std::ranges::find(fields, field.name, &Field::name);
        const bool narrower = field.low > listed->low || field.high < listed->high;
        uses[field.name][field.about + (narrower ? " Here " + expected(field) + "." : "")].push_back(request.name);
      }
    for (Field& field : fields) {
      field.required = false;
      if (uses[field.name].front().size() == requests().size()) continue;
      field.about.clear();
      for (const auto& [about, takers] : uses[field.name].items()) {
        for (const OrderedJson& name : takers)
          field.about += (field.about.empty() ? "`" : name == takers.front() ? " `" : ", `") + name.get<std::string>() + "`";
        field.about += ": " + about;
      }
    }
    return fields;
  }();
  return table;
}

void inside_request(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Request& request = request_of(exchange->request().path);
  const bool live = exchange->request().path.starts_with("/v1/live/");
  Fields fields(exchange->request().body, live ? live_tables().at(request.name) : endpoint_fields(request.name),
                service.options().strict_fields);
  service.model_named(fields.text("model"));
  const ScaledAdapters adapters = live ? ScaledAdapters{} : read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  Host host = host_of(service, &run);
  if (!live) {
    host.generation = [&](const Fields& given, size_t prompt_tokens) {
      check_room(service, prompt_tokens, "prompt");
      return read_sampling(given, service, openai_sampling()).options;  // no drafts: edits act on rows that these would add
    };
    host.command = [&](const std::vector<std::string>& words, const std::vector<int32_t>& ids) {
      return command_line(service, words, adapters, ids);
    };
  }
  if (request.name == std::string_view("score"))
    if (const OrderedJson* several = fields.find("prompts")) check_streams(service, several->size(), "prompts");
  std::unique_lock training(service.training(), std::defer_lock);
  if (request.name == std::string_view("train")) {
    check_admin(exchange->request());
    if (!training.try_lock()) {
      ApiError busy(429, "rate_limit_exceeded", "a run of training is under way; there is memory for one at a time");
      busy.retry_after = 1;
      throw busy;
    }
    // The streams keep the other half.
    run([&](Engine& engine) { host.threads = std::max(1, engine.context().pool().threads() / 2); });
  }
  RequestAnswer answer = request.answer(host, fields);
  if (training.owns_lock()) training.unlock();  // a client that has its answer may ask for the next step
  if (answer.file.empty()) return exchange->respond({200, "application/json", std::move(answer).text(fields), {}});
  exchange->respond({200,
                     "application/octet-stream",
                     std::move(answer.file),
                     {{"Content-Disposition", std::string("attachment; filename=\"") + answer.file_name + "\""}}});
}

void live_model(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Engine& engine = service.engine();
  OrderedJson prompt = kUsualPrompt;
  if (!engine.has_tokenizer()) {
    prompt = OrderedJson::array();
    for (int64_t id = 0; id < std::min<int64_t>(8, engine.shape().vocab_size); ++id) prompt.push_back(id);
  }
  const std::string& options = service.options().command_options;
  exchange->respond(json_response({{"model", service.name()},
                                   {"prompt", std::move(prompt)},
                                   {"command_model", "--model " + shell_word(service.shown_path())},
                                   {"command_options", options}}));
}

}  // namespace vitrine::serve
