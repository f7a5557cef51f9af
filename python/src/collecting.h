#pragma once
// Activations of a corpus, written to disk from Python.
#include <nanobind/nanobind.h>

#include "session.h"

namespace vitrine::python {

/// Adds collect() to the class.
void bind_collecting(nanobind::class_<Session>& session);

}  // namespace vitrine::python
