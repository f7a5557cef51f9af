#pragma once
// The weights that are learned, as f32 in the trainer's own memory, with their gradients beside them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/model.h"

namespace vitrine {

/// Zeros on a 64-byte border, in huge pages where the system has them, to be given to std::free.
/// Errors: RunError with the size if there is no memory.
void* zero_bytes(size_t bytes);

/// n numbers, zero at first, as zero_bytes() gives them.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t n) : data_(static_cast<T*>(zero_bytes(n * sizeof(T)))), size_(n) {}
  T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};
using FloatBuffer = Buffer<float>;

/// One tensor of the model's own file. Stacked tensors (GPT-2's c_attn) are one entry.
struct Parameter {
  std::string name;             // in the file
  std::string ours;             // of its first part: "blocks.3.attn.W_Q"
  std::vector<int64_t> shape;   // in the file
  size_t begin = 0, count = 0;  // its numbers in every buffer
  int64_t layer = -1;           // of the block it belongs to; -1: none
  bool matrix = false;
  bool by_columns = false;  // the file stores [in, out]
};

/// Copies a model's weights, whatever type they are stored in, and binds the model to the copies and to gradients of the
/// same layout, until this ends. A model whose weights were never bound begins with zeros.
class Parameters {
 public:
  explicit Parameters(Model& model, bool with_gradients = true);
  /// The numbers of an adapter alone: the model beside it stays where it lies and gets no gradients.
  explicit Parameters(Adapter& adapter);
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Binds another model of the same definition to these weights, and to gradients of its own: size() numbers.
  void bind(Model& model, float* gradients) const;

  const std::vector<Parameter>& list() const { return list_; }
  /// Numbers of a buffer: those of all parameters, each beginning on a 64-byte border.
  size_t size() const { return size_; }
  /// Numbers of all parameters.
  int64_t count() const;
  float* weights() const { return weights_.data(); }
  float* gradients() const { return gradients_.data(); }
  float* weights(const Parameter& p) const { return weights_.data() + p.begin; }
  float* gradients(const Parameter& p) const { return gradients_.data() + p.begin; }

 private:
  Model* model_ = nullptr;  // null: an adapter's
  std::vector<Parameter> list_;
  size_t size_ = 0;
  FloatBuffer weights_, gradients_;
};

}  // namespace vitrine
