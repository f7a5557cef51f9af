// Pictures of gradients, against numbers of transformers' modules (tests/golden/forms).
#include <gtest/gtest.h>

#include "inspect/circuits.h"
#include "io/huggingface.h"
#include "model/load.h"
#include "picture/support.h"
#include "picture/tables.h"

namespace vitrine {
namespace {

OpenedModel with_key(const std::string& model, const char* key, const Json& value) {
  ModelFiles files = resolve_model(Golden::open(model).model());
  files.config[key] = value;
  return open_model(std::move(files));
}

TEST(Gradients, ReachEachLayerAsTorchSays) {
  const Checkpoint gold = open_safetensors(std::string(VITRINE_GOLDEN) + "/forms/forms.safetensors");
  const GoldenTensor stored = golden_tensor(gold, "ids");
  const PicturePrompt prompt = ids_prompt({stored.begin(), stored.end()});
  for (const char* model : {"gpt2_a", "gemma2", "llama"}) {
    SCOPED_TRACE(model);
    Engine engine(with_key(model, "vitrine_norms", "post"), kF32);
    const PictureJson document = picture_document(engine, prompt, "gradient-norms");
    const PictureJson& p = document.at("pictures").at("gradient-norms");
    const std::vector<double> got = doubles(p.at("norms"));
    const GoldenTensor want = golden_tensor(gold, std::string(model) + "/post/stream");
    ASSERT_EQ(got.size(), want.size() + 1);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], static_cast<double>(want.values[i]), 2e-4 * static_cast<double>(want.values[i]));
    ASSERT_EQ(p.at("withoutNorms").size(), got.size());  // the second curve: the same weights, norms off
    EXPECT_NE(doubles(p.at("withoutNorms"))[0], got[0]);
    EXPECT_CONTAINS(picture_svg(document, "gradient-norms"), "without norms");
  }
  Engine off(with_key("llama", "vitrine_norms", "off"), kF32);
  EXPECT_TRUE(picture_document(off, prompt, "gradient-norms").at("pictures").at("gradient-norms").at("withoutNorms").is_null());
}

TEST(Gradients, AtTheEmbeddingsOfTheTokensBeforeThePrediction) {
  Engine engine(open_model(Golden::open("llama").model()), kF32);
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42, 8, 200, 33};
  const PictureJson p = picture_document(engine, ids_prompt(ids), "input-attribution").at("pictures").at("input-attribution");
  EXPECT_EQ(p.at("saliency").size(), ids.size());
  EXPECT_LT(p.at("target").at("logprob").get<double>(), 0);
  for (const double s : doubles(p.at("saliency"))) EXPECT_GT(s, 0);
  const PictureJson early =
      picture_document(engine, ids_prompt(ids), "input-attribution", {.position = 3}).at("pictures").at("input-attribution");
  EXPECT_EQ(early.at("saliency").size(), 4u);
  EXPECT_THROW(picture_document(engine, ids_prompt(ids), "input-attribution", {.position = 8}), InputError);
}

TEST(Gradients, AreDrawnAndTabled) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PicturePrompt prompt = text_prompt(engine, "Once upon a time there was a king");
  ASSERT_EQ(pictures_alone().size(), 2u);
  for (const PictureInfo& info : pictures_alone()) {
    SCOPED_TRACE(info.name);
    const PictureJson document = picture_document(engine, prompt, info.name);
    const std::string svg = picture_svg(document, info.name);
    EXPECT_TRUE(svg.starts_with("<svg "));
    EXPECT_TRUE(svg.find("nan") == std::string::npos && svg.find("inf") == std::string::npos);
    const std::vector<PictureTable> tables = picture_tables(document, info.name);
    ASSERT_EQ(tables.size(), 1u);
    EXPECT_GE(tables[0].rows.size(), 8u);
    for (const auto& row : tables[0].rows) EXPECT_EQ(row.size(), tables[0].columns.size());
  }
  const PictureJson one = picture_document(engine, ids_prompt({5}), "gradient-norms").at("pictures").at("gradient-norms");
  EXPECT_FALSE(one.at("available").get<bool>());
}

// What is written for a family's own norms does not run on other ones.
TEST(Gradients, OtherPicturesRefuseFormsTheyDoNotKnow) {
  Engine off(with_key("llama", "vitrine_norms", "off"), kF32);
  const auto refused = [&](auto&& f) {
    try {
      f();
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("nothing refused");
  };
  EXPECT_CONTAINS(refused([&] { picture_document(off, ids_prompt({1, 2, 3}), "norm-statistics"); }), "vitrine_norms");
  EXPECT_CONTAINS(refused([&] { explain_document(off, ids_prompt({1, 2, 3})); }), "vitrine_norms");
  EXPECT_NO_THROW(picture_document(off, ids_prompt({1, 2, 3}), "update-scale"));
  EXPECT_NO_THROW(picture_document(off, ids_prompt({1, 2, 3}), "logit-attribution"));
  Engine replace(with_key("llama", "vitrine_residual", false), kF32);
  EXPECT_CONTAINS(refused([&] { picture_document(replace, ids_prompt({1, 2, 3}), "logit-attribution"); }), "vitrine_residual");
  EXPECT_CONTAINS(refused([&] { circuit_table(replace); }), "vitrine_residual");
}

}  // namespace
}  // namespace vitrine
