#pragma once
// Tar archives of small files, for tests.
#include <algorithm>
#include <cstdio>
#include <string>

namespace vitrine {

/// A header and the content, up to a whole block. `type`: '0' a file, 'L' a long name, 'x' pax records, '5' a folder, …
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string block(512, '\0');
  block.replace(0, std::min<size_t>(name.size(), 100), name, 0, 100);
  char field[16];
  const auto octal = [&](size_t at, size_t digits, size_t value) {
    std::snprintf(field, sizeof field, "%0*zo", static_cast<int>(digits), value);
    block.replace(at, digits, field);
  };
  octal(100, 7, 0644);
  octal(124, 11, content.size());
  octal(136, 11, 0);
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  size_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  octal(148, 6, sum);
  block[154] = '\0';
  return block + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace vitrine
