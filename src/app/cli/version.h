#pragma once
#include <string>

namespace vitrine::cli {

/// The commit this program was built from, or "unknown" when its source was no git checkout.
std::string commit();

/// What --version prints: version, commit, and the kernels chosen for this machine.
/// Errors: InputError if VITRINE_TARGET names kernels this machine does not have.
std::string version_text();

}  // namespace vitrine::cli
