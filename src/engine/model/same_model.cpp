#include "model/same_model.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/config.h"

namespace vitrine {
namespace {

class Comparison {
 public:
  explicit Comparison(const ConversionWords& words) : words_(words) {}

  void number(const std::string& what, double a, double b) const {
    if (!(std::abs(a - b) <= 1e-6 * std::abs(a))) differs(what, Json(a), Json(b));
  }
  [[noreturn]] void differs(const std::string& what, const Json& a, const Json& b) const {
    throw FileError(words_.path,
                    "gives " + what + " as " + a.dump() + ", and " + words_.says + " " + b.dump() + "; " + words_.advice);
  }
  void experts(const std::string& in, const ExpertSpec& a, const ExpertSpec& b) const {
    number("the number of experts" + in, static_cast<double>(a.count), static_cast<double>(b.count));
    number("the experts of a row" + in, static_cast<double>(a.per_row), static_cast<double>(b.per_row));
    number("whether experts are weighed by a softmax over all" + in, a.softmax_over_all ? 1 : 0, b.softmax_over_all ? 1 : 0);
    number("whether the weights of experts are divided by their sum" + in, a.renormalize ? 1 : 0, b.renormalize ? 1 : 0);
    number("whether a score of an expert is a sigmoid" + in, a.sigmoid ? 1 : 0, b.sigmoid ? 1 : 0);
    number("what is added to that sum" + in, a.sum_eps, b.sum_eps);
    number("what that sum is at least" + in, a.least_sum, b.least_sum);
    number("the factor of the weights of experts" + in, a.scale, b.scale);
    number("whether scores of experts are corrected" + in, a.correction != nullptr ? 1 : 0, b.correction != nullptr ? 1 : 0);
    number("the groups of experts" + in, static_cast<double>(a.groups), static_cast<double>(b.groups));
    number("the groups that are used" + in, static_cast<double>(a.groups_used), static_cast<double>(b.groups_used));
    number("the experts that a group is judged by" + in, static_cast<double>(a.group_best), static_cast<double>(b.group_best));
    number("how near logits of experts must be to count beside the best" + in, a.near.value_or(-1), b.near.value_or(-1));
    number("whether weights of experts multiply what they read" + in, a.weighs_inputs ? 1 : 0, b.weighs_inputs ? 1 : 0);
    number("whether experts have gates" + in, a.gated ? 1 : 0, b.gated ? 1 : 0);
    number("the largest gate of an expert" + in, a.limit, b.limit);
    number("the slope of an expert's gate" + in, a.slope, b.slope);
    if (a.activation != b.activation)
      differs("the activation of experts" + in, activation_key(a.activation), activation_key(b.activation));
  }
  void recurrence(const std::string& in, const DeltaSpec& a, const DeltaSpec& b) const {
    number("the heads of the recurrence" + in, static_cast<double>(a.n_heads), static_cast<double>(b.n_heads));
    number("its key heads" + in, static_cast<double>(a.n_key_heads), static_cast<double>(b.n_key_heads));
    number("the width of its keys" + in, static_cast<double>(a.d_key), static_cast<double>(b.d_key));
    number("the width of its values" + in, static_cast<double>(a.d_value), static_cast<double>(b.d_value));
    number("the taps of its convolution" + in, static_cast<double>(a.taps), static_cast<double>(b.taps));
  }
  void frequencies(const RopeSpec& a, const RopeSpec& b) const {
    for (const int64_t prompt : {int64_t{0}, std::numeric_limits<int64_t>::max()}) {  // of LongRoPE: short and long
      const std::vector<float> own = rope_frequencies(a, prompt), says = rope_frequencies(b, prompt);
      for (size_t i = 0; i < own.size(); ++i)
        if (!(std::abs(own[i] - says[i]) <= 1e-5f * std::abs(own[i]))) wrong_frequency(a, i, own[i], says[i]);
    }
  }

 private:
  [[noreturn]] void wrong_frequency(const RopeSpec& from, size_t i, float own, float says) const {
    if (from.divisors == nullptr) differs("frequency " + std::to_string(i) + " of RoPE", Json(own), Json(says));
    throw FileError(words_.path,
                    "divides the frequencies of RoPE by rope_freqs.weight in a way that is not llama3's with low_freq_factor "
                    "1 and high_freq_factor 4, or both 1 (frequency " +
                        std::to_string(i) + " is " + Json(own).dump() + ", the nearest such rule gives " + Json(says).dump() +
                        "); " + words_.advice);
  }
  const ConversionWords& words_;
};

}  // namespace

void check_same_model(const Model& stored, const Model& converted, const ConversionWords& words) {
  const Comparison same(words);
  const ModelShape a = stored.shape(), b = converted.shape();
  const auto factor = [&](const std::string& what, double x, double y) {
    if (!words.factors_in_weights) same.number(what, x, y);
  };
  factor("the scale of embeddings", a.embedding_scale, b.embedding_scale);
  same.number("the soft cap of logits", stored.head().softcap, converted.head().softcap);
  factor("the scale of logits", stored.head().scale, converted.head().scale);
  for (int64_t layer = 0; layer < a.n_layers; ++layer) {
    const std::string in = " in layer " + std::to_string(layer);
    const LayerRecord &x = stored.layer(layer), &y = converted.layer(layer);
    factor("the scale of scores" + in, x.attention.scale, y.attention.scale);
    same.number("the soft cap of scores" + in, x.attention.softcap, y.attention.softcap);
    same.number("the window" + in, static_cast<double>(x.attention.window), static_cast<double>(y.attention.window));
    same.number("whether the window is a chunk" + in, x.attention.chunked ? 1 : 0, y.attention.chunked ? 1 : 0);
    same.number("what norms add to the mean square" + in, x.norm.eps, y.norm.eps);
    factor("the scale of what sub-layers add" + in, x.residual_scale, y.residual_scale);
    factor("the scale of what the MLP adds" + in, x.mlp_scale, y.mlp_scale);
    same.number("whether RoPE rotates anything" + in, x.rope ? 1 : 0, y.rope ? 1 : 0);
    const TemperatureSpec tempered = x.temperature.value_or(TemperatureSpec()), says = y.temperature.value_or(TemperatureSpec());
    same.number("the scale of the temperature of attention" + in, tempered.scale, says.scale);
    same.number("the positions between steps of the temperature" + in, static_cast<double>(tempered.floor_scale),
                static_cast<double>(says.floor_scale));
    if (x.activation != y.activation)
      same.differs("the activation" + in, activation_key(x.activation), activation_key(y.activation));
    same.number("the layer whose keys are read" + in, static_cast<double>(x.keys_of), static_cast<double>(y.keys_of));
    same.number("the hidden units" + in, static_cast<double>(x.d_ff), static_cast<double>(y.d_ff));
    same.experts(in, x.experts.value_or(ExpertSpec()), y.experts.value_or(ExpertSpec()));
    if (x.conv_activation != y.conv_activation)
      same.differs("the activation of the convolution" + in, activation_key(x.conv_activation),
                   activation_key(y.conv_activation));
    same.number("whether there is a recurrence" + in, x.delta ? 1 : 0, y.delta ? 1 : 0);
    if (x.delta) same.recurrence(in, *x.delta, *y.delta);
    if (!x.rope) continue;
    same.number("RoPE's factor of cosines and sines" + in, x.rope->attention_factor, y.rope->attention_factor);
    same.number("the first rotating component of a head" + in, static_cast<double>(x.rope->first),
                static_cast<double>(y.rope->first));
    same.number("the rotating components of a head" + in, static_cast<double>(x.rope->rotary_dim),
                static_cast<double>(y.rope->rotary_dim));
    same.frequencies(*x.rope, *y.rope);
  }
}

}  // namespace vitrine
