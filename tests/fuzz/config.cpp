// Any bytes as config.json: every key through every getter, then as a model of its family without weights; read, or
// refused by name. Seeds: tests/golden/models/*/model, tests/golden/configs.
#include "base/error.h"
#include "io/config_reader.h"
#include "model/load.h"

namespace {

template <class F>
void may_refuse(F&& f) {
  try {
    f();
  } catch (const vitrine::FileError&) {
  }
}

void read_all(const vitrine::ConfigReader& config, const vitrine::Json& json, int depth) {
  constexpr int kDeepest = 8;
  for (const auto& [key, value] : json.items()) {
    may_refuse([&] {
      const int64_t n = config.positive(key, {"n_embd"}, 1);
      if (n < 1 || n > vitrine::ConfigReader::kLargest) __builtin_trap();
    });
    may_refuse([&] { config.count(key); });
    may_refuse([&] { config.number(key); });
    may_refuse([&] { config.flag(key); });
    may_refuse([&] { config.string(key); });
    may_refuse([&] { config.counts(key); });
    may_refuse([&] { config.numbers(key); });
    may_refuse([&] { config.strings(key); });
    may_refuse([&] {
      if (const auto inside = config.find_object(key); inside && depth < kDeepest) read_all(*inside, value, depth + 1);
    });
  }
}

// Sizes may be claimed at will: nothing of a weight's size may be allocated for them, and no count may overflow.
void read_as_model(const vitrine::Json& json) {
  vitrine::ModelFiles files;
  files.config = json;
  files.config_path = "fuzz.json";
  const std::unique_ptr<vitrine::Model> model = vitrine::model_from_config(files);
  if (vitrine::parameter_count(*model) < 1) __builtin_trap();
  for (const vitrine::FileTensor& tensor : vitrine::file_tensors(*model, false))
    for (const int64_t size : tensor.shape)
      if (size < 1) __builtin_trap();
  if (model->cache_layers().size() != static_cast<size_t>(model->shape().n_layers)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  may_refuse([&] {
    const vitrine::Json json = vitrine::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    may_refuse([&] { read_as_model(json); });
    const vitrine::ConfigReader config(json, "fuzz.json");
    may_refuse([&] { config.refuse_unread("any"); });
    read_all(config, json, 0);
    config.refuse_unread("any");
  });
  return 0;
}
