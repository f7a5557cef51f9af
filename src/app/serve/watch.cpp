#include "serve/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "hooks/spliced_model.h"
#include "hooks/values_json.h"
#include "ops/listener_chain.h"
#include "requests/shared.h"
#include "serve/lora.h"

namespace vitrine::serve {
namespace {

constexpr size_t kMostStreamed = size_t{1} << 18;  // numbers; as text they fit what a stream may hold back (stream_bytes)

bool from_the_end(const HookQuery& query) {
  return query.positions && (query.positions->first.value_or(0) < 0 || query.positions->end.value_or(0) < 0);
}

}  // namespace

/// Makes the edits of one stream, and keeps what its hooks show with them.
struct Watch::Seen final : Listener {
  Seen(const std::vector<ValueEdit>& changes, const std::vector<HookRequest>& requests)
      : edits(changes), recorder(requests), chain({&edits, &recorder}) {}
  bool wants(std::string_view name) const override { return chain.wants(name); }
  bool takes() const override { return chain.takes(); }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    rows = ctx.listening_position() + value.dim(heads_first(name) ? 1 : 0);
    return chain.see(ctx, name, value);
  }

  Interventions edits;
  Recorder recorder;
  ListenerChain chain;
  int64_t rows = 0;  // that the model has read
};

const std::vector<Field>& watch_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return std::vector<Field>{
        {"edits", list,
         "Changes to the model for this request, at the prompt and at every new token, in the format of the list "
         "interventions in docs/intervene.md."},
        {"inspect", text | texts,
         "Hooks as in /v1/inspect, for the prompt and the new tokens: their values are at the end of the answer. Negative "
         "positions count from the end of the prompt."}};
  }();
  return table;
}

Watch::Watch(const Fields& fields, Service& service, const std::shared_ptr<http::Exchange>& exchange, const WatchedTexts& texts)
    : service_(service), hooks_(fields.texts("inspect")), seen_(std::make_shared<std::shared_ptr<Seen>>()) {
  const OrderedJson* edits = fields.find("edits");
  if (edits != nullptr && edits->empty()) edits = nullptr;
  const bool inspects = fields.has("inspect");
  if (inspects) {
    if (hooks_.empty()) throw invalid("inspect", "\"inspect\" is empty; name hooks, such as blocks.*.hook_resid_post");
    const auto refuse = [](const std::string& field, const std::string& problem) {
      throw invalid(field, "\"inspect\" shows one text that is made" + problem, "unsupported_parameter");
    };
    if (texts.prompts.size() > 1)
      refuse("prompt", ", and \"prompt\" holds " + std::to_string(texts.prompts.size()) + "; send a request for each");
    if (texts.choices > 1)
      refuse(texts.choices_field, ", and \"" + texts.choices_field + "\" is " + std::to_string(texts.choices) +
                                      "; leave it out, or send several requests");
    if (texts.max_tokens == 0) refuse("max_tokens", ", and \"max_tokens\" is 0; /v1/inspect reads a prompt alone");
    if (texts.scored) refuse("echo", "; with \"echo\" and \"logprobs\" its prompt is scored, so leave one of them out");
  }
  if (edits == nullptr && !inspects) return;
  adapters_ = read_adapters(fields, service);
  place_ = std::make_shared<InsideRun>(service, exchange, adapters_);
  (*place_)([&](Engine& engine) {
    if (inspects) plan_captures_of(engine, texts);
    if (edits == nullptr) return;
    for (const std::vector<int32_t>& prompt : texts.prompts) edits_.push_back(planned_edits(engine, edits, prompt)->edits());
  });
  if (!inspects) place_.reset();
}

void Watch::plan_captures_of(Engine& engine, const WatchedTexts& texts) {
  std::vector<HookQuery> queries;
  for (const std::string& hook : hooks_) queries.push_back(parse_hook_query(hook));
  const std::vector<int32_t>& prompt = texts.prompts[0];
  const int64_t room = service_.scheduler().positions() - std::ssize(prompt);
  const int64_t coming = std::clamp<int64_t>(texts.max_tokens - 1, 0, std::max<int64_t>(room, 0));  // the last one is not read
  const std::vector<Capture> captures = plan_captures(engine.model(), queries, std::ssize(prompt), coming);
  const size_t numbers = capture_bytes(captures) / sizeof(float), most = texts.streamed ? kMostStreamed : kMostNumbers;
  if (numbers > most)
    throw invalid(
        "inspect",
        fmt::format("\"inspect\" asks for {} numbers with a prompt of {} tokens and up to {} after it, and {} "
                    "holds {}; take slices such as [positions=-1], or a smaller \"{}\"{}",
                    numbers, prompt.size(), coming, texts.streamed ? "a stream" : "an answer", most, texts.max_tokens_field,
                    texts.streamed && numbers <= kMostNumbers ? ", or leave \"stream\" out" : ""));
  for (const Capture& capture : captures) requests_.push_back(capture.request);
}

std::function<std::shared_ptr<Listener>()> Watch::listener(size_t prompt) const {
  if (edits_.empty() && requests_.empty()) return {};
  return [edits = edits_.empty() ? std::vector<ValueEdit>() : edits_[prompt], requests = requests_, seen = seen_] {
    return *seen = std::make_shared<Seen>(edits, requests);
  };
}

std::string Watch::text_with_values(const OrderedJson& json, const Choice& choice) const {
  if (!inspects()) return json_text(json);
  VITRINE_CHECK(*seen_ != nullptr, "a text that has ended was seen from its beginning");
  const Seen& seen = **seen_;
  std::vector<int32_t> read = choice.prompt_ids;
  for (const Token& token : choice.tokens) read.push_back(token.id);
  read.resize(std::min(read.size(), static_cast<size_t>(seen.rows)));
  OrderedJson inspected = tokens_json(service_.engine(), read);
  const bool same_slices = std::ranges::none_of(hooks_, [](const auto& hook) { return from_the_end(parse_hook_query(hook)); });
  const bool of_files = std::ranges::none_of(seen.recorder.order(), of_autoencoder);
  if (edits_.empty() && same_slices && of_files)
    inspected["command"] = command_line(service_, trace_words(hooks_), adapters_, read);
  return with_member(json, "inspect", with_member(inspected, "hooks", hooks_text(seen.recorder)));
}

}  // namespace vitrine::serve
