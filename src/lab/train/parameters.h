#pragma once
// The weights that are learned, as f32 in the trainer's own memory, with their gradients beside them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/model.h"

namespace vitrine {

/// Zeros on a 64-byte border, in huge pages where the system has them, to be given to std::free.
/// Errors: RunError with the size if there is no memory.
void* zero_bytes(size_t bytes);

/// n values, zero at first, as zero_bytes() gives them.
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
  size_t begin = 0, count = 0;  // its values in every buffer
  int64_t layer = -1;           // of the block it belongs to; -1: none
  bool matrix = false;
  bool by_columns = false;  // the file stores [in, out]
  bool constant = false;    // it stays as it is
};

/// A gradient for every number of the parameters of one model; zeros at first.
class ParameterGradients {
 public:
  ParameterGradients() = default;
  /// unset_matrices: so many of the model's matrices may begin a step unset (GradTarget::unset) instead of as zeros.
  explicit ParameterGradients(size_t count, size_t unset_matrices = 0)
      : values_(count), matrices_(std::make_unique<Matrix[]>(unset_matrices)), n_matrices_(unset_matrices) {}

  float* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }
  /// Binds the gradient of a matrix, the i-th of the model, whose values begin at `begin`.
  void bind(size_t i, Weight& weight, size_t begin, size_t stride) const;
  /// The matrices that may are unset from now on.
  void unset() const;
  /// Those that still are become zeros: nothing reached them.
  void complete() const;

 private:
  struct Matrix {
    bool unset = false;
    const Weight* weight = nullptr;
  };
  FloatBuffer values_;
  std::unique_ptr<Matrix[]> matrices_;  // stay where they are
  size_t n_matrices_ = 0;
};

/// Copies a model's weights, whatever type they are stored in, and binds the model to the copies and to gradients of the
/// same layout, until this ends. A model whose weights were never bound begins with zeros.
class Parameters {
 public:
  /// first_sets: a step's first contribution to a matrix's gradient sets it, so that nobody need zero it in between.
  enum class Grads : uint8_t { none, added, first_sets };
  explicit Parameters(Model& model, Grads grads = Grads::added);
  /// The values of an adapter alone: the model beside it stays where it lies and gets no gradients.
  explicit Parameters(Adapter& adapter);
  /// Matrices of no model, each with its bias if that has a size: zeros where there is no data yet. They outlive this, and are
  /// bound to it.
  explicit Parameters(std::span<Weight> weights);
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Binds another model of the same definition to these weights, and to gradients of its own, which are returned.
  ParameterGradients bind(Model& model) const;

  const std::vector<Parameter>& list() const { return list_; }
  /// Numbers of a buffer: those of all parameters, each beginning on a 64-byte border.
  size_t size() const { return size_; }
  /// Numbers of all parameters.
  int64_t count() const;
  float* weights() const { return weights_.data(); }
  float* gradients() const { return gradients_.data(); }
  const ParameterGradients& all_gradients() const { return gradients_; }
  /// Whether a step begins with zeros as this parameter's gradient; else with whatever lies there.
  bool begins_with_zeros(const Parameter& p) const { return grads_ != Grads::first_sets || !p.matrix; }
  float* weights(const Parameter& p) const { return weights_.data() + p.begin; }
  float* gradients(const Parameter& p) const { return gradients_.data() + p.begin; }

 private:
  Model* model_ = nullptr;  // null: an adapter's
  Grads grads_ = Grads::added;
  std::vector<Parameter> list_;
  size_t size_ = 0;
  size_t n_matrices_ = 0;  // of the model: several may be one parameter
  FloatBuffer weights_;
  ParameterGradients gradients_;
};

}  // namespace vitrine
