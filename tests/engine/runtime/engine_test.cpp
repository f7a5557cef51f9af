#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Puts NaN into the embedding at one position.
class NanAt final : public Listener {
 public:
  explicit NanAt(int64_t position) : position_(position) {}
  bool wants(std::string_view hook) const override { return hook == "hook_embed"; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const int64_t row = position_ - ctx.listening_position();
    if (row < 0 || row >= value.rows()) return {};
    const Tensor changed = ctx.empty(value.shape());
    std::copy(value.data<float>(), value.data<float>() + value.count(), changed.data<float>());
    changed.row<float>(row)[0] = std::numeric_limits<float>::quiet_NaN();
    return changed;
  }

 private:
  int64_t position_;
};

// Also where a window keeps it from the last row, and in chunks of a prompt that are long gone when the logits come.
TEST(EngineTest, NamesWhereNanBegins) {
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(50));
  Engine engine(folder.path(), {2, {}});
  std::vector<int32_t> ids(3 * static_cast<size_t>(kPrefillChunk) - 7);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 50);
  for (const size_t length : {size_t{20}, ids.size()}) {
    for (const bool all : {false, true}) {
      NanAt nan(13);
      engine.context().listen(&nan);
      const std::string message = message_of<RunError>([&] { engine.predict(std::span(ids).first(length), 1, all); });
      engine.context().listen(nullptr);
      EXPECT_CONTAINS(message, "NaN or infinity appeared first in hook_embed at position 13 (token 13)");
    }
  }
}

std::string shipped() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }  // bf16

TEST(EngineTest, CachesForWritingAreNarrowWhereWeightsAre) {
  const CacheTypes wide = {}, narrow = {DType::f16, DType::f16};
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(50));
  const auto types = [](const std::string& model, const EngineOptions& options) {
    const Engine engine(model, options);
    EXPECT_EQ(engine.cache_types(), options.cache);  // of scores
    return engine.decoding_types();
  };
  EXPECT_EQ(types(shipped(), {.decode_narrow = true}), narrow);
  EXPECT_EQ(types(shipped(), {.numerics = {.f32 = true}, .decode_narrow = true}), wide);
  EXPECT_EQ(types(shipped(), {.numerics = {.exact = true}, .decode_narrow = true}), wide);
  EXPECT_EQ(types(folder.path(), {.decode_narrow = true}), wide);
  EXPECT_EQ(types(shipped(), {}), wide);
  EXPECT_EQ(types(shipped(), {.cache = {DType::q8_0, DType::f32}}), (CacheTypes{DType::q8_0, DType::f32}));
}

// Decodes for a while: the copy begins and ends meanwhile.
std::vector<std::vector<float>> decoded(Engine& engine, int steps) {
  const auto cache = engine.decoding_cache(steps);
  CacheSequence sequence = cache->sequence();
  std::vector<std::vector<float>> all;
  for (int32_t token = 1; token <= steps; ++token) {
    Step step;
    step.add(std::span(&token, 1), &sequence);
    const int64_t row = 0;
    const auto frame = engine.context().frame();
    const Tensor z = engine.run(step, std::span(&row, 1));
    all.emplace_back(z.data<float>(), z.data<float>() + z.count());
    step.commit();
  }
  return all;
}

TEST(EngineTest, NoBitChangesWhileWeightsMoveToHugePages) {
  constexpr int kSteps = 80;
  Engine mapped(shipped(), {.threads = 2, .load = Load::map}), copied(shipped(), {.threads = 2, .load = Load::copy}),
      automatic(shipped(), {.threads = 2, .load = Load::automatic});
  const auto expected = decoded(mapped, kSteps);
  EXPECT_EQ(decoded(copied, kSteps), expected);
  EXPECT_EQ(decoded(automatic, kSteps), expected);
  EXPECT_EQ(mapped.huge_bytes(), 0u);
  if (map_huge_pages(1).empty()) GTEST_SKIP() << "this system has no huge pages";
  for (Engine* engine : {&copied, &automatic}) {
    engine->wait_for_copy();
    EXPECT_GT(engine->huge_bytes(), size_t{10} << 20);
  }
}

TEST(EngineTest, RefusesAnotherWordForLoad) {
  EXPECT_EQ(load_named("auto"), Load::automatic);
  EXPECT_CONTAINS(message_of<UsageError>([] { load_named("mlock"); }), "--load is \"mlock\"; expected map, copy or auto");
}

}  // namespace
}  // namespace vitrine
