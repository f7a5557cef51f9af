#include "sae/cross_layer_splice.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/table.h"

namespace vitrine {

LayerFeatureEdit parse_layer_feature_edit(std::string_view text) {
  LayerFeatureEdit result;
  const size_t colon = text.find(':');
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), result.layer);
  if (colon == std::string_view::npos || error != std::errc() || end != text.data() + colon || result.layer < 0)
    throw InputError("\"" + std::string(text) +
                     "\": features of a cross-layer transcoder belong to a layer; expected LAYER:FEATURE=VALUE, such as 3:12=0");
  result.edit = parse_feature_edit(text.substr(colon + 1));
  return result;
}

CrossLayerSplice::CrossLayerSplice(std::shared_ptr<const CrossLayerTranscoder> transcoder,
                                   const std::vector<LayerFeatureEdit>& edits)
    : transcoder_(std::move(transcoder)), edits_(transcoder_->layers.size()), changes_(transcoder_->layers.size()) {
  for (const auto& [layer, edit] : edits) {
    if (layer < 0 || layer >= transcoder_->n_layers)
      throw InputError("there is no layer " + std::to_string(layer) + "; the cross-layer transcoder has layers 0 to " +
                       std::to_string(transcoder_->n_layers - 1));
    edits_[static_cast<size_t>(layer)].push_back(edit);
    check_edits(transcoder_->layers[static_cast<size_t>(layer)], {edit}, "layer " + std::to_string(layer));
  }
}

bool CrossLayerSplice::wants(std::string_view name) const {
  for (size_t i = 0; i < edits_.size(); ++i) {
    const SparseAutoencoder& layer = transcoder_->layers[i];
    if (!edits_[i].empty() && layer.hook_name == name) return true;
    const bool before = std::any_of(edits_.begin(), edits_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                    [](const auto& edits) { return !edits.empty(); });
    if (before && layer.hook_name_out == name) return true;
  }
  return false;
}

Tensor CrossLayerSplice::see(Context& ctx, std::string_view name, const Tensor& value) {
  const CrossLayerTranscoder& t = *transcoder_;
  if (ctx.tape() != nullptr) throw UsageError("gradients through a cross-layer transcoder are not computed");
  if (value.dtype() != DType::f32 || (value.rows() > 0 && value.row_size() != t.d_model))
    throw ShapeError("the cross-layer transcoder takes f32 rows of " + std::to_string(t.d_model) + " numbers, and the value at " +
                     std::string(name) + " is " + value.shape().text() + "; is it of this model?");
  const auto d = static_cast<size_t>(t.d_model);
  Tensor result;
  for (size_t i = 0; i < t.layers.size(); ++i) {
    const SparseAutoencoder& layer = t.layers[i];
    if (layer.hook_name == name && !edits_[i].empty()) {
      const SparseFeatures features = encode(ctx, layer, value.data<float>(), value.rows());
      changes_[i] = difference(edited(features, edits_[i], ctx.listening_position()), features);
    }
    if (layer.hook_name_out != name) continue;
    result = ctx.empty(value.shape());
    std::memcpy(result.raw(), value.raw(), value.bytes());
    for (size_t from = 0; from <= i; ++from) {
      if (edits_[from].empty()) continue;
      const SparseFeatures& change = changes_[from];
      if (change.rows() != value.rows())
        throw UsageError("the run reached " + std::string(name) + " before " + t.layers[from].hook_name +
                         ", where features are read");
      for (int64_t r = 0; r < value.rows(); ++r)
        for (auto e = static_cast<size_t>(change.begin[static_cast<size_t>(r)]);
             e < static_cast<size_t>(change.begin[static_cast<size_t>(r) + 1]); ++e)
          kernels().add_scaled(t.layers[from].direction(change.index[e]).data() + (i - from) * d, change.value[e], d,
                               result.data<float>() + r * t.d_model);
    }
  }
  return result;
}

}  // namespace vitrine
