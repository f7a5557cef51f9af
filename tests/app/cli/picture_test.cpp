// vitrine picture, vitrine explain.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "cli/program.h"
#include "io/safetensors.h"
#include "support/golden.h"

namespace vitrine {
namespace {

std::vector<std::string> picture_names() {
  std::vector<std::string> names;
  const Json list = vitrine({"picture", "--list", "--json"}).json();
  for (const Json& picture : list["pictures"]) names.push_back(picture["name"]);
  return names;
}

// The gradient without norms runs the model's other form of a form: layers without attention are the family's own in both.
TEST(PictureCommand, GradientNormsOfAnotherFormOfAFamilyWithoutAttentionEverywhere) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("qwen3_5"));
  Json config = read_json(model + "/config.json");
  config["vitrine_affine"] = false;
  scratch.write("model/config.json", config.dump());
  const Outcome outcome = vitrine({"picture", "gradient-norms", "--tokens", "1,2,3", "--model", model});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(PictureCommand, ListsAndShowsEveryPicture) {
  const std::vector<std::string> names = picture_names();
  EXPECT_GT(names.size(), 70u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());  // none twice
  const Outcome list = vitrine({"picture", "--list"});
  ASSERT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.out, vitrine({"explain", "--list"}).out);
  const Outcome chapter = vitrine({"explain", "--list", "--chapter", "heads"});
  EXPECT_EQ(chapter.code, 0) << chapter.err;
  EXPECT_CONTAINS(chapter.out, "head-roles");
  EXPECT_EQ(chapter.out.find("merges"), std::string::npos) << chapter.out;
  expect_refused({"explain", "--list", "--chapter", "haeds"}, {"\"heads\""});
  for (const std::string& name : names) {
    EXPECT_CONTAINS(list.out, name + " ");
    const Outcome words = vitrine({"picture", name, "--tokens", "2,7,9", "--model", golden_model("gemma2")});
    EXPECT_EQ(words.code, 0) << name << words.err;
    EXPECT_GT(words.out.size(), 40u) << name;
    size_t blocks = 1;  // title, caption, what is seen, tables; or title and why there is none
    for (size_t at = words.out.find("\n\n"); at != std::string::npos; at = words.out.find("\n\n", at + 2)) ++blocks;
    const bool table = blocks >= 4;
    EXPECT_EQ(table, vitrine({"picture", name, "--tokens", "2,7,9", "--model", golden_model("gemma2"), "--json"})
                         .json()["pictures"][name]["available"])
        << words.out;
  }
}

TEST(PictureCommand, PrintsTheMainNumbers) {
  const Outcome scales = vitrine({"picture", "update-scale", "--tokens", "2,7,9", "--model", golden_model("gemma2")});
  const Json first = vitrine({"picture", "update-scale", "--tokens", "2,7,9", "--model", golden_model("gemma2"), "--json"})
                         .json()["pictures"]["update-scale"]["sublayers"][0];
  EXPECT_CONTAINS(scales.out, "\nlayer  attention");
  EXPECT_CONTAINS(scales.out, fmt::format("\n    0      {:.3f}", first["scale"].get<double>()));
  const Outcome next = vitrine({"picture", "next-tokens", "The king and the"});
  EXPECT_CONTAINS(next.out, "\n 4  ▁the");
  const Outcome merges =
      vitrine({"picture", "merges", "Once upon a time there was a king who had a daughter whose hair was golden"});
  EXPECT_CONTAINS(merges.out, "--json has ");
  EXPECT_LT(std::count(merges.out.begin(), merges.out.end(), '\n'), 36);
  // Pieces that would steer a terminal come out as words.
  EXPECT_EQ(vitrine({"picture", "tokens", "a \x1b[31m b"}).out.find('\x1b'), std::string::npos);
}

// Of a model, of a configuration alone, and computed in f32.
TEST(PictureCommand, CountsTheCacheAsInfoDoes) {
  const auto reach = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"picture", "reach", "--json"});
    return vitrine(args).json()["pictures"]["reach"]["bytesAtContext"].get<int64_t>();
  };
  const auto info = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"info", "--json"});
    return vitrine(args).json()["cache"]["bytes"].get<int64_t>();
  };
  const int64_t own = info({}), f32 = info({"--compute", "f32"});
  EXPECT_LT(own, f32);
  EXPECT_EQ(reach({}), own);
  EXPECT_EQ(reach({"--compute", "f32"}), f32);
  const std::string config = std::string(VITRINE_SOURCE) + "/models/tales9m/config.json";
  EXPECT_EQ(reach({"--config", config}), info({"--model", config}));
}

TEST(PictureCommand, GivesDataAndDrawings) {
  const Scratch scratch;
  const std::vector<std::string> common = {"picture", "attention", "The king and the queen"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), more);
    return arguments;
  };
  const Outcome data = vitrine(with({"--json"})), drawing = vitrine(with({"--svg"}));
  ASSERT_EQ(data.code, 0) << data.err;
  ASSERT_EQ(drawing.code, 0) << drawing.err;
  const Json document = data.json();
  EXPECT_EQ(document["pictures"].size(), 1u);
  EXPECT_EQ(document["pictures"]["attention"]["nTokens"], 6);
  EXPECT_EQ(document["prompt"]["text"], "The king and the queen");
  EXPECT_EQ(document["steps"], Json::array());
  EXPECT_TRUE(drawing.out.starts_with("<svg xmlns"));
  EXPECT_CONTAINS(drawing.out, "prefers-color-scheme:dark");

  // To a file, its kind from the name; an existing one is replaced.
  for (int time = 0; time < 2; ++time) ASSERT_EQ(vitrine(with({"--out", scratch / "heads.svg"})).code, 0);
  ASSERT_EQ(vitrine(with({"--out", scratch / "heads.json"})).code, 0);
  EXPECT_EQ(read_file(scratch / "heads.svg"), drawing.out);
  EXPECT_EQ(read_file(scratch / "heads.json"), data.out);
  const Outcome csv = vitrine(with({"--out", scratch / "heads.csv"}));
  ASSERT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(csv.out, "");
  EXPECT_TRUE(read_file(scratch / "heads.csv").starts_with("head \\ layer,0,1,2,3,4,5,6,7\r\n0,0."));
  // One head in full.
  const Outcome one = vitrine(with({"--layer", "7", "--head", "3", "--svg"}));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out, drawing.out);
  EXPECT_EQ(vitrine(with({"--json", "--threads", "1"})).out, data.out);  // the same on any number of threads
}

TEST(PictureCommand, RefusesWhatItWouldIgnore) {
  expect_refused({"picture", "update-scale", "--layer", "3"}, {"--layer is of no use to the picture update-scale", "attention"});
  expect_refused({"picture", "tokens", "--words", "king,queen"}, {"--words", "embedding-cosine"});
  expect_refused({"picture", "embedding-cosine", "--words", ""}, {"--words holds no word"});
  expect_refused({"picture", "embedding-cosine", "--words", ","}, {"--words holds no word"});
  expect_refused({"picture", "embedding-neighbors", "--sum", ""}, {"--sum is empty"});
  expect_refused({"picture", "attention", "--json", "--out", "heads.svg"}, {"--json", "heads.svg"});
  expect_refused({"picture", "attention", "--svg", "--out", "heads.csv"}, {"--svg", "heads.csv"});
  expect_refused({"picture", "attention", "--out", "heads.png"},
                 {"rsvg-convert --background-color=white heads.svg -o heads.png"});
  expect_refused({"picture", "experts", "--out", "experts.csv"}, {"This model has no experts"});
}

TEST(PictureCommand, OfAConfigurationWithoutWeights) {
  const std::string config = std::string(VITRINE_SOURCE) + "/models/designs/gemma-2b.json";
  for (const std::string& name : {std::string("gemma-2b"), config}) {
    const Outcome words = vitrine({"picture", "rope-wavelengths", "--config", name});
    EXPECT_EQ(words.code, 0) << words.err;
    EXPECT_CONTAINS(words.out, "128 pairs, from 6.28 to 58469.6 positions");
  }
  // A model whose weights are there: they are not read.
  EXPECT_EQ(vitrine({"picture", "designs", "--config", golden_model("llama"), "--svg"}).code, 0);
  expect_refused({"picture", "attention", "--config", "gpt2"}, {"gpt2", "without weights", "masks"});
  expect_refused({"picture", "masks", "a prompt", "--config", "gpt2"}, {"--config", "--model"});
  expect_refused({"picture", "masks", "--config", "gpt2", "--model", "x"}, {"--config"});
  expect_refused({"picture", "masks", "--config", "no-such-design"}, {"no-such-design", "gemma-2-9b"});
}

TEST(ExplainCommand, WritesAPageThatFetchesNothing) {
  const Scratch scratch;
  const std::string page = scratch / "walk.html";
  const Outcome outcome = vitrine({"explain", "Once upon a time", "--out", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_GT(document["pictures"].size(), 33u);
  EXPECT_GE(document["steps"].size(), 12u);
  const std::string html = read_file(page);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_CONTAINS(html, "default-src 'none'");
  for (const char* fetching : {"src=\"http", "href=\"http", "@import", "url(http"})
    EXPECT_EQ(html.find(fetching), std::string::npos) << fetching;
  const std::string begin = "<script id=\"vitrine-data\" type=\"application/json\">";
  const size_t from = html.find(begin) + begin.size();
  EXPECT_EQ(Json::parse(html.substr(from, html.find("</script>", from) - from)), document);
  EXPECT_LT(html.size(), size_t{5} << 20);
}

TEST(ExplainCommand, PutsTheEngineAndTheWeightsIntoALivePage) {
  const Scratch scratch;
  const std::string page = scratch / "live.html", gguf = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
  const Outcome outcome = vitrine({"explain", "--tokens", "5,3,7", "--model", gguf, "--live", "--out", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["model"]["name"], "llama_q8_0.gguf");
  const std::string html = read_file(page);
  // >Ch! is how a gzip file begins (picture/page/printable.h).
  for (const char* part : {"<script id=\"vitrine-engine\" type=\"text/plain\">>Ch!",
                           "<script id=\"vitrine-weights\" type=\"text/plain\" data-name=\"llama_q8_0.gguf\">>Ch!",
                           "default-src 'none'", "'wasm-unsafe-eval'", "worker-src blob:"})
    EXPECT_CONTAINS(html, part);
  const std::string plain = scratch / "plain.html";
  ASSERT_EQ(vitrine({"explain", "--tokens", "5,3,7", "--model", gguf, "--out", plain}).code, 0);
  for (const char* part : {"vitrine-engine\"", "'wasm-unsafe-eval'", "worker-src"})
    EXPECT_EQ(read_file(plain).find(part), std::string::npos) << part;
}

// A directory is stored as q8_0, and what the page says first is what those weights give.
TEST(ExplainCommand, ALivePageShowsTheWeightsItHolds) {
  const Scratch scratch;
  const std::string file = scratch / "gpt2_a-q8_0.gguf", page = scratch / "live.html";
  ASSERT_EQ(vitrine({"convert", golden_model("gpt2_a"), file, "--dtype", "q8_0"}).code, 0);
  const std::vector<std::string> prompt = {"--tokens", "5,3,7,9", "--no-gradients", "--json"};
  std::vector<std::string> live = {"explain", "--live", "--model", golden_model("gpt2_a"), "--out", page},
                           plain = {"explain", "--model", file, "--compute", "f32"};
  live.insert(live.end(), prompt.begin(), prompt.end());
  plain.insert(plain.end(), prompt.begin(), prompt.end());
  const Outcome outcome = vitrine(live);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["pictures"]["next-tokens"], vitrine(plain).json()["pictures"]["next-tokens"]);
}

TEST(ExplainCommand, LeavesGradientsOutWhenAsked) {
  const auto document = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"explain", "--tokens", "5,3,7", "--model", golden_model("llama"), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return vitrine(arguments).json();
  };
  const Json with = document({}), without = document({"--no-gradients"});
  for (const char* name : {"gradient-norms", "gradient-hooks", "input-attribution"}) {
    EXPECT_EQ(with["pictures"][name]["available"], true) << name;
    EXPECT_EQ(without["pictures"][name]["available"], false) << name;
  }
  EXPECT_EQ(with["steps"].size(), without["steps"].size() + 2);
}

TEST(PictureCommand, AttributesAnyPosition) {
  const Outcome early = vitrine(
      {"picture", "input-attribution", "--tokens", "5,3,7,9", "--position", "2", "--model", golden_model("llama"), "--json"});
  ASSERT_EQ(early.code, 0) << early.err;
  EXPECT_EQ(early.json()["pictures"]["input-attribution"]["saliency"].size(), 3u);
}

TEST(ExplainCommand, TakesQuantizedFilesIdsAndOneToken) {
  const Scratch scratch;
  const std::string gguf = std::string(VITRINE_GOLDEN) + "/gguf/";
  for (const char* name : {"llama_q8_0.gguf", "llama_q4_0.gguf", "llama_f16.gguf", "gemma2.gguf"}) {
    const Outcome outcome = vitrine({"explain", "--tokens", "5,3,7", "--model", gguf + name, "--json"});
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    EXPECT_EQ(outcome.json()["prompt"]["text"], nullptr) << name;
  }
  for (const std::string& name : Golden::all()) {
    if (name == "mamba2") continue;  // has no attention, which the pages are about
    const Outcome outcome = vitrine({"explain", "--tokens", "5", "--model", golden_model(name), "--out", scratch / "one.html"});
    EXPECT_EQ(outcome.code, 0) << name << outcome.err;
  }
}

TEST(ExplainCommand, APromptMaySayAnything) {
  const Scratch scratch;
  for (const std::string text :
       {"</script><img src=x onerror=alert(1)> & \"quotes\" 'and' <!--", "\xF0\x9F\x98\x80\xE2\x80\xA8 caf\xC3\xA9\t\n", ""}) {
    const Outcome outcome = vitrine({"explain", text, "--out", scratch / "any.html", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["prompt"]["text"], text);
    EXPECT_EQ(read_file(scratch / "any.html").find("<img src=x"), std::string::npos);
  }
}

// What a page says to type runs the same model on the same tokens, whatever the text is.
TEST(ExplainCommand, SaysHowToRunItAgain) {
  const Scratch scratch;
  const std::string adapter = std::string(VITRINE_GOLDEN) + "/lora/gpt2_a/adapter";
  const auto document = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"picture", "tokens", "--json"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = vitrine(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const Json plain = document({"The king"});
  EXPECT_EQ(plain["prompt"]["shell"], "'The king'");
  EXPECT_EQ(plain["prompt"]["special"], true);
  EXPECT_EQ(plain["model"]["adapter"], "");
  EXPECT_EQ(document({"The king", "--compute", "f32"})["prompt"]["shell"], "--compute f32 'The king'");
  const Json bare = document({"The king", "--no-special"});
  EXPECT_EQ(bare["prompt"]["shell"], "'The king' --no-special");
  EXPECT_EQ(bare["prompt"]["special"], false);
  EXPECT_NE(bare["prompt"]["ids"], plain["prompt"]["ids"]);
  EXPECT_EQ(document({"say --no-special"})["prompt"]["special"], true);
  // Options end at --, so the page puts what it adds in front of all this.
  const Json dash = document({"--no-special", "--", "- said"});
  EXPECT_EQ(dash["prompt"]["shell"], "--no-special -- '- said'");
  EXPECT_EQ(document({"--no-special", "--", "- said"})["prompt"]["ids"], dash["prompt"]["ids"]);
  const Outcome page = vitrine({"explain", "--out", scratch / "page.html", "--no-special", "--", "- said"});
  EXPECT_EQ(page.code, 0) << page.err;
  const Json with = document({"--tokens", "5,3", "--model", golden_model("gpt2_a"), "--adapter", adapter});
  EXPECT_EQ(with["model"]["adapter"], adapter);
  EXPECT_EQ(with["prompt"]["shell"], "--tokens 5,3 --model " + golden_model("gpt2_a") + " --adapter " + adapter);
}

TEST(PictureCommand, RefusesWrongInput) {
  const Scratch scratch;
  expect_refused({"picture"}, {"which picture?", "--list"});
  expect_refused({"picture", "atention"}, {"atention", "Did you mean \"attention\"?"});
  expect_refused({"picture", "attention", "--svg", "--json"}, {"exclude each other"});
  expect_refused({"picture", "tokens", "a \xFF b"}, {"UTF-8"});
  expect_refused({"picture", "tokens", "--tokens", "2,9999"}, {"9999"});
  expect_refused({"picture", "tokens", "--tokens", "2;3"}, {"several sequences"});
  expect_refused({"picture", "tokens", "text", "--tokens", "2"}, {"--tokens"});
  expect_refused({"picture", "softmax", "--layer", "8"}, {"layer 8 does not exist", "0 to 7"});
  expect_refused({"picture", "softmax", "The king", "--position", "99"}, {"position 99 does not exist", "0 to 2"});
  expect_refused({"picture", "softmax", "--head", "-1"}, {"--head"});
  expect_refused({"picture", "embedding-neighbors", "--sum", "king queen"}, {"where a sign should stand"});
  expect_refused({"picture", "embedding-cosine", "--words", "xylophonist"}, {"one word was given"});
  expect_refused({"picture", "rope-wavelengths", "--tokens", "5", "--model", golden_model("gpt2_a"), "--svg"},
                 {"no rotary positions"});
  expect_refused({"picture", "tokens", "text", "--model", golden_model("gpt2_b")}, {"tokenizer"});
  expect_refused({"picture", "tokens", "--model", scratch / "absent"}, {"absent"});
}

TEST(ExplainCommand, RefusesWrongInput) {
  const Scratch scratch;
  const std::string page = scratch / "walk.html";
  expect_refused({"explain", "text"}, {"--out PAGE.html"});
  expect_refused({"explain", "--out", page}, {"text"});
  expect_refused({"explain", "\xC3(", "--out", page}, {"UTF-8"});
  expect_refused({"explain", "--tokens", "", "--out", page}, {"--tokens"});
  expect_refused({"explain", "--tokens", "-5", "--out", page}, {"-5"});
  std::string ids = "2";
  for (int i = 0; i < 1024; ++i) ids += ",7";
  expect_refused({"explain", "--tokens", ids, "--out", page}, {"1025", "1024"});
  EXPECT_FALSE(std::filesystem::exists(page));
}

// A browser that writes down what it was asked to show.
TEST(ExplainCommand, OpensThePageInTheBrowser) {
  const Scratch scratch;
  const std::string browser = scratch.write(
                        "browser", "#!/bin/sh\nprintf '%s' \"$1\" > \"$1.seen.part\"; mv \"$1.seen.part\" \"$1.seen\"\n"),
                    page = scratch / "a page.html";
  std::filesystem::permissions(browser, std::filesystem::perms::owner_all);
  const Outcome outcome =
      vitrine({"explain", "--tokens", "5,3", "--model", golden_model("llama"), "--no-gradients", "--out", page, "--open"},
              {"BROWSER=" + browser});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (int i = 0; i < 500 && !std::filesystem::exists(page + ".seen"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(read_file(page + ".seen"), page);
  const Outcome none =
      vitrine({"explain", "--tokens", "5,3", "--model", golden_model("llama"), "--no-gradients", "--out", page, "--open"},
              {"BROWSER=" + (scratch / "none")});
  EXPECT_EQ(none.code, 1);
  EXPECT_CONTAINS(none.err, "is written, but " + (scratch / "none") + " cannot be started: No such file");
  expect_refused({"explain", "a", "--json", "--open"}, {"--open needs a page"});
}

}  // namespace
}  // namespace vitrine
