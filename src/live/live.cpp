#include "live/live.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "engine/token_json.h"
#include "generate/generate.h"
#include "generate/sampler.h"
#include "inspect/intervene_request.h"
#include "inspect/intervene_run.h"
#include "inspect/listening.h"
#include "inspect/trace.h"
#include "inspect/values_json.h"
#include "model/from_gguf.h"
#include "picture/data/document.h"
#include "picture/page/page.h"
#include "train/one_step.h"

namespace vitrine {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_of(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// One request's fields. Errors: UsageError for a field of another kind.
class Request {
 public:
  Request(Engine& engine, const std::string& model, std::string_view body)
      : engine_(engine), model_(model), json_(parse_ordered_json(body, "the request")) {
    if (!json_.is_object()) throw UsageError("the request is not an object");
  }

  template <class T>
  T get(const char* field, T usual) const {
    const auto found = json_.find(field);
    if (found == json_.end() || found->is_null()) return usual;
    try {
      return found->template get<T>();
    } catch (const OrderedJson::exception&) {
      throw UsageError("\"" + std::string(field) + "\" is " + found->type_name() + "; expected another kind");
    }
  }
  template <class T>
  std::optional<T> find(const char* field) const {
    return json_.contains(field) && !json_[field].is_null() ? std::optional<T>(get<T>(field, {})) : std::nullopt;
  }
  const OrderedJson& json() const { return json_; }
  Engine& engine() const { return engine_; }
  const std::string& model() const { return model_; }

  PicturePrompt prompt() const {
    PicturePrompt prompt;
    prompt.model = model_;
    prompt.special = get("add_special", true);
    const auto given = json_.find("prompt");
    if (given == json_.end()) throw UsageError("\"prompt\" is missing; expected a text, or a list of ids");
    if (given->is_string()) {
      prompt.text = given->get<std::string>();
      prompt.ids = engine_.prompt_ids(*prompt.text, prompt.special);
      prompt.pieces = engine_.tokenizer().encode_with_offsets(*prompt.text, prompt.special);
    } else {
      prompt.ids = get<std::vector<int32_t>>("prompt", {});
    }
    engine_.check_ids(prompt.ids);
    return prompt;
  }

  SamplingOptions sampling() const {
    SamplingOptions options;
    options.temperature = find<double>("temperature");
    options.top_k = find<int64_t>("top_k");
    options.top_p = find<double>("top_p");
    options.min_p = find<double>("min_p");
    options.seed = get<uint64_t>("seed", 0);
    return options;
  }

  /// The list "edits" for a run of these ids; null: none.
  std::unique_ptr<Interventions> edits(const std::vector<int32_t>& ids) const {
    if (!json_.contains("edits") || json_["edits"].empty()) return nullptr;
    return planned(engine_, recipe_of_edits(json_["edits"], ids), ids);
  }

 private:
  Engine& engine_;
  const std::string& model_;
  OrderedJson json_;
};

std::optional<Listening> heard(Engine& engine, Interventions* edits) {
  return edits == nullptr ? std::nullopt : std::optional<Listening>(std::in_place, engine.context(), *edits);
}

std::string document(const Request& request) {
  PictureOptions options;
  options.layer = request.find<int64_t>("layer");
  options.head = request.find<int64_t>("head");
  options.position = request.find<int64_t>("position");
  options.gradients = request.get("gradients", true);
  const PicturePrompt prompt = request.prompt();
  const auto names = request.find<std::vector<std::string>>("pictures");
  const PictureJson made =
      !names ? explain_document(request.engine(), prompt, options) : pictures_document(request.engine(), prompt, *names, options);
  return made.dump(-1, ' ', false, PictureJson::error_handler_t::replace);
}

std::string next(const Request& request) {
  Engine& engine = request.engine();
  const std::vector<int32_t> ids = request.prompt().ids;
  const std::unique_ptr<Interventions> edits = request.edits(ids);
  Sampler sampler(request.sampling(), engine.shape().vocab_size);
  const std::unique_ptr<KvCache> cache = engine.make_cache(static_cast<int64_t>(ids.size()));
  CacheSequence sequence = cache->sequence();
  const auto frame = engine.context().frame();
  Tensor z;
  {
    const std::optional<Listening> listening = heard(engine, edits.get());
    z = engine.prefill(ids, sequence);
  }
  const std::span<const float> logits(z.data<float>(), static_cast<size_t>(z.count()));
  const Candidates& left = sampler.process(logits, ids, {});
  const double sum = log_sum_exp(left.logit);
  OrderedJson json = tokens_json(engine, ids), list = OrderedJson::array();
  const auto top = std::clamp<int64_t>(request.get<int64_t>("top", 20), 1, engine.shape().vocab_size);
  for (const TokenLogprob& entry : top_logprobs(logits, static_cast<size_t>(top))) {
    const auto found = std::lower_bound(left.token.begin(), left.token.end(), entry.token);
    const bool kept = found != left.token.end() && *found == entry.token;
    const auto place = static_cast<size_t>(found - left.token.begin());
    list.push_back({{"token", entry.token},
                    {"piece", piece_json(engine, entry.token)},
                    {"logprob", entry.logprob},
                    {"kept", kept ? std::exp(static_cast<double>(left.logit[place]) - sum) : 0.0}});
  }
  json["next"] = std::move(list);
  json["left"] = left.token.size();
  return text_of(json);
}

std::string generated(const Request& request) {
  Engine& engine = request.engine();
  const std::vector<int32_t> ids = request.prompt().ids;
  const std::unique_ptr<Interventions> edits = request.edits(ids);
  GenerateOptions options;
  options.max_tokens = request.get<int64_t>("max_tokens", 16);
  options.sampling = request.sampling();
  options.eos = engine.end_tokens();
  const std::optional<Listening> listening = heard(engine, edits.get());
  const Generation made = generate(engine, ids, options);
  return text_of(
      {{"text", made.text}, {"tokens", made.tokens}, {"logprobs", made.logprobs}, {"finish_reason", made.finish_reason}});
}

std::string inspected(const Request& request) {
  Engine& engine = request.engine();
  const std::vector<int32_t> ids = request.prompt().ids;
  const std::unique_ptr<Interventions> edits = request.edits(ids);
  const auto hooks = request.get<std::vector<std::string>>("hooks", {});
  if (hooks.empty()) throw UsageError("\"hooks\" is missing or empty; name hooks, such as blocks.*.hook_resid_post");
  const Recorder recorder = trace_to_memory(engine, ids, hooks, edits.get());
  std::string json = text_of(tokens_json(engine, ids));
  json.back() = ',';
  return json + "\"hooks\":" + hooks_text(recorder) + "}";
}

std::string patched(const Request& request) {
  const Recipe recipe = recipe_of_request(request.json());
  InterveneOptions options;
  options.top = std::clamp<int64_t>(request.get<int64_t>("top", 10), 1, request.engine().shape().vocab_size);
  options.all_positions = request.get("all_positions", false);
  OrderedJson json = to_json(intervene(request.engine(), recipe, options), request.engine());
  json["yaml"] = to_yaml(recipe);
  return text_of(json);
}

std::string trained(const Request& request) {
  const auto prompt = request.get<std::string>("prompt", ""), target = request.get<std::string>("target", "");
  const auto rate = request.get("rate", 0.003);
  const OneStepText text = one_step_text(request.engine(), prompt, target);
  Learner learner(as_huggingface(open_model(request.model())), one_step_options(request.engine().context().pool().threads()));
  const auto top = std::clamp<int64_t>(request.get<int64_t>("top", 10), 1, request.engine().shape().vocab_size);
  const OneStep step = take_one_step(learner, text.prompt, text.target, rate, top);
  return text_of(to_json(request.engine(), prompt, rate, text, step));
}

constexpr std::pair<std::string_view, std::string (*)(const Request&)> kRequests[] = {
    {"document", document}, {"next", next},     {"generate", generated},
    {"inspect", inspected}, {"patch", patched}, {"train", trained}};

}  // namespace

Live::Live(std::string_view model, const EngineOptions& options) : model_(model), engine_(model, options) {}

std::string Live::answer(std::string_view request, std::string_view body) {
  try {
    for (const auto& [name, made] : kRequests)
      if (name == request) return made(Request(engine_, model_, body));
    throw UsageError("there is no request \"" + std::string(request) + "\"");
  } catch (const std::exception& error) {
    return text_of({{"error", {{"message", error.what()}}}});
  }
}

}  // namespace vitrine
