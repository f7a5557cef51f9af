#pragma once
// What `vitrine circuits`, `compare` and `intervene` compute, as numbers and plain containers.
#include <nanobind/nanobind.h>

#include "session.h"

namespace vitrine::python {

/// Adds circuits(), compare() and intervene() to the class.
void bind_analysis(nanobind::class_<Session>& session);

}  // namespace vitrine::python
