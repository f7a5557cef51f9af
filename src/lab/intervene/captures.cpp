#include "intervene/captures.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "intervene/places.h"
#include "model/abilities.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

std::string block(int64_t layer, const char* hook) { return "blocks." + std::to_string(layer) + "." + hook; }

// Queries for hooks, one for each slice of positions.
std::vector<std::string> with_slices(const std::string& pattern, const std::string& heads,
                                     const std::vector<std::string>& positions) {
  std::vector<std::string> queries;
  for (const std::string& slice : positions.empty() ? std::vector<std::string>{""} : positions) {
    std::string inside = heads.empty() ? "" : "heads=" + heads;
    if (!slice.empty()) inside += (inside.empty() ? "" : ",") + ("positions=" + slice);
    queries.push_back(pattern + (inside.empty() ? "" : "[" + inside + "]"));
  }
  return queries;
}

// What an intervention touches, as requests for hooks.
std::vector<std::string> queries_of(const Engine& engine, const Intervention& i) {
  const ModelShape& shape = engine.shape();
  for (const std::string& text : i.positions)
    if (!may_be_slice(text)) throw InputError("\"" + text + "\" is neither a position nor a range of positions FIRST:END");
  std::vector<std::string> queries;
  const auto add = [&](const std::string& pattern, const std::string& heads = "") {
    for (std::string& query : with_slices(pattern, heads, i.positions)) queries.push_back(std::move(query));
  };
  const bool whole_layer = i.action == Intervention::Action::set || i.action == Intervention::Action::add ||
                           i.action == Intervention::Action::identity;
  switch (i.target) {
    case Intervention::Target::head:
      for (const HeadPlace& place : heads_of(i.of, engine.model(), i.where))
        add(block(place.layer, "attn.hook_z"), std::to_string(place.head));
      break;
    case Intervention::Target::mlp:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) add(block(layer, "hook_mlp_out"));
      break;
    case Intervention::Target::attn:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) add(block(layer, "hook_attn_out"));
      break;
    case Intervention::Target::layer:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) {
        if (whole_layer) {
          add(block(layer, "hook_resid_post"));
        } else {  // what the layer adds to the stream
          for (const char* hook : {"hook_attn_out", "hook_ssm_out", "hook_mlp_out", "hook_per_layer_out"})
            if (engine.model().record().hook(block(layer, hook)) != nullptr) add(block(layer, hook));
        }
      }
      break;
    case Intervention::Target::norm:
      for (const std::string& norm : i.of) add(norm + ".hook_normalized");
      break;
    case Intervention::Target::sae: break;  // planned as its hook
    case Intervention::Target::positions: add(block(0, "hook_resid_pre")); break;
    case Intervention::Target::hook:
      for (const std::string& text : i.of) {
        if (i.positions.empty()) {
          queries.push_back(text);
          continue;
        }
        const HookQuery query = parse_hook_query(text);
        if (query.positions) throw InputError("\"" + text + "\" has positions of its own; leave out one of the two");
        const size_t open = text.find("heads=");
        const std::string heads = open == std::string::npos ? "" : text.substr(open + 6, text.size() - open - 7);
        for (std::string& one : with_slices(query.glob, heads, i.positions)) queries.push_back(std::move(one));
      }
  }
  return queries;
}

// The slice of a capture along one axis of its shape; without that axis all of it, on both sides alike.
HookRequest::Range taken(const Capture& capture, std::optional<size_t> axis, const HookRequest::Range& range) {
  return axis ? HookRequest::Range{range.first, range.first + capture.shape[*axis]} : HookRequest::Range{0, 1};
}

// The parts of `capture` that lie outside `before`, another slice of the same hook.
std::vector<Capture> outside(const Capture& capture, const Capture& before) {
  const bool pattern = heads_first(capture.name);
  const size_t rows_axis = pattern ? 1 : 0;
  const std::optional<size_t> heads_axis = pattern                    ? std::optional<size_t>(0)
                                           : capture.shape.size() > 2 ? std::optional<size_t>(1)
                                                                      : std::nullopt;
  const HookRequest::Range heads = taken(capture, heads_axis, capture.request.heads),
                           other_heads = taken(before, heads_axis, before.request.heads),
                           rows = taken(capture, rows_axis, capture.request.positions),
                           other_rows = taken(before, rows_axis, before.request.positions);
  const HookRequest::Range both = {std::max(heads.first, other_heads.first), std::min(heads.end, other_heads.end)};
  const HookRequest::Range shared = {std::max(rows.first, other_rows.first), std::min(rows.end, other_rows.end)};
  if (both.first >= both.end || shared.first >= shared.end) return {capture};
  std::vector<Capture> parts;
  const auto add = [&](const HookRequest::Range& of_heads, const HookRequest::Range& of_rows) {
    if (of_heads.first >= of_heads.end || of_rows.first >= of_rows.end) return;
    Capture part = capture;
    if (heads_axis) part.request.heads = of_heads, part.shape[*heads_axis] = of_heads.end - of_heads.first;
    part.request.positions = of_rows;
    part.shape[rows_axis] = of_rows.end - of_rows.first;
    parts.push_back(std::move(part));
  };
  add({heads.first, both.first}, rows);
  add({both.end, heads.end}, rows);
  add(both, {rows.first, shared.first});
  add(both, {shared.end, rows.end});
  return parts;
}

}  // namespace

std::vector<std::string> inputs_of_norm(const Engine& engine, const std::string& norm) {
  const Model& model = engine.model();
  if (norm == "ln_final") return {block(model.shape().n_layers - 1, "hook_resid_post")};
  const size_t dot = norm.rfind('.');
  const std::string at = norm.substr(0, dot + 1), name = norm.substr(dot + 1);
  if (name == "ln1" || name == "ln2") {
    const bool enters = name == "ln1" || is_parallel(model, split_layer(norm).first);
    const std::string stream = at + (enters ? "hook_resid_pre" : "hook_resid_mid");
    const std::string update = at + (name == "ln1" ? "hook_attn_out" : "hook_mlp_out");
    if (!model.layer(0).norms_after) return {stream};
    return model.form().residual ? std::vector{stream, update} : std::vector{update};
  }
  if (name == "ln1_post") return {at + "attn.hook_out"};
  if (name == "q_norm" || name == "k_norm") return {at + (name == "q_norm" ? "hook_q" : "hook_k")};
  return {};
}

std::vector<Capture> captures_of(const Engine& engine, const Intervention& intervention, int64_t rows) {
  const std::vector<std::string> hook_names = engine.model().hook_names();
  std::vector<Capture> captures;
  for (const std::string& text : queries_of(engine, intervention)) {
    const HookQuery query = parse_hook_query(text);
    std::vector<Capture> fresh = plan_captures(engine.model(), hook_names, std::span(&query, 1), rows);
    for (const Capture& before : captures) {
      std::vector<Capture> left;
      for (const Capture& capture : fresh) {
        if (capture.name != before.name) {
          left.push_back(capture);
          continue;
        }
        for (Capture& part : outside(capture, before)) left.push_back(std::move(part));
      }
      fresh = std::move(left);
    }
    captures.insert(captures.end(), fresh.begin(), fresh.end());
  }
  return captures;
}

}  // namespace vitrine
