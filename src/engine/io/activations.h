#pragma once
// Activations of a corpus on disk: a folder of safetensors shards and a manifest (docs/collect.md has the format).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "io/stored_tensor.h"

namespace vitrine {

inline constexpr char kActivationManifest[] = "manifest.json";

/// What the folder holds and how it was made. Everything but `shards` and `complete` is settled before the first token.
struct ActivationManifest {
  struct Hook {
    std::string name;
    std::vector<int64_t> shape;  // of one token's value
    int64_t numbers() const;
    bool operator==(const Hook&) const = default;
  };
  struct Shard {
    std::string file;
    uint64_t tokens = 0, contexts = 0;
  };
  std::string model;
  std::vector<Hook> hooks;    // in the order of the run
  DType type = DType::f32;    // f32, f16 or bf16
  int64_t context = 0;        // most tokens that were run together
  int64_t lead = -1;          // the token that every context begins with; -1: none
  uint64_t max_tokens = 0;    // where the run was told to stop; 0: at the text's end
  uint64_t shard_tokens = 0;  // most tokens of a shard
  std::vector<Shard> shards;
  uint64_t checksum = 0;  // of all tokens: FNV-1a over their bytes (base/fnv.h)
  bool complete = false;

  uint64_t tokens() const;
  uint64_t contexts() const;
  size_t bytes_per_token() const;
};

/// "activations-00000.safetensors".
std::string activation_shard_name(size_t number);

/// Errors: FileError naming the file and the field.
ActivationManifest read_activation_manifest(const std::string& folder);
/// Replaces the folder's manifest in one step. Errors: as AtomicFile.
void write_activation_manifest(const std::string& folder, const ActivationManifest& manifest);

/// Collected activations where they lie, mapped. Safe to read from many threads.
class Activations {
 public:
  /// Errors: FileError for a manifest or shard that is missing, cut off or contradicts the other.
  static Activations open(const std::string& folder);

  const ActivationManifest& manifest() const { return manifest_; }
  uint64_t tokens() const { return tokens_; }
  const std::string& path() const { return path_; }
  /// The place of a hook in manifest().hooks; for an empty name that of the only one.
  /// Errors: InputError naming the hooks there are.
  size_t hook(std::string_view name) const;

  /// The value at a hook of token number `token` of the corpus, as f32: manifest().hooks[hook].numbers() of them.
  void read(size_t hook, uint64_t token, float* values) const;
  /// The same as it is stored, in manifest().type.
  const std::byte* stored(size_t hook, uint64_t token) const;
  int32_t token(uint64_t token) const;
  int32_t position(uint64_t token) const;  // within its context

 private:
  struct Shard {
    uint64_t first = 0, tokens = 0;
    const std::byte *ids = nullptr, *positions = nullptr;
    std::vector<const std::byte*> values;  // of each hook
    Checkpoint file;
  };
  const Shard& shard_of(uint64_t token) const;

  std::string path_;
  ActivationManifest manifest_;
  std::vector<Shard> shards_;
  uint64_t tokens_ = 0;
};

}  // namespace vitrine
