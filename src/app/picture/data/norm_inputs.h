#pragma once
// What enters each norm, from the hooks before it: a norm's own hooks show its scale and its result only.
#include <span>
#include <string_view>
#include <vector>

#include "picture/data/facts.h"

namespace vitrine {

/// Follows the hooks of a run in order and answers what the norm that comes next reads.
/// - a norm in front of a sub-layer, and the final one: the stream (hook_resid_pre, _mid, _post);
/// - a norm on a sub-layer's output (Gemma 2, OLMo 2): attn.hook_out; for the MLP, which has no hook there, what the norm divided
///   times what it divided by, or what set_mlp_output was given;
/// - a norm after the sum (classic decoder): the stream plus hook_attn_out or hook_mlp_out.
class NormInputs {
 public:
  explicit NormInputs(const ModelFacts& facts) : place_(facts.norm_place) {}

  bool wants(std::string_view name) const {
    if (name.ends_with(".hook_resid_pre") || name.ends_with(".hook_resid_mid") || name.ends_with(".hook_resid_post")) return true;
    if (place_ == NormPlace::after) return name.ends_with(".hook_attn_out") || name.ends_with(".hook_mlp_out");
    if (place_ == NormPlace::before) return false;
    return name.ends_with(".attn.hook_out") || name.ends_with("ln2_post.hook_scale") ||
           name.ends_with("ln2_post.hook_normalized_pre");
  }

  void see(std::string_view name, const Tensor& value) {
    const auto copy = [&](std::vector<float>& to) { to.assign(value.data<float>(), value.data<float>() + value.count()); };
    if (name.ends_with(".hook_resid_pre") || name.ends_with(".hook_resid_mid") || name.ends_with(".hook_resid_post"))
      copy(stream_);
    if (place_ == NormPlace::after && (name.ends_with(".hook_attn_out") || name.ends_with(".hook_mlp_out"))) {
      copy(input_);
      for (size_t i = 0; i < input_.size(); ++i) input_[i] += stream_[i];
    }
    if (place_ == NormPlace::before || place_ == NormPlace::after) return;
    if (name.ends_with(".attn.hook_out")) copy(input_);
    if (name.ends_with("ln2_post.hook_scale")) copy(scale_);
    if (name.ends_with("ln2_post.hook_normalized_pre") && !given_) {
      copy(input_);
      const auto width = static_cast<size_t>(value.row_size());
      for (size_t i = 0; i < input_.size(); ++i) input_[i] *= scale_[i / width];
    }
  }
  void set_mlp_output(const Tensor& value) {
    input_.assign(value.data<float>(), value.data<float>() + value.count());
    given_ = true;
  }

  /// `norm` is "blocks.0.ln1", …; valid until the next hook.
  std::span<const float> input_of(std::string_view norm) const {
    const bool of_stream = norm == "ln_final" || (place_ != NormPlace::after && !norm.ends_with("_post"));
    return of_stream ? stream_ : input_;
  }

 private:
  NormPlace place_;
  std::vector<float> stream_, input_, scale_;
  bool given_ = false;
};

}  // namespace vitrine
