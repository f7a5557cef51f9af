#pragma once
// Sampling with llama.cpp's names and defaults.
#include "jinja/jinja.h"
#include "serve/answer.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {

/// temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, in the order of llama.cpp's samplers.
SamplingOptions native_sampling();

/// generation_settings: what a request's tokens are sampled with.
OrderedJson settings_json(const GenerateOptions& options, bool streamed);

}  // namespace vitrine::serve
