#pragma once
// What tests of evaluation need: the goldens, the shipped model in f32, texts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "runtime/engine.h"
#include "support/scratch.h"

namespace vitrine {

inline std::string evaluate_golden(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/evaluate/" + name; }
inline std::string golden_text() { return read_file(evaluate_golden("text.txt")); }
inline std::string tales() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }
inline std::string golden_llama() { return std::string(VITRINE_GOLDEN) + "/models/llama/model"; }

inline Engine open_f32(const std::string& model, int threads = 2) {
  return Engine(model, {.threads = threads, .numerics = {.f32 = true}});
}

}  // namespace vitrine
