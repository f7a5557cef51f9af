// Any bytes as a recipe: every value through every getter, or refused by file and line.
#include "base/error.h"
#include "io/yaml_reader.h"

namespace {

template <class F>
void may_refuse(F&& f) {
  try {
    f();
  } catch (const vitrine::FileError&) {
  }
}

void read_all(const vitrine::YamlValue& value) {
  may_refuse([&] { value.text(); });
  may_refuse([&] { value.whole(-3, 3); });
  may_refuse([&] { value.number(); });
  may_refuse([&] { value.flag(); });
  if (value.is_object()) {
    for (const auto& [key, inside] : value.members()) {
      if (!inside.is_null()) read_all(inside);
      if (value.find(key).has_value() == inside.is_null()) __builtin_trap();
    }
    may_refuse([&] { value.allow(std::vector<std::string>{"prompt"}); });
  } else if (value.is_list()) {
    for (const vitrine::YamlValue& item : value.items()) read_all(item);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  may_refuse([&] {
    read_all(vitrine::YamlValue::parse({reinterpret_cast<const char*>(data), size}, "fuzz.yaml",
                                       {.bytes = 1 << 16, .depth = 8, .values = 4096}));
  });
  return 0;
}
