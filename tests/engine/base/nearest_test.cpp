#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

using namespace vitrine;

namespace {

const std::array<std::string, 7> kKeys = {"ema", "mlp", "eval_batches", "eval_every", "validation", "optimizer", "out"};

TEST(Nearest, ASlipIsMeant) {
  EXPECT_EQ(meant_by("optimizer", kKeys), "optimizer");
  EXPECT_EQ(meant_by("evalevery", kKeys), "eval_every");
  EXPECT_EQ(meant_by("mpl", kKeys), "mlp");
}

TEST(Nearest, TheBeginningOfAWordIsMeant) {
  EXPECT_EQ(meant_by("eval", kKeys), "eval_batches");  // and not "ema"
  EXPECT_EQ(meant_by("valid", kKeys), "validation");
}

// A word that other programs know is no slip of a short name of ours.
TEST(Nearest, WhatIsFarIsNot) {
  const std::array<std::string, 6> commands = {"sae", "info", "serve", "warp", "trace", "compare"};
  for (const char* word : {"run", "list", "ps", "show", "create", "complete", "help", "embed"})
    EXPECT_EQ(meant_by(word, commands), "") << word;
  EXPECT_EQ(meant_by("sevre", commands), "serve");  // two letters swapped
  EXPECT_EQ(meant_by("trcae", commands), "trace");
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(meant_by("op", kKeys), "");  // two letters begin too much
  EXPECT_EQ(meant_by("fp16", kKeys), "");
  EXPECT_EQ(meant_by("", kKeys), "");
}

// The time of a comparison grows with the product of the sizes: these would take hours.
TEST(Nearest, OnlyTheBeginningOfALongWordIsCompared) {
  const std::vector<std::string> candidates(1000, std::string(1000, 'x') + "y");
  EXPECT_EQ(nearest(std::string(16 << 20, 'x'), candidates), candidates[0]);
  EXPECT_EQ(edit_distance(std::string(16 << 20, 'x'), std::string(16 << 20, 'y')), 256u);
  EXPECT_EQ(meant_by(std::string(16 << 20, 'x'), candidates), "");
}

}  // namespace
