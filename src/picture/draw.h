#pragma once
// Drawing a picture's data (data.ts) as SVG.
#include <string>
#include <vector>

#include "picture/picture.h"
#include "picture/svg.h"

namespace vitrine {

/// What drawing needs beside the picture: the document's tokens and spellings.
struct Canvas {
  const PictureJson& document;
  const PictureJson& picture;
  const PictureOptions& options;
  std::string title() const { return picture.at("title").get<std::string>(); }
  std::string alt() const { return picture.at("alt").get<std::string>(); }
  /// The spelling of an id, cut to so many characters.
  std::string spelling(int64_t id, size_t most = 14) const;
  std::string token_at(size_t position, size_t most = 14) const;
  size_t tokens() const { return document.at("tokens").size(); }
};

/// At most so many characters, with … for the rest; spaces, tabs and line ends are made visible.
std::string shortened(const std::string& text, size_t most = std::string::npos);

/// The numbers of a Packed grid, row by row; a causal one has zeros above its diagonals.
std::vector<double> unpacked(const PictureJson& packed);
/// A list of numbers; null is NaN.
std::vector<double> number_list(const PictureJson& list);

Svg svg_of_tokens(const Canvas&);
Svg svg_of_merges(const Canvas&);
Svg svg_of_splits(const Canvas&);
Svg svg_of_dot_product(const Canvas&);
Svg svg_of_embedding_cosine(const Canvas&);
Svg svg_of_embedding_neighbours(const Canvas&);
Svg svg_of_position_vectors(const Canvas&);
Svg svg_of_embedding_rescaling(const Canvas&);
Svg svg_of_update_scale(const Canvas&);
Svg svg_of_residual_scale(const Canvas&);
Svg svg_of_layer_norm(const Canvas&);
Svg svg_of_norm_statistics(const Canvas&);
Svg svg_of_head_grouping(const Canvas&);
Svg svg_of_softmax(const Canvas&);
Svg svg_of_attention(const Canvas&);
Svg svg_of_soft_cap(const Canvas&);
Svg svg_of_rope_rotation(const Canvas&);
Svg svg_of_rope_wavelengths(const Canvas&);
Svg svg_of_query_length(const Canvas&);
Svg svg_of_activation_curves(const Canvas&);
Svg svg_of_mlp_surfaces(const Canvas&);
Svg svg_of_final_norm(const Canvas&);
Svg svg_of_next_tokens(const Canvas&);
Svg svg_of_logit_lens(const Canvas&);
Svg svg_of_logit_attribution(const Canvas&);
Svg svg_of_reach(const Canvas&);
Svg svg_of_gradient_norms(const Canvas&);
Svg svg_of_input_attribution(const Canvas&);
Svg svg_of_gradient_hooks(const Canvas&);

}  // namespace vitrine
