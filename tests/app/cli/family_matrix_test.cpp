// Every command on every family in every form of its files: done, or refused with what the user is told. docs/family-matrix.md is
// printed from the same list; VITRINE_WRITE_DOCS=1 in the environment writes it anew.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "cli/program.h"
#include "model/load.h"
#include "model/registry.h"
#include "support/golden.h"

namespace vitrine {
namespace {

using Line = std::vector<std::string>;

// What has no meaning, or is not done: the command and the family ("" for each).
struct Refusal {
  std::string family, command;
  std::string says;  // a part of the message
  std::string why;   // for the page
};
const std::string kOneStream = "attention and MLP of a layer read one residual stream, and there is none between them",
                  kNoGguf = "llama.cpp has no files of this family", kNoAttention = "there is no attention and no MLP",
                  kOneSublayer = "a layer has one sub-layer, attention or a state space or an MLP",
                  kLatent =
                      "a norm stands between the residual stream and the keys and values, which are made of a latent vector",
                  kDrawnExperts = "in training its experts are drawn at random, which is not done here",
                  kGate = "what a head writes passes a gate that each token opens for itself, and is no fixed map";
const std::string kFromGguf = " from GGUF";  // behind a command's name: there alone
const std::vector<Refusal> kRefusals = {
    {"gpt_neox", "stream", "hook_resid_mid", kOneStream},
    {"gptj", "stream", "hook_resid_mid", kOneStream},
    {"phi", "stream", "hook_resid_mid", kOneStream},
    {"cohere", "stream", "hook_resid_mid", kOneStream},
    {"command_r_plus", "stream", "hook_resid_mid", kOneStream},
    {"falcon", "stream", "hook_resid_mid", kOneStream},
    {"falcon_40b", "stream", "hook_resid_mid", kOneStream},
    {"phimoe", "train", "in training SparseMixer draws experts at random", kDrawnExperts},
    {"phimoe", "LoRA", "in training SparseMixer draws experts at random", kDrawnExperts},
    {"hunyuan", "circuits", "after RoPE", "queries and keys are normalized after RoPE, and a score depends on both positions"},
    {"llama4", "circuits", "after RoPE", "queries and keys are normalized after RoPE, and a score depends on both positions"},
    {"llama4_layer_types", "to GGUF", "number of experts in layer 1", "GGUF has no key for layers without experts"},
    {"deepseek_v3", "circuits", "keys and values of a latent vector", kLatent},
    {"deepseek_v2_groups", "circuits", "keys and values of a latent vector", kLatent},
    {"qwen3_5_moe", "circuits", "behind a gate", kGate},
    {"qwen3_next", "circuits", "behind a gate", kGate},
    {"mamba2", "explain", "has no layer with attention", kNoAttention},
    {"mamba2", "circuits", "has no layer with attention", kNoAttention},
    {"mamba2", "parts", "hook_mlp_out", kNoAttention},
    {"mamba2", "stream", "hook_resid_mid", kNoAttention},
    {"mamba2", "units", "mlp.hook_post", kNoAttention},
    {"mamba2", "pattern", "attn.hook_pattern", kNoAttention},
    {"falcon_h1", "LoRA from GGUF", "holds the factors of Falcon-H1 in its weights",
     "not beside a GGUF file, whose weights hold the factors of the configuration, and no adapter of PEFT is made for these"},
    {"nemotron_h", "stream", "hook_resid_mid", kOneSublayer},
    {"nemotron_h_moe", "stream", "hook_resid_mid", kOneSublayer},
    {"gemma4", "circuits", "a composition score has no one meaning",
     "layers read the keys and values of earlier ones, and a composition of heads has no one meaning"},
    {"qwen3_5", "circuits", "behind a gate", kGate},
    {"classic_post", "to GGUF", "has no GGUF form", kNoGguf},
    {"classic_pre", "to GGUF", "has no GGUF form", kNoGguf},
    {"gpt_neo", "to GGUF", "has no GGUF form", kNoGguf},
    {"gptj", "to GGUF", "has no GGUF form", kNoGguf},
    {"opt", "to GGUF", "has no GGUF form", kNoGguf},
    {"gpt2_b", "to GGUF", "gelu_pytorch_tanh", "GGUF has no key for its activation"},
    {"qwen2_moe", "to GGUF", "gives the window in layer 0", "llama.cpp has no windows for this family"},
    {"qwen3_moe_dense_layers", "to GGUF", "number of experts in layer 0", "GGUF has no key for layers without experts"},
    {"", "router", "no hook of this", "there are no experts, or none in the layer"},
};

std::string model_of(const std::string& family) {
  const std::string variant = std::string(VITRINE_GOLDEN) + "/variants/" + family;
  return std::filesystem::exists(variant) ? variant : golden_model(family);
}

std::vector<std::string> families() {
  std::vector<std::string> names = Golden::all();
  if (std::find(names.begin(), names.end(), "gpt_oss") == names.end()) names.emplace_back("gpt_oss_default_rope");
  for (const char* variant :
       {"qwen3_moe_dense_layers", "granite4_hybrid", "granite4_experts", "nemotron_h_moe", "deepseek_v2_groups", "ernie4_5_moe",
        "lfm2_moe", "qwen2_moe", "qwen3_5_moe", "qwen3_next", "llama4_layer_types"})
    names.emplace_back(variant);
  return names;
}

// What is run: its name on the page, and its arguments. M stands for the model's words, OUT for a new path, DATA for token data,
// PROMPT for eight tokens, RECIPE for a file of the text that follows.
struct Command {
  std::string name, what;
  Line line;
  std::string recipe = {};
};
std::string interventions(const std::string& list) {
  return "model: MODEL\nprompt: {tokens: [5, 3, 7, 9, 2, 11]}\ncorrupt: {tokens: [5, 4, 7, 9, 2, 11]}\nmetric: {logprob: 7}\n"
         "interventions: [" +
         list + "]\n";
}
std::string learning(const std::string& more) {
  return "model: MODEL\nout: OUT\ndata: {train: DATA}\nsequence_length: 8\nbatch: 2\nsteps: 1\noptimizer: {lr: 1e-2}\n" + more;
}
const std::vector<Command> kCommands = {
    {"predict", "`predict --all-positions`", {"predict", "--all-positions", "--json", "M", "PROMPT"}},
    {"generate", "`generate`", {"generate", "--max-tokens", "3", "M", "PROMPT"}},
    {"beams", "`generate --beams 2`", {"generate", "--max-tokens", "3", "--beams", "2", "M", "PROMPT"}},
    {"hooks",
     "`trace --hooks '*' --gradients`",
     {"trace", "--hooks", "*", "--gradients", "--out", "OUT.safetensors", "M", "PROMPT"}},
    {"gradients",
     "`trace --gradients-at`",
     {"trace", "--gradients-at", "blocks.*.hook_resid_pre", "--out", "OUT.safetensors", "M", "PROMPT"}},
    {"explain", "`explain`", {"explain", "--out", "OUT.html", "--json", "M", "PROMPT"}},
    {"circuits", "`circuits --compositions 3`", {"circuits", "--compositions", "3", "M", "PROMPT"}},
    {"attribute", "`attribute`", {"attribute", "M", "PROMPT"}},
    {"parts",
     "`intervene` on heads, MLPs, attention, layers",
     {"intervene", "RECIPE"},
     interventions(
         "{head: '*.0', do: zero}, {mlp: '1', do: mean}, {attn: '0', do: resample, from: corrupt}, {layer: '0', do: identity}")},
    {"stream",
     "`intervene` on the stream between attention and MLP",
     {"intervene", "RECIPE"},
     interventions("{hook: blocks.1.hook_resid_mid, do: scale, by: 0.5}")},
    {"units",
     "`intervene` on hidden units",
     {"intervene", "RECIPE"},
     interventions("{hook: blocks.1.mlp.hook_post, do: zero, positions: -1}")},
    {"pattern",
     "`intervene` on attention patterns",
     {"intervene", "RECIPE"},
     interventions("{hook: blocks.*.attn.hook_pattern, do: resample, from: corrupt}")},
    {"norm", "`intervene` on a norm", {"intervene", "RECIPE"}, interventions("{norm: ['blocks.0.*'], do: unit_scale}")},
    {"router",
     "`intervene` on a router",
     {"intervene", "RECIPE"},
     interventions("{hook: blocks.1.mlp.hook_router_logits, do: zero}")},
    {"collect",
     "`collect`",
     {"collect", "--data", "DATA", "--hooks", "resid_post.0", "--context", "8", "--max-tokens", "64", "--out", "OUT", "M"}},
    {"train", "`train`, all weights", {"train", "RECIPE"}, learning("")},
    {"LoRA", "`train`, an adapter of all matrices", {"train", "RECIPE"}, learning("lora: {rank: 2, targets: all-linear}\n")},
    {"merge",
     "`merge` (linear)",
     {"merge", "RECIPE", "OUT"},
     "merge_method: linear\nmodels: [{model: MODEL, parameters: {weight: 1}}]\n"},
    {"to GGUF", "`convert` to GGUF", {"convert", "MODEL", "OUT.gguf", "--dtype", "f32"}},
    {"to directory", "`convert` to a directory", {"convert", "MODEL", "OUT", "--dtype", "f32"}},
    {"info", "`info --hooks`", {"info", "--hooks", "--model", "MODEL"}},
};

// Those that take --model take --adapter, too.
bool takes_adapter(const Command& command) {
  return std::find(command.line.begin(), command.line.end(), "M") != command.line.end() && command.name != "info";
}

// Whether layer 1, on which the command is tried, has experts.
bool has_router(const std::string& family) {
  ModelFiles files = resolve_model(model_of(family));
  const std::unique_ptr<Model> model = model_from_config(files);
  return model->record().hook("blocks.1.mlp.hook_router_logits") != nullptr;
}

class EveryFamily : public testing::TestWithParam<std::string> {
 protected:
  const std::string family = GetParam();
  const Scratch scratch;
  int made = 0;

  // Token data of 42 ids, by the model's tokenizer where it has one.
  std::string data() {
    const std::string path = scratch / "data";
    if (std::filesystem::exists(path)) return path + "/train";
    std::string text;
    for (int i = 0; i < 20; ++i) text += "abcdefghijklmnopqrstuvwxyz0123456789\n";
    const std::string model = model_of(family);
    const bool has_tokenizer =
        std::filesystem::exists(model + "/tokenizer.json") || std::filesystem::exists(model + "/vocab.json");
    const Outcome outcome =
        vitrine({"data", scratch.write("text.txt", text), "--tokenizer", has_tokenizer ? model : "characters", "--out", path});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return path + "/train";
  }

  static std::string replaced(std::string text, const std::string& word, const std::string& by) {
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + by.size())) text.replace(at, word.size(), by);
    return text;
  }

  Line line_of(const Command& command, const std::string& model, const std::string& adapter) {
    const std::string out = scratch / ("out" + std::to_string(++made));
    const auto fill = [&](const std::string& text) {
      return replaced(replaced(replaced(text, "MODEL", model), "OUT", out), "DATA", text.find("DATA") == text.npos ? "" : data());
    };
    Line line;
    for (const std::string& word : command.line) {
      if (word == "M") {
        line.insert(line.end(), {"--model", model, "--threads", "2"});
        if (!adapter.empty()) line.insert(line.end(), {"--adapter", adapter});
      } else if (word == "PROMPT") {
        line.insert(line.end(), {"--tokens", "5,3,7,9,2,11,5,3"});
      } else {
        line.push_back(word == "RECIPE" ? scratch.write("recipe" + std::to_string(made) + ".yaml", fill(command.recipe))
                                        : fill(word));
      }
    }
    return line;
  }

  // Done with code 0 and no NaN among the numbers, or a refusal of the list.
  Outcome expect_done(const Command& command, const std::string& model, const std::string& adapter = "") {
    const Outcome outcome = vitrine(line_of(command, model, adapter));
    const Refusal* refusal = refusal_of(family, command.name);
    if (refusal == nullptr && model.ends_with(".gguf")) refusal = refusal_of(family, command.name + kFromGguf);
    EXPECT_EQ(outcome.code, refusal == nullptr ? 0 : 2) << command.name << ": " << outcome.err;
    if (refusal != nullptr) {
      EXPECT_CONTAINS(outcome.err, refusal->says);
    }
    EXPECT_FALSE(std::regex_search(outcome.out, std::regex("(^|[\\s,:\\[])-?nan\\b"))) << command.name;
    return outcome;
  }

 public:
  static const Refusal* refusal_of(const std::string& family, const std::string& command) {
    const auto found = std::find_if(kRefusals.begin(), kRefusals.end(), [&](const Refusal& r) {
      return r.command == command && (r.family.empty() || r.family == family);
    });
    const bool meant = found != kRefusals.end() && (!found->family.empty() || !has_router(family));
    return meant ? &*found : nullptr;
  }
};

TEST_P(EveryFamily, RunsEveryCommand) {
  for (const Command& command : kCommands) expect_done(command, model_of(family));
}

TEST_P(EveryFamily, RunsEveryCommandFromGguf) {
  if (const Refusal* refusal = refusal_of(family, "to GGUF")) GTEST_SKIP() << refusal->why;
  const std::string file = scratch / "model.gguf";
  const Outcome converted = vitrine({"convert", model_of(family), file, "--dtype", "f32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  for (const Command& command : kCommands) expect_done(command, file);
}

TEST_P(EveryFamily, RunsEveryCommandWithAnAdapter) {
  if (const Refusal* refusal = refusal_of(family, "LoRA")) GTEST_SKIP() << refusal->why;
  const auto named = [](const char* name) {
    return *std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& command) { return command.name == name; });
  };
  expect_done(named("LoRA"), model_of(family));
  const std::string adapter = scratch / ("out" + std::to_string(made) + "/last");
  ASSERT_TRUE(std::filesystem::exists(adapter));
  for (const Command& command : kCommands)
    if (takes_adapter(command)) expect_done(command, model_of(family), adapter);
}

TEST_P(EveryFamily, IsTheSameAsItself) {
  const Outcome same = vitrine({"compare", model_of(family), model_of(family), "--tokens", "5,3,7,9,2", "--json"});
  EXPECT_EQ(same.code, 0) << same.err;
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryFamily, testing::ValuesIn(families()), [](const auto& test) { return test.param; });

// The page ------------------------------------------------------------------------------------------------------------

// A family's title, and the golden model's name where several have one.
std::string title_of(const std::string& name) {
  const auto title = [](const std::string& model) {
    const Json config = read_json(model_of(model) + "/config.json");
    return std::string(family_of(config.contains("text_config") ? config.at("text_config") : config)->title);
  };
  const std::string own = title(name);
  const std::vector<std::string> all = families();
  const bool several = std::count_if(all.begin(), all.end(), [&](const std::string& other) { return title(other) == own; }) > 1;
  return several ? own + " (" + name + ")" : own;
}

std::string page() {
  std::vector<std::string> reasons;
  const auto letter = [&](const std::string& why) {
    const auto found = std::find(reasons.begin(), reasons.end(), why);
    const auto at = found - reasons.begin();
    if (found == reasons.end()) reasons.push_back(why);
    return std::string(1, static_cast<char>('a' + at));
  };
  std::string head = "| family |", rule = "| --- |", rows;
  for (const Command& command : kCommands) head += " " + command.name + " |", rule += " --- |";
  for (const std::string& family : families()) {
    rows += "| " + title_of(family) + " |";
    for (const Command& command : kCommands) {
      const Refusal* refusal = EveryFamily::refusal_of(family, command.name);
      if (refusal == nullptr) refusal = EveryFamily::refusal_of(family, command.name + kFromGguf);
      rows += " " + (refusal == nullptr ? "✓" : letter(refusal->why)) + " |";
    }
    rows += "\n";
  }
  std::string text =
      "# What works with which family\n\nEach command on each family, from a Hugging Face directory, from the same model as a "
      "GGUF file, "
      "and with a LoRA adapter where the command takes one. A ✓ is done in all of these forms that the family has (no GGUF "
      "file where the column `to GGUF` has a letter); a letter says why not. "
      "`tests/app/cli/family_matrix_test.cpp` runs every cell on small models, and this page is printed from its list. Families "
      "are "
      "described in [models.md](models.md).\n\n" +
      head + "\n" + rule + "\n" + rows + "\n";
  for (size_t i = 0; i < reasons.size(); ++i) text += std::string(1, static_cast<char>('a' + i)) + ": " + reasons[i] + "  \n";
  text += "\n| column | command | with an adapter |\n| --- | --- | --- |\n";
  for (const Command& command : kCommands)
    text += "| " + command.name + " | " + command.what + " | " + (takes_adapter(command) ? "yes" : "no") + " |\n";
  return text;
}

TEST(FamilyMatrix, ThePageIsWhatTheTestsRun) {
  const std::string path = std::string(VITRINE_SOURCE) + "/docs/family-matrix.md", written = page();
  if (std::getenv("VITRINE_WRITE_DOCS") != nullptr) std::ofstream(path) << written;
  EXPECT_EQ(written, read_file(path)) << "run this test with VITRINE_WRITE_DOCS=1";
}

}  // namespace
}  // namespace vitrine
