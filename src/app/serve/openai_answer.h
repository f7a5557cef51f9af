#pragma once
// What answers in OpenAI's form have in common.
#include <ctime>
#include <set>
#include <string>

#include "requests/fields.h"
#include "serve/answer.h"

namespace vitrine::serve {

/// The fields at the head of an answer and of each chunk.
struct AnswerHead {
  std::string id, model;
  std::string fingerprint;
  std::time_t created = 0;
  OrderedJson ignored = nullptr;  // names of fields that change nothing; null: none
};
AnswerHead answer_head(const Service& service, const Fields& fields, const std::string& model, const std::string& prefix);
/// {id, object, created, model, system_fingerprint}, and ignored_fields where asked for.
OrderedJson head_json(const AnswerHead& head, const char* object, bool with_ignored);

OrderedJson usage_json(const Usage& usage);
/// llama.cpp's: counts, milliseconds and rates of one stream that made `made` tokens. The rates of what was predicted are over
/// all tokens but the first, which the prompt's logits give.
OrderedJson timings_json(const EndEvent& end, size_t made);

/// Errors: ApiError 400 context_length_exceeded with both numbers, also as members of the error, for a prompt that leaves no room
/// for a token.
void check_room(Service& service, size_t prompt_tokens, const std::string& field);
/// Errors: ApiError 400 for more streams than may run and wait together, of one client where that is less.
void check_streams(const Service& service, size_t streams, const std::string& field);

/// {token, logprob, bytes}
OrderedJson token_json(const Engine& engine, int32_t token, float logprob);

/// stream_options of a request. Errors: ApiError for stream_options without stream, and for unknown keys.
bool wants_stream_usage(Fields& fields, bool streamed);

}  // namespace vitrine::serve
