#pragma once
// What collect() settles before the first token: the manifest, the folder, and whether a run can be resumed.
#include <string>

#include "collect/collect.h"

namespace vitrine {

/// Of a run that has written nothing yet. Errors: as collect() for its options.
ActivationManifest plan_collection(const Engine& engine, const CollectOptions& options);

/// Makes `out`. Errors: InputError where it holds something, or with `resume` no manifest.
void make_collection_folder(const std::string& out, bool resume);

/// What the folder of an unfinished run says. Errors: InputError where that is not what was `planned` now.
ActivationManifest begun_collection(const std::string& out, const ActivationManifest& planned);

/// Throws InputError "<out>: was made <how>. Resume with …".
[[noreturn]] void refuse_to_resume(const std::string& out, const std::string& how);

}  // namespace vitrine
