// Pictures of the permutation law: attention on vectors in another order.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/permutation.h"
#include "hooks/listening.h"
#include "hooks/trace.h"
#include "model/abilities.h"
#include "picture/data/head_study.h"

namespace vitrine {
namespace {

constexpr int64_t kMostTokens = 12;  // that are shuffled

struct Shuffle {
  std::string name;
  std::vector<int64_t> order;  // row i of P x is row order[i] of x
};

// Without those that leave everything in its place or were there already.
std::vector<Shuffle> shuffles_of(int64_t n) {
  std::vector<Shuffle> all;
  const auto add = [&](const std::string& name, auto&& from) {
    Shuffle shuffle{name, {}};
    for (int64_t i = 0; i < n; ++i) shuffle.order.push_back(from(i));
    const auto same = [&](const Shuffle& other) { return other.order == shuffle.order; };
    if (!std::is_sorted(shuffle.order.begin(), shuffle.order.end()) && std::none_of(all.begin(), all.end(), same))
      all.push_back(std::move(shuffle));
  };
  add("last one first", [&](int64_t i) { return n - 1 - i; });
  add("first two swapped", [&](int64_t i) { return i < 2 ? 1 - i : i; });
  add("moved on by one", [&](int64_t i) { return (i + n - 1) % n; });
  for (uint64_t key = 1; key <= 3; ++key) {
    const Permutation drawn(static_cast<uint64_t>(n), key);
    add("random " + std::to_string(key), [&](int64_t i) { return static_cast<int64_t>(drawn(static_cast<uint64_t>(i))); });
  }
  return all;
}

RowsD shuffled(const RowsD& x, const std::vector<int64_t>& order) {
  RowsD rows(x.rows(), x.cols());
  for (size_t i = 0; i < order.size(); ++i) rows.row(static_cast<int64_t>(i)) = x.row(order[i]);
  return rows;
}

RowsD permutation_matrix(const std::vector<int64_t>& order) {
  const auto n = static_cast<int64_t>(order.size());
  return shuffled(RowsD::Identity(n, n), order);
}

// Where positions are added to the embeddings: the first layer's heads' input without them, and the vectors that are added.
struct AddedPlaces {
  RowsD tokens, places;  // [token, d_model]; empty where positions come in another way, or not in this layer
  FrozenNorm norm;       // in front of the heads; no gain: none
  double eps = 0;

  RowsD read(const RowsD& rows) const {
    RowsD result = rows;
    for (int64_t r = 0; r < result.rows() && !norm.gain.empty(); ++r) {
      const double mean = norm.rms ? 0 : result.row(r).mean();
      const double square = (result.row(r).array() - mean).square().mean();
      norm.apply(result.row(r).data(), std::sqrt(square + eps));
      for (size_t i = 0; i < norm.bias.size(); ++i) result(r, static_cast<int64_t>(i)) += norm.bias[i];
    }
    return result;
  }
};

AddedPlaces added_places(Studio& studio, const HeadStudy& study, std::span<const int32_t> ids) {
  const Model& model = studio.engine.model();
  AddedPlaces added;
  if (study.layer != 0 || model.record().hook("hook_pos_embed") == nullptr) return added;
  const std::vector<std::string> hooks = {"hook_embed", "hook_pos_embed"};
  const Recorder seen = trace_to_memory(studio.engine, ids, hooks);
  added.tokens = rows_of_hook(seen, hooks[0]);
  added.places = rows_of_hook(seen, hooks[1]);
  const LayerRecord& spec = model.layer(0);
  added.eps = spec.norm.eps;
  if (AttentionFormula::reads(model, 0).ends_with("ln1.hook_normalized"))
    added.norm = frozen_norm(NamedWeights(model), spec, "blocks.0.ln1");
  return added;
}

// Puts the rows of one hook into another order.
class Reorder final : public Listener {
 public:
  Reorder(std::string hook, const std::vector<int64_t>& order) : hook_(std::move(hook)), order_(order) {}
  bool wants(std::string_view name) const override { return name == hook_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const Tensor moved = ctx.empty(value.shape());
    const int64_t width = value.count() / value.dim(0);
    for (size_t i = 0; i < order_.size(); ++i)
      std::copy_n(value.data<float>() + order_[i] * width, width, moved.data<float>() + static_cast<int64_t>(i) * width);
    return moved;
  }

 private:
  std::string hook_;
  const std::vector<int64_t>& order_;
};

// The layer's MLP, run on the stream's rows in another order.
class ShuffledMlp {
 public:
  ShuffledMlp(Studio& studio, int64_t layer, std::span<const int32_t> ids)
      : engine_(studio.engine),
        ids_(ids),
        in_(fmt::format("blocks.{}.hook_resid_{}", layer, is_parallel(studio.engine.model(), layer) ? "pre" : "mid")),
        out_({fmt::format("blocks.{}.hook_mlp_out", layer)}) {
    const ModelRecord& record = engine_.model().record();
    there_ = record.hook(in_) != nullptr && record.hook(out_[0]) != nullptr;
    if (there_) usual_ = rows_of_hook(trace_to_memory(engine_, ids_, out_), out_[0]);
  }
  // The largest difference from its own rows in that order; null for a layer without an MLP.
  PictureJson difference(const std::vector<int64_t>& order) const {
    if (!there_) return nullptr;
    Reorder moved(in_, order);
    const RowsD changed = rows_of_hook(trace_to_memory(engine_, ids_, out_, &moved), out_[0]);
    return number((changed - shuffled(usual_, order)).cwiseAbs().maxCoeff());
  }

 private:
  Engine& engine_;
  std::span<const int32_t> ids_;
  std::string in_;
  std::vector<std::string> out_;
  bool there_ = false;
  RowsD usual_;
};

struct Condition {
  const char *id, *name;
  AttentionOrder order;
};
constexpr Condition kConditions[] = {{"none_of_both", "no mask, no positions", {false, false}},
                                     {"mask", "with the mask", {true, false}},
                                     {"places", "with positions", {false, true}},
                                     {"both", "with both, as in the model", {true, true}}};

// The law under every condition that the layer can have, for every shuffle.
PictureJson make_law(Studio& studio, const HeadStudy& study) {
  const int64_t n = std::min(study.tokens(), kMostTokens);
  const std::vector<int32_t> ids(study.ids.begin(), study.ids.begin() + n);
  const AttentionFormula& formula = *study.formula;
  const auto head = static_cast<size_t>(study.head);
  const AddedPlaces added = added_places(studio, study, ids);
  const RowsD x = study.x.at(study.layer).topRows(n);
  // What the heads read of tokens in this order.
  const auto read = [&](const std::vector<int64_t>& order, bool places) -> RowsD {
    if (added.tokens.size() == 0) return shuffled(x, order);
    const RowsD tokens = shuffled(added.tokens, order);
    return added.read(places ? RowsD(tokens + added.places) : tokens);
  };
  std::vector<int64_t> usual(static_cast<size_t>(n));
  std::iota(usual.begin(), usual.end(), 0);
  const char* const places = formula.turns()           ? "turned"
                             : formula.slopes()        ? "slopes"
                             : formula.scales()        ? "scaled"
                             : added.tokens.size() > 0 ? "added"
                                                       : nullptr;
  PictureJson law = {{"n", n}, {"layer", study.layer}, {"head", study.head}, {"conditions", PictureJson::array()}};
  law["places"] = places == nullptr ? "none" : places;
  const std::vector<Shuffle> shuffles = shuffles_of(n);
  law["shuffles"] = PictureJson::array();
  const ShuffledMlp mlp(studio, study.layer, ids);
  for (const Shuffle& shuffle : shuffles) {
    const RowsD P = permutation_matrix(shuffle.order);
    law["shuffles"].push_back({{"name", shuffle.name},
                               {"order", shuffle.order},
                               {"inverse", number((P.transpose() * P - RowsD::Identity(n, n)).cwiseAbs().maxCoeff())},
                               {"mlp", mlp.difference(shuffle.order)}});
  }
  for (const Condition& condition : kConditions) {
    if (condition.order.places && places == nullptr) continue;
    const RowsD x_usual = read(usual, condition.order.places);
    const RowsD A = formula.patterns(x_usual, condition.order)[head], h = formula.written(study.head, A, x_usual);
    const double size = h.cwiseAbs().maxCoeff();
    PictureJson one = {{"id", condition.id}, {"name", condition.name}, {"A", packed_rows(A)}, {"shuffles", PictureJson::array()}};
    double most = 0;
    for (const Shuffle& shuffle : shuffles) {
      const RowsD P = permutation_matrix(shuffle.order), moved = read(shuffle.order, condition.order.places);
      const RowsD A_moved = formula.patterns(moved, condition.order)[head];
      const double output = (formula.written(study.head, A_moved, moved) - P * h).cwiseAbs().maxCoeff() / size;
      most = std::max(most, output);
      one["shuffles"].push_back({{"pattern", number((A_moved - P * A * P.transpose()).cwiseAbs().maxCoeff())},
                                 {"output", number(output)},
                                 {"A", packed_rows(A_moved)}});
    }
    one["most"] = number(most);
    law["conditions"].push_back(std::move(one));
  }
  return law;
}

const PictureJson& law_of(Studio& studio, HeadStudy& study) {
  if (study.law.is_null()) study.law = make_law(studio, study);
  return study.law;
}

PictureJson no_law(Studio& studio, const HeadStudy& study) {
  if (PictureJson none = no_head_formula(studio, study); !none.is_null()) return none;
  if (study.tokens() < 2) return absent("One token has no other order. Give a prompt of two or more.");
  return nullptr;
}

double most_of(const PictureJson& law, std::string_view id) {
  for (const PictureJson& condition : law.at("conditions"))
    if (condition.at("id") == id) return condition.at("most").get<double>();
  return std::nan("");
}

}  // namespace

PictureJson data_of_permutations(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (PictureJson none = no_law(studio, study); !none.is_null()) return none;
  const PictureJson& law = law_of(studio, study);
  const int64_t n = law.at("n");
  PictureJson p = present(
      fmt::format(
          "The vectors that {} reads in this run, put into another order by a permutation matrix P, and its formula computed "
          "anew. Differences are the largest of all entries; those of h are over the largest entry of h.{}",
          head_title(study), n < studio.tokens() ? fmt::format(" Of the prompt, its first {} tokens.", n) : ""),
      fmt::format(
          "Without mask and positions, the head's output for {} of {} differs from its own output in the same order by at "
          "most {:.1g}; with the mask by up to {:.2g}.",
          plural(law.at("shuffles").size(), "other order"), plural(n, "token"), most_of(law, "none_of_both"),
          most_of(law, "mask")));
  p.update(law);
  const PictureJson& first = p["conditions"][0]["shuffles"];
  double pattern = 0;
  for (const PictureJson& shuffle : first) pattern = std::max(pattern, shuffle.at("pattern").get<double>());
  PictureJson mlp = nullptr;  // the largest
  for (const PictureJson& shuffle : p["shuffles"])
    if (const PictureJson& one = shuffle.at("mlp"); one.is_number() && (mlp.is_null() || one.get<double>() > mlp.get<double>()))
      mlp = one;
  p["prose"] = {{"layer", study.layer},
                {"head", study.head},
                {"n", n},
                {"orders", p["shuffles"].size()},
                {"pattern", number(pattern)},
                {"output", p["conditions"][0]["most"]},
                {"mlp", mlp},
                {"has_mlp", !mlp.is_null()}};
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Order", "each": "shuffles.*", "name": "{shuffles.#0.name}", "charts": [
      {"kind": "remark", "text": "Without mask and positions. Step 1: A(Px) − P A(x) Pᵀ, at most {conditions.0.shuffles.#0.pattern}. Step 2: PᵀP − 1, at most {shuffles.#0.inverse}. Step 3: h(Px) − P h(x), at most {conditions.0.shuffles.#0.output}."},
      {"kind": "grid", "title": "A(x), as the tokens stand", "label": "Weights of attention without mask and positions.", "values": "conditions.0.A.*.*",
       "rows": "{#1|place}", "columns": "{#2|at}", "place": "{#2|place}", "scale": "sequential", "most": 1, "cell": 28, "tall": 20,
       "hint": "{#1|place} looks at {#2|place}\n{conditions.0.A.*.*|%}", "key": {"label": "weight of attention", "low": "0", "high": "1"}},
      {"kind": "grid", "title": "A(Px), in the new order", "label": "Weights of attention of the shuffled tokens.", "values": "conditions.0.shuffles.#0.A.*.*",
       "rows": "{shuffles.#0.order.#1|place}", "columns": "{shuffles.#0.order.#2|at}", "place": "{shuffles.#0.order.#2|place}", "scale": "sequential", "most": 1, "cell": 28, "tall": 20,
       "hint": "{shuffles.#0.order.#1|place} looks at {shuffles.#0.order.#2|place}\n{conditions.0.shuffles.#0.A.*.*|%}", "key": {"label": "weight of attention", "low": "0", "high": "1"}}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "without mask and positions", "columns": [["order", "shuffles.*.name"], ["A(Px) − P A(x) Pᵀ", "conditions.0.shuffles.*.pattern"], ["PᵀP − 1", "shuffles.*.inverse"],
       ["h(Px) − P h(x)", "conditions.0.shuffles.*.output"], ["MLP(Px) − P MLP(x)", "shuffles.*.mlp"]]},
    {"note": "h(Px) − P h(x)", "columns": [["heads", "conditions.*.name"], ["at most", "conditions.*.most"]]},
    {"detail": true, "columns": [["heads", "conditions.#0.name"], ["order", "shuffles.#1.name"], ["A", "conditions.*.shuffles.*.pattern"], ["h", "conditions.*.shuffles.*.output"]]}
  ])json");
  return p;
}

PictureJson data_of_mask_and_positions(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (PictureJson none = no_law(studio, study); !none.is_null()) return none;
  const PictureJson& law = law_of(studio, study);
  PictureJson p = present(
      fmt::format(
          "How far {} is from the law h(Px) = P h(x): the largest difference over {} of {}, over the largest entry of h. 0: "
          "the head cannot tell the orders apart.",
          head_title(study), plural(law.at("shuffles").size(), "other order"), plural(law.at("n").get<int64_t>(), "token")),
      "");
  p["conditions"] = PictureJson::array();
  std::string alt;
  for (const PictureJson& condition : law.at("conditions")) {
    p["conditions"].push_back({{"id", condition.at("id")}, {"name", condition.at("name")}, {"most", condition.at("most")}});
    alt += fmt::format("{}{}: {:.2g}", alt.empty() ? "" : "; ", condition.at("name").get<std::string>(),
                       condition.at("most").get<double>());
  }
  p["alt"] = "Largest difference " + alt + ".";
  p["prose"] = {{"layer", study.layer}, {"head", study.head}};
  for (const Condition& condition : kConditions) p["prose"][condition.id] = nullptr;
  for (const PictureJson& condition : p["conditions"]) p["prose"][condition.at("id").get<std::string>()] = condition.at("most");
  p["places"] = law.at("places");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "label": "How far the head is from the permutation law, without and with mask and positions.", "name": "{conditions.*.name}", "value": "conditions.*.most",
     "note": "{conditions.*.most|.2g}", "hint": "{conditions.*.name}\nlargest |h(Px) − P h(x)| / largest |h|: {conditions.*.most}"}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "h(Px) − P h(x)", "columns": [["heads", "conditions.*.name"], ["at most", "conditions.*.most"]]}
  ])json");
  return p;
}

}  // namespace vitrine
