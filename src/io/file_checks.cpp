#include "io/file_checks.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace vitrine {

std::optional<uint64_t> checked_product(std::span<const uint64_t> sizes) {
  constexpr uint64_t kMost = uint64_t{1} << 55;
  uint64_t product = 1, without_zeros = 1;
  for (const uint64_t size : sizes) {
    product *= size;  // cannot wrap: it is 0 or equals without_zeros, which is checked below
    if (size == 0) continue;
    if (size > kMost / without_zeros) return std::nullopt;
    without_zeros *= size;
  }
  return product;
}

void refuse_pointer_file(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64));
  if (text.starts_with("version https://git-lfs.github.com/spec/"))
    throw FileError(file, "is a Git LFS pointer, not the file itself; run `git lfs pull` in its repository");
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html"))
    throw FileError(file, "is a web page, not weights; download the file itself, not the page that shows it");
}

std::string advice_on_weights(const std::string& directory) {
  std::vector<std::string> pickled, others;
  std::error_code unreadable_directory;
  for (const auto& entry : std::filesystem::directory_iterator(directory, unreadable_directory)) {
    const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt" || extension == ".ckpt") pickled.push_back(name);
    if (extension == ".safetensors" || extension == ".gguf") others.push_back(name);
  }
  std::sort(pickled.begin(), pickled.end());
  std::sort(others.begin(), others.end());
  if (!others.empty()) return "; it does hold " + others.front() + ": give that file's path";
  if (!pickled.empty())
    return "; it does hold " + pickled.front() +
           ", a Python pickle, which can run code and is not read. Take the model's safetensors files, or convert it with the "
           "safetensors package";
  return "; download the model's *.safetensors files into it";
}

}  // namespace vitrine
