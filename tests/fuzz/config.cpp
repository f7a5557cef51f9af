// Any bytes as config.json: every key through every getter, or refused by name. Seeds: tests/golden/models/*/model.
#include "base/error.h"
#include "io/config_reader.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  may_refuse([&] {
    const vitrine::Json json = vitrine::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const vitrine::ConfigReader config(json, "fuzz.json");
    may_refuse([&] { config.refuse_unread("any"); });
    read_all(config, json, 0);
    config.refuse_unread("any");
  });
  return 0;
}
