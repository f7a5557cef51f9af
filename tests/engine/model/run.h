#pragma once
// One forward pass of a model and what a golden file says about it.
#include <numeric>
#include <string>
#include <vector>

#include "model/load.h"
#include "ops/recorder.h"
#include "support/golden.h"

namespace vitrine {

inline std::vector<int64_t> every_row(int64_t n) {
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

inline std::vector<float> numbers_of(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.count()}; }

/// Logits of all rows of a step, with whatever the context has (listener, numerics).
inline std::vector<float> all_logits(Context& ctx, const Model& model, const Step& step) {
  const auto frame = ctx.frame();
  return numbers_of(logits(ctx, model.residual(ctx, step), model.head(), every_row(step.rows())));
}

struct Forward {
  std::vector<float> logits;               // [position, vocab_size]
  std::vector<std::vector<float>> hidden;  // hidden[i] enters layer i; the last one is after the final norm
};

/// Runs `ids` as one sequence. `listen` false: nobody watches, and hidden holds only its last entry.
inline Forward run_forward(const Model& model, const std::vector<int32_t>& ids, Numerics numerics, ThreadPool& pool,
                           bool listen = true) {
  Context ctx(pool);
  ctx.numerics = numerics;
  Recorder seen({{"blocks.*.hook_resid_pre"}});
  if (listen) ctx.listen(&seen);
  const Step step = Step::of(ids);
  const Tensor x = model.residual(ctx, step);
  Forward result;
  for (int64_t layer = 0; listen && layer < model.shape().n_layers; ++layer) {
    const FloatVector& stream = seen.values().at("blocks." + std::to_string(layer) + ".hook_resid_pre").values;
    result.hidden.emplace_back(stream.begin(), stream.end());
  }
  result.hidden.push_back(numbers_of(x));
  result.logits = numbers_of(logits(ctx, x, model.head(), every_row(step.rows())));
  return result;
}

inline std::vector<int32_t> ids_of(const GoldenTensor& t) { return {t.begin(), t.end()}; }

/// 2e-5 + 1e-4 relative, or three times the distance of the reference from float64 where that is more.
inline Tolerance tolerance_for(double distance) { return {.abs = std::max(2e-5, 3 * distance), .rel = 1e-4}; }

/// Holds a forward pass against <prefix>logits and <prefix>hidden.<i>.
inline void expect_forward(const Forward& got, const Checkpoint& golden, const std::string& prefix, Tolerance tolerance) {
  EXPECT_CLOSE(got.logits, golden_tensor(golden, prefix + "logits"), tolerance);
  for (size_t i = 0; i < got.hidden.size(); ++i) {
    SCOPED_TRACE("hidden." + std::to_string(i));
    EXPECT_CLOSE(got.hidden[i], golden_tensor(golden, prefix + "hidden." + std::to_string(i)), tolerance);
  }
}

/// The folders of tests/golden/<topic> that hold a golden.safetensors.
inline std::vector<std::string> golden_folders(const std::string& topic) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/" + topic))
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace vitrine
