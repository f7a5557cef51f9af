// vitrine intervene: the shipped examples, the document, what the page offers, and what is refused.
#include <cmath>

#include "cli/program.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

const std::string kKings = "prompt: The king sat on\ncorrupt: The queen sat on\n";
const std::string kHis = "metric: {logit_difference: [' his', ' her']}\n";

/// The document of a recipe; fails the test if the command does.
Json document_of(const std::string& recipe, const std::vector<std::string>& more = {}) {
  const Scratch scratch;
  std::vector<std::string> line = {"intervene", scratch.write("r.yaml", recipe), "--json"};
  line.insert(line.end(), more.begin(), more.end());
  const Outcome outcome = vitrine(line);
  EXPECT_EQ(outcome.code, 0) << recipe << outcome.err;
  return outcome.code == 0 ? outcome.json() : Json();
}

/// The recipe exits with 2 and says all of `parts`, the file's name first.
void expect_recipe_refused(const std::string& recipe, std::vector<std::string> parts, const std::vector<std::string>& more = {}) {
  SCOPED_TRACE(recipe);
  const Scratch scratch;
  std::vector<std::string> line = {"intervene", scratch.write("r.yaml", recipe)};
  line.insert(line.end(), more.begin(), more.end());
  parts.emplace_back("r.yaml");
  expect_refused(line, parts);
}

TEST(InterveneCommand, EveryExampleRuns) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_SOURCE) + "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string path = entry.path().string();
    if (read_file(path).find("\nprompt:") == std::string::npos) continue;
    SCOPED_TRACE(path);
    const Outcome outcome = vitrine({"intervene", path, "--top", "3"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.find("nan"), std::string::npos) << outcome.out;
    ++recipes;
  }
  EXPECT_GE(recipes, 5);
}

TEST(InterveneCommand, TheDocumentOfAnAblation) {
  const Json d =
      document_of(kKings + kHis + "interventions: [{head: 6.3, do: zero}, {positions: [1, -1], do: mean}]\n", {"--top", "4"});
  EXPECT_EQ(d["prompt"]["text"], "The king sat on");
  EXPECT_EQ(d["prompt"]["pieces"].size(), d["prompt"]["tokens"].size());
  EXPECT_EQ(d["corrupt"]["pieces"][2], "▁queen");
  EXPECT_EQ(d["run"], "clean");
  ASSERT_EQ(d["interventions"].size(), 2u);
  EXPECT_EQ(d["interventions"][0]["hooks"], Json({"blocks.6.attn.hook_z[heads=3]"}));
  EXPECT_EQ(d["interventions"][1]["hooks"],
            Json({"blocks.0.hook_resid_pre[positions=1]", "blocks.0.hook_resid_pre[positions=4]"}));
  for (const char* side : {"before", "after"}) {
    ASSERT_EQ(d[side].size(), 1u);
    EXPECT_EQ(d[side][0]["position"], 4);
    ASSERT_EQ(d[side][0]["top"].size(), 4u);
    for (const Json& entry : d[side][0]["top"])
      EXPECT_NEAR(std::exp(entry["logprob"].get<double>()), entry["prob"].get<double>(), 1e-12);
  }
  // What is before is what `predict` says.
  const Json predicted = vitrine({"predict", "The king sat on", "--top", "4", "--json"}).json();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(d["before"][0]["top"][i]["token"], predicted["predictions"][0]["top"][i]["token"]);
    EXPECT_NEAR(d["before"][0]["top"][i]["logprob"].get<double>(), predicted["predictions"][0]["top"][i]["logprob"].get<double>(),
                1e-5);
  }
  EXPECT_GT(d["kl"][0].get<double>(), 0.01);
  const Json& metric = d["metric"];
  EXPECT_EQ(metric["name"], "logit_difference");
  EXPECT_EQ(metric["pieces"], Json({"▁his", "▁her"}));
  EXPECT_EQ(metric["before"], metric["clean"]);
  const double clean = metric["clean"].get<double>(), corrupt = metric["corrupt"].get<double>(),
               after = metric["after"].get<double>();
  EXPECT_NEAR(metric["after_normalized"].get<double>(), (after - corrupt) / (clean - corrupt), 1e-9);
  EXPECT_EQ(d["grid"], nullptr);

  const Json all = document_of(kKings + "interventions: [{mlp: 0, do: zero}]\n", {"--all-positions", "--top", "1"});
  EXPECT_EQ(all["after"].size(), 5u);
  EXPECT_EQ(all["kl"].size(), 5u);
  EXPECT_EQ(all["metric"], nullptr);
}

// The recipe that a result holds is the whole recipe; a cell's recipe makes that cell.
TEST(InterveneCommand, RecipesOfTheDocumentReproduceIt) {
  const Json d = document_of(kKings + kHis + "patch: {what: resid_pre, layers: [0, 7], positions: '2:'}\n");
  const Json& grid = d["grid"];
  EXPECT_EQ(grid["kind"], "patch");
  EXPECT_EQ(grid["rows"], Json({{"axis", "layer"}, {"labels", {0, 7}}}));
  EXPECT_EQ(grid["columns"], Json({{"axis", "position"}, {"labels", {"2", "3", "4"}}}));
  EXPECT_NEAR(grid["normalized"][0][0].get<double>(), 1, 1e-4);  // the only place where the prompts differ
  EXPECT_NEAR(grid["normalized"][0][2].get<double>(), 0, 1e-4);
  for (size_t row = 0; row < 2; ++row)
    for (size_t column = 0; column < 3; ++column) {
      const std::string cell =
          grid["recipe"]["head"].get<std::string>() + grid["recipe"]["cells"][row][column].get<std::string>();
      EXPECT_EQ(document_of(cell)["metric"]["after"], grid["values"][row][column]) << cell;
    }
  EXPECT_EQ(document_of(d["recipe"].get<std::string>())["grid"], grid);

  const Json paths = document_of(kKings + kHis + "path: {senders: {head: [6.3, 7.0], mlp: 7}, receivers: logits}\n")["grid"];
  EXPECT_EQ(paths["columns"]["labels"], Json({"head 0", "head 3", "mlp"}));
  EXPECT_EQ(paths["values"][0][0], nullptr);  // 6.0 is no sender
  EXPECT_EQ(paths["recipe"]["cells"][0][0], nullptr);
  const std::string cell = paths["recipe"]["head"].get<std::string>() + paths["recipe"]["cells"][0][1].get<std::string>();
  EXPECT_EQ(document_of(cell)["metric"]["after"], paths["values"][0][1]);
}

TEST(InterveneCommand, TheModelAndTheFileOfTheResult) {
  const Scratch scratch;
  const std::string body = "prompt: {tokens: [5, 33, 7]}\ninterventions: [{attn: '*', do: zero}]\n";
  const std::string recipe = scratch.write("r.yaml", "model: " + golden_model("llama") + "\n" + body),
                    out = scratch / "result.json";
  const Outcome outcome = vitrine({"intervene", recipe, "--out", out, "--top", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.out, "blocks.0.hook_attn_out, blocks.1.hook_attn_out");
  EXPECT_CONTAINS(outcome.out, "KL(before ‖ after)");
  EXPECT_TRUE(outcome.out.find(" takes the place of ") != std::string::npos ||
              outcome.out.find(" stays the most likely: ") != std::string::npos)
      << outcome.out;
  const Json document = parse_json(read_file(out), out);
  EXPECT_EQ(document["prompt"]["text"], nullptr);
  EXPECT_EQ(document["after"][0]["top"][0]["piece"], nullptr);
  EXPECT_CONTAINS(document["recipe"].get<std::string>(), "llama");
  // --model goes before the recipe's; quantized weights and any number of threads do.
  const std::string gguf = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
  const Json quantized = vitrine({"intervene", recipe, "--model", gguf, "--json"}).json();
  EXPECT_NE(quantized["kl"], document["kl"]);
  EXPECT_NEAR(quantized["kl"][0].get<double>(), document["kl"][0].get<double>(), 0.1 * document["kl"][0].get<double>());
  EXPECT_EQ(vitrine({"intervene", recipe, "--model", gguf, "--threads", "1", "--json"}).json(), quantized);
}

TEST(InterveneCommand, AGridForPeople) {
  const Scratch scratch;
  const Outcome outcome = vitrine({"intervene", scratch.write("r.yaml", kKings + kHis + "patch: resid_pre\n")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.out, "layer \\ position");
  EXPECT_CONTAINS(outcome.out, "2 ▁queen");
  EXPECT_CONTAINS(outcome.out, "This recipe makes the cell that changes most:\nprompt: \"The king sat on\"");
  EXPECT_EQ(outcome.out.find("-0.00"), std::string::npos);
  EXPECT_EQ(outcome.out.find("before"), std::string::npos);  // nothing is edited beside the grid
}

// The page writes recipes in web/src/recipes.ts; every kind of them runs.
TEST(InterveneCommand, TakesTheRecipesOfThePage) {
  const std::string source = read_file(std::string(VITRINE_SOURCE) + "/web/src/recipes.ts");
  for (const char* line :
       {R"(`model: ${quoted(model.name)}`)",
        R"(`prompt: ${plain ? quoted(prompt.text!) : `{tokens: [${prompt.ids.join(", ")}]}`}`)",
        R"(`metric: {${measure}, position: ${change.at ?? -1}}`)", "`logprob: ${change.token}`",
        "`logit_difference: [${change.token}, ${change.against}]`", R"("interventions:")", R"(`  - ${change.part}: ${)",
        "quoted(change.of)", R"(`    positions: ${change.position}`)", R"(`    do: ${change.does}`)",
        R"(does: "zero" | "identity";)", R"("head", "attn", "mlp", "layer" or "norm")"})
    EXPECT_CONTAINS(source, line);

  const std::string model = "model: \"" + shipped_model_folder() + "\"\n";
  const std::string text = "prompt: \"The \\\"king\\\" said\\n\\u00e9\"\n", ids = "prompt: {tokens: [2, 503, 1758]}\n";
  const std::string token = "metric: {logprob: 385, position: 2}\n", last = "metric: {logprob: 385, position: -1}\n",
                    against = "metric: {logit_difference: [385, 503], position: 2}\n";
  const auto change = [](const std::string& part, const std::string& of, const std::string& does,
                         const std::string& position = "") {
    return "interventions:\n  - " + part + ": " + (of.starts_with("[") ? of : "\"" + of + "\"") + "\n" +
           (position.empty() ? "" : "    positions: " + position + "\n") + "    do: " + does + "\n";
  };
  for (const std::string& recipe :
       {model + text + change("head", "3.1", "zero"), ids + change("head", "3.1", "zero", "1"),
        model + ids + token + change("head", "0.0", "zero", "0"), text + last + change("attn", "2", "zero"),
        ids + token + change("mlp", "5", "zero"), ids + against + change("head", "0.0", "zero"),
        ids + token + change("layer", "4", "zero"), ids + token + change("layer", "4", "identity"),
        ids + token + change("mlp", "5", "zero", "1"), ids + change("norm", "[\"blocks.0.*\", \"blocks.1.*\"]", "identity"),
        ids + change("norm", "blocks.0.ln1", "identity"), ids + change("norm", "blocks.3.ln1_post", "identity"),
        ids + change("norm", "blocks.3.ln2", "identity"), ids + change("norm", "blocks.7.ln2_post", "identity"),
        ids + change("norm", "ln_final", "identity")}) {
    const Json document = document_of(recipe);
    if (document.is_null()) continue;
    EXPECT_GT(document["kl"][0].get<double>(), 0) << recipe;
    EXPECT_EQ(document["metric"].is_null(), recipe.find("metric") == std::string::npos);
  }
  // Without any norm the shipped model's stream grows beyond f32: the recipe is understood, and the run says where.
  const Scratch scratch;
  const Outcome outcome = vitrine({"intervene", scratch.write("r.yaml", ids + change("norm", "*", "identity"))});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_CONTAINS(outcome.err, "NaN or infinity appeared first in blocks.");
  const Json small = document_of("model: " + golden_model("gemma2") + "\n" + "prompt: {tokens: [2, 50, 170]}\n" +
                                 change("norm", "*", "identity"));
  EXPECT_GT(small["kl"][0].get<double>(), 0);
}

TEST(InterveneCommand, RefusesRecipesThatAreWrong) {
  const std::string prompt = "prompt: The king\n", list = prompt + "interventions:\n";
  const auto one = [&](const std::string& entry) { return list + "  - " + entry + "\n"; };
  expect_recipe_refused("", {"is empty", "interventions"});
  expect_recipe_refused("[1, 2\n", {":"});
  expect_recipe_refused("interventions: [{mlp: 0, do: zero}]\n", {"prompt"});
  expect_recipe_refused(prompt, {"nothing is to be done"});
  // Keys and words: the nearest is named.
  expect_recipe_refused(prompt + "intervention: [{mlp: 0, do: zero}]\n", {":2", "intervention", "\"interventions\""});
  expect_recipe_refused(one("{mpl: 0, do: zero}"), {":3", "mpl", "\"mlp\""});
  expect_recipe_refused(one("{mlp: 0, do: zeros}"), {":3", "zeros", "\"zero\"", "resample"});
  expect_recipe_refused(one("{mlp: 0, do: zero, times: 2}"), {"times"});
  expect_recipe_refused(one("{mlp: 0, head: 1.1, do: zero}"), {"both"});
  expect_recipe_refused(one("{do: zero}"), {"names no part of the model"});
  expect_recipe_refused(one("{mlp: 0}"), {"do"});
  expect_recipe_refused(one("{mlp: 0, do: no_weight}"), {"only a norm"});
  expect_recipe_refused(prompt + "ablate: resid_prr\nmetric: loss\n", {":2", "\"resid_pre\""});
  expect_recipe_refused(prompt + "ablate: z\n", {"a grid needs \"metric\""});
  expect_recipe_refused(prompt + "patch: z\nmetric: loss\n", {"expected \"corrupt\""});
  expect_recipe_refused(kKings + "metric: loss\npatch: z\nablate: z\n", {"a grid of its own"});
  expect_recipe_refused(kKings + "metric: loss\npath: {senders: {}, receivers: logits}\n",
                        {"senders", "expected a head or an mlp"});
  expect_recipe_refused(kKings + "metric: loss\npath: {senders: {head: 0.0}, receivers: {head: 1.0, inputs: o}}\n",
                        {"q, k or v"});
  expect_recipe_refused(kKings + "metric: loss\npath: {senders: {head: 3.0}, receivers: {head: 2.1, inputs: q}}\n",
                        {":4", "no receiver comes after a sender"});
  expect_recipe_refused("prompt: [[[[\n", {":1: is not valid YAML at column 12: the list that begins there"});
  expect_recipe_refused("prompt: \"a\xff\"\ninterventions: [{mlp: 0, do: zero}]\n", {":1", "UTF-8"});
}

// To YAML `-3:` in a flow list, or behind a dash, is the object {"-3": null}.
TEST(InterveneCommand, TakesOpenRangesWithoutQuotes) {
  const std::string prompt = "prompt: The king sat on\n", entry = prompt + "interventions:\n  - ";
  const auto same = [](const std::string& plain, const std::string& quoted) {
    const Json found = document_of(plain), expected = document_of(quoted);
    if (found.is_null() || expected.is_null()) return;
    EXPECT_EQ(found["interventions"], expected["interventions"]) << plain;
    EXPECT_EQ(found["kl"], expected["kl"]) << plain;
  };
  same(entry + "{mlp: 1, positions: [1, -3:], do: zero}\n", entry + "{mlp: 1, positions: ['1', '-3:'], do: zero}\n");
  same(entry + "mlp: 1\n    positions: [3:, ]\n    do: zero\n", entry + "{mlp: 1, positions: '3:', do: zero}\n");
  same(entry + "mlp: 1\n    positions:\n      - 0\n      - -2:\n    do: zero\n",
       entry + "{mlp: 1, positions: ['0', '-2:'], do: zero}\n");
  same(entry + "{mlp: [0, 6:], positions: {2:}, do: zero}\n", entry + "{mlp: ['0', '6:'], positions: '2:', do: zero}\n");
  const std::string grid = prompt + "metric: loss\nablate: {what: resid_pre, ";
  EXPECT_EQ(document_of(grid + "layers: [0, -2:], positions: [3:]}\n")["grid"]["values"],
            document_of(grid + "layers: ['0', '-2:'], positions: ['3:']}\n")["grid"]["values"]);

  const char* const range = "such as 2:4 or -3:";
  expect_recipe_refused(entry + "{mlp: 1, positions: [1: 3], do: zero}\n",
                        {":3", "\"interventions[0].positions[0]\" is an object of 1 key;", range});
  expect_recipe_refused(entry + "{mlp: 1, positions: [a:], do: zero}\n", {":3", "positions[0]", range});
  expect_recipe_refused(entry + "{mlp: 1, positions: [{1:, 2:}], do: zero}\n", {":3", "an object of 2 keys;", range});
  expect_recipe_refused(entry + "{mlp: 1, positions: [-9999999999999999999:], do: zero}\n", {":3", "positions[0]", range});
}

TEST(InterveneCommand, RefusesWhatTheModelLacks) {
  const std::string list = "prompt: The king\ninterventions:\n";
  const auto one = [&](const std::string& entry) { return list + "  - " + entry + "\n"; };
  expect_recipe_refused(one("{hook: blocks.1.hook_resid_pree, do: zero}"),
                        {":3", "blocks.1.hook_resid_pree", "blocks.1.hook_resid_pre"});
  expect_recipe_refused(one("{hook: 'blocks.*.attn.hook_soul', do: zero}"), {":3", "blocks.*.attn.hook_soul"});
  expect_recipe_refused(one("{norm: 'blocks.*.ln9', do: identity}"), {":3", "blocks.*.ln9"});
  expect_recipe_refused(one("{head: 8.0, do: zero}"), {":3", "\"8\" is not there", "8 layers, 0 to 7"});
  expect_recipe_refused(one("{head: 3, do: zero}"), {"LAYER.HEAD"});
  expect_recipe_refused(one("{mlp: '9:', do: zero}"), {"selects nothing", "8 layers"});
  expect_recipe_refused(one("{mlp: 0, positions: 7, do: zero}"), {":3", "7"});
  expect_recipe_refused(one("{mlp: 0, positions: '', do: zero}"), {":3", "\"\" is neither a position nor a range of positions"});
  expect_recipe_refused(one("{hook: q.0, positions: '1,heads=0', do: zero}"), {":3", "\"1,heads=0\" is neither a position nor"});
  expect_recipe_refused(one("{mlp: '1,heads=0', do: zero}"), {":3", "\"1,heads=0\" is neither an index, a range"});
  expect_recipe_refused(one("{mlp: 0, do: zero}") + "metric: {logprob: ' king', position: 3}\n",
                        {":4", "position 3", "3 tokens"});
  expect_recipe_refused(one("{mlp: 0, do: zero}") + "metric: {logprob: Rumpelstiltskin}\n",
                        {":4", "Rumpelstiltskin", "expected one"});
  expect_recipe_refused(one("{mlp: 0, do: zero}") + "metric: {logprob: 6144}\n", {":4", "6144"});
  expect_recipe_refused("prompt: {tokens: [2, 6144]}\ninterventions: [{mlp: 0, do: zero}]\n", {":1", "6144"});
  const Scratch scratch;
  expect_refused({"intervene", scratch.write("r.yaml", one("{mlp: 0, do: zero}")), "--model", "no/such/model"},
                 {"no/such/model"});
  expect_refused({"intervene", "no/such/recipe.yaml"}, {"no/such/recipe.yaml"});
  expect_refused({"intervene"}, {"RECIPE"});
}

TEST(InterveneCommand, RefusesVectorsOfAnotherShape) {
  const std::string list = "prompt: The king\ninterventions:\n";
  const auto one = [&](const std::string& entry) { return list + "  - " + entry + "\n"; };
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: [1, 2, 3]}"),
                        {":3", "[3]", "blocks.2.hook_resid_pre", "[256]"});
  expect_recipe_refused(one("{head: 2.1, do: set, vector: [[1, 2], [3, 4]]}"), {":3", "[2, 2]", "[64]", "[3, 1, 64]"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: [[1, 2], [3]]}"), {":3", "2 entries"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: [1, two]}"), {":3", "two", "number"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add}"), {":3", "vector"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: 1e300}"), {":3", "1e300", "f32"});
  const Scratch scratch;
  const std::string file = scratch / "v.safetensors";
  ASSERT_EQ(vitrine({"trace", "The king", "--hooks", "blocks.0.attn.hook_z", "--out", file}).code, 0);
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: {file: " + file + ", tensor: blocks.0.attn.hook_z}}"),
                        {":3", "[3, 4, 64]", "[256]"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: {file: " + file + ", tensor: steering}}"),
                        {":3", "v.safetensors", "\"steering\"", "blocks.0.attn.hook_z"});
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: {file: no/such.safetensors, tensor: a}}"),
                        {":3", "no/such.safetensors"});
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )";
  const std::string nan = scratch.write("nan.safetensors", std::string{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0} +
                                                               header + std::string("\0\0\xc0\x7f", 4));
  expect_recipe_refused(one("{hook: resid_pre.2, do: add, vector: {file: " + nan + ", tensor: a}}"),
                        {":3", "\"a\" holds nan", "number 0"});
}

TEST(InterveneCommand, NamesThePlaceOnce) {
  const std::string list = "prompt: The king\ninterventions:\n";
  const auto place_once = [](const std::string& recipe, const std::string& place) {
    const Scratch scratch;
    const std::string file = scratch.write("r.yaml", recipe);
    const Outcome outcome = vitrine({"intervene", file});
    EXPECT_EQ(outcome.code, 2) << recipe;
    EXPECT_CONTAINS(outcome.err, "vitrine intervene: " + file + place + ": ");
    EXPECT_EQ(outcome.err.find(file), outcome.err.rfind(file)) << outcome.err;
  };
  place_once(list + "  - {mlp: 1, do: set, vector: {file: no/such.safetensors, tensor: a}}\n", ":3: \"interventions[0].vector\"");
  place_once(list + "  - mlp: 1\n    do: set\n    vector:\n      {file: no/such.safetensors, tensor: a}\n",
             ":6: \"interventions[0].vector\"");
  place_once(list + "  - {mlp: 1, do: set, vector: {plus: The king, position: 9}}\n", ":3: \"interventions[0].vector\"");
  place_once(list + "  - {mlp: 1, do: set, vector: {plus: {tokens: [6144]}}}\n", ":3: \"interventions[0].vector.plus\"");
  place_once(list + "  - {mlp: 1, do: mean, over: [a king,\n     {tokens: [6144]}]}\n", ":4: \"interventions[0].over[1]\"");
  place_once(list + "  - {mlp: 1, do: set, vector: [1, 2]}\n", ":3: \"interventions[0]\"");
  place_once(list + "  - {mlp: 99, do: zero}\n", ":3: \"interventions[0]\"");
}

// JSON knows no words without quotes.
TEST(InterveneCommand, TakesARunByItsNameInQuotesToo) {
  const auto kl = [](const std::string& from) {
    return document_of(kKings + "run: clean\ninterventions: [{mlp: 0, do: resample, \"from\": " + from + "}]\n").at("kl");
  };
  EXPECT_EQ(kl("\"corrupt\""), kl("corrupt"));
  const Scratch scratch;
  const Outcome outcome = vitrine({"intervene", scratch.write("r.yaml", kKings + "run: clean\ninterventions: "
                                                                                 "[{mlp: 0, do: resample, from: [corrupt]}]\n")});
  EXPECT_EQ(outcome.code, 2) << "a list holds prompts, and this one has fewer tokens";
}

TEST(InterveneCommand, RefusesPromptsOfOtherLengthsAndTooMuchMemory) {
  const std::string unequal = "prompt: The king\ncorrupt: The old queen\n";
  expect_recipe_refused(unequal + "metric: {kl: true}\npatch: resid_pre\n", {":4", "3 tokens", "4", "as many"});
  expect_recipe_refused(unequal + "metric: {kl: true}\npath: {senders: {head: 0.0}, receivers: logits}\n",
                        {":4", "3 tokens", "4"});
  expect_recipe_refused(unequal + "interventions: [{mlp: 0, do: resample, from: corrupt}]\n", {":3", "4 tokens", "3", "as many"});
  expect_recipe_refused(unequal + "metric: loss\ninterventions: [{mlp: 0, do: zero}]\n", {":3", "(3)", "4"});

  std::string ids = "2";
  for (int i = 0; i < 299; ++i) ids += ", " + std::to_string(300 + i);
  const std::string prompt = "prompt: {tokens: [" + ids + "]}\n";
  expect_recipe_refused(prompt + "interventions: [{hook: pattern.0, do: resample, from: clean}]\n",
                        {":2", "1407 KiB", "1024 KiB"}, {"--memory", "1"});
  expect_recipe_refused(
      prompt + "corrupt: {tokens: [" + ids + "]}\nmetric: loss\npath: {senders: {head: 0.0}, receivers: logits}\n",
      {":4", "4800 KiB", "1024 KiB"}, {"--memory", "1"});
}

TEST(InterveneCommand, NumbersThatRunAwayAreARunThatFailed) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yaml",
                                           "prompt: The king\ninterventions:\n"
                                           "  - {hook: blocks.2.ln1.hook_normalized, do: scale, by: 1e38}\n"
                                           "  - {hook: v.2, do: scale, by: 1e38}\n");
  const Outcome outcome = vitrine({"intervene", recipe});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_CONTAINS(outcome.err, "NaN or infinity appeared first in blocks.2.");
  EXPECT_CONTAINS(outcome.err, "of the edited run");
  EXPECT_CONTAINS(outcome.err, "on an earlier hook may be its cause");
  // A norm divides by its scale.
  const Outcome zero = vitrine(
      {"intervene", scratch.write("r.yaml", "prompt: The king\ninterventions:\n  - {hook: ln_final.hook_scale, do: zero}\n")});
  EXPECT_EQ(zero.code, 1) << zero.err;
  EXPECT_CONTAINS(zero.err, "NaN or infinity appeared first in ln_final.hook_normalized");
  EXPECT_CONTAINS(zero.err, "on an earlier hook may be its cause");
  EXPECT_CONTAINS(zero.err, "a division by a zero");
  const Outcome folder =
      vitrine({"intervene", scratch.write("r.yaml", "prompt: a\ninterventions: [{mlp: 0, do: zero}]\n"), "--out", scratch / ""});
  EXPECT_EQ(folder.code, 2);
  EXPECT_CONTAINS(folder.err, "is a directory");
}

}  // namespace
}  // namespace vitrine
