#include "hooks/spliced_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "hooks/hooks.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/tape.h"
#include "sae/sae_file.h"
#include "sae/splice.h"

namespace vitrine {
namespace {

// given [rows, d_in] -> pre [rows, d_sae]
struct PreActivationNode {
  Tensor given, pre;
  const SparseAutoencoder* sae;
};
void pre_activation_backward(Context& ctx, Tape& tape, const PreActivationNode& n) {
  const Tensor dpre = tape.gradient(n.pre);
  if (!dpre) return;
  const Tensor dx = tape.accumulate(n.given);
  if (!dx) return;
  const SparseAutoencoder& sae = *n.sae;
  const bool gated = sae.activation == SparseAutoencoder::Activation::gated;
  const auto all = static_cast<size_t>(sae.d_sae);
  std::vector<float> slopes(gated ? dpre.data<float>() : nullptr, gated ? dpre.data<float>() + dpre.count() : nullptr);
  for (size_t i = 0; i < slopes.size(); ++i) slopes[i] *= std::exp(sae.r_mag[i % all]);
  const float* const from = gated ? slopes.data() : dpre.data<float>();
  ctx.pool().run(dx.rows(), [&](int64_t r, int) {
    const float* const slope = from + r * sae.d_sae;
    float* const to = dx.data<float>() + r * sae.d_in;
    for (int64_t i = 0; i < sae.d_in; ++i) to[i] += kernels().dot(sae.W_enc.data() + i * sae.d_sae, slope, all);
  });
}

// pre -> acts, both [rows, d_sae]
struct ActivationNode {
  Tensor pre, acts;
  const SparseAutoencoder* sae;
};
void activation_backward(Context&, Tape& tape, const ActivationNode& n) {
  const Tensor dacts = tape.gradient(n.acts);
  if (!dacts) return;
  const Tensor dpre = tape.accumulate(n.pre);
  if (!dpre) return;
  const float *const g = dacts.data<float>(), *const acts = n.acts.data<float>();
  for (int64_t i = 0; i < dacts.count(); ++i)
    if (acts[i] != 0) dpre.data<float>()[i] += g[i] * decoder_norm(*n.sae, i % n.sae->d_sae);
}

// acts [rows, d_sae], given [rows, d_in] -> recons [rows, d_out]
struct DecoderNode {
  Tensor acts, given, recons;
  const SparseAutoencoder* sae;
};
void decoder_backward(Context& ctx, Tape& tape, const DecoderNode& n) {
  const Tensor dy = tape.gradient(n.recons);
  if (!dy) return;
  const SparseAutoencoder& sae = *n.sae;
  const auto in = static_cast<size_t>(sae.d_in), out = static_cast<size_t>(sae.d_out);
  if (const Tensor dacts = tape.accumulate(n.acts)) {
    std::vector<float> norms(static_cast<size_t>(sae.d_sae));
    for (int64_t f = 0; f < sae.d_sae; ++f) norms[static_cast<size_t>(f)] = decoder_norm(sae, f);
    ctx.pool().run(dy.rows(), [&](int64_t r, int) {
      for (int64_t f = 0; f < sae.d_sae; ++f)
        if (const float norm = norms[static_cast<size_t>(f)]; norm > 0)
          dacts.row<float>(r)[f] += kernels().dot(sae.direction(f).data(), dy.row<float>(r), out) / norm;
    });
  }
  if (sae.W_skip.empty()) return;
  if (const Tensor dx = tape.accumulate(n.given))
    for (int64_t r = 0; r < dy.rows(); ++r)
      for (size_t j = 0; j < out; ++j)
        kernels().add_scaled(sae.W_skip.data() + j * in, dy.row<float>(r)[j], in, dx.row<float>(r));
}

void check_on_tape(const SparseAutoencoder& sae) {
  if (sae.input_norm != SparseAutoencoder::InputNorm::none)
    throw UsageError("gradients through an autoencoder that normalizes its input (normalize_activations) are not computed");
}

// The value at the hook where an autoencoder writes, after it: x [rows, d_in] is what it reads.
Tensor through(Context& ctx, const SplicedModel::Place& place, const Tensor& x, const Tensor& value) {
  const SparseAutoencoder& sae = *place.sae;
  const int64_t rows = value.rows();
  Tape* const tape = ctx.tape();
  if (tape != nullptr) check_on_tape(sae);

  const Tensor given = ctx.hook("hook_sae_input", x);
  Tensor pre;
  bool other_pre = false;
  if (tape != nullptr || ctx.listens("hook_sae_acts_pre")) {
    const Tensor made = ctx.empty({rows, sae.d_sae});
    pre_activations(ctx, sae, given.data<float>(), rows, made.data<float>());
    if (tape != nullptr) tape->record(&pre_activation_backward, PreActivationNode{given, made, &sae});
    pre = ctx.hook("hook_sae_acts_pre", made);
    other_pre = pre.raw() != made.raw();
  }
  const bool unchanged = given.raw() == x.raw() && !other_pre;
  SparseFeatures clean;  // of the unchanged input
  if (unchanged || place.keep_error) clean = encode(ctx, sae, x.data<float>(), rows);
  SparseFeatures now = unchanged ? clean : encode(ctx, sae, given.data<float>(), rows, other_pre ? pre.data<float>() : nullptr);
  Tensor acts;
  if (tape != nullptr || ctx.listens("hook_sae_acts_post")) {
    const Tensor made = ctx.empty({rows, sae.d_sae});
    to_dense(now, sae.d_sae, made.data<float>());
    if (tape != nullptr) tape->record(&activation_backward, ActivationNode{pre, made, &sae});
    acts = ctx.hook("hook_sae_acts_post", made);
    if (acts.raw() != made.raw()) now = to_sparse(acts.data<float>(), rows, sae.d_sae, &now);
  }

  const bool parts = tape != nullptr || !place.keep_error || given.raw() != x.raw() || ctx.listens("hook_sae_recons") ||
                     ctx.listens("hook_sae_error");
  if (!parts) {  // what did not change is not rounded
    const Tensor result = ctx.empty(value.shape());
    std::memcpy(result.raw(), value.raw(), value.bytes());
    add_difference(sae, now, clean, result.data<float>());
    return ctx.hook("hook_sae_output", result);
  }
  const Tensor made = ctx.empty({rows, sae.d_out});
  decode(ctx, sae, now, given.data<float>(), made.data<float>());
  if (tape != nullptr) tape->record(&decoder_backward, DecoderNode{acts, given, made, &sae});
  const Tensor recons = ctx.hook("hook_sae_recons", made).view(value.shape());
  if (!place.keep_error) return ctx.hook("hook_sae_output", recons);
  const Tensor error = ctx.empty(value.shape());
  decode(ctx, sae, clean, x.data<float>(), error.data<float>());
  for (int64_t i = 0; i < value.count(); ++i) error.data<float>()[i] = value.data<float>()[i] - error.data<float>()[i];
  return ctx.hook("hook_sae_output", add(ctx, recons, ctx.hook("hook_sae_error", error)));
}

// The autoencoders of one run.
class SplicedRun final : public Insert {
 public:
  explicit SplicedRun(const std::vector<SplicedModel::Place>& places) : places_(places), inputs_(places.size()) {}

  bool at(std::string_view name) const override {
    return std::ranges::any_of(places_, [&](const SplicedModel::Place& p) { return p.reads == name || p.writes == name; });
  }

  Tensor replaced(Context& ctx, std::string_view name, const Tensor& value) override {
    for (size_t i = 0; i < places_.size(); ++i) {
      const SplicedModel::Place& place = places_[i];
      if (place.writes != name) continue;
      const SparseAutoencoder& sae = *place.sae;
      if (ctx.dry() != nullptr) {
        show_shapes(ctx, place, value);
        return value;
      }
      const bool heard = std::ranges::any_of(kSaeHooks, [&](std::string_view hook) { return ctx.listens(hook); });
      if (ctx.tape() == nullptr && place.keep_error && !heard) return value;
      if (value.dtype() != DType::f32)
        throw UsageError("an autoencoder runs in f32, and the value at " + place.writes + " is in f64");
      const int64_t rows = value.rows();
      if (place.reads == place.writes) return through(ctx, place, value.view({rows, sae.d_in}), value);
      const Input& input = inputs_[i];
      const bool kept = !input.copy.empty() || input.on_tape;
      if (rows > 0 && !kept)
        throw UsageError("the run reached " + place.writes + ", where a transcoder writes, without " + place.reads +
                         ", where it reads; start it at an earlier layer");
      const Tensor x =
          input.on_tape ? input.on_tape : Tensor(const_cast<float*>(input.copy.data()), DType::f32, {rows, sae.d_in});
      return through(ctx, place, x.view({rows, sae.d_in}), value);
    }
    return value;
  }

  void passed(Context& ctx, std::string_view name, const Tensor& value) override {
    if (ctx.dry() != nullptr) return;
    for (size_t i = 0; i < places_.size(); ++i) {
      const SplicedModel::Place& place = places_[i];
      if (place.reads != name || place.reads == place.writes) continue;
      inputs_[i] = {};
      if (ctx.tape() != nullptr) {
        inputs_[i].on_tape = value;
      } else if (!place.keep_error || ctx.listener() != nullptr) {
        inputs_[i].copy.assign(value.data<float>(), value.data<float>() + value.count());
      }
    }
  }

 private:
  // A transcoder's, from where it reads to where it writes.
  struct Input {
    std::vector<float> copy;
    Tensor on_tape;  // which keeps it
  };

  static void show_shapes(Context& ctx, const SplicedModel::Place& place, const Tensor& value) {
    const SparseAutoencoder& sae = *place.sae;
    const int64_t rows = value.rows();
    for (const std::string_view hook : kSaeHooks) {
      if (hook == "hook_sae_error" && !place.keep_error) continue;
      const bool features = hook == "hook_sae_acts_pre" || hook == "hook_sae_acts_post";
      ctx.hook(hook, ctx.empty(features                    ? Shape{rows, sae.d_sae}
                               : hook == "hook_sae_input"  ? Shape{rows, sae.d_in}
                               : hook == "hook_sae_recons" ? Shape{rows, sae.d_out}
                                                           : value.shape()));
    }
  }

  const std::vector<SplicedModel::Place>& places_;
  std::vector<Input> inputs_;
};

class Inserting {
 public:
  Inserting(Context& ctx, Insert& insert) : ctx_(ctx) { ctx_.insert(&insert); }
  ~Inserting() { ctx_.insert(nullptr); }
  Inserting(const Inserting&) = delete;
  Inserting& operator=(const Inserting&) = delete;

 private:
  Context& ctx_;
};

// The full name of the one hook that an autoencoder names.
std::string full_hook_name(const Model& model, const std::string& name) {
  const HookQuery query = parse_hook_query(name);
  const std::vector<Capture> found = plan_captures(model, std::span(&query, 1), 1);
  if (found.size() != 1)
    throw InputError("the autoencoder's hook \"" + name + "\" fits " + std::to_string(found.size()) +
                     " hooks; give the name of one, such as blocks.3.hook_resid_post");
  return found.front().name;
}

void check_width(const Model& model, const std::string& hook, int64_t width, const char* what) {
  const std::vector<int64_t> shape = hook_shape(model, hook, 1);
  int64_t numbers = 1;
  for (const int64_t size : shape) numbers *= size;
  if (heads_first(hook) || hook == "hook_logits")
    throw InputError("an autoencoder cannot stand at " + hook + ", which has no row for each token in the layers");
  if (numbers != width)
    throw InputError("the autoencoder's " + std::string(what) + " is " + std::to_string(width) + ", and " + hook +
                     " of this model has " + std::to_string(numbers) + " numbers a token; is it of another model?");
}

}  // namespace

SplicedModel::SplicedModel(const Model& base, const std::vector<SplicedSae>& saes) : Model(base.shape()), base_(base) {
  const std::vector<std::string> names = base.hook_names();
  for (const SplicedSae& one : saes) {
    const SparseAutoencoder& sae = *one.sae;
    if (sae.hook_name.empty())
      throw InputError(
          "the autoencoder's files do not say at which hook it reads; give its hook_name (--hook), such as "
          "blocks.3.hook_resid_post");
    Place place{one.sae, one.keep_error, full_hook_name(base, sae.hook_name), full_hook_name(base, sae.hook_name_out)};
    check_width(base, place.reads, sae.d_in, "d_in");
    check_width(base, place.writes, sae.d_out, "d_out");
    if (std::ranges::find(names, place.reads) > std::ranges::find(names, place.writes))
      throw InputError("the transcoder reads at " + place.reads + ", which the run reaches after " + place.writes +
                       ", where it writes");
    for (const Place& other : places_)
      if (other.writes == place.writes)
        throw InputError("two autoencoders stand at " + place.writes + "; give one of them, or run them one after the other");
    places_.push_back(std::move(place));
  }
  set_tensors(base.tensors());
}

Tensor SplicedModel::residual(Context& ctx, const Step& step) const {
  SplicedRun run(places_);
  const Inserting inserting(ctx, run);
  return base_.residual(ctx, step);
}

std::vector<SplicedSae> read_saes(const std::vector<SaeFile>& files) {
  std::vector<SplicedSae> read;
  for (const SaeFile& file : files)
    read.push_back({std::make_shared<const SparseAutoencoder>(read_sae(file.path, file.hook)), file.keep_error});
  return read;
}

std::function<std::shared_ptr<const Model>(const Model&)> through_saes(const std::vector<SaeFile>& files) {
  if (files.empty()) return {};
  return [saes = read_saes(files)](const Model& base) { return std::make_shared<const SplicedModel>(base, saes); };
}

}  // namespace vitrine
