#pragma once
// Gradients of a loss or of any number made of logits, at hooks.
#include <nanobind/nanobind.h>

#include "session.h"

namespace vitrine::python {

/// Adds loss_gradients() and metric_gradients() to the class.
void bind_gradients(nanobind::class_<Session>& session);

}  // namespace vitrine::python
