#include "requests/live.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "intervene/run.h"
#include "model/adapter.h"
#include "ops/stopping.h"
#include "picture/page/page.h"
#include "requests/request.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string shipped() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }

class LiveTest : public testing::Test {
 protected:
  Live live{shipped(), {.numerics = {.f32 = true}}};
  Engine engine{shipped(), {.numerics = {.f32 = true}}};
  const std::string text = "Once upon a time there was a king";

  Json ask(const char* request, const Json& body) { return Json::parse(live.answer(request, body.dump())); }
  std::string refused(const char* request, const Json& body) {
    const Json answer = ask(request, body);
    return answer.contains("error") ? answer["error"]["message"].get<std::string>()
                                    : "not refused: " + answer.dump().substr(0, 200);
  }
};

TEST_F(LiveTest, NextGivesTheEnginesLogProbabilities) {
  const Json answer = ask("next", {{"prompt", text}, {"top", 5}});
  const std::vector<Prediction> expected = engine.predict(engine.prompt_ids(text), 5, false);
  ASSERT_EQ(answer["next"].size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(answer["next"][i]["token"], expected[0].top[i].token);
    EXPECT_NEAR(answer["next"][i]["logprob"].get<double>(), expected[0].top[i].logprob, 1e-6);
    // Nothing is cut: what is kept is the probability itself.
    EXPECT_NEAR(answer["next"][i]["kept"].get<double>(), std::exp(expected[0].top[i].logprob), 1e-6);
  }
  EXPECT_EQ(answer["left"], engine.shape().vocab_size);
}

TEST_F(LiveTest, NextTellsWhatSamplingKeeps) {
  const Json answer = ask("next", {{"prompt", text}, {"top", 5}, {"temperature", 0.5}, {"top_k", 2}});
  EXPECT_EQ(answer["left"], 2);
  const double first = answer["next"][0]["logprob"], second = answer["next"][1]["logprob"];
  const double expected = 1 / (1 + std::exp(2 * (second - first)));  // of two tokens at half the temperature
  EXPECT_NEAR(answer["next"][0]["kept"].get<double>(), expected, 1e-5);
  EXPECT_EQ(answer["next"][2]["kept"], 0.0);
}

TEST_F(LiveTest, EditedPicturesShowTheChangedModel) {
  const Json edits = {{{"head", "1.3"}, {"do", "zero"}}, {{"mlp", "2"}, {"do", "zero"}}};
  const Json next = ask("next", {{"prompt", text}, {"top", 10}, {"edits", edits}});
  const Json document = ask("document", {{"prompt", text}, {"pictures", {"next-tokens", "attention"}}, {"edits", edits}});
  const Json& shown = document["pictures"]["next-tokens"];
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(shown["ids"].back()[i], next["next"][i]["token"]);
    EXPECT_NEAR(shown["probs"].back()[i].get<double>(), next["next"][i]["prob"].get<double>(), 1e-6);
  }
  const Json plain = ask("document", {{"prompt", text}, {"pictures", {"next-tokens", "attention"}}});
  EXPECT_NE(plain["pictures"]["next-tokens"]["probs"], shown["probs"]);
  // What comes before the change stays, what comes behind it does not.
  const auto patterns = [](const Json& of, size_t layer) { return of["pictures"]["attention"]["patterns"][layer]; };
  EXPECT_EQ(patterns(document, 1), patterns(plain, 1));
  EXPECT_NE(patterns(document, 2), patterns(plain, 2));
  EXPECT_NE(refused("document", {{"prompt", text}, {"pictures", {"logit-attribution"}}, {"edits", edits}})
                .find("\"edits\" change the pictures next-tokens and attention"),
            std::string::npos);
  EXPECT_NE(refused("document", {{"prompt", text}, {"edits", edits}}).find("name them"), std::string::npos);
}

TEST_F(LiveTest, EditsGiveWhatAnInterventionGives) {
  const Json edits = Json::array({{{"head", "3.1"}, {"do", "zero"}}, {{"mlp", "2"}, {"do", "mean"}}});
  const Json patched = ask("patch", {{"prompt", text}, {"interventions", edits}, {"top", 5}});
  ASSERT_FALSE(patched.contains("error")) << patched.dump();
  const Json next = ask("next", {{"prompt", text}, {"edits", edits}, {"top", 5}}),
             plain = ask("next", {{"prompt", text}, {"top", 5}});
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(next["next"][i]["token"], patched["after"][0]["top"][i]["token"]);
    EXPECT_NEAR(next["next"][i]["logprob"].get<double>(), patched["after"][0]["top"][i]["logprob"].get<double>(), 1e-5);
    EXPECT_NEAR(plain["next"][i]["logprob"].get<double>(), patched["before"][0]["top"][i]["logprob"].get<double>(), 1e-5);
  }
  EXPECT_NE(next["next"], plain["next"]);
  EXPECT_EQ(ask("next", {{"prompt", text}, {"top", 5}}), plain) << "edits of an earlier request are gone";
}

TEST_F(LiveTest, DocumentIsThatOfExplain) {
  PicturePrompt prompt;
  prompt.text = text;
  prompt.ids = engine.prompt_ids(text);
  prompt.pieces = engine.tokenizer().encode_with_offsets(text, true);
  prompt.model = shipped();
  PictureOptions options;
  options.gradients = false;
  EXPECT_EQ(ask("document", {{"prompt", text}, {"gradients", false}}),
            Json::parse(explain_document(engine, prompt, options).dump()));
}

// What is asked in between is answered, and another document takes the place of one that was left.
TEST_F(LiveTest, DocumentInPiecesIsTheSame) {
  const Json body = {{"prompt", "The king"}, {"gradients", false}}, other = {{"prompt", "The queen"}, {"gradients", false}};
  const auto asked = [](Json of) {
    of["in_pieces"] = true;
    return of;
  };
  const Json unfinished = {{"unfinished", true}};
  EXPECT_EQ(ask("document", asked(other)), unfinished);
  Json document = ask("document", asked(body));
  int pieces = 1;
  for (; document == unfinished; ++pieces) {
    if (pieces % 7 == 0) {
      EXPECT_FALSE(ask("next", {{"prompt", "A"}}).contains("error"));
    }
    document = ask("document", asked(body));
  }
  EXPECT_GT(pieces, 20);
  EXPECT_EQ(document, ask("document", body));
  EXPECT_EQ(ask("document", asked(other)), unfinished);
}

TEST_F(LiveTest, DocumentOfSomePictures) {
  const Json all = ask("document", {{"prompt", text}, {"gradients", false}});
  const Json some = ask("document", {{"prompt", text}, {"pictures", {"next-tokens", "attention"}}});
  ASSERT_EQ(some["pictures"].size(), 2u) << some.dump().substr(0, 300);
  for (const char* name : {"next-tokens", "attention"}) EXPECT_EQ(some["pictures"][name], all["pictures"][name]);
}

TEST_F(LiveTest, GenerateInspectAndTrain) {
  const Json made = ask("generate", {{"prompt", text}, {"max_tokens", 4}});
  EXPECT_EQ(made["tokens"].size(), 4u);
  EXPECT_EQ(made["finish_reason"], "length");

  const Json seen = ask("inspect", {{"prompt", text}, {"hooks", {"blocks.2.attn.hook_pattern[heads=1,positions=-1]"}}});
  double sum = 0;
  for (const Json& share : seen["hooks"][0]["values"][0][0]) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);

  const Json trained = ask("train", {{"prompt", text}, {"target", " who"}, {"rate", 0.01}});
  ASSERT_FALSE(trained.contains("error")) << trained.dump();
  EXPECT_LT(trained["loss_after"].get<double>(), trained["loss_before"].get<double>());
  EXPECT_NEAR(ask("next", {{"prompt", text}, {"top", 1}})["next"][0]["logprob"].get<double>(),
              trained["before"][0]["logprob"].get<double>(), 1e-4)
      << "the page's own weights stay as they are";
}

// A run in slices, as a page asks for it: the numbers of one request, and a file that is the model behind them.
TEST_F(LiveTest, TrainingGoesOnFromRequestToRequest) {
  const Json body = {{"prompt", "The king sat on"}, {"target", " her"}, {"rate", 0.01}, {"top", 5}};
  const auto with = [&](const Json& more) {
    Json all = body;
    all.update(more);
    return all;
  };
  EXPECT_CONTAINS(refused("train", with({{"goes_on", true}})), "nothing to go on from");
  const Json untouched = ask("next", {{"prompt", "The king sat on"}, {"top", 5}});
  const Json whole = ask("train", with({{"steps", 4}}));
  ASSERT_FALSE(whole.contains("error")) << whole.dump();
  ASSERT_EQ(whole["losses"].size(), 5u);
  Json losses = Json::array({ask("train", with({{"steps", 0}}))["loss_before"]});  // braces alone copy the number with clang
  Json last;
  for (int step = 0; step < 4; ++step) {
    last = ask("train", with({{"goes_on", true}}));
    losses.push_back(last["loss_after"]);
  }
  EXPECT_EQ(losses, whole["losses"]);
  EXPECT_EQ(last["after"], whole["after"]);
  EXPECT_EQ(last["layers"], whole["layers"]);
  EXPECT_EQ(ask("next", {{"prompt", "The king sat on"}, {"top", 5}}), untouched) << "the page's own weights stay as they are";

  EXPECT_TRUE(live.file().empty());
  const Json size = ask("train", with({{"goes_on", true}, {"steps", 0}, {"format", "gguf"}}));
  ASSERT_EQ(size["bytes"], live.file().size()) << size.dump();
  Scratch scratch;
  scratch.write("trained.gguf", live.file());
  Live trained(scratch / "trained.gguf", {.numerics = {.f32 = true}});
  const Json next = Json::parse(trained.answer("next", Json{{"prompt", "The king sat on"}, {"top", 5}}.dump()));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(next["next"][i]["token"], whole["after"][i]["token"]);
    EXPECT_NEAR(next["next"][i]["logprob"].get<double>(), whole["after"][i]["logprob"].get<double>(), 1e-5);
  }
  EXPECT_EQ(ask("next", {{"prompt", "The king sat on"}, {"top", 5}}), untouched);
  EXPECT_TRUE(live.file().empty()) << "of the last answer alone";
}

// Of a changed run: its last layer is the answer to `next` with the same edits, its lengths those of the stream that `inspect`
// shows.
TEST_F(LiveTest, TheLensSeesTheChangedModel) {
  const Json edits = {{{"head", "1.3"}, {"do", "zero"}}, {{"mlp", "5"}, {"do", "zero"}}};
  const Json lens = ask("lens", {{"prompt", text}, {"edits", edits}, {"top", 3}}),
             plain = ask("lens", {{"prompt", text}, {"top", 3}});
  ASSERT_FALSE(lens.contains("error")) << lens.dump();
  const Json next = ask("next", {{"prompt", text}, {"edits", edits}, {"top", 3}});
  const Json& last = lens["layers"].back()["positions"].back();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(last["top"][i]["token"], next["next"][i]["token"]);
    EXPECT_NEAR(last["top"][i]["logprob"].get<double>(), next["next"][i]["logprob"].get<double>(), 1e-4);
  }
  EXPECT_NE(last["top"][0]["logprob"], plain["layers"].back()["positions"].back()["top"][0]["logprob"]);
  for (size_t position = 0; position < lens["tokens"].size(); ++position)
    for (const char* key : {"top", "length"})
      EXPECT_EQ(lens["layers"][1]["positions"][position][key], plain["layers"][1]["positions"][position][key])
          << "nothing in front of layer 1 is changed";
  const Json seen = ask("inspect", {{"prompt", text}, {"edits", edits}, {"hooks", {"blocks.*.hook_resid_post"}}});
  for (size_t layer = 0; layer < seen["hooks"].size(); ++layer)
    for (size_t position = 0; position < lens["tokens"].size(); ++position) {
      double squares = 0;
      for (const Json& x : seen["hooks"][layer]["values"][position]) squares += x.get<double>() * x.get<double>();
      EXPECT_NEAR(lens["layers"][layer + 1]["positions"][position]["length"].get<double>(), std::sqrt(squares), 1e-3)
          << layer << " " << position;
    }
}

TEST_F(LiveTest, RefusesInWords) {
  const auto has = [](const std::string& message, const char* part) { return message.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refused("nothing", {}), "nothing"));
  EXPECT_TRUE(has(refused("next", Json::array()), "a list; expected an object"));
  EXPECT_TRUE(has(refused("next", Json::object()), "prompt"));
  EXPECT_TRUE(has(refused("next", {{"prompt", Json::array({1 << 30})}}), "holds the token 1073741824"));
  EXPECT_TRUE(has(refused("next", {{"prompt", "a"}, {"top_k", "many"}}), "top_k"));
  EXPECT_TRUE(has(refused("next", {{"prompt", "a"}, {"temperature", -1}}), "temperature"));
  EXPECT_TRUE(has(refused("document", {{"prompt", "a"}, {"pictures", {"no-such"}}}), "no-such"));
  EXPECT_TRUE(has(refused("inspect", {{"prompt", "a"}}), "hooks"));
  EXPECT_TRUE(
      has(refused("inspect", {{"prompt", "a"}, {"hooks", "hook_embed"}, {"format", "npz"}}), "expected json or safetensors"));
  EXPECT_TRUE(has(refused("next", {{"messages", {{{"role", "user"}, {"content", "a"}}}}}), "server"));
  EXPECT_TRUE(has(refused("lens", {{"prompt", "a"}, {"positions", {99}}}), "99"));
  EXPECT_TRUE(has(refused("patch", {{"prompt", "a"}, {"interventions", {{{"head", "99.0"}, {"do", "zero"}}}}}), "99"));
  EXPECT_TRUE(has(refused("train", {{"prompt", "Onc"}, {"target", "e"}}), "target"));
  for (const int steps : {-1, 201})
    EXPECT_TRUE(has(refused("train", {{"prompt", "a"}, {"target", " b"}, {"steps", steps}}), "a whole number from 0 to 200"))
        << steps;
  EXPECT_TRUE(has(refused("train", {{"prompt", "a"}, {"target", " b"}, {"follow", {1 << 30}}}), "follow"));
  EXPECT_TRUE(has(refused("train", {{"prompt", "a"}, {"target", " b"}, {"format", "npz"}}), "expected json or gguf"));
  EXPECT_TRUE(has(Json::parse(live.answer("next", "{\"prompt\": \"a\""))["error"]["message"], "the request"));
}

// Over somebody's engine: how a server answers.
class LiveRequests : public testing::Test {
 protected:
  static std::string answer(const Host& host, const char* name, const std::string& body) {
    Fields fields(body, find_request(name).fields);
    return find_request(name).answer(host, fields).text(fields);
  }
  static Host of(Engine& engine) {
    return {.engine = engine, .name = engine.name(), .run = [&engine](const auto& work) { work(engine); }, .threads = 1};
  }
};

TEST_F(LiveRequests, RunInPiecesThatLeaveTheEngineFree) {
  Engine engine(shipped(), {.threads = 1, .numerics = {.f32 = true}});
  Host model = of(engine);
  int pieces = 0;
  model.run = [&](const auto& work) {
    ++pieces;
    work(engine);
    engine.predict(engine.prompt_ids("Something else"), 1, false);  // whoever comes in between
  };
  Live alone(shipped(), {.threads = 1, .numerics = {.f32 = true}});
  for (const char* request : {"document", "generate", "next", "inspect", "units", "patch"}) {
    const Json body = {{"prompt", "Once upon a time"},
                       {"gradients", false},
                       {"hooks", {"blocks.*.hook_resid_post"}},
                       {"interventions", {{{"head", "3.1"}, {"do", "zero"}}}}};
    pieces = 0;
    EXPECT_EQ(answer(model, request, body.dump()), alone.answer(request, body.dump())) << request;
    const std::string_view name = request;
    EXPECT_GE(pieces, name == "document" ? 31 : name == "generate" ? 16 : 1) << request;
  }
}

TEST_F(LiveRequests, AStepOfTrainingEndsWithWhoAskedForIt) {
  Engine engine(shipped(), {.threads = 1});
  Host model = of(engine);
  const std::atomic<bool> gone = true;
  model.gone = &gone;
  EXPECT_THROW(answer(model, "train", R"({"prompt": "Once", "target": " upon"})"), Stopped);
}

TEST_F(LiveRequests, AServerKeepsNoTraining) {
  Engine engine(shipped(), {.threads = 1});
  try {
    answer(of(engine), "train", R"({"prompt": "Once", "target": " upon", "goes_on": true})");
    ADD_FAILURE() << "not refused";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.field, "goes_on");
  }
}

TEST_F(LiveRequests, AStepOfTrainingIsRefusedBesideAnAdapter) {
  const std::string golden = std::string(VITRINE_SOURCE) + "/tests/golden";
  OpenedModel opened = open_model(golden + "/models/gpt2_a/model");
  open_adapter(opened, golden + "/lora/gpt2_a/adapter");
  Engine engine(std::move(opened), {.threads = 1});
  try {
    answer(of(engine), "train", R"({"prompt": "Once", "target": " upon"})");
    ADD_FAILURE() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("adapter"), std::string::npos) << error.what();
  }
  EXPECT_NE(answer(of(engine), "next", R"({"prompt": "Once"})").find("logprob"), std::string::npos);
}

}  // namespace
}  // namespace vitrine
