#pragma once
// Autoencoders and transcoders as directories: SAELens's, and Gemma Scope's.
#include <string>

#include "base/json.h"
#include "sae/autoencoder.h"

namespace vitrine {

/// Reads a directory, or a file in it, or "OWNER/NAME:FOLDER", one that `vitrine pull` downloaded:
///   cfg.json + sae_weights.safetensors     SAELens, of version 6 and before
///   params.npz                             Gemma Scope, as published; the hook is read from the path's names ("layer_20")
///   config.json + params.safetensors       Gemma Scope 2
///
/// hook_name   `hook` if it is given, where an autoencoder then writes, too; else what cfg.json says; empty where nobody says it
/// Weights of any floating type are widened to f32. A batch-topk training checkpoint becomes the JumpReLU autoencoder that
/// SAELens saves for inference. Errors: FileError naming file, key or tensor, what was found and what was expected, also for an
/// architecture that is not known.
SparseAutoencoder read_sae(const std::string& path, const std::string& hook = "");

/// An autoencoder of values without their mean, as TransformerLens's center_writing_weights leaves the residual stream -> the
/// same of values with it: the mean is subtracted by the weights. Features and what decode returns stay what they are without it.
/// Errors: InputError for an input norm that depends on the mean.
SparseAutoencoder subtracting_the_mean(SparseAutoencoder sae);

/// What SAELens's configuration says, for weights that come from elsewhere: they are empty. Errors: FileError naming `where`.
SparseAutoencoder sae_without_weights(const Json& config, const std::string& where);

/// The configuration SAELens reads. `extra` is added to its `metadata` ("sae_lens_version" and so on).
Json sae_config(const SparseAutoencoder& sae, const Json& extra = Json::object());

/// Writes cfg.json and sae_weights.safetensors as SAELens 6 reads them, into a directory that is made if it is not there. The
/// configuration comes last, so that a directory with one is whole.
/// Errors: RunError from the disk; InputError as SparseAutoencoder::check.
void write_sae(const std::string& directory, const SparseAutoencoder& sae, const Json& extra = Json::object());

}  // namespace vitrine
