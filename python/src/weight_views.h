#pragma once
// A model's parameters as arrays.
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "session.h"

namespace vitrine::python {

/// Every parameter by our names, in the order of the forward pass: "W_E", "blocks.3.attn.W_Q", "blocks.3.attn.b_Q", "ln_final.w".
std::vector<std::string> weight_names(Session& session);

/// One of them as float32: a matrix [out, in], whichever way its file stores it, or a vector. Read-only.
///
/// raw    the numbers of the file. Otherwise what the model computes with: a norm's factor 1 + w where the file holds w, the
///        embedding and the head with their scales, -exp of a logarithm, what an adapter adds; also "W_U" of a tied model
///
/// f32 in the file and nothing to compute: seen where it lies (the array keeps the model's memory alive); else a copy.
/// Errors: InputError naming the nearest parameters.
nanobind::object weight(const std::shared_ptr<Session>& session, const nanobind::str& text, bool raw);

}  // namespace vitrine::python
