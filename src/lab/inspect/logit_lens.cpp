#include <algorithm>
#include <cmath>
#include <numeric>

#include "hooks/listening.h"
#include "inspect/final_norm.h"
#include "inspect/parts.h"
#include "inspect/tuned_lens.h"
#include "model/abilities.h"
#include "ops/listener_chain.h"
#include "runtime/kl_from.h"
#include "runtime/row_math.h"

namespace vitrine {
namespace {

// Keeps chosen rows of the stream before the first layer and after every layer: [point, R, d_model].
class StreamCollector final : public Listener {
 public:
  explicit StreamCollector(std::span<const int64_t> positions) : positions_(positions) {}
  std::vector<std::string> points;
  std::vector<float> values;

  bool wants(std::string_view name) const override {
    return name == "blocks.0.hook_resid_pre" || (name.starts_with("blocks.") && name.ends_with(".hook_resid_post"));
  }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    points.emplace_back(name);
    for (const int64_t row : positions_) values.insert(values.end(), value.row<float>(row), value.row<float>(row) + value.dim(1));
    return {};
  }

 private:
  std::span<const int64_t> positions_;
};

// The model's own prediction, to which that at every depth is compared.
struct Final {
  size_t most_likely;
  KlFrom kl;

  explicit Final(std::span<const float> logits) : most_likely(argmax(logits)), kl(logits) {}
  LensReading read(std::span<const float> here, int64_t top) const {
    const double total = log_sum_exp(here);
    LensReading reading;
    reading.top = top_logprobs(here, static_cast<size_t>(top));
    reading.kl = kl.to(here, total);
    reading.rank = 1 + std::count_if(here.begin(), here.end(), [&](float z) { return z > here[most_likely]; });
    reading.logprob = static_cast<double>(here[most_likely]) - total;
    return reading;
  }
};

}  // namespace

LogitLens logit_lens(Engine& engine, std::span<const int32_t> ids, std::span<const int64_t> positions, int64_t top, size_t memory,
                     Listener* edits, const TunedLens* tuned) {
  engine.check_ids(ids);
  require_plain_head(engine.model(), engine.name(), "The logit lens");
  const ModelShape shape = engine.shape();
  LogitLens lens;
  lens.positions = {positions.begin(), positions.end()};
  if (positions.empty()) {
    lens.positions.resize(ids.size());
    std::iota(lens.positions.begin(), lens.positions.end(), 0);
  }
  lens.positions = positions_or_last(lens.positions, ids.size());
  const int64_t rows = std::ssize(lens.positions), points = shape.n_layers + 1;
  // So many positions at once: the head's weights are read once for all their depths.
  const int64_t together = std::min(std::max<int64_t>(1, kLogitRows / points), rows);
  require_memory(sizeof(float) * static_cast<size_t>(points * rows * shape.d_model + together * points * shape.vocab_size),
                 memory, "The stream at " + std::to_string(rows) + " position(s) of every layer", "Ask for fewer positions");

  Context& ctx = engine.context();
  StreamCollector stream(lens.positions);
  {
    const auto frame = ctx.frame();
    ListenerChain edited({edits, &stream});
    const Listening listening(ctx, edited);
    const int64_t last = static_cast<int64_t>(ids.size()) - 1;
    engine.run(Step::of(ids), std::span(&last, 1));
  }
  const FinalNorm norm(engine.model());
  lens.points = stream.points;
  lens.readings.resize(lens.points.size() * lens.positions.size());
  const auto stream_at = [&](int64_t point, int64_t row) { return stream.values.data() + (point * rows + row) * shape.d_model; };
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t n = std::min(together, rows - first);
    const auto frame = ctx.frame();
    Tensor x = ctx.empty({points * n, shape.d_model});  // point after point
    for (int64_t point = 0; point < points; ++point) {
      const auto inner = ctx.frame();
      Tensor here(stream_at(point, first), DType::f32, {n, shape.d_model});
      if (tuned != nullptr && static_cast<size_t>(point) < tuned->translators.size())
        here = tuned->translated(ctx, static_cast<size_t>(point), here);
      std::copy_n(here.data<float>(), n * shape.d_model, x.row<float>(point * n));
    }
    std::vector<int64_t> all(static_cast<size_t>(points * n));
    std::iota(all.begin(), all.end(), 0);
    const Tensor scores = logits(ctx, norm(ctx, x), engine.model().head(), all);
    const auto scores_at = [&](int64_t point, int64_t r) {
      return std::span<const float>(scores.row<float>(point * n + r), static_cast<size_t>(shape.vocab_size));
    };
    for (int64_t r = 0; r < n; ++r) {
      const Final model(scores_at(points - 1, r));
      for (int64_t point = 0; point < points; ++point) {
        LensReading& reading = lens.readings[static_cast<size_t>(point * rows + first + r)];
        reading = model.read(scores_at(point, r), top);
        const float* here = stream_at(point, first + r);
        reading.length = std::sqrt(std::inner_product(here, here + shape.d_model, here, 0.0));
      }
    }
  }
  return lens;
}

}  // namespace vitrine
