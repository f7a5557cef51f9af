// What a request for hooks means, and that sizes are known before the run.
#include "hooks/hooks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hooks/trace.h"
#include "model/abilities.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::vector<Capture> plan(const Engine& engine, const std::vector<std::string>& requests, int64_t rows) {
  std::vector<HookQuery> queries;
  for (const std::string& request : requests) queries.push_back(parse_hook_query(request));
  return plan_captures(engine.model(), queries, rows);
}

std::vector<std::string> names(const std::vector<Capture>& captures) {
  std::vector<std::string> result;
  for (const Capture& capture : captures) result.push_back(capture.name);
  return result;
}

class HooksOfEveryFamily : public testing::TestWithParam<std::string> {
 protected:
  HooksOfEveryFamily() : engine(Golden::open(GetParam()).model(), {2, {}}) {}
  Engine engine;
};

TEST_P(HooksOfEveryFamily, ShapesAreKnownBeforeTheRun) {
  for (const int64_t rows : {1, 5, 13}) {
    const std::vector<int32_t> ids(static_cast<size_t>(rows), 7);
    for (const char* request : {"*", "*[heads=1:3]", "*[positions=-1]", "*[heads=0,positions=0:1]"}) {
      if ((engine.shape().n_kv_heads == 1 || GetParam() == "gemma4_moe") && std::string(request).find("1:3") != std::string::npos)
        continue;  // one key/value head
      if (!has_attention(engine.model()) && std::string(request).find("heads") != std::string::npos) continue;
      SCOPED_TRACE(std::string(request) + " at " + std::to_string(rows));
      const std::vector<std::string> requests = {request};
      const std::vector<Capture> captures = plan(engine, requests, rows);
      const Recorder seen = trace_to_memory(engine, ids, requests);
      EXPECT_EQ(names(captures), engine.model().hook_names());
      ASSERT_EQ(seen.values().size(), captures.size());
      size_t bytes = 0;
      for (const Capture& capture : captures) {
        const Recorder::Value& value = seen.values().at(capture.name);
        EXPECT_EQ(capture.shape, value.shape) << capture.name;
        bytes += value.values.size() * sizeof(float);
      }
      EXPECT_EQ(capture_bytes(captures), bytes);
    }
  }
}

TEST_P(HooksOfEveryFamily, TakenValuesEqualCopiedOnes) {
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2, 4};
  const std::vector<std::string> whole = {"*"}, sliced = {"*[positions=0:1000]"};  // a slice is copied at once
  const Recorder taken = trace_to_memory(engine, ids, whole), copied = trace_to_memory(engine, ids, sliced);
  ASSERT_TRUE(taken.takes());
  ASSERT_FALSE(copied.takes());
  ASSERT_EQ(taken.order(), copied.order());
  for (const auto& [name, value] : taken.values()) {
    EXPECT_EQ(value.shape, copied.values().at(name).shape) << name;
    EXPECT_EQ(value.values, copied.values().at(name).values) << name;
  }
}

TEST_P(HooksOfEveryFamily, SlicesAreThatPartOfTheWhole) {
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2};
  int64_t layer = 0;
  while (layer < engine.shape().n_layers && !engine.model().layer(layer).has_attention()) ++layer;
  if (layer == engine.shape().n_layers) GTEST_SKIP() << "no layer has attention";
  const std::string l = std::to_string(layer), block = "blocks." + l + ".";
  const std::vector<std::string> whole = {"pattern." + l, "q." + l, "resid_post." + l};
  const std::vector<std::string> sliced = {"pattern." + l + "[heads=1:3,positions=-2:]", "q." + l + "[heads=-1,positions=1]",
                                           "resid_post." + l + "[positions=2:4]"};
  const Recorder all = trace_to_memory(engine, ids, whole), some = trace_to_memory(engine, ids, sliced);
  const auto part = [&](const std::string& name, const std::vector<std::pair<int64_t, int64_t>>& cuts) {
    const Recorder::Value& value = all.values().at(name);
    FloatVector numbers;
    const int64_t a = value.shape[0], b = value.shape[1], rest = static_cast<int64_t>(value.values.size()) / (a * b);
    for (int64_t i = cuts[0].first; i < cuts[0].second; ++i)
      for (int64_t j = cuts[1].first; j < cuts[1].second; ++j)
        for (int64_t k = 0; k < rest; ++k) numbers.push_back(value.values[static_cast<size_t>((i * b + j) * rest + k)]);
    return numbers;
  };
  const ModelShape s = engine.shape();
  EXPECT_EQ(some.values().at(block + "attn.hook_pattern").values,
            part(block + "attn.hook_pattern", {{1, std::min<int64_t>(3, s.n_heads)}, {4, 6}}));
  EXPECT_EQ(some.values().at(block + "attn.hook_q").values, part(block + "attn.hook_q", {{1, 2}, {s.n_heads - 1, s.n_heads}}));
  EXPECT_EQ(some.values().at(block + "hook_resid_post").values, part(block + "hook_resid_post", {{2, 4}, {0, s.d_model}}));
}

INSTANTIATE_TEST_SUITE_P(Golden, HooksOfEveryFamily, testing::ValuesIn(Golden::all()),
                         [](const auto& test) { return test.param; });

TEST(HookNames, OfLayersWithoutAttentionAreNotProposed) {
  Engine engine(Golden::open("lfm2").model(), {1, {}});
  const std::vector<int32_t> ids = {5, 3};
  const std::vector<std::string> pattern = {"pattern.0"};
  EXPECT_CONTAINS(message_of<InputError>([&] { trace_to_memory(engine, ids, pattern); }),
                  "fits \"pattern.0\". Did you mean \"blocks.*.attn.hook_pattern\"?");
}

TEST(HookQuery, ReadsPatternsAndSlices) {
  const HookQuery q = parse_hook_query("blocks.*.attn.hook_pattern[heads=0:2,positions=-1]");
  EXPECT_EQ(q.glob, "blocks.*.attn.hook_pattern");
  EXPECT_EQ(*q.heads->first, 0);
  EXPECT_EQ(*q.heads->end, 2);
  EXPECT_FALSE(q.heads->single);
  EXPECT_EQ(*q.positions->first, -1);
  EXPECT_TRUE(q.positions->single);
  EXPECT_FALSE(parse_hook_query("*[positions=:4]").positions->first.has_value());
  EXPECT_FALSE(parse_hook_query("*[positions=-4:]").positions->end.has_value());
}

TEST(HookQuery, RefusesWhatItCannotRead) {
  const auto refused = [](const char* text) { return message_of<InputError>([&] { parse_hook_query(text); }); };
  EXPECT_CONTAINS(refused("*[heads=0"), "has a [ without its ]");
  EXPECT_CONTAINS(refused("*[layers=0]"), "\"layers=0\"");
  EXPECT_CONTAINS(refused("*[heads]"), "\"heads\"");
  EXPECT_CONTAINS(refused("*[]"), "neither heads=SLICE nor positions=SLICE");
  EXPECT_CONTAINS(refused("*[heads=a:b]"), "slice \"a:b\"");
  EXPECT_CONTAINS(refused("*[heads=0:2:3]"), "slice \"0:2:3\"");
  EXPECT_CONTAINS(refused("*[heads=99999999999999999999]"), "neither an index nor a range");
  EXPECT_CONTAINS(refused("*[heads=1,heads=2]"), "names heads twice");
  EXPECT_CONTAINS(refused("[heads=1]"), "has no name");
  EXPECT_CONTAINS(refused(""), "expected PATTERN");
}

TEST(HookAlias, NamesOfTheWalkThroughAndOfTransformerLens) {
  Engine engine(Golden::open("gpt2_a").model(), {1, {}});
  const std::pair<const char*, const char*> aliases[] = {{"residual.1", "blocks.1.hook_resid_pre"},
                                                         {"normalized_resid_pre.1", "blocks.1.ln1.hook_normalized"},
                                                         {"attn_out.1", "blocks.1.hook_attn_out"},
                                                         {"resid_mid.1", "blocks.1.hook_resid_mid"},
                                                         {"normalized_resid_mid.1", "blocks.1.ln2.hook_normalized"},
                                                         {"mlp_out.1", "blocks.1.hook_mlp_out"},
                                                         {"normalized_resid_final", "ln_final.hook_normalized"},
                                                         {"unembed.hook_out", "hook_logits"},
                                                         {"logits", "hook_logits"},
                                                         {"pattern1", "blocks.1.attn.hook_pattern"},
                                                         {"k1", "blocks.1.attn.hook_k"},
                                                         {"embeddings", "hook_embed"},  // interp-engine's
                                                         {"attn_probs.1", "blocks.1.attn.hook_pattern"},
                                                         {"mlp_act.0", "blocks.0.mlp.hook_post"},
                                                         {"lm_head", "hook_logits"},
                                                         {"pos_embed", "hook_pos_embed"}};
  for (const auto& [alias, name] : aliases) EXPECT_EQ(names(plan(engine, {alias}, 3)), std::vector<std::string>{name}) << alias;
  EXPECT_EQ(names(plan(engine, {"pattern"}, 3)).size(), static_cast<size_t>(engine.shape().n_layers));
  EXPECT_FALSE(hook_alias("embed.3").has_value());  // no hook of a layer
  EXPECT_FALSE(hook_alias("3").has_value());
  EXPECT_FALSE(hook_alias("").has_value());
}

// Routers, which TransformerLens names by the family's module.
TEST(HookAlias, NamesOfRouters) {
  Engine engine(Golden::open("mixtral").model(), {1, {}});
  const std::pair<const char*, const char*> aliases[] = {{"router_logits.1", "blocks.1.mlp.hook_router_logits"},
                                                         {"blocks.1.mlp.gate.hook_out", "blocks.1.mlp.hook_router_logits"},
                                                         {"blocks.0.mlp.router.hook_out", "blocks.0.mlp.hook_router_logits"},
                                                         {"expert_weights.0", "blocks.0.mlp.hook_expert_weights"},
                                                         {"expert_indices.1", "blocks.1.mlp.hook_expert_indices"},
                                                         {"expert_out.1", "blocks.1.mlp.hook_expert_out"}};
  for (const auto& [alias, name] : aliases) EXPECT_EQ(names(plan(engine, {alias}, 3)), std::vector<std::string>{name}) << alias;
  EXPECT_EQ(names(plan(engine, {"blocks.*.mlp.gate.hook_out"}, 3)).size(), 2u);
  EXPECT_FALSE(hook_alias("blocks.1.embed").has_value());
  Engine ungated(Golden::open("gpt2_a").model(), {1, {}});
  EXPECT_CONTAINS(message_of<InputError>([&] { plan(ungated, {"blocks.0.mlp.gate.hook_out"}, 3); }),
                  "no hook of this gpt2 model");
}

// TransformerLens 4's names by modules, whose meaning depends on the model.
TEST(HookAlias, NamesOfModules) {
  Engine ungated(Golden::open("gpt2_a").model(), {1, {}}), gated(Golden::open("llama").model(), {1, {}}),
      normed(Golden::open("gemma2").model(), {1, {}}), after(Golden::open("olmo2").model(), {1, {}});
  const auto one = [](Engine& engine, const char* alias) {
    const std::vector<std::string> found = names(plan(engine, {alias}, 3));
    return found.size() == 1 ? found.front() : std::to_string(found.size());
  };
  EXPECT_EQ(one(ungated, "blocks.1.mlp.in.hook_out"), "blocks.1.mlp.hook_pre");
  EXPECT_EQ(one(gated, "blocks.1.mlp.in.hook_out"), "blocks.1.mlp.hook_pre_linear");
  EXPECT_EQ(one(gated, "blocks.1.mlp.gate.hook_out"), "blocks.1.mlp.hook_pre");
  EXPECT_EQ(one(gated, "blocks.1.attn.q.hook_out"), "blocks.1.attn.hook_q");
  EXPECT_EQ(one(gated, "blocks.1.hook_in"), "blocks.1.hook_resid_pre");
  EXPECT_EQ(one(gated, "blocks.1.hook_out"), "blocks.1.hook_resid_post");
  EXPECT_EQ(one(gated, "blocks.1.mlp.hook_out"), "blocks.1.hook_mlp_out");
  const auto refused = [](Engine& engine, const char* alias) {
    return message_of<InputError>([&] { plan(engine, {alias}, 3); });
  };
  EXPECT_CONTAINS(refused(normed, "blocks.1.mlp.hook_out"), "no hook of this gemma2 model");  // a norm is between them
  EXPECT_CONTAINS(refused(after, "blocks.1.attn.hook_in"), "no hook of this olmo2 model");
  EXPECT_CONTAINS(refused(after, "blocks.1.ln1.hook_in"), "no hook of this olmo2 model");

  const std::vector<std::string> of_gated = gated.model().hook_names(), of_normed = normed.model().hook_names();
  EXPECT_EQ(hook_alias("blocks.1.mlp.gate.hook_out", of_gated), "blocks.1.mlp.hook_pre");
  EXPECT_EQ(hook_alias("blocks.1.mlp.hook_out", of_normed), std::nullopt);
  EXPECT_EQ(hook_alias("blocks.1.mlp.hook_post", of_gated), "blocks.1.mlp.hook_post");  // a name
  EXPECT_EQ(hook_alias("mlp_act", of_gated), "blocks.*.mlp.hook_post");
  EXPECT_EQ(hook_alias("mlp_act.1"), "blocks.1.mlp.hook_post");  // in every model
  for (const char* depends : {"blocks.1.mlp.gate.hook_out", "blocks.1.mlp.hook_out", "blocks.1.attn.hook_in"})
    EXPECT_EQ(hook_alias(depends), std::nullopt) << depends;
}

// A hook of the model is itself, also where its name is an alias in other models.
TEST(HookAlias, NamesOfTheModelComeFirst) {
  const std::vector<std::string> names = {"blocks.0.hook_resid_pre", "blocks.0.mlp.hook_out", "blocks.0.hook_mlp_out"};
  EXPECT_EQ(hook_alias("blocks.0.mlp.hook_out", names), "blocks.0.mlp.hook_out");
  EXPECT_EQ(hook_alias("blocks.0.mlp.hook_out", {"blocks.0.hook_mlp_out"}), "blocks.0.hook_mlp_out");
}

TEST(HookAlias, InputNormsAreNotThoseAfterTheSubLayer) {
  Engine before(Golden::open("classic_pre").model(), {1, {}}), after(Golden::open("classic_post").model(), {1, {}});
  EXPECT_EQ(names(plan(before, {"normalized_resid_pre.0"}, 3)), std::vector<std::string>{"blocks.0.ln1.hook_normalized"});
  EXPECT_CONTAINS(message_of<InputError>([&] { plan(after, {"normalized_resid_pre.0"}, 3); }), "no hook of this classic_decoder");
}

class Refusals : public testing::Test {
 protected:
  Engine engine{Golden::open("gemma2").model(), {1, {}}};
  std::string refused(const std::vector<std::string>& requests, int64_t rows = 6) {
    return message_of<InputError>([&] { plan(engine, requests, rows); });
  }
};

TEST_F(Refusals, UnknownNamesComeWithTheNearest) {
  EXPECT_CONTAINS(refused({"blocks.*.hook_residpost"}), "Did you mean \"blocks.*.hook_resid_post\"?");
  EXPECT_CONTAINS(refused({"blocks.2.attn.hook_patern"}), "Did you mean \"blocks.2.attn.hook_pattern\"?");
  EXPECT_CONTAINS(refused({"atn_out"}), "Did you mean \"attn_out\"?");
  EXPECT_CONTAINS(refused({"hook_logit"}), "\"hook_logits\"");
  EXPECT_CONTAINS(refused({"nonsense"}), "no hook of this gemma2 model fits \"nonsense\"");
  EXPECT_CONTAINS(refused({"nonsense"}), "vitrine info --hooks");
}

TEST_F(Refusals, LayersThatTheModelLacks) {
  EXPECT_CONTAINS(refused({"blocks.4.hook_resid_post"}),
                  "The model has 4 layers, 0 to 3. Did you mean \"blocks.*.hook_resid_post\"?");
  EXPECT_CONTAINS(refused({"pattern.12"}), "The model has 4 layers");
}

TEST_F(Refusals, SlicesThatSelectNothing) {
  EXPECT_CONTAINS(refused({"q.0[positions=6]"}), "selects one that does not exist: blocks.0.attn.hook_q has 6 positions, 0 to 5");
  EXPECT_CONTAINS(refused({"q.0[positions=-7]"}), "does not exist");
  EXPECT_CONTAINS(refused({"q.0[positions=4:2]"}), "selects nothing");
  EXPECT_CONTAINS(refused({"k.0[heads=2:4]"}), "selects nothing: blocks.0.attn.hook_k has 2 heads, 0 to 1");
  EXPECT_CONTAINS(refused({"resid_post.0[heads=0]"}), "asks for heads, and no hook that it fits has any");
}

TEST(HooksOfASequenceThatGrows, SlicesCountWithinWhatIsThereAndOpenOnesGrow) {
  const Engine engine(Golden::open("llama").model(), {2, {}});
  const auto range = [&](const std::string& slice, size_t axis) {
    const std::vector<HookQuery> queries = {parse_hook_query(slice)};
    const std::vector<Capture> captures = plan_captures(engine.model(), queries, 5, 3);
    const HookRequest::Range positions = captures.at(0).request.positions;
    if (axis < 2 && !captures[0].request.whole()) {  // keys stay whole
      EXPECT_EQ(captures[0].shape[axis], positions.end - positions.first);
    }
    return std::pair(captures[0].shape[axis], positions.first);
  };
  using Found = std::pair<int64_t, int64_t>;
  EXPECT_EQ(range("blocks.0.hook_resid_post", 0), Found(8, 0));
  EXPECT_EQ(range("blocks.0.hook_resid_post[positions=-1]", 0), Found(1, 4));
  EXPECT_EQ(range("blocks.0.hook_resid_post[positions=-2:]", 0), Found(5, 3));
  EXPECT_EQ(range("blocks.0.hook_resid_post[positions=:-1]", 0), Found(4, 0));
  EXPECT_EQ(range("blocks.0.attn.hook_pattern[positions=1:]", 1), Found(7, 1));
  EXPECT_EQ(range("blocks.0.attn.hook_pattern[positions=1:]", 2), Found(8, 1));
  EXPECT_THROW(range("blocks.0.hook_resid_post[positions=5]", 0), InputError);
}

TEST_F(Refusals, TwoSlicesOfOneHook) {
  EXPECT_CONTAINS(refused({"pattern", "pattern.0[heads=0]"}), "ask for different slices of blocks.0.attn.hook_pattern");
  EXPECT_EQ(plan(engine, {"pattern", "blocks.0.attn.hook_pattern"}, 6).size(), 4u);  // the same twice is once
}

TEST(AvailableMemory, IsWhatTheSystemSays) {
  EXPECT_GT(available_memory(), size_t{1} << 20);
  EXPECT_LT(available_memory(), size_t{1} << 50);
}

}  // namespace
}  // namespace vitrine
