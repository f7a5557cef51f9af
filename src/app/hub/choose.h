#pragma once
// Which files of a repository a run needs.
#include <string>
#include <vector>

#include "hub/client.h"

namespace vitrine {

/// What of a repository is wanted. `index` is set if the shards must be read from that file first (shards_of_index).
struct ChosenFiles {
  std::vector<RemoteFile> files;
  const RemoteFile* index = nullptr;
  std::string gguf;    // the file that --model opens, where GGUF files were chosen
  std::string folder;  // whose files were chosen, where that was asked for
};

/// `wanted` empty: configuration, tokenizer and safetensors of a model or an adapter; of a repository of GGUF files the only
/// model. Else a file; a folder, such as that of an autoencoder, whose files are wanted; or a type of GGUF weights such as
/// Q4_K_M, of a split model all parts. Errors: InputError that says what there is, with the command to give instead.
ChosenFiles choose_files(const RemoteRepository& repository, const std::string& wanted);

/// The shards that a model.safetensors.index.json names. Errors: FileError for one that the repository lacks.
std::vector<RemoteFile> shards_of_index(const RemoteRepository& repository, const std::string& index_path);

}  // namespace vitrine
