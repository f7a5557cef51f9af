#include "hub/file_list.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace vitrine {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 50;

std::string text_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

RemoteFile read_entry(const Json& entry, const std::string& where) {
  RemoteFile file{.name = text_of(entry, "path"), .size = 0, .etag = text_of(entry, "oid")};
  check_file_name(file.name, where);
  const Json* described = &entry;
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    described = &*lfs;
    file.etag = text_of(*lfs, "oid");
    if (file.etag.starts_with("sha256:")) file.etag.erase(0, 7);
  }
  const auto size = described->find("size");
  if (size == described->end() || !size->is_number_unsigned() || size->get<uint64_t>() > kLargestFile)
    throw FileError(where, "lists " + file.name + " without a size that a file can have");
  file.size = size->get<uint64_t>();
  if (!is_lower_hex(file.etag, described == &entry ? 40 : 64))
    throw FileError(where, "lists " + file.name + " with the hash \"" + file.etag + "\"; expected " +
                               (described == &entry ? "40 hexadecimal digits (a Git blob)" : "64 hexadecimal digits (SHA-256)"));
  return file;
}

}  // namespace

bool is_lower_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string next_page(const std::string& link) {
  for (size_t begin = link.find('<'); begin != std::string::npos; begin = link.find('<', begin + 1)) {
    const size_t end = link.find('>', begin);
    if (end == std::string::npos) return "";
    if (link.substr(end, std::min(link.find(',', end), link.size()) - end).find("rel=\"next\"") != std::string::npos)
      return link.substr(begin + 1, end - begin - 1);
  }
  return "";
}

void check_file_name(const std::string& name, const std::string& where) {
  constexpr size_t kLongestName = 1024, kLongestPart = 255;
  const auto refuse = [&](const std::string& why) {
    throw FileError(where,
                    "names a file \"" + name.substr(0, 200) + "\", which " + why + "; nothing of this repository is fetched");
  };
  if (name.empty() || name.size() > kLongestName) refuse("is no name");
  if (name.front() == '/' || name.find('\\') != std::string::npos) refuse("may lie outside the cache");
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 127; }))
    refuse("holds control characters");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    if (part == "." || part == "..") refuse("may lie outside the cache");
    if (part.empty() || part.size() > kLongestPart) refuse("is no name");
    begin = end + 1;
  }
}

std::vector<RemoteFile> read_file_list(std::string_view json, const std::string& where) {
  const Json entries = parse_json(json, where);
  std::vector<RemoteFile> files;
  if (!entries.is_array()) throw FileError(where, "is no list of files. Is HF_ENDPOINT a hub?");
  for (const Json& entry : entries) {
    if (!entry.is_object()) throw FileError(where, "is no list of files. Is HF_ENDPOINT a hub?");
    if (text_of(entry, "type") == "file") files.push_back(read_entry(entry, where));
  }
  return files;
}

}  // namespace vitrine
