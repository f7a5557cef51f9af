#include "model/mamba_mixer.h"

#include <cmath>
#include <limits>

#include "ops/causal_conv.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace vitrine {
namespace {

constexpr MambaKeys kHybridMamba{{"mamba_n_heads", 128}, {"mamba_n_groups", 1}, {"mamba_d_state", 256},
                                 {"mamba_d_head", 0},    {"mamba_d_conv", 4},   true};
constexpr const char *kBias = "mamba_proj_bias", *kConvBias = "mamba_conv_bias";

constexpr int64_t kLargestSize = 1 << 16;

TimeStepLimits read_limits(const ConfigReader& keys) {
  if (!keys.has("time_step_limit")) return {};
  const std::vector<double> both = keys.numbers("time_step_limit");
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  if (both.size() != 2 || !(both[0] >= 0 && both[0] <= both[1] && both[0] <= kLargest) ||
      (both[1] > kLargest && !std::isinf(both[1])))
    keys.fail("time_step_limit", "is no range; expected two numbers, the first from 0 up to the second");
  return {both[0], both[1] < kLargest ? both[1] : std::numeric_limits<double>::infinity()};
}

}  // namespace

Tensor Mamba::operator()(Context& ctx, const Tensor& x, const Step& step, int layer) const {
  const DeltaSpec& s = spec.sizes;
  const int64_t inner = spec.inner(), group = s.n_key_heads * s.d_key;
  auto [z_gate, mixed, dt] = linear(ctx, x, {W_Z, W_xBC, W_dt});  // [T, I], [T, C], [T, M]: one pass over x #ssm
  if (!factors.empty()) {
    z_gate = scale(ctx, z_gate, spec.multipliers[0]);  // [T, I] #ssm
    mixed = scale_heads(ctx, mixed, xBC_factors);      // [T, C] #ssm
    dt = scale(ctx, dt, spec.multipliers[4]);          // [T, M] #ssm
  }
  const Tensor xBC = causal_conv(ctx, "ssm", mixed, kernel, conv_bias, step, layer, spec.activation, s.states());  // [T, C] #ssm
  const Tensor in = ctx.hook("ssm.hook_x", split_heads(ctx, take_columns(ctx, xBC, 0, inner), s.d_value));   // [T, M, P] #ssm
  const Tensor B = ctx.hook("ssm.hook_B", split_heads(ctx, take_columns(ctx, xBC, inner, group), s.d_key));  // [T, U, S] #ssm
  const Tensor C =
      ctx.hook("ssm.hook_C", split_heads(ctx, take_columns(ctx, xBC, inner + group, group), s.d_key));  // [T, U, S] #ssm
  const Tensor delta = ctx.hook("ssm.hook_time_step", time_step(ctx, dt, dt_bias, spec.limits));        // [T, M] #ssm
  const Tensor decay = ctx.hook("ssm.hook_log_decay", scale_heads(ctx, delta, A, s.A_is_log));          // [T, M] #ssm
  const Tensor z = state_space(ctx, "ssm", in, B, C, delta, decay, skip, step, layer);                  // [T, M, P] #ssm
  const Tensor gate = ctx.hook("ssm.hook_gate", split_heads(ctx, z_gate, s.d_value));                   // [T, M, P] #ssm
  const auto open = [&](const Tensor& from) {
    return ctx.hook("ssm.hook_gated_z", gated(ctx, gate, from, Activation::silu));  // [T, M, P] #ssm
  };
  const auto normed = [&](const Tensor& from) {  // RMSNorm of each group, and then a factor for each number #ssm
    const Tensor groups = from.view({from.rows(), spec.norm_groups, inner / spec.norm_groups});
    const Tensor unit = rms_norm(ctx, "ssm.norm", groups, no_weight, spec.norm).view({from.rows(), inner});
    return ctx.hook("ssm.hook_normed_z", split_heads(ctx, scale_heads(ctx, unit, norm), s.d_value));  // [T, M, P] #ssm
  };
  const Tensor out = spec.norm_place == MambaNorm::gated     ? normed(open(z))
                     : spec.norm_place == MambaNorm::ungated ? open(normed(z))
                                                             : open(z);  // [T, M, P] #ssm
  return attention_output(ctx, "ssm", out, W_O);                         // [T, D] #ssm
}

void add_mamba(PartList& list, Mamba& m, const std::string& files) {
  const DeltaSpec& s = m.spec.sizes;
  const int64_t inner = m.spec.inner();
  const Dim D = list.size.D, M{"mamba heads", s.n_heads}, I{"mamba heads * head size", inner};
  const Dim C{"mamba heads * head size + 2 * groups * state size", s.channels()}, K{"kernel size", s.taps};
  const Dim all{"2 * mamba heads * (head size + 1/2) + 2 * groups * state size", inner + s.channels() + s.n_heads};
  const std::array<double, 5>& by = m.spec.multipliers;
  if (by != MambaSpec().multipliers) {
    const int64_t group = s.n_key_heads * s.d_key;
    for (const auto& [count, factor] : {std::pair{inner, by[1]}, {group, by[2]}, {group, by[3]}})
      m.factors.insert(m.factors.end(), static_cast<size_t>(count), static_cast<float>(factor));
    m.xBC_factors.name = "ssm.factors";
    m.xBC_factors.data = m.factors.data();
    m.xBC_factors.size = s.channels();
  }
  const auto part = [&](int i, int64_t before, double factor = 1, const float* of_output = nullptr) {
    StoredLayout layout{.part = i, .parts = 3, .before = before, .whole = all};
    layout.gguf_factors = {static_cast<float>(m.spec.in_scale), static_cast<float>(factor), of_output};
    return layout;
  };
  const std::string in = files + ".in_proj.", out = files + ".out_proj.", conv = files + ".conv1d.";
  const StoredLayout z = part(0, 0, by[0]), xBC = part(1, inner, 1, m.factors.empty() ? nullptr : m.factors.data()),
                     dt = part(2, inner + s.channels(), by[4]);
  list.add(m.W_Z, "ssm.W_Z", in + "weight", "ssm_in.weight", I, D, z);
  list.add(m.W_xBC, "ssm.W_xBC", in + "weight", "ssm_in.weight", C, D, xBC);
  list.add(m.W_dt, "ssm.W_dt", in + "weight", "ssm_in.weight", M, D, dt);
  if (m.spec.bias) {
    list.add(m.W_Z.bias, "ssm.b_Z", in + "bias", "", I, z);
    list.add(m.W_xBC.bias, "ssm.b_xBC", in + "bias", "", C, xBC);
    list.add(m.W_dt.bias, "ssm.b_dt", in + "bias", "", M, dt);
  }
  list.add(m.kernel, "ssm.conv.kernel", conv + "weight", "ssm_conv1d.weight", {C.formula, s.channels() * s.taps}, {.taps = K});
  if (m.spec.conv_bias) list.add(m.conv_bias, "ssm.conv.bias", conv + "bias", "ssm_conv1d.bias", C);
  list.add(m.dt_bias, "ssm.dt_bias", files + ".dt_bias", "ssm_dt.bias", M);
  const auto rows = [](int64_t n) { return HeadTiles{.groups = n}; };  // of the vector in GGUF
  list.add(m.A, "ssm.A", files + ".A_log", "ssm_a", M, {.tiles = rows(s.n_heads), .gguf_minus_exp = true});
  list.add(m.skip, "ssm.D", files + ".D", "ssm_d", M, {.tiles = rows(s.n_heads)});
  if (m.spec.norm_place != MambaNorm::none)  // GGUF: always on the product
    list.add(m.norm, "ssm.norm.w", files + ".norm.weight", m.spec.norm_place == MambaNorm::gated ? "ssm_norm.weight" : "", I,
             {.tiles = rows(s.n_key_heads)});
  list.add(m.W_O, "ssm.W_O", out + "weight", "ssm_out.weight", D, I,
           {.gguf_factors = {.first = static_cast<float>(m.spec.out_scale)}});
  if (m.spec.out_bias) list.add(m.W_O.bias, "ssm.b_O", out + "bias", "", D);
}

MambaSpec read_mamba(const ModelConfig& config, const MambaKeys& names) {
  const ConfigReader& keys = config.keys;
  MambaSpec spec;
  DeltaSpec& s = spec.sizes;
  const auto size = [&](const MambaKeys::Size& name, const char* gguf) {
    const std::string_view key = config.gguf ? gguf : name.key;
    const int64_t found = keys.positive(key, {}, config.gguf ? std::optional<int64_t>() : name.absent);
    if (found > kLargestSize) keys.fail(key, "is more than a state-space layer here may have (65536). Is the file damaged?");
    return found;
  };
  s.taps = size(names.taps, "ssm.conv_kernel");
  s.n_heads = size(names.n_heads, "ssm.time_step_rank");
  s.n_key_heads = size(names.n_groups, "ssm.group_count");
  s.d_key = size(names.d_state, "ssm.state_size");
  s.A_is_log = !config.gguf;
  if (s.n_heads % s.n_key_heads != 0)
    keys.fail(config.gguf ? "ssm.time_step_rank" : names.n_heads.key, "is " + std::to_string(s.n_heads) +
                                                                          "; expected a multiple of the number of groups (" +
                                                                          std::to_string(s.n_key_heads) + ")");
  if (!config.gguf) {
    const bool is_auto = names.d_head_may_be_auto && keys.is_text(names.d_head.key) && keys.string(names.d_head.key) == "auto";
    s.d_value = is_auto ? names.d_head.absent : size(names.d_head, "");
  } else {
    const int64_t inner = keys.positive("ssm.inner_size");
    if (inner % s.n_heads != 0)
      keys.fail("ssm.inner_size", "is " + std::to_string(inner) + "; expected a multiple of ssm.time_step_rank (" +
                                      std::to_string(s.n_heads) + ")");
    s.d_value = inner / s.n_heads;
  }
  check_product(keys, config.gguf ? "ssm.inner_size" : names.d_head.key, "heads * head size * state size", s.n_heads * s.d_value,
                s.d_key, kMostInStream);
  spec.norm_groups = s.n_key_heads;
  spec.limits = read_limits(keys);
  return spec;
}

void write_mamba(Json& keys, const MambaSpec& spec, const MambaKeys& names, ConfigFormat format) {
  const DeltaSpec& s = spec.sizes;
  const bool gguf = format == ConfigFormat::gguf;
  keys[gguf ? "ssm.conv_kernel" : names.taps.key] = s.taps;
  keys[gguf ? "ssm.time_step_rank" : names.n_heads.key] = s.n_heads;
  keys[gguf ? "ssm.group_count" : names.n_groups.key] = s.n_key_heads;
  keys[gguf ? "ssm.state_size" : names.d_state.key] = s.d_key;
  keys[gguf ? "ssm.inner_size" : names.d_head.key] = gguf ? spec.inner() : s.d_value;
  // GGUF has no word for limits; this one is our own.
  if (spec.limits.least > 0 || std::isfinite(spec.limits.most))
    keys["time_step_limit"] = {spec.limits.least, std::isfinite(spec.limits.most) ? Json(spec.limits.most)
                                                  : gguf ? Json(static_cast<double>(std::numeric_limits<float>::max()))
                                                         : named_infinity()};
}

MambaSpec read_hybrid_mamba(const ModelConfig& config, const DecoderConfig& model, const MambaKeys::Size& units) {
  const ConfigReader& keys = config.keys;
  MambaKeys names = kHybridMamba;
  int64_t inner = 0;
  const char* stated = "mamba_expand * hidden_size";
  if (!config.gguf) {
    const int64_t expand = keys.positive("mamba_expand", {}, 2),
                  heads = keys.positive(names.n_heads.key, {}, names.n_heads.absent);
    check_product(keys, "mamba_expand", stated, expand, model.d_model, kMostInHeads);
    inner = expand * model.d_model;
    if (units.key != nullptr && (keys.has(units.key) || !keys.mentions(units.key))) {
      inner = keys.positive(units.key, {}, units.absent);
      stated = units.key;
    }
    names.d_head.absent = std::max<int64_t>(1, inner / heads);
  }
  MambaSpec spec = read_mamba(config, names);
  if (!config.gguf && spec.inner() != inner)
    keys.fail(names.n_heads.key, std::string("times mamba_d_head must be ") + stated + " (" + std::to_string(inner) + ")");
  spec.norm = model.norm;
  spec.activation = model.activation;
  spec.bias = keys.flag(kBias, {}, false);
  spec.conv_bias = keys.flag(kConvBias, {}, true);
  return spec;
}

void write_hybrid_mamba(Json& keys, const MambaSpec& spec, ConfigFormat format) {
  write_mamba(keys, spec, kHybridMamba, format);
  if (format == ConfigFormat::gguf) {
    if (!spec.conv_bias) keys[kConvBias] = false;  // a word of our own
    return;
  }
  keys[kBias] = spec.bias;
  keys[kConvBias] = spec.conv_bias;
}

}  // namespace vitrine
