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

bool present(const std::string& path) {
  std::error_code unreachable;
  if (std::filesystem::exists(path, unreachable)) return true;
  if (std::filesystem::is_symlink(path, unreachable))
    throw FileError(path, "is a link to a file that does not exist. Is the download complete?");
  if (unreachable == std::errc::permission_denied)
    throw FileError(path, "cannot be looked for: its folder may not be read by this user (permission denied)");
  return false;
}

bool is_folder(const std::string& path) {
  std::error_code unreachable;
  return std::filesystem::is_directory(path, unreachable);
}

std::vector<std::string> names_in(const std::string& directory, std::initializer_list<std::string_view> endings) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (auto entry = std::filesystem::directory_iterator(directory, unreadable); entry != std::filesystem::directory_iterator();
       entry.increment(unreadable)) {
    const std::string name = entry->path().filename().string();
    const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
    if (endings.size() == 0 || std::any_of(endings.begin(), endings.end(), ends)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string advice_on_adapter(const std::string& directory) {
  return "; it holds an adapter: give its base as the model and this folder as --adapter, or, where there is no such flag, the "
         "model that `vitrine convert BASE OUT --adapter " +
         directory + "` writes";
}

std::string advice_on_weights(const std::string& directory) {
  for (const std::string& other : names_in(directory, {".safetensors", ".gguf"})) {
    if (other == "adapter_model.safetensors") return advice_on_adapter(directory);
    if (other.find("-of-") != std::string::npos && other.ends_with(".safetensors"))
      return "; it does hold " + other + ", a part of the weights: download the index, which names them all";
    return "; it does hold " + other + ": give that file's path";
  }
  if (const auto pickled = names_in(directory, {".bin", ".pth", ".pt", ".ckpt"}); !pickled.empty())
    return "; it does hold " + pickled.front() +
           ", a Python pickle, which can run code and is not read. Take the model's safetensors files, or convert it with the "
           "safetensors package";
  return "; download the model's *.safetensors files into it";
}

}  // namespace vitrine
