// Prompts of /infill, with the shipped tokenizer and three more tokens.
#include "serve/infill.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace vitrine::serve {
namespace {

TEST(Infill, TextsStandBehindTheirTokens) {
  OrderedJson file = OrderedJson::parse(std::ifstream(std::string(VITRINE_SOURCE) + "/models/tales9m/tokenizer.json"));
  const OrderedJson control = file["added_tokens"][0];
  int32_t next = 6144;
  for (const char* piece : {"<fim_prefix>", "<fim_middle>", "<fim_suffix>"}) {
    OrderedJson token = control;
    token["id"] = next++;
    token["content"] = piece;
    file["added_tokens"].push_back(token);
  }
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "vitrine_infill";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << file;
  const auto tokenizer = load_tokenizer(folder.string());
  std::filesystem::remove_all(folder);

  const auto table = infill_prompt_fields();
  const Fields fields(R"({"input_prefix": "The king<fim_suffix>", "input_suffix": "the queen", "prompt": "and"})", table);
  std::vector<int32_t> expected;
  if (tokenizer->adds_bos()) expected.push_back(tokenizer->bos().value());
  const std::pair<int32_t, const char*> parts[] = {{6144, "The king<fim_suffix>"}, {6146, "the queen"}, {6145, "and"}};
  for (const auto& [token, text] : parts) {
    expected.push_back(token);
    const std::vector<int32_t> ids = tokenizer->encode(text, false, Special::text);
    EXPECT_EQ(std::ranges::count(ids, 6146), 0) << "a control token that is spelled out is text";
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(infill_prompt(fields, *tokenizer), expected);
}

}  // namespace
}  // namespace vitrine::serve
