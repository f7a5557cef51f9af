#pragma once
// A GGUF model in the form of a Hugging Face directory, to be learned or written.
#include "model/load.h"

namespace vitrine {

/// What config.json would say of a GGUF model, computed from the opened model itself. Numbers that GGUF holds as f32 become the
/// shortest decimals that round to them. Dropout is 0: GGUF has no word for it.
Json huggingface_config(const OpenedModel& gguf);

/// The model of `config`, which is huggingface_config() with what may be changed about it, on the values of a GGUF file: names,
/// order of rows and meaning are those of the Hugging Face file. Matrices stay where they lie, in their type (so that of GPT-2
/// they are [out, in]); only Llama's W_Q and W_K, whose rows change places, heads that lie in another order, gpt-oss's gates and
/// ups, which become one matrix, and norms that hold 1 + w are copied. files.kind becomes huggingface; `gguf` stays, for the
/// vocabulary.
/// Errors: FileError naming what no config.json can say: RoPE that turns a part of a head, divisors of its frequencies that are
/// not llama3's, a window on Llama with biases.
OpenedModel as_huggingface(OpenedModel gguf, Json config);
/// With its own configuration. Of a Hugging Face directory with packed weights: the model that it holds without the packing (of
/// gpt-oss matrices [in, out]), on the same values. Any other model is returned as it is.
OpenedModel as_huggingface(OpenedModel opened);

}  // namespace vitrine
