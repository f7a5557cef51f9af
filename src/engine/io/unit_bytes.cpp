#include "io/unit_bytes.h"

#include "base/error.h"

namespace vitrine {

void UnitBytes::take(void* to, size_t n) {
  if (n > from_.size() - at_)
    throw FileError(where_, "ends after " + std::to_string(from_.size()) + " bytes; expected " + std::to_string(n) + " at byte " +
                                std::to_string(at_));
  if (n > 0) std::memcpy(to, from_.data() + at_, n);
  at_ += n;
}

size_t UnitBytes::count(size_t has, std::optional<size_t> expected, size_t element_bytes) {
  uint64_t n = has;
  value(n);
  if (expected && n != *expected)
    throw FileError(where_, "has " + std::to_string(n) + " values; expected " + std::to_string(*expected));
  if (reads_ && n > (from_.size() - at_) / element_bytes)
    throw FileError(where_,
                    "gives a count of " + std::to_string(n) + ", and " + std::to_string(from_.size() - at_) + " bytes follow");
  return static_cast<size_t>(n);
}

void UnitBytes::require_end() const {
  if (at_ != from_.size())
    throw FileError(where_, "has " + std::to_string(from_.size()) + " bytes; expected " + std::to_string(at_));
}

}  // namespace vitrine
