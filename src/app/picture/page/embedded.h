#pragma once
// Files of the source tree that were compiled in.
#include <string_view>
#include <vector>

namespace vitrine {

struct EmbeddedFile {
  std::string_view name;  // in the source tree: "src/engine/model/gemma2.cpp", "web/dist/page.js"
  std::string_view text;
};
const std::vector<EmbeddedFile>& embedded_files();

/// The text of an embedded file; empty if this build has none of that name.
inline std::string_view embedded_text(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == name) return file.text;
  return {};
}

/// The engine of live pages, web/dist/engine.wasm compressed by gzip; empty if this build has none.
std::string_view embedded_engine();

}  // namespace vitrine
