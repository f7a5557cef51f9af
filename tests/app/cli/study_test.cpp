// Pages of pictures for research: --page of circuits, intervene and compare, --out of eval perplexity; circuits --checkpoints.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/program.h"

namespace vitrine {
namespace {

// The document that a page holds.
Json document_of(const std::string& path) {
  const std::string page = read_file(path), opening = "<script id=\"vitrine-data\" type=\"application/json\">";
  const size_t begin = page.find(opening) + opening.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

void expect_close(const Json& shown, const Json& computed, double tolerance = 1e-6) {
  if (computed.is_null()) {
    EXPECT_TRUE(shown.is_null());
    return;
  }
  EXPECT_NEAR(shown.get<double>(), computed.get<double>(), tolerance * (1 + std::abs(computed.get<double>())));
}

TEST(StudyPages, HeadsShowTheScoresAndSentencesOfCircuits) {
  const Scratch scratch;
  const std::string page = scratch / "heads.html";
  const std::vector<std::string> line = {"circuits", "--repeat", "8", "--compositions", "4"};
  std::vector<std::string> with_page = line, with_json = line;
  with_page.insert(with_page.end(), {"--page", page});
  with_json.emplace_back("--json");
  const Outcome outcome = vitrine(with_page);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, vitrine(line).out);
  const Json computed = vitrine(with_json).json(), shown = document_of(page);
  EXPECT_EQ(shown["kind"], "study");
  EXPECT_CONTAINS(shown["command"].get<std::string>(), "vitrine circuits --repeat 8 --page ");
  const Json& section = shown["sections"][0];
  EXPECT_EQ(section["ids"], computed["tokens"]);
  EXPECT_EQ(section["repeated"], 8);
  ASSERT_EQ(section["runs"].size(), 1u);
  const Json& scores = section["runs"][0]["scores"];
  ASSERT_EQ(scores.size(), computed["heads"].size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const Json& head = computed["heads"][i];
    EXPECT_EQ(section["heads"][i], Json({head["layer"], head["head"]}));
    const char* keys[] = {"previous_token", "duplicate_token", "induction", "first_token"};
    for (size_t role = 0; role < 4; ++role) expect_close(scores[i][role], head[keys[role]]);
    expect_close(section["circuits"]["heads"][i]["copying"], head["copying"]);
  }
  EXPECT_EQ(section["circuits"]["composition"].size(), computed["composition"].size());
  // The terminal says the same sentences.
  std::string said;
  for (const Json& sentence : section["runs"][0]["sentences"]) said += sentence.get<std::string>() + "\n";
  said.erase(std::remove(said.begin(), said.end(), '`'), said.end());
  EXPECT_TRUE(outcome.out.starts_with(said)) << said;
  const std::string link = section["circuits"]["links"][0]["words"];
  EXPECT_CONTAINS(outcome.out, link);
}

TEST(StudyPages, AGridShowsWhatEveryCellExpects) {
  const Scratch scratch;
  const std::string page = scratch / "patch.html", recipe = std::string(VITRINE_SOURCE) + "/examples/patch-king-queen.yaml";
  const Outcome outcome = vitrine({"intervene", recipe, "--compute", "f32", "--page", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json computed = outcome.json(), section = document_of(page)["sections"][0];
  const Json& grid = computed["grid"];
  const size_t columns = grid["columns"]["labels"].size();
  ASSERT_EQ(section["cells"].size(), columns * grid["rows"]["labels"].size());
  size_t strongest = 0;
  for (size_t i = 0; i < section["cells"].size(); ++i) {
    expect_close(section["cells"][i]["value"], grid["values"][i / columns][i % columns]);
    expect_close(section["cells"][i]["share"], grid["normalized"][i / columns][i % columns]);
    if (section["cells"][i]["share"] > section["cells"][strongest]["share"]) strongest = i;
  }
  // The recipe of a cell, run by itself, ends with what the page says of it.
  const Json& cell = section["cells"][strongest];
  const std::string one =
      scratch.write("one.yaml", section["recipe_head"].get<std::string>() + cell["recipe"].get<std::string>());
  const Json alone = vitrine({"intervene", one, "--compute", "f32", "--json"}).json();
  expect_close(cell["value"], alone["metric"]["after"], 1e-5);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(cell["likely"][2 * i], alone["after"][0]["top"][i]["token"]);
    expect_close(cell["likely"][2 * i + 1], alone["after"][0]["top"][i]["prob"], 1e-5);
    EXPECT_EQ(section["before"][2 * i], alone["before"][0]["top"][i]["token"]);
  }
  const Json clean = vitrine({"predict", "The king sat on", "--compute", "f32", "--json"}).json();
  EXPECT_EQ(section["clean_likely"][0], clean["predictions"][0]["top"][0]["token"]);
}

TEST(StudyPages, TwoModelsSideBySide) {
  const Scratch scratch;
  const std::string page = scratch / "compare.html";
  const Outcome outcome = vitrine({"compare", golden_model("llama"), std::string(VITRINE_GOLDEN) + "/gguf/llama_q4_0.gguf",
                                   "--tokens", "5,3,7,9,11", "--compute", "f32", "--page", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json computed = outcome.json(), sections = document_of(page)["sections"];
  ASSERT_EQ(sections.size(), 3u);
  const Json& losses = sections[0];
  EXPECT_EQ(losses["runs"][0]["texts"][0]["words"].size(), 6u);  // and what would follow
  for (size_t i = 0; i < 5; ++i) {
    expect_close(losses["kl"][i + 1], computed["predictions"][i]["kl"]);
    EXPECT_EQ(losses["runs"][0]["texts"][0]["likely"][i + 1][0], computed["predictions"][i]["a"]["token"]);
    EXPECT_EQ(losses["runs"][1]["texts"][0]["likely"][i + 1][0], computed["predictions"][i]["b"]["token"]);
    expect_close(losses["runs"][1]["texts"][0]["likely"][i + 1][1],
                 std::exp(computed["predictions"][i]["b"]["logprob"].get<double>()), 1e-4);
  }
  for (size_t i = 0; i < computed["layers"].size(); ++i)
    expect_close(sections[1]["points"][i]["distance"], computed["layers"][i]["distance"]);
  EXPECT_EQ(sections[2]["runs"].size(), 2u);
  EXPECT_TRUE(sections[2]["circuits"].is_null());
}

TEST(StudyPages, ATextShowsWhatWasLikelyInThePlaceOfEachToken) {
  const Scratch scratch;
  const std::string text = "<script>alert(1)</script> & the king sat on", page = scratch / "loss.html";
  const Outcome outcome = vitrine({"eval", "perplexity", "--file", scratch.write("text.txt", text), "--compute", "f32", "--out",
                                   page, "--per-token", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_file(page).find("<script>alert"), std::string::npos);
  const Json losses = document_of(page)["sections"][0], computed = outcome.json()["per_token"][0];
  const Json& shown = losses["runs"][0]["texts"][0];
  std::string words;
  for (const Json& word : shown["words"]) words += word.get<std::string>();
  EXPECT_EQ(words, text);
  ASSERT_EQ(shown["words"].size(), computed["tokens"].size());
  for (size_t i = 0; i < computed["tokens"].size(); ++i) {
    expect_close(shown["nll"][i], -computed["logprobs"][i].get<double>());
    EXPECT_EQ(shown["likely"][i].size(), 10u);
    EXPECT_LE(shown["likely"][i][9], shown["likely"][i][1]);
  }
  // The whole text is one window: a prediction behind all tokens but the last expects the same.
  std::string ids = "2";
  for (size_t i = 0; i + 1 < computed["tokens"].size(); ++i) ids += "," + computed["tokens"][i].dump();
  const Json next =
      vitrine({"predict", "--tokens", ids, "--top", "5", "--compute", "f32", "--json"}).json()["predictions"][0]["top"];
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(shown["likely"].back()[2 * i], next[i]["token"]);
    expect_close(shown["likely"].back()[2 * i + 1], next[i]["prob"], 1e-4);
  }
}

TEST(StudyPages, CheckpointsOfARunBySteps) {
  const Scratch scratch;
  const std::filesystem::path run = scratch / "run";
  for (const char* name : {"step-10", "step-2", "not-a-step"}) {
    std::filesystem::create_directories(run / name);
    for (const auto& file : std::filesystem::directory_iterator(golden_model("gpt2_a")))
      std::filesystem::create_symlink(std::filesystem::canonical(file.path()), run / name / file.path().filename());
  }
  std::filesystem::create_directory_symlink("step-10", run / "last");
  const std::string page = scratch / "film.html";
  const Outcome outcome =
      vitrine({"circuits", "--checkpoints", run.string(), "--repeat", "6", "--seed", "3", "--page", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json computed = outcome.json();
  ASSERT_EQ(computed["checkpoints"].size(), 2u);
  EXPECT_EQ(computed["checkpoints"][0]["step"], 2);
  EXPECT_EQ(computed["checkpoints"][1]["step"], 10);
  const Json one = vitrine({"circuits", "--model", golden_model("gpt2_a"), "--repeat", "6", "--seed", "3", "--json"}).json();
  EXPECT_EQ(computed["tokens"], one["tokens"]);
  for (size_t i = 0; i < one["heads"].size(); ++i)
    EXPECT_EQ(computed["checkpoints"][1]["heads"][i]["induction"], one["heads"][i]["induction"]);
  const Json section = document_of(page)["sections"][0];
  ASSERT_EQ(section["runs"].size(), 2u);
  EXPECT_EQ(section["runs"][1]["step"], 10);
  expect_close(section["runs"][1]["loss_again"], computed["checkpoints"][1]["loss_again"]);
  EXPECT_CONTAINS(section["runs"][1]["options"].get<std::string>(), "step-10");
  const Outcome lines = vitrine({"circuits", "--checkpoints", run.string(), "--repeat", "6"});
  EXPECT_CONTAINS(lines.out, "induction");
}

TEST(StudyPages, RefuseWhatCannotBeShown) {
  const Scratch scratch;
  const std::string page = scratch / "page.html";
  expect_refused({"circuits", "--checkpoints", scratch / "nowhere"}, {"--checkpoints", "nowhere", "cannot be read"});
  expect_refused({"circuits", "--checkpoints", scratch / ""}, {"no checkpoint in it", "step-N/config.json"});
  expect_refused({"circuits", "--checkpoints", scratch / "", "--model", golden_model("llama")}, {"leave out --model"});
  expect_refused({"circuits", "--checkpoints", scratch / "", "--head", "1"}, {"leave out --layer and --head"});
  std::filesystem::create_directories(scratch / "lora/step-3");
  scratch.write("lora/step-3/adapter_config.json", "{}");
  expect_refused({"circuits", "--checkpoints", scratch / "lora"}, {"an adapter's", "--adapter"});
  expect_refused({"circuits", "--page", scratch / "no/such/folder/page.html"}, {"--page"});
  const std::string steer = std::string(VITRINE_SOURCE) + "/examples/steer.yaml";
  expect_refused({"intervene", steer, "--page", page}, {"--page shows a grid", "patch, ablate or path"});
  EXPECT_FALSE(std::filesystem::exists(page));
}

}  // namespace
}  // namespace vitrine
