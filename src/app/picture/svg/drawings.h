#pragma once
// A picture's data (data.ts) as SVG: one drawing per picture.
#include <string>
#include <string_view>

#include "picture/data/view.h"
#include "picture/svg/svg.h"

namespace vitrine {

/// The picture `name` of a document as a standalone SVG file. Errors: InputError with the picture's reason if it is absent.
std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options = {});

Svg svg_of_tokens(const PictureView&);
Svg svg_of_merges(const PictureView&);
Svg svg_of_splits(const PictureView&);
Svg svg_of_dot_product(const PictureView&);
Svg svg_of_embedding_cosine(const PictureView&);
Svg svg_of_embedding_neighbors(const PictureView&);
Svg svg_of_position_vectors(const PictureView&);
Svg svg_of_embedding_rescaling(const PictureView&);
Svg svg_of_update_scale(const PictureView&);
Svg svg_of_residual_scale(const PictureView&);
Svg svg_of_layer_norm(const PictureView&);
Svg svg_of_norm_statistics(const PictureView&);
Svg svg_of_head_grouping(const PictureView&);
Svg svg_of_softmax(const PictureView&);
Svg svg_of_attention(const PictureView&);
Svg svg_of_soft_cap(const PictureView&);
Svg svg_of_rope_rotation(const PictureView&);
Svg svg_of_rope_wavelengths(const PictureView&);
Svg svg_of_query_length(const PictureView&);
Svg svg_of_activation_curves(const PictureView&);
Svg svg_of_mlp_surfaces(const PictureView&);
Svg svg_of_experts(const PictureView&);
Svg svg_of_expert_load(const PictureView&);
Svg svg_of_final_norm(const PictureView&);
Svg svg_of_next_tokens(const PictureView&);
Svg svg_of_logit_lens(const PictureView&);
Svg svg_of_logit_attribution(const PictureView&);
Svg svg_of_reach(const PictureView&);
Svg svg_of_gradient_norms(const PictureView&);
Svg svg_of_input_attribution(const PictureView&);
Svg svg_of_gradient_hooks(const PictureView&);
Svg svg_of_interpolation(const PictureView&);
Svg svg_of_task_vectors(const PictureView&);

}  // namespace vitrine
