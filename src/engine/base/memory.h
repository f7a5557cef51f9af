#pragma once
// How much memory there is, and how such numbers are said.
#include <cstddef>
#include <string>

namespace vitrine {

/// Bytes of memory that this process may take now without swapping: MemAvailable or the limits of its control groups, whichever
/// is less. 0 if the system does not say.
size_t available_memory();

/// Gives freed memory back to the system that the C library would keep in the middle of its heaps.
void give_back_freed_memory();

/// "500 B", "17.0 MiB", "5.0 GiB".
std::string bytes_text(double bytes);

}  // namespace vitrine
