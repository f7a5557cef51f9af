#include "io/activations.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

constexpr char kFormat[] = "vitrine activations 1";

std::string manifest_path(const std::string& folder) { return (std::filesystem::path(folder) / kActivationManifest).string(); }

DType stored_type(const std::string& word, const std::string& file) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    if (name_of(type) == word) return type;
  throw FileError(file, "\"type\" is \"" + word + "\"; expected f32, f16 or bf16");
}

// Reads fields of the manifest, each with its name in the message.
class Fields {
 public:
  Fields(const Json& object, const std::string& file) : object_(object), file_(file) {
    if (!object.is_object()) throw FileError(file, "expected a JSON object");
  }
  uint64_t count(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned()) refuse(key, "a whole number of at least 0");
    return value.get<uint64_t>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse(key, "a text");
    return value.get<std::string>();
  }
  const Json& list(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) refuse(key, "a list");
    return value;
  }
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw FileError(file_, std::string("\"") + key + "\" is missing");
    return *found;
  }
  [[noreturn]] void refuse(const char* key, const char* expected) const {
    throw FileError(file_, std::string("\"") + key + "\" is " + at(key).dump().substr(0, 60) + "; expected " + expected);
  }

 private:
  const Json& object_;
  const std::string& file_;
};

const std::byte* tensor_of(const Checkpoint& file, const std::string& path, const std::string& name, DType type,
                           const std::vector<int64_t>& shape) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) throw FileError(path, "has no tensor \"" + name + "\", which the manifest names");
  if (tensor->dtype != type || tensor->shape != shape)
    throw FileError(path, "tensor \"" + name + "\" is " + std::string(name_of(tensor->dtype)) + " " + shape_text(tensor->shape) +
                              "; expected " + std::string(name_of(type)) + " " + shape_text(shape) + " by the manifest");
  return tensor->data;
}

}  // namespace

int64_t ActivationManifest::Hook::numbers() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

uint64_t ActivationManifest::tokens() const {
  uint64_t n = 0;
  for (const Shard& shard : shards) n += shard.tokens;
  return n;
}

uint64_t ActivationManifest::contexts() const {
  uint64_t n = 0;
  for (const Shard& shard : shards) n += shard.contexts;
  return n;
}

size_t ActivationManifest::bytes_per_token() const {
  size_t bytes = 2 * sizeof(int32_t);  // id and position
  for (const Hook& hook : hooks) bytes += row_bytes(type, static_cast<size_t>(hook.numbers()));
  return bytes;
}

std::string activation_shard_name(size_t number) {
  char name[48];
  std::snprintf(name, sizeof name, "activations-%05zu.safetensors", number);
  return name;
}

ActivationManifest read_activation_manifest(const std::string& folder) {
  const std::string path = manifest_path(folder);
  const Json json = read_json(path);
  const Fields fields(json, path);
  if (const std::string format = fields.text("format"); format != kFormat)
    throw FileError(path, "\"format\" is \"" + format.substr(0, 60) + "\"; expected \"" + kFormat + "\"");
  ActivationManifest m;
  m.model = fields.text("model");
  m.type = stored_type(fields.text("type"), path);
  m.context = static_cast<int64_t>(fields.count("context"));
  m.lead = fields.at("lead").is_null() ? -1 : static_cast<int64_t>(fields.count("lead"));
  m.max_tokens = fields.count("max_tokens");
  m.shard_tokens = fields.count("shard_tokens");
  m.checksum = fields.count("checksum");
  if (!fields.at("complete").is_boolean()) fields.refuse("complete", "true or false");
  m.complete = fields.at("complete").get<bool>();
  for (const Json& entry : fields.list("hooks")) {
    const Fields hook(entry, path);
    std::vector<int64_t> shape;
    std::vector<uint64_t> sizes;
    for (const Json& size : hook.list("shape")) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() == 0 || size.get<uint64_t>() > (uint64_t{1} << 32))
        hook.refuse("shape", "sizes of at least 1");
      shape.push_back(size.get<int64_t>());
      sizes.push_back(size.get<uint64_t>());
    }
    const auto numbers = checked_product(sizes);
    if (!numbers || *numbers > (uint64_t{1} << 32)) hook.refuse("shape", "fewer numbers for one token");
    m.hooks.push_back({hook.text("name"), shape});
  }
  if (m.hooks.empty()) throw FileError(path, "\"hooks\" names none");
  for (const Json& entry : fields.list("shards")) {
    const Fields shard(entry, path);
    const size_t number = m.shards.size();
    m.shards.push_back({shard.text("file"), shard.count("tokens"), shard.count("contexts")});
    if (m.shards.back().file != activation_shard_name(number))
      throw FileError(path, "shard " + std::to_string(number) + " is called \"" + m.shards.back().file.substr(0, 60) +
                                "\"; expected " + activation_shard_name(number));
    if (m.shards.back().tokens == 0 || m.shards.back().tokens > (uint64_t{1} << 40))
      throw FileError(path, "shard " + std::to_string(number) + " has an impossible number of tokens");
  }
  return m;
}

void write_activation_manifest(const std::string& folder, const ActivationManifest& m) {
  nlohmann::ordered_json hooks = nlohmann::ordered_json::array(), shards = nlohmann::ordered_json::array();
  for (const auto& hook : m.hooks) hooks.push_back({{"name", hook.name}, {"shape", hook.shape}});
  for (const auto& shard : m.shards)
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"contexts", shard.contexts}});
  nlohmann::ordered_json json{{"format", kFormat},
                              {"model", m.model},
                              {"type", name_of(m.type)},
                              {"context", m.context},
                              {"lead", m.lead < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(m.lead)},
                              {"max_tokens", m.max_tokens},
                              {"shard_tokens", m.shard_tokens},
                              {"tokens", m.tokens()},
                              {"contexts", m.contexts()},
                              {"checksum", m.checksum},
                              {"complete", m.complete},
                              {"hooks", hooks},
                              {"shards", shards}};
  write_file_atomically(manifest_path(folder), json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Activations Activations::open(const std::string& folder) {
  if (!std::filesystem::exists(manifest_path(folder)))
    throw FileError(folder, std::string("holds no ") + kActivationManifest +
                                ", so these are no collected activations. `vitrine collect` makes them");
  Activations a;
  a.path_ = folder;
  a.manifest_ = read_activation_manifest(folder);
  for (const auto& listed : a.manifest_.shards) {
    const std::string path = (std::filesystem::path(folder) / listed.file).string();
    Shard shard{.first = a.tokens_, .tokens = listed.tokens, .values = {}, .file = open_safetensors(path)};
    const auto n = static_cast<int64_t>(listed.tokens);
    shard.ids = tensor_of(shard.file, path, "tokens", DType::i32, {n});
    shard.positions = tensor_of(shard.file, path, "positions", DType::i32, {n});
    for (const auto& hook : a.manifest_.hooks) {
      std::vector<int64_t> shape{n};
      shape.insert(shape.end(), hook.shape.begin(), hook.shape.end());
      shard.values.push_back(tensor_of(shard.file, path, hook.name, a.manifest_.type, shape));
    }
    a.tokens_ += listed.tokens;
    a.shards_.push_back(std::move(shard));
  }
  if (a.tokens_ == 0)
    throw FileError(manifest_path(folder), "lists no shard: the run that collects has not finished the first one");
  return a;
}

size_t Activations::hook(std::string_view name) const {
  const auto& hooks = manifest_.hooks;
  if (name.empty() && hooks.size() == 1) return 0;
  std::string all;
  for (size_t i = 0; i < hooks.size(); ++i) {
    if (hooks[i].name == name) return i;
    all += (i > 0 ? ", " : "") + hooks[i].name;
  }
  throw InputError(path_ +
                   (name.empty() ? ": holds several hooks; name one of them: "
                                 : ": holds no values of \"" + std::string(name) + "\", but of ") +
                   all);
}

const Activations::Shard& Activations::shard_of(uint64_t token) const {
  VITRINE_CHECK(token < tokens_, "a token that is read was collected");
  const auto next = std::upper_bound(shards_.begin(), shards_.end(), token,
                                     [](uint64_t wanted, const Shard& shard) { return wanted < shard.first; });
  return *std::prev(next);
}

const std::byte* Activations::stored(size_t hook, uint64_t token) const {
  const Shard& shard = shard_of(token);
  const auto n = static_cast<size_t>(manifest_.hooks[hook].numbers());
  return shard.values[hook] + (token - shard.first) * row_bytes(manifest_.type, n);
}

void Activations::read(size_t hook, uint64_t token, float* values) const {
  const std::byte* row = stored(hook, token);
  const auto n = static_cast<size_t>(manifest_.hooks[hook].numbers());
  for (size_t i = 0; i < n; ++i) values[i] = element_at(manifest_.type, row, i);
}

int32_t Activations::token(uint64_t token) const {
  const Shard& shard = shard_of(token);
  int32_t id;
  std::memcpy(&id, shard.ids + (token - shard.first) * sizeof id, sizeof id);
  return id;
}

int32_t Activations::position(uint64_t token) const {
  const Shard& shard = shard_of(token);
  int32_t position;
  std::memcpy(&position, shard.positions + (token - shard.first) * sizeof position, sizeof position);
  return position;
}

}  // namespace vitrine
