#pragma once
// Designs of published models: their configurations, without weights, and what follows from them (models/designs).
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/load.h"
#include "picture/data/facts.h"

namespace vitrine {

/// A design that is compiled in.
struct Design {
  std::string name, title;  // "gemma-2-2b", "Gemma 2 2B"
  int64_t year = 0;         // in which it was published
  std::string source;       // of its numbers: the report and the table
};
/// In the order of models/designs/index.json.
const std::vector<Design>& designs();

/// Its model, without weights. A file of the same name in the current folder is none of it.
OpenedModel open_design(const Design& design);

/// A model whose sizes are known and whose weights are not there: it can be run dry and asked for its tensors, nothing else.
/// name: a configuration's path, a model's directory or file, whose weights are not opened, or the name of a design.
/// Errors: FileError as resolve_model, which also names the designs, and for a configuration that no family can read.
OpenedModel open_configuration(std::string_view name);

/// Numbers by part of a model. mixers: attention, or what stands in its place.
struct ByPart {
  int64_t embedding = 0, mixers = 0, mlps = 0, norms = 0, head = 0;
  int64_t total() const { return embedding + mixers + mlps + norms + head; }
};
/// Parameters, each once: a head that is the embedding has none.
ByPart parameters_by_part(const Model& model);

/// Multiplications with an addition that the token at `position` costs, all earlier ones being in the cache.
struct TokenCost {
  int64_t position = 0;
  ByPart products;     // with weights
  int64_t scores = 0;  // of queries with keys and of weights with values, and of recurrences with their states
  int64_t total() const { return products.total() + scores; }
};
/// Errors: InputError for a position beyond the context.
TokenCost token_cost(const Model& model, int64_t position);

/// Bytes of what is kept of `positions` at 16 bits a number: keys and values, of a window layer those within its window; the
/// states of recurrences, which do not grow. The program's own cache rounds up to whole pages (`reach` shows that).
int64_t cache_bytes_16(const Model& model, int64_t positions);

}  // namespace vitrine
