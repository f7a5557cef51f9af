// Any bytes as what a hub answers: a list of files, a Link header, names of GGUF files, the beginning of one. Read, or refused by
// name.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/file_list.h"
#include "io/gguf_extent.h"
#include "io/gguf_names.h"

namespace {

void read_list(const std::string& text) {
  for (const vitrine::RemoteFile& file : vitrine::read_file_list(text, "fuzz.json"))
    if (file.name.front() == '/' || file.name.find("../") != std::string::npos) __builtin_trap();
}

/// Lines as names of files: every model has a file and is found by its type.
void read_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::vector<vitrine::GgufModel> models = vitrine::gguf_models(names);
  for (const vitrine::GgufModel& model : models)
    if (model.files.empty() || (!model.type.empty() && vitrine::of_type(models, model.type).empty())) __builtin_trap();
  vitrine::types_text(models);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0: read_list(text); break;
      case 1: vitrine::next_page(text); break;
      case 2: read_names(text); break;
      default:
        if (vitrine::gguf_header_bytes(std::as_bytes(std::span(text))).value_or(0) > text.size()) __builtin_trap();
    }
  } catch (const vitrine::FileError&) {
  }
  return 0;
}
