// What the engine of a page does without: archives of NumPy, which autoencoders may be stored in.
#include "base/error.h"
#include "io/npz.h"

namespace vitrine {

Checkpoint open_npz(const std::string& path) { throw FileError(path, "is an archive of NumPy, which a page does not read"); }

}  // namespace vitrine
