// Circuits against NumPy with every matrix written out (tests/golden/circuits), and against the scores and results of a run.
#include "inspect/circuits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "hooks/trace.h"
#include "inspect/support.h"
#include "model/adapter.h"
#include "model/export.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

class CircuitsOfModels : public testing::TestWithParam<std::string> {
 protected:
  CircuitsOfModels()
      : engine(Golden::open(GetParam()).model(), {2, {}}),
        file(open_safetensors(std::string(VITRINE_GOLDEN) + "/circuits/" + GetParam() + ".safetensors")) {}
  // Small against the largest singular value of its head is rounding.
  static void expect_values(const std::vector<double>& ours, std::span<const float> expected) {
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_TRUE(
        (close_to<double, float>(ours, expected, Tolerance{.abs = 1e-6 * static_cast<double>(expected[0]), .rel = 1e-4})));
  }
  Engine engine;
  Checkpoint file;
};

TEST_P(CircuitsOfModels, SpectraRanksAndCopyingAreNumPys) {
  const CircuitTable table = circuit_table(engine);
  const GoldenTensor qk = golden_tensor(file, "qk"), ov = golden_tensor(file, "ov"), rank = golden_tensor(file, "rank");
  const GoldenTensor copying = golden_tensor(file, "copying"), largest = golden_tensor(file, "largest");
  const auto d_head = static_cast<size_t>(engine.shape().head_dim);
  ASSERT_EQ(table.heads.size(), copying.size());
  for (size_t i = 0; i < table.heads.size(); ++i) {
    const HeadSpectra& head = table.heads[i];
    SCOPED_TRACE("layer " + std::to_string(head.layer) + " head " + std::to_string(head.head));
    EXPECT_EQ(head.layer * engine.shape().n_heads + head.head, static_cast<int64_t>(i));
    expect_values(head.qk.singular_values, std::span(qk.values).subspan(i * d_head, d_head));
    expect_values(head.ov.singular_values, std::span(ov.values).subspan(i * d_head, d_head));
    EXPECT_EQ(static_cast<float>(head.qk.rank), rank.values[2 * i]);
    EXPECT_EQ(static_cast<float>(head.ov.rank), rank.values[2 * i + 1]);
    EXPECT_NEAR(head.copying, static_cast<double>(copying.values[i]), 1e-4);
    ASSERT_EQ(head.eigenvalues.size(), d_head);
    EXPECT_NEAR(std::abs(head.eigenvalues[0]) / static_cast<double>(largest.values[i]), 1, 1e-4);
  }
}

TEST_P(CircuitsOfModels, QueriesTurnWithTheOffset) {
  if (file.find("qk_turned") == nullptr) {  // no rotary positions: the offset is refused, not passed over
    EXPECT_THROW(circuit_table(engine, {.offset = 5}), InputError);
    return;
  }
  const GoldenTensor qk = golden_tensor(file, "qk_turned");
  const auto d_head = static_cast<size_t>(engine.shape().head_dim);
  const CircuitTable table = circuit_table(engine, {.offset = 5, .composition = false});
  EXPECT_TRUE(table.composition.empty());
  for (size_t i = 0; i < table.heads.size(); ++i)
    expect_values(table.heads[i].qk.singular_values, std::span(qk.values).subspan(i * d_head, d_head));
}

TEST_P(CircuitsOfModels, CompositionsAreNumPys) {
  const CircuitTable table = circuit_table(engine);
  const GoldenTensor q = golden_tensor(file, "composition_q"), k = golden_tensor(file, "composition_k"),
                     v = golden_tensor(file, "composition_v");
  const int64_t heads = engine.shape().n_heads, layers = engine.shape().n_layers;
  EXPECT_EQ(static_cast<int64_t>(table.composition.size()), heads * heads * layers * (layers - 1) / 2);
  for (const Composition& c : table.composition) {
    const auto at = static_cast<size_t>(((c.from_layer * heads + c.from_head) * layers + c.to_layer) * heads + c.to_head);
    EXPECT_NEAR(c.q / static_cast<double>(q.values[at]), 1, 1e-4);
    EXPECT_NEAR(c.k / static_cast<double>(k.values[at]), 1, 1e-4);
    EXPECT_NEAR(c.v / static_cast<double>(v.values[at]), 1, 1e-4);
  }
}

TEST_P(CircuitsOfModels, OneHeadIsThatPartOfTheTable) {
  const CircuitTable all = circuit_table(engine), one = circuit_table(engine, {.layer = 1, .head = 2});
  ASSERT_EQ(one.heads.size(), 1u);
  const HeadSpectra& whole = all.heads[static_cast<size_t>(engine.shape().n_heads + 2)];
  EXPECT_EQ(one.heads[0].qk.singular_values, whole.qk.singular_values);
  EXPECT_EQ(one.heads[0].copying, whole.copying);
  size_t n = 0;
  for (const Composition& c : all.composition) {
    if (!(c.from_layer == 1 && c.from_head == 2) && !(c.to_layer == 1 && c.to_head == 2)) continue;
    ASSERT_LT(n, one.composition.size());
    EXPECT_EQ(one.composition[n].from_layer, c.from_layer);
    EXPECT_EQ(one.composition[n].from_head, c.from_head);
    EXPECT_EQ(one.composition[n].to_layer, c.to_layer);
    EXPECT_NEAR(one.composition[n++].q, c.q, 1e-12);
  }
  EXPECT_EQ(n, one.composition.size());
  // The factors that a caller may ask for are those of the table.
  const HeadCircuits circuits = head_circuits(engine, 1, 2);
  EXPECT_EQ(spectrum_of(circuits.qk).singular_values, whole.qk.singular_values);
  EXPECT_EQ(spectrum_of(circuits.ov).singular_values, whole.ov.singular_values);
}

// xᵀ leftᵀ right y
double bilinear(const FactoredMatrix& m, const float* x, const float* y) {
  double sum = 0;
  for (int64_t h = 0; h < m.d_head; ++h) {
    double a = 0, b = 0;
    for (int64_t i = 0; i < m.d_model; ++i) {
      a += static_cast<double>(m.left[static_cast<size_t>(h * m.d_model + i)]) * static_cast<double>(x[i]);
      b += static_cast<double>(m.right[static_cast<size_t>(h * m.d_model + i)]) * static_cast<double>(y[i]);
    }
    sum += a * b;
  }
  return sum;
}

// The same of every head of families whose scores are divided by more than one norm, or by none, and of layers that turn nothing.
TEST(CircuitsOfHeads, GiveTheScoresOfFamiliesWithOtherNorms) {
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2, 40, 17};
  const auto n = static_cast<int64_t>(ids.size());
  for (const char* name : {"qwen3", "olmo2", "olmo3", "smollm3", "granite", "phi3", "lfm2", "glm4_tied_yarn"}) {
    const bool variant = std::string(name) == "glm4_tied_yarn";  // glm4 has biases in its scores
    Engine engine(variant ? std::string(VITRINE_GOLDEN) + "/variants/" + name : Golden::open(name).model(), {2, {}});
    const ModelShape shape = engine.shape();
    const std::vector<std::string> hooks = {"*"};
    const Recorder seen = trace_to_memory(engine, ids, hooks);
    for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
      if (!engine.model().layer(layer).has_attention()) continue;
      const std::string block = "blocks." + std::to_string(layer) + ".";
      const auto scale = [&](const std::string& hook, int64_t row, int64_t head) {  // 1 where there is no such norm
        const auto found = seen.values().find(block + hook + ".hook_scale");
        if (found == seen.values().end()) return 1.0;
        const auto each = static_cast<int64_t>(found->second.values.size()) / n;  // of each head, or of all
        return static_cast<double>(found->second.values[static_cast<size_t>(row * each + (each == 1 ? 0 : head))]);
      };
      const FloatVector &stream = seen.values().at(block + "hook_resid_pre").values,
                        &scores = seen.values().at(block + "attn.hook_attn_scores").values;
      for (int64_t head = 0; head < shape.n_heads; ++head)
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = std::max<int64_t>(0, i - 3); j <= i; ++j) {
            const HeadCircuits c = head_circuits(engine, layer, head, i - j);
            const int64_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
            const double divided =
                scale("ln1", i, 0) * scale("ln1", j, 0) * scale("attn.q_norm", i, head) * scale("attn.k_norm", j, kv_head);
            const double score =
                c.scale * bilinear(c.qk, stream.data() + i * shape.d_model, stream.data() + j * shape.d_model) / divided;
            EXPECT_NEAR(score, static_cast<double>(scores[static_cast<size_t>((head * n + i) * n + j)]),
                        1e-4 + 1e-4 * std::abs(score))
                << name << " layer " << layer << " head " << head << ": " << i << ", " << j;
          }
    }
  }
}

// The model's own scores and results are what the circuits say, wherever no bias is in the way.
TEST_P(CircuitsOfModels, AreWhatTheModelComputes) {
  const ModelShape shape = engine.shape();
  const int64_t layer = shape.n_layers - 1, head = shape.n_heads - 1, d = shape.d_model;
  if (const HeadCircuits c = head_circuits(engine, layer, head); c.query_bias || c.key_bias) {
    EXPECT_TRUE(GetParam().starts_with("gpt2") || GetParam().starts_with("classic") || GetParam() == "qwen2");
    return;
  }
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2, 40, 17, 6, 31, 8};
  const std::string block = "blocks." + std::to_string(layer) + ".";
  const std::vector<std::string> hooks = {block + "hook_resid_pre", block + "ln1.hook_scale", block + "attn.hook_attn_scores",
                                          block + "attn.hook_pattern", block + "attn.hook_result"};
  const Recorder seen = trace_to_memory(engine, ids, hooks);
  const auto numbers = [&](size_t i) -> const FloatVector& { return seen.values().at(hooks[i]).values; };
  const auto n = static_cast<int64_t>(ids.size());
  const auto row = [&](int64_t i) { return numbers(0).data() + i * d; };
  const auto scale = [&](int64_t i) { return static_cast<double>(numbers(1)[static_cast<size_t>(i)]); };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = std::max<int64_t>(0, i - 5); j <= i; ++j) {
      const HeadCircuits c = head_circuits(engine, layer, head, i - j);
      double score = c.scale * bilinear(c.qk, row(i), row(j)) / (scale(i) * scale(j));
      if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
      EXPECT_NEAR(score, static_cast<double>(numbers(2)[static_cast<size_t>((head * n + i) * n + j)]),
                  1e-4 + 1e-4 * std::abs(score));
    }
  // Gemma 2 writes through one more norm, whose weight OV holds and hook_result does not; the others compare as they are.
  if (shape.family == "gemma2") return;
  const HeadCircuits c = head_circuits(engine, layer, head);
  std::vector<double> written(static_cast<size_t>(d));
  const int64_t i = n - 1;
  for (int64_t j = 0; j < n; ++j) {
    const double p = static_cast<double>(numbers(3)[static_cast<size_t>((head * n + i) * n + j)]) / scale(j);
    for (int64_t h = 0; h < c.ov.d_head; ++h) {
      double read = 0;
      for (int64_t k = 0; k < d; ++k)
        read += static_cast<double>(c.ov.left[static_cast<size_t>(h * d + k)]) * static_cast<double>(row(j)[k]);
      for (int64_t k = 0; k < d; ++k)
        written[static_cast<size_t>(k)] += p * read * static_cast<double>(c.ov.right[static_cast<size_t>(h * d + k)]);
    }
  }
  const auto result = std::span(numbers(4)).subspan(static_cast<size_t>((i * shape.n_heads + head) * d), static_cast<size_t>(d));
  EXPECT_TRUE((close_to<double, float>(written, result, Tolerance{.abs = 2e-5, .rel = 1e-4})));
}

INSTANTIATE_TEST_SUITE_P(Golden, CircuitsOfModels, testing::ValuesIn(Golden::with("circuits")),
                         [](const auto& test) { return test.param; });

// GGUF's copies turn neighboring components and hold 1 + w: the circuits are the same.
TEST(Circuits, OfAGgufCopyAreTheSame) {
  for (const char* name : {"llama", "gemma2"}) {
    Engine stored(Golden::open(name).model(), {1, {}}), gguf(std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf", {1, {}});
    const CircuitTable a = circuit_table(stored, {.offset = 3}), b = circuit_table(gguf, {.offset = 3});
    ASSERT_EQ(a.heads.size(), b.heads.size());
    for (size_t i = 0; i < a.heads.size(); ++i) {
      EXPECT_NEAR(a.heads[i].qk.frobenius / b.heads[i].qk.frobenius, 1, 1e-5);
      EXPECT_NEAR(a.heads[i].qk.singular_values[0] / b.heads[i].qk.singular_values[0], 1, 1e-5);
      EXPECT_NEAR(a.heads[i].copying, b.heads[i].copying, 1e-4);
    }
    for (size_t i = 0; i < a.composition.size(); ++i) EXPECT_NEAR(a.composition[i].k / b.composition[i].k, 1, 1e-4);
  }
}

// An embedding and a head of more rows than are multiplied at once, each with an adapter, are those of the merged model.
TEST(Circuits, OfAnAdaptedEmbeddingAndHeadAreThoseOfTheMergedModel) {
  const Scratch scratch;
  OpenedModel opened = open_model(std::string(VITRINE_SOURCE) + "/models/tales9m");
  ASSERT_GT(opened.model->shape().vocab_size, 2048);
  add_fresh_adapter(opened, {.rank = 2, .alpha = 4, .targets = {"embed_tokens", "lm_head"}}, 5);
  for (const Adapter::Module& m : opened.adapter->modules())
    for (int64_t i = 0; i < m.b_count(); ++i) const_cast<float*>(m.B())[i] = 0.02f * static_cast<float>(i / 1500 - 4);
  write_huggingface(opened, {}, scratch / "merged", DType::f32);
  Engine beside(std::move(opened), {2, {}}), merged(scratch / "merged", {2, {}}),
      plain(std::string(VITRINE_SOURCE) + "/models/tales9m", {2, {}});
  const CircuitOptions first = {.layer = 0, .composition = false};
  const CircuitTable a = circuit_table(beside, first), b = circuit_table(merged, first), c = circuit_table(plain, first);
  ASSERT_EQ(a.heads.size(), b.heads.size());
  for (size_t i = 0; i < a.heads.size(); ++i) {
    SCOPED_TRACE(i);
    const double largest = std::abs(b.heads[i].eigenvalues[0]);
    EXPECT_NEAR(std::abs(a.heads[i].eigenvalues[0]), largest, 1e-4 * largest);
    EXPECT_NEAR(a.heads[i].copying, b.heads[i].copying, 1e-3);
    EXPECT_GT(std::abs(std::abs(c.heads[i].eigenvalues[0]) - largest), 1e-2 * largest);
  }
}

TEST(Circuits, CopyingScoreOfKnownEigenvalues) {
  using Values = std::vector<std::complex<double>>;
  EXPECT_EQ(copying_score(Values{{2, 0}, {3, 0}}), 1);
  EXPECT_EQ(copying_score(Values{{-2, 0}, {-3, 0}}), -1);
  EXPECT_EQ(copying_score(Values{{3, 4}, {3, -4}}), 0.6);
  EXPECT_EQ(copying_score(Values{{0, 0}}), 0);
}

TEST(Circuits, RankOfAHeadThatLostDirections) {
  const Scratch scratch;  // two of layer 0 head 1's sixteen value rows are zeroed, one is a copy of another
  const std::string model = copy_of(Golden::open("gemma"), scratch / "low", [](std::vector<OwnedTensor>& tensors) {
    for (OwnedTensor& t : tensors) {
      if (!t.name.ends_with("layers.0.self_attn.v_proj.weight")) continue;
      const size_t row = t.bytes.size() / static_cast<size_t>(t.shape[0]);
      std::fill(t.bytes.begin() + static_cast<std::ptrdiff_t>(3 * row), t.bytes.begin() + static_cast<std::ptrdiff_t>(5 * row),
                std::byte{0});
      std::copy(t.bytes.begin(), t.bytes.begin() + static_cast<std::ptrdiff_t>(row),
                t.bytes.begin() + static_cast<std::ptrdiff_t>(7 * row));
    }
  });
  Engine engine(model, {1, {}});
  const CircuitTable table = circuit_table(engine, {.layer = 0, .head = 1});
  EXPECT_EQ(table.heads[0].ov.rank, engine.shape().head_dim - 3);
  EXPECT_EQ(table.heads[0].qk.rank, engine.shape().head_dim);
}

TEST(Circuits, OfNotANumberAreAnErrorThatNamesTheHead) {
  for (const char* matrix : {"attn.c_attn.weight", "attn.c_proj.weight"}) {
    const Scratch scratch;
    const std::string broken = copy_of(Golden::open("gpt2_a"), scratch / "nan", [&](std::vector<OwnedTensor>& tensors) {
      for (OwnedTensor& t : tensors)
        if (t.name.ends_with(std::string("h.1.") + matrix)) std::fill(t.bytes.begin(), t.bytes.begin() + 4, std::byte{0xff});
    });
    Engine engine(broken, {1, {}});
    EXPECT_CONTAINS(message_of<RunError>([&] { circuit_table(engine); }), "layer 1 head 0");
  }
}

// LFM2's middle layer is the only one that attends.
TEST(Circuits, AreOfLayersWithAttention) {
  Engine engine(Golden::open("lfm2").model(), {1, {}});
  const CircuitTable table = circuit_table(engine);
  ASSERT_EQ(table.heads.size(), 4u);
  for (const HeadSpectra& head : table.heads) EXPECT_EQ(head.layer, 1);
  EXPECT_TRUE(table.composition.empty());
  const std::string why = "layer 2 has a convolution in the place of attention, so it has no heads";
  EXPECT_CONTAINS(message_of<InputError>([&] { circuit_table(engine, {.layer = 2}); }), why);
  EXPECT_CONTAINS(message_of<InputError>([&] { head_circuits(engine, 2, 0); }), why);
}

TEST(Circuits, RefusesWhatIsNotThere) {
  Engine engine(Golden::open("llama").model(), {1, {}});
  const auto refused = [&](auto&& f, const std::string& word) {
    try {
      f();
      ADD_FAILURE() << "accepted; expected a word about " << word;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  refused([&] { head_circuits(engine, 3, 0); }, "layer 3 does not exist; the model has 3 (0 to 2)");
  refused([&] { head_circuits(engine, 0, -1); }, "head -1");
  refused([&] { circuit_table(engine, {.head = 8}); }, "head 8");
  refused([&] { circuit_table(engine, {.offset = 128}); }, "expected 0 to 127");
  refused([&] { circuit_table(engine, {.offset = -2}); }, "-2");
  refused([&] { circuit_table(engine, {.memory = 1000}); }, "Leave the compositions out");
}

}  // namespace
}  // namespace vitrine
