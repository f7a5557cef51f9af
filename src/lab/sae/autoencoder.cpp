#include "sae/autoencoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/linear.h"
#include "ops/weight.h"
#include "sae/largest.h"

namespace vitrine {
namespace {

using InputNorm = SparseAutoencoder::InputNorm;

constexpr int64_t kMostNumbers = int64_t{1} << 24;  // pre-activations that are made at once

// The stored matrix as ops see it: [in, out].
Weight by_columns(const FloatVector& w, int64_t in, int64_t out, const FloatVector* bias, const char* name) {
  Weight weight;
  weight.name = name;
  weight.data = reinterpret_cast<const std::byte*>(w.data());
  weight.out = out;
  weight.in = in;
  weight.stride = static_cast<size_t>(out) * sizeof(float);
  weight.by_columns = true;
  if (bias != nullptr && !bias->empty()) weight.bias = {name, bias->data(), DType::f32, out, {}};
  return weight;
}

// Row by row x' of the file's first formula; what undoes the norm goes to `features`.
void normalized(const SparseAutoencoder& sae, const float* x, int64_t rows, SparseFeatures& features, float* y) {
  const auto n = static_cast<size_t>(sae.d_in);
  const bool norm = sae.input_norm != InputNorm::none;
  const bool subtract = sae.apply_b_dec_to_input && !sae.transcoder;
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double shift = 0, factor = 1, unscale = 1;
    if (sae.input_norm == InputNorm::constant_norm_rescale) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
      factor = std::sqrt(static_cast<double>(n)) / std::sqrt(sum);
      unscale = 1 / factor;
    } else if (sae.input_norm == InputNorm::layer_norm) {
      double sum = 0, squares = 0;
      for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
      shift = sum / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i) squares += (static_cast<double>(x[i]) - shift) * (static_cast<double>(x[i]) - shift);
      unscale = std::sqrt(squares / static_cast<double>(n - 1));
      factor = 1 / (unscale + 1e-5);
    }
    if (norm) {
      features.shift.push_back(static_cast<float>(shift));
      features.unscale.push_back(static_cast<float>(unscale));
    }
    for (size_t i = 0; i < n; ++i) {
      const float value = norm ? static_cast<float>((static_cast<double>(x[i]) - shift) * factor) : x[i];
      y[i] = subtract ? value - sae.b_dec[i] : value;
    }
  }
}

struct Entry {
  float value;
  int32_t index;
};

// What activate() needs beside its row; one for each thread.
struct Choosing {
  std::vector<float> sizes;
  Largest largest;
};

// One row's features from its pre-activations, which may be overwritten. false: these are not all finite, and there are none.
// magnitudes: of a gated one, if they are not those of pre.
bool activate(const SparseAutoencoder& sae, const FloatVector& norms, float* pre, const float* magnitudes, Choosing& choosing,
              std::vector<Entry>& kept) {
  kept.clear();
  for (size_t f = 0; f < norms.size(); ++f) pre[f] *= norms[f];
  if (!std::isfinite(kernels().sum_of_squares(pre, static_cast<size_t>(sae.d_sae)))) return false;  // no f32's square overflows
  const auto keep_if = [&](auto active) {
    for (int64_t f = 0; f < sae.d_sae; ++f)
      if (active(static_cast<size_t>(f))) kept.push_back({pre[f], static_cast<int32_t>(f)});
  };
  const auto keep_largest = [&](const float* sizes) {
    for (const int32_t f : choosing.largest.of(sizes, static_cast<size_t>(sae.d_sae), static_cast<size_t>(sae.k)))
      if (sizes[f] > 0) kept.push_back({pre[f], f});
  };
  using enum SparseAutoencoder::Activation;
  switch (sae.activation) {
    case relu: keep_if([&](size_t f) { return pre[f] > 0; }); break;
    case jumprelu: keep_if([&](size_t f) { return pre[f] > 0 && pre[f] > sae.threshold[f]; }); break;
    case topk: keep_largest(pre); break;
    case abs_topk:
      choosing.sizes.resize(static_cast<size_t>(sae.d_sae));
      for (size_t f = 0; f < choosing.sizes.size(); ++f) choosing.sizes[f] = std::abs(pre[f]);
      keep_largest(choosing.sizes.data());
      break;
    case gated:
      for (size_t f = 0; f < static_cast<size_t>(sae.d_sae); ++f) {
        const float magnitude = magnitudes != nullptr ? magnitudes[f] : pre[f] * std::exp(sae.r_mag[f]) + sae.b_mag[f];
        if (pre[f] + sae.b_gate[f] > 0 && magnitude > 0) kept.push_back({magnitude, static_cast<int32_t>(f)});
      }
      break;
  }
  return true;
}

bool takes_k(const SparseAutoencoder& sae) {
  return sae.activation == SparseAutoencoder::Activation::topk || sae.activation == SparseAutoencoder::Activation::abs_topk;
}
bool rescales(const SparseAutoencoder& sae) { return sae.rescale_acts_by_decoder_norm && takes_k(sae); }

FloatVector decoder_norms(const SparseAutoencoder& sae) {
  FloatVector norms(static_cast<size_t>(sae.d_sae));
  for (int64_t f = 0; f < sae.d_sae; ++f) norms[static_cast<size_t>(f)] = decoder_norm(sae, f);
  return norms;
}

Tensor read_only(const float* x, const Shape& shape) { return {const_cast<float*>(x), DType::f32, shape}; }

// Products beside the model's own: nothing is recorded, and no listener is shown what they read.
class Aside {
 public:
  explicit Aside(Context& ctx)
      : ctx_(ctx), listener_(ctx.listener()), sequence_(ctx.listening_sequence()), tape_(ctx.tape()), training_(ctx.training()) {
    ctx_.listen(nullptr);
    ctx_.record_on(nullptr);
  }
  ~Aside() {
    ctx_.listen(listener_, sequence_);
    ctx_.record_on(tape_, training_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  Context& ctx_;
  Listener* listener_;
  int sequence_;
  Tape* tape_;
  bool training_;
};

void product(Context& ctx, const SparseAutoencoder& sae, const float* x, int64_t rows, SparseFeatures& features, float* pre) {
  const auto frame = ctx.frame();
  auto* normal = ctx.scratch<float>(static_cast<size_t>(rows * sae.d_in));
  normalized(sae, x, rows, features, normal);
  const Weight w = by_columns(sae.W_enc, sae.d_in, sae.d_sae, &sae.b_enc, "W_enc");
  linear_part(ctx, read_only(normal, {rows, sae.d_in}), w, 0, sae.d_sae, pre, sae.d_sae);
  if (!sae.b_enc.empty()) add_bias(ctx, w.bias, {pre, DType::f32, {rows, sae.d_sae}});
}

}  // namespace

void SparseAutoencoder::check(const std::string& where) const {
  const auto fail = [&](const std::string& what) { throw InputError(where + ": " + what); };
  if (d_in < 1 || d_sae < 1 || d_out < 1 || d_in > INT32_MAX || d_sae > INT32_MAX || d_out > INT32_MAX)
    fail("d_in " + std::to_string(d_in) + ", d_sae " + std::to_string(d_sae) + ", d_out " + std::to_string(d_out) +
         "; each must be from 1 to " + std::to_string(INT32_MAX));
  if (!transcoder && d_in != d_out)
    fail("an autoencoder writes what it reads, but d_in is " + std::to_string(d_in) + " and d_out " + std::to_string(d_out));
  if (takes_k(*this) && (k < 1 || k > d_sae))
    fail("k is " + std::to_string(k) + "; expected 1 to d_sae (" + std::to_string(d_sae) + ")");
  if (input_norm == InputNorm::layer_norm && d_in < 2) fail("layer_norm takes a d_in of 2 or more");
  const bool gated = activation == Activation::gated, jump = activation == Activation::jumprelu;
  const auto one = [&](const char* name, const FloatVector& w, int64_t count, bool wanted) {
    if (w.size() != static_cast<size_t>(wanted ? count : 0))
      fail(std::string(name) + " has " + std::to_string(w.size()) + " numbers; expected " + std::to_string(wanted ? count : 0) +
           " for architecture " + architecture_name(*this) + " with d_in " + std::to_string(d_in) + ", d_sae " +
           std::to_string(d_sae) + ", d_out " + std::to_string(d_out));
    for (size_t i = 0; i < w.size(); ++i)
      if (!std::isfinite(w[i])) fail(std::string(name) + " holds NaN or infinity at element " + std::to_string(i));
  };
  one("W_enc", W_enc, d_in * d_sae, true);
  one("W_dec", W_dec, d_sae * d_out, true);
  one("b_enc", b_enc, d_sae, !gated);
  one("b_dec", b_dec, d_out, true);
  one("threshold", threshold, d_sae, jump);
  one("r_mag", r_mag, d_sae, gated);
  one("b_mag", b_mag, d_sae, gated);
  one("b_gate", b_gate, d_sae, gated);
  one("W_skip", W_skip, d_out * d_in, !W_skip.empty());
}

float decoder_norm(const SparseAutoencoder& sae, int64_t feature) {
  if (!rescales(sae)) return 1;
  double sum = 0;
  for (const float w : sae.direction(feature)) sum += static_cast<double>(w) * w;
  return static_cast<float>(std::sqrt(sum));
}

void check_feature(const SparseAutoencoder& sae, int64_t feature, const std::string& where) {
  if (feature < 0 || feature >= sae.d_sae)
    throw InputError(where + "there is no feature " + std::to_string(feature) + "; the autoencoder at " + sae.hook_name +
                     " has features 0 to " + std::to_string(sae.d_sae - 1));
}

SparseFeatures difference(const SparseFeatures& after, const SparseFeatures& before) {
  SparseFeatures result;
  result.begin.push_back(0);
  for (size_t r = 0; r < static_cast<size_t>(before.rows()); ++r) {
    auto a = static_cast<size_t>(before.begin[r]), b = static_cast<size_t>(after.begin[r]);
    const auto a_end = static_cast<size_t>(before.begin[r + 1]), b_end = static_cast<size_t>(after.begin[r + 1]);
    while (a < a_end || b < b_end) {  // both are sorted
      const int32_t f = std::min(a < a_end ? before.index[a] : INT32_MAX, b < b_end ? after.index[b] : INT32_MAX);
      float by = 0;
      if (b < b_end && after.index[b] == f) by += after.value[b++];
      if (a < a_end && before.index[a] == f) by -= before.value[a++];
      if (by == 0) continue;
      result.index.push_back(f);
      result.value.push_back(by);
    }
    result.begin.push_back(static_cast<int64_t>(result.index.size()));
  }
  return result;
}

std::string architecture_name(const SparseAutoencoder& sae) {
  const bool jump = sae.activation == SparseAutoencoder::Activation::jumprelu;
  if (sae.transcoder) return std::string(jump ? "jumprelu_" : "") + (sae.W_skip.empty() ? "transcoder" : "skip_transcoder");
  using enum SparseAutoencoder::Activation;
  switch (sae.activation) {
    case relu: return "standard";
    case gated: return "gated";
    case topk: return "topk";
    case abs_topk: return "abstopk";
    case jumprelu: return "jumprelu";
  }
  return "standard";
}

SparseFeatures encode(Context& ctx, const SparseAutoencoder& sae, const float* x, int64_t rows, const float* given) {
  const Aside aside(ctx);
  for (int64_t i = 0; i < rows * sae.d_in; ++i)
    if (!std::isfinite(x[i]))
      throw RunError("the autoencoder at " + sae.hook_name + " was given NaN or infinity in row " + std::to_string(i / sae.d_in));
  const FloatVector norms = rescales(sae) ? decoder_norms(sae) : FloatVector();
  SparseFeatures features;
  features.begin.push_back(0);
  const int64_t each = std::clamp<int64_t>(kMostNumbers / sae.d_sae, 1, std::max<int64_t>(rows, 1));
  FloatVector pre(static_cast<size_t>(std::min(each, rows) * sae.d_sae));
  std::vector<std::vector<Entry>> found(static_cast<size_t>(std::min(each, rows)));
  std::vector<uint8_t> finite(found.size());
  std::vector<Choosing> threads(static_cast<size_t>(ctx.pool().threads()));
  const bool gated = sae.activation == SparseAutoencoder::Activation::gated;
  for (int64_t first = 0; first < rows; first += each) {
    const int64_t n = std::min(each, rows - first);
    if (given != nullptr && !gated)
      std::copy_n(given + first * sae.d_sae, n * sae.d_sae, pre.data());
    else
      product(ctx, sae, x + first * sae.d_in, n, features, pre.data());
    ctx.pool().run(n, [&](int64_t r, int thread) {
      const auto row = static_cast<size_t>(r);
      const float* const magnitudes = given != nullptr && gated ? given + (first + r) * sae.d_sae : nullptr;
      finite[row] =
          activate(sae, norms, pre.data() + r * sae.d_sae, magnitudes, threads[static_cast<size_t>(thread)], found[row]) ? 1 : 0;
    });
    for (int64_t r = 0; r < n; ++r) {
      if (finite[static_cast<size_t>(r)] == 0)
        throw RunError("the autoencoder at " + sae.hook_name + " makes NaN or infinity of row " + std::to_string(first + r) +
                       ", whose numbers are finite: they, or its weights, are too large, or its norm is zero");
      for (const Entry& entry : found[static_cast<size_t>(r)]) {
        features.index.push_back(entry.index);
        features.value.push_back(entry.value);
      }
      features.begin.push_back(static_cast<int64_t>(features.index.size()));
    }
  }
  return features;
}

void pre_activations(Context& ctx, const SparseAutoencoder& sae, const float* x, int64_t rows, float* pre) {
  if (rows == 0) return;
  const Aside aside(ctx);
  SparseFeatures unused;
  product(ctx, sae, x, rows, unused, pre);
  if (sae.activation != SparseAutoencoder::Activation::gated) return;
  for (int64_t i = 0; i < rows * sae.d_sae; ++i) {
    const auto f = static_cast<size_t>(i % sae.d_sae);
    pre[i] = pre[i] * std::exp(sae.r_mag[f]) + sae.b_mag[f];
  }
}

void decode(Context& ctx, const SparseAutoencoder& sae, const SparseFeatures& features, const float* x, float* y) {
  const Aside aside(ctx);
  for (const int32_t f : features.index)
    if (f < 0 || f >= sae.d_sae)
      throw UsageError("feature " + std::to_string(f) + " of an autoencoder with features 0 to " + std::to_string(sae.d_sae - 1));
  const FloatVector norms = rescales(sae) ? decoder_norms(sae) : FloatVector();
  const auto n = static_cast<size_t>(sae.d_out);
  const bool undo = !features.unscale.empty() && !sae.transcoder;
  const auto& add_scaled = kernels().add_scaled;
  ctx.pool().run(features.rows(), [&](int64_t r, int) {
    float* to = y + r * sae.d_out;
    std::ranges::copy(sae.b_dec, to);
    const auto row = static_cast<size_t>(r);
    for (auto e = static_cast<size_t>(features.begin[row]); e < static_cast<size_t>(features.begin[row + 1]); ++e) {
      const int32_t f = features.index[e];
      const float norm = norms.empty() ? 1.0F : norms[static_cast<size_t>(f)];
      // A direction of zeros adds nothing, whatever its feature is.
      if (norm > 0) add_scaled(sae.direction(f).data(), features.value[e] / norm, n, to);
    }
    if (!undo) return;
    for (size_t i = 0; i < n; ++i) to[i] = to[i] * features.unscale[row] + features.shift[row];
  });
  if (sae.W_skip.empty() || features.rows() == 0) return;
  if (x == nullptr) throw UsageError("a transcoder with W_skip reads its input to decode");
  Weight skip;
  skip.name = "W_skip";
  skip.data = reinterpret_cast<const std::byte*>(sae.W_skip.data());
  skip.out = sae.d_out;
  skip.in = sae.d_in;
  skip.stride = static_cast<size_t>(sae.d_in) * sizeof(float);
  const auto frame = ctx.frame();
  const auto rows = features.rows();
  auto* straight = ctx.scratch<float>(static_cast<size_t>(rows * sae.d_out));
  linear_part(ctx, read_only(x, {rows, sae.d_in}), skip, 0, sae.d_out, straight, sae.d_out);
  add_scaled(straight, 1, static_cast<size_t>(rows * sae.d_out), y);
}

void to_dense(const SparseFeatures& features, int64_t d_sae, float* dense) {
  std::fill(dense, dense + features.rows() * d_sae, 0.0F);
  for (int64_t r = 0; r < features.rows(); ++r)
    for (auto e = static_cast<size_t>(features.begin[static_cast<size_t>(r)]);
         e < static_cast<size_t>(features.begin[static_cast<size_t>(r) + 1]); ++e)
      dense[r * d_sae + features.index[e]] = features.value[e];
}

SparseFeatures to_sparse(const float* dense, int64_t rows, int64_t d_sae, const SparseFeatures* like) {
  SparseFeatures features;
  features.begin.push_back(0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t f = 0; f < d_sae; ++f) {
      if (dense[r * d_sae + f] == 0) continue;
      features.index.push_back(static_cast<int32_t>(f));
      features.value.push_back(dense[r * d_sae + f]);
    }
    features.begin.push_back(static_cast<int64_t>(features.index.size()));
  }
  if (like != nullptr) {
    features.shift = like->shift;
    features.unscale = like->unscale;
  }
  return features;
}

}  // namespace vitrine
