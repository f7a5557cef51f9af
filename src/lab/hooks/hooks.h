#pragma once
// Asking for hooks: names, patterns, aliases and slices, and how large what they give will be, before anything runs.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "model/model.h"
#include "ops/recorder.h"

namespace vitrine {

/// One request as a user writes it:   PATTERN  or  PATTERN[heads=SLICE,positions=SLICE]
///
/// PATTERN    a hook name in which * stands for any run of characters ("blocks.*.attn.hook_pattern", "*"), or an alias:
///            - the names of the walk-through of GPT-2 style models: residual, normalized_resid_pre, attn_out, resid_mid,
///              normalized_resid_mid, mlp_out, normalized_resid_final;
///            - TransformerLens' short names: embed, pos_embed, resid_pre, resid_post, q, k, v, rot_q, rot_k, attn_scores,
///              pattern, z, result, pre, pre_linear, post, logits; of routers router_logits, expert_indices, expert_weights,
///              expert_out;
///            - names of its version 3: embed.hook_out, pos_embed.hook_out, unembed.hook_out; of a router
///              blocks.3.mlp.gate.hook_out, blocks.3.mlp.router.hook_out;
///            - interp-engine's points: embeddings, q_norm_in, q_norm_out, k_norm_in, k_norm_out, value, attn_probs, attn_gate,
///              attn_out_post, mlp_pre, mlp_pre_linear, mlp_act, mlp_out_post, final_norm, lm_head (docs/python.md lists all).
///            An alias of a layer's hook means every layer; "pattern.3" and "pattern3" mean layer 3.
/// SLICE      one index ("3", "-1") or a half-open range ("0:2", "-4:", ":8"); negative counts from the end.
/// heads      cuts the head axis of q, k, v, z, results, scores and patterns; what a wildcard fits beside them stays whole.
/// positions  cuts rows, and the queries of scores and patterns; their keys stay whole.
struct HookQuery {
  struct Slice {
    std::optional<int64_t> first, end;  // negative: from the end; none: the axis' own end
    bool single = false;                // was written as one index, which must exist
  };
  std::string text;  // as written, for messages
  std::string glob;  // alias resolved by plan_captures, which knows the model
  std::optional<Slice> heads, positions;
};

/// Errors: InputError that quotes the request and names what was expected.
HookQuery parse_hook_query(std::string_view text);

/// The hooks that a name stands for in a model with these hook names, as a pattern: the name itself if it fits any, else what it
/// is an alias of in that model ("attn_out": "blocks.*.hook_attn_out"; "pattern.3": "blocks.3.attn.hook_pattern"). Nothing if it
/// is neither.
std::optional<std::string> hook_alias(std::string_view name, const std::vector<std::string>& hook_names);

/// The same of an alias that means the same hook in every model, for callers without one; nothing for other aliases.
std::optional<std::string> hook_alias(std::string_view name);

/// One hook that will be kept.
struct Capture {
  std::string name;            // in full: "blocks.3.attn.hook_pattern"
  std::vector<int64_t> shape;  // of what is kept
  HookRequest request;         // slices resolved to this sequence and this hook
};

/// The hooks of `model` that the queries ask for, in the order of the run, for a sequence of `rows` tokens. `coming`: as many may
/// follow while it grows. Negative positions still count from the end of `rows`, slices without an end take what follows too, and
/// the shapes are those of the longest sequence.
/// Errors: InputError for a query that fits no hook (with the nearest names), asks for heads where there are none, selects
/// nothing, or asks for a hook that another query asks for with other slices.
std::vector<Capture> plan_captures(const Model& model, std::span<const HookQuery> queries, int64_t rows, int64_t coming = 0);
/// The same, with the model's hook_names(), for a caller that plans often.
std::vector<Capture> plan_captures(const Model& model, const std::vector<std::string>& hook_names,
                                   std::span<const HookQuery> queries, int64_t rows, int64_t coming = 0);

/// The whole shape of the named hook's value for a sequence of `rows` tokens, as a Recorder keeps it. Errors: InputError for a
/// hook that the model has not.
std::vector<int64_t> hook_shape(const Model& model, std::string_view name, int64_t rows);

/// Bytes of the values, as f32.
size_t capture_bytes(std::span<const Capture> captures);

}  // namespace vitrine
