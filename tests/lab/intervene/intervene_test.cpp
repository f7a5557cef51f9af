// Interventions against transformers with PyTorch hooks, grids against TransformerLens, and what must hold for any edit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "hooks/trace.h"
#include "intervene/run.h"
#include "io/safetensors.h"
#include "ops/elementwise.h"
#include "ops/gradients.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/intervene/";
const std::vector<int32_t> kClean = {5, 33, 7, 120, 11, 2, 40, 300, 17, 9, 64};
const std::vector<int32_t> kCorrupt = {5, 33, 8, 121, 11, 2, 41, 300, 18, 9, 64};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

Recipe parse(const std::string& text) { return recipe_of(YamlValue::parse(text, "r.yaml"), "r.yaml"); }

// The ids, brought into the vocabulary of a model that has fewer.
std::vector<int32_t> fitted(std::vector<int32_t> ids, int64_t vocab_size) {
  for (int32_t& id : ids) id = static_cast<int32_t>(id % vocab_size);
  return ids;
}

std::string prompts_yaml(int64_t vocab_size = INT32_MAX) {
  const auto list = [&](const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : fitted(ids, vocab_size)) text += (text.empty() ? "" : ", ") + std::to_string(id);
    return "{tokens: [" + text + "]}\n";
  };
  return "prompt: " + list(kClean) + "corrupt: " + list(kCorrupt);
}

// log p of every token after each position.
std::vector<float> logprobs(const std::vector<Prediction>& predictions, size_t vocab) {
  std::vector<float> result(predictions.size() * vocab);
  for (size_t i = 0; i < predictions.size(); ++i)
    for (const TokenLogprob& entry : predictions[i].top) result[i * vocab + static_cast<size_t>(entry.token)] = entry.logprob;
  return result;
}

std::vector<std::string> recipe_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + folder)) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of(const std::string& name) {
  return name.find("_q") != std::string::npos ? std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"
                                              : Golden::open(name).model();
}

class InterventionsGolden : public testing::TestWithParam<std::string> {
 protected:
  std::string name = GetParam().substr(0, GetParam().find("_q"));  // of the model whose weights these are, perhaps quantized
  Golden gold = Golden::open(name);
  Engine engine{path_of(GetParam()), {2, {.f32 = true}}};
  Checkpoint expected = open_safetensors(kFolder + GetParam() + ".safetensors");
  size_t vocab = static_cast<size_t>(engine.shape().vocab_size);

  Recipe recipe(const std::string& file) const {
    std::string text = read_file(kFolder + file + ".yaml");
    text = replaced(text, "VECTORS", kFolder + "vectors.safetensors");
    return parse(replaced(text, "MODEL", name));
  }
};

TEST_P(InterventionsGolden, LogprobsAreThoseOfTransformersWithHooks) {
  const std::vector<std::string> names = recipe_names("recipes");
  ASSERT_GE(names.size(), 18u);
  for (const std::string& test : names) {
    SCOPED_TRACE(test);
    const InterveneResult result =
        intervene(engine, recipe("recipes/" + test), {.top = static_cast<int64_t>(vocab), .all_positions = true});
    ASSERT_EQ(result.after.size(), kClean.size());
    const std::vector<float> all = logprobs(result.after, vocab), plain = logprobs(result.before, vocab);
    const GoldenTensor want = golden_tensor(expected, test), unedited = golden_tensor(expected, "plain");
    const std::vector<float> last(all.end() - static_cast<std::ptrdiff_t>(3 * vocab), all.end());
    const std::vector<float> last_plain(plain.end() - static_cast<std::ptrdiff_t>(3 * vocab), plain.end());
    // A log-probability is a logit less the logarithm of a sum over logits: twice their tolerance, relative to the largest.
    float largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(value));
    const Tolerance tolerance{.abs = 2 * gold.tolerance().abs + 2e-6 * static_cast<double>(largest), .rel = 1e-4};
    EXPECT_CLOSE(last, want, tolerance);
    EXPECT_CLOSE(last_plain, unedited, tolerance);
    // KL(before || after) from the reference's own numbers.
    double kl = 0;
    for (size_t i = 2 * vocab; i < 3 * vocab; ++i)
      kl += std::exp(static_cast<double>(unedited.values[i])) *
            (static_cast<double>(unedited.values[i]) - static_cast<double>(want.values[i]));
    EXPECT_NEAR(result.kl.back(), kl, 1e-4 * (1 + kl));
  }
}

TEST_P(InterventionsGolden, GridsAreThoseOfTransformersWithHooks) {
  const std::vector<std::string> names = recipe_names("grids");
  ASSERT_GE(names.size(), 16u);
  for (const std::string& test : names) {
    SCOPED_TRACE(test);
    const InterveneResult result = intervene(engine, recipe("grids/" + test));
    const GoldenTensor want = golden_tensor(expected, "grid/" + test);
    ASSERT_EQ(want.shape, (std::vector<int64_t>{static_cast<int64_t>(result.grid->rows.size()),
                                                static_cast<int64_t>(result.grid->columns.size())}));
    float largest = 1;
    for (const float value : want)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    const double tolerance = 3e-5 * static_cast<double>(largest);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(result.grid->values[i].has_value(), std::isfinite(want.values[i])) << i;
      if (result.grid->values[i]) {
        EXPECT_NEAR(*result.grid->values[i], static_cast<double>(want.values[i]), tolerance) << i;
      }
    }
  }
}

TEST_P(InterventionsGolden, RecipesReadBackAsThemselves) {
  for (const std::string folder : {"recipes", "grids"})
    for (const std::string& test : recipe_names(folder)) {
      const Recipe read = recipe(folder + "/" + test);
      const std::string text = to_yaml(read);
      const Recipe again = parse(text);
      EXPECT_EQ(to_yaml(again), text) << test;
      EXPECT_EQ(again.run_corrupt, read.run_corrupt) << test;
      EXPECT_EQ(again.interventions.size(), read.interventions.size()) << test;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, InterventionsGolden, testing::Values("gpt2_a", "gemma2", "llama", "llama_q8_0", "llama_q4_0"),
                         [](const auto& test) { return test.param; });

TEST(Slices, ThatOverlapAreChangedOnce) {
  Engine engine{path_of("gemma2"), {2, {}}};
  const auto kl = [&](const std::string& entry) {
    return intervene(engine, parse("prompt: {tokens: [2, 50, 70, 9]}\ninterventions:\n  - " + entry + "\n")).kl;
  };
  const auto same = [&](const std::string& overlapping, const std::string& once, const std::string& how) {
    EXPECT_EQ(kl("{" + overlapping + ", " + how + "}"), kl("{" + once + ", " + how + "}")) << overlapping;
  };
  for (const char* how : {"do: add, vector: 0.25", "do: scale, by: 0.5", "do: zero", "do: mean"}) {
    same("hook: resid_pre.1, positions: [1, '-3:']", "hook: resid_pre.1, positions: '1:'", how);
    same("hook: resid_pre.1, positions: [2, '1:4', 2]", "hook: resid_pre.1, positions: '1:'", how);
    same("hook: ['blocks.*.hook_mlp_out', blocks.1.hook_mlp_out]", "hook: 'blocks.*.hook_mlp_out'", how);
    same("head: [0.1, '0.*']", "head: '0.*'", how);
  }
  same("hook: ['pattern.0[heads=0:2]', 'pattern.0[heads=1:3]']", "hook: 'pattern.0[heads=0:3]'", "do: scale, by: 0.5");
  same("hook: ['z.0[heads=1,positions=1:3]', 'z.0[positions=2:]', 'z.0[heads=0:2]']",
       "hook: ['z.0[positions=2:]', 'z.0[heads=0:2,positions=:2]']", "do: add, vector: 0.25");
}

// A value that was forgotten does not mean all of them.
TEST(Recipe, RefusesEmptyPlaces) {
  const std::string begin = "prompt: {tokens: [2, 5]}\ncorrupt: {tokens: [2, 6]}\n";
  const auto refused = [&](const std::string& rest) { return message_of<FileError>([&] { parse(begin + rest); }); };
  EXPECT_CONTAINS(refused("interventions:\n  - mlp: 0\n    positions:\n    do: zero\n"),
                  "\"interventions[0].positions\" is empty; expected at least one, or omit the key for all");
  for (const char* key : {"layers", "heads", "positions"})
    EXPECT_CONTAINS(refused(std::string("patch: {what: z, ") + key + ": null}\n"), std::string("\"patch.") + key + "\" is empty");
}

// A tokenizer may hold more pieces than the model has logits.
TEST(Metric, RefusesATokenThatTheModelLacks) {
  const Scratch folder;
  write_random_model(folder.path(), {{"architectures", {"LlamaForCausalLM"}},
                                     {"model_type", "llama"},
                                     {"hidden_size", 16},
                                     {"num_hidden_layers", 1},
                                     {"num_attention_heads", 2},
                                     {"intermediate_size", 24},
                                     {"max_position_embeddings", 32},
                                     {"vocab_size", 1000}});
  std::filesystem::copy_file(std::string(VITRINE_SOURCE) + "/models/tales9m/tokenizer.model", folder.path() + "/tokenizer.model");
  Engine engine(folder.path(), {2, {}});
  for (const char* token : {"' daughter'", "\u2581daughter", "1237"}) {
    const Recipe recipe =
        parse(std::string("prompt: {tokens: [2, 5]}\ninterventions: [{mlp: 0, do: zero}]\nmetric: {logprob: ") + token + "}\n");
    EXPECT_CONTAINS(message_of<InputError>([&] { intervene(engine, recipe); }), "1237") << token;
  }
}

class LensGrids : public testing::TestWithParam<std::string> {
 protected:
  Engine engine{Golden::open(GetParam()).model(), {2, {}}};
  Checkpoint expected = open_safetensors(kFolder + GetParam() + "_lens.safetensors");
  InterveneGrid grid(const std::string& text, InterveneResult* whole = nullptr) {
    InterveneResult result = intervene(engine, parse(prompts_yaml() + "metric: {logit_difference: [100, 200]}\n" + text));
    if (whole != nullptr) *whole = result;
    return *result.grid;
  }
};

TEST_P(LensGrids, ActivationPatchingIsTransformerLens) {
  const GoldenTensor metric = golden_tensor(expected, "metric");
  int grids = 0;
  for (const std::string& name : Golden::names_in(expected, "patch/")) {
    SCOPED_TRACE(name);
    InterveneResult whole;
    const InterveneGrid found = grid("patch: " + name.substr(6), &whole);
    EXPECT_NEAR(*whole.metric->clean, metric.values[0], 2e-5);
    EXPECT_NEAR(*whole.metric->corrupt, metric.values[1], 2e-5);
    const GoldenTensor want = golden_tensor(expected, name);
    EXPECT_EQ(want.shape,
              (std::vector<int64_t>{static_cast<int64_t>(found.rows.size()), static_cast<int64_t>(found.columns.size())}));
    std::vector<double> values;
    for (const auto& value : found.values) values.push_back(*value);
    EXPECT_CLOSE(values, want, Tolerance{});
    ++grids;
  }
  EXPECT_GE(grids, 7);
}

TEST_P(LensGrids, DirectPathsAreTransformerLens) {
  int compared = 0;
  for (const std::string& name : Golden::names_in(expected, "path/")) {
    SCOPED_TRACE(name);
    const std::string sender = name.substr(5, 3), input = name.substr(9);
    const GoldenTensor want = golden_tensor(expected, name);
    for (int64_t layer = std::stoll(sender) + 1; layer < engine.shape().n_layers; ++layer)
      for (int64_t head = 0; head < engine.shape().n_heads; ++head) {
        const std::string receiver = std::to_string(layer) + "." + std::to_string(head);
        const InterveneGrid found =
            grid("path:\n  senders: {head: " + sender + "}\n  receivers: {head: " + receiver + ", inputs: " + input + "}\n");
        ASSERT_EQ(found.values.size(), 1u);
        EXPECT_NEAR(*found.values[0], want.values[static_cast<size_t>(layer * engine.shape().n_heads + head)], 3e-5) << receiver;
        ++compared;
      }
  }
  EXPECT_GE(compared, GetParam() == "gpt2_a" ? 60 : 40);
}

// The direct path to the logits adds the difference of the head's own results to the last stream, and nothing else,
// before the last norm or what an intervention makes of it.
TEST_P(LensGrids, PathsToTheLogitsAreDifferencesOfResults) {
  const std::string path = "path: {senders: {head: '*', mlp: 1}, receivers: logits}\n";
  const InterveneGrid found = grid(path), without_norm = grid("interventions: [{norm: ln_final, do: identity}]\n" + path);
  ASSERT_EQ(found.columns.size(), static_cast<size_t>(engine.shape().n_heads + 1));
  EXPECT_EQ(found.columns[1], "head 1");
  EXPECT_EQ(found.columns.back(), "mlp");
  const std::vector<std::string> hooks = {"result", "mlp_out"};
  const Recorder clean = trace_to_memory(engine, kClean, hooks), corrupt = trace_to_memory(engine, kCorrupt, hooks);
  const ModelShape& s = engine.shape();
  const auto rows = static_cast<int64_t>(kClean.size());
  for (int64_t layer = 0; layer < s.n_layers; ++layer)
    for (int64_t head = 0; head <= s.n_heads; ++head) {
      const std::optional<double> value = found.values[found.cell(static_cast<size_t>(layer), static_cast<size_t>(head))];
      ASSERT_EQ(value.has_value(), head < s.n_heads || layer == 1);
      if (!value) continue;
      const bool mlp = head == s.n_heads;
      const std::string hook = "blocks." + std::to_string(layer) + (mlp ? ".hook_mlp_out" : ".attn.hook_result");
      ValueEdit edit;
      edit.hook = "blocks." + std::to_string(s.n_layers - 1) + ".hook_resid_post";
      edit.kind = ValueEdit::Kind::add;
      edit.shape = {rows, s.d_model};
      const FloatVector &a = clean.values().at(hook).values, &b = corrupt.values().at(hook).values;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < s.d_model; ++i) {
          const auto at = static_cast<size_t>(mlp ? r * s.d_model + i : (r * s.n_heads + head) * s.d_model + i);
          edit.values.push_back(a[at] - b[at]);
        }
      const auto difference = [&](Interventions edits) {
        Context& ctx = engine.context();
        ctx.listen(&edits);
        const auto frame = ctx.frame();
        const Step step = Step::of(kCorrupt);
        const int64_t last = rows - 1;
        const Tensor z = logits(ctx, engine.model().residual(ctx, step), engine.model().head(), std::span(&last, 1));
        ctx.listen(nullptr);
        return static_cast<double>(z.data<float>()[100]) - static_cast<double>(z.data<float>()[200]);
      };
      EXPECT_NEAR(*value, difference(Interventions({edit})), 3e-5) << hook << " " << head;
      ValueEdit no_norm;
      no_norm.hook = "ln_final.hook_normalized";
      no_norm.kind = ValueEdit::Kind::recall;
      no_norm.sources = {edit.hook};
      const double expected_without = difference(Interventions({edit, no_norm}));
      EXPECT_NEAR(*without_norm.values[found.cell(static_cast<size_t>(layer), static_cast<size_t>(head))], expected_without,
                  3e-5 * (1 + std::abs(expected_without)))
          << hook << " " << head;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, LensGrids, testing::Values("gpt2_a", "llama"), [](const auto& test) { return test.param; });

// Every cell comes with a recipe that makes its value.
class CellRecipes : public testing::TestWithParam<std::string> {};
TEST_P(CellRecipes, ReproduceTheCell) {
  Engine engine(Golden::open(GetParam()).model(), {2, {}});
  const std::string loss = "metric: loss\n", kl = "metric: {kl: true, position: -2}\n",
                    logprob = "metric: {logprob: 17, position: 6}\n", noise = "run: clean\n";
  for (const std::string& grid :
       {loss + "patch: resid_pre\n", kl + "patch: {what: attn_out, layers: ':-1', positions: [2, '-2:']}\n",
        logprob + "patch: {what: z, heads: [0, -1]}\ninterventions: [{mlp: 0, do: zero}]\n",
        logprob + noise + "patch: {what: pattern, positions: '3:'}\n", logprob + "ablate: {what: q, do: mean}\n",
        kl + "ablate: mlp_out\n",
        // An intervention that recalls what the cell changes.
        logprob + "patch: resid_pre\ninterventions: [{norm: blocks.1.ln1, do: identity}]\n",
        logprob + "patch: {what: resid_pre, layers: 1}\ninterventions: [{layer: 1, do: identity}]\n",
        kl + "ablate: resid_mid\ninterventions: [{norm: blocks.0.ln2, do: identity}]\n",
        logprob + noise + "patch: attn_out\ninterventions: [{norm: blocks.1.ln1, do: identity}]\n",
        logprob + noise + "path: {senders: {head: [0.*, 1.2], mlp: 0}, receivers: {head: -1.1, mlp: 1}}\n",
        logprob + "path: {senders: {head: -2.*}, receivers: {head: '-1.*', inputs: [k, v], logits: true}, mlps: recomputed}\n"}) {
    SCOPED_TRACE(grid);
    const InterveneResult whole = intervene(engine, parse(prompts_yaml(engine.shape().vocab_size) + grid));
    const InterveneGrid& g = *whole.grid;
    int different = 0;
    for (size_t r = 0; r < g.rows.size(); ++r)
      for (size_t c = 0; c < g.columns.size(); c += 3) {
        const std::optional<double> value = g.values[g.cell(r, c)];
        const std::string text = recipe_text(g, r, c);
        EXPECT_EQ(value.has_value(), !text.empty());
        if (!value) continue;
        const InterveneResult one = intervene(engine, parse(text));
        EXPECT_DOUBLE_EQ(*one.metric->after, *value) << text;
        different += std::abs(*value - *whole.metric->before) > 1e-6 ? 1 : 0;
      }
    EXPECT_GE(different, 1);
    const nlohmann::ordered_json document = to_json(whole, engine);
    EXPECT_EQ(document["grid"]["values"].size(), g.rows.size());
    EXPECT_EQ(
        document["grid"]["recipe"]["head"].get<std::string>() + document["grid"]["recipe"]["cells"][0][0].get<std::string>(),
        recipe_text(g, 0, 0));
  }
}
INSTANTIATE_TEST_SUITE_P(Models, CellRecipes, testing::Values("gpt2_a", "gemma2", "llama", "classic_post"),
                         [](const auto& test) { return test.param; });

// What must hold for any edit ------------------------------------------------------------------------------------------

std::vector<float> all_logits(Engine& engine, const Step& step) {
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  std::vector<int64_t> rows(static_cast<size_t>(step.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor z = logits(ctx, engine.model().residual(ctx, step), engine.model().head(), rows);
  return {z.data<float>(), z.data<float>() + z.count()};
}

std::vector<ValueEdit> edits_of(Engine& engine, const std::string& entries) {
  const int64_t vocab_size = engine.shape().vocab_size;
  RecipePrompts prompts{fitted(kClean, vocab_size), fitted(kCorrupt, vocab_size), false, 0};
  SourceValues values(engine);
  std::vector<ValueEdit> edits;
  for (const Intervention& i : parse(prompts_yaml(vocab_size) + "interventions:\n" + entries).interventions)
    for (ValueEdit& edit : plan_edits(engine, i, prompts, values)) edits.push_back(std::move(edit));
  return edits;
}

const std::string kMany =
    "  - {head: '*.1', positions: '2:9', do: zero}\n"
    "  - {hook: 'pattern[heads=0]', do: scale, by: 0.5}\n"
    "  - {hook: resid_pre.1, positions: [3, -2], do: add, vector: 0.25}\n"
    "  - {norm: 'blocks.*.ln2', positions: '1:', do: no_weight}\n"
    "  - {norm: blocks.1.ln1, do: identity}\n"
    "  - {layer: 0, positions: 5, do: identity}\n"
    "  - {mlp: 1, do: resample, from: corrupt}\n"
    "  - {hook: hook_logits, do: add, vector: 0.5}\n";

class AnyEdit : public testing::TestWithParam<std::string> {
 protected:
  Engine engine{path_of(GetParam()), {2, {}}};
  std::vector<int32_t> clean = fitted(kClean, engine.shape().vocab_size);
  std::vector<int32_t> corrupt = fitted(kCorrupt, engine.shape().vocab_size);
};

TEST_P(AnyEdit, LeavesTheOtherSequencesBits) {
  engine.context().numerics.exact = true;  // the kernels of three sequences for the one alone, too
  Step step;
  for (const auto& ids : {corrupt, clean, std::vector<int32_t>{7, 8, 9}}) step.add(ids);
  const std::vector<float> plain = all_logits(engine, step);
  Interventions edits(edits_of(engine, kMany));
  engine.context().listen(&edits, 1);
  const std::vector<float> edited = all_logits(engine, step);
  engine.context().listen(nullptr);
  const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
  const size_t first = corrupt.size() * vocab, end = first + clean.size() * vocab;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (i >= first && i < end) continue;
    ASSERT_EQ(plain[i], edited[i]) << i;
  }
  // The edited one is as if it ran alone.
  engine.context().listen(&edits);
  const std::vector<float> alone = all_logits(engine, Step::of(clean));
  engine.context().listen(nullptr);
  const std::vector<float> mine(edited.begin() + static_cast<std::ptrdiff_t>(first),
                                edited.begin() + static_cast<std::ptrdiff_t>(end));
  EXPECT_CLOSE(mine, alone, Tolerance{});
  EXPECT_NE(mine, std::vector<float>(plain.begin() + static_cast<std::ptrdiff_t>(first),
                                     plain.begin() + static_cast<std::ptrdiff_t>(end)));
}

TEST_P(AnyEdit, ThatChangesNothingKeepsEveryBit) {
  const Step step = Step::of(clean);
  const std::vector<float> plain = all_logits(engine, step);
  const auto with = [&](const std::string& entries) {
    Interventions edits(edits_of(engine, entries));
    engine.context().listen(&edits);
    std::vector<float> z = all_logits(engine, step);
    engine.context().listen(nullptr);
    return z;
  };
  const bool mid = engine.model().record().hook("blocks.0.hook_resid_mid") != nullptr;
  EXPECT_EQ(with(std::string("  - {head: '*', do: scale, by: 1}\n  - {hook: ") + (mid ? "resid_mid" : "resid_pre") +
                 ", do: add, vector: 0}\n"),
            plain);
  EXPECT_EQ(with("  - {mlp: '*', do: resample, from: clean}\n  - {norm: '*', do: scale, by: 1}\n"), plain);
  // Patterns take the stepwise form of attention, which agrees to rounding.
  EXPECT_CLOSE(with("  - {hook: pattern, do: resample, from: clean}\n"), plain, Tolerance{});
  Interventions none;
  engine.context().listen(&none);
  EXPECT_EQ(all_logits(engine, step), plain);
  engine.context().listen(nullptr);
}

TEST_P(AnyEdit, IsTheSameInChunks) {
  Context& ctx = engine.context();
  ctx.numerics.f32 = true;  // otherwise one row and many rows of quantized weights round their operands differently
  Interventions edits(edits_of(engine, kMany));
  ctx.listen(&edits);
  const std::vector<float> whole = all_logits(engine, Step::of(clean));
  std::vector<float> parts;
  const auto cache = engine.make_cache(static_cast<int64_t>(clean.size()));
  CacheSequence sequence = cache->sequence();
  for (size_t begin = 0; begin < clean.size();) {
    const size_t n = begin == 0 ? 4 : begin == 4 ? 1 : clean.size() - begin;
    Step step;
    step.add(std::span(clean).subspan(begin, n), &sequence);
    const std::vector<float> z = all_logits(engine, step);
    parts.insert(parts.end(), z.begin(), z.end());
    step.commit();
    begin += n;
  }
  ctx.listen(nullptr);
  EXPECT_CLOSE(parts, whole, Tolerance{.abs = 1e-4, .rel = 1e-4});
}

INSTANTIATE_TEST_SUITE_P(Models, AnyEdit,
                         testing::Values("gpt2_a", "gemma2", "llama", "qwen2", "classic_pre", "classic_post", "smollm3",
                                         "granite", "phi3", "glm4", "gpt_neo", "gpt_neox", "gptj", "opt", "phi", "bloom",
                                         "cohere", "command_r_plus", "falcon", "falcon_40b", "phimoe", "ernie4_5", "hunyuan",
                                         "lfm2", "gemma4", "gemma4_moe", "llama4", "llama_q8_0", "llama_q4_0"),
                         [](const auto& test) { return test.param; });

TEST(Interventions, NameHeadsOfLayersWithAttention) {
  Engine engine(Golden::open("lfm2").model(), {1, {}});  // layer 1 alone
  const std::vector<ValueEdit> edits = edits_of(engine, "  - {head: '*.2', do: zero}\n");
  ASSERT_EQ(edits.size(), 1u);
  EXPECT_EQ(edits[0].hook, "blocks.1.attn.hook_z");
  EXPECT_CONTAINS(message_of<InputError>([&] { edits_of(engine, "  - {head: '0.2', do: zero}\n"); }),
                  "\"0.2\" is no head: layer 0 has a convolution in the place of attention");
}

TEST(Interventions, FollowEachOtherAndSeeWhatWasLeft) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  const std::vector<std::string> hooks = {"resid_pre.1", "resid_post.1"};
  Interventions edits(
      edits_of(engine,
               "  - {hook: resid_pre.1, do: set, vector: 3}\n  - {hook: resid_pre.1, positions: 2, do: scale, by: 2}\n"
               "  - {layer: 1, do: identity}\n"));
  edits.append(edits_of(engine, "  - {hook: resid_pre.1, positions: 2, do: add, vector: 1}\n"));
  const Recorder seen = trace_to_memory(engine, kClean, hooks, &edits);
  const FloatVector &in = seen.values().at("blocks.1.hook_resid_pre").values,
                    &out = seen.values().at("blocks.1.hook_resid_post").values;
  const size_t d = in.size() / kClean.size();
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(in[i], i / d == 2 ? 7.0F : 3.0F);
    EXPECT_EQ(out[i], i / d == 2 ? 7.0F : 3.0F);  // recall takes what all edits left, those that came later too
  }
}

// Where the norms stand behind a stream that the sub-layers replace, their input is what the sub-layer wrote alone.
TEST(Interventions, IdentityOfANormIsItsInputInEveryForm) {
  for (const bool adds : {true, false}) {
    ModelFiles files = resolve_model(Golden::open("llama").model());
    files.config["vitrine_norms"] = "post";
    if (!adds) files.config["vitrine_residual"] = false;
    Engine engine(open_model(std::move(files)), {2, {}});
    Interventions edits(edits_of(engine, "  - {norm: 'blocks.1.*', do: identity}\n"));
    const std::vector<std::string> hooks = {"resid_pre.1", "attn_out.1", "resid_mid.1", "mlp_out.1", "resid_post.1"};
    const Recorder seen = trace_to_memory(engine, kClean, hooks, &edits);
    const auto& values = seen.values();
    const auto check = [&](const char* before, const char* update, const char* after) {
      const FloatVector &stream = values.at(std::string("blocks.1.hook_") + before).values,
                        &added = values.at(std::string("blocks.1.hook_") + update).values,
                        &out = values.at(std::string("blocks.1.hook_") + after).values;
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], adds ? stream[i] + added[i] : added[i]) << after << " " << i;
    };
    check("resid_pre", "attn_out", "resid_mid");
    check("resid_mid", "mlp_out", "resid_post");
  }
}

TEST(Interventions, IdentityOfANormOnHeadsIsTheQueryOrKey) {
  for (const std::string model : {"qwen3", "gemma3", "qwen3_moe", "olmo2"}) {  // of olmo2: of all heads at once
    Engine engine(open_model(Golden::open(model).model()), {2, {}});
    const std::vector<std::string> hooks = {"blocks.1.attn.hook_*", "blocks.1.attn.*_norm.hook_normalized"};
    const auto differ = [&](Listener* edits, const char* which) {
      const Recorder seen = trace_to_memory(engine, fitted(kClean, engine.shape().vocab_size), hooks, edits);
      const std::string at = std::string("blocks.1.attn.");
      return seen.values().at(at + "hook_" + which).values != seen.values().at(at + which + "_norm.hook_normalized").values;
    };
    for (const char* which : {"q", "k"}) {
      Interventions edits(edits_of(engine, std::string("  - {norm: blocks.1.attn.") + which + "_norm, do: identity}\n"));
      EXPECT_TRUE(differ(nullptr, which)) << model;
      EXPECT_FALSE(differ(&edits, which)) << model;
    }
  }
}

TEST(Interventions, CarryGradients) {
  Step step;
  step.add(std::vector<int32_t>{1, 2, 3, 4});
  ValueEdit set, add_numbers, scaled, recalled;
  set.hook = "attn.hook_q";
  set.values = {0.5, -1, 2};
  set.shape = {3};
  set.heads = {1, 2};
  set.positions = {1, 3};
  add_numbers.hook = scaled.hook = "mid";
  add_numbers.kind = ValueEdit::Kind::add;
  add_numbers.values = {0.3F};
  scaled.kind = ValueEdit::Kind::scale;
  scaled.factor = -1.7;
  scaled.positions = {0, 2};
  recalled.hook = "end";
  recalled.kind = ValueEdit::Kind::recall;
  recalled.sources = {"start", "mid"};
  recalled.positions = {2, 4};
  Interventions edits({set, add_numbers, scaled, recalled});
  GradientCheck check;
  check.input({4, 6});
  const Weight& w = check.weight(6, 6);
  check.expect_match(
      [&](Context& ctx, const GradientCheck::Inputs& x) {
        ctx.enter(step);
        const Tensor start = ctx.hook("start", softcap(ctx, x[0], 2));
        Tensor q = linear(ctx, start, w);
        q = ctx.hook("attn.hook_q", split_heads(ctx, q, 3));
        const Tensor mid = ctx.hook("mid", softcap(ctx, add(ctx, merge_heads(ctx, q), start), 1.5));
        return softcap(ctx, ctx.hook("end", linear(ctx, mid, w)), 3);
      },
      &edits, 24);
}

// Against SAELens's HookedSAETransformer (tests/golden/sae/make_hooked.py).
TEST(Interventions, ChangeFeaturesOfAutoencodersThatTheRunGoesThrough) {
  const std::string sae = std::string(VITRINE_GOLDEN) + "/sae/", at = "blocks.1.hook_resid_pre.hook_sae_acts_post";
  const auto recipe = [&](const std::string& change) {
    return parse("saes: [{sae: " + sae +
                 "runs/standard}]\nprompt: {tokens: [5, 17, 3, 101, 42, 8, 77]}\ninterventions:\n  - hook: " + at + "\n    " +
                 change + "\n");
  };
  const Recipe read = recipe("features: [3=2]");
  EXPECT_EQ(to_yaml(parse(to_yaml(read))), to_yaml(read));
  Engine engine(std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model", {.threads = 2, .through = through_saes(read.saes)});
  const auto after = [&](const Recipe& changed) {
    const InterveneResult result = intervene(engine, changed, {.top = engine.shape().vocab_size});
    return logprobs(result.after, static_cast<size_t>(engine.shape().vocab_size));
  };
  const Checkpoint gold = open_safetensors(sae + "hooked/standard.safetensors");
  std::vector<float> expected = golden_tensor(gold, "changed.hook_sae_acts_post").at(0).values;
  double sum = 0;
  for (const float logit : expected) sum += std::exp(static_cast<double>(logit));
  for (float& logit : expected) logit -= static_cast<float>(std::log(sum));
  EXPECT_CLOSE(after(read), expected, Tolerance{.abs = 2e-5, .rel = 1e-4});
  EXPECT_CLOSE(after(recipe("features: [3=5, \"3*=0.5\", 3+=-0.5]")), expected, Tolerance{.abs = 2e-5, .rel = 1e-4});
  const auto refuses = [&](const std::string& change, const std::string& words) {
    try {
      after(recipe(change));
      ADD_FAILURE() << change;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refuses("features: [20=1]", "there is no feature 20");
  refuses("features: [x]", "expected FEATURE=VALUE");
  refuses("features: [1=1]\n    do: zero", "interventions[0].do\" is not known");
  EXPECT_THROW(parse("prompt: x\ninterventions:\n  - head: 1.2\n    features: [1=0]\n"), Error);
}

TEST(Interventions, RefuseNumbersThatDoNotFit) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  const auto refused = [&](ValueEdit edit) {
    Interventions edits({std::move(edit)});
    const std::vector<std::string> hooks = {"hook_embed"};
    return message_of<InputError>([&] { trace_to_memory(engine, kClean, hooks, &edits); });
  };
  ValueEdit edit;
  edit.hook = "blocks.0.attn.hook_z";
  edit.shape = {5};
  edit.values = {1, 2, 3, 4, 5};
  EXPECT_CONTAINS(refused(edit), "the numbers for blocks.0.attn.hook_z have shape [5]");
  edit.shape = {2, 12};  // two heads are not four
  edit.values.assign(24, 0);
  EXPECT_CONTAINS(refused(edit), "[2, 12]");
  edit.shape = {3};
  EXPECT_CONTAINS(refused(edit), "number 24");
  edit.shape = {1, 1, 1, 1};
  EXPECT_CONTAINS(refused(edit), "[1, 1, 1, 1]");
  ValueEdit recall;
  recall.hook = "blocks.0.hook_resid_pre";
  recall.kind = ValueEdit::Kind::recall;
  recall.sources = {"blocks.0.hook_resid_post"};
  EXPECT_CONTAINS(refused(recall), "which the run has not reached before it");
  recall.hook = "blocks.1.hook_resid_pre";
  recall.sources = {"blocks.0.attn.hook_pattern"};
  EXPECT_CONTAINS(refused(recall), "has another size");
  recall.sources = {"a", "b", "c"};
  EXPECT_CONTAINS(message_of<UsageError>([&] { Interventions({recall}); }), "at most 2");
}

}  // namespace
}  // namespace vitrine
