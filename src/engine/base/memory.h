#pragma once
// How much memory there is, and how such numbers are said.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine {

/// Bytes of memory that this process may take now without swapping: MemAvailable or the limits of its control groups, whichever
/// is less. 0 if the system does not say.
size_t available_memory();

/// Gives freed memory back to the system that the C library would keep in the middle of its heaps.
void give_back_freed_memory();

/// "500 B", "17.0 MiB", "5.0 GiB".
std::string bytes_text(double bytes);

/// What "6 GiB", "500 MB", "1.5G" or "4096" means: KiB, MiB, GiB and TiB (also K, M, G, T) are powers of 1024, KB, MB, GB and TB
/// of 1000; upper or lower case. Nothing for other text.
std::optional<double> bytes_of(std::string_view text);

}  // namespace vitrine
