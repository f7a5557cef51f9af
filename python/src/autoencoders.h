#pragma once
// Sparse autoencoders and transcoders.
#include <nanobind/nanobind.h>

namespace vitrine::python {

/// Adds Autoencoder and read_autoencoder to the module.
void bind_autoencoders(nanobind::module_& m);

}  // namespace vitrine::python
