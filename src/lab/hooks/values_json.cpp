#include "hooks/values_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/json.h"

namespace vitrine {
namespace {

// Counts what is not finite.
void append_values(const Recorder::Value& value, size_t axis, size_t& at, std::string& out, int64_t& not_finite) {
  if (axis == value.shape.size()) {
    const float x = value.values[at++];
    if (std::isfinite(x)) {
      fmt::format_to(std::back_inserter(out), "{}", x);
    } else {
      out += "null";
      ++not_finite;
    }
    return;
  }
  out += '[';
  for (int64_t i = 0; i < value.shape[axis]; ++i) {
    if (i > 0) out += ',';
    append_values(value, axis + 1, at, out, not_finite);
  }
  out += ']';
}

}  // namespace

std::string hooks_text(const Recorder& recorder) {
  std::string list = "[";
  for (const std::string& name : recorder.order()) {
    const Recorder::Value& value = recorder.values().at(name);
    int64_t not_finite = 0;
    size_t at = 0;
    list += (list.size() > 1 ? "," : "") + std::string("{\"name\":") + Json(name).dump() +
            ",\"shape\":" + Json(value.shape).dump() + ",\"values\":";
    append_values(value, 0, at, list, not_finite);
    if (not_finite > 0) list += fmt::format(",\"not_finite\":{}", not_finite);
    list += '}';
  }
  return list + "]";
}

}  // namespace vitrine
