#pragma once
// Names of tensors and hooks: those of a layer begin with its number.
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

namespace vitrine {

/// The parts of a name: 3 and "attn.hook_q" of "blocks.3.attn.hook_q"; -1 and the whole name of one outside the layers.
inline std::pair<int64_t, std::string_view> split_layer(std::string_view name) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!name.starts_with(kBlocks)) return {-1, name};
  const size_t dot = name.find('.', kBlocks.size());
  if (dot == std::string_view::npos) return {-1, name};
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data() + kBlocks.size(), name.data() + dot, layer);
  if (error != std::errc{} || end != name.data() + dot) return {-1, name};
  return {layer, name.substr(dot + 1)};
}

/// Whether a hook shows what a norm before or after attention or an MLP gives, or the last one. Norms inside a sub-layer, as on
/// the query and key of a head or on what a mixture's experts read, are part of it.
inline bool is_stream_norm(std::string_view name) {
  const std::string_view hook = split_layer(name).second;
  return hook.ends_with(".hook_normalized") && hook.starts_with("ln") && !hook.starts_with("ln2_experts.") &&
         !hook.starts_with("ln_embed.");
}

}  // namespace vitrine
