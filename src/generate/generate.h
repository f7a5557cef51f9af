#pragma once
// The generation loop: prompt in, tokens out, one at a time or by beams.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/beam.h"
#include "generate/engine.h"
#include "generate/sampling_options.h"

namespace vitrine {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingOptions sampling = {};
  std::vector<int32_t> eos = {};  // tokens that end the text; ignored if ignore_eos
  bool ignore_eos = false;
  std::vector<std::string> stops = {};  // strings that end the text, wherever token borders lie
};

struct Timings {
  double load_ms = 0;  // set by the caller
  int64_t prompt_tokens = 0;
  double prompt_ms = 0;
  int64_t decode_tokens = 0;
  double decode_ms = 0;
};

struct Generation {
  std::vector<int32_t> tokens;  // the new ones, with the end token that was taken, as Hugging Face returns them
  std::vector<float> logprobs;  // of each, under the unmodified logits
  std::string text;             // without the end token; empty if the model has no tokenizer
  std::string finish_reason;    // "stop": an end token or a stop string; "length": max_tokens or the context is full
  Timings timings;
};

/// Continues `prompt`. on_text, if given, receives the text as it becomes certain: never half a character, never part of
/// a stop string. With tokens only (no tokenizer) stop strings are refused.
/// Errors: as Engine::check_ids; UsageError for options out of range; RunError for NaN.
Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text = {});

/// Continues `prompt` by beam search; hypotheses best first. options.eos are the caller's to set.
/// Errors: as generate.
std::vector<Hypothesis> generate_beams(Engine& engine, std::span<const int32_t> prompt, const BeamOptions& options,
                                       Timings* timings = nullptr);

}  // namespace vitrine
