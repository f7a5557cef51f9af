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

}  // namespace
}  // namespace vitrine
