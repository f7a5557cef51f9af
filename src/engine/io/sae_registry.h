#pragma once
// SAELens's registry of published sparse autoencoders: the file pretrained_saes.yaml of its package.
#include <string>

namespace vitrine {

struct RegisteredSae {
  std::string name;       // OWNER/NAME:FOLDER, as `vitrine pull` and --sae take it
  bool centered = false;  // it expects a residual stream without its mean, as center_writing_weights leaves it
};

/// The autoencoder `id` of `release`, such as "gpt2-small-res-jb" and "blocks.8.hook_resid_pre".
///
/// Errors: FileError for a file that is no registry; InputError for a release or id that is not in it, with the nearest, and for
/// one whose files alone do not give what SAELens loads: in a form that read_sae does not read, or changed by its entry.
RegisteredSae registered_sae(const std::string& registry, const std::string& release, const std::string& id);

}  // namespace vitrine
