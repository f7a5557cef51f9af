// What the engine of a page does without: archives of NumPy, which autoencoders may be stored in, and files that others could cut.
#include "base/cut_files.h"
#include "base/error.h"
#include "io/npz.h"

namespace vitrine {

Checkpoint open_npz(const std::string& path) { throw FileError(path, "is an archive of NumPy, which a page does not read"); }

void file_is_mapped(const std::byte*, size_t, const std::string&) {}
void file_is_unmapped(const std::byte*) {}

}  // namespace vitrine
