// What a dry run says of a model, held to runs.
#include "model/record.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/json.h"
#include "model/load.h"
#include "ops/recorder.h"
#include "ops/tape.h"
#include "support/golden.h"

namespace vitrine {
namespace {

std::vector<int32_t> tokens_of(int64_t n, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((7 * i + 3) % vocab_size));
  return tokens;
}

class RecordOfModel : public testing::TestWithParam<std::string> {
 protected:
  RecordOfModel() : opened_(open_model(Golden::open(GetParam()).model())), model_(*opened_.model) {}
  OpenedModel opened_;
  const Model& model_;
};

// The lists of names and shapes at 5 tokens were made by `vitrine trace --hooks '*' --json` before there were dry runs.
TEST_P(RecordOfModel, HasTheHooksOfItsList) {
  std::ifstream file(std::string(VITRINE_GOLDEN) + "/hooks/lists/" + GetParam() + ".json");
  const Json list = Json::parse(file);
  std::vector<std::string> names;
  for (const HookShape& hook : model_.record().hooks) names.push_back(hook.name);
  EXPECT_EQ(names, list.at("names").get<std::vector<std::string>>());
  for (const HookShape& hook : model_.record().hooks)
    EXPECT_EQ(hook.of(5), list.at("shapes").at(hook.name).get<std::vector<int64_t>>()) << hook.name;
}

TEST_P(RecordOfModel, NeedsNoWeights) {
  const std::unique_ptr<Model> bare = model_from_config(resolve_model(Golden::open(GetParam()).model()));
  const StepRecord mine = record_step(model_, {.rows = 4}), theirs = record_step(*bare, {.rows = 4});
  ASSERT_EQ(mine.ops.size(), theirs.ops.size());
  for (size_t i = 0; i < mine.ops.size(); ++i) {
    EXPECT_EQ(mine.ops[i].op, theirs.ops[i].op);
    EXPECT_EQ(mine.ops[i].name, theirs.ops[i].name);
    EXPECT_EQ(mine.ops[i].multiply_adds, theirs.ops[i].multiply_adds);
    EXPECT_EQ(mine.ops[i].weights.size(), theirs.ops[i].weights.size());
    EXPECT_EQ(mine.ops[i].vectors.size(), theirs.ops[i].vectors.size());
  }
  EXPECT_EQ(model_.hook_names(), bare->hook_names());
}

// Every weight of the model is read by an op, and no other.
TEST_P(RecordOfModel, ReadsEveryWeight) {
  const StepRecord record = record_step(model_, {.rows = 3});
  std::set<const void*> read;
  for (const OpRecord& op : record.ops) {
    for (const Weight* w : op.weights) read.insert(w);
    for (const Vector* v : op.vectors) read.insert(v);
  }
  for (const TensorLine& line : model_.tensors()) {
    const void* const place = line.weight != nullptr ? static_cast<const void*>(line.weight) : line.vector;
    if (line.layout.constant || line.out.size == 1) continue;  // a number that is not an op's weight
    if (line.ours == "W_pos_unread") continue;                 // rows of OPT's table that no position reads
    EXPECT_TRUE(read.contains(place)) << line.ours;
  }
}

// An op's inputs come from ops before it.
TEST_P(RecordOfModel, OpsAreJoinedByTheirValues) {
  const StepRecord record = record_step(model_, {.rows = 3});
  std::set<int> made;
  for (const OpRecord& op : record.ops) {
    for (const ValueRecord& input : op.inputs) EXPECT_TRUE(made.contains(input.number)) << op.op << " in " << op.name;
    for (const ValueRecord& output : op.outputs) made.insert(output.number);
  }
}

// The arena's peak is that of the run itself, to the byte, where no numbers decide what is made (as the choice of experts does).
TEST_P(RecordOfModel, PeaksWhereARunDoes) {
  ThreadPool pool(2);
  for (const int64_t rows : {int64_t{1}, int64_t{5}, int64_t{40}}) {
    if (model_.shape().context_length > 0 && rows > model_.shape().context_length) continue;
    Context ctx(pool);
    KvCache cache(model_.cache_layers(), rows, rows);
    CacheSequence sequence = cache.sequence();
    Step step;
    step.add(tokens_of(rows, model_.shape().vocab_size), &sequence);
    const Tensor x = model_.residual(ctx, step);
    const int64_t last = rows - 1;
    logits(ctx, x, model_.head(), {&last, 1});
    const StepRecord record = record_step(model_, {.rows = rows, .cached = true, .threads = 2});
    const auto peak = static_cast<double>(ctx.arena().peak());
    const bool routed = std::any_of(model_.record().layers.begin(), model_.record().layers.end(),
                                    [](const LayerRecord& layer) { return layer.experts.has_value(); });
    EXPECT_NEAR(static_cast<double>(record.peak_bytes), peak, routed ? 0.1 * peak : 0) << rows << " rows";
  }
}

TEST_P(RecordOfModel, KeepsOnATapeWhatARunKeeps) {
  ThreadPool pool(1);
  Context ctx(pool);
  Tape tape;
  ctx.record_on(&tape);
  const std::vector<int32_t> tokens = tokens_of(5, model_.shape().vocab_size);
  const Step step = Step::of(tokens);
  const Tensor x = model_.residual(ctx, step);
  const int64_t last = 4;
  logits(ctx, x, model_.head(), {&last, 1});
  EXPECT_EQ(record_step(model_, {.rows = 5, .tape = true}).kept_bytes, static_cast<int64_t>(tape.arena().mark()));
}

// Of a step behind others, attention meets as many keys more.
TEST_P(RecordOfModel, CountsTheKeysBeforeAStep) {
  if (model_.shape().context_length > 0 && model_.shape().context_length < 12) GTEST_SKIP();
  const auto scores = [](const StepRecord& record) {
    int64_t n = 0;
    for (const OpRecord& op : record.ops)
      if (op.op == "attention") n += op.multiply_adds;
    return n;
  };
  int64_t expected = 0;
  for (int64_t number = 0; number < model_.shape().n_layers; ++number) {
    const LayerRecord& layer = model_.layer(number);
    if (!layer.has_attention()) continue;
    const int64_t seen = 11 - first_seen(layer.attention, 10);
    const int64_t v_dim = model_.record().hook("blocks." + std::to_string(number) + ".attn.hook_z")->sizes.back();
    expected += seen * model_.shape().n_heads * (layer.head_dim + v_dim);
  }
  EXPECT_EQ(scores(record_step(model_, {.rows = 1, .position = 10, .cached = true})), expected);
}

INSTANTIATE_TEST_SUITE_P(Golden, RecordOfModel, testing::ValuesIn(Golden::all()), [](const auto& model) { return model.param; });

}  // namespace
}  // namespace vitrine
