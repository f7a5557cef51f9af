// From a document to one SVG.
#include "picture/svg/drawings.h"

#include <array>

#include "base/error.h"

namespace vitrine {
namespace {

struct Drawing {
  const char* name;
  Svg (*draw)(const PictureView&);
};
constexpr std::array kDrawings = {
    Drawing{"dot-product", svg_of_dot_product},
    Drawing{"tokens", svg_of_tokens},
    Drawing{"merges", svg_of_merges},
    Drawing{"splits", svg_of_splits},
    Drawing{"embedding-cosine", svg_of_embedding_cosine},
    Drawing{"embedding-neighbors", svg_of_embedding_neighbors},
    Drawing{"position-vectors", svg_of_position_vectors},
    Drawing{"embedding-rescaling", svg_of_embedding_rescaling},
    Drawing{"update-scale", svg_of_update_scale},
    Drawing{"residual-scale", svg_of_residual_scale},
    Drawing{"layer-norm", svg_of_layer_norm},
    Drawing{"norm-statistics", svg_of_norm_statistics},
    Drawing{"head-grouping", svg_of_head_grouping},
    Drawing{"softmax", svg_of_softmax},
    Drawing{"attention", svg_of_attention},
    Drawing{"soft-cap", svg_of_soft_cap},
    Drawing{"rope-rotation", svg_of_rope_rotation},
    Drawing{"rope-wavelengths", svg_of_rope_wavelengths},
    Drawing{"query-length", svg_of_query_length},
    Drawing{"activation-curves", svg_of_activation_curves},
    Drawing{"mlp-surfaces", svg_of_mlp_surfaces},
    Drawing{"experts", svg_of_experts},
    Drawing{"expert-load", svg_of_expert_load},
    Drawing{"final-norm", svg_of_final_norm},
    Drawing{"next-tokens", svg_of_next_tokens},
    Drawing{"logit-lens", svg_of_logit_lens},
    Drawing{"logit-attribution", svg_of_logit_attribution},
    Drawing{"input-attribution", svg_of_input_attribution},
    Drawing{"reach", svg_of_reach},
    Drawing{"gradient-norms", svg_of_gradient_norms},
    Drawing{"gradient-hooks", svg_of_gradient_hooks},
    Drawing{"interpolation", svg_of_interpolation},
    Drawing{"task-vectors", svg_of_task_vectors},
};

}  // namespace

std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options) {
  const PictureJson& picture = document.at("pictures").at(std::string(name));
  if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
  for (const Drawing& drawing : kDrawings)
    if (name == drawing.name) return drawing.draw({document, picture, options}).finish();
  throw UsageError("there is no drawing of \"" + std::string(name) + "\"");
}

}  // namespace vitrine
