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
    Drawing{"layer-norm", svg_of_layer_norm},
    Drawing{"head-grouping", svg_of_head_grouping},
    Drawing{"softmax", svg_of_softmax},
    Drawing{"attention", svg_of_attention},
    Drawing{"rope-rotation", svg_of_rope_rotation},
    Drawing{"mlp-surfaces", svg_of_mlp_surfaces},
    Drawing{"experts", svg_of_experts},
    Drawing{"next-tokens", svg_of_next_tokens},
    Drawing{"logit-lens", svg_of_logit_lens},
    Drawing{"logit-attribution", svg_of_logit_attribution},
    Drawing{"reach", svg_of_reach},
    Drawing{"interpolation", svg_of_interpolation},
    Drawing{"task-vectors", svg_of_task_vectors},
    Drawing{"block-diagram", svg_of_block_diagram},
    Drawing{"sinusoid-wheel", svg_of_sinusoid_wheel},
};

}  // namespace

std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options) {
  const PictureJson& picture = document.at("pictures").at(std::string(name));
  if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
  if (picture.contains("charts")) return svg_of_charts({document, picture, options}).finish();
  for (const Drawing& drawing : kDrawings)
    if (name == drawing.name) return drawing.draw({document, picture, options}).finish();
  throw UsageError("there is no drawing of \"" + std::string(name) + "\"");
}

}  // namespace vitrine
