#pragma once
// A model and the same model in another file (quantized, rounded), over a text: how far their predictions and their layers are
// apart.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evaluate/perplexity.h"

namespace vitrine {

/// A mean over tokens with its standard error.
struct MeanOfTokens {
  double mean = 0, error = 0;

  VITRINE_MEMBERS(mean, error);
};

struct TextComparison {
  /// The residual stream at one point, over all scored positions.
  struct Layer {
    std::string point;             // "embedding", then "layer 0", …
    std::optional<int64_t> layer;  // none: the embedding
    double cosine = 1;             // mean
    double relative = 0;           // |b - a| / |a|
    double distance = 0;           // 1 - cosine where it is largest

    VITRINE_MEMBERS(point, layer, cosine, relative, distance);
  };
  WindowDefinition definition;
  std::vector<std::string> dtypes_a, dtypes_b;
  int64_t windows = 0, tokens = 0;
  MeanOfTokens kl;               // KL(a || b) in nats
  std::vector<float> kl_sorted;  // of every token, smallest first
  MeanOfTokens same_top;         // share of tokens at which both find the same token most likely
  MeanOfTokens nll_a, nll_b;     // -ln p of the text's tokens
  MeanOfTokens nll_difference;   // of b minus that of a, token by token
  MeanOfTokens prob_difference;  // of the text's token, b minus a
  double prob_difference_rms = 0;
  std::vector<Layer> layers;  // the embedding first
  EvaluationTime timings;

  /// The KL below which that share of the tokens lies.
  double kl_quantile(double share) const;
};

/// `a` is the reference, and its tokenizer reads the texts. Without a context in `options`, windows have at most 512 tokens; they
/// do not overlap unless a stride is given. Errors: InputError where the models' sizes differ; as perplexity; for a context whose
/// streams do not fit into memory; as SharedWork::unit.
/// shared: whose units are the windows; without it all are computed here. Unless it gives all, the result has counts and no
/// means.
TextComparison compare_on_texts(Engine& a, Engine& b, std::span<const std::string> texts, WindowOptions options,
                                const EvaluationProgress& progress = {}, SharedWork* shared = nullptr);

}  // namespace vitrine
