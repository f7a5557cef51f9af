#pragma once
// What lies in a model's files, for those that vitrine does not run.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine {

struct FileContents {
  struct Type {
    int64_t tensors = 0, elements = 0, bytes = 0;  // elements and bytes of readable types only
  };
  std::string path, architecture;     // general.architecture, or model_type of config.json
  std::map<std::string, Type> types;  // by element type as messages call it
  std::string why;                    // it is not run
  int64_t elements() const;
  int64_t bytes() const;
};

/// Nothing if vitrine has the family and all types, or if there are no weights. Reads headers only.
/// Errors: FileError for files that are no models, as open_model.
std::optional<FileContents> unread_contents(std::string_view model);

}  // namespace vitrine
