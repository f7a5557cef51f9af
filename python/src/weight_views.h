#pragma once
// A model's parameters as arrays, which are read, and written in memory.
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "session.h"

namespace vitrine::python {

/// Every parameter by our names, in the order of the forward pass: "W_E", "blocks.3.attn.W_Q", "blocks.3.attn.b_Q", "ln_final.w".
std::vector<std::string> weight_names(Session& session);

/// One of them as float32: a matrix [out, in], whichever way its file stores it, or a vector. Read-only.
///
/// raw  the numbers of the file. Otherwise what the model computes with: a norm's factor 1 + w where the file holds w, the
///      embedding and the head with their scales, -exp of a logarithm, what an adapter adds; also "W_U" of a tied model
///
/// f32 in the file and nothing to compute: seen where it lies (the array keeps the model's memory alive); else a copy.
/// Errors: InputError naming the nearest parameters.
nanobind::object weight(const std::shared_ptr<Session>& session, const nanobind::str& text, bool raw);

/// The shape of weight(), without its numbers. Errors: as there.
std::vector<size_t> weight_shape(Session& session, const nanobind::str& text);

/// Reads a part of one parameter, as weight() shows it, without a copy of what was changed in memory. Nobody changes weights
/// meanwhile.
class WeightReading {
 public:
  WeightReading(std::shared_ptr<Session> session, const nanobind::str& text) : session_(std::move(session)), name_(utf8(text)) {}
  WeightReading(const WeightReading&) = delete;
  WeightReading& operator=(const WeightReading&) = delete;

  /// Its numbers, to be read until end() by this thread, which reads no other parameter of this model meanwhile. Errors: as
  /// weight().
  nanobind::object begin();
  void end() { reading_.reset(); }

 private:
  std::shared_ptr<Session> session_;
  std::string name_;
  std::optional<ReadingWeights> reading_;
};

/// Writes one parameter, as weight() shows it. No run takes place meanwhile, and nobody reads it.
class WeightEdit {
 public:
  /// Errors: as weight(); InputError for what is no parameter.
  WeightEdit(std::shared_ptr<Session> session, const nanobind::str& text);
  ~WeightEdit();
  WeightEdit(const WeightEdit&) = delete;
  WeightEdit& operator=(const WeightEdit&) = delete;

  /// Its numbers, [out, in] or [size], to be written until end(). Waits for the model's runs. Errors: as EditedWeights::own().
  nanobind::object begin();
  /// The model has them from now on; or, if they were not written as they should, what it had before a first edit.
  /// Errors: InputError for numbers that the parameter cannot be.
  void end(bool succeeded);

 private:
  struct Place;
  template <class F>
  void each(F&& f);

  std::shared_ptr<Session> session_;
  std::unique_ptr<Place> place_;
  std::unique_ptr<ChangingWeights> changing_;
  bool first_ = false;
  float* numbers_ = nullptr;
  std::shared_ptr<std::vector<float>> shown_;  // what stands for other numbers than those that are stored
};

/// EditedWeights::encode() of these parameters, or of all; the names of those that were rounded. Errors: as there; InputError for
/// a name that is unknown or given twice, before anything is rounded.
std::vector<std::string> encode_weights(Session& session, const std::optional<std::vector<nanobind::str>>& names);

}  // namespace vitrine::python
