// The types that mixtures give each tensor, against llama-quantize's choice (tests/golden/quantize/make_mixtures.py).
#include "quantize/mixture.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace vitrine {
namespace {

TEST(Mixtures, ChooseAsLlamaQuantize) {
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/quantize/mixtures.json");
  int64_t compared = 0;
  for (const Json& one : golden.at("cases")) {
    MixtureModel model{.n_layers = one.at("n_layers"),
                       .n_heads = one.at("n_heads"),
                       .n_experts = one.at("n_experts"),
                       .n_kv_heads = one.at("n_kv_heads")};
    const auto names = one.at("tensors").get<std::vector<std::string>>();
    std::vector<MixtureTensor> tensors;
    for (size_t i = 0; i < names.size(); ++i)
      tensors.push_back({names[i], one.at("shapes")[i].get<std::vector<int64_t>>(), DType::f32});
    for (const auto& [mixture_name, both] : one.at("types").items()) {
      const Mixture* const mixture = find_mixture(mixture_name);
      ASSERT_NE(mixture, nullptr) << mixture_name;
      for (const bool importance : {false, true}) {
        if (both[importance].is_null()) continue;
        const auto letters = both[importance].get<std::string>();
        model.with_importance = importance;
        const std::vector<DType> types = choose_types(*mixture, model, tensors);
        ASSERT_EQ(types.size(), letters.size());
        for (size_t i = 0; i < types.size(); ++i, ++compared)
          EXPECT_EQ(name_of(types[i]), golden.at("letters").at(std::string(1, letters[i])).get<std::string>())
              << one.at("name") << " " << mixture_name << (importance ? " with importance: " : ": ") << names[i];
      }
    }
  }
  EXPECT_GT(compared, 50000);
}

TEST(Mixtures, AreFoundByName) {
  EXPECT_EQ(find_mixture("q4_k_m")->file_type, 15u);
  EXPECT_EQ(find_mixture("Q4_K"), find_mixture("Q4_K_M"));
  EXPECT_EQ(find_mixture("q5_k"), find_mixture("Q5_K_M"));
  EXPECT_EQ(find_mixture("Q4_K_X"), nullptr);
  EXPECT_EQ(find_mixture(""), nullptr);
}

TEST(Mixtures, PureGivesOneType) {
  const std::vector<MixtureTensor> tensors = {{"token_embd.weight", {512, 256}},
                                              {"blk.0.attn_v.weight", {256, 256}},
                                              {"blk.0.attn_norm.weight", {256}},
                                              {"position_embd.weight", {8, 256}, DType::f16}};
  const std::vector<DType> types =
      choose_types(*find_mixture("Q4_K_M"), {.n_layers = 1, .n_heads = 4, .n_kv_heads = 4}, tensors, true);
  EXPECT_EQ(types, (std::vector<DType>{DType::q4_k, DType::q4_k, DType::f32, DType::f16}));
}

}  // namespace
}  // namespace vitrine
