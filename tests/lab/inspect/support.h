#pragma once
// Copies of golden models with something changed.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {

/// A tensor to be written, with its own bytes.
struct OwnedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

inline OwnedTensor owned(const StoredTensor& t) { return {t.name, t.dtype, t.shape, {t.data, t.data + t.bytes}}; }
inline OwnedTensor owned(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& numbers) {
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
  return {name, DType::f32, shape, {bytes, bytes + numbers.size() * sizeof(float)}};
}

inline void write_tensors(const std::string& path, const std::vector<OwnedTensor>& tensors,
                          const Checkpoint::Metadata& metadata = {}) {
  std::vector<TensorToWrite> list;
  for (const OwnedTensor& t : tensors) list.push_back({t.name, t.dtype, t.shape, t.bytes.data()});
  write_safetensors(path, list, metadata);
}

/// f32 numbers of `t` rounded to bf16, as bf16 or widened again to f32.
inline OwnedTensor rounded(const OwnedTensor& t, bool widened) {
  OwnedTensor result{t.name, widened ? DType::f32 : DType::bf16, t.shape, {}};
  for (size_t i = 0; i < t.bytes.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, t.bytes.data() + i * sizeof value, sizeof value);
    const uint16_t bits = f32_to_bf16(value);
    const float wide = bf16_to_f32(bits);
    const auto* bytes = widened ? reinterpret_cast<const std::byte*>(&wide) : reinterpret_cast<const std::byte*>(&bits);
    result.bytes.insert(result.bytes.end(), bytes, bytes + (widened ? sizeof wide : sizeof bits));
  }
  return result;
}

/// Writes a copy of a golden model into `folder`, changed as asked. Returns the folder.
inline std::string copy_of(const Golden& gold, const std::string& folder,
                           const std::function<void(std::vector<OwnedTensor>&)>& change_weights,
                           const std::function<void(Json&)>& change_config = {}) {
  std::filesystem::create_directories(folder);
  Json config = read_json(gold.model() + "/config.json");
  if (change_config) change_config(config);
  std::ofstream(folder + "/config.json") << config.dump();
  std::vector<OwnedTensor> tensors;
  const Checkpoint weights = open_safetensors(gold.model());
  for (const auto& [name, tensor] : weights.tensors()) tensors.push_back(owned(tensor));
  if (change_weights) change_weights(tensors);
  write_tensors(folder + "/model.safetensors", tensors);
  return folder;
}

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace vitrine
