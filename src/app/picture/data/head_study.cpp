#include "picture/data/head_study.h"

#include <algorithm>

#include "base/error.h"
#include "hooks/trace.h"

namespace vitrine {
namespace {

constexpr int64_t kRepeated = 50;  // as `vitrine circuits`

// Values of [head, query, key] or [row, head, component] by head.
std::vector<RowsD> by_head(const Recorder::Value& value, bool heads_first) {
  const int64_t heads = value.shape[heads_first ? 0 : 1], rows = value.shape[heads_first ? 1 : 0], columns = value.shape[2];
  std::vector<RowsD> all;
  for (int64_t h = 0; h < heads; ++h) {
    RowsD& one = all.emplace_back(rows, columns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        one(r, c) =
            static_cast<double>(value.values[static_cast<size_t>((heads_first ? h * rows + r : r * heads + h) * columns + c)]);
  }
  return all;
}

void choose_head(const Studio& studio, HeadStudy& study) {
  const ModelShape& shape = studio.facts.shape;
  require_place("layer", studio.options.layer, shape.n_layers);
  require_place("head", studio.options.head, shape.n_heads);
  study.chosen = studio.options.layer || studio.options.head;
  double most = -1;
  for (const HeadScore& score : study.scores.heads) {
    if (std::find(study.layers.begin(), study.layers.end(), score.layer) == study.layers.end()) continue;
    if (studio.options.layer && *studio.options.layer != score.layer) continue;
    if (studio.options.head && *studio.options.head != score.head) continue;
    if (score.at(HeadRole::previous) <= most) continue;
    most = score.at(HeadRole::previous);
    study.layer = score.layer;
    study.head = score.head;
  }
  if (most >= 0) return;
  const int64_t first = study.layers.empty() ? studio.facts.attention_layer : study.layers.front();
  study.layer = studio.options.layer.value_or(first);
  study.head = studio.options.head.value_or(0);
}

}  // namespace

void require_place(const char* what, std::optional<int64_t> i, int64_t size) {
  if (i && (*i < 0 || *i >= size))
    throw InputError(fmt::format("{} {} does not exist: this model has {}, 0 to {}", what, *i, size, size - 1));
}

HeadStudy& head_study(Studio& studio) {
  if (studio.heads) return *studio.heads;
  auto study = std::make_shared<HeadStudy>();
  Engine& engine = studio.engine;
  const Model& model = engine.model();
  for (int64_t layer = 0; layer < studio.facts.shape.n_layers; ++layer)
    if (!AttentionFormula::why_not(model, layer)) study->layers.push_back(layer);
  const int64_t context = studio.facts.shape.context_length;
  study->repeated = context > 0 ? std::min(kRepeated, (context - 1) / 2) : kRepeated;
  if (study->repeated >= 2) study->scores = score_heads(engine, repeated_random_ids(engine, study->repeated, 0));
  choose_head(studio, *study);
  if (const auto why = AttentionFormula::why_not(model, study->layer)) study->why_not = *why;
  const std::vector<int32_t>& ids = studio.prompt.ids;
  study->ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), kHeadTokens)));
  const std::string attn = fmt::format("blocks.{}.attn.", study->layer);
  std::vector<std::string> hooks;
  for (const int64_t layer : study->layers) hooks.push_back(AttentionFormula::reads(model, layer));
  if (study->why_not.empty())
    for (const char* hook : {"hook_pattern", "hook_result"}) hooks.push_back(attn + hook);
  if (!hooks.empty()) {
    const Recorder seen = trace_to_memory(engine, study->ids, hooks, nullptr, studio.options.memory);
    for (const int64_t layer : study->layers) study->x[layer] = rows_of_hook(seen, AttentionFormula::reads(model, layer));
    if (study->why_not.empty()) {
      study->patterns = by_head(seen.values().at(attn + "hook_pattern"), true);
      study->results = by_head(seen.values().at(attn + "hook_result"), false);
      study->formula = std::make_shared<AttentionFormula>(engine, study->layer);
    }
  }
  studio.heads = std::move(study);
  return *studio.heads;
}

PictureJson no_head_formula(const Studio& studio, const HeadStudy& study) {
  if (study.why_not.empty()) return nullptr;
  return absent(fmt::format("The heads of layer {} of this model are no A·x·S: {}.{}", study.layer, study.why_not,
                            study.layers.empty() || !studio.options.layer
                                ? ""
                                : fmt::format(" Choose another layer, such as {}.", study.layers.front())));
}

RowsD rows_of_hook(const Recorder& seen, const std::string& hook) {
  const Recorder::Value& value = seen.values().at(hook);
  RowsD rows(value.shape[0], static_cast<int64_t>(value.values.size()) / value.shape[0]);
  for (int64_t i = 0; i < rows.size(); ++i) rows.data()[i] = static_cast<double>(value.values[static_cast<size_t>(i)]);
  return rows;
}

double relative_distance(const RowsD& a, const RowsD& b) {
  const double size = b.norm(), distance = (a - b).norm();
  return distance == 0 ? 0 : distance / size;
}

PictureJson packed_rows(const RowsD& rows) {
  const std::vector<float> values(rows.data(), rows.data() + rows.size());
  return packed(std::span<const float>(values), {rows.rows(), rows.cols()});
}

std::string head_title(const HeadStudy& study) { return fmt::format("layer {}, head {}", study.layer, study.head); }

std::string cut_sentence(const Studio& studio, const HeadStudy& study) {
  return study.ids.size() < studio.prompt.ids.size() ? fmt::format(" Of the prompt, its first {} tokens.", study.ids.size())
                                                     : std::string();
}

}  // namespace vitrine
