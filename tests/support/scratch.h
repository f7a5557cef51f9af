#pragma once
// What tests of files need: a folder that vanishes, bytes made by hand, the message of an error.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace vitrine {

/// A new empty directory, removed with its content at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "vitrine-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw RunError(name + ": cannot be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file, making its folders; returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path.string();
  }
  std::string link(const std::string& name, const std::string& target) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::create_symlink(target, path);
    return path.string();
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A value as it lies in a little-endian file.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// The message of the E that f throws; a failure if it throws none or another. Takes care of nothing else.
template <class E = FileError, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "  \"" << (text) << "\"\n  lacks \"" << (part) << "\""

}  // namespace vitrine
