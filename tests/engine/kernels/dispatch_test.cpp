// The choice of a target, and what the objects of the instruction sets may show to the linker.
#include <cstdio>
#include <sstream>

#include "base/error.h"
#include "kernels_objects.h"
#include "support.h"

namespace vitrine {
namespace {

std::string message_for(std::string_view target) {
  try {
    kernels_for_request(target);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Dispatch, UnknownTargetNamesTheKnownOnes) {
  EXPECT_EQ(message_for("sse9"),
            "VITRINE_TARGET=sse9: unknown target; expected one of reference, avx2, avx512, avx512_bf16, amx, neon, neon_dot, "
            "neon_i8mm, neon_bf16, wasm.");
}

TEST(Dispatch, ATargetThisCpuLacksIsAnErrorThatSaysSo) {
  for (const std::string_view target : kTargets) {
    if (const KernelTable* table = kernels_for(target)) {
      EXPECT_EQ(&kernels_for_request(target), table);
      EXPECT_EQ(table->name, target);
    } else {
      EXPECT_EQ(message_for(target), "VITRINE_TARGET=" + std::string(target) +
                                         ": this CPU or this build lacks that instruction set. Unset VITRINE_TARGET to use "
                                         "the best one there is.");
    }
  }
}

TEST(Dispatch, TheTableInUseIsOneOfTheTargets) {
  const std::string wanted = std::getenv("VITRINE_TARGET") ? std::getenv("VITRINE_TARGET") : "";
  EXPECT_EQ(&kernels(), kernels_for(kernels().name));
  if (!wanted.empty()) {
    EXPECT_EQ(kernels().name, wanted);
  }
}

#ifdef VITRINE_ARM
TEST(Dispatch, TheLastTargetThatThisCpuHasIsChosen) {
  if (std::getenv("VITRINE_TARGET") != nullptr) GTEST_SKIP() << "VITRINE_TARGET chooses";
  std::string_view last;
  for (const std::string_view target : kTargets)
    if (kernels_for(target) != nullptr) last = target;
  EXPECT_EQ(kernels().name, last);
  EXPECT_NE(last, "reference");
  const auto has = [](std::string_view target) { return kernels_for(target) != nullptr; };
  EXPECT_TRUE(has("neon_dot") || !has("neon_i8mm"));  // each needs what the one before it needs
  EXPECT_TRUE(has("neon_i8mm") || !has("neon_bf16"));
}
#endif

TEST(Dispatch, EveryTableIsComplete) {
  for (const std::string_view target : kTargets) {
    const KernelTable* t = kernels_for(target);
    if (t == nullptr) continue;
    for (const DType type : kAllWeightTypes) {
      EXPECT_TRUE(t->dot_rows[int(type)] && t->widen[int(type)]);
      EXPECT_EQ(t->dot_rows_int8[int(type)] != nullptr, has_integers(type));
      EXPECT_EQ(t->dot_columns[int(type)] != nullptr, !is_block(type));
    }
    EXPECT_TRUE(t->panel_f32.outputs && t->panel_f32.depth % kBlock == 0 && t->panel_f32.x_bytes && t->panel_f32.expand &&
                t->panel_f32.multiply);
    EXPECT_TRUE(t->quantize_int8 && t->rms_norm && t->layer_norm && t->rope && t->activate && t->gate && t->softmax);
    EXPECT_TRUE(t->softcap && t->add && t->scale && t->log_sum_exp && t->attention);
  }
}

// A weak symbol in an AVX-512 object may be the copy that the linker keeps for the whole program, also on an old CPU.
TEST(KernelObjects, ExportTheirTableAndNothingElse) {
  std::stringstream objects(kKernelObjects);
  int seen = 0;
  for (std::string object; std::getline(objects, object, ';');) {
    std::string folder;
    for (const std::string_view target : {"avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_dot", "neon_i8mm", "neon_bf16"})
      if (object.find("/kernels/" + std::string(target) + "/") != std::string::npos) folder = target;
    if (folder.empty()) continue;
    FILE* pipe = popen((std::string(kNm) + " --defined-only --extern-only '" + object + "'").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string text;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
    ASSERT_EQ(pclose(pipe), 0) << kNm << " could not read " << object;
    std::stringstream lines(text);
    int symbols = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("_asan") != std::string::npos) continue;  // address sanitizer's notes
      EXPECT_NE(line.find("Table"), std::string::npos) << object << " exports " << line;
      ++symbols;
    }
    EXPECT_EQ(symbols, 1) << object;
    ++seen;
  }
#if defined(VITRINE_X86) || defined(VITRINE_ARM)
  EXPECT_GT(seen, 0) << "no objects found among " << kKernelObjects;
#endif
}

}  // namespace
}  // namespace vitrine
