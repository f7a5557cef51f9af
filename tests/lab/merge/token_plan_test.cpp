#include "merge/token_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"
#include "tokenizer/sentencepiece_writer.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<float>>;
using OrderedJson = nlohmann::ordered_json;

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/merging/tokens";

Companions files_in(const fs::path& folder) {
  Companions files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != "embedding.json") files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

OrderedJson read_ordered(const std::string& path) { return OrderedJson::parse(read_file(path)); }

/// Names of models begin with "@" in the golden files, where they are paths for mergekit.
ModelReference reference(const std::string& name) { return {name.starts_with('@') ? name.substr(1) : name, ""}; }

TokenRule read_rule(const OrderedJson& json) {
  TokenRule rule;
  rule.where = "recipe.yaml:1: \"tokens\"";
  rule.force = json.value("force", false);
  if (!json.contains("source")) return rule;
  const OrderedJson& source = json["source"];
  if (source.is_string()) {
    rule.kind = TokenRule::Kind::model;
    rule.model = reference(source);
  } else if (source["kind"] == "zero") {
    rule.kind = TokenRule::Kind::zero;
  } else {
    rule.kind = TokenRule::Kind::model_token;
    rule.model = reference(source["model"]);
    if (source.contains("token")) rule.token = source["token"];
    if (source.contains("token_id")) rule.token_id = source["token_id"];
  }
  return rule;
}

TokenizerRecipe read_recipe(const OrderedJson& json) {
  TokenizerRecipe recipe;
  recipe.where = "recipe.yaml:1: \"tokenizer\"";
  const std::string source = json.value("source", "union");
  if (source == "base") recipe.source = TokenizerRecipe::Source::base;
  if (source.starts_with('@')) recipe.source = TokenizerRecipe::Source::model, recipe.model = reference(source);
  recipe.pad_to_multiple_of = json.value("pad_to_multiple_of", 0);
  if (json.contains("tokens"))
    for (const auto& [token, rule] : json["tokens"].items()) recipe.tokens.emplace_back(token, read_rule(rule));
  return recipe;
}

Rows aligned(const TokenPlan& plan, const std::vector<Rows>& embeddings, size_t input) {
  const size_t width = embeddings[input][0].size(), n = plan.tokens.size();
  Rows out(size_t(plan.rows), std::vector<float>(width));
  std::vector<double> mean(width);
  for (size_t id = 0; id < n; ++id) {
    const int64_t row = plan.own[input][id];
    for (size_t j = 0; j < width; ++j) {
      double sum = 0;
      for (const auto& [from, r] : plan.defaults[id]) sum += double(embeddings[size_t(from)].at(size_t(r))[j]);
      if (!plan.defaults[id].empty()) sum /= double(plan.defaults[id].size());
      out[id][j] = row >= 0 ? embeddings[input].at(size_t(row))[j] : float(sum);
      mean[j] += double(out[id][j]) / double(n);
    }
  }
  for (size_t id = n; id < out.size(); ++id)
    for (size_t j = 0; j < width; ++j) out[id][j] = float(mean[j]);
  return out;
}

std::string all_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class TokenPlanGolden : public testing::TestWithParam<std::string> {};

TEST_P(TokenPlanGolden, IsThatOfMergekit) {
  const OrderedJson golden = read_ordered(kFolder + "/cases/" + GetParam() + ".json");
  std::vector<TokenizerInput> inputs;
  std::vector<Rows> embeddings;
  std::optional<size_t> base;
  for (const std::string name : golden["models"]) {
    if (golden["base"] == name) base = inputs.size();
    const std::string folder = kFolder + "/models/" + name;
    embeddings.push_back(read_ordered(folder + "/embedding.json").get<Rows>());
    inputs.push_back({{name, ""}, files_in(folder), int64_t(embeddings.back().size())});
  }
  const TokenPlan plan = plan_tokens(read_recipe(golden["recipe"]), inputs, base);
  SCOPED_TRACE(all_lines(plan.report));

  ASSERT_EQ(plan.tokens.size(), golden["vocabulary"].size());
  for (const auto& [token, id] : golden["vocabulary"].items()) EXPECT_EQ(plan.tokens.at(id), token);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Rows ours = aligned(plan, embeddings, i), theirs = golden["aligned"][inputs[i].model.path].get<Rows>();
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t row = 0; row < ours.size(); ++row) {
      const bool is_mean = row >= plan.tokens.size() || (plan.own[i][row] < 0 && plan.defaults[row].size() > 1);
      for (size_t j = 0; j < ours[row].size(); ++j)
        EXPECT_NEAR(ours[row][j], theirs[row][j], is_mean ? 1e-6 * (1 + std::abs(theirs[row][j])) : 0)
            << inputs[i].model.path << ", row " << row << (row < plan.tokens.size() ? " " + plan.tokens[row] : " of padding");
    }
  }

  const Scratch scratch;
  write_companions(plan.files, scratch.path());
  const auto tokenizer = load_tokenizer(scratch.path());
  ASSERT_EQ(size_t(tokenizer->vocab_size()), plan.tokens.size());
  for (size_t id = 0; id < plan.tokens.size(); ++id) EXPECT_EQ(tokenizer->find(plan.tokens[id]), int32_t(id)) << plan.tokens[id];
  const OrderedJson texts = read_ordered(kFolder + "/texts.json");
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(tokenizer->encode(texts[i].get<std::string>()), golden["ids"][i].get<std::vector<int32_t>>()) << texts[i];
  const Json written = parse_json(plan.files.at("tokenizer.json"), "tokenizer.json");
  for (const Json& token : written["added_tokens"]) {
    Json flags = token;
    flags.erase("id");
    EXPECT_EQ(Json(golden["added"][std::to_string(token["id"].get<int64_t>())]), flags);
  }
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder + "/cases")) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Cases, TokenPlanGolden, testing::ValuesIn(case_names()), [](const auto& test) { return test.param; });

std::string added_json(int id, const std::string& content, bool special = true) {
  return Json{{"id", id}, {"content", content}, {"special", special}}.dump();
}

/// A tokenizer.json of these characters, with ids in order, and added tokens.
std::string character_tokenizer(const std::string& characters, const std::string& added = "", const std::string& merges = "") {
  std::string vocabulary;
  for (size_t i = 0; i < characters.size(); ++i)
    vocabulary += (i == 0 ? "\"" : ", \"") + std::string(1, characters[i]) + "\": " + std::to_string(i);
  return R"({"added_tokens": [)" + added + R"(], "model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": [)" +
         merges + "]}}";
}

TokenizerInput input(const std::string& name, Companions files, int64_t rows) { return {{name, ""}, std::move(files), rows}; }

TokenizerRecipe source(TokenizerRecipe::Source from) {
  TokenizerRecipe recipe;
  recipe.source = from;
  recipe.where = "recipe.yaml:9: \"tokenizer\"";
  return recipe;
}
const TokenizerRecipe kUnion = source(TokenizerRecipe::Source::union_of_all), kBase = source(TokenizerRecipe::Source::base);

TokenizerRecipe with_rule(const std::string& token, TokenRule rule) {
  TokenizerRecipe recipe = kUnion;
  rule.where = "recipe.yaml:12: \"tokens." + token + "\"";
  recipe.tokens.emplace_back(token, std::move(rule));
  return recipe;
}

TEST(TokenPlan, LeavesFilesAloneWhereNoTokenIsNew) {
  const Companions files = {{"tokenizer.json", character_tokenizer("abc")}, {"vocab.json", "{}"}, {"chat_template.jinja", "x"}};
  const TokenPlan plan =
      plan_tokens(kUnion, {input("a", files, 3), input("b", {{"tokenizer.json", character_tokenizer("cb")}}, 2)}, 0);
  EXPECT_EQ(plan.files, files);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(plan.own[1], (std::vector<int64_t>{-1, 1, 0}));
}

TEST(TokenPlan, TakesFilesAwayThatWouldContradict) {
  const Companions files = {
      {"tokenizer.json", character_tokenizer("abc")},
      {"vocab.json", "{}"},
      {"merges.txt", ""},
      {"tokenizer.model", ""},
      {"added_tokens.json", "{}"},
      {"special_tokens_map.json", "{}"},
      {"tokenizer_config.json", R"({"z": 1, "added_tokens_decoder": {"3": {"content": "<x>", "special": true}}, "b": 2})"}};
  const TokenPlan plan =
      plan_tokens(kUnion, {input("a", files, 4), input("b", {{"tokenizer.json", character_tokenizer("acd")}}, 3)}, 0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "c", "<x>", "d"}));
  std::vector<std::string> names;
  for (const auto& [name, content] : plan.files) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}));
  // The declared token now stands in tokenizer.json, too.
  const Json written = parse_json(plan.files.at("tokenizer.json"), "tokenizer.json");
  ASSERT_EQ(written["added_tokens"].size(), 2u);
  EXPECT_EQ(written["added_tokens"][0]["content"], "<x>");
  EXPECT_EQ(written["added_tokens"][0]["special"], true);
  EXPECT_EQ(written["added_tokens"][1]["content"], "d");
  EXPECT_EQ(written["added_tokens"][1]["id"], 4);
  const OrderedJson config = OrderedJson::parse(plan.files.at("tokenizer_config.json"));
  EXPECT_EQ(config["added_tokens_decoder"]["4"]["content"], "d");
  EXPECT_EQ(config["added_tokens_decoder"]["3"]["content"], "<x>");
  EXPECT_EQ(config.begin().key(), "z");  // in the order of the file
}

TEST(TokenPlan, NewTokensOfTheRecipeHaveItsOrder) {
  TokenizerRecipe recipe = kUnion;
  for (const char* token : {"zebra", "b", "ant"}) recipe.tokens.emplace_back(token, TokenRule{});
  const TokenPlan plan = plan_tokens(recipe, {input("a", {{"tokenizer.json", character_tokenizer("ab")}}, 2)}, 0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "zebra", "ant"}));
  EXPECT_TRUE(plan.defaults[2].empty());  // nobody has it: zero
  EXPECT_CONTAINS(all_lines(plan.report), "2 tokens in no model, so zero: \"zebra\", \"ant\"");
  EXPECT_CONTAINS(all_lines(plan.report), "\"b\": every model has it, so its rule changes nothing");
}

TEST(TokenPlan, CutsMergesWhosePiecesHaveNoRow) {
  const std::string text = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 3, "bc": 2, "ab": 4, "abc": 5},
    "merges": ["b c", ["a", "b"], "a bc"]}, "added_tokens": [{"id": 6, "content": "<x>"}]})";
  const TokenPlan plan = plan_tokens(kBase, {input("m", {{"tokenizer.json", text}}, 5)}, 0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "bc", "c", "ab"}));
  EXPECT_EQ(plan.rows, 5);
  const Json model = parse_json(plan.files.at("tokenizer.json"), "tokenizer.json")["model"];
  EXPECT_EQ(model["merges"], Json::parse(R"([["b", "c"], ["a", "b"]])"));
  EXPECT_EQ(model["vocab"], (Json{{"a", 0}, {"b", 1}, {"bc", 2}, {"c", 3}, {"ab", 4}}));
  EXPECT_CONTAINS(all_lines(plan.report), "m: 2 tokens without a row in its embedding of 5, left out: \"abc\", \"<x>\"");
  const Scratch scratch;
  write_companions(plan.files, scratch.path());
  EXPECT_EQ(load_tokenizer(scratch.path())->encode("abc"), (std::vector<int32_t>{0, 2}));
}

TEST(TokenPlan, SaysWhichRowsAreLeftOut) {
  const TokenPlan plan = plan_tokens(kBase, {input("m", {{"tokenizer.json", character_tokenizer("abc")}}, 64)}, 0);
  EXPECT_EQ(plan.rows, 3);
  EXPECT_CONTAINS(all_lines(plan.report),
                  "m: the last 61 of its 64 rows stand for no token and are left out; pad_to_multiple_of");
}

TEST(TokenPlan, SaysWhichTokensAreLeftOut) {
  const std::vector<TokenizerInput> models = {input("a", {{"tokenizer.json", character_tokenizer("abc")}}, 3),
                                              input("b", {{"tokenizer.json", character_tokenizer("cbadefghijklm")}}, 12)};
  EXPECT_CONTAINS(all_lines(plan_tokens(kBase, models, 0).report),
                  "b: 9 tokens that the result does not have, left out: "
                  "\"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\", \"k\", …\n");
  EXPECT_EQ(all_lines(plan_tokens(kUnion, models, 0).report).find("that the result does not have"), std::string::npos);
}

TEST(TokenPlan, TokensBeyondAnotherModelsRowsAreLacking) {
  const TokenPlan plan = plan_tokens(kUnion,
                                     {input("a", {{"tokenizer.json", character_tokenizer("abc")}}, 3),
                                      input("b", {{"tokenizer.json", character_tokenizer("cbad")}}, 2)},
                                     0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "c"}));  // "d" has no row, either
  EXPECT_EQ(plan.own[1], (std::vector<int64_t>{-1, 1, 0}));
  EXPECT_EQ(plan.defaults[0], (std::vector<std::pair<int, int64_t>>{{0, 0}}));
  EXPECT_CONTAINS(all_lines(plan.report), "b: 1 token beyond the 2 rows of its embedding count as lacking: \"a\"");
}

TEST(TokenPlan, IdsWithoutATokenKeepTheRowOfTheSource) {
  const std::string text = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 3}, "merges": []}})";
  const TokenPlan plan = plan_tokens(kUnion,
                                     {input("m", {{"tokenizer.json", text}}, 4), input("bare", {}, 3),
                                      input("o", {{"tokenizer.json", character_tokenizer("bx")}}, 2)},
                                     0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "", "", "b", "x"}));
  EXPECT_EQ(plan.rows, 5);
  EXPECT_EQ(plan.own[0], (std::vector<int64_t>{0, 1, 2, 3, -1}));
  EXPECT_EQ(plan.own[1], (std::vector<int64_t>{0, 1, 2, -1, -1}));  // has the same vocabulary, but a row less
  EXPECT_EQ(plan.own[2], (std::vector<int64_t>{-1, -1, -1, 0, 1}));
  EXPECT_EQ(plan.defaults[1], (std::vector<std::pair<int, int64_t>>{{0, 1}}));
  EXPECT_CONTAINS(all_lines(plan.report), "m: 2 of its ids stand for no token");
}

TEST(TokenPlan, SpecialTokensThatOnlyTheConfigurationNamesHaveTheNextRows) {
  const Companions files = {{"tokenizer.json", character_tokenizer("ab")},
                            {"tokenizer_config.json", R"({"eos_token": "b", "pad_token": "[PAD]"})"}};
  const auto other = input("o", {{"tokenizer.json", character_tokenizer("bc")}}, 2);
  EXPECT_EQ(plan_tokens(kUnion, {input("m", files, 4), other}, 0).tokens, (std::vector<std::string>{"a", "b", "[PAD]", "c"}));
  EXPECT_EQ(plan_tokens(kUnion, {input("m", files, 2), other}, 0).tokens, (std::vector<std::string>{"a", "b", "c"}));  // no row
}

TEST(TokenPlan, ExtendsATokenizerModelBesideIt) {
  SentencePieceSpec spec;
  for (const auto& [text, type] : std::vector<std::pair<std::string, PieceType>>{{"<unk>", PieceType::unknown},
                                                                                 {"<s>", PieceType::control},
                                                                                 {"</s>", PieceType::control},
                                                                                 {"a", PieceType::normal},
                                                                                 {"b", PieceType::normal},
                                                                                 {"▁", PieceType::normal}})
    spec.pieces.push_back({text, -float(spec.pieces.size()), type});
  const std::string bytes = sentencepiece_model(spec);
  const Companions files = {
      {"tokenizer.model", bytes}, {"added_tokens.json", R"({"<old>": 6})"}, {"tokenizer_config.json", R"({"legacy": false})"}};
  const auto other = input("o", {{"tokenizer.json", character_tokenizer("ax", added_json(2, "<new>"))}}, 3);
  const TokenPlan plan = plan_tokens(kUnion, {input("m", files, 7), other}, 0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"<unk>", "<s>", "</s>", "a", "b", "▁", "<old>", "x", "<new>"}));
  EXPECT_EQ(plan.files.at("tokenizer.model"), bytes);
  EXPECT_FALSE(plan.files.contains("added_tokens.json"));
  const Scratch scratch;
  write_companions(plan.files, scratch.path());
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(tokenizer->encode("a<old>bx<new>", false, Special::parse), (std::vector<int32_t>{5, 3, 6, 4, 7, 8}));

  // A declared token without a row goes, a piece cannot.
  const TokenPlan shorter = plan_tokens(kBase, {input("m", files, 6)}, 0);
  EXPECT_EQ(shorter.tokens.size(), 6u);
  EXPECT_EQ(Json::parse(shorter.files.at("tokenizer_config.json"))["added_tokens_decoder"], Json::object());
  const std::string message = message_of([&] { plan_tokens(kBase, {input("m", files, 4)}, 0); });
  EXPECT_CONTAINS(message, "m/tokenizer.model: \"b\" has id 4, but the embedding has only 4 rows");
  EXPECT_CONTAINS(message, "not out of a tokenizer.model. Name another model as the tokenizer's source");
}

TEST(TokenPlan, ExtendsVocabularyAndMergesBesideThem) {
  const Companions files = {{"vocab.json", R"({"a": 0, "b": 1, "<|endoftext|>": 2})"}, {"merges.txt", "#version\n"}};
  const auto other = input("o", {{"tokenizer.json", character_tokenizer("ax")}}, 2);
  const TokenPlan plan = plan_tokens(kUnion, {input("m", files, 3), other}, 0);
  EXPECT_EQ(plan.tokens, (std::vector<std::string>{"a", "b", "<|endoftext|>", "x"}));
  EXPECT_EQ(plan.files.at("vocab.json"), files.at("vocab.json"));
  EXPECT_EQ(Json::parse(plan.files.at("tokenizer_config.json"))["added_tokens_decoder"]["3"]["content"], "x");

  Companions named = files;
  named["tokenizer_config.json"] = R"({"pad_token": "[PAD]"})";
  const TokenPlan padded = plan_tokens(kUnion, {input("m", named, 8), other}, 0);
  EXPECT_EQ(padded.tokens, (std::vector<std::string>{"a", "b", "<|endoftext|>", "[PAD]", "x"}));
  const Json decoder = Json::parse(padded.files.at("tokenizer_config.json"))["added_tokens_decoder"];
  EXPECT_EQ(decoder["3"]["content"], "[PAD]");  // its id was the next one; now it is written down
  EXPECT_EQ(decoder["4"]["content"], "x");
}

TEST(TokenPlanErrors, NameTheModelAndWhatToDo) {
  const Companions abc = {{"tokenizer.json", character_tokenizer("abc")}};
  const auto problem = [](const std::vector<TokenizerInput>& inputs, const TokenizerRecipe& recipe = kUnion) {
    return message_of<InputError>([&] { plan_tokens(recipe, inputs, 0); });
  };
  EXPECT_CONTAINS(problem({input("m", {{"config.json", "{}"}}, 3)}), "m: holds no tokenizer, and the result's is made of it");
  EXPECT_CONTAINS(problem({input("m", {{"vocab.json", "{}"}}, 3)}), "m: holds no tokenizer");
  TokenizerRecipe other = source(TokenizerRecipe::Source::model);
  other.model = {"far", ""};
  EXPECT_CONTAINS(problem({input("m", abc, 3), input("n", abc, 3)}, other),
                  "recipe.yaml:9: \"tokenizer\": the tokenizer's source is far, which is none of the models that are merged; "
                  "expected one of m, n");
  other.model = {"n", ""};
  EXPECT_CONTAINS(problem({input("m", abc, 3), input("n", {}, 3)}, other), "n: holds no tokenizer");
  TokenizerRecipe padded = kBase;
  padded.pad_to_multiple_of = INT64_MAX;
  EXPECT_CONTAINS(problem({input("m", abc, 3)}, padded), "pad_to_multiple_of is 9223372036854775807; expected at most 1048576");

  const std::string unigram = R"({"model": {"type": "Unigram", "vocab": [["a", -1], ["b", -1.5], ["c", -2]]}})";
  EXPECT_CONTAINS(problem({input("m", {{"tokenizer.json", unigram}}, 2)}),
                  "m/tokenizer.json: \"c\" has id 2, but the embedding has only 2 rows");
}

TEST(TokenPlanErrors, NameTheRule) {
  const std::vector<TokenizerInput> inputs = {input("m", {{"tokenizer.json", character_tokenizer("abc")}}, 3),
                                              input("n", {{"tokenizer.json", character_tokenizer("ab")}}, 2)};
  const auto problem = [&](const std::string& token, const TokenRule& rule) {
    return message_of<UsageError>([&] { plan_tokens(with_rule(token, rule), inputs, 0); });
  };
  const auto of_model = [](const std::string& model) {
    TokenRule rule;
    rule.kind = TokenRule::Kind::model, rule.model.path = model;
    return rule;
  };
  const auto of_token = [](std::optional<std::string> token, std::optional<int64_t> id = {}) {
    TokenRule rule;
    rule.kind = TokenRule::Kind::model_token, rule.model.path = "n", rule.token = std::move(token), rule.token_id = id;
    return rule;
  };
  EXPECT_CONTAINS(problem("c", of_model("far")),
                  "recipe.yaml:12: \"tokens.c\": token \"c\" takes its row from far, which is none of the models that are "
                  "merged; expected one of m, n");
  EXPECT_CONTAINS(problem("c", of_model("n")), "token \"c\" takes its row from n, which lacks it");
  EXPECT_CONTAINS(problem("x", of_token("c")), "from n, which has no token \"c\"");
  EXPECT_CONTAINS(problem("x", of_token({}, 2)), "from n, token_id 2; expected 0 to 1");
  EXPECT_CONTAINS(problem("x", of_token({}, -1)), "token_id -1; expected 0 to 1");
  EXPECT_CONTAINS(problem("", TokenRule{}), "a rule for the empty token");
}

TEST(TokenPlanErrors, HostileFilesAreNamed) {
  const auto problem = [](Companions files) {
    return message_of([&] {
      plan_tokens(kUnion, {input("m", std::move(files), 3), input("n", {{"tokenizer.json", character_tokenizer("abz")}}, 3)}, 0);
    });
  };
  const auto json = [&](const std::string& text) { return problem({{"tokenizer.json", text}}); };
  const auto config = [&](const std::string& text) {
    return problem({{"tokenizer.json", character_tokenizer("abc")}, {"tokenizer_config.json", text}});
  };
  EXPECT_CONTAINS(json(""), "m/tokenizer.json");
  EXPECT_CONTAINS(json("{}"), "has no \"model\"");
  EXPECT_CONTAINS(json("[1, 2]"), "m/tokenizer.json");
  EXPECT_CONTAINS(json(R"({"model": 7})"), "m/tokenizer.json");
  EXPECT_CONTAINS(json(R"({"model": {"type": "BPE"}})"), "has no \"vocab\"");
  EXPECT_CONTAINS(json(R"({"model": {"type": "Magic", "vocab": {}}})"), "Magic");
  EXPECT_CONTAINS(json(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}})"), "both have id 0");
  EXPECT_CONTAINS(json(R"({"model": {"type": "BPE", "vocab": {"a": 99999999}, "merges": []}})"), "has id 99999999");
  EXPECT_CONTAINS(json(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"), "has id -1");
  EXPECT_CONTAINS(json(R"({"model": {"type": "BPE", "vocab": [["a", 0]], "merges": []}})"), "m/tokenizer.json");
  EXPECT_CONTAINS(json(R"({"model": {"type": "Unigram", "vocab": {"a": 0}}})"), "m/tokenizer.json");
  EXPECT_CONTAINS(json(R"({"added_tokens": 3, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"), "added_tokens");
  EXPECT_CONTAINS(json(R"({"added_tokens": [], "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"),
                  "twice");
  EXPECT_CONTAINS(json(character_tokenizer("abc", added_json(4, "<x>") + "," + added_json(4, "<y>"))),
                  "\"<y>\" and \"<x>\" both have id 4");
  EXPECT_CONTAINS(json(character_tokenizer("abc", added_json(4, "<x>") + "," + added_json(5, "<x>"))),
                  "\"<x>\" has the ids 4 and 5");
  EXPECT_CONTAINS(json(character_tokenizer("abc", added_json(2000000000, "<x>"))), "\"id\" is 2000000000");
  EXPECT_CONTAINS(json(character_tokenizer("abc", added_json(1, "<x>"))), "which is the piece \"b\"");
  EXPECT_CONTAINS(json(std::string(100, '[')), "m/tokenizer.json");
  EXPECT_CONTAINS(json(character_tokenizer("abc") + "x"), "m/tokenizer.json");
  EXPECT_CONTAINS(json("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xFF\": 0}, \"merges\": []}}"), "not UTF-8");
  EXPECT_CONTAINS(config("[]"), "m/tokenizer_config.json: holds a JSON array, expected an object");
  EXPECT_CONTAINS(config(R"({"added_tokens_decoder": 3})"), "m/tokenizer_config.json");
  EXPECT_CONTAINS(config(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"), "expected a token id");
  EXPECT_CONTAINS(config(R"({"added_tokens_decoder": {"1": {"content": "<x>"}}})"), "which is \"b\" in the vocabulary");
  EXPECT_CONTAINS(config(R"({"pad_token": 3})"), "pad_token is a JSON number");
  EXPECT_CONTAINS(problem({{"tokenizer.model", "not a model"}}), "m/tokenizer.model");
  EXPECT_CONTAINS(problem({{"vocab.json", "[]"}, {"merges.txt", ""}}), "m/vocab.json");
  // A merge that cannot be read matters where merges are taken out.
  EXPECT_CONTAINS(json(character_tokenizer("abcd", "", "\"ab\"")), "merges[0] is \"ab\"");
}

TEST(TokenPlan, LargeVocabulariesTakeLittleTime) {
  constexpr int kTokens = 250000;
  const auto tokenizer = [](const std::string& prefix) {
    std::string vocabulary, merges;
    for (int i = 0; i < kTokens; ++i) {
      vocabulary += (i == 0 ? "\"" : ",\"") + prefix + std::to_string(i) + "\":" + std::to_string(i);
      merges += (i == 0 ? "[\"" : ",[\"") + prefix + "\",\"" + std::to_string(i) + "\"]";
    }
    return R"({"model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": [)" + merges + "]}}";
  };
  const std::vector<TokenizerInput> inputs = {input("a", {{"tokenizer.json", tokenizer("a")}}, kTokens),
                                              input("b", {{"tokenizer.json", tokenizer("b")}}, kTokens - 1)};
  const auto begin = std::chrono::steady_clock::now();
  const TokenPlan plan = plan_tokens(kUnion, inputs, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(plan.tokens.size(), size_t(2 * kTokens - 1));
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_LT(took.count(), 20);  // quadratic work takes minutes; the machine may be busy
}

}  // namespace
}  // namespace vitrine
