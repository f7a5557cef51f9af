#include "hub/headers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "hub/choose.h"
#include "io/file_checks.h"
#include "io/gguf_extent.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFirstBytes = uint64_t{256} << 10, kMostHeaderBytes = uint64_t{256} << 20;
constexpr uint64_t kLargestCompanion = uint64_t{16} << 20;
constexpr const char* kVocabularies[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"};

/// Bytes that the header at the beginning of a file takes, as far as `beginning` tells: more than it has if it does not.
uint64_t header_bytes(const RemoteFile& file, std::span<const std::byte> beginning) {
  if (file.name.ends_with(".gguf")) return gguf_header_bytes(beginning).value_or(4 * beginning.size());
  if (beginning.size() < 8) return beginning.size();  // the reader says what is wrong
  const uint64_t length = load<uint64_t>(beginning.data());
  return length > kMostHeaderBytes ? 8 : 8 + length;
}

/// A file of that size of which only the beginning was written.
void write_sparse(const fs::path& path, const std::string& beginning, uint64_t size) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream(path, std::ios::binary).write(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  fs::resize_file(path, size, error);
  if (error) throw RunError(path.string() + ": cannot be made " + std::to_string(size) + " bytes long: " + error.message());
}

}  // namespace

HeaderFolder::HeaderFolder(const PullRequest& request, const HubSettings& settings) {
  HubClient client(settings);
  const RemoteRepository repository = client.repository(request.id, request.revision);
  ChosenFiles chosen = choose_files(repository, request.wanted);
  commit_ = repository.commit;
  if (chosen.index != nullptr) {
    add(client, repository, *chosen.index);
    for (RemoteFile& shard : shards_of_index(repository, folder_.path() + "/" + chosen.index->name))
      chosen.files.push_back(std::move(shard));
  }
  for (const RemoteFile& file : chosen.files) {
    if (chosen.index != nullptr && file.name == chosen.index->name) continue;
    if (std::find(std::begin(kVocabularies), std::end(kVocabularies), file.name) == std::end(kVocabularies))
      add(client, repository, file);
    else if (left_out_.empty())
      left_out_ = file.name;
  }
  path_ = chosen.gguf.empty() ? folder_.path() : folder_.path() + "/" + chosen.gguf;
}

void HeaderFolder::add(HubClient& client, const RemoteRepository& repository, const RemoteFile& file) {
  if (file.name.ends_with(".safetensors") || file.name.ends_with(".gguf")) return add_beginning(client, repository, file);
  if (file.size > kLargestCompanion)
    throw InputError(repository.id + ": " + file.name + " has " + std::to_string(file.size) + " bytes; expected at most " +
                     std::to_string(kLargestCompanion) + " of a configuration");
  write_sparse(fs::path(folder_.path()) / file.name, client.read(repository, file, 0, file.size), file.size);
  fetched_ += file.size;
}

void HeaderFolder::add_beginning(HubClient& client, const RemoteRepository& repository, const RemoteFile& file) {
  std::string beginning;
  uint64_t wanted = kFirstBytes;
  while (beginning.size() < std::min(wanted, file.size)) {
    if (wanted > kMostHeaderBytes)
      throw InputError(repository.id + ": the header of " + file.name + " is longer than " + std::to_string(kMostHeaderBytes) +
                       " bytes");
    beginning += client.read(repository, file, beginning.size(), std::min(wanted, file.size) - beginning.size());
    wanted = header_bytes(file, std::as_bytes(std::span(beginning)));
  }
  bytes_ += file.size;
  fetched_ += beginning.size();
  write_sparse(fs::path(folder_.path()) / file.name, beginning, file.size);
}

}  // namespace vitrine
