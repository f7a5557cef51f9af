#pragma once
// A cross-layer transcoder in a model's run: features of a layer are changed, and what they write into that layer and the later
// ones changes with them.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ops/context.h"
#include "sae/circuit_tracer.h"
#include "sae/splice.h"

namespace vitrine {

struct LayerFeatureEdit {
  int64_t layer = 0;
  FeatureEdit edit;
};
/// "LAYER:FEATURE=VALUE", and += and *= as parse_feature_edit. Errors: InputError that quotes `text`.
LayerFeatureEdit parse_layer_feature_edit(std::string_view text);

/// At every layer's hook_name_out: value + decode(edited features) - decode(features), of that layer and those before it, so that
/// what the transcoder does not explain is kept and a run without edits changes no bit. Features are those of the changed run.
/// Errors: InputError for a layer or feature that is not there; as SpliceListener while running; UsageError on a tape.
class CrossLayerSplice final : public Listener {
 public:
  CrossLayerSplice(std::shared_ptr<const CrossLayerTranscoder> transcoder, const std::vector<LayerFeatureEdit>& edits);

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;

 private:
  std::shared_ptr<const CrossLayerTranscoder> transcoder_;
  std::vector<std::vector<FeatureEdit>> edits_;  // of each layer
  std::vector<SparseFeatures> changes_;          // edited - original features of each layer, in the running step
};

}  // namespace vitrine
