#include "inspect/step_json.h"

#include <map>

#include "model/config.h"
#include "model/rope_config.h"

namespace vitrine {
namespace {

Json shape_json(const Shape& shape) {
  Json sizes = Json::array();
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return sizes;
}

Json values_json(const std::vector<ValueRecord>& values) {
  Json list = Json::array();
  for (const ValueRecord& value : values) list.push_back({{"value", value.number}, {"shape", shape_json(value.shape)}});
  return list;
}

// What an op was called with, by the names of the configuration.
struct SpecJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(const NormSpec& s) const { return {{"eps", shortest(s.eps)}, {"offset", s.offset}}; }
  Json operator()(const RopeSpec& s) const {
    Json json = rope_parameters(s);
    json["rotary_dim"] = s.rotary_dim;
    if (s.first > 0) json["first"] = s.first;
    json["layout"] = s.layout == RopeLayout::halves ? "halves" : "pairs";
    return json;
  }
  Json operator()(const AttentionSpec& s) const {
    return {{"scale", shortest(s.scale)},
            {"softcap", s.softcap > 0 ? Json(s.softcap) : Json(nullptr)},
            {"window", s.window != kNoWindow ? Json(s.window) : Json(nullptr)},
            {"chunked", s.chunked},
            {"causal", s.causal},
            {"sinks", s.sinks != nullptr},
            {"alibi", s.alibi},
            {"dropout", s.dropout}};
  }
  Json operator()(const ExpertSpec& s) const {
    return {{"experts", s.count}, {"per_token", s.per_row}, {"d_ff", s.d_ff}, {"activation", activation_key(s.activation)}};
  }
  Json operator()(Activation f) const { return {{"activation", activation_key(f)}}; }
  Json operator()(SinusoidLayout layout) const { return {{"layout", layout == SinusoidLayout::halves ? "halves" : "pairs"}}; }
  Json operator()(const ScaleSpec& s) const { return {{"factor", s.factor}}; }
  Json operator()(const DropoutSpec& s) const { return {{"p", s.p}}; }
  Json operator()(const ConvSpec& s) const { return {{"taps", s.taps}, {"channels", s.channels}}; }
  Json operator()(const DeltaSpec& s) const {
    return {{"heads", s.n_heads}, {"key_heads", s.n_key_heads}, {"d_key", s.d_key}, {"d_value", s.d_value}};
  }
  Json operator()(const DecaySpec& s) const { return {{"A_is_log", s.is_log}}; }
  Json operator()(const SoftcapSpec& s) const { return {{"cap", s.cap}}; }
  Json operator()(const TemperatureSpec& s) const { return {{"floor_scale", s.floor_scale}, {"scale", shortest(s.scale)}}; }
};

}  // namespace

Json step_json(const Model& model, const StepSize& size) {
  const StepRecord record = record_step(model, size);
  std::map<const void*, std::string> names;
  for (const TensorLine& line : model.tensors())
    names[line.weight != nullptr ? static_cast<const void*>(line.weight) : line.vector] = line.ours;
  Json ops = Json::array(), hooks = Json::array();
  int64_t bytes_read = 0;
  for (const OpRecord& op : record.ops) {
    Json weights = Json::array();
    const auto add_name = [&](const void* place) {
      if (const auto found = names.find(place); found != names.end()) weights.push_back(found->second);
    };
    for (const Weight* w : op.weights) add_name(w);
    for (const Vector* v : op.vectors) add_name(v);
    bytes_read += op.bytes_read;
    ops.push_back({{"op", op.op},
                   {"name", op.name},
                   {"layer", op.layer >= 0 ? Json(op.layer) : Json(nullptr)},
                   {"inputs", values_json(op.inputs)},
                   {"outputs", values_json(op.outputs)},
                   {"weights", std::move(weights)},
                   {"spec", std::visit(SpecJson(), op.spec)},
                   {"cache_layer", op.cache_layer >= 0 ? Json(op.cache_layer) : Json(nullptr)},
                   {"multiply_adds", op.multiply_adds},
                   {"bytes_read", op.bytes_read},
                   {"bytes_made", op.bytes_made},
                   {"bytes_kept", op.bytes_kept},
                   {"bytes_peak", op.bytes_peak}});
  }
  for (const HookShape& hook : model.record().hooks) hooks.push_back({{"name", hook.name}, {"shape", hook.of(size.rows)}});
  return {{"rows", size.rows},        {"position", size.position},       {"multiply_adds", record.multiply_adds()},
          {"bytes_read", bytes_read}, {"peak_bytes", record.peak_bytes}, {"kept_bytes", record.kept_bytes},
          {"ops", std::move(ops)},    {"hooks", std::move(hooks)}};
}

}  // namespace vitrine
