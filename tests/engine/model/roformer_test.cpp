// RoFormer against transformers (tests/golden/roformer/make.py): both directions and causal, rotated values, an embedding
// narrower and wider than the stream, an output of its own.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "model/abilities.h"
#include "model/export.h"
#include "model/registry.h"
#include "ops/tape.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string roformer_dir(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/roformer/" + name; }

struct RoFormerCase {
  explicit RoFormerCase(const std::string& name)
      : golden(open_safetensors(roformer_dir(name) + "/golden.safetensors")), opened(open_model(roformer_dir(name))) {}
  GoldenTensor operator[](const std::string& name) const { return golden_tensor(golden, name); }
  std::vector<int32_t> ids(const std::string& prompt) const { return ids_of((*this)[prompt + "/ids"]); }
  Tolerance tolerance() const { return tolerance_for(static_cast<double>((*this)["distance"].values[0])); }

  Checkpoint golden;
  OpenedModel opened;
};

class RoFormerGolden : public testing::TestWithParam<std::string> {};

TEST_P(RoFormerGolden, LogitsAndHiddenStatesMatch) {
  const RoFormerCase c(GetParam());
  const Model& model = *c.opened.model;
  ThreadPool pool(2);
  for (const std::string prompt : {"0", "1"})
    for (const bool exact : {false, true}) {
      SCOPED_TRACE("prompt " + prompt + (exact ? ", exact" : ""));
      Context ctx(pool);
      ctx.numerics.exact = exact;
      Recorder seen({{"blocks.*.hook_resid_pre"}, {"blocks.*.hook_resid_post"}});
      ctx.listen(&seen);
      EXPECT_CLOSE(all_logits(ctx, model, Step::of(c.ids(prompt))), c[prompt + "/logits"], c.tolerance());
      const int64_t n = model.shape().n_layers;
      for (int64_t layer = 0; layer <= n; ++layer) {
        const std::string at = "blocks." + std::to_string(std::min(layer, n - 1)), own = layer < n ? "pre" : "post";
        EXPECT_CLOSE(seen.values().at(at + ".hook_resid_" + own).values, c[prompt + "/hidden." + std::to_string(layer)],
                     c.tolerance());
      }
    }
}

TEST_P(RoFormerGolden, HooksMatch) {
  const RoFormerCase c(GetParam());
  const std::vector<std::string> known = c.opened.model->hook_names();
  std::vector<HookRequest> every;
  for (const std::string& name : known) every.push_back({name});
  ThreadPool pool(2);
  Context ctx(pool);
  Recorder seen(every);
  ctx.listen(&seen);
  all_logits(ctx, *c.opened.model, Step::of(c.ids("0")));
  size_t compared = 0;
  for (const std::string& name : Golden::names_in(c.golden, "0/hook/")) {
    SCOPED_TRACE(name);
    const auto value = seen.values().find(name.substr(7));
    ASSERT_NE(value, seen.values().end());
    EXPECT_CLOSE(value->second.values, c[name], c.tolerance());
    ++compared;
  }
  EXPECT_GE(compared, 4u + 12u * 2u);
  EXPECT_EQ(seen.values().size(), known.size());  // each is shown
}

TEST_P(RoFormerGolden, GradientsMatch) {
  const RoFormerCase c(GetParam());
  const Model& model = *c.opened.model;
  std::vector<int32_t> labels = ids_of(c["1/labels"]);
  if (is_causal(model)) {
    labels.erase(labels.begin());
    labels.push_back(kNotScored);
  }
  for (const bool recompute : {false, true}) {
    Gradients gradients(model, false);
    ThreadPool pool(2);
    Context ctx(pool);
    Tape tape(recompute ? Tape::kAllBlocks : 0);
    ctx.record_on(&tape);
    const std::vector<int32_t> ids = c.ids("1");
    const Step step = Step::of(ids);
    const Tensor loss = cross_entropy(ctx, model.residual(ctx, step), model.head(), labels);
    EXPECT_NEAR(*loss.data<float>(), c["loss"].values[0], 2e-5);
    tape.backward(ctx, loss);
    ctx.record_on(nullptr);
    const double share = std::max(1e-4, 3 * static_cast<double>(c["grad_distance"].values[0]));
    std::set<std::string> expected;
    for (const std::string& name : Golden::names_in(c.golden, "grad/")) expected.insert(name.substr(5));
    expected.erase("cls.predictions.decoder.bias");  // of a tied model, another name of cls.predictions.bias
    for (const auto& [name, buffer] : gradients.buffers()) {
      SCOPED_TRACE(name);
      expected.erase(name);
      const GoldenTensor want = c["grad/" + name];
      ASSERT_EQ(buffer.shape, want.shape);
      const auto* got = reinterpret_cast<const float*>(buffer.data.data());
      float largest = 0;
      for (const float x : want.values) largest = std::max(largest, std::abs(x));
      EXPECT_CLOSE(std::vector<float>(got, got + want.size()), want,
                   (Tolerance{.abs = share * static_cast<double>(largest), .rel = 0}));
    }
    EXPECT_TRUE(expected.empty()) << "no gradient of " << *expected.begin();
  }
}

TEST_P(RoFormerGolden, SequencesOfAStepDoNotMeet) {
  const RoFormerCase c(GetParam());
  ThreadPool pool(2);
  Context ctx(pool);
  Step both;
  both.add(c.ids("0"));
  both.add(c.ids("1"));
  std::vector<float> together = all_logits(ctx, *c.opened.model, both),
                     apart = all_logits(ctx, *c.opened.model, Step::of(c.ids("0")));
  together.resize(apart.size());
  EXPECT_CLOSE(together, apart, c.tolerance());  // more rows may have another kernel
}

TEST_P(RoFormerGolden, LaterTokensChangeEarlierLogitsInBothDirectionsAlone) {
  const RoFormerCase c(GetParam());
  ThreadPool pool(2);
  Context ctx(pool);
  std::vector<int32_t> ids = c.ids("1");
  const std::vector<float> before = all_logits(ctx, *c.opened.model, Step::of(ids));
  ids.back() = (ids.back() + 1) % static_cast<int32_t>(c.opened.model->shape().vocab_size);
  const std::vector<float> after = all_logits(ctx, *c.opened.model, Step::of(ids));
  const auto vocab = static_cast<size_t>(c.opened.model->shape().vocab_size);
  const bool same = std::equal(before.begin(), before.end() - static_cast<std::ptrdiff_t>(vocab), after.begin());
  EXPECT_EQ(same, is_causal(*c.opened.model));
  EXPECT_EQ(is_causal(*c.opened.model), GetParam().starts_with("causal"));
}

TEST_P(RoFormerGolden, WritesTheConfigurationItReads) {
  const RoFormerCase c(GetParam());
  ModelFiles files;
  files.config = c.opened.model->config(ConfigFormat::huggingface);
  files.config_path = "config.json";
  const std::unique_ptr<Model> again = model_from_config(files);
  EXPECT_EQ(again->config(ConfigFormat::huggingface), files.config);
  ASSERT_EQ(again->tensors().size(), c.opened.model->tensors().size());
  for (size_t i = 0; i < again->tensors().size(); ++i) {
    EXPECT_EQ(again->tensors()[i].huggingface, c.opened.model->tensors()[i].huggingface);
    EXPECT_EQ(again->tensors()[i].file_shape(false), c.opened.model->tensors()[i].file_shape(false));
  }
}

TEST_P(RoFormerGolden, WrittenDirectoryHasTheSameBits) {
  RoFormerCase c(GetParam());
  const Scratch scratch;
  write_huggingface(c.opened, {}, scratch / "copy", DType::f32);
  const OpenedModel copy = open_model(scratch / "copy");
  ThreadPool pool(2);
  Context ctx(pool);
  const Step step = Step::of(c.ids("1"));
  EXPECT_EQ(all_logits(ctx, *copy.model, step), all_logits(ctx, *c.opened.model, step));
}

TEST_P(RoFormerGolden, RecordIsThatOfARun) {
  const RoFormerCase c(GetParam());
  const Model& model = *c.opened.model;
  const std::unique_ptr<Model> bare = model_from_config(resolve_model(roformer_dir(GetParam())));  // without weights
  EXPECT_EQ(model.hook_names(), bare->hook_names());
  std::set<const void*> read;
  for (const OpRecord& op : record_step(model, {.rows = 3}).ops) {
    for (const Weight* w : op.weights) read.insert(w);
    for (const Vector* v : op.vectors) read.insert(v);
  }
  for (const TensorLine& line : model.tensors())
    EXPECT_TRUE(read.contains(line.weight != nullptr ? static_cast<const void*>(line.weight) : line.vector)) << line.ours;
  ThreadPool pool(1);
  for (const bool taped : {false, true}) {
    Context ctx(pool);
    Tape tape;
    if (taped) ctx.record_on(&tape);
    const std::vector<int32_t> ids = c.ids("1");
    const Step step = Step::of(ids);
    const Tensor x = model.residual(ctx, step);
    const int64_t last = step.rows() - 1;
    logits(ctx, x, model.head(), {&last, 1});
    const StepRecord record = record_step(model, {.rows = step.rows(), .tape = taped});
    EXPECT_EQ(record.peak_bytes, static_cast<int64_t>(ctx.arena().peak()));
    if (taped) {
      EXPECT_EQ(record.kept_bytes, static_cast<int64_t>(tape.arena().mark()));
    }
  }
  for (const LayerRecord& layer : model.record().layers) {
    EXPECT_EQ(layer.attention.causal, GetParam().starts_with("causal"));
    EXPECT_TRUE(layer.norms_after);
    EXPECT_FALSE(layer.rms);
    EXPECT_EQ(layer.rope->layout, RopeLayout::pairs);
  }
}

TEST(RoFormerHooks, AreNamedAsInOtherFamilies) {
  const std::vector<std::string> head = {"mlm_head.hook_pre",           "mlm_head.hook_post",
                                         "mlm_head.ln.hook_scale",      "mlm_head.ln.hook_normalized_pre",
                                         "mlm_head.ln.hook_normalized", "hook_logits"};
  std::vector<std::string> expected = {"hook_embed",
                                       "hook_token_type_embed",
                                       "ln_embed.hook_scale",
                                       "ln_embed.hook_normalized_pre",
                                       "ln_embed.hook_normalized",
                                       "hook_full_embed"};
  for (const char* at : {"blocks.0.", "blocks.1."})
    for (const char* name : {"hook_resid_pre",
                             "attn.hook_q",
                             "attn.hook_k",
                             "attn.hook_v",
                             "attn.hook_rot_q",
                             "attn.hook_rot_k",
                             "attn.hook_rot_v",
                             "attn.hook_attn_scores",
                             "attn.hook_pattern",
                             "attn.hook_z",
                             "attn.hook_result",
                             "attn.hook_out",
                             "hook_attn_out",
                             "ln1.hook_scale",
                             "ln1.hook_normalized_pre",
                             "ln1.hook_normalized",
                             "hook_resid_mid",
                             "mlp.hook_pre",
                             "mlp.hook_post",
                             "hook_mlp_out",
                             "ln2.hook_scale",
                             "ln2.hook_normalized_pre",
                             "ln2.hook_normalized",
                             "hook_resid_post"})
      expected.push_back(std::string(at) + name);
  expected.insert(expected.end(), head.begin(), head.end());
  EXPECT_EQ(RoFormerCase("masked_narrow").opened.model->hook_names(), expected);
}

INSTANTIATE_TEST_SUITE_P(Every, RoFormerGolden, testing::ValuesIn(golden_folders("roformer")),
                         [](const auto& test) { return test.param; });

TEST(RoFormerCausal, CachedStepsMatch) {
  for (const std::string name : {"causal", "causal_untied"}) {
    const RoFormerCase c(name);
    const std::vector<int32_t> ids = c.ids("1");
    ThreadPool pool(2);
    Context ctx(pool);
    KvCache cache(c.opened.model->cache_layers(), static_cast<int64_t>(ids.size()), 7);
    CacheSequence sequence = cache.sequence();
    std::vector<float> got;
    size_t done = 0;
    for (const size_t rows : {4, 1, 7, 1, 1}) {
      Step step;
      step.add(std::span(ids).subspan(done, rows), &sequence);
      const std::vector<float> part = all_logits(ctx, *c.opened.model, step);
      got.insert(got.end(), part.begin(), part.end());
      step.commit();
      done += rows;
    }
    ASSERT_EQ(done, ids.size());
    EXPECT_CLOSE(got, c["1/logits"], c.tolerance());
  }
}

TEST(RoFormerMasked, HasNoCache) {
  const RoFormerCase c("masked");
  for (const CacheLayer& layer : c.opened.model->cache_layers()) EXPECT_EQ(layer.head_dim, 0);
  EXPECT_CONTAINS(
      message_of<InputError>([&] { require_causal(*c.opened.model, "tiny", "A KV cache"); }),
      "A KV cache needs a causal model, and tiny (roformer) reads a text in both directions: it fills masked tokens and "
      "has no next token. Use `vitrine predict` with a mask in the text");
  KvCache cache(RoFormerCase("causal").opened.model->cache_layers(), 8, 8);
  CacheSequence sequence = cache.sequence();
  ThreadPool pool(1);
  Context ctx(pool);
  Step step;
  step.add(std::vector<int32_t>{1, 2, 3}, &sequence);
  EXPECT_CONTAINS(message_of<UsageError>([&] { c.opened.model->residual(ctx, step); }),
                  "a cache cannot be used while a tape records, in f64, or in both");
}

TEST(RoFormerMasked, HasAHeadOfMoreLayers) {
  EXPECT_CONTAINS(
      message_of<InputError>([] { require_plain_head(*RoFormerCase("masked").opened.model, "tiny", "The logit lens"); }),
      "The logit lens needs logits that are read off the residual stream by a norm and a matrix, and tiny (roformer) has a "
      "head of more layers (mlm_head.ln.hook_normalized)");
  EXPECT_NO_THROW(require_plain_head(*open_model(Golden::open("gpt2_a").model()).model, "tiny", "The logit lens"));
  EXPECT_NO_THROW(require_plain_head(*open_model(Golden::open("classic_post").model()).model, "tiny", "The logit lens"));
}

// A copy with another configuration or other tensors.
class ChangedRoFormer {
 public:
  explicit ChangedRoFormer(const std::string& name) : source_(roformer_dir(name)), config_(read_json(source_ + "/config.json")) {}
  ChangedRoFormer& set(const std::string& key, const Json& value) {
    config_[key] = value;
    return *this;
  }
  ChangedRoFormer& tensors(std::function<void(TensorToWrite&)> edit) {
    edit_ = std::move(edit);
    return *this;
  }
  ChangedRoFormer& add(TensorToWrite tensor) {
    added_.push_back(std::move(tensor));
    return *this;
  }
  std::string message() {
    scratch_.write("config.json", config_.dump());
    const Checkpoint source = open_safetensors(source_ + "/model.safetensors");
    std::vector<TensorToWrite> tensors = added_;
    for (const auto& [name, tensor] : source.tensors()) {
      TensorToWrite copy{name, tensor.dtype, tensor.shape, tensor.data};
      if (edit_) edit_(copy);
      if (!copy.name.empty()) tensors.push_back(copy);
    }
    write_safetensors(scratch_ / "model.safetensors", tensors);
    return message_of([&] { open_model(scratch_.path()); });
  }

 private:
  std::string source_;
  Json config_;
  std::function<void(TensorToWrite&)> edit_;
  std::vector<TensorToWrite> added_;
  Scratch scratch_;
};

TEST(RoFormerRefusals, ImpossibleConfigurations) {
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("num_attention_heads", 4).message(),
                  "config.json: \"num_attention_heads\" is 4; does not divide hidden_size (18)");
  EXPECT_CONTAINS(
      ChangedRoFormer("masked").set("num_attention_heads", 6).message(),
      "makes heads of 3 components (hidden_size / num_attention_heads); RoPE rotates them in pairs, so expected an even");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("hidden_act", "mish").message(), "is not an activation vitrine knows");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("embedding_size", 0).message(), "embedding_size");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("type_vocab_size", 0).message(), "type_vocab_size");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("max_position_embeddings", -1).message(), "max_position_embeddings");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("pad_token_id", 31).message(), "is outside the vocabulary (0 to 30)");
  EXPECT_CONTAINS(ChangedRoFormer("causal").set("add_cross_attention", true).message(), "add_cross_attention");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("layer_norm_eps", -1).message(), "must not be negative");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("vitrine_norms", "pre").message(), "has no other form for");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("position_embedding_type", "absolute").message(), "position_embedding_type");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("architectures", {"RoFormerForSequenceClassification"}).message(),
                  "is not the language model of the family roformer; expected RoFormerForMaskedLM or RoFormerForCausalLM");
}

TEST(RoFormerRefusals, TensorsThatDoNotFit) {
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("vocab_size", 30).message(), "(header byte");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("vocab_size", 30).message(), "expected [30, 18] = [vocab_size, embedding_size]");
  EXPECT_CONTAINS(ChangedRoFormer("masked_narrow").set("embedding_size", 11).message(), "[vocab_size, embedding_size]");
  EXPECT_CONTAINS(ChangedRoFormer("masked").set("intermediate_size", 14).message(), "[d_ff, d_model]");
  EXPECT_CONTAINS(
      ChangedRoFormer("masked")
          .tensors([](TensorToWrite& t) {
            if (t.name.starts_with("cls.")) t.name.clear();
          })
          .message(),
      "lacks the tensor \"cls.predictions.transform.dense.weight\" (mlm_head.W_transform)");  // a RoFormerModel's file
  EXPECT_CONTAINS(ChangedRoFormer("masked_narrow")
                      .tensors([](TensorToWrite& t) {
                        if (t.name == "roformer.embeddings_project.bias") t.name.clear();
                      })
                      .message(),
                  "lacks the tensor \"roformer.embeddings_project.bias\"");
  std::vector<float> other(31 * 18, 0.5f);
  EXPECT_CONTAINS(
      ChangedRoFormer("masked")
          .add({"cls.predictions.decoder.weight", DType::f32, {31, 18}, reinterpret_cast<const std::byte*>(other.data())})
          .message(),
      "\"cls.predictions.decoder.weight\"");
  EXPECT_CONTAINS(
      ChangedRoFormer("masked")
          .add({"roformer.pooler.dense.weight", DType::f32, {18, 18}, reinterpret_cast<const std::byte*>(other.data())})
          .message(),
      "holds 1 tensor(s) that the family roformer does not have: \"roformer.pooler.dense.weight\"");
}

TEST(RoFormerRefusals, GgufHasNoForm) {
  const OpenedModel opened = open_model(roformer_dir("masked"));
  EXPECT_EQ(family_of(*opened.model).gguf, nullptr);
}

}  // namespace
}  // namespace vitrine
