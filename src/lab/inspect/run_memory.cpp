#include "inspect/run_memory.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "model/abilities.h"
#include "model/record.h"
#include "ops/kv_cache.h"
#include "runtime/engine.h"

namespace vitrine {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kProgram = 15.5 * kMiB;  // its code as far as it runs, and what it has in memory before it opens a model
constexpr double kPieceBytes = 230;       // of a vocabulary, for each piece with its merges
constexpr double kAround = 128 << 10;     // of a file: what the system reads and maps around a row that is touched

double bytes_of(const std::vector<const Weight*>& weights) {
  double bytes = 0;
  for (const Weight* w : weights) bytes += static_cast<double>(w->bytes());
  return bytes;
}

// Bytes of weights that a run over `context` tokens does not touch: rows of tables that no token needs, and experts that no token
// of an evenly routed prompt chooses.
double unread_bytes(const std::vector<OpRecord>& ops, double context) {
  std::set<const Weight*> whole;  // a tied embedding is read whole by the head
  for (const OpRecord& op : ops)
    if (op.rows_read < 0) whole.insert(op.weights.begin(), op.weights.end());
  double unread = 0;
  for (const OpRecord& op : ops) {
    const auto* experts = op.spec_as<ExpertSpec>();
    if (experts != nullptr) {
      const double chosen = static_cast<double>(experts->per_row) / static_cast<double>(experts->count);
      unread += (bytes_of(op.weights) - static_cast<double>(op.weights[0]->bytes())) *  // the first is the router
                std::pow(1 - chosen, context);
    } else if (op.rows_read >= 0 && !whole.contains(op.weights[0])) {
      const double bytes = bytes_of(op.weights), rows = static_cast<double>(op.weights[0]->out);
      unread += op.op == "embed_positions" ? bytes * std::max(0.0, 1 - context / rows)  // neighboring rows
                                           : bytes * std::exp(-context / std::max(1.0, bytes / kAround));
    }
  }
  return unread;
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
  const StepRecord step = record_step(model, {.rows = is_causal(model) ? std::min(sizes.context, kPrefillChunk) : sizes.context,
                                              .cached = true,
                                              .types = sizes.cache_types,
                                              .numerics = numerics,
                                              .threads = usable_cores()});
  const double unread = unread_bytes(step.ops, static_cast<double>(sizes.context));
  const double order = 2 * static_cast<double>(model.shape().vocab_size);  // numbers that sort the logits
  RunMemory run;
  run.weights = sizes.weights_bytes - static_cast<int64_t>(std::min(unread, static_cast<double>(sizes.weights_bytes)));
  run.cache = sizes.cache_bytes - static_cast<int64_t>(static_cast<double>(sizes.batch) * unwritten_values(model, sizes.context));
  run.working = step.peak_bytes + sizes.header_bytes +
                static_cast<int64_t>(kProgram + sizeof(float) * order + kPieceBytes * static_cast<double>(sizes.pieces));
  return run;
}

}  // namespace vitrine
