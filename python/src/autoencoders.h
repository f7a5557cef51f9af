#pragma once
// Sparse autoencoders and transcoders.
#include <nanobind/nanobind.h>

#include "session.h"

namespace vitrine::python {

/// Adds Autoencoder and read_autoencoder to the module.
void bind_autoencoders(nanobind::module_& m);
/// Adds splice and spliced to the session.
void bind_splicing(nanobind::class_<Session>& session);

}  // namespace vitrine::python
