// How steps fall to threads: the plan counts what the ops record, and published shapes are cut evenly.
#include "model/thread_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "model/load.h"
#include "support/golden.h"

namespace vitrine {
namespace {

std::unique_ptr<Model> model_of(const std::string& config) {
  return model_from_config(resolve_model(std::string(VITRINE_GOLDEN) + "/configs/" + config + ".json"));
}

int64_t bytes_of_weights(const OpRecord& op) {
  int64_t bytes = op.bytes_read;
  for (const Vector* v : op.vectors) bytes -= static_cast<int64_t>(row_bytes(v->dtype, static_cast<size_t>(v->size)));
  return bytes;
}

// Every product's bytes and multiply-adds are in a chunk, once.
TEST(ThreadPlan, ChunksHaveWhatTheirOpsHave) {
  for (const char* config : {"smollm3-3b", "gpt2", "qwen3-30b-a3b", "gpt-oss-20b", "gemma-2-2b"}) {
    const std::unique_ptr<Model> model = model_of(config);
    for (const int64_t rows : {1, 5, 48}) {
      const StepRecord step = record_step(*model, {.rows = rows, .position = 300, .cached = true, .threads = 6, .regions = true});
      int products = 0;
      for (const OpRecord& op : step.ops) {
        TaskCost sum;
        for (const RegionRecord& region : op.regions) sum = sum + region.total();
        if (op.op == "attention") {  // of several rows blocks of them see the keys of each
          EXPECT_GE(sum.multiply_adds, op.multiply_adds) << config;
          if (rows == 1) {
            EXPECT_EQ(sum.multiply_adds, op.multiply_adds) << config;
          }
          continue;
        }
        if (op.multiply_adds == 0) continue;
        ++products;
        EXPECT_EQ(sum.multiply_adds, op.multiply_adds) << config << ' ' << op.op << ' ' << rows;
        EXPECT_EQ(sum.bytes, bytes_of_weights(op)) << config << ' ' << op.op << ' ' << rows;
      }
      EXPECT_GE(products, 3 * model->shape().n_layers) << config;
    }
  }
}

TEST(ThreadPlan, SharesOfThreadsAddUp) {
  const std::unique_ptr<Model> model = model_of("smollm3-3b");
  const ThreadPlan plan = plan_threads(*model, {.position = 512, .cached = true, .threads = 12});
  ASSERT_EQ(plan.by_thread.size(), 12u);
  TaskCost sum;
  for (const TaskCost& share : plan.by_thread) sum = sum + share;
  EXPECT_EQ(sum.bytes, plan.total().bytes);
  EXPECT_EQ(sum.multiply_adds, plan.total().multiply_adds);
  // Queries, keys and values; attention; their output; gate and input; output: five regions a layer, and the head.
  EXPECT_EQ(std::ssize(plan.regions), 5 * model->shape().n_layers + 1);
  EXPECT_EQ(plan.regions[0].weights, (std::vector<std::string>{"W_Q", "W_K", "W_V"}));
  const ThreadPlan alone = plan_threads(*model, {.position = 512, .cached = true, .threads = 1});
  EXPECT_TRUE(alone.regions.empty());
  EXPECT_EQ(alone.serial.bytes, plan.total().bytes + plan.serial.bytes);
}

// A mixture of experts enters the pool as often as a dense model: its experts share regions.
TEST(ThreadPlan, ExpertsShareRegions) {
  const std::unique_ptr<Model> model = model_of("qwen3-30b-a3b");
  const ThreadPlan plan = plan_threads(*model, {.position = 512, .cached = true, .threads = 8});
  EXPECT_LE(std::ssize(plan.regions), 6 * model->shape().n_layers + 1);
}

// The largest shares of all regions of a decode step, over even ones. With cached positions attention is less even: a block of
// 256 keys of one head is one chunk.
TEST(ThreadPlan, DecodeOfPublishedShapesIsEvenToSixtyFourThreads) {
  struct Shape {
    const char* config;
    double most;  // at 64 threads and below
  };
  constexpr Shape kShapes[] = {{"lfm2-1.2b", 1.13},  {"smollm3-3b", 1.12},    {"llama-3.1-8b", 1.1}, {"gemma-2-9b", 1.1},
                               {"gemma-2-27b", 1.1}, {"glm-4-32b-0414", 1.1}, {"qwen3-30b-a3b", 1.1}};
  for (const Shape& shape : kShapes)
    for (const DType type : {DType::q4_0, DType::bf16}) {
      const std::unique_ptr<Model> model = model_of(shape.config);
      set_weight_types(*model, type);
      for (const int threads : {3, 16, 48, 62, 64}) {
        const ThreadPlan plan = plan_threads(*model, {.position = 0, .cached = true, .threads = threads});
        EXPECT_LE(plan.byte_imbalance(), shape.most) << shape.config << ' ' << name_of(type) << " on " << threads;
        EXPECT_GE(plan.byte_imbalance(), 1.0);
      }
    }
}

// Products of few rows are cut finer for more threads, which no output's bits depend on.
TEST(ThreadPlan, RegionsAndTheirCostsAreTheSameForAnyNumberOfThreads) {
  const std::unique_ptr<Model> model = model_of("qwen3-30b-a3b");
  const auto regions = [&](int threads) {
    std::vector<RegionRecord> all;
    for (const OpRecord& op : record_step(*model, {.cached = true, .threads = threads, .regions = true}).ops)
      all.insert(all.end(), op.regions.begin(), op.regions.end());
    return all;
  };
  const std::vector<RegionRecord> two = regions(2), many = regions(64);
  ASSERT_EQ(two.size(), many.size());
  int finer = 0;
  for (size_t i = 0; i < two.size(); ++i) {
    EXPECT_LE(two[i].tasks(), many[i].tasks());
    EXPECT_EQ(two[i].total().bytes, many[i].total().bytes);
    EXPECT_EQ(two[i].total().multiply_adds, many[i].total().multiply_adds);
    finer += two[i].tasks() < many[i].tasks();
  }
  EXPECT_GT(finer, 0);
}

// Every byte of a dense model's matrices has one reader, by address, and neighbors have neighbors.
TEST(ThreadPlan, EveryByteHasAReader) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  constexpr int kThreads = 4;
  const std::vector<ReadPiece> pieces = read_pieces(*opened.model, {}, kThreads);
  for (const TensorLine& line : opened.model->tensors()) {
    if (line.weight == nullptr || line.ours == "W_E") continue;
    const std::byte* at = line.weight->data;
    const std::byte* const end = at + line.weight->bytes();
    int thread = 0;
    while (at < end) {
      const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const ReadPiece& p) { return p.data == at; });
      ASSERT_NE(piece, pieces.end()) << line.ours;
      EXPECT_GE(piece->thread, thread);
      thread = piece->thread;
      at += piece->bytes;
    }
    EXPECT_EQ(at, end) << line.ours;
  }
}

TEST(ThreadPlan, UnknownTypesAreRefused) {
  EXPECT_EQ(weight_type_named("q6_k", "--weights"), DType::q6_k);
  try {
    weight_type_named("q9", "--weights");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "--weights is \"q9\"; expected a type of weights such as bf16 or q4_0");
  }
}

}  // namespace
}  // namespace vitrine
