#include "serve/openai_answer.h"

#include "serve/token_text.h"

namespace vitrine::serve {

AnswerHead answer_head(const Service& service, const Fields& fields, const std::string& model, const std::string& prefix) {
  AnswerHead head{random_id(prefix), model, service.fingerprint(), std::time(nullptr), nullptr};
  if (!fields.ignored().empty()) head.ignored = fields.ignored();
  return head;
}

OrderedJson head_json(const AnswerHead& head, const char* object, bool with_ignored) {
  OrderedJson json = {{"id", head.id},
                      {"object", object},
                      {"created", head.created},
                      {"model", head.model},
                      {"system_fingerprint", head.fingerprint}};
  if (with_ignored && !head.ignored.is_null()) json["ignored_fields"] = head.ignored;
  return json;
}

OrderedJson usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

OrderedJson timings_json(const EndEvent& end, size_t made) {
  const Timings& t = end.timings;
  const int64_t read = t.prompt_tokens - end.cached_tokens;
  const auto per_token = [](double ms, int64_t n) { return n > 0 ? ms / static_cast<double>(n) : 0.0; };
  const auto per_second = [](double ms, int64_t n) { return ms > 0 ? 1000 * static_cast<double>(n) / ms : 0.0; };
  OrderedJson json = {{"cache_n", end.cached_tokens},
                      {"prompt_n", read},
                      {"prompt_ms", t.prompt_ms},
                      {"prompt_per_token_ms", per_token(t.prompt_ms, read)},
                      {"prompt_per_second", per_second(t.prompt_ms, read)},
                      {"predicted_n", made},
                      {"predicted_ms", t.decode_ms},
                      {"predicted_per_token_ms", per_token(t.decode_ms, t.decode_tokens)},
                      {"predicted_per_second", per_second(t.decode_ms, t.decode_tokens)}};
  if (t.drafted_tokens > 0) json.update({{"draft_n", t.drafted_tokens}, {"draft_n_accepted", t.accepted_tokens}});
  return json;
}

void check_room(Service& service, size_t prompt_tokens, const std::string& field) {
  const int64_t positions = service.scheduler().positions();
  if (positions == 0 || static_cast<int64_t>(prompt_tokens) <= positions) return;
  ApiError error(400, "context_length_exceeded",
                 "the prompt has " + std::to_string(prompt_tokens) + " tokens, and the context holds " +
                     std::to_string(positions) + "; nothing is cut, so shorten the prompt",
                 field);
  // As llama.cpp's server tells it; the code is OpenAI's.
  error.more = {{"type", "exceed_context_size_error"}, {"n_prompt_tokens", prompt_tokens}, {"n_ctx", positions}};
  throw error;
}

void check_streams(const Service& service, size_t streams, const std::string& field) {
  const SchedulerOptions& o = service.scheduling();
  const bool of_one = o.waiting_per_owner > 0 && o.waiting_per_owner < o.waiting;
  const int64_t most = o.running + (of_one ? o.waiting_per_owner : o.waiting);
  if (static_cast<int64_t>(streams) <= most) return;
  throw invalid(field, "the request asks for " + std::to_string(streams) + " texts at once; this server runs and queues " +
                           std::to_string(most) + (of_one ? " of one client" : "") + " at most, so send several requests");
}

OrderedJson token_json(const Engine& engine, int32_t token, float logprob) {
  const std::string bytes = token_bytes(engine, token);
  return {{"id", token}, {"token", token_text(engine, token)}, {"logprob", logprob}, {"bytes", bytes_json(bytes)}};
}

bool wants_stream_usage(Fields& fields, bool streamed) {
  const OrderedJson* options = fields.find("stream_options");
  if (options == nullptr) return false;
  if (!streamed)
    throw invalid("stream_options", "\"stream_options\" is given without \"stream\": true; leave it out or stream the answer");
  bool usage = false;
  for (const auto& [name, value] : options->items()) {
    if (name == "include_usage") {
      if (!value.is_boolean() && !value.is_null())
        throw invalid("stream_options.include_usage", "\"include_usage\" is " + kind_of(value) + "; expected true or false",
                      "invalid_type");
      usage = value.is_boolean() && value.get<bool>();
    } else {
      fields.ignore("stream_options." + name);
    }
  }
  return usage;
}

}  // namespace vitrine::serve
