#pragma once
// Merges: to a directory, to a model in memory, and their plan.
#include <nanobind/nanobind.h>

namespace vitrine::python {

void bind_merge(nanobind::module_& m);

}  // namespace vitrine::python
