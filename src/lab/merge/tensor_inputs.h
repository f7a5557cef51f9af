#pragma once
// What a merge method sees of one tensor: the inputs piece by piece, as f32, and a place for the result. No tensor is ever held
// whole, so memory does not grow with it; a method that must know something of the whole (a norm, a threshold) passes over the
// inputs first, which lie in mapped files.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace vitrine {

/// A stretch of the tensor: whole rows if the pass asked for them.
struct Piece {
  int64_t first = 0;            // element of the tensor
  size_t size = 0;              // elements
  int64_t index = 0;            // of the piece, in order
  int thread = 0;               // in [0, TensorInputs::threads())
  std::vector<const float*> x;  // one for each input, `size` elements
  float* out = nullptr;         // `size` elements; null in a pass that only reads
  std::span<double> sums = {};  // of a pass that sums: this piece's own
  std::vector<float>* own = nullptr;

  /// Memory of this thread for n numbers, whatever they are; of one call at a time.
  float* scratch(size_t n) const {
    if (own->size() < n) own->resize(n);
    return own->data();
  }
};

/// Pieces are cut by shape, never by the number of threads, and their sums are added in order, so a result does not depend on
/// the number of threads.
class TensorInputs {
 public:
  virtual ~TensorInputs() = default;

  std::string name;             // of the tensor of the result
  int64_t rows = 1, width = 0;  // width: the last dimension; rows: the product of the others
  int64_t first_dim = 1;        // the first dimension
  size_t count = 0;             // inputs, the base included
  int base = -1;                // which of them is the base; -1: none
  uint64_t seed = 0;            // of random masks: of the run and the tensor
  bool measured = false;        // the run is to be reported: methods that prune say what they keep
  std::vector<double> kept;     // the share of each input's change that was kept; empty: not pruned

  int64_t elements() const { return rows * width; }
  /// The inputs that are not the base, in order.
  std::vector<size_t> others() const;

  using Visit = std::function<void(const Piece&)>;
  /// Calls `visit` for every piece, on several threads at once; pieces are whole rows if `whole_rows`.
  void read(const Visit& visit, bool whole_rows = false) { pass(visit, 0, false, whole_rows); }
  /// The same; each piece has `n` sums that begin at zero; returns them added up.
  std::vector<double> sum(size_t n, const Visit& visit, bool whole_rows = false) { return pass(visit, n, false, whole_rows); }
  /// sum() over all tensors of the layer that this one belongs to, or of the tensors outside the layers; computed once a layer.
  virtual std::vector<double> sum_of_layer(size_t n, const Visit& visit) = 0;
  /// What the visitor puts into piece.out is the result. To be called once, at the end.
  void write(const Visit& visit, bool whole_rows = false) { pass(visit, 0, true, whole_rows); }
  /// Pieces of a pass.
  virtual int64_t pieces(bool whole_rows) const = 0;
  virtual int threads() const = 0;

 protected:
  virtual std::vector<double> pass(const Visit& visit, size_t n_sums, bool writes, bool whole_rows) = 0;
};

}  // namespace vitrine
