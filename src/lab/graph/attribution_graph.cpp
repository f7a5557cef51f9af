#include "graph/attribution_graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "graph/influence.h"
#include "graph/local_replacement.h"
#include "hooks/listening.h"
#include "hooks/partial_run.h"
#include "kernels/table.h"
#include "model/abilities.h"
#include "ops/embed.h"
#include "ops/linear.h"

namespace vitrine {
namespace {

// What the prompt's run says of its nodes, before any gradient.
struct Observed {
  std::vector<FloatVector> errors;  // [layer] of [position, d_model]
  FloatVector embeddings;           // [position, d_model]
  std::vector<GraphFeature> active;
  std::vector<int64_t> begin;  // of a layer's position in `active`: [layer · positions + position], and its end
};

Observed observe_nodes(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids, int64_t ignored) {
  const std::vector<int32_t> sequence(ids.begin(), ids.end());
  std::vector<std::string> hooks = {"hook_embed"};
  for (const auto& layer : set.layers) hooks.insert(hooks.end(), {layer->hook_name, layer->hook_name_out});
  const PartialResult ran = run_partly(engine, {&sequence, 1}, {.hooks = hooks});
  Observed seen;
  seen.embeddings = ran.values.at("hook_embed").values;
  const int64_t rows = std::ssize(ids), d = engine.shape().d_model;
  std::vector<SparseFeatures> features;
  std::vector<FloatVector> inputs;
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  seen.begin.push_back(0);
  for (int64_t l = 0; l < set.n_layers(); ++l) {
    const SparseAutoencoder& sae = *set.layers[static_cast<size_t>(l)];
    inputs.push_back(ran.values.at(sae.hook_name).values);
    features.push_back(encode(ctx, sae, inputs.back().data(), rows));
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<size_t>(r);
      for (auto e = static_cast<size_t>(features.back().begin[row]);
           r >= ignored && e < static_cast<size_t>(features.back().begin[row + 1]); ++e)
        seen.active.push_back(
            {static_cast<int32_t>(l), static_cast<int32_t>(r), features.back().index[e], features.back().value[e]});
      seen.begin.push_back(std::ssize(seen.active));
    }
  }
  const std::vector<FloatVector> made = decode(ctx, set, features, inputs);
  for (int64_t l = 0; l < set.n_layers(); ++l) {
    FloatVector error = ran.values.at(set.layers[static_cast<size_t>(l)]->hook_name_out).values;
    const FloatVector& explained = made[static_cast<size_t>(l)];
    for (size_t i = 0; i < error.size(); ++i) error[i] -= explained[i];
    std::fill_n(error.begin(), std::min(ignored, rows) * d, 0.0F);
    for (const float x : error)
      if (!std::isfinite(x)) throw RunError("what the transcoder of layer " + std::to_string(l) + " makes is NaN or infinite");
    seen.errors.push_back(std::move(error));
  }
  return seen;
}

std::string text_of_ids(const Engine& engine, std::span<const int32_t> ids) {
  if (engine.has_tokenizer()) {
    const bool known = std::ranges::all_of(ids, [&](int32_t id) { return id < engine.tokenizer().vocab_size(); });
    if (known) return engine.tokenizer().decode(ids);
  }
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

// The logits that are nodes: the most likely ones, or those that were asked for.
std::vector<GraphLogit> choose_logits(Engine& engine, std::span<const int32_t> ids, const GraphOptions& o) {
  const Step step = Step::of(ids);
  const int64_t last = step.rows() - 1;
  const auto frame = engine.context().frame();
  const Tensor z = engine.run(step, {&last, 1});
  const std::span<const float> row(z.data<float>(), static_cast<size_t>(z.count()));
  const double total = log_sum_exp(row);
  std::vector<int32_t> tokens = o.targets;
  if (tokens.empty()) {
    double sum = 0;
    for (const TokenLogprob& one : top_logprobs(row, static_cast<size_t>(std::min<int64_t>(o.max_logits, z.count())))) {
      tokens.push_back(one.token);
      sum += std::exp(static_cast<double>(row[static_cast<size_t>(one.token)]) - total);
      if (sum >= o.logit_share) break;
    }
  }
  std::vector<GraphLogit> logits;
  for (const int32_t token : tokens) {
    if (token < 0 || token >= z.count())
      throw InputError("target token " + std::to_string(token) + " is not in the vocabulary, 0 to " +
                       std::to_string(z.count() - 1));
    logits.push_back(
        {token, text_of_ids(engine, {&token, 1}), std::exp(static_cast<double>(row[static_cast<size_t>(token)]) - total)});
  }
  return logits;
}

// Rows of W_U less the mean of all its rows, [logits, d_model]: what raises a logit above the mean.
FloatVector logit_directions(Engine& engine, const std::vector<GraphLogit>& logits) {
  const Head head = engine.model().head();
  const int64_t d = engine.shape().d_model, vocab = head.weight->out;
  constexpr int64_t kTogether = 1024;
  Context& ctx = engine.context();
  std::vector<double> mean(static_cast<size_t>(d), 0.0);
  std::vector<int32_t> ids;
  for (int64_t first = 0; first < vocab; first += kTogether) {
    const auto frame = ctx.frame();
    ids.resize(static_cast<size_t>(std::min(kTogether, vocab - first)));
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first));
    const Tensor rows = embed(ctx, ids, *head.weight);
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (int64_t i = 0; i < d; ++i) mean[static_cast<size_t>(i)] += static_cast<double>(rows.row<float>(r)[i]);
  }
  const auto frame = ctx.frame();
  ids.clear();
  for (const GraphLogit& logit : logits) ids.push_back(logit.token);
  const Tensor rows = embed(ctx, ids, *head.weight);
  FloatVector directions;
  for (int64_t r = 0; r < rows.rows(); ++r)
    for (int64_t i = 0; i < d; ++i)
      directions.push_back(static_cast<float>(
          head.scale * (static_cast<double>(rows.row<float>(r)[i]) - mean[static_cast<size_t>(i)] / static_cast<double>(vocab))));
  return directions;
}

// Columns of all active features, errors and tokens, a row at a time.
class Rows {
 public:
  Rows(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids, const Observed& seen, size_t pass_memory)
      : engine_(engine),
        set_(set),
        seen_(seen),
        replacement_(engine, set, ids, pass_memory),
        positions_(std::ssize(ids)),
        d_(engine.shape().d_model) {}

  int64_t width() const { return std::ssize(seen_.active) + (set_.n_layers() + 1) * positions_; }

  /// to[i] gets the row of readers[i], [width()].
  void fill(std::vector<StreamReader> readers, std::vector<float*> to) {
    std::vector<size_t> order(readers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto last_of = [&](size_t i) { return replacement_.last_position(readers[i].position); };
    std::ranges::sort(order, [&](size_t a, size_t b) {
      const auto key = [&](size_t i) { return std::tuple(last_of(i), readers[i].layer, readers[i].position, i); };
      return key(a) < key(b);
    });
    std::vector<StreamReader> pass;
    std::vector<float*> rows;
    for (size_t first = 0; first < order.size(); first += pass.size()) {
      const int64_t last = last_of(order[first]);
      const auto most = static_cast<size_t>(replacement_.together(last));
      pass.clear();
      rows.clear();
      for (size_t i = first; i < order.size() && pass.size() < most && last_of(order[i]) == last; ++i) {
        pass.push_back(readers[order[i]]);
        rows.push_back(to[order[i]]);
      }
      one_pass(pass, rows, last);
    }
  }

 private:
  void one_pass(std::span<const StreamReader> pass, std::span<float* const> rows, int64_t last) {
    Context& ctx = engine_.context();
    const auto frame = ctx.frame();
    const LocalReplacement::Gradients& g = replacement_.gradients(pass, last);
    for (float* row : rows) std::fill_n(row, width(), 0.0F);
    const auto& dot = kernels().dot;
    const auto d = static_cast<size_t>(d_);
    for (int64_t l = 0; l < set_.n_layers(); ++l) {
      const Tensor& at = g.at_output[static_cast<size_t>(l)];
      if (!at) continue;
      const int64_t column = std::ssize(seen_.active) + l * positions_;
      ctx.pool().run(std::ssize(pass), [&](int64_t i, int) {
        for (int64_t p = 0; p <= last; ++p)
          rows[static_cast<size_t>(i)][column + p] =
              dot(g.row(at, i, p), seen_.errors[static_cast<size_t>(l)].data() + p * d_, d);
      });
      for (int64_t p = 0; p <= last; ++p) features_at(g, l, p, rows);
    }
    const int64_t column = std::ssize(seen_.active) + set_.n_layers() * positions_;
    if (!g.at_embedding) return;
    for (size_t i = 0; i < rows.size(); ++i)
      for (int64_t p = 0; p <= last; ++p)
        rows[i][column + p] = dot(g.row(g.at_embedding, static_cast<int64_t>(i), p), seen_.embeddings.data() + p * d_, d);
  }

  // What features at position p write at layer l's output, met by its gradients there.
  void features_at(const LocalReplacement::Gradients& g, int64_t l, int64_t p, std::span<float* const> rows) {
    Context& ctx = engine_.context();
    for (int64_t from = set_.cross_layer() ? 0 : l; from <= l; ++from) {
      const auto place = static_cast<size_t>(from * positions_ + p);
      const int64_t first = seen_.begin[place], n = seen_.begin[place + 1] - first;
      if (n == 0) continue;
      const auto frame = ctx.frame();
      const SparseAutoencoder& sae = *set_.layers[static_cast<size_t>(from)];
      auto* written = ctx.scratch<float>(static_cast<size_t>(n * d_));
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(sae.direction(seen_.active[static_cast<size_t>(first + i)].feature).data() + (l - from) * d_, d_,
                    written + i * d_);
      const auto count = std::ssize(rows);
      const Tensor gradients = ctx.empty({count, d_}), effects = ctx.empty({count, n});
      for (int64_t i = 0; i < count; ++i)
        std::copy_n(g.row(g.at_output[static_cast<size_t>(l)], i, p), d_, gradients.row<float>(i));
      Weight directions;
      directions.name = "W_dec";
      directions.data = reinterpret_cast<const std::byte*>(written);
      directions.out = n;
      directions.in = d_;
      directions.stride = static_cast<size_t>(d_) * sizeof(float);
      linear_part(ctx, gradients, directions, 0, n, effects.raw(), n);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < n; ++j)
          rows[static_cast<size_t>(i)][first + j] +=
              effects.row<float>(i)[j] * seen_.active[static_cast<size_t>(first + j)].value;
    }
  }

  Engine& engine_;
  const TranscoderSet& set_;
  const Observed& seen_;
  LocalReplacement replacement_;
  int64_t positions_, d_;
};

// Encoder directions of active features, which W_enc [d_in, d_sae] holds as columns.
FloatVector encoder_directions(const TranscoderSet& set, const std::vector<GraphFeature>& active,
                               std::span<const int64_t> which) {
  FloatVector directions;
  for (const int64_t i : which) {
    const GraphFeature& f = active[static_cast<size_t>(i)];
    const SparseAutoencoder& sae = *set.layers[static_cast<size_t>(f.layer)];
    for (int64_t j = 0; j < sae.d_in; ++j) directions.push_back(sae.W_enc[static_cast<size_t>(j * sae.d_sae + f.feature)]);
  }
  return directions;
}

void check_options(const GraphOptions& o, int64_t positions) {
  const auto fail = [](const std::string& what) { throw InputError(what); };
  if (o.max_features < 1) fail("max_features is " + std::to_string(o.max_features) + "; expected 1 or more");
  if (o.max_logits < 1) fail("max_logits is " + std::to_string(o.max_logits) + "; expected 1 or more");
  if (!(o.logit_share > 0 && o.logit_share <= 1)) fail("the share of the logits must be above 0 and at most 1");
  if (o.ignored_positions < 0) fail("ignored positions cannot be below 0");
  if (o.ranked_together < 1) fail("features are ranked 1 or more at a time");
  if (positions <= o.ignored_positions)
    fail("the prompt has " + std::to_string(positions) + (positions == 1 ? " token" : " tokens") + ", of which the first " +
         std::to_string(o.ignored_positions) + " (BOS) counts as no feature's place; give more, or ignore fewer positions");
}

}  // namespace

std::vector<int32_t> graph_ids(const Engine& engine, std::vector<int32_t> ids) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (ids.empty() || tokenizer.is_control(ids.front())) return ids;
  for (const auto& token : {tokenizer.bos(), tokenizer.padding(), tokenizer.eos()}) {
    if (!token) continue;
    ids.insert(ids.begin(), *token);
    break;
  }
  return ids;
}

AttributionGraph attribution_graph(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids,
                                   const GraphOptions& o) {
  check_options(o, std::ssize(ids));
  require_plain_head(engine.model(), engine.name(), "An attribution graph");
  check_replaceable(engine, set);
  engine.check_ids(ids);
  AttributionGraph graph;
  graph.tokens.assign(ids.begin(), ids.end());
  for (const int32_t id : ids) graph.token_texts.push_back(text_of_ids(engine, {&id, 1}));
  graph.prompt = text_of_ids(engine, ids);
  graph.scan = set.name;
  graph.n_layers = set.n_layers();
  graph.logits = choose_logits(engine, ids, o);
  Observed seen = observe_nodes(engine, set, ids, o.ignored_positions);
  const int64_t all = std::ssize(seen.active), features = std::min(all, o.max_features), logits = std::ssize(graph.logits);
  const int64_t others = (graph.n_layers + 1) * graph.positions(), width = all + others, nodes = features + others + logits;
  const bool limited = features < all;
  const auto rows = static_cast<size_t>(features + logits);
  require_memory(rows * static_cast<size_t>(nodes + (limited ? width : 0)) * sizeof(float), o.memory,
                 "The effects on " + std::to_string(features) + " features of " + std::to_string(all) + " active ones",
                 "Allow fewer features (--max-features)");

  // Rows with all columns: those of the graph itself where every feature is a node.
  const int64_t stride = limited ? width : nodes;
  FloatVector wide(rows * static_cast<size_t>(stride), 0.0F);
  Rows source(engine, set, ids, seen, o.pass_memory);
  const FloatVector of_logits = logit_directions(engine, graph.logits);
  const int64_t d = engine.shape().d_model;
  std::vector<StreamReader> readers;
  std::vector<float*> to;
  const auto along = [&](const FloatVector& directions, int64_t i) {
    return std::span<const float>(directions).subspan(static_cast<size_t>(i * d), static_cast<size_t>(d));
  };
  for (int64_t i = 0; i < logits; ++i) {
    readers.push_back({graph.n_layers, graph.positions() - 1, along(of_logits, i)});
    to.push_back(wide.data() + (features + i) * stride);
  }
  source.fill(readers, to);

  PartialInfluence influence(width, graph.logits);
  for (int64_t i = 0; limited && i < logits; ++i)
    influence.add_row(-1 - i, {to[static_cast<size_t>(i)], static_cast<size_t>(width)});
  std::vector<int64_t> taken;  // in the order of their rows
  std::vector<bool> visited(static_cast<size_t>(all), false);
  while (std::ssize(taken) < features) {
    std::vector<int64_t> next;
    const int64_t most = std::min(features - std::ssize(taken), o.ranked_together);
    if (limited) {
      const std::vector<double> of_node = influence.of_nodes();
      for (int64_t i = 0; i < all; ++i)
        if (!visited[static_cast<size_t>(i)]) next.push_back(i);
      const auto larger = [&](int64_t a, int64_t b) {
        const double p = of_node[static_cast<size_t>(a)], q = of_node[static_cast<size_t>(b)];
        return p > q || (p == q && a < b);
      };
      std::ranges::partial_sort(next, next.begin() + most, larger);
    } else {
      next.resize(static_cast<size_t>(all - std::ssize(taken)));
      std::iota(next.begin(), next.end(), std::ssize(taken));
    }
    next.resize(static_cast<size_t>(most));
    const FloatVector directions = encoder_directions(set, seen.active, next);
    readers.clear();
    to.clear();
    for (int64_t i = 0; i < most; ++i) {
      const GraphFeature& f = seen.active[static_cast<size_t>(next[static_cast<size_t>(i)])];
      readers.push_back({f.layer, f.position, along(directions, i)});
      to.push_back(wide.data() + (std::ssize(taken) + i) * stride);
    }
    source.fill(readers, to);
    for (int64_t i = 0; i < most; ++i) {
      const int64_t feature = next[static_cast<size_t>(i)];
      visited[static_cast<size_t>(feature)] = true;
      if (limited) influence.add_row(feature, {to[static_cast<size_t>(i)], static_cast<size_t>(width)});
    }
    taken.insert(taken.end(), next.begin(), next.end());
  }

  for (const float x : wide)
    if (!std::isfinite(x))
      throw RunError("an effect is NaN or infinite, while the prompt's run is finite; are the transcoders' weights sound?");
  if (limited) {
    std::vector<int64_t> order(taken.size());  // rows by feature
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::sort(order, {}, [&](int64_t i) { return taken[static_cast<size_t>(i)]; });
    for (const int64_t i : order) graph.selected.push_back(taken[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < logits; ++i) order.push_back(features + i);
    graph.effects.reserve(rows * static_cast<size_t>(nodes));
    for (const int64_t i : order) {
      const float* row = wide.data() + i * stride;
      for (const int64_t feature : graph.selected) graph.effects.push_back(row[feature]);
      graph.effects.insert(graph.effects.end(), row + all, row + width);
      graph.effects.insert(graph.effects.end(), static_cast<size_t>(logits), 0.0F);
    }
  } else {
    graph.selected = std::move(taken);
    graph.effects = std::move(wide);
  }
  graph.active = std::move(seen.active);
  return graph;
}

}  // namespace vitrine
