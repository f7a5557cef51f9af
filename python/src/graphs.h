#pragma once
// Attribution graphs through transcoders.
#include <nanobind/nanobind.h>

#include "session.h"

namespace vitrine::python {

/// The graph's class; bind_autoencoders comes before.
void bind_graphs(nanobind::module_& m);
/// Adds attribution_graph() to the class.
void bind_graph_calls(nanobind::class_<Session>& session);

}  // namespace vitrine::python
