// The words of pictures and of the walk-through: one of a thing is not several.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/plural.h"
#include "support.h"
#include "support/random_model.h"

namespace vitrine {
namespace {

TEST(Words, FollowTheirNumber) {
  EXPECT_EQ(plural(int64_t{1}, "token"), "1 token");
  EXPECT_EQ(plural(int64_t{0}, "token"), "0 tokens");
  EXPECT_EQ(plural("0.75", "radian"), "0.75 radians");
  EXPECT_EQ(plural(size_t{12}, "key and value head"), "12 key and value heads");
}

// "1 tokens" and the like in a text.
std::vector<std::string> ones_in_plural(const std::string& text) {
  std::vector<std::string> found;
  for (size_t at = text.find("1 "); at != std::string::npos; at = text.find("1 ", at + 1)) {
    if (at > 0 && std::string_view("0123456789.,").find(text[at - 1]) != std::string_view::npos) continue;
    const size_t end =
        std::min(text.size(), text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-", at + 2));
    const std::string word = text.substr(at + 2, end - at - 2);
    if (word.ends_with("s") && word != "is" && word != "has" && word != "as") found.push_back("1 " + word);
  }
  return found;
}

void every_text(const PictureJson& json, std::vector<std::string>& texts) {
  if (json.is_string()) texts.push_back(json.get<std::string>());
  if (json.is_structured())
    for (const PictureJson& inside : json) every_text(inside, texts);
}

TEST(Words, OneTokenOneLayerOneHead) {
  EXPECT_EQ(ones_in_plural("1 tokens, 21 tokens, 1 token is"), std::vector<std::string>{"1 tokens"});
  const TemporaryDirectory folder;
  write_random_model(folder.path(), {{"architectures", {"GemmaForCausalLM"}},
                                     {"model_type", "gemma"},
                                     {"hidden_size", 4},
                                     {"num_hidden_layers", 1},
                                     {"num_attention_heads", 1},
                                     {"num_key_value_heads", 1},
                                     {"head_dim", 2},
                                     {"intermediate_size", 4},
                                     {"vocab_size", 8},
                                     {"max_position_embeddings", 1},
                                     {"hidden_act", "gelu_pytorch_tanh"}});
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({3}));
  std::vector<std::string> texts;
  every_text(document, texts);
  EXPECT_GT(texts.size(), 150u);
  for (const PictureInfo& info : pictures()) {
    if (!document.at("pictures").at(info.name).at("available").get<bool>()) continue;
    const std::string svg = picture_svg(document, info.name);
    for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1))
      texts.push_back(svg.substr(svg.find('>', at) + 1, svg.find('<', at + 1) - svg.find('>', at) - 1));
  }
  for (const std::string& text : texts) EXPECT_EQ(ones_in_plural(text), std::vector<std::string>()) << text;
}

}  // namespace
}  // namespace vitrine
