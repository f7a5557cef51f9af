#include "hooks/hooks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "hooks/spliced_model.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

struct Alias {
  std::string_view name;
  std::string_view hook;  // of a layer: without "blocks.<layer>."
  bool of_layer;
  bool input_norm = false;       // of what a norm before a sub-layer reads or gives: not in a family whose norms come after
  std::string_view unless = {};  // a hook of a layer, in a model with which the name means another value
  std::string_view given = {};   // one without which it means nothing
};
// Of several with one name, the first whose hook the model has.
constexpr std::array kAliases = {
    Alias{"residual", "hook_resid_pre", true},
    Alias{"normalized_resid_pre", "ln1.hook_normalized", true, true},
    Alias{"normalized_resid_mid", "ln2.hook_normalized", true, true},
    Alias{"normalized_resid_final", "ln_final.hook_normalized", false},
    Alias{"resid_pre", "hook_resid_pre", true},
    Alias{"resid_mid", "hook_resid_mid", true},
    Alias{"resid_post", "hook_resid_post", true},
    Alias{"attn_out", "hook_attn_out", true},
    Alias{"mlp_out", "hook_mlp_out", true},
    Alias{"q", "attn.hook_q", true},
    Alias{"k", "attn.hook_k", true},
    Alias{"v", "attn.hook_v", true},
    Alias{"rot_q", "attn.hook_rot_q", true},
    Alias{"rot_k", "attn.hook_rot_k", true},
    Alias{"attn_scores", "attn.hook_attn_scores", true},
    Alias{"pattern", "attn.hook_pattern", true},
    Alias{"z", "attn.hook_z", true},
    Alias{"result", "attn.hook_result", true},
    Alias{"pre", "mlp.hook_pre", true},
    Alias{"pre_linear", "mlp.hook_pre_linear", true},
    Alias{"post", "mlp.hook_post", true},
    Alias{"router_logits", "mlp.hook_router_logits", true},
    Alias{"mlp.gate.hook_out", "mlp.hook_router_logits", true},
    Alias{"mlp.router.hook_out", "mlp.hook_router_logits", true},
    Alias{"expert_indices", "mlp.hook_expert_indices", true},
    Alias{"expert_weights", "mlp.hook_expert_weights", true},
    Alias{"expert_out", "mlp.hook_expert_out", true},
    Alias{"embed", "hook_embed", false},
    Alias{"embed.hook_out", "hook_embed", false},
    Alias{"pos_embed", "hook_pos_embed", false},
    Alias{"pos_embed.hook_out", "hook_pos_embed", false},
    Alias{"logits", "hook_logits", false},
    Alias{"unembed.hook_out", "hook_logits", false},
    // TransformerLens 4's names, by the module that a value enters or leaves.
    Alias{"hook_in", "hook_resid_pre", true},
    Alias{"hook_out", "hook_resid_post", true},
    Alias{"ln1.hook_in", "hook_resid_pre", true, true},
    Alias{"ln1.hook_out", "ln1.hook_normalized", true},
    Alias{"ln2.hook_in", "hook_resid_mid", true, true},
    Alias{"ln2.hook_out", "ln2.hook_normalized", true},
    Alias{"ln1_post.hook_in", "attn.hook_out", true},
    Alias{"ln1_post.hook_out", "hook_attn_out", true},
    Alias{"ln2_post.hook_out", "hook_mlp_out", true},
    Alias{"attn.hook_in", "ln1.hook_normalized", true, true},
    Alias{"attn.q.hook_in", "ln1.hook_normalized", true, true},
    Alias{"attn.k.hook_in", "ln1.hook_normalized", true, true},
    Alias{"attn.v.hook_in", "ln1.hook_normalized", true, true},
    Alias{"attn.q.hook_out", "attn.hook_q", true},
    Alias{"attn.k.hook_out", "attn.hook_k", true},
    Alias{"attn.v.hook_out", "attn.hook_v", true},
    Alias{"attn.o.hook_in", "attn.hook_gated_z", true},
    Alias{"attn.o.hook_in", "attn.hook_z", true},
    Alias{"attn.o.hook_out", "attn.hook_out", true},
    Alias{"mlp.hook_in", "ln2.hook_normalized", true, true},
    Alias{"mlp.in.hook_in", "ln2.hook_normalized", true, true, "mlp.hook_router_logits"},
    Alias{"mlp.gate.hook_in", "ln2.hook_normalized", true, true, {}, "mlp.hook_pre_linear"},
    Alias{"mlp.in.hook_out", "mlp.hook_pre_linear", true},
    Alias{"mlp.in.hook_out", "mlp.hook_pre", true},
    Alias{"mlp.gate.hook_out", "mlp.hook_pre", true, false, {}, "mlp.hook_pre_linear"},
    Alias{"mlp.out.hook_in", "mlp.hook_post", true},
    Alias{"mlp.out.hook_out", "hook_mlp_out", true, false, "ln2_post.hook_scale"},
    Alias{"mlp.hook_out", "hook_mlp_out", true, false, "ln2_post.hook_scale"},
    Alias{"ln_final.hook_out", "ln_final.hook_normalized", false},
    Alias{"unembed.hook_in", "ln_final.hook_normalized", false},
    Alias{"hook_unembed", "hook_logits", false},
    // interp-engine's points. Its attn_in, attn_out, mlp_in, mlp_out and z are named above or mean a neighboring value.
    Alias{"embeddings", "hook_embed", false},
    Alias{"q_norm_in", "attn.hook_q", true},
    Alias{"q_norm_out", "attn.q_norm.hook_normalized", true},
    Alias{"k_norm_in", "attn.hook_k", true},
    Alias{"k_norm_out", "attn.k_norm.hook_normalized", true},
    Alias{"value", "attn.hook_v", true},
    Alias{"attn_probs", "attn.hook_pattern", true},
    Alias{"attn_gate", "attn.hook_gate", true},
    Alias{"attn_out_post", "hook_attn_out", true},
    Alias{"mlp_pre", "mlp.hook_pre", true},
    Alias{"mlp_pre_linear", "mlp.hook_pre_linear", true},
    Alias{"mlp_act", "mlp.hook_post", true},
    Alias{"mlp_out_post", "hook_mlp_out", true},
    Alias{"final_norm", "ln_final.hook_normalized", false},
    Alias{"lm_head", "hook_logits", false},
};

// What a name may stand for, as a pattern of our names, in the order in which it is tried.
struct Meaning {
  const Alias* alias;
  std::string glob;
};
std::vector<Meaning> meanings_of(std::string_view name) {
  std::vector<Meaning> found;
  const auto add = [&](std::string_view base, const std::string& of_layer) {  // of_layer: with its point
    for (const Alias& alias : kAliases)
      if (alias.name == base && (alias.of_layer || of_layer == "blocks.*."))
        found.push_back({&alias, (alias.of_layer ? of_layer : "") + std::string(alias.hook)});
    return !found.empty();
  };
  if (add(name, "blocks.*.")) return found;
  if (const size_t dot = name.find('.', 7); name.starts_with("blocks.") && dot != std::string_view::npos)
    if (add(name.substr(dot + 1), std::string(name.substr(0, dot + 1)))) return found;
  const size_t last = name.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == name.size()) return found;
  add(name.substr(0, name[last] == '.' ? last : last + 1), "blocks." + std::string(name.substr(last + 1)) + ".");
  return found;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

[[noreturn]] void bad_query(std::string_view text, const std::string& problem) {
  throw InputError("the hook request \"" + std::string(text) + "\" " + problem +
                   "; expected PATTERN or PATTERN[heads=SLICE,positions=SLICE], such as "
                   "blocks.*.attn.hook_pattern[heads=0:2,positions=-1]");
}

HookQuery::Slice parse_slice(std::string_view query, std::string_view text) {
  HookQuery::Slice slice;
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view part) {
    const std::optional<int64_t> value = whole_number(part);
    if (!value) bad_query(query, "has the slice \"" + std::string(text) + "\", which is neither an index nor a range FIRST:END");
    return *value;
  };
  if (colon == std::string_view::npos) {
    slice.first = number(text);
    slice.single = true;
    return slice;
  }
  if (colon > 0) slice.first = number(text.substr(0, colon));
  if (colon + 1 < text.size()) slice.end = number(text.substr(colon + 1));
  return slice;
}

bool has_heads(std::string_view name, const std::vector<int64_t>& shape) {
  return (shape.size() >= 3 && split_layer(name).second.starts_with("attn.")) || heads_first(name);
}

// What a user may have meant: the nearest names, each layer's once, with the layer that was asked for if the model has it.
std::string nearest_names(const Model& model, std::string_view glob) {
  const auto [layer, rest] = split_layer(glob);
  const int64_t n_layers = model.shape().n_layers;
  const std::string asked = layer >= 0 ? "blocks.*." + std::string(rest) : std::string(glob);
  const std::vector<std::string> names = model.hook_names();
  std::map<std::string, size_t> distances;
  for (const std::string& name : names) {
    const auto [of_layer, hook] = split_layer(name);
    const std::string candidate = of_layer >= 0 ? "blocks.*." + std::string(hook) : name;
    if (!distances.contains(candidate)) distances[candidate] = edit_distance(asked, candidate);
  }
  for (const Alias& alias : kAliases) distances.emplace(alias.name, edit_distance(asked, alias.name));
  size_t least = SIZE_MAX;
  for (const auto& [name, distance] : distances) least = std::min(least, distance);
  std::string list;
  int listed = 0;
  for (const auto& [known, distance] : distances) {
    if (distance != least || ++listed > 3) continue;
    std::string name = known, here = known;
    if (layer >= 0 && layer < n_layers && name.starts_with("blocks.*")) here.replace(7, 1, std::to_string(layer));
    if (std::find(names.begin(), names.end(), here) != names.end()) name = here;
    list += (listed > 1 ? " or \"" : "\"") + name + "\"";
  }
  std::string sentence = "Did you mean " + list + "?";
  if (layer >= n_layers)
    sentence = "The model has " + std::to_string(n_layers) + " layers, 0 to " + std::to_string(n_layers - 1) + ". " + sentence;
  return sentence;
}

// The hooks of the autoencoders that it runs through, for who asks for another one.
std::string feature_names(const std::vector<std::string>& all) {
  std::string list;
  for (const std::string& name : all)
    if (of_autoencoder(name)) list += (list.empty() ? "" : ", ") + name;
  if (list.empty()) return "It runs without autoencoders; --sae gives one, in Python model.saes(), in a recipe \"saes\"";
  return "Its autoencoders have " + list;
}

// In a family whose norms come after their sub-layer, ln1 does not normalize what the sub-layer reads.
bool norms_come_after(const std::vector<std::string>& names) {
  // Where there is none, it does so neither.
  const auto place = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) - names.begin(); };
  return place("blocks.0.ln1.hook_normalized") > place("blocks.0.attn.hook_q");
}

std::vector<std::string> names_that_fit(const Model& model, const std::vector<std::string>& all, const HookQuery& query) {
  std::vector<std::string> found;
  if (const std::optional<std::string> glob = hook_alias(query.glob, all))
    std::copy_if(all.begin(), all.end(), std::back_inserter(found), [&](const std::string& name) { return fits(*glob, name); });
  if (found.empty()) {
    const std::vector<Meaning> meanings = meanings_of(query.glob);
    throw InputError("no hook of this " + model.shape().family + " model fits \"" + query.glob + "\". " +
                     (of_autoencoder(query.glob) ? feature_names(all)
                                                 : nearest_names(model, meanings.empty() ? query.glob : meanings.front().glob) +
                                                       " `vitrine info --hooks` lists every name"));
  }
  return found;
}

HookRequest::Range resolve(const HookQuery& query, const HookQuery::Slice& slice, const std::string& name, const char* axis,
                           int64_t size) {
  const auto fail = [&](const std::string& problem) {
    throw InputError("the hook request \"" + query.text + "\" " + problem + ": " + name + " has " + std::to_string(size) + " " +
                     axis + (size > 0 ? ", 0 to " + std::to_string(size - 1) : ""));
  };
  const auto from_end = [&](int64_t i) { return i < 0 ? i + size : i; };
  if (slice.single) {
    const int64_t i = from_end(*slice.first);
    if (i < 0 || i >= size) fail("selects one that does not exist");
    return {i, i + 1};
  }
  const int64_t first = std::clamp<int64_t>(from_end(slice.first.value_or(0)), 0, size);
  const int64_t end = std::clamp<int64_t>(slice.end ? from_end(*slice.end) : size, 0, size);
  if (first >= end) fail("selects nothing");
  return {first, end};
}

Capture capture_of(const Model& model, const HookQuery& query, const std::string& name, int64_t rows, int64_t coming) {
  Capture capture{name, hook_shape(model, name, rows + coming), {name, {}, {}}};
  const bool pattern = heads_first(name);
  const auto cut = [&](size_t axis, const HookQuery::Slice& slice, const char* what, int64_t more, HookRequest::Range& range) {
    range = resolve(query, slice, name, what, capture.shape[axis] - more);
    if (!slice.single && !slice.end) range.end += more;
    capture.shape[axis] = range.end - range.first;
  };
  if (query.heads && has_heads(name, capture.shape)) cut(pattern ? 0 : 1, *query.heads, "heads", 0, capture.request.heads);
  if (query.positions) cut(pattern ? 1 : 0, *query.positions, "positions", coming, capture.request.positions);
  return capture;
}

}  // namespace

HookQuery parse_hook_query(std::string_view text) {
  HookQuery query;
  query.text = text;
  const size_t open = text.find('[');
  query.glob = text.substr(0, open);
  if (query.glob.empty()) bad_query(text, "has no name");
  if (open == std::string_view::npos) return query;
  if (text.back() != ']') bad_query(text, "has a [ without its ] at the end");
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  while (true) {
    const size_t comma = inside.find(',');
    const std::string_view part = inside.substr(0, comma);
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    std::optional<HookQuery::Slice>* slot = key == "heads" ? &query.heads : key == "positions" ? &query.positions : nullptr;
    if (slot == nullptr || equals == std::string_view::npos)
      bad_query(text, "has \"" + std::string(part) + "\" in its brackets, which is neither heads=SLICE nor positions=SLICE");
    if (*slot) bad_query(text, "names " + std::string(key) + " twice");
    *slot = parse_slice(text, part.substr(equals + 1));
    if (comma == std::string_view::npos) return query;
    inside.remove_prefix(comma + 1);
  }
}

std::optional<std::string> hook_alias(std::string_view name, const std::vector<std::string>& hook_names) {
  const auto has = [&](std::string_view glob) {
    return std::any_of(hook_names.begin(), hook_names.end(), [&](const std::string& hook) { return fits(glob, hook); });
  };
  const auto in_a_layer = [&](std::string_view hook) { return has("blocks.*." + std::string(hook)); };
  if (has(name)) return std::string(name);
  for (const auto& [alias, glob] : meanings_of(name))
    if (has(glob) && !(alias->input_norm && norms_come_after(hook_names)) &&
        (alias->unless.empty() || !in_a_layer(alias->unless)) && (alias->given.empty() || in_a_layer(alias->given)))
      return glob;
  return std::nullopt;
}

std::optional<std::string> hook_alias(std::string_view name) {
  const std::vector<Meaning> meanings = meanings_of(name);
  if (meanings.size() != 1) return std::nullopt;
  const auto& [alias, glob] = meanings.front();
  const bool depends = alias->input_norm || !alias->unless.empty() || !alias->given.empty();
  return depends ? std::nullopt : std::optional(glob);
}

std::vector<Capture> plan_captures(const Model& model, std::span<const HookQuery> queries, int64_t rows, int64_t coming) {
  return plan_captures(model, model.hook_names(), queries, rows, coming);
}

std::vector<Capture> plan_captures(const Model& model, const std::vector<std::string>& hook_names,
                                   std::span<const HookQuery> queries, int64_t rows, int64_t coming) {
  std::map<std::string, std::pair<Capture, const HookQuery*>> planned;
  for (const HookQuery& query : queries) {
    bool heads_used = !query.heads;
    for (const std::string& name : names_that_fit(model, hook_names, query)) {
      Capture capture = capture_of(model, query, name, rows, coming);
      heads_used = heads_used || has_heads(name, capture.shape);
      const auto same = [](const HookRequest::Range& a, const HookRequest::Range& b) {
        return a.first == b.first && a.end == b.end;
      };
      const auto [place, fresh] = planned.try_emplace(name, capture, &query);
      const HookRequest& before = place->second.first.request;
      if (!fresh && !(same(before.heads, capture.request.heads) && same(before.positions, capture.request.positions)))
        throw InputError("\"" + place->second.second->text + "\" and \"" + query.text + "\" ask for different slices of " + name +
                         "; a trace holds a hook once. Ask for the larger slice, or trace twice");
    }
    if (!heads_used) throw InputError("the hook request \"" + query.text + "\" asks for heads, and no hook that it fits has any");
  }
  std::vector<Capture> captures;
  for (const std::string& name : hook_names)
    if (const auto found = planned.find(name); found != planned.end()) captures.push_back(std::move(found->second.first));
  return captures;
}

std::vector<int64_t> hook_shape(const Model& model, std::string_view name, int64_t rows) {
  const HookShape* hook = model.record().hook(name);
  if (hook == nullptr) throw InputError("the model has no hook \"" + std::string(name) + "\"");
  return hook->of(rows);
}

size_t capture_bytes(std::span<const Capture> captures) {
  size_t bytes = 0;
  for (const Capture& capture : captures) {
    size_t numbers = 1;
    for (const int64_t size : capture.shape) numbers *= static_cast<size_t>(size);
    bytes += numbers * sizeof(float);
  }
  return bytes;
}

}  // namespace vitrine
