#pragma once
// GGUF files that differ from a golden one in a few keys.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf_writer.h"
#include "support/scratch.h"

namespace vitrine {

/// A copy of `file` as changed.gguf, with keys replaced, added or, without a value, left out; and, if they are given, with
/// divisors of RoPE's frequencies. `type_of` may give a tensor another type, of as many bytes. Returns its path.
inline std::string changed_gguf(const Scratch& scratch, const std::string& file,
                                const std::vector<std::pair<std::string, std::optional<GgufValue>>>& changes,
                                const std::vector<float>& divisors = {},
                                const std::function<DType(const std::string& tensor, DType own)>& type_of = {}) {
  const Gguf source = open_gguf(file);
  GgufKeys keys;
  for (const auto& [name, value] : changes)
    if (value) keys.emplace_back(name, *value);
  for (const auto& [name, held] : source.metadata.values())
    if (std::none_of(changes.begin(), changes.end(), [&](const auto& change) { return change.first == name; }))
      keys.emplace_back(name, held);
  std::vector<TensorPlan> plans;
  for (const auto& [name, tensor] : source.checkpoint.tensors())
    plans.push_back({name, type_of ? type_of(name, tensor.dtype) : tensor.dtype, tensor.shape});
  if (!divisors.empty()) plans.push_back({"rope_freqs.weight", DType::f32, {static_cast<int64_t>(divisors.size())}});
  GgufWriter writer(scratch / "changed.gguf", keys, plans);
  size_t i = 0;
  for (const auto& [name, tensor] : source.checkpoint.tensors()) writer.write(i++, {tensor.data, tensor.bytes});
  if (!divisors.empty()) writer.write(i, std::as_bytes(std::span(divisors)));
  writer.finish();
  return scratch / "changed.gguf";
}

}  // namespace vitrine
