#include "inspect/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/json_of.h"
#include "hooks/trace.h"
#include "inspect/reference.h"
#include "kernels/table.h"
#include "model/abilities.h"
#include "model/layer_name.h"
#include "runtime/logits.h"

namespace vitrine {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "[3, 7]" for a flat index.
std::string index_text(size_t flat, std::span<const int64_t> shape) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0;) {
    const auto n = static_cast<size_t>(std::max<int64_t>(1, shape[d]));
    text = std::to_string(flat % n) + (text.empty() ? "" : ", ") + text;
    flat /= n;
  }
  return "[" + text + "]";
}

// What is said about one quantity, collected over sequences.
class Comparison {
 public:
  explicit Comparison(VerifiedQuantity quantity) : result_(std::move(quantity)) {}

  void add(std::span<const float> ours, std::span<const float> reference, std::span<const int64_t> shape,
           const std::string& sequence, const VerifyReport& tolerance) {
    ++result_.sequences;
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto a = static_cast<double>(ours[i]), e = static_cast<double>(reference[i]);
      ++result_.numbers;
      if (a == e && !std::isfinite(a)) continue;  // masked scores are -inf in both
      const bool finite = std::isfinite(a) && std::isfinite(e);
      const double difference = finite ? std::abs(a - e) : kInfinity;
      result_.max_abs = std::max(result_.max_abs, difference);
      sum_abs_ += difference;
      squares_difference_ += difference * difference;
      squares_ours_ += a * a;
      squares_reference_ += e * e;
      dot_ += a * e;
      const double share = difference / (tolerance.tolerance_abs + tolerance.tolerance_rel * std::abs(e));
      const double fixed = finite ? share : kInfinity;
      if (result_.worst.at.empty() || fixed > result_.worst.share_of_tolerance) {
        result_.worst.share_of_tolerance = fixed;
        result_.worst.at = sequence + ", " + index_text(i, shape);
        result_.worst.ours = a;
        result_.worst.reference = e;
      }
    }
    if (result_.hook == "hook_logits") add_predictions(ours, reference, static_cast<size_t>(shape.back()));
  }

  VerifiedQuantity finish() {
    VerifiedQuantity& q = result_;
    q.mean_abs = q.numbers > 0 ? sum_abs_ / static_cast<double>(q.numbers) : 0;
    const double size = std::sqrt(squares_reference_);
    q.relative = size > 0 ? std::sqrt(squares_difference_) / size : std::sqrt(squares_difference_);
    const double both = std::sqrt(squares_ours_) * size;
    q.cosine = both > 0 ? std::min(1.0, dot_ / both) : (squares_difference_ == 0 ? 1 : 0);
    q.held = q.worst.share_of_tolerance <= 1;
    if (positions_ > 0) {
      q.kl_mean = kl_sum_ / positions_;
      q.kl_max = kl_max_;
      q.top1_agreement = same_top_ / positions_;
    }
    return q;
  }

 private:
  void add_predictions(std::span<const float> ours, std::span<const float> reference, size_t vocab) {
    for (size_t at = 0; at + vocab <= ours.size(); at += vocab) {
      const auto a = ours.subspan(at, vocab), e = reference.subspan(at, vocab);
      const double apart = kl_divergence(e, a), kl = std::isnan(apart) ? kInfinity : apart;
      kl_sum_ += kl;
      kl_max_ = std::max(kl_max_, kl);
      same_top_ += std::max_element(a.begin(), a.end()) - a.begin() == std::max_element(e.begin(), e.end()) - e.begin() ? 1 : 0;
      positions_ += 1;
    }
  }

  VerifiedQuantity result_;
  double sum_abs_ = 0, squares_difference_ = 0, squares_ours_ = 0, squares_reference_ = 0, dot_ = 0;
  double kl_sum_ = 0, kl_max_ = 0, same_top_ = 0, positions_ = 0;
};

// Hooks inside fused ops: listening to one selects the op's stepwise form.
bool selects_stepwise(const std::string& hook) {
  for (const char* inside : {"hook_attn_scores", "hook_pattern", "hook_scale", "hook_normalized_pre", "attn.hook_result"})
    if (hook.ends_with(inside)) return true;
  return false;
}

VerifiedQuantity quantity_of(const std::string& hook) {
  VerifiedQuantity q;
  q.hook = hook;
  const auto [layer, rest] = split_layer(hook);
  if (layer >= 0) q.layer = layer;
  const std::map<std::string, std::string> words = {{"hook_logits", "logits"},
                                                    {"hook_resid_pre", "residual before the block"},
                                                    {"hook_resid_mid", "residual between the sub-layers"},
                                                    {"hook_resid_post", "residual after the block"},
                                                    {"attn.hook_pattern", "attention pattern"},
                                                    {"ln_final.hook_normalized", "residual after the final norm"}};
  const auto word = words.find(std::string(rest));
  q.quantity = word != words.end() ? word->second : rest;
  return q;
}

// The logits at every position when tokens come one at a time: the kernels of few rows, and the cache.
std::vector<float> logits_through_cache(Engine& engine, const std::vector<int32_t>& ids) {
  const auto cache = engine.make_cache(static_cast<int64_t>(ids.size()));
  CacheSequence sequence = cache->sequence();
  std::vector<float> all;
  for (const int32_t& id : ids) {
    const auto frame = engine.context().frame();
    Step step;
    step.add(std::span(&id, 1), &sequence);
    const int64_t row = 0;
    const Tensor z = engine.run(step, std::span(&row, 1));
    all.insert(all.end(), z.data<float>(), z.data<float>() + z.count());
    step.commit();
  }
  return all;
}

class Verifier {
 public:
  Verifier(Engine& engine, VerifyReport& report) : engine_(engine), report_(report) {}

  void compare(const ReferenceSequence& sequence) {
    engine_.check_ids(sequence.ids);
    std::vector<std::string> fused, stepwise;
    for (const ReferenceTensor& tensor : sequence.tensors)
      (selects_stepwise(tensor.hook) ? stepwise : fused).push_back(tensor.hook);
    for (const std::vector<std::string>& hooks : {fused, stepwise}) {
      if (hooks.empty()) continue;
      const Recorder seen = trace_to_memory(engine_, sequence.ids, hooks);
      for (const ReferenceTensor& tensor : sequence.tensors)
        if (const auto ours = seen.values().find(tensor.hook); ours != seen.values().end())
          of(tensor.hook).add(ours->second.values, sequence.numbers(tensor), ours->second.shape, sequence.name, report_);
    }
    for (const ReferenceTensor& tensor : sequence.tensors) {
      if (tensor.hook != "hook_logits" || !is_causal(engine_.model())) continue;  // in both directions there is no cache
      const std::vector<int64_t> shape = {static_cast<int64_t>(sequence.ids.size()), engine_.shape().vocab_size};
      through_cache().add(logits_through_cache(engine_, sequence.ids), sequence.numbers(tensor), shape, sequence.name, report_);
    }
    ++report_.sequences;
    report_.tokens += static_cast<int64_t>(sequence.ids.size());
  }

  void finish() {
    const std::vector<std::string> order = engine_.model().hook_names();
    for (const std::string& hook : order)
      if (const auto found = comparisons_.find(hook); found != comparisons_.end())
        report_.quantities.push_back(found->second.finish());
    if (const auto found = comparisons_.find(kThroughCache); found != comparisons_.end())
      report_.quantities.push_back(found->second.finish());
    for (const VerifiedQuantity& q : report_.quantities) report_.held = report_.held && q.held;
  }

 private:
  static constexpr char kThroughCache[] = "logits through the cache";
  Comparison& of(const std::string& hook) { return comparisons_.try_emplace(hook, quantity_of(hook)).first->second; }
  Comparison& through_cache() {
    VerifiedQuantity q = quantity_of("hook_logits");
    q.quantity = kThroughCache;
    return comparisons_.try_emplace(kThroughCache, q).first->second;
  }

  Engine& engine_;
  VerifyReport& report_;
  std::map<std::string, Comparison> comparisons_;
};

}  // namespace

VerifyReport verify(Engine& engine, const std::string& reference_path) {
  const Reference reference = open_reference(reference_path, engine.model());
  VerifyReport report;
  report.model = engine.name();
  report.reference = reference_path;
  report.kernels = kernels().name;
  std::set<std::string> dtypes;
  for (const auto& [name, tensor] : engine.opened().checkpoint.tensors()) dtypes.emplace(name_of(tensor.dtype));
  report.dtypes.assign(dtypes.begin(), dtypes.end());
  report.f32 = engine.context().numerics.f32;
  report.exact = engine.context().numerics.exact;
  report.threads = engine.context().pool().threads();
  report.tolerance_from = "the tolerance of f32 arithmetic";
  if (3 * reference.distance_from_f64 > report.tolerance_abs) {
    report.tolerance_abs = 3 * reference.distance_from_f64;
    report.tolerance_from = "three times the reference's own distance from float64";
  }
  report.not_compared = reference.not_compared;
  Verifier verifier(engine, report);
  for (const ReferenceSequence& sequence : reference.sequences) verifier.compare(sequence);
  verifier.finish();
  dtypes.erase("f32");
  if (!report.f32 && !dtypes.empty())
    report.note = "weights are stored as " + *dtypes.begin() +
                  " and --compute auto rounds what they multiply; the tolerance is of f32 arithmetic (--compute f32)";
  return report;
}

std::string verdict(const VerifyReport& report) {
  const auto& all = report.quantities;
  const auto missed = [](const VerifiedQuantity& q) { return !q.held; };
  const auto first = std::find_if(all.begin(), all.end(), missed);
  if (first == all.end()) return "agrees";
  const auto count = std::count_if(all.begin(), all.end(), missed);
  return "differs: first at " + first->name() + " (furthest at " + first->worst.at + "); " + std::to_string(count) + " of " +
         std::to_string(all.size()) + " quantities are further from the reference than allowed";
}

Json to_json(const VerifyReport& report) {
  return {{"model", report.model},
          {"reference", report.reference},
          {"kernels", report.kernels},
          {"threads", report.threads},
          {"weights", report.dtypes},
          {"compute", report.f32 ? "f32" : "auto"},
          {"exact", report.exact},
          {"tolerance", {{"abs", report.tolerance_abs}, {"rel", report.tolerance_rel}, {"from", report.tolerance_from}}},
          {"sequences", report.sequences},
          {"tokens", report.tokens},
          {"quantities", json_of(report.quantities)},
          {"not_compared", report.not_compared},
          {"held", report.held},
          {"verdict", verdict(report)},
          {"note", report.note.empty() ? Json(nullptr) : Json(report.note)}};
}

}  // namespace vitrine
