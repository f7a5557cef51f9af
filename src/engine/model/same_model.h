#pragma once
// Whether a model is still the same after its configuration was written in the words of another format.
#include <string>

#include "model/model.h"

namespace vitrine {

/// What a message says of the two sides of a conversion.
struct ConversionWords {
  std::string path;                 // of the model as it is
  std::string says;                 // how the other form is called: "its family's config.json can only say"
  std::string advice;               // "such a model has no form as a Hugging Face directory. Run it as it is"
  bool factors_in_weights = false;  // the other form's weights hold the factors of embeddings, scores, updates and logits
};

/// Compares what `stored` computes with what `converted`, read from the other format's words, would: scales, soft caps, windows,
/// norms, activations and the frequencies of RoPE. Numbers may differ by the rounding to f32.
/// Errors: FileError naming the first that differs.
void check_same_model(const Model& stored, const Model& converted, const ConversionWords& words);

}  // namespace vitrine
