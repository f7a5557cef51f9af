#pragma once
// NumPy's .npz: a zip archive of .npy files, one an array.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html; zip:
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (sections 4.3.7, 4.3.12, 4.3.16, 4.5.3).
#include <cstddef>
#include <span>
#include <string>

#include "io/stored_tensor.h"

namespace vitrine {

/// The arrays of an archive by name, without ".npy". Arrays stored as they are (numpy.savez) are mapped; compressed ones
/// (numpy.savez_compressed) are expanded in memory. Little-endian f16, f32, f64, i32, i64 and u8 in C order; any other type is an
/// UnreadableTensor.
/// Errors: FileError naming file, array and byte for what is truncated, damaged (its checksum), contradictory, encrypted or
/// compressed in another way.
Checkpoint open_npz(const std::string& path);

/// Adds the arrays of one file's content to `into`; `bytes` and `file` (its path) must outlive it.
void read_npz(std::span<const std::byte> bytes, const std::string& file, Checkpoint& into);

}  // namespace vitrine
