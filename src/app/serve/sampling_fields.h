#pragma once
// The fields that decide which tokens come and when they end; every endpoint that generates has them.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/token_sequence.h"
#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// Fields that all endpoints have whose tokens are sampled.
const std::vector<Field>& sampling_fields();
/// Fields of other servers that are ignored or refused everywhere.
const std::vector<Field>& foreign_fields();

struct Sampled {
  GenerateOptions options;                                                                        // max_tokens is the endpoint's
  ScaledAdapters adapters;                                                                        // Work::adapters
  std::string cache_salt;                                                                         // empty: none
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();  // Work::deadline
  int64_t drafts = 0;         // tokens to draft for each step (Service::drafter); 0: none
  int64_t slot = 0;           // by which its text can be saved (serve/slots.h)
  bool include_stop = false;  // the text ends with the stop string that ended it
  bool seeded = false;        // the request gives the seed: a prompt's texts are then those that it has alone

  /// Work::stream of text i of the n of prompt p.
  uint64_t stream(size_t p, size_t i, size_t n) const { return (seeded ? 0 : p * n) + i; }
};

/// Reads sampling_fields(). What the request does not say is taken from `defaults`; without a seed each request draws its own.
/// Errors: ApiError naming the field; as read_grammar (grammars.h).
Sampled read_sampling(const Fields& fields, const Service& service, const SamplingOptions& defaults);
/// OpenAI's: temperature 1, nothing else.
SamplingOptions openai_sampling();

/// The order of rules by llama.cpp's names, as apply_samplers() takes them; the bias, which always comes first, has none.
std::vector<std::string> sampler_names(const std::vector<SamplingRule>& order);
/// Takes the order and the set of rules from a list of names as llama.cpp has them ("top_k", "typ_p", "penalties"); rules that
/// are not named do not act. Errors: ApiError naming the field for an unknown name.
void apply_samplers(const std::vector<std::string>& names, SamplingOptions& sampling);

}  // namespace vitrine::serve
