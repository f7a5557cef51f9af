#pragma once
// An opened model as files, with what was changed in memory.
#include <nanobind/nanobind.h>

#include <string>

#include "session.h"

namespace vitrine::python {

/// Writes a Hugging Face directory, or a GGUF file if `out` ends in ".gguf".
///
/// dtype   a type of `vitrine convert`; empty: of a directory, the float type that most weights have, bf16 for those in blocks;
/// of a
///         GGUF file that was one, each matrix's own
///
/// Errors: as write_huggingface and write_gguf; InputError for a file that is there already and for an unknown type.
void save(Session& session, const nanobind::bytes& out, const std::string& dtype);

}  // namespace vitrine::python
