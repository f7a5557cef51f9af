#include "hub/choose.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "io/gguf_names.h"

namespace vitrine {
namespace {

// What vitrine reads of a model beside its weights, and what the tokenizers of other programs do.
constexpr const char* kCompanions[] = {"config.json",
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer.model",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "adapter_config.json",
                                       "vocab.txt"};
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostListed = 24;

std::vector<GgufModel> models_of(const RemoteRepository& repository) {
  std::vector<std::string> names;
  names.reserve(repository.files.size());
  for (const RemoteFile& file : repository.files) names.push_back(file.name);
  return gguf_models(std::move(names));
}

uint64_t bytes_of(const RemoteRepository& repository, const GgufModel& model) {
  uint64_t bytes = 0;
  for (const std::string& name : model.files) bytes += repository.find(name)->size;
  return bytes;
}

/// A line for each model: what to give after the colon, and its size.
std::string listed(const RemoteRepository& repository, const std::vector<GgufModel>& models) {
  std::string text;
  for (size_t i = 0; i < models.size() && i < kMostListed; ++i) {
    const GgufModel& model = models[i];
    const bool by_type = !model.type.empty() && of_type(models, model.type).size() == 1;
    text += "\n  vitrine pull " + repository.id + ":" + (by_type ? model.type : model.files.front()) + "    " +
            bytes_text(static_cast<double>(bytes_of(repository, model)));
  }
  if (models.size() > kMostListed) text += "\n  and " + std::to_string(models.size() - kMostListed) + " more";
  return text;
}

ChosenFiles gguf_model(const RemoteRepository& repository, const GgufModel& model) {
  if (static_cast<int>(model.files.size()) != model.parts)
    throw InputError(repository.id + ": " + model.files.front() + " is one of " + std::to_string(model.parts) +
                     " parts, of which the repository has " + std::to_string(model.files.size()));
  ChosenFiles chosen;
  for (const std::string& name : model.files) chosen.files.push_back(*repository.find(name));
  chosen.gguf = model.files.front();
  return chosen;
}

[[noreturn]] void refuse_without_weights(const RemoteRepository& repository) {
  std::string others, text = repository.id + ": has no weights that vitrine reads (safetensors or GGUF)";
  for (const RemoteFile& file : repository.files)
    for (const char* ending : {".bin", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".onnx", ".npz"})
      if (file.name.ends_with(ending) && others.empty()) others = file.name;
  if (!others.empty())
    text += "; it has " + others + ". Look for a copy of the model in safetensors, or save it as such with transformers";
  throw InputError(text + ". `vitrine pull " + repository.id + ":FILE` fetches one file");
}

ChosenFiles whole_model(const RemoteRepository& repository) {
  ChosenFiles chosen;
  // The index, and not the names, says which files are its shards. As in open_safetensors a single file goes before it.
  for (const char* name : {"model.safetensors", "adapter_model.safetensors"})
    if (const RemoteFile* file = repository.find(name)) chosen.files.push_back(*file);
  const bool whole = repository.find("model.safetensors") != nullptr;
  if (const RemoteFile* index = repository.find(kIndex); index != nullptr && !whole) {
    chosen.index = index;
    chosen.files.push_back(*index);
  }
  if (chosen.files.empty()) {
    const std::vector<GgufModel> models = models_of(repository);
    if (models.empty()) refuse_without_weights(repository);
    if (models.size() == 1) return gguf_model(repository, models.front());
    throw InputError(repository.id + ": has several GGUF files; name one:" + listed(repository, models));
  }
  for (const char* name : kCompanions)
    if (const RemoteFile* file = repository.find(name)) chosen.files.push_back(*file);
  return chosen;
}

// Those in the folder itself, not in its subfolders.
ChosenFiles files_of_folder(const RemoteRepository& repository, std::string folder) {
  while (folder.ends_with('/')) folder.pop_back();
  ChosenFiles chosen;
  for (const RemoteFile& file : repository.files)
    if (file.name.starts_with(folder + "/") && file.name.find('/', folder.size() + 1) == std::string::npos)
      chosen.files.push_back(file);
  chosen.folder = folder;
  return chosen;
}

}  // namespace

ChosenFiles choose_files(const RemoteRepository& repository, const std::string& wanted) {
  if (wanted.empty()) return whole_model(repository);
  const std::vector<GgufModel> models = models_of(repository);
  for (const GgufModel& model : models)
    if (std::find(model.files.begin(), model.files.end(), wanted) != model.files.end()) return gguf_model(repository, model);
  if (const RemoteFile* file = repository.find(wanted)) {
    ChosenFiles chosen;
    chosen.files.push_back(*file);
    return chosen;
  }
  const std::vector<GgufModel> found = of_type(models, wanted);
  if (found.size() == 1) return gguf_model(repository, found.front());
  if (found.size() > 1)
    throw InputError(repository.id + ": has several GGUF files with the type " + wanted +
                     "; name one:" + listed(repository, found));
  if (ChosenFiles folder = files_of_folder(repository, wanted); !folder.files.empty()) return folder;
  if (!models.empty())
    throw InputError(repository.id + ": has neither a file \"" + wanted +
                     "\" nor GGUF weights of that type. There are:" + listed(repository, models));
  throw InputError(repository.id + ": has no file \"" + wanted + "\" and no folder of that name at revision " +
                   repository.revision + ", and no GGUF files");
}

std::vector<RemoteFile> shards_of_index(const RemoteRepository& repository, const std::string& index_path) {
  const Json index = read_json(index_path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    throw FileError(index_path, "has no \"weight_map\", which tells the files of the weights");
  std::set<std::string> names;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string()) throw FileError(index_path, "key \"weight_map\" gives tensor " + tensor + " no file");
    names.insert(name.get<std::string>());
  }
  std::vector<RemoteFile> shards;
  for (const std::string& name : names) {
    const RemoteFile* file = repository.find(name);
    if (file == nullptr)
      throw FileError(index_path, "names the file \"" + name.substr(0, 200) + "\", which " + repository.id + " does not have");
    shards.push_back(*file);
  }
  return shards;
}

}  // namespace vitrine
