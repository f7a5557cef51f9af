#pragma once
// A mapped file that another program cuts while it is read: touching what is gone raises SIGBUS, which ends a process without a
// word.
#include <cstddef>
#include <string>

namespace vitrine {

/// From then on such a file ends the process with a message that names it, and exit code 1. For a program's main, not for a
/// library: the signal belongs to the whole process. Who has a handler already keeps it.
void report_cut_files();

/// What MappedFile tells: these bytes are those of the file `path`, until they are unmapped.
void file_is_mapped(const std::byte* data, size_t size, const std::string& path);
void file_is_unmapped(const std::byte* data);

}  // namespace vitrine
