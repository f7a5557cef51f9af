#include "hooks/batch_recorder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "ops/head.h"
#include "ops/step.h"

namespace vitrine {
namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

int64_t kept_of(const HookRequest::Range& range, int64_t size) {
  return std::clamp<int64_t>(range.end, 0, size) - std::clamp<int64_t>(range.first, 0, size);
}

bool all_numbers(const Tensor& value) {
  const float* const x = value.data<float>();
  return std::none_of(x, x + value.count(), [](float f) { return std::isnan(f); });
}

}  // namespace

BatchRecorder::BatchRecorder(std::span<const std::vector<Capture>* const> captures, bool whole_step, int64_t keys)
    : captures_(captures), keys_(keys) {
  const std::vector<Capture>& some = *captures_.front();
  for (size_t i = 0; i < some.size(); ++i) places_[some[i].name] = i;
  equal_ = std::all_of(captures_.begin(), captures_.end(), [&](const auto* other) { return other == &some; });
  takes_ = whole_step && equal_ && std::any_of(some.begin(), some.end(), [](const Capture& c) { return c.request.whole(); });
}

void BatchRecorder::expect(const Step& step, size_t first, int64_t offset) {
  step_ = &step;
  first_ = first;
  offset_ = offset;
}

// The whole value, set to what stands where no sequence puts anything.
void BatchRecorder::make(std::string_view name, size_t place, const Tensor& value, Recorder::Value& made) const {
  const bool pattern = heads_first(name);
  const HookRequest& request = (*captures_.front())[place].request;
  int64_t positions = 0;
  for (const auto* captures : captures_) positions = std::max(positions, (*captures)[place].shape[pattern ? 1 : 0]);
  const auto batch = static_cast<int64_t>(captures_.size());
  if (pattern) {
    made.shape = {batch, kept_of(request.heads, value.dim(value.shape().rank() - 3)), positions, keys_};
  } else {
    made.shape = {batch, positions};
    for (int i = 1; i < value.shape().rank(); ++i) made.shape.push_back(value.dim(i));
    if (value.shape().rank() == 1) made.shape.push_back(1);
    if (value.shape().rank() > 2) made.shape[2] = kept_of(request.heads, value.dim(1));
  }
  size_t count = 1;
  for (const int64_t size : made.shape) count *= static_cast<size_t>(size);
  made.values.resize(count);
  if (!equal_) std::fill(made.values.begin(), made.values.end(), kNothing);
}

// Without a copy, where the run's own value is all that is kept.
bool BatchRecorder::take_whole(Context& ctx, size_t place, const Tensor& value, Recorder::Value& made) const {
  const Capture& capture = (*captures_.front())[place];
  if (!takes_ || !capture.request.whole() || !ctx.take(value, made.values)) return false;
  const auto batch = static_cast<int64_t>(captures_.size());
  made.shape = {batch};
  if (heads_first(capture.name)) {
    for (int i = value.shape().rank() - 3; i < value.shape().rank(); ++i) made.shape.push_back(value.dim(i));
  } else {
    made.shape.push_back(value.dim(0) / batch);
    for (int i = 1; i < value.shape().rank(); ++i) made.shape.push_back(value.dim(i));
    if (value.shape().rank() == 1) made.shape.push_back(1);
  }
  return true;
}

Tensor BatchRecorder::see(Context& ctx, std::string_view name, const Tensor& value) {
  const size_t place = places_.find(name)->second;
  const bool pattern = heads_first(name);
  if (finite_) finite_ = pattern && name.ends_with("hook_attn_scores") ? all_numbers(value) : first_not_finite(value) < 0;
  const auto [found, fresh] = values_.try_emplace(std::string(name), Recorder::Value{});
  Recorder::Value& made = found->second;
  if (fresh) {
    order_.emplace_back(name);
    if (take_whole(ctx, place, value, made)) return {};
    make(name, place, value, made);
  }

  const auto sequences = step_->sequences();
  const int rank = value.shape().rank();
  const int64_t positions = made.shape[pattern ? 2 : 1], heads = pattern ? value.dim(rank - 3) : rank > 2 ? value.dim(1) : 1;
  const int64_t queries = pattern ? value.dim(rank - 2) : 0, keys = pattern ? value.dim(rank - 1) : 0;
  const int64_t width = pattern ? 0 : value.row_size() / heads;  // of a head in a row
  const float absent = name.ends_with("hook_attn_scores") ? -std::numeric_limits<float>::infinity() : 0;
  const float* const from = value.data<float>();
  const int64_t pieces = sequences.size() == 1 ? 16 : 1;  // that threads share
  ctx.pool().run(std::ssize(sequences) * pieces, [&](int64_t task, int) {
    const int64_t i = task / pieces, piece = task % pieces;
    const StepSequence& s = sequences[static_cast<size_t>(i)];
    const size_t number = first_ + static_cast<size_t>(i);
    const HookRequest& request = (*captures_[number])[place].request;
    const int64_t begin_rows = std::clamp<int64_t>(request.positions.first - offset_, 0, s.rows),
                  end_rows = std::clamp<int64_t>(request.positions.end - offset_, 0, s.rows),
                  n_rows = std::max<int64_t>(0, end_rows - begin_rows), first = begin_rows + n_rows * piece / pieces,
                  end = begin_rows + n_rows * (piece + 1) / pieces,
                  first_head = std::clamp<int64_t>(request.heads.first, 0, heads), kept = kept_of(request.heads, heads);
    const int64_t to = first + offset_ - request.positions.first;  // the place of row `first` among those kept
    float* const mine = made.values.data() + static_cast<size_t>(number) * (made.values.size() / captures_.size());
    if (!pattern) {
      for (int64_t r = first; r < end; ++r) {
        const float* const row = from + (s.first_row + r) * heads * width + first_head * width;
        std::copy(row, row + kept * width, mine + (to + r - first) * kept * width);
      }
      return;
    }
    for (int64_t h = 0; h < kept; ++h)
      for (int64_t r = first; r < end; ++r) {
        const float* const row = from + ((i * heads + first_head + h) * queries + r) * keys;
        float* const line = mine + (h * positions + to + r - first) * keys_;
        std::fill(std::copy(row, row + std::min(keys, keys_), line), line + keys_, absent);
      }
  });
  return {};
}

}  // namespace vitrine
