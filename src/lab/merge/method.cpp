#include "merge/method.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "merge/methods.h"

namespace vitrine {
namespace {

using Base = MergeMethod::Base;
using Kind = ParameterSpec::Kind;
using Scope = ParameterScope;

const ParameterSpec kWeight{"weight", Kind::number, Scope::non_base, {}, "what the model's change counts"};

// What the methods that add pruned task vectors have in common.
std::vector<ParameterSpec> pruned(bool normalize, bool rescale, std::vector<ParameterSpec> more = {}) {
  std::vector<ParameterSpec> specs = {
      kWeight,
      {"density", Kind::number, Scope::non_base, 1.0, "the share of a task vector that is kept"},
      {"normalize", Kind::flag, Scope::shared, normalize ? 1.0 : 0.0, "divide by the sum of the weights"},
      {"rescale", Kind::flag, Scope::shared, rescale ? 1.0 : 0.0, "give what is kept the L1 norm of the whole"},
      {"lambda", Kind::number, Scope::shared, 1.0, "a factor of the merged change"},
      {"int8_mask", Kind::flag, Scope::shared, 0.0, "without effect: masks take no memory here"}};
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

const ParameterSpec kGamma{"gamma", Kind::number, Scope::non_base, 0.01, "the share of the largest changes that is dropped"};
const ParameterSpec kEpsilon{"epsilon", Kind::number, Scope::non_base, 0.15,
                             "how far the chance to be kept goes up and down with the magnitude"};

std::vector<MergeMethod> table() {
  return {
      {"linear",
       "Linear",
       "https://arxiv.org/abs/2203.05482",
       merge_linear,
       {{"weight", Kind::number, Scope::input, {}, "what the model counts"},
        {"normalize", Kind::flag, Scope::shared, 1.0, "divide by the sum of the weights"}}},
      {"slerp",
       "SLERP",
       "https://en.wikipedia.org/wiki/Slerp",
       merge_slerp,
       {{"t", Kind::number, Scope::shared, {}, "the place between the base (0) and the other model (1)"}},
       Base::required,
       2,
       2,
       0,
       0,
       IfMissing::copy_single},
      {"nuslerp",
       "NuSLERP",
       "",
       merge_nuslerp,
       {kWeight,
        {"nuslerp_flatten", Kind::flag, Scope::shared, 1.0, "one angle for the whole tensor"},
        {"nuslerp_row_wise", Kind::flag, Scope::shared, 0.0,
         "without flattening: an angle along the first dimension, not the last"}},
       Base::optional,
       1,
       0,
       2,
       2,
       IfMissing::copy_single},
      {"multislerp",
       "Multi-SLERP",
       "https://goddard.blog/posts/multislerp-wow-what-a-cool-idea",
       merge_multislerp,
       {kWeight,
        {"normalize_weights", Kind::flag, Scope::shared, 1.0, "divide the weights by their sum"},
        {"eps", Kind::number, Scope::shared, 1e-8, "what is added to norms"}},
       Base::optional,
       1,
       0,
       1,
       0},
      {"karcher",
       "Karcher Mean",
       "https://arxiv.org/abs/2603.04972",
       merge_karcher,
       {{"max_iter", Kind::whole, Scope::shared, 10.0, "iterations at most"},
        {"tol", Kind::number, Scope::shared, 1e-5, "the step at which it has converged"}}},
      {"task_arithmetic", "Task Arithmetic", "https://arxiv.org/abs/2212.04089", merge_task_arithmetic, pruned(false, false),
       Base::required},
      {"ties", "TIES", "https://arxiv.org/abs/2306.01708", merge_ties, pruned(true, false), Base::required},
      {"dare_linear", "Linear DARE", "https://arxiv.org/abs/2311.03099", merge_dare_linear, pruned(false, true), Base::required},
      {"dare_ties", "DARE TIES", "https://arxiv.org/abs/2311.03099", merge_dare_ties, pruned(false, true), Base::required},
      {"della", "DELLA", "https://arxiv.org/abs/2406.11617", merge_della, pruned(true, true, {kEpsilon}), Base::required},
      {"della_linear", "Linear DELLA", "https://arxiv.org/abs/2406.11617", merge_della_linear, pruned(false, true, {kEpsilon}),
       Base::required},
      {"breadcrumbs", "Model Breadcrumbs", "https://arxiv.org/abs/2312.06795", merge_breadcrumbs, pruned(false, false, {kGamma}),
       Base::required},
      {"breadcrumbs_ties", "Model Breadcrumbs with TIES", "https://arxiv.org/abs/2312.06795", merge_breadcrumbs_ties,
       pruned(false, false, {kGamma}), Base::required},
      {"sce",
       "SCE",
       "https://arxiv.org/abs/2408.07990",
       merge_sce,
       {{"select_topk", Kind::number, Scope::shared, 1.0, "the share of elements, by variance, that is merged"},
        {"int8_mask", Kind::flag, Scope::shared, 0.0, "without effect: masks take no memory here"}},
       Base::required},
      {"model_stock",
       "Model Stock",
       "https://arxiv.org/abs/2403.19522",
       merge_model_stock,
       {{"filter_wise", Kind::flag, Scope::shared, 0.0, "angles of rows, not of whole tensors"}},
       Base::required,
       3,
       0,
       0,
       0,
       IfMissing::copy_base_or_skip},
      {"nearswap",
       "NearSwap",
       "https://huggingface.co/alchemonaut/QuartetAnemoi-70B-t0.0001",
       merge_nearswap,
       {{"t", Kind::number, Scope::shared, {}, "the distance within which the other model's value is taken"}},
       Base::required,
       2,
       2,
       0,
       0,
       IfMissing::copy_single_base},
      {"arcee_fusion",
       "Arcee Fusion",
       "https://arcee.ai",
       merge_arcee_fusion,
       {},
       Base::required,
       2,
       2,
       0,
       0,
       IfMissing::copy_single},
      {"passthrough",
       "Passthrough",
       "",
       merge_passthrough,
       {{"scale", Kind::number, Scope::input, 1.0, "a factor"}},
       Base::ignored,
       1,
       1},
      {"ram",
       "Reinforced Agent Merging",
       "https://arxiv.org/abs/2601.13572",
       merge_ram,
       {{"epsilon", Kind::number, Scope::shared, 1e-5, "the change from which on an element counts as changed"}},
       Base::required},
      {"ramplus_tl",
       "Reinforced Agent Merging Plus (tensor-local)",
       "https://arxiv.org/abs/2601.13572",
       merge_ramplus_tl,
       {{"r", Kind::number, Scope::shared, 0.1, "how much unique changes gain from shared ones"},
        {"alpha", Kind::number, Scope::shared, 0.2, "the most that their ratio counts"},
        {"epsilon", Kind::number, Scope::shared, 1e-5, "the change from which on an element counts as changed"}},
       Base::required},
      // The parts of WARP, which mergekit lacks (arXiv:2406.16768).
      {"ema",
       "Exponential moving average",
       "https://arxiv.org/abs/2406.16768",
       merge_ema,
       {{"mu", Kind::number, Scope::shared, {}, "what the next checkpoint counts against the average so far"}}},
      {"slerp_task_vectors",
       "SLERP of task vectors",
       "https://arxiv.org/abs/2406.16768",
       merge_slerp_task_vectors,
       {{"t", Kind::number, Scope::shared, 0.5,
         "of two models: the place between the first (0) and the second (1); more count alike"},
        {"layer_wise", Kind::flag, Scope::shared, 1.0, "one angle for all tensors of a layer, not one for each tensor"}},
       Base::required,
       3},
      {"liti",
       "Linear interpolation towards initialization",
       "https://arxiv.org/abs/2406.16768",
       merge_liti,
       {{"eta", Kind::number, Scope::shared, {}, "the place between the base (0) and the other model (1)"}},
       Base::required,
       2,
       2},
  };
}

}  // namespace

double MethodParameters::number(std::string_view name) const {
  const auto found = shared.find(name);
  VITRINE_CHECK(found != shared.end(), "a method asks for parameters of its table line only");
  return found->second;
}

const std::vector<double>& MethodParameters::each(std::string_view name) const {
  const auto found = per_input.find(name);
  VITRINE_CHECK(found != per_input.end(), "a method asks for parameters of its table line only");
  return found->second;
}

const std::vector<MergeMethod>& merge_methods() {
  static const std::vector<MergeMethod> methods = table();
  return methods;
}

const MergeMethod& find_merge_method(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const MergeMethod& method : merge_methods()) {
    if (name == method.name) return method;
    names.emplace_back(method.name);
  }
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  const std::string meant = meant_by(name, names);
  throw UsageError(where + " is \"" + std::string(name) + "\", which is no merge method" +
                   (meant.empty() ? "" : "; did you mean " + meant + "?") +
                   (meant.empty() ? "; expected one of " : " There are ") + all);
}

}  // namespace vitrine
