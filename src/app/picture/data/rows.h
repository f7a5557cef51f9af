#pragma once
// Rows of logits of short runs beside the one that was observed: other texts, or hooks replaced by zeros.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/listening.h"
#include "runtime/engine.h"

namespace vitrine {

/// Replaces the values of one hook by zeros.
class HookOff final : public Listener {
 public:
  explicit HookOff(std::string name) : name_(std::move(name)) {}
  bool wants(std::string_view name) const override { return name == name_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const Tensor zeros = ctx.empty(value.shape());
    std::fill_n(zeros.data<float>(), zeros.count(), 0.0f);
    return zeros;
  }

 private:
  std::string name_;
};

/// Calls see(row, logits [vocab_size]) for each of these rows, in order; listener: null for the model as it is.
/// Errors: as Engine::check_ids; RunError for NaN.
template <class F>
void each_logits(Engine& engine, std::span<const int32_t> ids, std::span<const int64_t> rows, Listener* listener, F&& see) {
  engine.check_ids(ids);
  const Step step = Step::of(ids);
  std::optional<Listening> listening;
  if (listener != nullptr) listening.emplace(engine.context(), *listener);
  for (size_t begin = 0; begin < rows.size(); begin += kLogitRows) {
    const auto frame = engine.context().frame();
    const std::span<const int64_t> some = rows.subspan(begin, std::min<size_t>(kLogitRows, rows.size() - begin));
    const Tensor z = engine.run(step, some);
    for (int64_t i = 0; i < z.rows(); ++i)
      see(some[static_cast<size_t>(i)], std::span<const float>(z.row<float>(i), static_cast<size_t>(z.row_size())));
  }
}

/// The logits after the last of `ids`.
inline std::vector<float> last_logits(Engine& engine, std::span<const int32_t> ids, Listener* listener = nullptr) {
  std::vector<float> row;
  const auto last = static_cast<int64_t>(ids.size()) - 1;
  each_logits(engine, ids, std::span(&last, 1), listener,
              [&](int64_t, std::span<const float> z) { row.assign(z.begin(), z.end()); });
  return row;
}

}  // namespace vitrine
