#pragma once
// Checks that the readers of weight formats share.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// The T that begins at `from`, aligned or not.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Product of all sizes, if it is at most 2^55: then 64 bits an element cannot overflow 64-bit arithmetic.
/// Zero sizes are allowed, but the other sizes must obey the limit all the same.
std::optional<uint64_t> checked_product(std::span<const uint64_t> sizes);

/// FileError if the content is the pointer that Git LFS leaves in the place of a large file, or a web page.
void refuse_pointer_file(std::span<const std::byte> bytes, const std::string& file);

/// Whether a file or directory is there. Errors: FileError for a link whose target is missing, and for a folder that may not be
/// read.
bool present(const std::string& path);
/// Whether a directory is there, or a link to one.
bool is_folder(const std::string& path);

/// Names in a directory that end in one of `endings`, sorted; empty if it cannot be read. No endings: all names.
std::vector<std::string> names_in(const std::string& directory, std::initializer_list<std::string_view> endings = {});

/// Advice for the directory of an adapter where a model was expected; begins with a separator.
std::string advice_on_adapter(const std::string& directory);
/// Advice for a directory without readable weights, from what it does hold; begins with a separator.
std::string advice_on_weights(const std::string& directory);

}  // namespace vitrine
