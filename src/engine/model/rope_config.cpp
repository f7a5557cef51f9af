#include "model/rope_config.h"

#include <cmath>
#include <memory>

#include "model/rope_gguf.h"

namespace vitrine {
namespace {

constexpr const char *kRotating = "no_rope_layers", *kRotatingInGguf = "vitrine.no_rope_layers";
constexpr int64_t kStillInterval = 4;

using Scaling = RopeSpec::Scaling;

// One object of a config.json: rope_parameters, rope_scaling, or what rope_parameters holds of one type of layer.
struct Settings {
  const ConfigReader& keys;
  DecoderConfig& model;
  const RopeDefaults& absent;
  std::optional<int64_t> original = {};  // original_max_position_embeddings of the configuration, which goes first
  std::optional<bool> truncate = {};     // of all types of layer together

  // A null is missing and not silent.
  double original_context() const {
    const auto context = keys.mentions("original_max_position_embeddings") ? std::nullopt : std::optional(model.context_length);
    const int64_t own = original ? *original : keys.positive("original_max_position_embeddings", {}, context);
    return static_cast<double>(own);
  }
  double stretch(const RopeSpec& spec) const { return static_cast<double>(model.context_length) / spec.original_context; }
  double number_or(const char* key, double absent_number) const { return keys.find_number(key).value_or(absent_number); }
};

void read_llama3(const Settings& s, RopeSpec& spec) {
  spec.factor = s.keys.number("factor");
  spec.low_freq_factor = s.keys.number("low_freq_factor");
  spec.high_freq_factor = s.keys.number("high_freq_factor");
  spec.original_context = s.original_context();
  if (!(spec.high_freq_factor >= spec.low_freq_factor) || !(spec.low_freq_factor > 0))
    s.keys.fail("high_freq_factor", "must not be below low_freq_factor, which must be above 0");
}

void read_yarn(const Settings& s, RopeSpec& spec) {
  const ConfigReader& keys = s.keys;
  spec.original_context = s.original_context();
  spec.factor = keys.number("factor", {}, keys.mentions("factor") ? std::optional(s.stretch(spec)) : std::nullopt);
  spec.beta_fast = s.number_or("beta_fast", 32);
  spec.beta_slow = s.number_or("beta_slow", 1);
  const bool silent = s.truncate.value_or(!keys.mentions("truncate"));  // null is false in transformers
  spec.truncate = keys.flag("truncate", {}, silent);
  if (s.truncate && spec.truncate != *s.truncate)
    keys.fail("truncate", "transformers does not read it for a type of layer; expected it beside full_attention");
  const double mscale = s.number_or("mscale", 0), of_all = s.number_or("mscale_all_dim", 0);
  const double usual = mscale != 0 && of_all != 0
                           ? yarn_attention_factor(spec.factor, mscale) / yarn_attention_factor(spec.factor, of_all)
                           : yarn_attention_factor(spec.factor);
  spec.attention_factor = s.number_or("attention_factor", usual);
  check_yarn(keys, spec, "beta_fast", "beta_slow", "attention_factor");
}

// LongRoPE's divisors, one for each rotating pair, which the model's configuration owns.
const float* read_divisors(const Settings& s, const char* key, int64_t pairs) {
  auto divisors = std::make_shared<std::vector<float>>();
  for (const double divisor : s.keys.numbers(key)) divisors->push_back(static_cast<float>(divisor));
  if (static_cast<int64_t>(divisors->size()) != pairs)
    s.keys.fail(key, "has " + std::to_string(divisors->size()) + " numbers; expected " + std::to_string(pairs) +
                         ", one for each pair of rotating components of a head");
  for (const float divisor : *divisors)
    if (!(divisor > 0) || !std::isfinite(divisor)) s.keys.fail(key, "holds a number that is not above 0");
  s.model.rope_divisors.push_back(divisors);
  return divisors->data();
}

void read_longrope(const Settings& s, RopeSpec& spec) {
  spec.divisors = read_divisors(s, "short_factor", spec.rotary_dim / 2);
  spec.long_divisors = read_divisors(s, "long_factor", spec.rotary_dim / 2);
  spec.original_context = s.original_context();
  if (spec.original_context < 2)
    s.keys.fail("original_max_position_embeddings", "must be above 1: LongRoPE divides by its logarithm");
  if (s.absent.mscales) {
    spec.attention_factor = s.keys.number("short_mscale");
    if (!(spec.attention_factor > 0)) s.keys.fail("short_mscale", "must be above 0");
    if (s.keys.number("long_mscale") != spec.attention_factor)
      s.keys.fail("long_mscale", "differs from short_mscale, which is not supported; expected the same, as in published models");
    return;
  }
  const double factor = s.number_or("factor", s.stretch(spec));
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(spec.original_context));
  spec.attention_factor = s.number_or("attention_factor", usual);
  if (!(spec.attention_factor > 0)) s.keys.fail("attention_factor", "must be above 0");
}

Scaling read_type(const Settings& s) {
  const std::string type = s.keys.string("rope_type", {"type"}, "default");
  if (s.absent.only_longrope) {
    if (type == "longrope" || type == "su" || type == "yarn") return Scaling::longrope;
    if (type != "default") s.keys.fail("rope_type", "is not supported by this family; expected default or longrope");
  }
  if (type == "dynamic") s.keys.number("factor");
  if (type == "default" || type == "dynamic") return Scaling::none;
  if (type == "linear") return Scaling::linear;
  if (type == "llama3") return Scaling::llama3;
  if (type == "yarn") return Scaling::yarn;
  if (type == "longrope") return Scaling::longrope;
  if (type == "proportional") return Scaling::proportional;
  s.keys.fail("rope_type", "is not supported; expected default, linear, dynamic, llama3, yarn, longrope or proportional");
}

// share: partial_rotary_factor of the configuration around the object.
RopeSpec read_settings(const ModelConfig& config, const Settings& s, int64_t head_dim, double theta, double share) {
  const ConfigReader& keys = s.keys;
  RopeSpec spec{.theta = keys.number("rope_theta", {}, theta),
                .rotary_dim = head_dim,
                .layout = s.absent.pairs ? RopeLayout::pairs : RopeLayout::halves,
                .scaling = read_type(s)};
  const ConfigReader& of_share = keys.has("partial_rotary_factor") ? keys : config.keys;
  share = keys.number("partial_rotary_factor", {}, share);
  if (spec.scaling == Scaling::proportional) {
    if (!(share >= 0 && share <= 1)) of_share.fail("partial_rotary_factor", "is no share; expected a number from 0 to 1");
    spec.turning = static_cast<int64_t>(share * static_cast<double>(head_dim)) / 2;
  } else if (s.absent.share) {
    if (!(share > 0 && share <= 1)) of_share.fail("partial_rotary_factor", "is no share; expected a number above 0 and up to 1");
    spec.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  } else if (share != 1) {
    of_share.fail("partial_rotary_factor", "is not supported; in this family every component of a head rotates");
  }
  if (s.original) spec.original_context = static_cast<double>(*s.original);
  if (!(spec.theta > 0) && keys.has("rope_theta")) keys.fail("rope_theta", "must be above 0");
  check_rope(config, spec, head_dim);
  switch (spec.scaling) {
    case Scaling::linear: spec.factor = keys.number("factor"); break;
    case Scaling::proportional: spec.factor = keys.number("factor", {}, 1.0); break;
    case Scaling::llama3: read_llama3(s, spec); break;
    case Scaling::yarn: read_yarn(s, spec); break;
    case Scaling::longrope: read_longrope(s, spec); break;
    case Scaling::none: break;
  }
  keys.ignore({"original_max_position_embeddings"});
  if (!(spec.factor > 0) && keys.has("factor")) keys.fail("factor", "must be above 0");
  check_rope(config, spec, head_dim);
  return spec;
}

double read_share(const ModelConfig& config, const RopeDefaults& absent) {
  const bool null = config.keys.mentions("partial_rotary_factor");  // as good as 1
  return config.keys.number("partial_rotary_factor", {}, null ? 1.0 : absent.share.value_or(1.0));
}

// The settings of a config.json that has none.
ConfigReader silence(const ModelConfig& config, const Json& settings) {
  return {settings.is_null() ? Json::object() : settings, config.keys.path()};
}

}  // namespace

// Errors: FileError for a RoPE that rotates no whole number of pairs, or a theta that is not above 0.
void check_rope(const ModelConfig& config, const RopeSpec& spec, int64_t head_dim) {
  const ConfigReader& keys = config.keys;
  if (!(spec.theta > 0)) keys.fail(config.gguf ? "rope.freq_base" : "rope_theta", "must be above 0");
  if (spec.scaling != Scaling::none && !(spec.factor > 0)) keys.fail("rope_scaling", "has a factor that is not above 0");
  if (spec.rotary_dim % 2 != 0 || spec.rotary_dim <= 0 || spec.rotary_dim > head_dim)
    keys.fail(config.gguf ? "rope.dimension_count" : "head_dim",
              "gives " + std::to_string(spec.rotary_dim) +
                  " rotating components; RoPE needs an even number from 2 to head_dim (" + std::to_string(head_dim) + ")");
}

// YaRN's factor of cosines and sines for a stretch by `factor`.
double yarn_attention_factor(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

void check_yarn(const ConfigReader& keys, const RopeSpec& spec, const char* fast, const char* slow, const char* factor) {
  if (!(spec.beta_slow > 0) || !(spec.beta_fast >= spec.beta_slow))
    keys.fail(fast, std::string("must not be below ") + slow + ", which must be above 0");
  if (!(spec.attention_factor > 0)) keys.fail(factor, "must be above 0");
}

RopeSpec read_rope(const ModelConfig& config, DecoderConfig& model, const RopeDefaults& absent) {
  if (config.gguf) return read_gguf_rope(config, model, model.head_dim, absent);
  const ConfigReader& keys = config.keys;
  // transformers 5 writes rope_parameters with everything in it, older versions rope_theta and rope_scaling.
  auto object = keys.find_object("rope_parameters");
  if (!object) object = keys.find_object("rope_scaling");
  const ConfigReader settings = object.value_or(silence(config, absent.settings));
  std::optional<int64_t> original = keys.find_positive("original_max_position_embeddings");
  if (!original && absent.original_context > 0) original = absent.original_context;
  return read_settings(config, {.keys = settings, .model = model, .absent = absent, .original = original}, model.head_dim,
                       keys.number("rope_theta", {}, absent.theta), read_share(config, absent));
}

LayerRopes read_layer_ropes(const ModelConfig& config, DecoderConfig& model, int64_t global_head_dim,
                            const RopeDefaults& absent) {
  const ConfigReader& keys = config.keys;
  if (config.gguf) return read_gguf_layer_ropes(config, model, global_head_dim, absent);
  const double theta = absent.older_keys ? keys.number("rope_theta", {}, absent.theta) : absent.theta;
  double local_theta = absent.local_theta.value_or(absent.theta);
  if (absent.local_theta_key != nullptr) local_theta = keys.number(absent.local_theta_key, {}, local_theta);
  if (absent.local_theta_key != nullptr && !(local_theta > 0)) keys.fail(absent.local_theta_key, "must be above 0");
  const auto parameters = keys.find_object("rope_parameters");
  auto full = parameters ? parameters->find_object("full_attention") : std::nullopt;
  const auto sliding = parameters ? parameters->find_object("sliding_attention") : std::nullopt;
  if (parameters && !full) keys.fail("rope_parameters", "has no full_attention; expected an object for each type of layer");
  if (!full && absent.older_keys) {
    full = keys.find_object("rope_scaling");
    if (full && full->has("type") && !full->has("rope_type"))
      full->fail("type", "is an older name of rope_type, which transformers does not read here; expected rope_type");
  }
  const bool truncate = !parameters || parameters->flag("truncate", {}, !parameters->mentions("truncate"));
  const auto of = [&](const std::optional<ConfigReader>& object, const Json& silent, int64_t head_dim, double theta_of_type) {
    const ConfigReader settings = object.value_or(silence(config, silent));
    return read_settings(config, {.keys = settings, .model = model, .absent = absent, .truncate = truncate}, head_dim,
                         theta_of_type, read_share(config, absent));
  };
  return {of(full, absent.settings, global_head_dim, theta), of(sliding, nullptr, model.head_dim, local_theta)};
}

std::vector<bool> read_rotating_layers(const ModelConfig& config, int64_t n_layers, bool gguf_all) {
  const char* const key = config.gguf ? kRotatingInGguf : kRotating;
  const std::vector<int64_t> listed = config.keys.counts(key);
  if (!listed.empty() && std::ssize(listed) < n_layers)
    config.keys.fail(key, "has " + std::to_string(listed.size()) + " entries; expected one for each of " +
                              std::to_string(n_layers) + " layers");
  const int64_t every = config.keys.positive("no_rope_layer_interval", {}, kStillInterval);
  std::vector<bool> rotates;
  for (int64_t layer = 0; layer < n_layers; ++layer)
    rotates.push_back(listed.empty() ? (config.gguf && gguf_all) || (layer + 1) % every != 0
                                     : listed[static_cast<size_t>(layer)] != 0);
  return rotates;
}

void write_rotating_layers(Json& keys, const std::vector<bool>& rotates, ConfigFormat format, bool gguf_all) {
  const bool gguf = format == ConfigFormat::gguf;
  bool taken = true;  // by llama.cpp
  Json list = Json::array();
  for (size_t layer = 0; layer < rotates.size(); ++layer) {
    list.push_back(rotates[layer] ? 1 : 0);
    taken = taken && rotates[layer] == (gguf_all || (layer + 1) % kStillInterval != 0);
  }
  if (!gguf || !taken) keys[gguf ? kRotatingInGguf : kRotating] = std::move(list);
}

}  // namespace vitrine
