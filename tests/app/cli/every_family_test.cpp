// Every command on every family: done, or refused with what the user is told.
#include <algorithm>
#include <map>

#include "cli/program.h"
#include "support/golden.h"

namespace vitrine {
namespace {

using Line = std::vector<std::string>;

// What a family may refuse, with a part of its message; everything else has to be done. Code 1: the run went wrong, and the
// message says where.
struct Refusal {
  std::string family, command;
  int code;
  std::string says;
};
const std::vector<Refusal> kRefusals = {
    // The interventions on a router are for models that have one.
    {"", "intervene on the router", 2, "no hook of this"},
    // Whose MLP reads the stream that attention reads.
    {"gpt_neox", "intervene on the stream", 2, "hook_resid_mid"},
    {"gptj", "intervene on the stream", 2, "hook_resid_mid"},
    {"phi", "intervene on the stream", 2, "hook_resid_mid"},
    {"gemma4", "circuits", 2, "a composition score has no one meaning"},
    {"qwen3_5", "circuits", 2, "behind a gate"},
};

std::string model_of(const std::string& family) {
  const std::string variant = std::string(VITRINE_GOLDEN) + "/variants/" + family;
  return std::filesystem::exists(variant) ? variant : golden_model(family);
}

std::vector<std::string> families() {
  std::vector<std::string> names = Golden::all();
  if (std::find(names.begin(), names.end(), "gpt_oss") == names.end()) names.emplace_back("gpt_oss_default_rope");
  names.emplace_back("qwen3_moe_dense_layers");
  return names;
}

std::string recipe(const std::string& model, const std::string& interventions) {
  return "model: " + model +
         "\nprompt: {tokens: [5, 3, 7, 9, 2, 11]}\ncorrupt: {tokens: [5, 4, 7, 9, 2, 11]}\nmetric: {logprob: 7}\n" +
         "interventions: [" + interventions + "]\n";
}

class EveryFamily : public testing::TestWithParam<std::string> {
 protected:
  const std::string model = model_of(GetParam());
  const Scratch scratch;

  // Done with code 0 and no NaN among the numbers, or a refusal of the list.
  void expect_done(const std::string& command, const Line& line) {
    const Outcome outcome = vitrine(line);
    const auto known = std::find_if(kRefusals.begin(), kRefusals.end(), [&](const Refusal& r) {
      return r.command == command && (r.family.empty() || r.family == GetParam()) && r.code == outcome.code;
    });
    if (outcome.code != 0 && known != kRefusals.end()) {
      EXPECT_CONTAINS(outcome.err, known->says);
      return;
    }
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    EXPECT_EQ(outcome.out.find("nan"), std::string::npos) << command;
  }
  Line with_prompt(Line line) const {
    line.insert(line.end(), {"--model", model, "--tokens", "5,3,7,9,2,11,5,3", "--threads", "2"});
    return line;
  }
};

TEST_P(EveryFamily, RunsEveryCommandThatReadsAPrompt) {
  const std::string out = scratch / "out";
  const std::map<std::string, Line> commands = {
      {"predict", {"predict", "--all-positions", "--json"}},
      {"generate", {"generate", "--max-tokens", "3"}},
      {"beams", {"generate", "--max-tokens", "3", "--beams", "2"}},
      {"trace", {"trace", "--hooks", "*", "--gradients", "--out", out + ".safetensors"}},
      {"trace of gradients", {"trace", "--gradients-at", "blocks.*.hook_resid_pre", "--out", out + ".safetensors"}},
      {"explain", {"explain", "--out", out + ".html", "--json"}},
      {"circuits", {"circuits", "--compositions", "3"}},
      {"attribute", {"attribute"}},
  };
  for (const auto& [name, line] : commands) expect_done(name, with_prompt(line));
}

TEST_P(EveryFamily, IsDescribedAndComparedWithItself) {
  expect_done("info", {"info", "--model", model, "--hooks"});
  const Outcome same = vitrine({"compare", model, model, "--tokens", "5,3,7,9,2", "--json"});
  EXPECT_EQ(same.code, 0) << same.err;
}

TEST_P(EveryFamily, TakesInterventions) {
  const std::map<std::string, std::string> recipes = {
      {"intervene on parts",
       "{head: '*.0', do: zero}, {mlp: '1', do: mean}, {attn: '0', do: resample, from: corrupt}, {layer: '0', do: identity}"},
      {"intervene on the stream", "{hook: blocks.1.hook_resid_mid, do: scale, by: 0.5}"},
      {"intervene on hidden units", "{hook: blocks.1.mlp.hook_post, do: zero, positions: -1}"},
      {"intervene on a pattern", "{hook: blocks.*.attn.hook_pattern, do: resample, from: corrupt}"},
      {"intervene on a norm", "{norm: ['blocks.0.*'], do: unit_scale}"},
      {"intervene on the router", "{hook: blocks.1.mlp.hook_router_logits, do: zero}"},
  };
  for (const auto& [name, interventions] : recipes)
    expect_done(name, {"intervene", scratch.write("r.yaml", recipe(model, interventions)), "--threads", "2"});
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryFamily, testing::ValuesIn(families()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace vitrine
