// GET /v1/live, POST /v1/live/{request}: what the page at /explain asks, as a live page asks its own engine (src/app/live).
#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shell_word.h"
#include "intervene/request.h"
#include "live/requests.h"
#include "picture/data/request.h"
#include "serve/endpoints.h"
#include "serve/hook_values.h"
#include "serve/inside.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

struct LiveField {
  std::string_view requests;  // which take it, between spaces; empty: all
  Field field;
};

const std::vector<LiveField>& all_live_fields() {
  static const std::vector<LiveField> table = [] {
    using namespace type;
    std::vector<LiveField> fields = {
        {"", {"model", text, "The model's name, an alias, or nothing."}},
        {"", Field::refused("lora", "the page shows the model without the adapters of requests", "[[]]")},
        {"",
         {"prompt", text | integers | object,
          "A text, or ids, which are used exactly as given; for `patch` also as in a recipe."}},
        {" document next generate inspect units ",
         {"add_special", boolean, "Add BOS and EOS to a text if the tokenizer does. Default: true."}},
        {" document ", {"pictures", texts, "`document`: only these pictures, without steps. Default: all, and the steps."}},
        {" document ", {"gradients", boolean, "`document`: include the pictures that run the model backward. Default: true."}},
        {" document units ", {"layer", integer, "`document`, `units`: the layer.", Use::honored, 0, 1e6}},
        {" document ", {"head", integer, "`document`: the head of pictures of one head.", Use::honored, 0, 1e6}},
        {" document units ", {"position", integer, "`document`, `units`: the position.", Use::honored, 0, 1e9}},
        {" next generate inspect ",
         {"edits", type::list, "Changes to the model, in the format of the list interventions in docs/intervene.md."}},
        {" next generate ", {"seed", integer, "`generate`: random seed. Default: 0.", Use::honored, 0, 9e15}},
        {" generate ", {"max_tokens", integer, "`generate`: maximum new tokens. Default: 16.", Use::honored, 1, 4096}},
        {" inspect ", {"hooks", texts, "`inspect`: names of intermediates, as in /v1/inspect."}},
        {" units ", {"units", integer, "`units`: number of the most active hidden units. Default: 8.", Use::honored, 1, 64}},
        {" patch ", {"corrupt", text | integers | object, "`patch`: a second prompt, for patch, path and values from it."}},
        {" patch ", {"run", text, "`patch`: which prompt is changed: clean or corrupt."}},
        {" patch ", {"metric", text | object, "`patch`: the metric of a run."}},
        {" patch ", {"interventions", type::list | object, "`patch`: a list of changes, applied in this order."}},
        {" patch ", {"patch", text | object, "`patch`: a grid of runs, each with one value of the other prompt's."}},
        {" patch ", {"ablate", text | object, "`patch`: a grid of runs, each with one part set to zero or its mean."}},
        {" patch ", {"path", object, "`patch`: a grid of senders, along the direct paths to the receivers."}},
        {" patch ", {"all_positions", boolean, "`patch`: predictions after every token. Default: false."}},
        {" train ", {"target", text, "`train`: what should follow the prompt."}},
        {" train ", {"rate", number, "`train`: the learning rate. Default: 0.003.", Use::honored, 0, 1e6}},
        {" next units patch train ",
         {"top", integer, "Number of most likely tokens. Default: 20 for `next`, 5 for `units`, otherwise 10.", Use::honored, 1,
          1e6}},
    };
    for (const Field& field : sampling_number_fields()) fields.push_back({" next generate ", field});
    return fields;
  }();
  return table;
}

constexpr std::string_view kLiveRequests[] = {"document", "next", "generate", "inspect", "units", "patch", "train"};

// The fields of one request. Errors: ApiError 404 for one that is not known.
const std::vector<Field>& fields_of_live(const std::string& request) {
  static const std::map<std::string, std::vector<Field>, std::less<>> tables = [] {
    std::map<std::string, std::vector<Field>, std::less<>> made;
    for (const std::string_view name : kLiveRequests)
      for (const LiveField& one : all_live_fields())
        if (one.requests.empty() || one.requests.find(" " + std::string(name) + " ") != std::string_view::npos)
          made[std::string(name)].push_back(one.field);
    return made;
  }();
  const auto found = tables.find(request);
  if (found == tables.end()) {
    std::string known;
    for (const std::string_view name : kLiveRequests) known += (known.empty() ? "" : ", ") + std::string(name);
    throw ApiError(404, "not_found", "there is no request \"" + request + "\" of a live page; there are " + known);
  }
  return found->second;
}

// What would read a file of this machine, or mean two heads, is refused before anything runs.
void check_changes(const Fields& fields, const std::string& request, int64_t n_heads) {
  OrderedJson json = OrderedJson::object();
  if (request == "patch")
    for (const char* key : kRecipeKeys)
      if (const OrderedJson* value = fields.find(key)) json[key] = *value;
  const bool takes_edits = request == "next" || request == "generate" || request == "inspect";
  const OrderedJson* edits = takes_edits ? fields.find("edits") : nullptr;
  if (edits != nullptr && !edits->empty()) {
    refuse_head_numbers(*edits, n_heads);
    check_recipe(recipe_of_edits(*edits, {0}));
  }
  if (json.empty()) return;
  refuse_head_numbers(json, n_heads);
  check_recipe(recipe_of_request(json));
}

}  // namespace

const std::vector<Field>& live_fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> list;
    for (const LiveField& one : all_live_fields()) list.push_back(one.field);
    return list;
  }();
  return table;
}

void live(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const std::string& path = exchange->request().path;
  const std::string request = path.substr(path.rfind('/') + 1);
  const std::string& body = exchange->request().body;
  Fields fields(body, fields_of_live(request), service.options().strict_fields);
  for (const Field& field : fields_of_live(request))  // live_answer reads them
    if (field.use == Use::honored) fields.find(field.name);
  service.model_named(fields.text("model"));
  check_changes(fields, request, service.engine().shape().n_heads);
  InsideRun run(service, exchange, {});
  LiveModel model{.engine = service.engine(),
                  .name = service.engine().name(),
                  .run = [&run](const std::function<void(Engine&)>& work) { run(work); },
                  .gone = &run.gone()};
  std::unique_lock training(service.training(), std::defer_lock);
  if (request == "train") {
    if (!training.try_lock()) {
      ApiError busy(429, "rate_limit_exceeded", "a step of training is under way; there is memory for one at a time");
      busy.retry_after = 1;
      throw busy;
    }
    // The streams keep the other half.
    run([&](Engine& engine) { model.threads = std::max(1, engine.context().pool().threads() / 2); });
  }
  std::string answer = live_answer(model, request, body);
  if (!fields.ignored().empty()) {
    answer.pop_back();
    answer += ",\"ignored_fields\":" + json_text(fields.ignored()) + "}";
  }
  exchange->respond({200, "application/json", std::move(answer), {}});
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
                                   {"command_model", "--model " + shell_word(engine.name())},
                                   {"command_options", options}}));
}

}  // namespace vitrine::serve
