// The rules are those of llama_tensor_get_type_impl() in llama.cpp's src/llama-quant.cpp (October 2026), put the other way round:
// by what a tensor does, then by mixture.
#include "quantize/mixture.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace vitrine {
namespace {

enum Kind : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q2_k_s,
  q3_k_s,
  q3_k_m,
  q3_k_l,
  q4_k_s,
  q4_k_m,
  q5_k_s,
  q5_k_m,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq2_m,
  iq3_xxs,
  iq3_xs,
  iq3_s,
  iq3_m,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4_moe,
  kKinds
};

constexpr Mixture kMixtures[] = {
    {"F32", DType::f32, 0},          {"F16", DType::f16, 1},        {"BF16", DType::bf16, 32},    {"Q4_0", DType::q4_0, 2},
    {"Q4_1", DType::q4_1, 3},        {"Q5_0", DType::q5_0, 8},      {"Q5_1", DType::q5_1, 9},     {"Q8_0", DType::q8_0, 7},
    {"Q2_K", DType::q2_k, 10},       {"Q2_K_S", DType::q2_k, 21},   {"Q3_K_S", DType::q3_k, 11},  {"Q3_K_M", DType::q3_k, 12},
    {"Q3_K_L", DType::q3_k, 13},     {"Q4_K_S", DType::q4_k, 14},   {"Q4_K_M", DType::q4_k, 15},  {"Q5_K_S", DType::q5_k, 16},
    {"Q5_K_M", DType::q5_k, 17},     {"Q6_K", DType::q6_k, 18},     {"IQ1_S", DType::iq1_s, 24},  {"IQ1_M", DType::iq1_m, 31},
    {"IQ2_XXS", DType::iq2_xxs, 19}, {"IQ2_XS", DType::iq2_xs, 20}, {"IQ2_S", DType::iq2_xs, 28}, {"IQ2_M", DType::iq2_s, 29},
    {"IQ3_XXS", DType::iq3_xxs, 23}, {"IQ3_XS", DType::iq3_s, 22},  {"IQ3_S", DType::iq3_s, 26},  {"IQ3_M", DType::iq3_s, 27},
    {"IQ4_NL", DType::iq4_nl, 25},   {"IQ4_XS", DType::iq4_xs, 30}, {"TQ1_0", DType::tq1_0, 36},  {"TQ2_0", DType::tq2_0, 37},
    {"MXFP4_MOE", DType::mxfp4, 38},
};
static_assert(std::size(kMixtures) == kKinds);

template <class... Kinds>
bool any_of(Kind kind, Kinds... kinds) {
  return ((kind == kinds) || ...);
}

bool contains(std::string_view name, std::string_view part) { return name.find(part) != name.npos; }

int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

enum class Role { output, embedding, value, key, query, attention_output, joined, down, gate, up, other };

Role role_of(std::string_view name) {
  if (name == "output.weight") return Role::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Role::embedding;
  if (contains(name, "attn_qkv.weight")) return Role::joined;
  if (contains(name, "attn_v.weight")) return Role::value;
  if (contains(name, "attn_k.weight")) return Role::key;
  if (contains(name, "attn_q.weight")) return Role::query;
  if (contains(name, "attn_output.weight")) return Role::attention_output;
  if (contains(name, "ffn_up")) return Role::up;
  if (contains(name, "ffn_gate")) return Role::gate;
  if (contains(name, "ffn_down")) return Role::down;
  return Role::other;
}

// The first and the last eighth of n, and every third between.
bool matters_more(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

// Chooses for one tensor: `i` of the `n` tensors of its role.
class Choice {
 public:
  Choice(Kind kind, const MixtureModel& model, bool tied)
      : kind_(kind), base_(kMixtures[kind].base), model_(model), tied_(tied) {}

  DType type(Role role, const MixtureTensor& tensor, int64_t i, int64_t n) const {
    if (role == Role::output || (role == Role::embedding && tied_)) return output(tensor.shape.back());
    if (kind_ == mxfp4_moe) return tensor.shape.size() == 3 && tensor.shape[0] > 1 ? DType::mxfp4 : DType::q8_0;
    if (role == Role::embedding) return embedding();
    if (tiny()) return in_tiny(role, i, n);
    switch (role) {
      case Role::value:
      case Role::joined: return value(i, n);
      case Role::key: return eight_experts() ? DType::q8_0 : query_or_key();
      case Role::query: return query_or_key();
      case Role::down: return down(model_.n_experts > 1 ? layer_of(tensor.name) : i, n);
      case Role::attention_output: return attention_output();
      case Role::gate:
      case Role::up: {
        const int64_t at = model_.n_experts > 1 ? layer_of(tensor.name) : i;
        return kind_ == iq3_xs && at >= n / 8 && at < 7 * n / 8 ? DType::iq3_xxs : base_;
      }
      default: return base_;
    }
  }

 private:
  bool tiny() const { return any_of(kind_, iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq2_m); }
  bool eight_experts() const { return model_.n_experts == 8; }
  bool shares_keys() const { return model_.n_kv_heads > 0 && model_.n_heads / model_.n_kv_heads >= 4; }

  DType output(int64_t width) const {
    if (kind_ == mxfp4_moe || width % static_cast<int64_t>(block_elements(base_)) != 0) return DType::q8_0;
    if (tiny() || kind_ == iq3_xxs) return DType::q5_k;
    return base_ == DType::q8_0 ? DType::q8_0 : DType::q6_k;
  }

  DType embedding() const {
    if (any_of(kind_, iq1_s, iq1_m, iq2_xxs, iq2_xs)) return DType::q2_k;
    if (any_of(kind_, iq2_s, iq2_m, iq3_xxs)) return DType::iq3_s;
    if (any_of(kind_, tq1_0, tq2_0)) return DType::q4_k;
    return base_;
  }

  // The mixtures of two bits and less.
  DType in_tiny(Role role, int64_t i, int64_t n) const {
    const DType better = any_of(kind_, iq2_s, iq2_m) ? DType::iq3_s : DType::q2_k;
    switch (role) {
      case Role::value:
      case Role::joined: return shares_keys() || model_.n_experts >= 4 ? DType::q4_k : better;
      case Role::key: return eight_experts() ? DType::q4_k : base_;
      case Role::down: return i < n / 8 ? better : base_;
      case Role::attention_output:
        if (eight_experts()) return DType::q5_k;
        if (any_of(kind_, iq1_s, iq1_m)) return DType::iq2_xxs;
        return any_of(kind_, iq2_s, iq2_m) ? DType::iq3_s : base_;
      default: return base_;
    }
  }

  DType value(int64_t i, int64_t n) const {
    DType type = base_;
    switch (kind_) {
      case q2_k: type = shares_keys() ? DType::q4_k : DType::q3_k; break;
      case q2_k_s:
      case iq3_xs:
      case iq3_s: type = shares_keys() ? DType::q4_k : base_; break;
      case iq3_xxs: type = shares_keys() ? DType::q4_k : model_.with_importance ? DType::iq3_xxs : DType::iq3_s; break;
      case iq3_m: type = DType::q4_k; break;
      case q3_k_m: type = i < 2 ? DType::q5_k : DType::q4_k; break;
      case q3_k_l: type = DType::q5_k; break;
      case iq4_nl:
      case iq4_xs: type = shares_keys() ? DType::q5_k : base_; break;
      case q4_k_m:
      case q5_k_m: type = matters_more(i, n) ? DType::q6_k : base_; break;
      case q4_k_s: type = i < 4 ? DType::q5_k : base_; break;
      default: break;
    }
    // Of 80 layers whose keys serve eight queries each (70 billion parameters) values are few.
    if (model_.n_layers == 80 && model_.n_kv_heads < model_.n_heads && (type == DType::q3_k || type == DType::q4_k))
      type = DType::q5_k;
    return eight_experts() ? DType::q8_0 : type;
  }

  DType query_or_key() const { return kind_ == iq3_xs ? DType::iq3_xxs : kind_ == iq3_xxs ? DType::iq2_s : base_; }

  DType down(int64_t i, int64_t n) const {
    const bool early = i < n / 8;
    switch (kind_) {
      case q2_k: return DType::q3_k;
      case q2_k_s: return early ? DType::q4_k : base_;
      case iq3_xxs: return model_.with_importance ? base_ : early ? DType::q4_k : DType::q3_k;
      case q3_k_m: return i < n / 16 ? DType::q5_k : DType::q4_k;
      case q3_k_l: return DType::q5_k;
      case iq3_m: return early || (eight_experts() && matters_more(i, n)) ? DType::q4_k : base_;
      case q4_k_m:
      case q5_k_m: return matters_more(i, n) ? DType::q6_k : base_;
      case q4_k_s: return early ? DType::q5_k : base_;
      case iq4_nl:
      case iq4_xs: return early && !model_.with_importance ? DType::q5_k : base_;
      case q4_0: return early && model_.with_importance ? DType::q4_1 : base_;
      case q5_0: return early && model_.with_importance ? DType::q5_1 : base_;
      default: return base_;
    }
  }

  DType attention_output() const {
    if (eight_experts())
      return any_of(kind_, q2_k, iq3_xs, iq3_xxs, q3_k_s, q3_k_m, iq4_nl, q4_k_s, q4_k_m, iq3_s, iq3_m, iq4_xs) ? DType::q5_k
                                                                                                                : base_;
    switch (kind_) {
      case q2_k: return DType::q3_k;
      case iq3_xxs: return DType::iq3_s;
      case q3_k_m:
      case iq3_m: return DType::q4_k;
      case q3_k_l: return DType::q5_k;
      default: return base_;
    }
  }

  Kind kind_;
  DType base_;
  const MixtureModel& model_;
  bool tied_;
};

// A type whose blocks fill a row.
DType fitting(DType type, int64_t width) {
  const auto fits = [width](DType t) { return width % static_cast<int64_t>(block_elements(t)) == 0; };
  if (fits(type)) return type;
  switch (type) {
    case DType::iq1_s:
    case DType::iq1_m:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq4_xs: type = DType::iq4_nl; break;
    case DType::q2_k:
    case DType::q3_k:
    case DType::tq1_0:
    case DType::tq2_0: type = DType::q4_0; break;
    case DType::q4_k: type = DType::q5_0; break;
    case DType::q5_k: type = DType::q5_1; break;
    case DType::q6_k: type = DType::q8_0; break;
    default: break;
  }
  return fits(type) ? type : DType::f16;
}

}  // namespace

std::span<const Mixture> mixtures() { return kMixtures; }

const Mixture* find_mixture(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "Q3_K" || upper == "Q4_K" || upper == "Q5_K") upper += "_M";
  if (upper == "MXFP4") upper += "_MOE";
  for (const Mixture& mixture : kMixtures)
    if (mixture.name == upper) return &mixture;
  return nullptr;
}

bool is_quantized(std::string_view name, size_t dimensions) {
  if (dimensions < 2 || !name.ends_with("weight") || name == "position_embd.weight") return false;
  for (const std::string_view kept :
       {"_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight"})
    if (contains(name, kept)) return false;
  return true;
}

std::vector<DType> choose_types(const Mixture& mixture, const MixtureModel& model, std::span<const MixtureTensor> tensors,
                                bool pure) {
  const auto kind = static_cast<Kind>(
      std::find_if(std::begin(kMixtures), std::end(kMixtures), [&](const Mixture& m) { return m.name == mixture.name; }) -
      std::begin(kMixtures));
  VITRINE_CHECK(kind < kKinds, "a mixture of mixtures()");
  const bool tied =
      std::none_of(tensors.begin(), tensors.end(), [](const MixtureTensor& t) { return t.name == "output.weight"; });
  const Choice choice(kind, model, tied);
  // Tensors of a role are counted in the order of their layers; those that join queries, keys and values count as values.
  struct Counted {
    Role role;
    int64_t layer;
  };
  std::vector<Counted> counted;
  for (const MixtureTensor& tensor : tensors) {
    const Role role = role_of(tensor.name);
    if (is_quantized(tensor.name, tensor.shape.size()))
      counted.push_back({role == Role::joined ? Role::value : role, layer_of(tensor.name)});
  }
  std::vector<DType> types;
  for (const MixtureTensor& tensor : tensors) {
    if (!is_quantized(tensor.name, tensor.shape.size())) {
      // llama-quantize leaves it as it is; the converter, which writes these types, does not.
      const bool converted =
          tensor.name == "per_layer_model_proj.weight" && (!is_block(mixture.base) || mixture.base == DType::q8_0);
      types.push_back(converted ? fitting(mixture.base, tensor.shape.back()) : tensor.unchanged);
      continue;
    }
    if (!is_block(mixture.base)) {
      types.push_back(mixture.base);
      continue;
    }
    const Role role = role_of(tensor.name), counts_as = role == Role::joined ? Role::value : role;
    int64_t i = 0, n = 0;
    for (const Counted& other : counted) {
      if (other.role != counts_as) continue;
      ++n;
      if (other.layer < layer_of(tensor.name)) ++i;
    }
    // llama-quantize counts these by layers, as values by layers that have attention.
    if (role == Role::down || role == Role::gate || role == Role::up) n = model.n_layers;
    types.push_back(fitting(pure ? mixture.base : choice.type(role, tensor, i, n), tensor.shape.back()));
  }
  return types;
}

bool needs_importance(const Mixture& mixture, DType type, std::string_view name) {
  if (name == "output.weight" || role_of(name) == Role::embedding) return false;
  switch (type) {
    case DType::iq3_xxs:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_m:
    case DType::iq1_s: return true;
    case DType::q2_k: return mixture.name == "Q2_K_S";
    default: return false;
  }
}

}  // namespace vitrine
