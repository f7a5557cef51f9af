#include <algorithm>
#include <cmath>
#include <numeric>

#include "hooks/listening.h"
#include "inspect/parts.h"
#include "inspect/weights.h"
#include "model/abilities.h"
#include "ops/listener_chain.h"
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

LensReading read(std::span<const float> here, std::span<const float> model, int64_t top) {
  LensReading reading;
  reading.top = top_logprobs(here, static_cast<size_t>(top));
  reading.kl = kl_divergence(model, here);
  const size_t most_likely = argmax(model);
  reading.rank = 1 + std::count_if(here.begin(), here.end(), [&](float z) { return z > here[most_likely]; });
  reading.logprob = static_cast<double>(here[most_likely]) - log_sum_exp(here);
  return reading;
}

}  // namespace

LogitLens logit_lens(Engine& engine, std::span<const int32_t> ids, std::span<const int64_t> positions, int64_t top, size_t memory,
                     Listener* edits) {
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
  const auto rows = static_cast<int64_t>(lens.positions.size());
  require_memory(sizeof(float) * static_cast<size_t>((shape.n_layers + 1) * rows * shape.d_model +
                                                     2 * std::min(kLogitRows, rows) * shape.vocab_size),
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
  const NamedWeights weights(*engine.opened().model);
  const Vector *w = weights.find_vector("ln_final.w"), *b = weights.find_vector("ln_final.b");
  const NormSpec norm = engine.model().layer(0).norm;
  // The head's scores of rows [first, first + n) at one point.
  const auto scores = [&](size_t point, int64_t first, int64_t n) {
    Tensor x = ctx.empty({n, shape.d_model});
    const float* from = stream.values.data() + (static_cast<int64_t>(point) * rows + first) * shape.d_model;
    std::copy(from, from + n * shape.d_model, x.data<float>());
    if (w != nullptr) x = b != nullptr ? layer_norm(ctx, "ln_final", x, *w, *b, norm) : rms_norm(ctx, "ln_final", x, *w, norm);
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return logits(ctx, x, engine.model().head(), all);
  };
  lens.points = stream.points;
  lens.readings.resize(lens.points.size() * lens.positions.size());
  for (int64_t first = 0; first < rows; first += kLogitRows) {
    const int64_t n = std::min(kLogitRows, rows - first);
    const auto frame = ctx.frame();
    const Tensor model = scores(lens.points.size() - 1, first, n);
    for (size_t point = 0; point < lens.points.size(); ++point) {
      const auto inner = ctx.frame();
      const Tensor here = scores(point, first, n);
      const auto width = static_cast<size_t>(shape.vocab_size);
      for (int64_t r = 0; r < n; ++r) {
        const size_t at = point * lens.positions.size() + static_cast<size_t>(first + r);
        lens.readings[at] = read({here.row<float>(r), width}, {model.row<float>(r), width}, top);
        const float* x = stream.values.data() + static_cast<int64_t>(at) * shape.d_model;
        lens.readings[at].length = std::sqrt(std::inner_product(x, x + shape.d_model, x, 0.0));
      }
    }
  }
  return lens;
}

}  // namespace vitrine
