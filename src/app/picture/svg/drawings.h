#pragma once
// A picture's data (data.ts) as SVG: one drawing per picture.
#include <string>
#include <string_view>

#include "picture/data/view.h"
#include "picture/svg/svg.h"

namespace vitrine {

/// The picture `name` of a document as a standalone SVG file. Errors: InputError with the picture's reason if it is absent.
std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options = {});

/// Of the charts that the picture declares.
Svg svg_of_charts(const PictureView&);

Svg svg_of_tokens(const PictureView&);
Svg svg_of_merges(const PictureView&);
Svg svg_of_splits(const PictureView&);
Svg svg_of_dot_product(const PictureView&);
Svg svg_of_layer_norm(const PictureView&);
Svg svg_of_head_grouping(const PictureView&);
Svg svg_of_softmax(const PictureView&);
Svg svg_of_attention(const PictureView&);
Svg svg_of_rope_rotation(const PictureView&);
Svg svg_of_mlp_surfaces(const PictureView&);
Svg svg_of_experts(const PictureView&);
Svg svg_of_next_tokens(const PictureView&);
Svg svg_of_logit_lens(const PictureView&);
Svg svg_of_logit_attribution(const PictureView&);
Svg svg_of_reach(const PictureView&);
Svg svg_of_interpolation(const PictureView&);
Svg svg_of_task_vectors(const PictureView&);
Svg svg_of_block_diagram(const PictureView&);
Svg svg_of_sinusoid_wheel(const PictureView&);

}  // namespace vitrine
