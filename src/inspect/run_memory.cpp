#include "inspect/run_memory.h"

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "kernels/table.h"
#include "ops/kv_cache.h"
#include "ops/panel.h"

namespace vitrine {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kProgram = 12.5 * kMiB;  // its code as far as it runs, and what it has in memory before it opens a model
constexpr double kPieceBytes = 230;       // of a vocabulary, for each piece with its merges
constexpr double kAround = 128 << 10;     // of a file: what the system reads and maps around a row that is touched

const TensorLine* line_of(const Model& model, std::string_view ours) {
  for (const TensorLine& line : model.tensors())
    if (line.ours == ours) return &line;
  return nullptr;
}

bool has_part(const Model& model, std::string_view part) {
  return std::any_of(model.tensors().begin(), model.tensors().end(),
                     [&](const TensorLine& line) { return line.ours.find(part) != std::string::npos; });
}

// Of a table in a file; without files, as bf16.
double bytes_of(const TensorLine* table, bool stored) {
  if (table == nullptr || table->weight == nullptr) return 0;
  return stored ? static_cast<double>(table->weight->bytes()) : 2.0 * static_cast<double>(table->out.size * table->in.size);
}

// Of a table of which only the rows of tokens are read, at random places: the bytes that are not touched.
double untouched(double bytes, double rows) { return bytes * std::exp(-rows / std::max(1.0, bytes / kAround)); }

// Of experts that no token of an evenly routed prompt chooses.
double unchosen_experts(const Model& model, bool stored, double rows) {
  double all = 0;
  for (const TensorLine& line : model.tensors())
    if (line.ours.find(".mlp.experts.") != std::string::npos) all += bytes_of(&line, stored);
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (const auto experts = model.block_spec(layer).experts)
      return all * std::pow(1 - static_cast<double>(experts->per_row) / static_cast<double>(experts->count), rows);
  return 0;
}

// A number of the operand that the products of the MLP pack, in units of f32.
double packed_share(const Model& model, const Numerics& numerics, int64_t rows) {
  const KernelTable& k = kernels();
  for (const TensorLine& line : model.tensors()) {
    if (line.weight == nullptr || !line.ours.ends_with("W_out")) continue;
    const PanelKernels& panel = panel_for(k, numerics, line.weight->dtype, rows);
    return &panel == &k.panel_int8 ? 0.25 : &panel == &k.panel_bf16 ? 0.5 : 1;
  }
  return 1;
}

// Numbers of each row that live at the peak of a block, in its MLP: what the first sub-layer made lies below it in the same
// frame.
double width_of_block(const Model& model, const Numerics& numerics, int64_t rows) {
  const ModelShape& s = model.shape();
  int64_t units = 0, first = 0, told = 0;  // told: what a per-layer embedding says
  for (int64_t layer = 0; layer < s.n_layers; ++layer) {
    const LayerShape own = model.layer_shape(layer);
    const BlockSpec spec = model.block_spec(layer);
    units = std::max({units, own.d_ff, spec.experts ? spec.experts->per_row * spec.experts->d_ff : 0});
    first = std::max(first, spec.conv    ? 6 * spec.conv->channels
                            : spec.delta ? 4 * spec.delta->channels() + 4 * spec.delta->n_heads * spec.delta->d_value
                                         : (3 * s.n_heads + 4 * own.n_kv_heads) * own.head_dim);
    told += spec.per_layer_dim;
  }
  const auto d_model = static_cast<double>(s.d_model), per_layer = static_cast<double>(told);
  const double streams = has_part(model, "ln1_post") ? 9 : 7, hidden = has_part(model, "W_gate") ? 3 : 2;
  const double width = streams * d_model + static_cast<double>(first) +
                       (hidden + packed_share(model, numerics, rows)) * static_cast<double>(units);
  constexpr double kSteps = 7;  // between the table of the per-layer embedding and what it says
  return told == 0 ? width : std::max(per_layer + width, d_model + kSteps * per_layer);
}

// Of the cache's pages, what positions that are not there yet leave: values lie by position, keys by component.
double unwritten_values(const Model& model, int64_t context) {
  constexpr auto kPage = static_cast<int64_t>(kKeyBlock);
  const auto missing = static_cast<double>((context + kPage - 1) / kPage * kPage - context);
  double numbers = 0;
  for (const CacheLayer& layer : model.cache_layers())
    if (layer.window == kNoWindow || context < layer.window)
      numbers += missing * static_cast<double>(layer.n_kv_heads * layer.v_dim);
  return numbers * sizeof(float);
}

}  // namespace

RunMemory run_memory(const Model& model, const RunSizes& sizes, const Numerics& numerics) {
  const ModelShape& s = model.shape();
  const auto context = static_cast<double>(sizes.context), batch = static_cast<double>(sizes.batch);
  double unread = s.tied ? 0 : untouched(bytes_of(line_of(model, "W_E"), sizes.stored), context);
  unread += untouched(bytes_of(line_of(model, "W_E_per_layer"), sizes.stored), context);
  unread += unchosen_experts(model, sizes.stored, context);
  if (const TensorLine* positions = line_of(model, "W_pos"))
    unread += bytes_of(positions, sizes.stored) * std::max(0.0, 1 - context / static_cast<double>(positions->out.size));
  const double rows = static_cast<double>(std::min(sizes.context, kPrefillChunk));
  const double logits = 3 * static_cast<double>(s.vocab_size);  // with what orders them
  RunMemory run;
  run.weights = sizes.weights_bytes - static_cast<int64_t>(std::min(unread, static_cast<double>(sizes.weights_bytes)));
  run.cache = sizes.cache_bytes - static_cast<int64_t>(batch * unwritten_values(model, sizes.context));
  run.working = static_cast<int64_t>(
                    kProgram + sizeof(float) * (rows * width_of_block(model, numerics, static_cast<int64_t>(rows)) + logits) +
                    kPieceBytes * static_cast<double>(sizes.pieces)) +
                sizes.header_bytes;
  return run;
}

}  // namespace vitrine
