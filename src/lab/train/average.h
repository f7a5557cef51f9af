#pragma once
// The mean of several checkpoints of a run, as a model of its own.
#include <span>
#include <string>

namespace vitrine {

/// Writes into the folder `out`, which exists, what the last of the folders holds beside subfolders, with the mean of all
/// folders' tensors in its safetensors files; sums are in double. An adapter's A and B are averaged, not their products.
/// Errors: FileError for a file that lacks a tensor or has it otherwise; RunError from the disk.
void average_checkpoints(std::span<const std::string> folders, const std::string& out);

}  // namespace vitrine
