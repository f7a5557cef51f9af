#include "serve/model_routes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "serve/model_lists.h"
#include "serve/ollama.h"
#include "serve/process.h"
#include "serve/routes.h"

namespace vitrine::serve {
namespace {

/// The members of a body that say which model answers. Without a tree of the whole, which the endpoint builds.
class NamesInBody final : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit NamesInBody(bool name_is_model) : name_is_model_(name_is_model) {}
  std::string model;
  OrderedJson keep_alive;  // null: there is none

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return take(value); }
  bool number_unsigned(number_unsigned_t value) override { return take(value); }
  bool number_float(number_float_t value, const string_t&) override { return take(value); }
  bool string(string_t& value) override {
    if (depth_ == 1 && (key_ == "model" || (name_is_model_ && key_ == "name"))) model = value;
    return take(value);
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool take(const auto& value) {
    if (depth_ == 1 && key_ == "keep_alive") keep_alive = value;
    return true;
  }
  const bool name_is_model_;
  int depth_ = 0;
  std::string key_;
};

// Ollama's: seconds as a number, or a time: "5m", "1h30m", "500ms", "-1". Errors: ApiError 400.
std::optional<double> keep_seconds(const OrderedJson& keep_alive) {
  if (keep_alive.is_null()) return {};
  constexpr double kLongest = 1e9;  // 30 years: more overflows a clock
  if (keep_alive.is_number()) return std::min(keep_alive.get<double>(), kLongest);
  static constexpr std::array<std::pair<std::string_view, double>, 5> units = {
      {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"", 1}}};
  const auto text = keep_alive.get<std::string>();
  double seconds = 0;
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  bool good = !rest.empty();
  while (good && !rest.empty()) {
    double count = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count, std::chars_format::fixed);
    good = error == std::errc() && count >= 0;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    const std::string_view unit = rest.substr(0, std::min(rest.size(), rest.find_first_of("0123456789.")));
    const auto* found = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
    good = good && found != units.end();
    if (good) seconds += count * found->second;
    rest.remove_prefix(unit.size());
  }
  if (!good)
    throw invalid("keep_alive",
                  "\"keep_alive\" is \"" + text + "\"; expected seconds, or a time such as \"5m\", \"1h30m\" or \"-1\"");
  return negative ? -seconds : std::min(seconds, kLongest);
}

/// The exchange with the model that answers it, which so stays loaded until the last who has a part in the answer lets go of it.
class WithModel final : public http::Exchange {
 public:
  WithModel(std::shared_ptr<Service> service, std::shared_ptr<http::Exchange> exchange)
      : service_(std::move(service)), exchange_(std::move(exchange)) {}
  const http::Request& request() const override { return exchange_->request(); }
  void respond(http::Response response) override { exchange_->respond(std::move(response)); }
  std::shared_ptr<http::Stream> stream(http::Response head) override { return exchange_->stream(std::move(head)); }
  void on_gone(std::function<void()> gone) override { exchange_->on_gone(std::move(gone)); }
  http::WorkCharge charge(size_t bytes) override { return exchange_->charge(bytes); }
  void name_model(const std::string& name) override { exchange_->name_model(name); }
  void count_tokens(int64_t prompt, int64_t made) override { exchange_->count_tokens(prompt, made); }

 private:
  const std::shared_ptr<Service> service_;
  const std::shared_ptr<http::Exchange> exchange_;
};

constexpr std::string_view kModelPath = "/v1/models/";

/// True where the request was answered: it asks about all models.
bool answer_for_all(ServedModels& models, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  const std::string& path = request.path;
  if (request.method != "GET") return false;
  if (path == "/v1/models" || path == "/models") {
    exchange->respond(json_response(models_json(models.list())));
  } else if (path == "/api/tags") {
    exchange->respond(json_response(ollama_tags_json(models.list())));
  } else if (path == "/api/ps") {
    exchange->respond(json_response(ollama_ps_json(models.list())));
  } else if (path == "/health" || path == "/v1/health") {
    exchange->respond(json_response(health_json(models.list())));
  } else if (path == "/ready") {
    exchange->respond(json_response(ready_json(models.list())));
  } else if (path == "/metrics") {
    check_admin(request);
    if (!models.options().metrics) throw unsupported("", "this server was started without /metrics");
    exchange->respond(metrics_response(models.list(), process_started(), models.options().requests.get()));
  } else {
    return false;
  }
  return true;
}

void answer_by_name(ServedModels& models, const std::shared_ptr<http::Exchange>& exchange, ErrorForm form) {
  const http::Request& request = exchange->request();
  NamesInBody names(request.path == "/api/show");
  const bool names_another = request.path == "/api/pull";  // the model to fetch
  if (!request.body.empty() && !names_another) OrderedJson::sax_parse(request.body, &names);
  if (request.path.starts_with(kModelPath)) names.model = request.path.substr(kModelPath.size());
  if (const std::string* named = request.parameter("model"); named != nullptr && names.model.empty()) names.model = *named;

  std::optional<size_t> model = models.find(names.model);
  if (!model && form == ErrorForm::ollama) model = models.find(without_ollama_tag(names.model));
  if (!model) {
    const std::string what = "the model \"" + names.model + "\" is not here; GET /v1/models lists those that are";
    throw ApiError(404, "model_not_found", form == ErrorForm::ollama ? "model '" + names.model + "' not found: " + what : what,
                   "model");
  }
  models.use(
      *model, form == ErrorForm::ollama ? keep_seconds(names.keep_alive) : std::nullopt,
      [exchange](const std::shared_ptr<Service>& service) { answer(*service, std::make_shared<WithModel>(service, exchange)); },
      [exchange, form](const std::exception_ptr& error) { exchange->respond(error_response(api_error(error), form)); });
}

}  // namespace

void answer(ServedModels& models, const std::shared_ptr<http::Exchange>& exchange) {
  const ErrorForm form = error_form(exchange->request().path);
  try {
    if (!answer_for_all(models, exchange)) answer_by_name(models, exchange, form);
  } catch (...) {
    exchange->respond(error_response(api_error(std::current_exception()), form));
  }
}

}  // namespace vitrine::serve
