#pragma once
// How much memory there is.
#include <cstddef>

namespace vitrine {

/// Bytes of memory that this process may take now without swapping: MemAvailable or the limits of its control groups, whichever
/// is less. 0 if the system does not say.
size_t available_memory();

}  // namespace vitrine
