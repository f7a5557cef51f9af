#include "sae/splice.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// What backward needs: the features that were active, and what of its gradient each passes on to its pre-activation.
struct SpliceNode {
  Tensor input, result;
  const SparseAutoencoder* sae;  // lives as long as who spliced it
  const int64_t* begin;          // [rows + 1]; in the tape's memory, as the others
  const int32_t* index;
  const float* slope;
};

// How much of a feature's gradient reaches it through the edits.
float passed_on(const std::vector<FeatureEdit>& edits, int32_t feature, int64_t position) {
  float factor = 1;
  for (const FeatureEdit& e : edits) {
    if (e.feature != feature || position < e.first || position >= e.end) continue;
    if (e.kind == FeatureEdit::Kind::set) factor = 0;
    if (e.kind == FeatureEdit::Kind::scale) factor *= e.value;
  }
  return factor;
}

// dx += W_enc diag(slope) W_dec dy over the active features of each row; dx += dy W_skip.
void splice_backward(Context&, Tape& tape, const SpliceNode& n) {
  const Tensor dy = tape.gradient(n.result);
  if (!dy) return;
  const SparseAutoencoder& sae = *n.sae;
  const Tensor dx = tape.accumulate(n.input);
  if (!dx) return;
  const auto& dot = kernels().dot;
  const auto in = static_cast<size_t>(sae.d_in), out = static_cast<size_t>(sae.d_out), all = static_cast<size_t>(sae.d_sae);
  for (int64_t r = 0; r < n.result.rows(); ++r) {
    const float* from = dy.data<float>() + r * sae.d_out;
    float* to = dx.data<float>() + r * sae.d_in;
    const auto row = static_cast<size_t>(r);
    for (int64_t e = n.begin[row]; e < n.begin[row + 1]; ++e) {
      const auto f = static_cast<size_t>(n.index[e]);
      const float g = n.slope[e] * dot(sae.direction(static_cast<int64_t>(f)).data(), from, out);
      if (g == 0) continue;
      for (size_t i = 0; i < in; ++i) to[i] += g * sae.W_enc[i * all + f];
    }
    if (sae.W_skip.empty()) continue;
    for (size_t j = 0; j < out; ++j) kernels().add_scaled(sae.W_skip.data() + j * in, from[j], in, to);
  }
}

int64_t width(const Tensor& t) { return t.rows() == 0 ? 0 : t.count() / t.rows(); }

void check_width(const SparseAutoencoder& sae, const Tensor& t, int64_t expected, const std::string& hook) {
  if (t.dtype() != DType::f32) throw UsageError("an autoencoder runs in f32, and the value at " + hook + " is in f64");
  if (t.rows() > 0 && width(t) != expected)
    throw ShapeError("the autoencoder for " + hook + " takes rows of " + std::to_string(expected) + " numbers (d_in " +
                     std::to_string(sae.d_in) + ", d_out " + std::to_string(sae.d_out) + "), and the value there is " +
                     t.shape().text() + "; is it of this model and this hook?");
}

void append(SparseFeatures& to, const SparseFeatures& from) {
  if (to.begin.empty()) to.begin.push_back(0);
  const auto first = static_cast<int64_t>(to.index.size());
  for (size_t r = 1; r < from.begin.size(); ++r) to.begin.push_back(first + from.begin[r]);
  to.index.insert(to.index.end(), from.index.begin(), from.index.end());
  to.value.insert(to.value.end(), from.value.begin(), from.value.end());
  to.shift.insert(to.shift.end(), from.shift.begin(), from.shift.end());
  to.unscale.insert(to.unscale.end(), from.unscale.begin(), from.unscale.end());
}

}  // namespace

FeatureEdit parse_feature_edit(std::string_view text) {
  const auto refuse = [&](const char* what) {
    throw InputError("\"" + std::string(text) + "\": " + what +
                     "; expected FEATURE=VALUE (set), FEATURE+=VALUE (add) or FEATURE*=VALUE (multiply), such as 12=0");
  };
  FeatureEdit edit;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, edit.feature);
  if (error != std::errc() || edit.feature < 0) refuse("it does not begin with a feature's number");
  const char* at = stop;
  if (at < end && (*at == '+' || *at == '*')) edit.kind = *at++ == '+' ? FeatureEdit::Kind::add : FeatureEdit::Kind::scale;
  if (at == end || *at != '=') refuse("there is no = after the feature's number");
  const auto [last, bad] = std::from_chars(at + 1, end, edit.value);
  if (bad != std::errc() || last != end || !std::isfinite(edit.value)) refuse("the value is no number");
  return edit;
}

void check_edits(const SparseAutoencoder& sae, const std::vector<FeatureEdit>& edits, const std::string& where) {
  for (const FeatureEdit& e : edits) check_feature(sae, e.feature, where + ": ");
}

SparseFeatures edited(const SparseFeatures& features, const std::vector<FeatureEdit>& edits, int64_t position) {
  SparseFeatures result;
  result.shift = features.shift;
  result.unscale = features.unscale;
  result.begin.push_back(0);
  std::vector<std::pair<int32_t, float>> row;
  for (int64_t r = 0; r < features.rows(); ++r) {
    row.clear();
    for (auto e = static_cast<size_t>(features.begin[static_cast<size_t>(r)]);
         e < static_cast<size_t>(features.begin[static_cast<size_t>(r) + 1]); ++e)
      row.emplace_back(features.index[e], features.value[e]);
    for (const FeatureEdit& edit : edits) {
      if (position + r < edit.first || position + r >= edit.end) continue;
      auto found = std::ranges::lower_bound(row, edit.feature, {}, &std::pair<int32_t, float>::first);
      if (found == row.end() || found->first != edit.feature) found = row.insert(found, {edit.feature, 0.0F});
      switch (edit.kind) {
        case FeatureEdit::Kind::set: found->second = edit.value; break;
        case FeatureEdit::Kind::add: found->second += edit.value; break;
        case FeatureEdit::Kind::scale: found->second *= edit.value; break;
      }
    }
    for (const auto& [index, value] : row) {
      if (value == 0) continue;
      result.index.push_back(index);
      result.value.push_back(value);
    }
    result.begin.push_back(static_cast<int64_t>(result.index.size()));
  }
  return result;
}

void add_difference(const SparseAutoencoder& sae, const SparseFeatures& now, const SparseFeatures& before, float* y) {
  const SparseFeatures change = difference(now, before);
  for (int64_t r = 0; r < before.rows(); ++r, y += sae.d_out) {
    const auto row = static_cast<size_t>(r);
    const float unscale = before.unscale.empty() || sae.transcoder ? 1.0F : before.unscale[row];
    for (auto e = static_cast<size_t>(change.begin[row]); e < static_cast<size_t>(change.begin[row + 1]); ++e) {
      const float norm = decoder_norm(sae, change.index[e]);
      if (norm > 0)
        kernels().add_scaled(sae.direction(change.index[e]).data(), change.value[e] * unscale / norm,
                             static_cast<size_t>(sae.d_out), y);
    }
  }
}

Tensor spliced(Context& ctx, const Splice& splice, const Tensor& input, const Tensor& value, int64_t position,
               SparseFeatures* kept) {
  const SparseAutoencoder& sae = *splice.sae;
  check_width(sae, input, sae.d_in, sae.hook_name);
  check_width(sae, value, sae.d_out, sae.hook_name_out);
  if (input.rows() != value.rows())
    throw ShapeError("the value at " + sae.hook_name + " has " + std::to_string(input.rows()) + " rows, and that at " +
                     sae.hook_name_out + " " + std::to_string(value.rows()));
  Tape* const tape = ctx.tape();
  if (tape != nullptr && sae.input_norm != SparseAutoencoder::InputNorm::none)
    throw UsageError("gradients through an autoencoder that normalizes its input (normalize_activations) are not computed");

  const int64_t rows = input.rows();
  const Tensor result = ctx.empty(value.shape());
  const float* x = input.data<float>();
  SparseFeatures features = encode(ctx, sae, x, rows);
  SparseFeatures now = edited(features, splice.edits, position);
  auto* y = result.data<float>();
  if (splice.keep_error) {
    // value + decode(now) - decode(features): only what was edited is decoded.
    std::memcpy(y, value.data<float>(), value.bytes());
    add_difference(sae, now, features, y);
  } else {
    decode(ctx, sae, now, x, y);
  }
  if (tape != nullptr) {
    // With rescaled features the norm in a and the one in decode cancel.
    std::vector<float> slope;
    for (int64_t r = 0; r < rows; ++r)
      for (auto e = static_cast<size_t>(features.begin[static_cast<size_t>(r)]);
           e < static_cast<size_t>(features.begin[static_cast<size_t>(r) + 1]); ++e) {
        const auto f = static_cast<size_t>(features.index[e]);
        slope.push_back(passed_on(splice.edits, features.index[e], position + r));
        if (sae.activation == SparseAutoencoder::Activation::gated) slope.back() *= std::exp(sae.r_mag[f]);
      }
    tape->record(&splice_backward, SpliceNode{input, result, &sae, tape->keep<int64_t>(features.begin),
                                              tape->keep<int32_t>(features.index), tape->keep<float>(slope)});
  }
  if (kept != nullptr) *kept = std::move(now);
  return result;
}

SpliceListener::SpliceListener(std::vector<Splice> splices, bool keep_features) : keep_(keep_features) {
  for (Splice& splice : splices) {
    if (splice.sae->hook_name.empty())
      throw InputError(
          "the autoencoder does not say at which hook it reads; give its hook_name, such as blocks.3.hook_resid_post");
    check_edits(*splice.sae, splice.edits, splice.sae->hook_name);
    states_.push_back({std::move(splice), {}, {}, {}, 0});
  }
}

bool SpliceListener::wants(std::string_view name) const {
  return std::ranges::any_of(
      states_, [&](const State& s) { return s.splice.sae->hook_name == name || s.splice.sae->hook_name_out == name; });
}

Tensor SpliceListener::see(Context& ctx, std::string_view name, const Tensor& value) {
  Tensor now = value;
  for (State& s : states_) {
    const SparseAutoencoder& sae = *s.splice.sae;
    if (sae.hook_name == name && sae.hook_name_out != name) {
      check_width(sae, now, sae.d_in, sae.hook_name);
      s.on_tape = ctx.tape() != nullptr ? now : Tensor();
      if (ctx.tape() == nullptr) s.input.assign(now.data<float>(), now.data<float>() + now.count());
      s.rows = now.rows();
    }
    if (sae.hook_name_out != name) continue;
    if (sae.hook_name != name && !s.on_tape && s.input.empty())
      throw UsageError("the run reached " + sae.hook_name_out + " before " + sae.hook_name + ", where its transcoder reads");
    const Tensor input = sae.hook_name == name ? now
                         : s.on_tape           ? s.on_tape
                                               : Tensor(s.input.data(), DType::f32, {s.rows, sae.d_in});
    SparseFeatures kept;
    now = spliced(ctx, s.splice, input, now, ctx.listening_position(), keep_ ? &kept : nullptr);
    if (keep_) append(s.kept, kept);
  }
  return now.raw() == value.raw() ? Tensor() : now;
}

}  // namespace vitrine
