// POST /completion and /infill: llama.cpp's own form.
#include <algorithm>
#include <cmath>
#include <limits>

#include "serve/endpoints.h"
#include "serve/infill.h"
#include "serve/native_sampling.h"
#include "serve/openai_answer.h"
#include "serve/token_text.h"

namespace vitrine::serve {
namespace {

struct NativeRequest {
  std::string model;
  std::vector<std::string> prompts;  // as text
  bool list = false;                 // several prompts were given: the answer is a list
  int64_t n_probs = 0;
  bool tokens = false, progress = false;
  std::vector<std::string> fields;  // of the answer; empty: all
  GenerateOptions options;
  OrderedJson ignored = nullptr;
};

class NativeAnswer final : public Answer {
 public:
  NativeAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, NativeRequest request)
      : Answer(service, std::move(exchange), streamed), request_(std::move(request)) {}

 private:
  OrderedJson whole() override {
    OrderedJson list = OrderedJson::array();
    for (Choice& choice : choices()) {
      OrderedJson json = {{"index", choice.index}, {"content", choice.text}, {"tokens", OrderedJson::array()}};
      if (request_.tokens) json["tokens"] = ids_json(choice, 0);
      json.update(last_json(choice));
      if (request_.n_probs > 0) json["completion_probabilities"] = probabilities_json(choice, 0);
      list.push_back(chosen(std::move(json)));
    }
    return request_.list || list.size() > 1 ? list : OrderedJson(list[0]);
  }

  void on_prompt(Choice& choice, const PromptEvent& event) override {
    if (!request_.progress) return;
    OrderedJson json = part_json(choice, "");
    json["prompt_progress"] = {{"total", event.total}, {"cache", event.cached}, {"processed", event.done}};
    send(json);
  }

  void on_token(Choice& choice) override {
    const Token& token = choice.tokens.back();
    OrderedJson json = part_json(choice, token.text);
    json["tokens"].push_back(token.id);
    if (request_.n_probs > 0) json["completion_probabilities"] = probabilities_json(choice, choice.tokens.size() - 1);
    send(json);
  }

  void on_end(Choice& choice) override {
    OrderedJson json = {{"index", choice.index}, {"content", choice.tail}, {"tokens", OrderedJson::array()}};
    json.update(last_json(choice));
    send(chosen(std::move(json)));
  }

  // The members that response_fields names, under these names; those that are not there are left out.
  OrderedJson chosen(OrderedJson json) const {
    if (request_.fields.empty()) return json;
    OrderedJson some = OrderedJson::object();
    for (const std::string& name : request_.fields) {
      const OrderedJson* at = &json;
      for (size_t begin = 0; at != nullptr && begin <= name.size();) {
        const size_t end = std::min(name.find('/', begin), name.size());
        const auto member = at->is_object() ? at->find(name.substr(begin, end - begin)) : at->end();
        at = member == at->end() ? nullptr : &*member;
        begin = end + 1;
      }
      if (at != nullptr) some[name] = *at;
    }
    return some;
  }

  static OrderedJson part_json(const Choice& choice, const std::string& text) {
    return {{"index", choice.index},
            {"content", text},
            {"tokens", OrderedJson::array()},
            {"stop", false},
            {"id_slot", -1},
            {"tokens_predicted", choice.tokens.size()},
            {"tokens_evaluated", choice.prompt_ids.size()}};
  }

  OrderedJson last_json(const Choice& choice) {
    const char* type = choice.end.stop_string ? "word" : choice.by_end_token() ? "eos" : "limit";
    OrderedJson json = {{"id_slot", -1},
                        {"stop", true},
                        {"model", request_.model},
                        {"tokens_predicted", choice.tokens.size()},
                        {"tokens_evaluated", choice.prompt_ids.size()},
                        {"generation_settings", settings_json(request_.options, streamed())},
                        {"prompt", request_.prompts[choice.prompt]},
                        {"has_new_line", choice.text.find('\n') != std::string::npos},
                        {"truncated", false},
                        {"stop_type", type},
                        {"stopping_word", choice.end.stop_string.value_or("")},
                        {"tokens_cached", choice.end.cached_tokens},
                        {"timings", timings_json(choice.end, choice.tokens.size())}};
    if (!request_.ignored.is_null()) json["ignored_fields"] = request_.ignored;
    return json;
  }

  static OrderedJson ids_json(const Choice& choice, size_t begin) {
    OrderedJson ids = OrderedJson::array();
    for (size_t i = begin; i < choice.tokens.size(); ++i) ids.push_back(choice.tokens[i].id);
    return ids;
  }

  OrderedJson probabilities_json(const Choice& choice, size_t begin) {
    const Engine& engine = service().engine();
    const auto entry = [&](int32_t id, float logprob) {
      OrderedJson json = {{"id", id}};
      json.update(token_json(engine, id, logprob));
      return json;
    };
    OrderedJson list = OrderedJson::array();
    for (size_t i = begin; i < choice.tokens.size(); ++i) {
      const Token& token = choice.tokens[i];
      OrderedJson json = entry(token.id, token.logprob);
      json["top_logprobs"] = OrderedJson::array();
      for (const TokenLogprob& t : token.top) json["top_logprobs"].push_back(entry(t.token, t.logprob));
      list.push_back(std::move(json));
    }
    return list;
  }

  const NativeRequest request_;
};

struct NativePrompt {
  std::vector<int32_t> ids;
  std::string text;
};

// A string, a list of ids, or a list of ids and strings that are joined.
NativePrompt native_prompt(const OrderedJson& json, const Engine& engine) {
  if (json.is_string())
    return {engine.prompt_ids(json.get_ref<const std::string&>(), true, Special::parse), json.get<std::string>()};
  if (json.is_object()) {
    if (!json.contains("prompt_string") || !json["prompt_string"].is_string())
      throw invalid("prompt", "\"prompt\" is an object without a string \"prompt_string\"");
    if (json.contains("multimodal_data") && !json["multimodal_data"].empty())
      throw invalid("prompt", "\"prompt\" has \"multimodal_data\"; this model reads only text", "unsupported_content");
    return native_prompt(json["prompt_string"], engine);
  }
  if (!json.is_array() || json.empty())
    throw invalid("prompt", "\"prompt\" is " + kind_of(json) + "; expected a string or a list that is not empty");
  NativePrompt prompt{.ids = mixed_ids(engine, json, "prompt", Special::parse), .text = {}};
  prompt.text = prompt_text(engine, prompt.ids);
  return prompt;
}

// A list of prompts is one whose elements are not all strings and ids of one mixed prompt: all strings, or lists, or objects.
bool is_list_of_prompts(const OrderedJson& json) {
  if (!json.is_array() || json.empty()) return false;
  if (std::all_of(json.begin(), json.end(), [](const OrderedJson& p) { return p.is_string(); })) return true;
  return std::any_of(json.begin(), json.end(), [](const OrderedJson& p) { return p.is_array() || p.is_object(); });
}

// Fields of /completion and /infill but for the prompt.
std::vector<Field> common_fields() {
  using namespace type;
  const Field most{"n_predict",  integer, "Maximum new tokens; -1 (the default): until the context is full.",
                   Use::honored, -1,      1e9};
  Field old = most;
  old.name = "max_tokens", old.same_as = most.name, old.about = "The same as `n_predict`.";
  return joined(
      {{model_field(),
        most,
        old,
        {"n_cmpl", integer, "Texts for each prompt; default 1.", Use::honored, 1, 128},
        {"n_probs", integer, "Number of most likely tokens for each token, with log-probabilities from the unmodified logits.",
         Use::honored, 0, 100},
        {"stream", boolean, "The answer is sent as server-sent events. Default: false."},
        {"return_tokens", boolean, "Ids of the text. Default: false; HTTP streams always include them."},
        {"return_progress", boolean, "The HTTP stream reports the progress of the prefill. Default: false."},
        Field::ignored("timings_per_token", "Timings are in the last event."),
        {"samplers", texts,
         "The order of sampling rules: penalties, top_k, typ_p, top_p, min_p, temperature; rules that are not listed are off."},
        {"response_fields", texts,
         "The members of the answer, and of a stream's last event: all by default. \"generation_settings/seed\" names one inside "
         "another."}},
       sampling_fields(),
       foreign_fields(),
       {Field::refused("n_keep", "a full context ends the text; there is no context shift", "[0]"),
        Field::refused("n_indent", "leave it out", "[0]"),
        Field::ignored("n_discard", "A full context ends the text; there is no context shift."),
        Field::refused("min_keep", "truncation rules always keep at least one token", "[0, 1]"),
        Field::refused("post_sampling_probs", "probabilities are those of the unmodified logits", "[false]"),
        Field::refused("t_max_predict_ms", "end a text by closing the connection", "[0]"),
        Field::refused("image_data", "this model reads only text", "[[]]")}});
}

}  // namespace

SamplingOptions native_sampling() {
  SamplingOptions s;
  s.temperature = 0.8;
  s.top_k = 40;
  s.top_p = 0.95;
  s.min_p = 0.05;
  using enum SamplingRule;
  s.order = {bias, repetition, frequency, presence, dry, top_n_sigma, top_k, typical, top_p, min_p, xtc, temperature, mirostat};
  return s;
}

OrderedJson settings_json(const GenerateOptions& o, bool streamed) {
  const SamplingOptions& s = o.sampling;
  OrderedJson bias = OrderedJson::array();
  for (const auto& [token, value] : s.logit_bias)
    bias.push_back({{"token", token}, {"bias", std::isinf(value) ? OrderedJson(nullptr) : OrderedJson(value)}});
  const int64_t most = o.max_tokens == INT32_MAX ? -1 : o.max_tokens;
  OrderedJson settings = {{"seed", s.seed}};
  for (const SamplingOption& option : sampling_options()) {
    const bool repetition = option.rule == SamplingRule::repetition;
    settings[repetition ? "repeat_penalty" : option.name] = option.get(s) ? option.json(s) : option.json_of(option.off);
  }
  settings["dry_sequence_breakers"] = s.dry_sequence_breakers;
  settings.update({{"stop", o.stops},
                   {"max_tokens", most},
                   {"n_predict", most},
                   {"ignore_eos", o.eos.empty()},
                   {"min_tokens", o.min_tokens},
                   {"stream", streamed},
                   {"logit_bias", bias},
                   {"samplers", sampler_names(s.order)}});
  return settings;
}

const std::vector<Field>& native_completion_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field prompt{"prompt", text | list | object,
                 "A string, ids, or both mixed in a list; a list of strings or of lists: several prompts."};
    prompt.required = true;
    return joined({{prompt}, common_fields()});
  }();
  return table;
}

const std::vector<Field>& infill_fields() {
  static const std::vector<Field> table = joined({infill_prompt_fields(), common_fields()});
  return table;
}

namespace {

// Answers one request; `request` has model and list.
void complete(Service& service, const std::shared_ptr<http::Exchange>& exchange, Fields& fields, NativeRequest request,
              const std::vector<NativePrompt>& prompts) {
  for (const NativePrompt& prompt : prompts) {
    check_room(service, prompt.ids.size(), "prompt");
    request.prompts.push_back(prompt.text);
  }
  const auto n = static_cast<size_t>(fields.integer("n_cmpl").value_or(1));
  check_streams(service, prompts.size() * n, "prompt");
  request.n_probs = fields.integer("n_probs").value_or(0);
  request.tokens = fields.boolean("return_tokens", false);
  request.progress = fields.boolean("return_progress", false);
  request.fields = fields.texts("response_fields");
  const bool streamed = fields.boolean("stream", false);
  Sampled sampled = read_sampling(fields, service, native_sampling());
  std::vector<std::string> samplers = fields.texts("samplers");
  if (sampled.options.sampling.mirostat != 0)
    samplers = {"temperature", "mirostat"};  // as llama.cpp: nothing else acts beside it
  if (!samplers.empty() || fields.has("samplers")) apply_samplers(samplers, sampled.options.sampling);
  const int64_t most = fields.integer("n_predict").value_or(-1);
  sampled.options.max_tokens = most < 0 ? INT32_MAX : most;
  request.options = sampled.options;
  if (!fields.ignored().empty()) request.ignored = fields.ignored();
  const int64_t top = request.n_probs;
  const auto answer = std::make_shared<NativeAnswer>(service, exchange, streamed, std::move(request));
  for (size_t p = 0; p < prompts.size(); ++p)
    for (size_t i = 0; i < n; ++i) {
      Work work;
      work.prompt = prompts[p].ids;
      work.options = sampled.options;
      work.stream = sampled.stream(p, i, n);
      work.top = top;
      answer->add(std::move(work), p, sampled);
    }
  answer->start();
}

}  // namespace

void completion(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, native_completion_fields(), service.options().strict_fields);
  NativeRequest request;
  request.model = service.model_named(fields.text("model"));
  const OrderedJson& json = *fields.find("prompt");
  std::vector<NativePrompt> prompts;
  request.list = is_list_of_prompts(json);
  if (request.list)
    for (const OrderedJson& each : json) prompts.push_back(native_prompt(each, service.engine()));
  else
    prompts.push_back(native_prompt(json, service.engine()));
  complete(service, exchange, fields, std::move(request), prompts);
}

void infill(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, infill_fields(), service.options().strict_fields);
  NativeRequest request;
  request.model = service.model_named(fields.text("model"));
  NativePrompt prompt{.ids = infill_prompt(fields, service.engine().tokenizer()), .text = {}};
  prompt.text = prompt_text(service.engine(), prompt.ids);
  complete(service, exchange, fields, std::move(request), {prompt});
}

}  // namespace vitrine::serve
