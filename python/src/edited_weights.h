#pragma once
// Parameters of an opened model that are changed in memory. Files stay as they are: each is copied before it is first written.
#include <cstddef>
#include <map>
#include <memory>

#include "model/load.h"

namespace vitrine::python {

/// Changed under ChangingWeights, read under ReadingWeights or Running. The model outlives this.
class EditedWeights {
 public:
  /// The numbers of a matrix [out, in], or of a vector, as f32 in memory of their own, which the model uses from now on. What an
  /// adapter adds to a matrix becomes a part of it. Errors: InputError for more than fits in memory.
  float* own(Weight& w);
  float* own(Vector& v);

  bool empty() const { return matrices_.empty() && vectors_.empty(); }
  bool holds(const Weight& w) const { return matrices_.count(&w) != 0; }
  bool holds(const Vector& v) const { return vectors_.count(&v) != 0; }
  /// The numbers of one that was changed, kept for as long as anybody looks at them; null for one that was not.
  std::shared_ptr<const void> numbers_of(const Weight& w) const;
  std::shared_ptr<const void> numbers_of(const Vector& v) const;
  /// The matrix as it was; w itself if it was not changed.
  const Weight& original(const Weight& w) const;

  /// As it was before it was first written. Nothing happens to one that was not.
  void restore(Weight& w);
  void restore(Vector& v);

  /// The matrix in the type that it has in the file; one that was not changed stays. Returns whether it was rounded.
  /// Errors: InputError for a type that is not written; RunError for a number that the type cannot hold.
  bool encode(Weight& w);

  /// Changes this model's parameters as `other`'s were, which has the same.
  void copy(const Model& model, const EditedWeights& other, const Model& of_other);

 private:
  struct Matrix {
    Weight before;
    std::shared_ptr<std::byte[]> data;
  };
  struct Numbers {
    Vector before;
    std::shared_ptr<float[]> data;
  };
  std::byte* put(Weight& w, DType dtype, std::shared_ptr<std::byte[]> data);

  std::map<const Weight*, Matrix> matrices_;
  std::map<const Vector*, Numbers> vectors_;
};

}  // namespace vitrine::python
