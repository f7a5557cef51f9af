#pragma once
// Changing what a model computes: edits of hooked values, as a listener.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/recorder.h"

namespace vitrine {

struct Splice;

/// A change to the value at one hook, or to some heads and positions of it.
struct ValueEdit {
  enum class Kind : uint8_t {
    set,     // `numbers` are put there
    add,     // factor · `numbers` are added
    scale,   // what is there is multiplied by `factor`
    splice,  // features of an autoencoder are changed (sae/splice.h)
    recall,  // the sum of what this step showed at `sources`, with all the edits there, is put there
  };
  std::string hook;  // in full: "blocks.3.attn.hook_z"
  /// Half-open, as a Recorder's: heads cut the head axis, of [row, feature] the features; positions (of the sequence, not of the
  /// step) rows and queries.
  HookRequest::Range heads = {}, positions = {};
  Kind kind = Kind::set;
  /// Of set and add. `shape` is broadcast, from the right, to the part that is touched: [] is one number for all, [head_dim]
  /// the same vector for every head and position, [heads, head_dim], [positions, heads, head_dim]. Of scores and patterns the
  /// part is [heads, queries, keys], and in a step that has not reached all keys the rest is left out.
  std::vector<float> values = {};
  std::vector<int64_t> shape = {};
  double factor = 1;
  /// Of recall: hooks that come before `hook` in the run and have its shape.
  std::vector<std::string> sources = {};
  /// Of splice. A transcoder reads sources[0].
  std::shared_ptr<const Splice> splice = {};
};

/// Makes edits while a model runs; several edits of one hook follow each other in the given order. The other sequences of a step
/// keep their bits. Works with a cache and in chunks, on weights of any type, in f32 and f64. On a tape without recomputation
/// gradients flow through: an edit that sets numbers stops them for the part it touches, recall passes them to its sources.
/// Errors: ShapeError while running, for numbers or sources that do not fit the hook's value; UsageError for a source that the
/// step has not shown before.
class Interventions final : public Listener {
 public:
  Interventions() = default;
  explicit Interventions(std::vector<ValueEdit> edits);

  /// Adds edits after those that are there.
  void append(std::vector<ValueEdit> edits);
  const std::vector<ValueEdit>& edits() const { return edits_; }

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;

 private:
  struct Source {
    std::vector<std::byte> bytes;
    Tensor on_tape;  // the value itself, which a tape keeps
  };
  Tensor with_features(Context& ctx, const ValueEdit& edit, const Tensor& value) const;
  Tensor edited(Context& ctx, const ValueEdit& edit, const Tensor& given) const;

  std::vector<ValueEdit> edits_;
  std::map<std::string, std::vector<size_t>, std::less<>> by_hook_;  // which edits
  std::map<std::string, Source, std::less<>> sources_;
};

}  // namespace vitrine
