// POST /v1/completions: text or ids are continued.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"
#include "serve/token_text.h"
#include "serve/watch.h"

namespace vitrine::serve {
namespace {

struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;  // as it is echoed
};

struct CompletionRequest {
  AnswerHead head;
  std::vector<CompletionPrompt> prompts;
  size_t n = 1, best_of = 1;
  bool echo = false, usage = false, token_ids = false;
  std::optional<int64_t> logprobs;
  std::shared_ptr<const Watch> watch;
};

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, CompletionRequest request)
      : Answer(service, std::move(exchange), streamed), request_(std::move(request)) {}

 private:
  OrderedJson whole() override {
    OrderedJson json = head_json(request_.head, "text_completion", true);
    OrderedJson list = OrderedJson::array();
    for (size_t p = 0; p < request_.prompts.size(); ++p)
      for (const size_t i : best(p)) {
        Choice& choice = choices()[i];
        OrderedJson entry = entry_json(choice, list.size(), (request_.echo ? request_.prompts[p].text : "") + choice.text);
        if (request_.logprobs) entry["logprobs"] = logprobs_json(choice, 0, choice.tokens.size(), request_.echo);
        if (request_.token_ids) {
          entry["prompt_token_ids"] = choice.prompt_ids;
          entry["token_ids"] = ids_json(choice, 0, choice.tokens.size());
        }
        entry["finish_reason"] = choice.finish_reason();
        list.push_back(std::move(entry));
      }
    json["choices"] = std::move(list);
    json["usage"] = usage_json(usage());
    json["timings"] = timings_json(choices().front().end, choices().front().tokens.size());
    return json;
  }

  std::string whole_text() override { return request_.watch->text_with_values(whole(), choices().front()); }

  // Of best_of choices of a prompt the n with the highest log-probability per token.
  std::vector<size_t> best(size_t prompt) {
    std::vector<size_t> order(request_.best_of);
    std::iota(order.begin(), order.end(), prompt * request_.best_of);
    if (request_.best_of == request_.n) return order;
    const auto score = [&](size_t i) {
      const std::vector<Token>& tokens = choices()[i].tokens;
      const double sum =
          std::accumulate(tokens.begin(), tokens.end(), 0.0, [](double s, const Token& t) { return s + t.logprob; });
      return sum / static_cast<double>(std::max<size_t>(tokens.size(), 1));
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const double x = score(a), y = score(b);
      return x != y ? x > y : a < b;
    });
    order.resize(request_.n);
    return order;
  }

  void on_scored(Choice& choice) override { send_echo(choice); }

  void on_token(Choice& choice) override {
    send_echo(choice);
    const Token& token = choice.tokens.back();
    if (token.text.empty() && !request_.logprobs && !request_.token_ids) return;
    OrderedJson entry = entry_json(choice, choice.index, token.text);
    if (request_.logprobs) entry["logprobs"] = logprobs_json(choice, choice.tokens.size() - 1, choice.tokens.size(), false);
    if (request_.token_ids) entry["token_ids"] = ids_json(choice, choice.tokens.size() - 1, choice.tokens.size());
    send_chunk(std::move(entry));
  }

  void on_end(Choice& choice) override {
    send_echo(choice);
    OrderedJson entry = entry_json(choice, choice.index, choice.tail);
    entry["finish_reason"] = choice.finish_reason();
    send_chunk(std::move(entry));
  }

  void on_done() override {
    if (request_.usage || request_.watch->inspects()) {
      OrderedJson json = head_json(request_.head, "text_completion", false);
      json["choices"] = OrderedJson::array();
      if (request_.usage) json["usage"] = usage_json(usage());
      send_text("data: " + request_.watch->text_with_values(json, choices().front()) + "\n\n");
    }
    send_text("data: [DONE]\n\n");
  }

  void send_echo(Choice& choice) {
    if (!request_.echo || echoed_.contains(choice.index)) return;
    echoed_.insert(choice.index);
    OrderedJson entry = entry_json(choice, choice.index, request_.prompts[choice.prompt].text);
    if (request_.logprobs) entry["logprobs"] = logprobs_json(choice, 0, 0, true);
    send_chunk(std::move(entry));
  }

  void send_chunk(OrderedJson entry) {
    OrderedJson json = head_json(request_.head, "text_completion", !told_);
    told_ = true;
    json["choices"] = OrderedJson::array({std::move(entry)});
    if (request_.usage) json["usage"] = nullptr;
    send(json);
  }

  static OrderedJson entry_json(const Choice&, size_t index, const std::string& text) {
    return {{"text", text}, {"index", index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  static OrderedJson ids_json(const Choice& choice, size_t begin, size_t end) {
    OrderedJson ids = OrderedJson::array();
    for (size_t i = begin; i < end; ++i) ids.push_back(choice.tokens[i].id);
    return ids;
  }

  // Of the tokens [begin, end) that were made, behind those of the prompt where it is echoed.
  OrderedJson logprobs_json(Choice& choice, size_t begin, size_t end, bool echo) {
    OrderedJson tokens = OrderedJson::array(), logprobs = tokens, top = tokens, top_ids = tokens, offsets = tokens;
    int64_t& offset = offsets_[choice.index];
    const Engine& engine = service().engine();
    const auto add = [&](int32_t id, std::optional<float> logprob, const std::vector<TokenLogprob>& most_likely, bool shown) {
      const std::string text = token_text(engine, id);
      tokens.push_back(text);
      logprobs.push_back(logprob ? OrderedJson(*logprob) : OrderedJson(nullptr));
      OrderedJson entry = nullptr, ids = nullptr;
      if (logprob) {
        entry = ids = OrderedJson::object();
        for (const TokenLogprob& t : most_likely) {
          const std::string name = token_text(engine, t.token);
          if (entry.contains(name)) continue;  // of tokens that read alike the most likely
          entry[name] = t.logprob;
          ids[name] = t.token;
        }
        if (!entry.contains(text)) entry[text] = *logprob, ids[text] = id;
      }
      top.push_back(std::move(entry));
      top_ids.push_back(std::move(ids));
      offsets.push_back(offset);
      if (shown) offset += characters(token_bytes(engine, id));
    };
    if (echo) {
      const bool hidden_bos = !choice.scored.empty() && engine.has_tokenizer() &&
                              choice.scored[0].token == engine.tokenizer().bos() &&
                              !request_.prompts[choice.prompt].text.starts_with(token_bytes(engine, choice.scored[0].token));
      for (size_t i = 0; i < choice.scored.size(); ++i) {
        const PromptToken& t = choice.scored[i];
        add(t.token, t.logprob, t.top, i > 0 || !hidden_bos);
      }
    }
    for (size_t i = begin; i < end; ++i) add(choice.tokens[i].id, choice.tokens[i].logprob, choice.tokens[i].top, true);
    OrderedJson json = {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
    if (request_.token_ids) json["top_token_ids"] = std::move(top_ids);
    return json;
  }

  const CompletionRequest request_;
  std::set<size_t> echoed_;
  std::map<size_t, int64_t> offsets_;  // characters of each choice so far
  bool told_ = false;                  // the ignored fields
};

// A string, ids, or a list of either.
std::vector<CompletionPrompt> read_prompts_of(const OrderedJson& json, const Service& service, const Fields& fields) {
  const Engine& engine = service.engine();
  const bool special = fields.boolean("add_special_tokens", true);
  std::vector<CompletionPrompt> prompts;
  const auto add_text = [&](const OrderedJson& text) {
    prompts.push_back({engine.prompt_ids(text.get_ref<const std::string&>(), special), text.get<std::string>()});
  };
  const auto add_ids = [&](const OrderedJson& list) {
    std::vector<int64_t> numbers;
    for (const OrderedJson& id : list) {
      if (!id.is_number_integer()) throw invalid("prompt", "\"prompt\" mixes ids with " + kind_of(id), "invalid_type");
      numbers.push_back(id.get<int64_t>());
    }
    if (numbers.empty()) throw invalid("prompt", "\"prompt\" holds an empty list of ids; give at least one");
    std::vector<int32_t> ids = token_ids(engine, numbers, "prompt");
    std::string text = prompt_text(engine, ids);
    prompts.push_back({std::move(ids), std::move(text)});
  };
  if (json.is_string()) {
    add_text(json);
  } else if (json.empty()) {
    throw invalid("prompt", "\"prompt\" is an empty list; give text or ids");
  } else if (json[0].is_number()) {
    add_ids(json);
  } else {
    for (const OrderedJson& each : json) {
      if (each.is_string())
        add_text(each);
      else if (each.is_array())
        add_ids(each);
      else
        throw invalid("prompt", "\"prompt\" holds " + kind_of(each) + "; expected strings or lists of ids", "invalid_type");
    }
  }
  return prompts;
}

}  // namespace

const std::vector<Field>& completion_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    const Field most{"max_tokens", integer, "Maximum new tokens; default 16; -1: until the context is full.",
                     Use::honored, -1,      1e9};
    Field native = most;
    native.name = "n_predict", native.same_as = most.name, native.about = "The same as `max_tokens`.";
    std::vector<Field> own = {
        model_field(),
        {"prompt", text | list, "The text to continue: a string, a list of ids, or a list of either.", Use::honored},
        most,
        native,
        {"n", integer, "Texts for each prompt; default 1.", Use::honored, 1, 128},
        {"best_of", integer, "Generates this many texts and returns the n with the highest log-probability per token; default n.",
         Use::honored, 1, 128},
        {"echo", boolean, "The text begins with the prompt, and logprobs with its tokens. Default: false."},
        {"logprobs", integer,
         "Log-probabilities of the tokens and, for each, of this many most likely tokens, as log-softmax of the unmodified "
         "logits.",
         Use::honored, 0, 100},
        {"stream", boolean, "The answer is sent as server-sent events. Default: false."},
        {"stream_options", object, "{\"include_usage\": true}: a last chunk contains the usage."},
        format_field(),
        {"add_special_tokens", boolean, "Add BOS before a text if the tokenizer does. Default: true."},
        {"return_token_ids", boolean, "Ids of prompt and text, and of the texts in top_logprobs. Default: false."},
    };
    own[1].required = true;
    return joined({own,
                   watch_fields(),
                   sampling_fields(),
                   foreign_fields(),
                   {Field::refused("suffix", "text can be continued only at its end", "[\"\"]")}});
  }();
  return table;
}

void completions(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, completion_fields(), service.options().strict_fields);
  CompletionRequest request;
  const std::string model = service.model_named(fields.text("model"));
  request.prompts = read_prompts_of(*fields.find("prompt"), service, fields);
  for (const CompletionPrompt& prompt : request.prompts) check_room(service, prompt.ids.size(), "prompt");
  request.n = static_cast<size_t>(fields.integer("n").value_or(1));
  request.best_of = static_cast<size_t>(fields.integer("best_of").value_or(static_cast<int64_t>(request.n)));
  request.echo = fields.boolean("echo", false);
  request.logprobs = fields.integer("logprobs");
  request.token_ids = fields.boolean("return_token_ids", false);
  const bool streamed = fields.boolean("stream", false);
  request.usage = wants_stream_usage(fields, streamed);
  if (request.best_of < request.n)
    throw invalid("best_of", "\"best_of\" is " + std::to_string(request.best_of) + ", less than \"n\", which is " +
                                 std::to_string(request.n));
  if (streamed && request.best_of > request.n)
    throw invalid("best_of", "\"best_of\" above \"n\" chooses among whole texts, which cannot be streamed; leave \"stream\" out");
  check_streams(service, request.prompts.size() * request.best_of, "prompt");

  Sampled sampled = read_sampling(fields, service, openai_sampling());
  sampled.options.constraint = format_or(std::move(sampled.options.constraint), fields, service);
  const int64_t most = fields.integer("max_tokens").value_or(16);
  sampled.options.max_tokens = most < 0 ? INT32_MAX : most;
  WatchedTexts texts{{},
                     request.best_of,
                     request.n > 1 ? "n" : "best_of",
                     sampled.options.max_tokens,
                     streamed,
                     request.echo && request.logprobs};
  for (const CompletionPrompt& prompt : request.prompts) texts.prompts.push_back(prompt.ids);
  request.watch = std::make_shared<const Watch>(fields, service, exchange, texts);
  request.head = answer_head(service, fields, model, "cmpl-");
  const size_t best_of = request.best_of;
  const std::optional<int64_t> logprobs = request.logprobs;
  const std::optional<int64_t> prompt_top = request.echo ? logprobs : std::nullopt;
  const std::shared_ptr<const Watch> watch = request.watch;
  const auto answer = std::make_shared<CompletionAnswer>(service, exchange, streamed, std::move(request));
  for (size_t p = 0; p < texts.prompts.size(); ++p)
    for (size_t i = 0; i < best_of; ++i) {
      Work work;
      work.prompt = texts.prompts[p];
      work.options = sampled.options;
      work.stream = sampled.stream(p, i, best_of);
      work.top = logprobs.value_or(0);
      work.prompt_top = prompt_top;
      work.listener = watch->listener(p);
      answer->add(std::move(work), p, sampled);
    }
  answer->start();
}

}  // namespace vitrine::serve
