#pragma once
// What a batch of sequences showed, kept as arrays with a batch axis in front.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/hooks.h"
#include "ops/context.h"
#include "ops/recorder.h"
#include "ops/step.h"

namespace vitrine {

/// Keeps hooks of sequences that run together or in groups, each hook as one value:
///
///   [batch, position, …]            positions: as many as the sequence with the most of them keeps
///   [batch, head, query, key]       of scores and patterns; keys: of the longest sequence, with those cached before
///
/// Each sequence's positions begin at the front. Behind them is NaN, which no forgotten mask can hide. Keys that a query does not
/// see have what the mask gives them, 0 or -inf.
class BatchRecorder final : public Listener {
 public:
  /// captures[s]: what is kept of sequence s, the same hooks for each; whole_step: one step holds all of all sequences.
  /// keys: positions of the longest sequence and those cached before it. They outlive the recorder.
  BatchRecorder(std::span<const std::vector<Capture>* const> captures, bool whole_step, int64_t keys);

  /// Says what the next run holds: sequences from number `first` on, each from its row `offset` on.
  void expect(const Step& step, size_t first, int64_t offset);

  bool wants(std::string_view name) const override { return places_.contains(name); }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;
  bool takes() const override { return takes_; }

  /// Whether all that was shown was finite; scores, which masks make infinite, were numbers.
  bool all_finite() const { return finite_; }

  /// Names in the order they were first heard.
  const std::vector<std::string>& order() const { return order_; }
  /// By hook name.
  const std::map<std::string, Recorder::Value, std::less<>>& values() const { return values_; }
  std::map<std::string, Recorder::Value, std::less<>> take_values() && { return std::move(values_); }

 private:
  void make(std::string_view name, size_t place, const Tensor& value, Recorder::Value& made) const;
  bool take_whole(Context& ctx, size_t place, const Tensor& value, Recorder::Value& made) const;

  std::span<const std::vector<Capture>* const> captures_;
  std::map<std::string, size_t, std::less<>> places_;  // of each hook among a sequence's captures
  bool equal_ = true, takes_ = false, finite_ = true;
  int64_t keys_;
  const Step* step_ = nullptr;
  size_t first_ = 0;
  int64_t offset_ = 0;
  std::map<std::string, Recorder::Value, std::less<>> values_;
  std::vector<std::string> order_;
};

}  // namespace vitrine
