#include "train/layer_watch.h"

#include <cmath>
#include <span>

#include "model/layer_name.h"

namespace vitrine {
namespace {

constexpr std::string_view kNormalized = ".hook_normalized";

bool is_stream(std::string_view name) {
  return name.ends_with(".hook_resid_pre") || name.ends_with(".hook_resid_mid") || name.ends_with(".hook_resid_post");
}

ActivationMoments moments(std::span<const float> numbers, size_t width) {
  ActivationMoments all;
  const size_t rows = numbers.size() / width;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> row = numbers.subspan(r * width, width);
    double mean = 0, squares = 0;
    for (const float x : row) mean += static_cast<double>(x);
    mean /= static_cast<double>(width);
    for (const float x : row) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
    all.mean += mean / static_cast<double>(rows);
    all.variance += squares / static_cast<double>(width * rows);
  }
  return all;
}

std::span<const float> numbers_of(const Tensor& t) { return {t.data<float>(), static_cast<size_t>(t.count())}; }

}  // namespace

LayerWatch::LayerWatch(const Model& model)
    : after_(model.shape().n_layers > 0 && model.layer(0).norms_after),
      residual_(model.form().residual),
      last_("blocks." + std::to_string(model.shape().n_layers - 1) + ".hook_resid_post"),
      layers_(static_cast<size_t>(model.shape().n_layers)) {}

bool LayerWatch::wants(std::string_view name) const {
  return is_stream(name) || is_stream_norm(name) || name.ends_with(".attn.hook_out") ||
         (after_ && (name.ends_with(".hook_attn_out") || name.ends_with(".hook_mlp_out")));
}

Tensor LayerWatch::see(Context&, std::string_view name, const Tensor& value) {
  const std::span<const float> numbers = numbers_of(value);
  if (is_stream_norm(name)) {
    const std::string_view norm = name.substr(0, name.size() - kNormalized.size());
    width_ = value.row_size();
    const auto width = static_cast<size_t>(width_);
    Norm seen{std::string(norm), {}, moments(numbers, width)};
    if (norm.ends_with("ln1_post") || (after_ && norm != "ln_final")) {
      if (has_input_) seen.before = moments(input_, width);
    } else if (!norm.ends_with("ln2_post")) {
      seen.before = moments(stream_, width);
    }
    norms_.push_back(std::move(seen));
    has_input_ = false;
  } else if (is_stream(name)) {
    stream_.assign(numbers.begin(), numbers.end());
  } else {  // what a norm behind it reads
    input_.assign(numbers.begin(), numbers.end());
    has_input_ = true;
    if (after_ && residual_ && !name.ends_with(".attn.hook_out"))
      for (size_t i = 0; i < input_.size(); ++i) input_[i] += stream_[i];
  }
  return {};
}

bool LayerWatch::wants_gradient(std::string_view name) const { return name.ends_with(".hook_resid_pre") || name == last_; }

void LayerWatch::see_gradient(std::string_view name, const Tensor& gradient) {
  const size_t layer = name == last_ ? layers_ : static_cast<size_t>(split_layer(name).first);
  if (gradients_.size() <= layers_) gradients_.resize(layers_ + 1);
  double squares = 0;
  for (const float g : numbers_of(gradient)) squares += static_cast<double>(g) * static_cast<double>(g);
  gradients_[layer] = std::sqrt(squares);
}

}  // namespace vitrine
