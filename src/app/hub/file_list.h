#pragma once
// What the hub says of the files of a repository.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// A file of a repository, as the list names it.
struct RemoteFile {
  std::string name;  // with slashes; checked to stay below the folder it is put in
  uint64_t size = 0;
  std::string etag;  // what its content is called: SHA-256 (Git LFS), or the SHA-1 of a Git blob; lower case
};

/// One page of the answer to /api/models/OWNER/NAME/tree/REVISION?recursive=true. `where` is named in errors.
/// Errors: FileError for what is no such list, and for a name, a size or a hash that cannot be.
std::vector<RemoteFile> read_file_list(std::string_view json, const std::string& where);

/// The address of the next page in a Link header, <https://…>; rel="next"; empty if there is none.
std::string next_page(const std::string& link);

/// Whether a text consists of so many hexadecimal digits, in lower case.
bool is_lower_hex(std::string_view text, size_t digits);

/// Errors: InputError for a name that would leave the folder it is put in, or that no file system takes.
void check_file_name(const std::string& name, const std::string& where);

}  // namespace vitrine
