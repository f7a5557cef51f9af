#include "io/huggingface.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
constexpr size_t kLargestConfig = size_t{16} << 20;

/// One component of a path that stays where it is put.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
  });
}

/// "google/gemma-2b" -> "models--google--gemma-2b"; none if `name` cannot be an id.
std::optional<std::string> cache_folder(std::string_view name) {
  const size_t slash = name.find('/');
  const std::string_view first = name.substr(0, slash);
  if (!is_plain_name(first)) return std::nullopt;
  if (slash == std::string_view::npos) return "models--" + std::string(first);
  const std::string_view second = name.substr(slash + 1);
  if (!is_plain_name(second)) return std::nullopt;
  return "models--" + std::string(first) + "--" + std::string(second);
}

/// The snapshot of a model in the cache.
std::string snapshot_of(const std::string& id, const fs::path& folder) {
  const std::vector<std::string> snapshots = names_in((folder / "snapshots").string());
  const fs::path main = folder / "refs" / "main";
  std::string revision;
  if (present(main.string())) {
    revision = read_file(main.string(), 4096);
    while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r' || revision.back() == ' '))
      revision.pop_back();
    if (!is_plain_name(revision))
      throw FileError(main.string(), "does not name a revision; download it again with `vitrine pull " + id + "`");
  } else if (snapshots.empty()) {
    throw FileError(folder.string(), "holds no whole model: was its download stopped? Finish it with `vitrine pull " + id + "`");
  } else if (snapshots.size() == 1) {
    revision = snapshots.front();
  } else {
    throw FileError(folder.string(), "has no refs/main and " + std::to_string(snapshots.size()) +
                                         " snapshots, so it is not clear which " + id + " is meant; give the path of a snapshot");
  }
  const fs::path snapshot = folder / "snapshots" / revision;
  if (!is_folder(snapshot.string()))
    throw FileError(snapshot.string(), "does not exist, although refs/main of " + id +
                                           " names it; download it again with `vitrine pull " + id + "`");
  return snapshot.string();
}

/// The .gguf files of a snapshot, in its folders, too: "BF16/model-BF16-00001-of-00002.gguf".
std::vector<std::string> gguf_files(const fs::path& snapshot) {
  constexpr int kDeepest = 4;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(snapshot, error), end; !error && at != end; at.increment(error)) {
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
    if (at->path().extension() == ".gguf") names.push_back(at->path().lexically_relative(snapshot).generic_string());
  }
  return names;
}

/// The first file of the only one of `models`.
std::string only_model(const std::string& id, const fs::path& snapshot, const std::vector<GgufModel>& models) {
  if (models.size() > 1) {
    std::string names;
    for (const GgufModel& model : models) names += "\n  " + id + ":" + model.files.front();
    throw FileError(id, "means several models in the cache; name one:" + names);
  }
  const GgufModel& model = models.front();
  if (static_cast<int>(model.files.size()) != model.parts)
    throw FileError((snapshot / model.files.front()).string(),
                    "is one of " + std::to_string(model.parts) + " parts, of which " + std::to_string(model.files.size()) +
                        " are in the cache; fetch the others with `vitrine pull " + id + ":" +
                        (model.type.empty() ? model.files.front() : model.type) + "`");
  return (snapshot / model.files.front()).string();
}

/// What `wanted` of OWNER/NAME:wanted is in a snapshot: a type of GGUF weights or a file.
std::string file_of_snapshot(const std::string& id, const std::string& wanted, const fs::path& snapshot) {
  const bool inside = wanted.find("..") == std::string::npos && !wanted.starts_with('/');
  if (inside && present((snapshot / wanted).string()) && !is_folder((snapshot / wanted).string()))
    return (snapshot / wanted).string();
  const std::vector<GgufModel> models = gguf_models(gguf_files(snapshot));
  if (const std::vector<GgufModel> found = of_type(models, wanted); !found.empty()) return only_model(id, snapshot, found);
  const std::string types = types_text(models);
  throw FileError(id + ":" + wanted, "is not in the Hugging Face cache" +
                                         (types.empty() ? "" : ", which has " + types + " of this repository") +
                                         ". Download it with `vitrine pull " + id + ":" + wanted + "`");
}

/// The snapshot itself, or the model in one that holds GGUF files and no other weights.
std::string model_of_snapshot(const std::string& id, const fs::path& snapshot) {
  if (!names_in(snapshot.string(), {".safetensors"}).empty()) return snapshot.string();
  const std::vector<GgufModel> models = gguf_models(gguf_files(snapshot));
  return models.empty() ? snapshot.string() : only_model(id, snapshot, models);
}

/// A folder that an environment variable names; a "~/" at its beginning is the home folder.
std::string path_variable(const char* name) {
  const char* value = std::getenv(name);
  const char* home = std::getenv("HOME");
  if (value == nullptr) return "";
  const std::string_view path = value;
  return path.starts_with("~/") && home != nullptr ? home + std::string(path.substr(1)) : std::string(path);
}

std::string advice_on_config(const std::string& directory) {
  if (const auto gguf = names_in(directory, {".gguf"}); !gguf.empty())
    return "; it does hold " + gguf.front() + ": give that file's path";
  if (present(directory + "/adapter_config.json")) return advice_on_adapter(directory);
  if (const auto weights = names_in(directory, {".safetensors", ".bin", ".pth"}); !weights.empty())
    return ", which tells what kind of model " + weights.front() + " belongs to; download it into the same directory";
  return ". Expected the directory of a Hugging Face model: config.json, *.safetensors, tokenizer.json";
}

// Python writes Infinity where JSON has no number (limits of a Mamba's steps of time); transformers 5 writes what stands here.
std::string with_named_infinity(std::string_view text) {
  constexpr std::string_view kBare = "Infinity";
  std::string result;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) result += text[i++];
    if (!in_string && text.substr(i, kBare.size()) == kBare && (i == 0 || text[i - 1] != '-')) {
      result += named_infinity().dump();
      i += kBare.size() - 1;
    } else {
      result += text[i];
    }
  }
  return result;
}

Json read_object(const fs::path& path) {
  const std::string text = read_file(path.string(), kLargestConfig);
  const bool bare = text.find("Infinity") != text.npos;
  Json json = parse_json(bare ? with_named_infinity(text) : text, path.string());
  if (!json.is_object()) throw FileError(path.string(), "is not a JSON object; expected the settings of a model");
  return json;
}

/// Of a model that also reads images, the language model inside; what both describe is said outside. Else nothing.
std::optional<Json> language_model(const Json& config) {
  const auto inside = config.find("text_config");
  if (inside == config.end() || !inside->is_object()) return {};
  const auto type = inside->find("model_type");
  if (type == inside->end() || !type->is_string()) return {};
  Json text = *inside;
  text.erase("architectures");
  for (const char* key : {"tie_word_embeddings", "quantization_config"})
    if (const auto outside = config.find(key); outside != config.end()) text[key] = *outside;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype"})
    if (const auto outside = config.find(key); outside != config.end() && !text.contains(key)) text[key] = *outside;
  return text;
}

void read_configs(const fs::path& config, ModelFiles& files) {
  files.config_path = config.string();
  files.config = read_object(config);
  if (std::optional<Json> text = language_model(files.config)) files.config = *std::move(text);
  const fs::path generation = config.parent_path() / "generation_config.json";
  if (!present(generation.string())) return;
  files.generation_config_path = generation.string();
  files.generation_config = read_object(generation);
}

}  // namespace

std::string hub_home() {
  if (const std::string home = path_variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = path_variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/huggingface";
  return path_variable("HOME") + "/.cache/huggingface";
}

std::string hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = path_variable(name); !cache.empty()) return cache;
  return hub_home() + "/hub";
}

std::string cache_folder_name(std::string_view id) {
  const std::optional<std::string> folder = cache_folder(id);
  if (!folder) throw InputError("\"" + std::string(id) + "\" is no id of a repository, such as google/gemma-2b");
  return *folder;
}

std::optional<std::string> locate_folder(std::string_view name, const std::string& cache) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos || name.find('/') > colon) return std::nullopt;
  const std::string id(name.substr(0, colon)), wanted(name.substr(colon + 1));
  const std::optional<std::string> folder = cache_folder(id);
  if (!folder || wanted.empty()) return std::nullopt;
  const bool inside = wanted.find("..") == std::string::npos && !wanted.starts_with('/');
  const fs::path repository = fs::path(cache) / *folder;
  if (inside && is_folder(repository.string())) {
    const fs::path found = fs::path(snapshot_of(id, repository)) / wanted;
    if (present(found.string())) return found.string();
  }
  throw FileError(std::string(name),
                  "is not in the Hugging Face cache (" + cache + "). Download it with `vitrine pull " + std::string(name) + "`");
}

std::string locate_model(std::string_view name, const std::string& cache) {
  std::string given(name);
  if (given.empty())
    throw InputError("the name of the model is empty; give a directory, a .gguf file or an id such as google/gemma-2b");
  if (present(given)) return given;
  // "OWNER/NAME:WANTED" as "vitrine pull" takes it.
  const std::string id = given.substr(0, given.find(':'));
  const std::string wanted = id.size() == given.size() ? "" : given.substr(id.size() + 1);
  const std::optional<std::string> folder = cache_folder(id);
  if (!folder || (wanted.empty() && id.size() != given.size()))
    throw FileError(given, "does not exist. Expected a model's directory, a .gguf file or an id such as google/gemma-2b");
  const fs::path cached = fs::path(cache) / *folder;
  if (!is_folder(cached.string()))
    throw FileError(given, "is neither a file nor a directory here, nor a model in the Hugging Face cache (looked for " +
                               cached.string() + "). Give a path, or download it with `vitrine pull " + given +
                               "`; HF_HUB_CACHE and HF_HOME move the cache");
  const std::string snapshot = snapshot_of(id, cached);
  return wanted.empty() ? model_of_snapshot(id, snapshot) : file_of_snapshot(id, wanted, snapshot);
}

ModelFiles resolve_model(std::string_view name, const std::string& cache) {
  ModelFiles files;
  files.name = std::string(name);
  const std::string located = locate_model(name, cache);
  const fs::path path(located);
  if (is_folder(located)) {
    files.directory = located;
    if (!present(located + "/config.json")) throw FileError(located, "holds no config.json" + advice_on_config(located));
    read_configs(path / "config.json", files);
    if (present(located + "/model.safetensors") || present(located + "/model.safetensors.index.json")) files.weights = located;
    return files;
  }
  files.directory = path.has_parent_path() ? path.parent_path().string() : ".";
  if (path.extension() == ".gguf") {
    files.kind = ModelFiles::Kind::gguf;
    files.weights = located;
  } else if (path.extension() == ".safetensors" || located.ends_with(".safetensors.index.json")) {
    const fs::path config = fs::path(files.directory) / "config.json";
    if (!present(config.string())) throw FileError(located, "has no config.json beside it, which tells what kind of model it is");
    read_configs(config, files);
    files.weights = located;
  } else if (path.extension() == ".json") {
    read_configs(path, files);
  } else {
    throw FileError(located,
                    "is no model; expected a directory with config.json, a .gguf or .safetensors file, or a config.json");
  }
  return files;
}

Checkpoint open_weights(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::gguf) return std::move(open_gguf(files.weights).checkpoint);
  if (!files.weights.empty()) return open_safetensors(files.weights);
  if (files.name == files.config_path)
    throw FileError(files.config_path, "is a configuration alone; give the model's directory to use its weights");
  return open_safetensors(files.directory);  // whose message says what the directory lacks
}

}  // namespace vitrine
