// Several listeners at one hook: who sees what, and what flows on.
#include "ops/listener_chain.h"

#include <gtest/gtest.h>

#include "ops/elementwise.h"

namespace vitrine {
namespace {

class Doubler final : public Listener {
 public:
  bool wants(std::string_view name) const override { return name == "a"; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override { return scale(ctx, value, 2); }
};

class Witness final : public Listener {
 public:
  std::vector<float> seen, gradients;
  bool wants(std::string_view) const override { return true; }
  Tensor see(Context&, std::string_view, const Tensor& value) override {
    seen.push_back(*value.data<float>());
    return {};
  }
  bool takes() const override { return true; }
  bool wants_gradient(std::string_view name) const override { return name == "b"; }
  void see_gradient(std::string_view, const Tensor& gradient) override { gradients.push_back(*gradient.data<float>()); }
};

TEST(ListenerChain, EachSeesWhatThoseBeforeItPutThere) {
  ThreadPool pool(1);
  Context ctx(pool);
  const auto frame = ctx.frame();
  const Tensor three = ctx.empty({1, 1});
  *three.data<float>() = 3;
  Doubler doubler;
  Witness first, last;
  ListenerChain chain({&first, &doubler, nullptr, &doubler, &last});
  const Tensor changed = chain.see(ctx, "a", three);
  ASSERT_TRUE(changed);
  EXPECT_EQ(*changed.data<float>(), 12);  // what the last change was, though the last listener made none
  EXPECT_FALSE(chain.see(ctx, "b", three));
  EXPECT_EQ(first.seen, (std::vector<float>{3, 3}));
  EXPECT_EQ(last.seen, (std::vector<float>{12, 3}));
  EXPECT_EQ(*three.data<float>(), 3);
}

TEST(ListenerChain, WantsWhatAnyOfThemWants) {
  Doubler doubler;
  Witness witness;
  EXPECT_TRUE(ListenerChain({&doubler}).wants("a"));
  EXPECT_FALSE(ListenerChain({&doubler}).wants("b"));
  EXPECT_TRUE(ListenerChain({&doubler, &witness}).wants("b"));
  EXPECT_FALSE(ListenerChain({nullptr}).wants("a"));
  EXPECT_TRUE(ListenerChain({&doubler, &witness}).takes());
  EXPECT_FALSE(ListenerChain({&witness, &doubler}).takes());  // others see it afterwards
}

TEST(ListenerChain, ShowsGradientsToThoseThatWantThem) {
  ThreadPool pool(1);
  Context ctx(pool);
  const auto frame = ctx.frame();
  const Tensor gradient = ctx.empty({1, 1});
  *gradient.data<float>() = 5;
  Doubler doubler;
  Witness witness;
  ListenerChain chain({&witness, &doubler});
  EXPECT_FALSE(chain.wants_gradient("a"));
  ASSERT_TRUE(chain.wants_gradient("b"));
  chain.see_gradient("b", gradient);
  EXPECT_EQ(witness.gradients, std::vector<float>{5});
}

}  // namespace
}  // namespace vitrine
