#include "live/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "generate/generate.h"
#include "generate/sampler.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "hooks/trace.h"
#include "hooks/values_json.h"
#include "inspect/units.h"
#include "intervene/request.h"
#include "intervene/run.h"
#include "model/from_gguf.h"
#include "ops/stopping.h"
#include "picture/data/document.h"
#include "picture/page/page.h"
#include "runtime/token_json.h"
#include "train/one_step.h"

namespace vitrine {
namespace {

constexpr int64_t kMostUnits = 64, kMostUnitTokens = 100;

std::string text_of(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// One request's fields. Errors: UsageError for a field of another kind.
class Request {
 public:
  Request(const LiveModel& model, const OrderedJson& json) : model_(model), json_(json) {
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
  const Engine& engine() const { return model_.engine; }
  const LiveModel& model() const { return model_; }
  /// Runs `work` when the engine is this request's.
  void run(const std::function<void(Engine&)>& work) const { model_.run(work); }

  PicturePrompt prompt() const {
    PicturePrompt prompt;
    prompt.model = model_.name;
    prompt.special = get("add_special", true);
    const auto given = json_.find("prompt");
    if (given == json_.end()) throw UsageError("\"prompt\" is missing; expected a text, or a list of ids");
    if (given->is_string()) {
      prompt.text = given->get<std::string>();
      prompt.ids = engine().prompt_ids(*prompt.text, prompt.special);
      prompt.pieces = engine().tokenizer().encode_with_offsets(*prompt.text, prompt.special);
    } else {
      prompt.ids = get<std::vector<int32_t>>("prompt", {});
    }
    engine().check_ids(prompt.ids);
    return prompt;
  }

  SamplingOptions sampling() const {
    SamplingOptions options;
    for (const SamplingOption& option : sampling_options())
      if (const auto value = find<double>(option.name)) option.set(options, *value);
    options.seed = get<uint64_t>("seed", 0);
    return options;
  }

  /// The list "edits" for a run of these ids; null: none.
  std::unique_ptr<Interventions> edits(Engine& engine, const std::vector<int32_t>& ids) const {
    if (!json_.contains("edits") || json_["edits"].empty()) return nullptr;
    return planned(engine, recipe_of_edits(json_["edits"], ids), ids);
  }

 private:
  const LiveModel& model_;
  const OrderedJson& json_;
};

std::optional<Listening> heard(Engine& engine, Interventions* edits) {
  return edits == nullptr ? std::nullopt : std::optional<Listening>(std::in_place, engine.context(), *edits);
}

int64_t top_of(const Request& request, int64_t usual) {
  return std::clamp<int64_t>(request.get<int64_t>("top", usual), 1, request.engine().shape().vocab_size);
}

std::string document(const Request& request) {
  PictureOptions options;
  options.layer = request.find<int64_t>("layer");
  options.head = request.find<int64_t>("head");
  options.position = request.find<int64_t>("position");
  options.gradients = request.get("gradients", true);
  const PicturePrompt prompt = request.prompt();
  const auto names = request.find<std::vector<std::string>>("pictures");
  if (names && names->empty()) throw UsageError("\"pictures\" is empty; name pictures, or leave it out for all of them");
  std::optional<DocumentRuns> runs;
  PictureJson made;
  while (made.is_null())
    request.run([&](Engine& engine) {
      if (!runs) runs = names ? DocumentRuns(engine, prompt, options, *names) : explain_runs(engine, prompt, options);
      runs->next();
      if (runs->done()) made = std::move(*runs).take();
    });
  return made.dump(-1, ' ', false, PictureJson::error_handler_t::replace);
}

std::string next(const Request& request) {
  const std::vector<int32_t> ids = request.prompt().ids;
  const SamplingOptions sampling = request.sampling();
  Sampler sampler(sampling, request.engine().shape().vocab_size, breakers_of(request.engine(), sampling));
  std::vector<float> logits;
  request.run([&](Engine& engine) {
    const std::unique_ptr<Interventions> edits = request.edits(engine, ids);
    const std::unique_ptr<KvCache> cache = engine.make_cache(static_cast<int64_t>(ids.size()));
    CacheSequence sequence = cache->sequence();
    const auto frame = engine.context().frame();
    const std::optional<Listening> listening = heard(engine, edits.get());
    const Tensor z = engine.prefill(ids, sequence);
    logits.assign(z.data<float>(), z.data<float>() + z.count());
  });
  const Candidates& left = sampler.process(logits, ids, {});
  const std::vector<TokenLogprob> top = top_logprobs(logits, static_cast<size_t>(top_of(request, 20)));
  const std::vector<double> kept = drawn_probabilities(left, top);
  OrderedJson json = tokens_json(request.engine(), ids);
  json["next"] = json_of(top, speller_of(request.engine()));
  for (size_t i = 0; i < top.size(); ++i) json["next"][i]["kept"] = kept[i];
  json["left"] = left.token.size();
  return text_of(json);
}

std::string generated(const Request& request) {
  const std::vector<int32_t> ids = request.prompt().ids;
  GenerateOptions options;
  options.max_tokens = request.get<int64_t>("max_tokens", 16);
  options.sampling = request.sampling();
  options.eos = request.engine().end_tokens();
  std::unique_ptr<Interventions> edits;
  std::optional<TokenLoop> loop;
  request.run([&](Engine& engine) {
    edits = request.edits(engine, ids);
    loop.emplace(engine, ids, options);
  });
  while (!loop->done())
    request.run([&](Engine& engine) {
      const std::optional<Listening> listening = heard(engine, edits.get());
      loop->next();
    });
  const Generation made = std::move(*loop).take();
  return text_of(
      {{"text", made.text}, {"tokens", made.tokens}, {"logprobs", made.logprobs}, {"finish_reason", made.finish_reason}});
}

std::string inspected(const Request& request) {
  const std::vector<int32_t> ids = request.prompt().ids;
  const auto hooks = request.get<std::vector<std::string>>("hooks", {});
  if (hooks.empty()) throw UsageError("\"hooks\" is missing or empty; name hooks, such as blocks.*.hook_resid_post");
  std::vector<HookQuery> queries;
  for (const std::string& hook : hooks) queries.push_back(parse_hook_query(hook));
  const size_t numbers = capture_bytes(plan_captures(request.engine().model(), queries, std::ssize(ids))) / sizeof(float);
  if (numbers > kMostNumbers)
    throw UsageError(fmt::format("\"hooks\" asks for {} numbers, and an answer holds {}; take slices such as [positions=-1]",
                                 numbers, kMostNumbers));
  std::optional<Recorder> recorder;
  request.run([&](Engine& engine) {
    const std::unique_ptr<Interventions> edits = request.edits(engine, ids);
    recorder = trace_to_memory(engine, ids, hooks, edits.get());
  });
  std::string json = text_of(tokens_json(request.engine(), ids));
  json.back() = ',';
  return json + "\"hooks\":" + hooks_text(*recorder) + "}";
}

std::string units(const Request& request) {
  const std::vector<int32_t> ids = request.prompt().ids;
  UnitsOptions options;
  options.layer = request.get<int64_t>("layer", -1);
  options.position = request.get<int64_t>("position", -1);
  options.units = std::clamp<int64_t>(request.get<int64_t>("units", 8), 1, kMostUnits);
  options.tokens = std::clamp<int64_t>(request.get<int64_t>("top", 5), 1, kMostUnitTokens);
  std::optional<UnitWrites> found;
  request.run([&](Engine& engine) { found = unit_writes(engine, ids, options); });
  OrderedJson json = tokens_json(request.engine(), ids);
  json.update(json_of(*found, speller_of(request.engine())));
  return text_of(json);
}

std::string patched(const Request& request) {
  const Recipe recipe = recipe_of_request(request.json());
  InterveneOptions options;
  options.top = top_of(request, 10);
  options.all_positions = request.get("all_positions", false);
  options.turn = [&](const std::function<void()>& work) { request.run([&](Engine&) { work(); }); };
  Engine* engine = nullptr;
  request.run([&](Engine& whose) { engine = &whose; });
  OrderedJson json = to_json(intervene(*engine, recipe, options), *engine);
  json["yaml"] = to_yaml(recipe);
  return text_of(json);
}

// On weights of its own: the engine's stay as they are, and others may use it meanwhile.
std::string trained(const Request& request) {
  const Engine& engine = request.engine();
  if (engine.opened().adapter != nullptr)
    throw UsageError(
        "a step of training moves all weights of a model, and this one runs with an adapter beside them. Open the "
        "model without it, or a merged copy (vitrine convert)");
  const auto prompt = request.get<std::string>("prompt", ""), target = request.get<std::string>("target", "");
  const auto rate = request.get("rate", 0.003);
  const OneStepText text = one_step_text(engine, prompt, target);
  require_memory(one_step_bytes(engine.model()), 0, "The weights in f32 and their gradients",
                 "Use a machine with more memory, or a smaller model");
  Learner learner(as_huggingface(open_model(request.model().name)), one_step_options(request.model().threads));
  std::optional<Stopping> stopping;
  if (request.model().gone != nullptr) stopping.emplace(learner.engine().context(), *request.model().gone);
  const OneStep step = take_one_step(learner, text.prompt, text.target, rate, top_of(request, 10));
  return text_of(to_json(engine, prompt, text, step));
}

constexpr std::pair<std::string_view, std::string (*)(const Request&)> kRequests[] = {
    {"document", document}, {"next", next},     {"generate", generated}, {"inspect", inspected},
    {"units", units},       {"patch", patched}, {"train", trained}};

}  // namespace

std::string live_answer(const LiveModel& model, std::string_view request, const OrderedJson& body) {
  for (const auto& [name, made] : kRequests)
    if (name == request) return made(Request(model, body));
  throw UsageError("there is no request \"" + std::string(request) + "\"");
}

}  // namespace vitrine
