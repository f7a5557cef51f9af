#include "inspect/features.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "hooks/partial_run.h"
#include "inspect/adapted_part.h"
#include "inspect/weights.h"
#include "io/safetensors.h"
#include "model/abilities.h"
#include "ops/head.h"

namespace vitrine {
namespace {

float feature_value(const SparseFeatures& features, size_t row, int64_t feature) {
  const auto begin = features.index.begin() + features.begin[row], end = features.index.begin() + features.begin[row + 1];
  const auto found = std::lower_bound(begin, end, static_cast<int32_t>(feature));
  return found == end || *found != feature ? 0.0F : features.value[static_cast<size_t>(found - features.index.begin())];
}

// "2,651": as `trace` notes what ran.
std::string joined_ids(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// A place in the text that may be among the largest.
struct FeaturePlace {
  float value;
  size_t window, row;
};

void check_hook_width(const Engine& engine, const std::string& hook, int64_t width, const char* what) {
  const std::vector<std::string> names = engine.model().hook_names();
  if (std::ranges::find(names, hook) == names.end())
    throw InputError("the autoencoder is for " + hook + ", a hook that " + engine.name() +
                     " does not have; `vitrine info --hooks` lists them, and --hook gives another");
  const std::vector<int64_t> shape = hook_shape(engine.model(), hook, 1);
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (size != width)
    throw InputError("the autoencoder's " + std::string(what) + " is " + std::to_string(width) + ", and " + hook + " of " +
                     engine.name() + " has " + std::to_string(size) + " numbers a token; is it of another model?");
}

}  // namespace

void check_fits(const Engine& engine, const SparseAutoencoder& sae) {
  if (sae.hook_name.empty())
    throw InputError("the autoencoder's files do not say at which hook it reads; give --hook, such as blocks.3.hook_resid_post");
  check_hook_width(engine, sae.hook_name, sae.d_in, "d_in");
  check_hook_width(engine, sae.hook_name_out, sae.d_out, "d_out");
}

void check_fits(const Engine& engine, const CrossLayerTranscoder& transcoder) {
  for (const SparseAutoencoder& layer : transcoder.layers) {
    check_hook_width(engine, layer.hook_name, transcoder.d_model, "d_model");
    check_hook_width(engine, layer.hook_name_out, transcoder.d_model, "d_model");
  }
}

void check_fits(const Engine& engine, const TranscoderSet& set) {
  for (const auto& layer : set.layers) {
    check_hook_width(engine, layer->hook_name, layer->d_in, "d_in");
    check_hook_width(engine, layer->hook_name_out, set.cross_layer() ? layer->d_in : layer->d_out, "d_out");
  }
}

SparseFeatures features_of(Engine& engine, const SparseAutoencoder& sae, std::span<const int32_t> ids) {
  check_fits(engine, sae);
  const std::vector<int32_t> sequence(ids.begin(), ids.end());
  const PartialResult ran = run_partly(engine, {&sequence, 1}, {.hooks = {sae.hook_name}});
  const Recorder::Value& value = ran.values.at(sae.hook_name);
  const auto frame = engine.context().frame();
  return encode(engine.context(), sae, value.values.data(), static_cast<int64_t>(ids.size()));
}

void trace_features(Engine& engine, const SparseAutoencoder& sae, std::span<const int32_t> ids, const std::string& path,
                    size_t memory) {
  check_fits(engine, sae);
  const auto rows = static_cast<int64_t>(ids.size());
  require_memory(sizeof(float) * ids.size() * static_cast<size_t>(sae.d_sae + 3 * sae.d_out + sae.d_in), memory,
                 "The features of " + std::to_string(rows) + " tokens", "Give fewer tokens");
  std::vector<std::string> hooks = {sae.hook_name};
  if (sae.hook_name_out != sae.hook_name) hooks.push_back(sae.hook_name_out);
  const std::vector<int32_t> sequence(ids.begin(), ids.end());
  const PartialResult ran = run_partly(engine, {&sequence, 1}, {.hooks = hooks});
  const FloatVector& x = ran.values.at(sae.hook_name).values;
  const auto frame = engine.context().frame();
  const SparseFeatures features = encode(engine.context(), sae, x.data(), rows);
  FloatVector acts(static_cast<size_t>(rows * sae.d_sae)), made(static_cast<size_t>(rows * sae.d_out)),
      error = ran.values.at(sae.hook_name_out).values;
  to_dense(features, sae.d_sae, acts.data());
  decode(engine.context(), sae, features, x.data(), made.data());
  for (size_t i = 0; i < error.size(); ++i) error[i] -= made[i];
  const std::string hook = sae.hook_name_out + ".hook_sae_";
  write_safetensors(path,
                    {{hook + "acts_post", DType::f32, {rows, sae.d_sae}, acts.data()},
                     {hook + "recons", DType::f32, {rows, sae.d_out}, made.data()},
                     {hook + "error", DType::f32, {rows, sae.d_out}, error.data()}},
                    {{"tokens", joined_ids(ids)}});
}

FeatureTable feature_table(Engine& engine, const SparseAutoencoder& sae, const std::vector<std::vector<int32_t>>& windows,
                           const FeatureTableOptions& options) {
  for (const int64_t feature : options.features) check_feature(sae, feature);
  FeatureTable table;
  table.active.assign(static_cast<size_t>(sae.d_sae), 0);
  std::vector<std::vector<float>> values(options.features.size());  // those that are not zero
  std::vector<std::vector<FeaturePlace>> best(options.features.size());
  std::vector<int64_t> sorted = options.features;
  std::ranges::sort(sorted);
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
  std::vector<SparseFeatures> kept;  // of these features alone, for the neighbors of the largest
  std::vector<int64_t> first;        // place of each window's first token
  const auto larger = [](const FeaturePlace& a, const FeaturePlace& b) {
    return a.value > b.value || (a.value == b.value && std::pair(a.window, a.row) < std::pair(b.window, b.row));
  };
  const auto most = static_cast<size_t>(std::max<int64_t>(options.contexts, 0));

  for (size_t w = 0; w < windows.size(); ++w) {
    const SparseFeatures features = features_of(engine, sae, windows[w]);
    first.push_back(table.tokens);
    table.tokens += features.rows();
    for (const int32_t f : features.index) ++table.active[static_cast<size_t>(f)];
    SparseFeatures wanted;
    wanted.begin.push_back(0);
    for (size_t r = 0; r < static_cast<size_t>(features.rows()); ++r) {
      for (const int64_t f : sorted) {
        const float v = feature_value(features, r, f);
        if (v == 0) continue;
        wanted.index.push_back(static_cast<int32_t>(f));
        wanted.value.push_back(v);
      }
      wanted.begin.push_back(static_cast<int64_t>(wanted.index.size()));
    }
    for (size_t i = 0; i < options.features.size(); ++i) {
      FeaturePlace here{0, w, 0};
      for (size_t r = 0; r < static_cast<size_t>(features.rows()); ++r) {
        const float v = feature_value(features, r, options.features[i]);
        if (v == 0) continue;
        values[i].push_back(v);
        if (v > here.value) here = {v, w, r};
      }
      if (here.value <= 0) continue;
      best[i].insert(std::ranges::upper_bound(best[i], here, larger), here);
      if (best[i].size() > most) best[i].pop_back();
    }
    kept.push_back(std::move(wanted));
  }
  const int64_t all = std::accumulate(table.active.begin(), table.active.end(), int64_t{0});
  table.l0 = table.tokens > 0 ? static_cast<double>(all) / static_cast<double>(table.tokens) : 0;

  for (size_t i = 0; i < options.features.size(); ++i) {
    FeatureSummary summary;
    summary.feature = options.features[i];
    summary.active = static_cast<int64_t>(values[i].size());
    for (const float v : values[i]) {
      summary.mean += static_cast<double>(v) / static_cast<double>(values[i].size());
      summary.largest = std::max(summary.largest, v);
    }
    const int64_t bins = std::max<int64_t>(options.bins, 1);
    summary.histogram.assign(static_cast<size_t>(bins), 0);
    for (const float v : values[i]) {
      if (v <= 0) continue;
      const auto bin =
          static_cast<int64_t>(static_cast<double>(v) / static_cast<double>(summary.largest) * static_cast<double>(bins));
      ++summary.histogram[static_cast<size_t>(std::clamp<int64_t>(bin, 0, bins - 1))];
    }
    for (const FeaturePlace& place : best[i]) {
      const std::vector<int32_t>& ids = windows[place.window];
      const auto row = static_cast<int64_t>(place.row);
      const int64_t begin = std::max<int64_t>(0, row - options.before),
                    end = std::min(static_cast<int64_t>(ids.size()), row + options.behind + 1);
      FeatureContext context{place.value, first[place.window] + row, {ids.begin() + begin, ids.begin() + end}, {}, row - begin};
      for (int64_t r = begin; r < end; ++r)
        context.values.push_back(feature_value(kept[place.window], static_cast<size_t>(r), summary.feature));
      summary.contexts.push_back(std::move(context));
    }
    table.features.push_back(std::move(summary));
  }
  return table;
}

std::vector<TokenLogit> extreme_logits(std::span<const float> logits, int64_t tokens, bool largest) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::clamp<std::ptrdiff_t>(tokens, 0, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? (largest ? x > y : x < y) : a < b;
  });
  std::vector<TokenLogit> list;
  for (auto token = order.begin(); token != end; ++token)
    list.push_back({*token, static_cast<double>(logits[static_cast<size_t>(*token)])});
  return list;
}

FeatureLogits feature_logits(Engine& engine, const SparseAutoencoder& sae, int64_t feature, int64_t top) {
  check_feature(sae, feature);
  const int64_t d = engine.shape().d_model;
  if (sae.d_out != d)
    throw InputError("the autoencoder at " + sae.hook_name_out + " writes " + std::to_string(sae.d_out) +
                     " numbers a token, not into the residual stream of " + std::to_string(d) + "; it has no logits of its own");
  return direction_logits(engine, sae.direction(feature), top).front();
}

std::vector<FeatureLogits> direction_logits(Engine& engine, std::span<const float> directions, int64_t top) {
  const int64_t d = engine.shape().d_model, vocab = engine.shape().vocab_size, all = std::ssize(directions) / d;
  require_plain_head(engine.model(), engine.name(), "What a direction adds to the logits");
  const NamedWeights weights(*engine.opened().model);
  const FrozenNorm norm = frozen_norm(weights, engine.model().layer(0), "ln_final");
  const Head head = engine.model().head();
  Context& ctx = engine.context();
  std::vector<FeatureLogits> result;
  for (int64_t first = 0; first < all; first += kLogitRows) {
    const int64_t rows = std::min(kLogitRows, all - first);
    const auto frame = ctx.frame();
    const Tensor x = ctx.empty({rows, d}), z = ctx.empty({rows, vocab});
    for (int64_t r = 0; r < rows; ++r) {
      const auto from = directions.subspan(static_cast<size_t>((first + r) * d), static_cast<size_t>(d));
      std::vector<double> direction(from.begin(), from.end());
      norm.apply(direction.data(), 1);
      std::copy(direction.begin(), direction.end(), x.row<float>(r));
    }
    adapted_part(ctx, x, *head.weight, 0, vocab, z.data<float>());
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<float> logits(z.row<float>(r), static_cast<size_t>(vocab));
      for (float& logit : logits) logit *= static_cast<float>(head.scale);
      result.push_back({extreme_logits(logits, top, true), extreme_logits(logits, top, false)});
    }
  }
  return result;
}

}  // namespace vitrine
