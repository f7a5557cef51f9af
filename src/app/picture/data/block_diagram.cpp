// Pictures of one block in the order of its parts, and of the stream as the sum of what they add.
#include <algorithm>
#include <cmath>

#include "hooks/trace.h"
#include "model/abilities.h"
#include "picture/data/head_study.h"

namespace vitrine {
namespace {

struct BlockPart {
  const char *id, *norm, *update, *sum;  // hooks of a block: what the part adds; the stream behind it
};
constexpr BlockPart kBlockParts[] = {{"attention", "ln1", "hook_attn_out", "hook_resid_mid"},
                                     {"mlp", "ln2", "hook_mlp_out", "hook_resid_post"}};

double length_of_last(const RowsD& rows) { return rows.row(rows.rows() - 1).norm(); }

std::string part_of_attention(const ModelFacts& facts, const LayerRecord& spec) {
  if (spec.delta && spec.has_attention()) return plural(facts.shape.n_heads, "head") + ", and a recurrence beside them";
  if (spec.delta) return "recurrence";
  if (spec.conv) return "convolution";
  return plural(facts.shape.n_heads, "head");
}

std::string part_of_mlp(const LayerRecord& spec, bool gated) {
  if (!spec.experts) return fmt::format("MLP: {} hidden units, {}", spec.d_ff, mlp_title(spec.activation, gated));
  return fmt::format("{}{} of which a token goes through {}", spec.experts_beside ? "MLP, and beside it " : "",
                     plural(spec.experts->count, "expert"), spec.experts->per_row);
}

// Whether the stream at the end is what entered it plus all that was added.
std::string why_no_sum(const Studio& studio) {
  const Model& model = studio.engine.model();
  if (!model.form().residual)
    return "In this model each part's output takes the place of the stream instead of being added to it.";
  for (int64_t layer = 0; layer < studio.facts.shape.n_layers; ++layer) {
    const LayerRecord& spec = model.layer(layer);
    if (spec.norms_after)
      return "In this model a norm acts on the stream itself after each part was added, so the stream is no plain sum.";
    if (spec.stream_scale != 1)
      return "In this model the whole stream is multiplied by a number at the end of each layer, so it is no plain sum.";
  }
  return "";
}

}  // namespace

PictureJson data_of_block_diagram(Studio& studio) {
  const HeadStudy& study = head_study(studio);
  const ModelFacts& facts = studio.facts;
  const Model& model = studio.engine.model();
  const ModelRecord& record = model.record();
  const LayerRecord& spec = model.layer(study.layer);
  const std::string block = fmt::format("blocks.{}.", study.layer), norm = spec.rms ? "RMSNorm" : "LayerNorm";
  const auto has = [&](const std::string& hook) { return record.hook(block + hook) != nullptr; };
  std::vector<std::string> hooks = {block + "hook_resid_pre"};
  for (const BlockPart& part : kBlockParts)
    for (const char* hook : {part.update, part.sum})
      if (has(hook)) hooks.push_back(block + hook);
  const Recorder seen = trace_to_memory(studio.engine, study.ids, hooks);
  const auto rows = [&](const std::string& hook) { return rows_of_hook(seen, block + hook); };

  PictureJson parts = PictureJson::array();
  RowsD stream = rows("hook_resid_pre");
  PictureJson lengths = PictureJson::array({number(length_of_last(stream))});
  std::string order = "the stream enters";
  for (const BlockPart& part : kBlockParts) {
    if (!has(part.update)) continue;
    const bool attention = std::string_view(part.id) == "attention";
    const std::string in = std::string(part.norm) + ".hook_normalized", out = std::string(part.norm) + "_post.hook_normalized";
    const bool before = !spec.norms_after && has(in), behind = has(out), after = spec.norms_after && has(in);
    const RowsD update = rows(part.update), sum = has(part.sum) ? rows(part.sum) : RowsD(stream + update);
    stream = sum;
    const std::string title = attention ? part_of_attention(facts, spec) : part_of_mlp(spec, has("mlp.hook_pre_linear"));
    PictureJson one = {{"id", part.id},
                       {"title", title},
                       {"heads", attention && spec.has_attention() ? PictureJson(facts.shape.n_heads) : PictureJson(nullptr)},
                       {"normBefore", before ? PictureJson(norm) : PictureJson(nullptr)},
                       {"normBehind", behind ? PictureJson(norm) : PictureJson(nullptr)},
                       {"factor", spec.residual_scale != 1 ? number(spec.residual_scale) : PictureJson(nullptr)},
                       {"adds", model.form().residual},
                       {"normAfter", after ? PictureJson(norm) : PictureJson(nullptr)},
                       {"hook", block + part.update},
                       {"length", number(length_of_last(update))},
                       {"streamLength", number(length_of_last(sum))}};
    one["words"] =
        fmt::format("{}{}{}{}{}{}", is_parallel(model, study.layer) && !attention ? "of the stream that entered: " : "",
                    before ? norm + ", " : "", title, behind ? ", " + norm : "", model.form().residual ? ", +" : "",
                    after ? ", " + norm : "");
    order += "; " + one["words"].get<std::string>();
    lengths.push_back(number(length_of_last(sum)));
    parts.push_back(std::move(one));
  }
  PictureJson p = present(
      fmt::format(
          "Layer {} of this model in the order in which it computes. The numbers are lengths of vectors at the last of {} in "
          "this run: of the stream on the line, of what each part adds beside its plus sign.{}",
          study.layer, plural(study.ids.size(), "token"), cut_sentence(studio, study)),
      fmt::format("From top to bottom: {}.", order));
  p["layer"] = study.layer;
  p["dModel"] = facts.shape.d_model;
  p["nTokens"] = study.ids.size();
  p["blocks"] = facts.shape.n_layers;
  p["third"] = spec.per_layer_dim > 0;  // it has one more part, which is not drawn
  p["lengths"] = std::move(lengths);
  p["prose"] = {{"third", p["third"]}};
  p["parts"] = std::move(parts);
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["part", "parts.*.id"], ["in order", "parts.*.words"], ["length of what it adds", "parts.*.length"], ["length of the stream", "parts.*.streamLength"]]}
  ])json");
  return p;
}

PictureJson data_of_stream_sum(Studio& studio) {
  if (const std::string why = why_no_sum(studio); !why.empty()) return absent(why);
  const HeadStudy& study = head_study(studio);
  const ModelRecord& record = studio.engine.model().record();
  const int64_t layers = studio.facts.shape.n_layers;
  const std::string begin = "blocks.0.hook_resid_pre", end = fmt::format("blocks.{}.hook_resid_post", layers - 1);
  std::vector<std::string> hooks = {begin};
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const char* hook : {"hook_attn_out", "hook_mlp_out", "hook_per_layer_out", "hook_ssm_out", "hook_resid_post"})
      if (const std::string name = fmt::format("blocks.{}.{}", layer, hook); record.hook(name) != nullptr) hooks.push_back(name);
  const Recorder seen = trace_to_memory(studio.engine, study.ids, hooks, nullptr, studio.options.memory);
  RowsD sum = rows_of_hook(seen, begin);
  PictureJson p = present(
      fmt::format(
          "Lengths at the last of {} in this run: of the stream after each layer, and of what the layer's attention and MLP "
          "added to it.{}",
          plural(study.ids.size(), "token"), cut_sentence(studio, study)),
      "");
  p["start"] = number(length_of_last(sum));
  p["layers"] = PictureJson::array();
  size_t parts = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    PictureJson one = {{"layer", layer}, {"attention", nullptr}, {"mlp", nullptr}, {"third", nullptr}};
    for (const auto& [key, hook] : {std::pair{"attention", "hook_attn_out"}, std::pair{"mlp", "hook_mlp_out"},
                                    std::pair{"third", "hook_per_layer_out"}, std::pair{"third", "hook_ssm_out"}}) {
      const std::string name = fmt::format("blocks.{}.{}", layer, hook);
      if (record.hook(name) == nullptr) continue;
      const RowsD update = rows_of_hook(seen, name);
      sum += update;
      one[key] = number(length_of_last(update));
      ++parts;
    }
    one["stream"] = number(length_of_last(rows_of_hook(seen, fmt::format("blocks.{}.hook_resid_post", layer))));
    p["layers"].push_back(std::move(one));
  }
  const double error = relative_distance(sum, rows_of_hook(seen, end));
  p["parts"] = parts;
  p["error"] = number(error);
  p["prose"] = {{"parts", parts}, {"error", p["error"]}, {"start", p["start"]}, {"end", p["layers"].back().at("stream")}};
  p["alt"] = fmt::format(
      "The stream begins with length {:.3g} and ends with {:.3g}. The embedding plus {} gives the stream at the end "
      "up to {:.1g} of its length.",
      p["start"].get<double>(), p["layers"].back().at("stream").get<double>(), plural(parts, "update"), error);
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Lengths of the stream and of what each layer adds.", "height": 280,
     "x": {"label": "layer", "whole": true, "pad": 0.5}, "y": {"label": "length of the vector", "zero": true},
     "series": [
       {"name": "stream", "tone": "plain", "draw": "both", "y": "layers.*.stream", "hint": "stream behind layer {#0}\nlength {layers.*.stream}"},
       {"name": "attention", "tone": "attention", "draw": "both", "y": "layers.*.attention", "hint": "attention of layer {#0}\nadds a vector of length {layers.*.attention}"},
       {"name": "MLP", "tone": "mlp", "draw": "both", "y": "layers.*.mlp", "hint": "MLP of layer {#0}\nadds a vector of length {layers.*.mlp}"}]},
    {"kind": "remark", "text": "Check over all tokens: ‖x₀ + what {parts} parts added − the stream at the end‖ / ‖the stream at the end‖ = {error|.2g}."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"keep": "spread", "columns": [["layer", "layers.*.layer"], ["attention adds", "layers.*.attention"], ["MLP adds", "layers.*.mlp"], ["stream", "layers.*.stream"]]},
    {"note": "sum of all parts against the stream at the end", "detail": true, "columns": [["parts", "parts"], ["relative difference", "error"]]}
  ])json");
  return p;
}

}  // namespace vitrine
