#pragma once
// Reference numbers as files hold them: which sequences they are for, and which hook each tensor is.
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "io/stored_tensor.h"
#include "model/model.h"

namespace vitrine {

/// One hook's value for one sequence.
struct ReferenceTensor {
  std::string hook;  // in full, as this model names it
  const StoredTensor* stored = nullptr;
  int64_t batch_index = -1;  // along the outermost size; -1: the tensor has no batch
};

struct ReferenceSequence {
  std::string name;             // "short, sequence 0"
  std::vector<int32_t> ids;     // without padding
  std::vector<int64_t> places;  // of each id among the tensors' positions, which may hold padding too
  int64_t stored_positions = 0;
  std::vector<ReferenceTensor> tensors;  // in the order of the run

  /// The tensor's numbers for this sequence without padding, row-major in hook_shape().
  std::vector<float> numbers(const ReferenceTensor& tensor) const;
};

struct Reference {
  std::string path;
  std::list<Checkpoint> files;
  std::vector<ReferenceSequence> sequences;  // those that have a tensor
  std::vector<std::string> not_compared;     // tensors that are no hook of this model
  double distance_from_f64 = 0;              // of the reference's logits, where its meta.json says it
};

/// Opens what verify() accepts (verify.h). Errors: FileError for nothing to compare, no tokens, or a tensor whose shape does
/// not fit the model and the tokens.
Reference open_reference(const std::string& path, const Model& model);

}  // namespace vitrine
