// The texts of the walk-through (src/app/picture/page/chapters): every family can be walked, and every name has a value.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "picture/data/studio.h"
#include "picture/page/chapters.h"
#include "picture/page/embedded.h"
#include "picture/page/prose.h"
#include "picture/page/walk_values.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kFolder = "src/app/picture/page/chapters/";

std::vector<EmbeddedFile> templates() {
  std::vector<EmbeddedFile> found;
  for (const EmbeddedFile& file : embedded_files())
    if (file.name.starts_with(kFolder)) found.push_back(file);
  return found;
}

// All matches of the first group.
std::vector<std::string> all_of(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), pattern); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1]);
  return found;
}

// "rope", "rope.theta".
void add_names(const PictureJson& values, const std::string& of, std::set<std::string>& names) {
  for (const auto& [name, value] : values.items()) {
    names.insert(of + name);
    if (value.is_object()) add_names(value, (name == "other_rope" ? "rope" : name) + ".", names);
  }
}

// The names in the first column of the tables.
std::set<std::string> listed_names() {
  const std::string readme = read_file(std::string(VITRINE_SOURCE) + "/" + kFolder + "README.md");
  std::set<std::string> names;
  for (const std::string& cell : all_of(readme.substr(readme.find("## Values")), std::regex("\n\\| (`[^|]*)\\|")))
    for (const std::string& name : all_of(cell, std::regex("`([A-Za-z_.]+)`")))
      names.insert(name.substr(0, name.find('.'))), names.insert(name);
  return names;
}

TEST(Steps, ValuesAreThoseThatAreListed) {
  std::set<std::string> given;
  for (const std::string& model : models_with_attention()) {
    Engine engine(open_model(resolve_model(Golden::open(model).model())), kF32);
    add_names(DocumentRuns(engine, ids_prompt({3, 5, 7, 9}), {}, {}, walk_values).take().at("steps"), "", given);
  }
  Engine tales(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  add_names(DocumentRuns(tales, text_prompt(tales, "The king sat on"), {}, {}, walk_values).take().at("steps"), "", given);
  std::set<std::string> listed = listed_names();
  given.insert("integrated");  // input_attribution's
  EXPECT_EQ(given, listed);
}

// Without strings, what a template calls or names itself.
TEST(Steps, TemplatesUseNamesThatAreListed) {
  std::set<std::string> known = listed_names(), pictured;  // pictures tell texts what their "prose" holds
  for (const PictureInfo& info : pictures()) pictured.insert(std::regex_replace(std::string(info.name), std::regex("-"), "_"));
  for (const char* name :
       {"if",    "elif", "else",  "endif",  "set",   "macro",  "endmacro",  "in",         "not",         "and",    "or",
        "is",    "none", "n",     "word",   "part",  "name",   "vector",    "replace",    "join",        "length", "format",
        "x",     "g",    "f",     "d",      "count", "plural", "product",   "normed",     "for",         "endfor", "size",
        "piece", "pair", "range", "unique", "sort",  "list",   "attribute", "pair.first", "pair.second", "first",  "second"})
    known.insert(name);
  for (const EmbeddedFile& file : templates()) {
    const std::string text(file.text);
    std::set<std::string> own;
    for (const std::string& name : all_of(text, std::regex("\\{% set ([a-z_]+) "))) own.insert(name);
    for (std::string code : all_of(text, std::regex("\\{[{%]([^}]*)[}%]\\}"))) {
      code = std::regex_replace(code, std::regex("\"[^\"]*\"|other_(?=rope\\.)"), "");
      for (const std::string& name : all_of(code, std::regex("\\b([A-Za-z_]+(\\.[a-z_]+)?)")))
        EXPECT_TRUE(known.contains(name) || own.contains(name) || pictured.contains(name.substr(0, name.find('.'))))
            << file.name << ": " << name;
    }
    // The line break behind a tag is dropped.
    EXPECT_EQ(all_of(text, std::regex("\n( *(?!\\{%)[^\n ][^\n]*%\\})(?=\n)")), std::vector<std::string>()) << file.name;
  }
}

class StepsOf : public testing::TestWithParam<std::string> {};

TEST_P(StepsOf, EveryStepHasItsWords) {
  Engine engine(open_model(resolve_model(Golden::open(GetParam()).model())), kF32);
  for (const Chapter& chapter : chapters()) {
    const PictureJson document = explain_document(engine, ids_prompt({3, 5, 7, 9}), {}, chapter.name),
                      &steps = document.at("steps");
    for (const PictureJson& picture : document.at("pictures"))  // data do not overwrite what the table of pictures states
      EXPECT_TRUE(!picture.at("available").get<bool>() || picture.at("wide").is_boolean()) << picture.at("name");
    EXPECT_GE(steps.size(), chapter.name == std::string(kFirstChapter) ? 11u : 4u) << chapter.name;
    for (const PictureJson& step : steps) {
      EXPECT_FALSE(step.at("question").get<std::string>().empty()) << step.at("id");
      ASSERT_FALSE(step.at("text").empty()) << step.at("id");
      std::vector<std::string> sentences = step.at("text");
      for (const std::string paragraph : step.at("engineers").at("text")) sentences.push_back(paragraph);
      for (const PictureJson& guess : step.at("guesses")) sentences.push_back(guess.at("reveal"));
      for (const std::string& text : sentences) {
        EXPECT_TRUE(text.ends_with('.') || text.ends_with(':') || text.ends_with(" %")) << text;
        for (const char* mistake : {"{{", "{%", "None", "  ", " .", " ,"})
          EXPECT_EQ(text.find(mistake), std::string::npos) << text;
      }
    }
  }
}

// Of layers with one sub-layer each the first may have no MLP; experts may have no gate, and a router no softmax.
TEST(Steps, TheMlpAndTheRouterAreTheModels) {
  const auto words = [](const std::string& model) {
    Engine engine(open_model(resolve_model(model)), kF32);
    const PictureJson document = explain_document(engine, ids_prompt({3, 5, 7, 9}), {}, kFirstChapter);
    for (const PictureJson& step : document.at("steps"))
      if (step.at("id") == "mlp") return step.dump();
    return std::string();
  };
  const std::string dense = words(Golden::open("nemotron_h").model());
  EXPECT_CONTAINS(dense, "The form of this MLP is squared ReLU.");
  EXPECT_CONTAINS(dense, "each goes through relu²");
  EXPECT_CONTAINS(dense, "z = relu²(");
  const std::string experts = words(std::string(VITRINE_GOLDEN) + "/variants/nemotron_h_moe");
  EXPECT_CONTAINS(experts, "In an expert one matrix makes");
  EXPECT_CONTAINS(experts, "W_out relu²(W_in y)");
  for (const std::string name : {"llama4", "deepseek_v3", "glm4_moe"}) {
    const std::string sigmoids = words(Golden::open(name).model());
    EXPECT_CONTAINS(sigmoids, "The sigmoid of a score is a number between 0 and 1");
    EXPECT_EQ(sigmoids.find("softmax"), std::string::npos) << name;
    EXPECT_EQ(sigmoids.find("All weights are then multiplied by 1.5.") != std::string::npos, name != "llama4");
  }
}

// A learner who reads from the top meets no term before the step that explains it. The fold for engineers may use any.
TEST_P(StepsOf, TheFirstChapterExplainsItsTermsFirst) {
  const std::vector<std::pair<const char*, const char*>> explained_in = {{"tokens?", "tokens"},
                                                                         {"transformers?", "tokens"},
                                                                         {"vocabulary", "tokens"},
                                                                         {"embeddings?", "embedding"},
                                                                         {"parameters?", "embedding"},
                                                                         {"residual stream", "residual"},
                                                                         {"attention", "residual"},
                                                                         {"MLPs?", "residual"},
                                                                         {"norms?", "norm"},
                                                                         {"heads?", "attention"},
                                                                         {"query|queries", "attention"},
                                                                         {"softmax", "output"},
                                                                         {"logits?", "output"},
                                                                         {"gradients?", "input-attribution"},
                                                                         {"loss", "back-propagation"},
                                                                         {"cache", "reach"}};
  Engine engine(open_model(resolve_model(Golden::open(GetParam()).model())), kF32);
  const PictureJson steps = explain_document(engine, ids_prompt({3, 5, 7, 9})).at("steps");
  std::set<std::string> reached;
  for (const PictureJson& step : steps) {
    reached.insert(step.at("id").get<std::string>());
    std::string text = step.at("question").get<std::string>();
    for (const std::string paragraph : step.at("text")) text += " " + paragraph;
    for (const PictureJson& guess : step.at("guesses"))
      text += " " + guess.at("question").get<std::string>() + " " + guess.at("reveal").get<std::string>();
    for (const auto& [term, id] : explained_in) {
      const bool later = std::any_of(steps.begin(), steps.end(), [&](const PictureJson& one) { return one.at("id") == id; });
      if (later && !reached.contains(id)) {
        EXPECT_FALSE(std::regex_search(text, std::regex("\\b(" + std::string(term) + ")\\b")))
            << step.at("id") << ": " << term << ": " << text;
      }
    }
    // Names of hooks, matrices and shapes are for engineers.
    EXPECT_FALSE(std::regex_search(text, std::regex("hook_|W_[A-Z]|σ|√\\(|float"))) << text;
  }
}

TEST_P(StepsOf, TheFirstChapterEndsWithFiveQuestions) {
  Engine engine(open_model(resolve_model(Golden::open(GetParam()).model())), kF32);
  const PictureJson steps = explain_document(engine, ids_prompt({3, 5, 7, 9})).at("steps");
  EXPECT_EQ(steps.back().at("id"), "recap");
  EXPECT_EQ(steps.back().at("guesses").size(), 5u);
}

// "The king sat on" his, "The queen sat on" her: the shipped model tells them apart, and the page asks why.
TEST(Steps, TheThreadOfKingAndQueen) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson document = explain_document(engine, text_prompt(engine, "The king sat on"));
  std::map<std::string, PictureJson> steps;
  for (const PictureJson& step : document.at("steps")) steps[step.at("id")] = step;
  const auto asked = [&](const char* id) { return steps.at(id).at("guesses"); };
  EXPECT_EQ(asked("tokens")[0].at("answer"), "5");  // the mark in front and four words, each of them one token
  EXPECT_EQ(asked("output")[0].at("answer"), "▁his");
  EXPECT_EQ(asked("output")[0].at("choices").size(), 4u);
  EXPECT_CONTAINS(asked("recap")[4].at("question").get<std::string>(), "The queen sat on");
  EXPECT_GE(asked("norm").size(), 1u);
  EXPECT_EQ(asked("norm")[0].at("answer"), "larger");
  const auto probability = [&](const char* prompt, const char* next) {
    std::vector<int32_t> ids = engine.tokenizer().encode(prompt);
    ids.push_back(single_token(engine.tokenizer(), next));
    return std::exp(engine.token_logprobs(ids).back());
  };
  const std::string told = steps.at("output").at("text").dump();
  EXPECT_CONTAINS(told, fmt::format("{:.3g} times as probable as \\\"her\\\"",
                                    probability("The king sat on", " his") / probability("The king sat on", " her")));
  EXPECT_CONTAINS(told, fmt::format("{:.3g} times as probable as \\\"his\\\"",
                                    probability("The queen sat on", " her") / probability("The queen sat on", " his")));
}

TEST(Glossary, HasTheTermsOfTheFirstChapter) {
  const std::string text = "\n" + read_file(std::string(VITRINE_SOURCE) + "/" + kFolder + "glossary.md");
  for (const char* term :
       {"transformer", "neural network", "token",    "vocabulary", "embedding",       "vector", "layer", "attention",
        "head",        "query",          "key",      "value",      "residual stream", "norm",   "MLP",   "logit",
        "softmax",     "probability",    "gradient", "loss",       "parameter"})
    EXPECT_TRUE(std::regex_search(text, std::regex("\n## ([^\n]*, )?" + std::string(term) + "(,[^\n]*)?\n\n[A-Z]"))) << term;
}

INSTANTIATE_TEST_SUITE_P(Golden, StepsOf, testing::ValuesIn(models_with_attention()),
                         [](const auto& model) { return model.param; });

TEST(Chapters, TextsNameKnownPicturesAndEveryPictureIsInAChapter) {
  std::set<std::string> told, known;
  for (const PictureInfo& info : pictures()) known.insert(info.name);
  for (const Chapter& chapter : chapters()) {
    EXPECT_FALSE(texts_of(chapter).empty()) << chapter.name;
    for (const std::string& name : pictures_of(chapter)) told.insert(name);
  }
  EXPECT_EQ(told, known);
}

// docs/pictures.md has one row for each picture: | `name` | what it shows | …
TEST(Chapters, EveryPictureHasARowInTheDocument) {
  std::multiset<std::string> rows, known;
  for (const PictureInfo& info : pictures()) known.insert(info.name);
  std::istringstream lines(read_file(std::string(VITRINE_SOURCE) + "/docs/pictures.md"));
  bool tables = false;
  for (std::string line; std::getline(lines, line);) {
    tables = tables || line == "## A single picture";  // what stands before lists other things
    if (tables && line.starts_with("| `")) rows.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(rows, known);
}

TEST(Chapters, AnUnknownOneIsRefusedByName) {
  EXPECT_THROW(chapter_of("next-wrod"), UsageError);
  EXPECT_EQ(chapter_json(chapter_of("next-word")).at("number"), 1);
}

PictureJson step_of(const std::string& text, const PictureJson& values = PictureJson::object()) {
  return vitrine::step_of("id", text, "text", values, {});
}

TEST(Steps, LinesOfATemplate) {
  const PictureJson step = step_of(
      "# Title {{ n }}\n\nOne\nparagraph with {{ piece }}.\n\n## Why?\n\n    a  = b\nTwo.\npictures: x y\n"
      "shape: q | | {{ n }} key head | 1 1\n{% if no %}\nThree.\n{% endif %}\n",
      {{"n", 2}, {"piece", "\n\n# a"}, {"no", nullptr}});
  EXPECT_EQ(step.at("title"), "Title 2");
  EXPECT_EQ(step.at("question"), "Why?");
  EXPECT_EQ(step.at("text"), (std::vector<std::string>{"One paragraph with \n\n# a.", "Two."}));
  EXPECT_EQ(step.at("formula"), std::vector<std::string>{"a  = b"});
  EXPECT_EQ(step.at("pictures"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(step.at("shapes").dump(), R"([{"name":"q","hook":null,"shape":[2,1],"axes":["key head","1"]}])");
  EXPECT_TRUE(step_of("{% if no %}\n# Title\n{% endif %}\n", {{"no", false}}).is_null());
}

TEST(Steps, GuessesAndTheFoldForEngineers) {
  const PictureJson step = step_of(
      "# Title\n\n## What?\n\nFirst.\n\nguess: How many?\nchoice: 3\nchoice: {{ n }}\nchoice: 3\nanswer: {{ n }}\nreveal: It is "
      "{{ n }}.\n\n"
      "Second.\n\nguess: Which word?\nanswer: his\nreveal: His.\n\nguess: No choice?\nchoice: {{ n }}\nchoice: 4\nanswer: "
      "4\nreveal: 4.\n\n"
      "pictures: a\nexperiments: off patch\nengineers:\nThird.\n\n    f = g\npictures: b c\nshape: q | | 2 key\n",
      {{"n", 4}});
  EXPECT_EQ(step.at("text"), (std::vector<std::string>{"First.", "Second."}));
  const PictureJson& guesses = step.at("guesses");
  ASSERT_EQ(guesses.size(), 2u);  // the third has a single choice left
  EXPECT_EQ(guesses[0].dump(), R"({"question":"How many?","choices":["3","4"],"answer":"4","reveal":"It is 4.","after":1})");
  EXPECT_EQ(guesses[1].dump(), R"({"question":"Which word?","choices":[],"answer":"his","reveal":"His.","after":2})");
  EXPECT_EQ(step.at("pictures"), std::vector<std::string>{"a"});
  EXPECT_EQ(step.at("experiments"), (std::vector<std::string>{"off", "patch"}));
  EXPECT_EQ(step.at("formula"), std::vector<std::string>());
  EXPECT_EQ(step.at("engineers").dump(), R"({"text":["Third."],"formula":["f = g"],"pictures":["b","c"]})");
  EXPECT_EQ(step.at("shapes").size(), 1u);
}

TEST(Steps, MistakesOfGuessesAreNamed) {
  const auto message = [](const std::string& text) { return message_of<InputError>([&] { step_of("# Title\n" + text); }); };
  EXPECT_CONTAINS(message("guess: How?\nanswer: so\n"), "text: \"guess: How?\" has no reveal");
  EXPECT_CONTAINS(message("guess: How?\nreveal: So.\n"), "has no answer");
  EXPECT_CONTAINS(message("guess: How?\nchoice: a\nchoice: b\nanswer: c\nreveal: C.\n"),
                  "the answer \"c\", which is none of its choices");
  EXPECT_CONTAINS(message("choice: a\n"), "\"choice: a\" comes before any \"guess: QUESTION\"");
  EXPECT_CONTAINS(message("engineers:\nguess: How?\n"), "comes after \"engineers:\"");
}

TEST(Steps, MistakesNameTheFile) {
  const auto message = [](const std::string& text, const PictureJson& values = PictureJson::object()) {
    return message_of<InputError>([&] { step_of(text, values); });
  };
  EXPECT_EQ(message("# Title\n\n{{ nobody }}\n"), "text, line 3: 'nobody' is undefined");
  EXPECT_EQ(message("# Title\n\n{% if rope.nobody %}{% endif %}\n", {{"rope", {{"theta", 1}}}}),
            "text, line 3: 'dict object' has no attribute 'nobody'");
  EXPECT_CONTAINS(message("# Title\nshape: q | token\n"), "text: \"shape: q | token\"; expected shape: NAME | HOOK");
}

}  // namespace
}  // namespace vitrine
