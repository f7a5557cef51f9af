#include "io/gguf_names.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

TEST(GgufNames, TellTheType) {
  const std::vector<std::pair<std::string, std::string>> types = {{"gemma-2-2b-it-Q4_K_M.gguf", "Q4_K_M"},
                                                                  {"Llama-3.2-1B.Q8_0.gguf", "Q8_0"},
                                                                  {"qwen3-0.6b-bf16.gguf", "bf16"},
                                                                  {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
                                                                  {"m-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
                                                                  {"Phi-3-mini-4k-instruct-q4.gguf", "q4"},
                                                                  {"m-Q4_K_M-imat.gguf", "Q4_K_M"},
                                                                  {"ggml-model-f16.gguf", "f16"},
                                                                  {"Qwen3-0.6B.gguf", ""},
                                                                  {"Q2-model.gguf", "Q2"},
                                                                  {"BF16/m-BF16.gguf", "BF16"},
                                                                  {"model.gguf", ""},
                                                                  {"Q8_0.gguf", "Q8_0"},
                                                                  {"m-TQ1_0.gguf", "TQ1_0"},
                                                                  {"m-IQ4.x.gguf", "IQ4"},
                                                                  {"Quiet-model.gguf", ""}};
  for (const auto& [name, type] : types) {
    const std::vector<GgufModel> models = gguf_models({name});
    ASSERT_EQ(models.size(), 1u) << name;
    EXPECT_EQ(models.front().type, type) << name;
  }
}

TEST(GgufNames, JoinPartsAndLeaveOutWhatIsNoModel) {
  const std::vector<GgufModel> models =
      gguf_models({"m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf", "config.json",
                   "mmproj-BF16.gguf", "m.imatrix.gguf", "m-Q4_0.gguf", "n-Q4_0-00001-of-00002.gguf"});
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].files, std::vector<std::string>{"m-Q4_0.gguf"});
  EXPECT_EQ(models[1].files,
            (std::vector<std::string>{"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"}));
  EXPECT_EQ(models[2].parts, 2);
  EXPECT_EQ(models[2].files.size(), 1u);
  EXPECT_EQ(types_text(models), "Q4_0, Q8_0");
}

TEST(GgufNames, AreFoundByTypeInWhateverCase) {
  const std::vector<GgufModel> models = gguf_models({"m-Q4_K_M.gguf", "m-UD-Q2_K_XL.gguf", "m-BF16.gguf", "n-Q4_K_M.gguf"});
  EXPECT_EQ(of_type(models, "q4_k_m").size(), 2u);
  EXPECT_EQ(of_type(models, "Q2_K_XL").front().files.front(), "m-UD-Q2_K_XL.gguf");
  EXPECT_TRUE(of_type(models, "F16").empty());
  EXPECT_TRUE(of_type(models, "Q4_K").empty());
}

}  // namespace
}  // namespace vitrine
