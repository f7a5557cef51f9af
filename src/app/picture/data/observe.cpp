#include "picture/data/observe.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "model/abilities.h"
#include "model/layer_name.h"
#include "ops/head.h"
#include "ops/linear.h"
#include "ops/listener_chain.h"
#include "picture/data/norm_inputs.h"

namespace vitrine {
namespace {

constexpr int64_t kMostPositions = 64;  // whose embeddings are kept

/// Runs ids, in chunks through a cache where there are many, and calls done(residual, first position, rows) for each.
template <class Done>
void run_all(Engine& engine, std::span<const int32_t> ids, Listener& listener, Done&& done) {
  Context& ctx = engine.context();
  const Listening listening(ctx, listener);
  const auto n = static_cast<int64_t>(ids.size());
  if (n <= kPrefillChunk) {
    const auto frame = ctx.frame();
    const Step step = Step::of(ids);
    done(step, engine.model().residual(ctx, step), int64_t{0});
    return;
  }
  const std::unique_ptr<KvCache> cache = engine.make_cache(n);
  CacheSequence sequence = cache->sequence();
  engine.each_step(ids, sequence,
                   [&](const Step& step, const Tensor& x, size_t first) { done(step, x, static_cast<int64_t>(first)); });
}

class Observer final : public Listener {
 public:
  /// parallel: a layer's MLP reads the stream that its attention reads (model/abilities.h).
  Observer(const ModelFacts& facts, bool parallel, const ObserveOptions& options, Observation& out)
      : facts_(facts), parallel_(parallel), needs_(options.needs), out_(out), inputs_(facts) {}

  bool wants(std::string_view name) const override {
    const auto [layer, rest] = split_layer(name);
    if (name == "hook_embed") return true;
    if (rest == "hook_pos_embed") return (needs_ & kNeedEmbeddings) != 0;
    if ((needs_ & (kNeedStream | kNeedNorms)) != 0 &&
        (rest.starts_with("hook_resid_") || rest == "hook_attn_out" || rest == "hook_mlp_out"))
      return true;
    if ((needs_ & kNeedNorms) != 0 && (is_stream_norm(name) || inputs_.wants(name))) return true;
    if (rest == "attn.hook_attn_scores") return (needs_ & kNeedScores) != 0;
    if (rest == "attn.hook_pattern")
      return (needs_ & kNeedPatterns) != 0 || ((needs_ & kNeedScores) != 0 && layer == out_.row_layer);
    if (rest == "attn.hook_v" || rest == "attn.hook_z") return (needs_ & kNeedScores) != 0 && layer == out_.row_layer;
    if (rest == "mlp.hook_router_logits" || rest == "mlp.hook_expert_indices" || rest == "mlp.hook_expert_weights")
      return (needs_ & kNeedExperts) != 0;
    if (rest == queries()) return (needs_ & kNeedQueries) != 0 && facts_.rope.has_value();
    return rest == "mlp.hook_pre" && (needs_ & kNeedHidden) != 0;
  }

  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const int64_t first = ctx.listening_position();
    const auto [layer, rest] = split_layer(name);
    const auto l = static_cast<size_t>(layer);
    if (name == "hook_embed") see_embedding(value, first);
    if (name == "hook_pos_embed") keep_rows(value, first, out_.position_rows);
    if (rest == "mlp.hook_pre" && (needs_ & kNeedHidden) != 0) see_hidden(l, value);
    if ((needs_ & kNeedExperts) != 0 && layer >= 0) see_experts(out_.experts[l], rest, value);
    if (rest == queries() && (needs_ & kNeedQueries) != 0) see_queries(l, value);
    if (rest == "attn.hook_attn_scores") see_scores(l, value, first);
    if (rest == "attn.hook_pattern") see_pattern(ctx, layer, value, first);
    if (layer == out_.row_layer && (needs_ & kNeedScores) != 0) {
      if (rest == "attn.hook_v") see_values(value, first);
      if (rest == "attn.hook_z") see_mixture(value, first);
    }
    if ((needs_ & kNeedStream) != 0) see_stream(l, rest, value, first);
    if ((needs_ & kNeedNorms) != 0) {
      if (is_stream_norm(name)) see_norm(name, value);
      inputs_.see(name, value);
    }
    return {};
  }

 private:
  std::string_view queries() const { return facts_.head_norms ? "attn.q_norm.hook_normalized" : "attn.hook_q"; }  // as they turn
  void see_embedding(const Tensor& x, int64_t first) {
    out_.embedding.add(x.data<float>(), x.count());
    if ((needs_ & kNeedEmbeddings) != 0) keep_rows(x, first, out_.embed_rows);
  }
  void keep_rows(const Tensor& x, int64_t first, std::vector<float>& rows) const {
    for (const int64_t position : out_.positions)
      if (position >= first && position < first + x.rows()) {
        const float* row = x.row<float>(position - first);
        rows.insert(rows.end(), row, row + x.row_size());
      }
  }
  void see_hidden(size_t layer, const Tensor& x) {
    const float* numbers = x.data<float>();
    const auto above = std::count_if(numbers, numbers + x.count(), [](float v) { return v > 0; });
    out_.active[layer] += static_cast<double>(above) / (static_cast<double>(out_.tokens) * static_cast<double>(x.row_size()));
  }

  void see_experts(LayerExperts& kept, std::string_view hook, const Tensor& x) const {
    if (hook == "mlp.hook_router_logits") see_router(kept, x);
    for (int64_t i = 0; i < x.count(); ++i) {
      if (hook == "mlp.hook_expert_weights") kept.weights.push_back(x.data<float>()[i]);
      if (hook != "mlp.hook_expert_indices") continue;
      kept.chosen.push_back(static_cast<uint16_t>(x.data<float>()[i]));
      kept.choices[kept.chosen.back()] += 1;
    }
  }
  void see_router(LayerExperts& kept, const Tensor& logits) const {  // [rows, expert]
    const auto n = static_cast<size_t>(logits.row_size());
    kept.choices.resize(n);
    kept.probability.resize(n);
    for (int64_t r = 0; r < logits.rows(); ++r) {
      const std::span<const float> row(logits.row<float>(r), n);
      const bool sigmoid = facts_.experts->sigmoid;
      double sum = 0;
      for (const float z : row) sum += sigmoid ? activation_value(Activation::sigmoid, static_cast<double>(z)) : 0;
      const double lse = sigmoid ? 0 : log_sum_exp(row);
      for (size_t e = 0; e < n; ++e) {
        const double z = static_cast<double>(row[e]),
                     p = sigmoid ? activation_value(Activation::sigmoid, z) / sum : std::exp(z - lse);
        kept.probability[e] += p;
        if (out_.tokens <= kTokensEach) kept.probabilities.push_back(static_cast<float>(p));
      }
    }
  }

  void see_queries(size_t layer, const Tensor& q) {  // [rows, head, component]
    const int64_t pairs = facts_.rope->rotary_dim / 2, d = facts_.shape.head_dim, heads = q.row_size() / d;
    if (q.shape().rank() == 3 && q.dim(2) != d) return;  // a layer whose heads have another size than those that are drawn
    const bool halves = facts_.rope->layout == RopeLayout::halves;
    std::vector<double>& sums = out_.query_length[layer];
    for (int64_t t = 0; t < q.rows(); ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const float* head = q.row<float>(t) + h * d + facts_.rope->first;
        for (int64_t p = 0; p < pairs; ++p) {
          const auto x = static_cast<double>(head[halves ? p : 2 * p]),
                     y = static_cast<double>(head[halves ? p + pairs : 2 * p + 1]);
          sums[static_cast<size_t>(h * pairs + p)] += std::sqrt(x * x + y * y);
        }
      }
  }

  void see_scores(size_t layer, const Tensor& scores, int64_t first) {  // [head, query, key]
    const double cap = facts_.attention_softcap;
    for (int64_t h = 0; h < scores.dim(0); ++h) {
      CapCount& count = out_.caps[layer][static_cast<size_t>(h)];
      const float* head = scores.row<float>(h);
      for (int64_t i = 0; cap != 0 && i < scores.dim(1) * scores.dim(2); ++i)
        if (std::isfinite(head[i])) count_capped(std::abs(static_cast<double>(head[i])), cap, count);
      const int64_t row = out_.row_target - first;
      if (static_cast<int64_t>(layer) == out_.row_layer && h == out_.row_head && row >= 0 && row < scores.dim(1))
        out_.row_scores.assign(head + row * scores.dim(2), head + row * scores.dim(2) + out_.row_target + 1);
    }
  }

  // [rows, head, component]
  void see_values(const Tensor& v, int64_t first) {
    const int64_t heads = v.dim(1), size = v.dim(2), head = out_.row_head / (facts_.shape.n_heads / heads);
    for (int64_t t = 0; t < v.rows() && first + t <= out_.row_target; ++t) {
      const float* row = v.row<float>(t) + head * size;
      out_.row_values.insert(out_.row_values.end(), row, row + size);
    }
  }
  void see_mixture(const Tensor& z, int64_t first) {
    const int64_t t = out_.row_target - first, size = z.dim(2);
    if (t < 0 || t >= z.rows()) return;
    const float* row = z.row<float>(t) + out_.row_head * size;
    out_.row_mixture.assign(row, row + size);
  }

  void see_pattern(Context& ctx, int64_t layer, const Tensor& pattern, int64_t first) {  // [head, query, key]
    const int64_t row = out_.row_target - first;
    if (layer == out_.row_layer && row >= 0 && row < pattern.dim(1)) {
      const float* weights = pattern.row<float>(out_.row_head) + row * pattern.dim(2);
      out_.row_weights.assign(weights, weights + out_.row_target + 1);
    }
    if ((needs_ & kNeedPatterns) == 0) return;
    const int64_t window = facts_.windows[static_cast<size_t>(layer)];
    LayerPatterns& kept = out_.patterns[static_cast<size_t>(layer)];
    ctx.pool().run(pattern.dim(0), [&](int64_t head, int) {
      for (int64_t i = 0; i < pattern.dim(1); ++i) {
        const float* weights = pattern.row<float>(head) + i * pattern.dim(2);
        keep_row(kept, head, first + i, weights);
        measure_row(kept, static_cast<size_t>(head), first + i, weights, facts_.first_seen(window, first + i));
      }
    });
  }

  void keep_row(LayerPatterns& kept, int64_t head, int64_t target, const float* weights) const {
    const auto in_16_bits = [](float p) { return static_cast<uint16_t>(std::lround(std::clamp(p, 0.0f, 1.0f) * 65535.0f)); };
    const auto t = static_cast<size_t>(target), h = static_cast<size_t>(head), n = static_cast<size_t>(out_.tokens);
    const PatternLevel& level = out_.level;
    if (level.full) {
      uint16_t* row = kept.full.data() + h * causal_cells(n) + causal_index(t, 0);
      for (size_t s = 0; s <= t; ++s) row[s] = in_16_bits(weights[s]);
      return;
    }
    const auto per_bin = static_cast<size_t>(level.tokens_per_bin);
    uint8_t* tiles = kept.tiles.data() + h * causal_cells(static_cast<size_t>(level.bins)) + causal_index(t / per_bin, 0);
    for (size_t s = 0; s <= t; ++s) {
      const auto value = static_cast<uint8_t>(std::lround(std::clamp(weights[s], 0.0f, 1.0f) * 255.0f));
      tiles[s / per_bin] = std::max(tiles[s / per_bin], value);
    }
    const auto k = static_cast<size_t>(level.top);
    std::array<std::pair<float, uint16_t>, 8> best;
    size_t found = 0;
    for (size_t s = 0; s <= t && k > 0; ++s) {
      if (found == k && !(weights[s] > best[k - 1].first)) continue;
      size_t at = found < k ? found++ : k - 1;
      for (; at > 0 && weights[s] > best[at - 1].first; --at) best[at] = best[at - 1];
      best[at] = {weights[s], static_cast<uint16_t>(s)};
    }
    for (size_t i = 0; i < found; ++i) {
      kept.top_sources[(h * n + t) * k + i] = best[i].second;
      kept.top_weights[(h * n + t) * k + i] = in_16_bits(best[i].first);
    }
  }

  static void measure_row(LayerPatterns& kept, size_t head, int64_t target, const float* weights, int64_t first) {
    const int64_t seen = target - first + 1;
    if (target == 0) return;
    kept.on_first[head] += static_cast<double>(weights[0]);
    kept.on_previous[head] += static_cast<double>(weights[target - 1]);
    kept.on_self[head] += static_cast<double>(weights[target]);
    if (seen < 2) return;
    // Of the weights divided by their sum, of which a head's sink may have taken a part.
    double sum = 0, entropy = 0;
    for (int64_t s = first; s <= target; ++s) {
      sum += static_cast<double>(weights[s]);
      if (weights[s] > 0) entropy -= static_cast<double>(weights[s]) * std::log(static_cast<double>(weights[s]));
    }
    if (sum > 0) kept.entropy_share[head] += (entropy / sum + std::log(sum)) / std::log(static_cast<double>(seen));
    kept.seen_rows[head] += 1;
  }

  void see_stream(size_t layer, std::string_view hook, const Tensor& x, int64_t first) {
    const auto add = [&](Moments& all, std::vector<Moments>* each) {
      for (int64_t r = 0; r < x.rows(); ++r) {
        Moments row;
        row.add(x.row<float>(r), x.row_size());
        all.add(row);
        if (each != nullptr && !each->empty()) (*each)[static_cast<size_t>(first + r)] = row;
      }
    };
    const bool last = layer + 1 == static_cast<size_t>(facts_.shape.n_layers);
    if (hook == "hook_resid_pre" || hook == "hook_resid_mid") {
      const size_t read = 2 * layer + (hook == "hook_resid_mid" ? 1 : 0), n = parallel_ ? 2 : 1;  // by so many sub-layers
      for (size_t s = read; s < read + n; ++s) {
        add(out_.stream[s], nullptr);
        add(out_.sublayers[s].skip, &out_.sublayers[s].skip_token);
      }
    }
    if (hook == "hook_attn_out") add(out_.sublayers[2 * layer].update, &out_.sublayers[2 * layer].update_token);
    if (hook == "hook_mlp_out") add(out_.sublayers[2 * layer + 1].update, &out_.sublayers[2 * layer + 1].update_token);
    if (hook == "hook_resid_post" && last) add(out_.stream.back(), nullptr);
  }

  void see_norm(std::string_view hook, const Tensor& y) {
    const std::string name(hook.substr(0, hook.rfind('.')));
    auto norm = std::find_if(out_.norms.begin(), out_.norms.end(), [&](const Observation::Norm& n) { return n.name == name; });
    if (norm == out_.norms.end()) norm = out_.norms.insert(norm, Observation::Norm{name, {}, {}, {}, {}});
    const std::span<const float> x = inputs_.input_of(name);
    for (int64_t r = 0; r < y.rows(); ++r) {
      Moments in, out;
      in.add(x.data() + r * y.row_size(), y.row_size());
      out.add(y.row<float>(r), y.row_size());
      norm->in.add(in);
      norm->out.add(out);
      norm->in_rms.push_back(static_cast<float>(in.rms()));
      norm->out_rms.push_back(static_cast<float>(out.rms()));
    }
  }

 public:
  /// Counts one number that a cap has already acted on: |raw| > t cap is |capped| > cap tanh(t).
  static void count_capped(double magnitude, double cap, CapCount& count) {
    // 1 - tanh(r) / r = 0.01 at r = 0.1743: there the cap takes off one hundredth.
    static const double changed = std::tanh(0.1742536), half = std::tanh(0.5);
    count.scores += 1;
    if (magnitude > cap * changed) count.changed += 1;
    if (magnitude > cap * half) count.beyond_half += 1;
    count.largest_capped = std::max(count.largest_capped, magnitude);
  }

 private:
  const ModelFacts& facts_;
  bool parallel_;
  uint32_t needs_;
  Observation& out_;
  NormInputs inputs_;
};

void see_logits(Engine& engine, std::span<const int32_t> ids, const Tensor& x, int64_t first, int64_t rows,
                const ObserveOptions& options, Observation& out) {
  Context& ctx = engine.context();
  const Head head = engine.model().head();
  const auto n = static_cast<int64_t>(ids.size());
  for (int64_t row = 0; row < rows; row += kLogitRows) {
    const auto frame = ctx.frame();
    std::vector<int64_t> wanted(static_cast<size_t>(std::min(kLogitRows, rows - row)));
    std::iota(wanted.begin(), wanted.end(), row);
    const Tensor z = logits(ctx, x, head, wanted);
    for (int64_t i = 0; i < z.rows(); ++i) {
      const std::span<const float> line(z.row<float>(i), static_cast<size_t>(z.row_size()));
      check_logits(line);
      const int64_t position = first + row + i;
      out.next.push_back(top_logprobs(line, static_cast<size_t>(options.top)));
      if (position + 1 < n) {
        const float actual = line[static_cast<size_t>(ids[static_cast<size_t>(position) + 1])];
        out.next_logprob.push_back(static_cast<double>(actual) - log_sum_exp(line));
        out.next_rank.push_back(std::count_if(line.begin(), line.end(), [&](float v) { return v > actual; }));
      }
      if (head.softcap == 0 || position < n - kTokensEach) continue;
      for (const float v : line) Observer::count_capped(std::abs(static_cast<double>(v)), head.softcap, out.final_cap);
    }
  }
}

void prepare(const ModelFacts& facts, const ObserveOptions& options, Observation& out) {
  const ModelShape& s = facts.shape;
  const auto layers = static_cast<size_t>(s.n_layers), heads = static_cast<size_t>(s.n_heads);
  const auto n = static_cast<size_t>(out.tokens);
  out.sublayers.resize(2 * layers);
  if (out.tokens <= kTokensEach)
    for (Observation::Sublayer& sub : out.sublayers) sub.skip_token.resize(n), sub.update_token.resize(n);
  out.stream.resize(2 * layers + 1);
  out.caps.assign(layers, std::vector<CapCount>(heads));
  out.active.assign(layers, 0);
  out.experts.resize(layers);
  if (facts.rope) out.query_length.assign(layers, std::vector<double>(heads * static_cast<size_t>(facts.rope->rotary_dim / 2)));
  const auto step = (out.tokens + kMostPositions - 1) / kMostPositions;
  for (int64_t p = 0; p < out.tokens; p += step) out.positions.push_back(p);
  const auto in_range = [&](const char* what, int64_t i, int64_t size) {
    if (i < 0 || i >= size)
      throw InputError(std::string(what) + " " + std::to_string(i) + " does not exist: this model has " + std::to_string(size) +
                       ", 0 to " + std::to_string(size - 1));
  };
  in_range("layer", options.row_layer, s.n_layers);
  in_range("head", options.row_head, s.n_heads);
  if (!facts.attends(options.row_layer))
    throw InputError("layer " + std::to_string(options.row_layer) + " has a " + (facts.recurrent ? "recurrence" : "convolution") +
                     " in the place of attention, so it has no scores and weights to show. Choose another layer");
  out.row_layer = options.row_layer;
  out.row_head = options.row_head;
  out.row_target = options.row_target < 0 ? out.tokens - 1 : options.row_target;
  if (out.row_target >= out.tokens)
    throw InputError("position " + std::to_string(out.row_target) + " does not exist: the prompt has " +
                     std::to_string(out.tokens) + " tokens, 0 to " + std::to_string(out.tokens - 1));
  if ((options.needs & kNeedPatterns) == 0) return;

  out.level = pattern_level(out.tokens, s.n_layers, s.n_heads);
  // The model's own scores and patterns of one layer exist while it runs.
  const auto chunk = static_cast<size_t>(std::min(out.tokens, kPrefillChunk));
  require_memory(out.level.bytes + 2 * heads * chunk * n * sizeof(float), options.memory, "The attention grids of this prompt",
                 "Use a shorter prompt, or one picture instead of the whole page");
  out.patterns.resize(layers);
  for (LayerPatterns& kept : out.patterns) {
    for (auto* sums : {&kept.entropy_share, &kept.seen_rows, &kept.on_first, &kept.on_previous, &kept.on_self})
      sums->assign(heads, 0);
    if (out.level.full) {
      kept.full.resize(heads * causal_cells(n));
    } else {
      kept.tiles.resize(heads * causal_cells(static_cast<size_t>(out.level.bins)));
      kept.top_sources.resize(heads * n * static_cast<size_t>(out.level.top));
      kept.top_weights.resize(kept.top_sources.size());
    }
  }
}

}  // namespace

void Moments::add(const float* x, int64_t n) {
  count += static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    sum += v;
    squares += v * v;
  }
}
void Moments::add(const Moments& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
}
double Moments::sigma() const {
  if (count == 0) return 0;
  const double variance = squares / count - mean() * mean();
  return variance < 0 ? 0 : std::sqrt(variance);  // rounding may leave a constant row just below zero; NaN stays NaN
}

double update_scale(double sigma_update, double sigma_skip) {
  const double sum = sigma_update * sigma_update + sigma_skip * sigma_skip;
  return sum > 0 ? sigma_update / std::sqrt(sum) : 0;
}

Observation observe(Engine& engine, std::span<const int32_t> ids, const ModelFacts& facts, const ObserveOptions& options) {
  engine.check_ids(ids);
  Observation out;
  out.tokens = static_cast<int64_t>(ids.size());
  prepare(facts, options, out);
  Observer observer(facts, is_parallel(engine.model(), 0), options, out);
  ListenerChain edited({options.edits, &observer});
  run_all(engine, ids, edited, [&](const Step& step, const Tensor& x, int64_t first) {
    const int64_t last = x.rows() - 1;
    if (first_not_finite(x) >= 0) engine.report_not_finite(step, std::span(&last, 1));
    if ((options.needs & kNeedLogits) != 0) see_logits(engine, ids, x, first, x.rows(), options, out);
  });
  return out;
}

std::vector<double> stream_without_norms(Engine& engine, std::span<const int32_t> ids, const ModelFacts& facts) {
  // Puts every norm's input in the place of its result.
  class NormsOff final : public Listener {
   public:
    NormsOff(const ModelFacts& of, bool parallel)
        : facts_(of), parallel_(parallel), inputs_(of), stream(2 * static_cast<size_t>(of.shape.n_layers) + 1) {}
    bool wants(std::string_view name) const override {
      const std::string_view rest = split_layer(name).second;
      if (rest == "mlp.hook_post") return facts_.norms_writes();
      return is_stream_norm(name) || rest.starts_with("hook_resid_") || inputs_.wants(name);
    }
    Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
      const auto [layer, rest] = split_layer(name);
      const auto l = static_cast<size_t>(layer);
      const auto add = [&](size_t i) { stream[i].add(value.data<float>(), value.count()); };
      if (rest == "hook_resid_pre") add(2 * l);
      if (rest == "hook_resid_mid" || (parallel_ && rest == "hook_resid_pre")) add(2 * l + 1);
      if (rest == "hook_resid_post" && layer + 1 == facts_.shape.n_layers) add(stream.size() - 1);
      if (rest == "mlp.hook_post") {
        // No hook stands between the MLP's last matrix and the norm on its output.
        const auto frame = ctx.frame();
        inputs_.set_mlp_output(linear(ctx, value, *facts_.parameters.matrix("blocks." + std::to_string(layer) + ".mlp.W_out")));
        return {};
      }
      if (!is_stream_norm(name)) {
        inputs_.see(name, value);
        return {};
      }
      const std::span<const float> input = inputs_.input_of(name.substr(0, name.rfind('.')));
      const Tensor replacement = ctx.empty(value.shape());
      std::copy(input.begin(), input.end(), replacement.data<float>());
      return replacement;
    }

   private:
    const ModelFacts& facts_;
    bool parallel_;
    NormInputs inputs_;

   public:
    std::vector<Moments> stream;
  };
  NormsOff off(facts, is_parallel(engine.model(), 0));
  run_all(engine, ids, off, [](const Step&, const Tensor&, int64_t) {});
  std::vector<double> sigmas;
  for (const Moments& m : off.stream)
    sigmas.push_back(std::isfinite(m.squares) ? m.sigma() : std::numeric_limits<double>::infinity());
  return sigmas;
}

Unscaled without_embedding_scale(Engine& engine, std::span<const int32_t> ids, double factor) {
  class Divider final : public Listener {
   public:
    explicit Divider(double by) : by_(by) {}
    bool wants(std::string_view name) const override {
      return name == "hook_embed" || name == "blocks.0.hook_resid_pre" || name == "blocks.0.hook_attn_out" ||
             name == "blocks.0.hook_resid_mid" || name == "blocks.0.hook_mlp_out";
    }
    Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
      if (name == "hook_embed") {
        const Tensor divided = ctx.empty(value.shape());
        for (int64_t i = 0; i < value.count(); ++i)
          divided.data<float>()[i] = static_cast<float>(static_cast<double>(value.data<float>()[i]) / by_);
        embedding.add(divided.data<float>(), divided.count());
        return divided;
      }
      Moments& m = name.ends_with("resid_pre")   ? pre
                   : name.ends_with("attn_out")  ? attention
                   : name.ends_with("resid_mid") ? mid
                                                 : mlp;
      m.add(value.data<float>(), value.count());
      return {};
    }
    Moments embedding, pre, attention, mid, mlp;

   private:
    double by_;
  };
  Divider divider(factor);
  run_all(engine, ids, divider, [](const Step&, const Tensor&, int64_t) {});
  return {divider.embedding.sigma(), update_scale(divider.attention.sigma(), divider.pre.sigma()),
          update_scale(divider.mlp.sigma(), divider.mid.sigma())};
}

}  // namespace vitrine
