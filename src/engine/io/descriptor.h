#pragma once
// What all files that are written piece by piece do with their descriptors.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vitrine {

/// Writes the bytes from `offset` on. Returns the offset behind the last that was written: less than all where the system
/// refuses, with its reason in errno.
uint64_t write_at(int fd, uint64_t offset, std::span<const std::byte> bytes);

/// The folder of `path` is on the disk: without this a crash may take a new name back. Some file systems refuse, which is
/// ignored.
void sync_folder_of(const std::string& path);

}  // namespace vitrine
