#include "inspect/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "base/error.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "inspect/stream_distance.h"
#include "model/abilities.h"
#include "runtime/row_math.h"

namespace vitrine {
namespace {

// Hears the second model and compares with what was recorded of the first.
class Differences final : public Listener {
 public:
  explicit Differences(const Recorder& first) : first_(first) {}
  std::vector<StreamDifference> layers;

  bool wants(std::string_view name) const override { return first_.values().contains(name); }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    const FloatVector& a = first_.values().find(name)->second.values;
    if (heads_first(name)) {
      compare_patterns(a, value);
    } else {
      compare_streams(a, value);
    }
    return {};
  }

 private:
  void compare_patterns(std::span<const float> a, const Tensor& b) {  // [head, query, key]
    StreamDifference& d = layer_;
    const int64_t heads = b.dim(0), queries = b.dim(1), keys = b.dim(2);
    for (int64_t row = 0; row < heads * queries; ++row) {
      double moved = 0;
      for (int64_t j = row * keys; j < (row + 1) * keys; ++j)
        moved += std::abs(static_cast<double>(a[static_cast<size_t>(j)]) - static_cast<double>(b.data<float>()[j])) / 2;
      d.attention_mean += moved / static_cast<double>(heads * queries);
      if (moved <= d.attention_most) continue;
      d.attention_most = moved;
      d.attention_head = row / queries;
      d.attention_query = row % queries;
    }
  }

  void compare_streams(std::span<const float> a, const Tensor& b) {  // [row, d_model]
    StreamDifference& d = layer_;
    d.point = "embedding";
    if (!layers.empty()) {
      d.layer = std::ssize(layers) - 1;
      d.point = "layer " + std::to_string(*d.layer);
    }
    StreamDistance distance;
    for (int64_t r = 0; r < b.rows(); ++r) {
      const std::span<const float> of_a(a.data() + r * b.row_size(), static_cast<size_t>(b.row_size()));
      distance.add(of_a, {b.row<float>(r), of_a.size()}, r);
    }
    d.cosine = distance.cosine();
    d.distance = distance.largest();
    d.worst_position = distance.largest_at();
    d.relative = distance.relative();
    layers.push_back(d);
    layer_ = {};
  }

  const Recorder& first_;
  StreamDifference layer_;  // of the layer that is running
};

PredictionDifference compare_rows(int64_t position, std::span<const float> a, std::span<const float> b) {
  PredictionDifference d;
  d.position = position;
  d.a = top_logprobs(a, 1)[0];
  d.b = top_logprobs(b, 1)[0];
  d.kl = kl_divergence(a, b);
  return d;
}

}  // namespace

std::vector<std::string> weight_dtypes(const Engine& engine) {
  std::set<std::string> names;
  for (const TensorLine& line : engine.model().tensors())
    if (line.weight != nullptr) names.insert(std::string(name_of(line.weight->dtype)));
  return {names.begin(), names.end()};
}

void check_same_sizes(const Engine& a, const Engine& b) {
  const ModelShape &x = a.shape(), &y = b.shape();
  const auto check = [&](const char* what, int64_t of_a, int64_t of_b) {
    if (of_a != of_b)
      throw InputError("these are not two files of one model: " + a.name() + " has " + what + " " + std::to_string(of_a) + ", " +
                       b.name() + " has " + std::to_string(of_b));
  };
  if (x.family != y.family)
    throw InputError("these are not two files of one model: " + a.name() + " is of the family " + x.family + ", " + b.name() +
                     " of " + y.family);
  check("n_layers", x.n_layers, y.n_layers);
  check("d_model", x.d_model, y.d_model);
  check("n_heads", x.n_heads, y.n_heads);
  check("vocab_size", x.vocab_size, y.vocab_size);
}

ModelComparison compare_models(Engine& a, Engine& b, std::span<const int32_t> ids, double threshold, size_t memory) {
  check_same_sizes(a, b);
  a.check_ids(ids);
  b.check_ids(ids);
  ModelComparison result;
  result.threshold = threshold;
  result.a = {a.name(), weight_dtypes(a)};
  result.b = {b.name(), weight_dtypes(b)};
  std::vector<HookQuery> queries;
  std::vector<HookRequest> requests;
  std::vector<const char*> hooks = {"blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"};
  if (has_attention(a.model())) hooks.push_back("blocks.*.attn.hook_pattern");
  for (const char* hook : hooks) {
    queries.push_back(parse_hook_query(hook));
    requests.push_back({.glob = hook});
  }
  require_memory(capture_bytes(plan_captures(a.model(), queries, static_cast<int64_t>(ids.size()))), memory,
                 "The streams and patterns of " + std::to_string(ids.size()) + " tokens", "Compare on a shorter prompt");

  const auto frame_a = a.context().frame(), frame_b = b.context().frame();
  const Step step = Step::of(ids), same_step = Step::of(ids);
  Recorder first(requests);
  Tensor x_a;
  {  // both run with somebody listening: attention has the same form in both
    const Listening listening(a.context(), first);
    x_a = a.model().residual(a.context(), step);
  }
  Tensor x_b;
  Differences differences(first);
  {
    const Listening listening(b.context(), differences);
    x_b = b.model().residual(b.context(), same_step);
  }
  result.layers = std::move(differences.layers);
  for (const StreamDifference& d : result.layers)
    if (!result.first_beyond && !(d.distance <= threshold)) result.first_beyond = d.point;

  int64_t same = 0;
  for (int64_t row = 0; row < step.rows(); row += kLogitRows) {
    const auto rows_a = a.context().frame(), rows_b = b.context().frame();
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, step.rows() - row)));
    std::iota(rows.begin(), rows.end(), row);
    const Tensor z_a = logits(a.context(), x_a, a.model().head(), rows), z_b = logits(b.context(), x_b, b.model().head(), rows);
    if (first_not_finite(z_a) >= 0) a.run(step, rows);  // says where it began
    if (first_not_finite(z_b) >= 0) b.run(same_step, rows);
    const auto width = static_cast<size_t>(z_a.row_size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto r = static_cast<int64_t>(i);
      result.predictions.push_back(compare_rows(rows[i], {z_a.row<float>(r), width}, {z_b.row<float>(r), width}));
      const PredictionDifference& d = result.predictions.back();
      result.kl_mean += d.kl / static_cast<double>(step.rows());
      result.kl_most = std::max(result.kl_most, d.kl);
      same += d.a.token == d.b.token ? 1 : 0;
    }
  }
  result.same_top = static_cast<double>(same) / static_cast<double>(step.rows());
  return result;
}

}  // namespace vitrine
