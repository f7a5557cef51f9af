#pragma once
// How much memory there is.
#include <cstddef>

namespace vitrine {

/// Bytes of memory that a process may take now without swapping: MemAvailable and the container's limit, whichever is less.
/// 0 if the system does not say.
size_t available_memory();

}  // namespace vitrine
