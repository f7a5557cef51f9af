// What is wrong with the input or the flags exits with 2 and says what to do; what goes wrong in a run exits with 1.
#include <algorithm>
#include <fstream>

#include "base/utf8.h"
#include "cli/program.h"

namespace vitrine {
namespace {

TEST(ExitCode, FlagsThatAreWrong) {
  expect_refused({}, {"name a command"});
  expect_refused({"prophesy"}, {"prophesy", "--help"});
  expect_refused({"predct", "a"}, {"predct is no command; did you mean predict?"});
  expect_refused({"predict", "a", "--topp", "3"}, {"--topp is no option", "did you mean --top", "vitrine predict --help"});
  expect_refused({"predict", "--thread=2", "a"}, {"--thread=2 is no option", "did you mean --threads?"});
  expect_refused({"predict", "once", "upon"}, {"\"upon\" was not expected", "quotes"});
  expect_refused({"predict", "a", "--top"}, {"--top"});
  expect_refused({"predict", "a", "--top", "many"}, {"--top", "\"many\" is no whole number"});
  expect_refused({"predict", "a", "--top", "99999999999999999999"}, {"--top", "99999999999999999999 is not between 1 and "});
  expect_refused({"predict", "a", "--top", "99999999999999999999x"}, {"--top", "is no whole number"});
  expect_refused({"predict", "a", "--top", "0"}, {"--top", "0 is not between 1"});
  expect_refused({"predict", "a", "--threads", "-1"}, {"--threads", "-1 is not between 1"});
  expect_refused({"predict", "a", "--compute", "f64"}, {"\"f64\" is none of auto|f32"});
  expect_refused({"predict"}, {"no prompt", "--tokens"});
  expect_refused({"predict", "a", "--tokens", "2"}, {"more than one prompt: give a text, --tokens or --jsonl."});
  expect_refused({"predict", "a", "b"}, {"b"});
  expect_refused({"trace", "a", "--hooks", "hook_embed"}, {"--out is required"});
  expect_refused({"trace", "a", "--out", "/tmp/x"}, {"nothing to trace"});
  expect_refused({"trace", "a", "--hooks", "hook_embed", "--out", "/dev/null"}, {"/dev/null: is not a regular file"});
  expect_refused({"verify"}, {"--reference is required"});
}

// Words that other programs' users type first; and no guess where no name is near.
TEST(ExitCode, CommandsOfOtherPrograms) {
  expect_refused({"run", "gemma3"}, {"run is no command; here it is `vitrine chat`, or `vitrine generate`"});
  expect_refused({"list"}, {"list is no command; models are files and folders; `vitrine info --model PATH` shows one."});
  expect_refused({"ps"}, {"/slots and /metrics"});
  expect_refused({"llama-cli", "-m", "x.gguf"}, {"llama-cli is no command; here it is `vitrine chat`"});
  expect_refused({"quantize"}, {"`vitrine convert`"});
  expect_refused({"help"}, {"`vitrine --help`"});
  expect_refused({"sevre"}, {"sevre is no command; did you mean serve?"});
  const Outcome far = vitrine({"prophesy"});
  EXPECT_EQ(far.err.find("did you mean"), std::string::npos) << far.err;
}

// The overview has every command once, in groups by what one wants.
TEST(ExitCode, TheOverviewIsGrouped) {
  const std::string help = vitrine({"--help"}).out;
  size_t before = 0;
  for (const char* title :
       {"\nRun a model:", "\nInspect and evaluate", "\nChange a model:", "\nTrain:", "\nFiles and the program"}) {
    const size_t at = help.find(title);
    ASSERT_NE(at, std::string::npos) << title << "\n" << help;
    EXPECT_GT(at, before);
    before = at;
  }
  const std::string manual = vitrine({"manual", "--format", "markdown"}).out;
  for (size_t at = manual.find("\n## vitrine "); at != std::string::npos; at = manual.find("\n## vitrine ", at + 1)) {
    const size_t begin = at + 12;
    const std::string name = manual.substr(begin, manual.find_first_of(" \n", begin) - begin);
    EXPECT_NE(help.find("\n  " + name + " "), std::string::npos) << name;
  }
}

// An empty --out, as an unset variable of a script gives it, is no name, and not the same as none.
TEST(ExitCode, EmptyNamesOfFiles) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yaml", "prompt: a\ninterventions: [{mlp: 0, do: zero}]\n");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"trace", "a", "--hooks", "hook_embed"}, {"intervene", recipe}, {"picture", "attention", "a"}, {"explain", "a"}}) {
    std::vector<std::string> line = command;
    line.insert(line.end(), {"--out", ""});
    expect_refused(line, {"--out", "is empty"});
  }
  expect_refused({"trace", "a", "--gradients", "--labels", "", "--out", scratch / "t"}, {"--labels", "is empty"});
}

TEST(ExitCode, FlagsOfGeneration) {
  expect_refused({"generate", "a", "--temperature", "-1"}, {"--temperature", "-1 is not between 0"});
  expect_refused({"generate", "a", "--temperature", "nan"}, {"--temperature", "no finite number"});
  expect_refused({"generate", "a", "--top-p", "1.5"}, {"--top-p", "1.5 is not between 0 and 1"});
  expect_refused({"generate", "a", "--beams", "2", "--top-k", "5"}, {"--top-k", "--beams"});
  expect_refused({"generate", "a", "--beams", "2", "--return", "3"}, {"3 hypotheses cannot come from 2 beams"});
  expect_refused({"generate", "a", "--length-penalty", "2"}, {"--length-penalty needs --beams"});
  expect_refused({"generate", "a", "--early-stopping=perhaps", "--beams", "2"}, {"perhaps"});
  expect_refused({"generate", "a", "--logit-bias", "5"}, {"--logit-bias", "ID=X"});
  expect_refused({"generate", "a", "--logit-bias", "99999=1"}, {"99999"});
  expect_refused({"generate", "a", "--samplers", "top_k,luck"}, {"luck"});
  expect_refused({"generate", "a", "--eos", "6144"}, {"--eos", "6144"});
  expect_refused({"generate", "a", "--eos", "1", "--ignore-eos"}, {"contradict"});
  expect_refused({"generate", "a", "--stop", ""}, {"stop"});
}

// A message quotes what was given; bytes that are no text, or that would steer the terminal, come out as words.
TEST(ExitCode, MessagesAreText) {
  const Scratch scratch;
  const std::string out = scratch / "t.safetensors";
  expect_refused({"trace", "a", "--hooks", "\xff\x1bM", "--out", out}, {"fits \"\\xff\\x1bM\""});
  expect_refused({"predict", "a", "--top", "\xff"}, {"--top: \"\\xff\" is no whole number"});
  expect_refused({"predict", "a", "--t\xff"}, {"--t\\xff is no option"});
  expect_refused({"pre\xff"}, {"pre\\xff"});
  expect_refused({"predict", "a", "--model", "no\xffsuch"}, {"no\\xffsuch"});
  expect_refused({"intervene", "no/\x1b[31m\xff.yaml"}, {"no/\\x1b[31m\\xff.yaml"});
  expect_refused({"intervene", scratch.write("r.yaml", "\"a\\e[2J\\u202e\": 1\n")}, {"\"a\\x1b[2J\\u{202e}\" is not known"});
  const Outcome written = vitrine({"trace", "a", "--hooks", "hook_embed", "--out", scratch / "\xff.safetensors"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_TRUE(is_valid_utf8(written.err)) << written.err;
}

// Options that people know from llama.cpp's programs.
TEST(ExitCode, OptionsOfOtherPrograms) {
  expect_refused({"serve", "-c", "4096"}, {"-c is no option of this command; here it is --context."});
  expect_refused({"serve", "-ngl", "99"}, {"-ngl is no option", "runs on the CPU"});
  expect_refused({"attribute", "--lora", "a"}, {"here it is --adapter"});
  expect_refused({"serve", "--lora-scaled", "a:1"}, {"here it is --lora"});
  expect_refused({"serve", "--temp", "0.5"}, {"a field of each request"});
  expect_refused({"serve", "--metrics"}, {"always on"});
  expect_refused({"generate", "a", "--temp=0.5"}, {"here it is --temperature"});
  expect_refused({"serve", "-hf", "someone/something"}, {"-hf is no option", "vitrine pull"});
  expect_refused({"serve", "model.gguf"}, {"\"model.gguf\" was not expected; a model is given with --model"});
}

TEST(ExitCode, TokenIds) {
  expect_refused({"predict", "--tokens", ""}, {"--tokens"});
  expect_refused({"predict", "--tokens", "2,,5"}, {"--tokens", "an id is missing"});
  expect_refused({"predict", "--tokens", "2;"}, {"--tokens", "an id is missing"});
  expect_refused({"predict", "--tokens", "-1,2"}, {"--tokens", "-1 is negative"});
  expect_refused({"predict", "--tokens", "2,x"}, {"--tokens", "\"x\" is no token id"});
  expect_refused({"predict", "--tokens", "2,99999999999999999999"}, {"--tokens", "out of range"});
  expect_refused({"predict", "--tokens", "2,6144"}, {"6144", "vocabulary"});
  expect_refused({"detokenize", "6144"}, {"6144"});
  expect_refused({"detokenize", "-3"}, {"3"});
}

TEST(ExitCode, Prompts) {
  expect_refused({"predict", "caf\xe9"}, {"byte 3 (0xe9) is not UTF-8"});
  expect_refused({"generate", "\xff"}, {"byte 0 (0xff) is not UTF-8"});
  expect_refused({"tokenize", "a\xc3"}, {"byte 1 (0xc3) is not UTF-8"});
  // GPT-2 has no BOS by rule: an empty text is no token at all.
  expect_refused({"predict", "", "--model", golden_model("gpt2_a")}, {"the prompt has no token"});
  EXPECT_EQ(vitrine({"predict", ""}).code, 0);  // with a BOS there is something to predict from

  std::string long_prompt = "2";
  for (int i = 0; i < 1024; ++i) long_prompt += ",5";
  expect_refused({"predict", "--tokens", long_prompt}, {"1025 tokens", "1024"});
  expect_refused({"generate", "--tokens", long_prompt}, {"1025 tokens", "1024"});
}

TEST(ExitCode, FilesThatAreNotThere) {
  expect_refused({"predict", "a", "--model", "/nowhere/at/all"}, {"/nowhere/at/all"});
  expect_refused({"predict", "a", "--model", "nobody/nothing-2b"}, {"nobody/nothing-2b"});
  expect_refused({"predict", "--jsonl", "/nowhere.jsonl"}, {"/nowhere.jsonl"});
  expect_refused({"tokenize", "--file", "/nowhere.txt"}, {"/nowhere.txt"});
  expect_refused({"verify", "--reference", "/nowhere"}, {"/nowhere"});
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "empty");
  expect_refused({"predict", "a", "--model", scratch / "empty"}, {"config.json"});
}

TEST(ExitCode, JsonLines) {
  const Scratch scratch;
  expect_refused({"predict", "--jsonl", scratch.write("a.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n")},
                 {"a.jsonl line 2", "\"text\""});
  expect_refused({"predict", "--jsonl", scratch.write("b.jsonl", "{\"text\": \"a\n")}, {"b.jsonl line 1"});
  expect_refused({"predict", "--jsonl", scratch.write("c.jsonl", "\n\n")}, {"c.jsonl", "holds no line"});
  expect_refused({"predict", "--jsonl", scratch.write("d.jsonl", "{\"text\": \"caf\xe9\"}\n")}, {"d.jsonl line 1"});
}

TEST(ExitCode, DamagedModels) {
  {
    const Scratch scratch;
    const std::string model = copy_model(scratch, golden_model("gemma2"));
    std::filesystem::resize_file(model + "/model.safetensors", 5000);
    expect_refused({"predict", "--tokens", "2", "--model", model}, {"model.safetensors"});
  }
  {
    const Scratch scratch;
    const std::string model = copy_model(scratch, golden_model("gemma2"));
    Json config = read_json(model + "/config.json");
    config["intermediate_size"] = config["intermediate_size"].get<int>() + 8;
    scratch.write("model/config.json", config.dump());
    expect_refused({"predict", "--tokens", "2", "--model", model}, {"expected", "d_ff"});
  }
  {
    const Scratch scratch;
    const std::string model = copy_model(scratch, golden_model("gemma2"));
    Json config = read_json(model + "/config.json");
    config["architectures"] = {"OracleForCausalLM"};
    config["model_type"] = "oracle";
    scratch.write("model/config.json", config.dump());
    expect_refused({"predict", "--tokens", "2", "--model", model}, {"config.json", "oracle", "gemma2"});
    const Outcome info = vitrine({"info", "--model", model});  // says what the files hold, too
    EXPECT_EQ(info.code, 2);
    EXPECT_CONTAINS(info.err, "oracle");
  }
  {
    const Scratch scratch;
    const std::string model = copy_model(scratch, golden_model("gemma2"));
    Json config = read_json(model + "/config.json");
    config["num_attention_heads"] = -4;
    scratch.write("model/config.json", config.dump());
    expect_refused({"predict", "--tokens", "2", "--model", model}, {"num_attention_heads", "-4"});
  }
  {
    const Scratch scratch;
    const std::string model = copy_model(scratch, golden_model("gpt2_a"));
    Json tokenizer = read_json(model + "/tokenizer.json");
    tokenizer["pre_tokenizer"] = {{"type", "Runes"}};
    scratch.write("model/tokenizer.json", tokenizer.dump());
    expect_refused({"predict", "a", "--model", model}, {"tokenizer.json", "Runes"});
    expect_refused({"tokenize", "a", "--model", model}, {"tokenizer.json", "Runes"});
  }
}

/// A value of the tensor `name` of a safetensors file becomes NaN.
void poison(const std::string& path, const std::string& name) {
  std::string content = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, content.data(), 8);
  const Json names = parse_json(content.substr(8, header), path);
  const Json& tensor = names.at(name);
  ASSERT_EQ(tensor.at("dtype"), "F32");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(content.data() + 8 + header + tensor.at("data_offsets")[0].get<size_t>(), &nan, sizeof nan);
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

TEST(ExitCode, NanInTheWeightsFailsTheRunAndIsNamed) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("gemma2"));
  poison(model + "/model.safetensors", "model.layers.1.mlp.down_proj.weight");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"predict", "--all-positions"},
                                                  {"predict"},
                                                  {"generate"},
                                                  {"circuits"},
                                                  {"attribute"},
                                                  {"units", "--layer", "1"},
                                                  {"compare", model}}) {
    std::vector<std::string> arguments = command;
    if (command[0] == "compare") {
      arguments.push_back(golden_model("gemma2"));
    } else {
      arguments.insert(arguments.end(), {"--model", model});
    }
    arguments.insert(arguments.end(), {"--tokens", "2,7,9"});
    const Outcome outcome = vitrine(arguments);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_CONTAINS(outcome.err, "NaN");
    EXPECT_CONTAINS(outcome.err, "blocks.1.");
  }
}

TEST(ExitCode, NoPictureIsDrawnOfNan) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("gemma2"));
  poison(model + "/model.safetensors", "model.layers.1.self_attn.q_proj.weight");
  for (const char* name : {"attention", "update-scale", "norm-statistics", "final-norm", "softmax", "soft-cap", "query-length",
                           "activation-curves", "residual-scale", "next-tokens"}) {
    const Outcome outcome = vitrine({"picture", name, "--model", model, "--tokens", "2,7,9", "--json"});
    EXPECT_EQ(outcome.code, 1) << name;
    EXPECT_EQ(outcome.out, "") << name;
    EXPECT_CONTAINS(outcome.err, "NaN or infinity appeared first in blocks.1.");
  }
}

TEST(ExitCode, NanInAnEmbeddingThatThePromptDoesNotUse) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("gemma2"));
  poison(model + "/model.safetensors", "model.embed_tokens.weight");  // token 0
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"circuits"}, {"picture", "embedding-neighbors", "--json"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--model", model, "--tokens", "2,7,9"});
    const Outcome outcome = vitrine(arguments);
    EXPECT_EQ(outcome.code, 1) << command[0];
    EXPECT_CONTAINS(outcome.err, "NaN or infinity");
  }
}

TEST(ExitCode, AnOutputThatTheRunReadsIsRefused) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("gemma2"));
  const std::string recipe = scratch.write("r.yaml", "prompt: {tokens: [2, 7]}\ninterventions: [{mlp: 0, do: zero}]\n");
  std::filesystem::create_symlink(model + "/config.json", scratch / "link.json");
  const auto refused = [&](std::vector<std::string> command, const std::string& out) {
    const std::string before = read_file(out);
    command.insert(command.end(), {"--model", model, "--out", out});
    expect_refused(command, {out, "would be lost"});
    EXPECT_EQ(read_file(out), before);
  };
  refused({"trace", "--tokens", "2,7", "--hooks", "hook_logits"}, model + "/model.safetensors");
  refused({"picture", "tokens", "--tokens", "2,7"}, scratch / "link.json");
  refused({"explain", "--tokens", "2,7"}, model + "/config.json");
  std::ofstream(model + "/added_tokens.json") << "{}";
  refused({"trace", "--tokens", "2,7", "--hooks", "hook_logits"}, model + "/added_tokens.json");
  refused({"intervene", recipe}, recipe);
  const std::string vectors = std::string(VITRINE_GOLDEN) + "/intervene/vectors.safetensors", vector = scratch / "v.safetensors";
  std::filesystem::copy_file(vectors, vector);
  const std::string reads_vector = scratch.write("v.yaml",
                                                 "prompt: {tokens: [2, 7]}\ninterventions:\n  - {mlp: 0, do: zero}\n"
                                                 "  - {hook: resid_pre.1, do: add, vector: {file: '" +
                                                     vector + "', tensor: gemma2}}\n");
  refused({"intervene", reads_vector}, vector);
}

TEST(ExitCode, KernelsThatDoNotExist) {
  const Outcome outcome = vitrine({"--version"}, {"VITRINE_TARGET=abacus"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "abacus");
  EXPECT_CONTAINS(outcome.err, "reference");
  EXPECT_EQ(vitrine({"predict", "a"}, {"VITRINE_TARGET=reference"}).code, 0);
}

TEST(ExitCode, AFileThatCannotBeWrittenIsWrongInput) {
  const Scratch scratch;
  const std::string nowhere = scratch / "no/such/folder/file.safetensors", page = scratch / "no/such/folder/walk.html",
                    svg = scratch / "no/such/folder/heads.svg", json = scratch / "no/such/folder/before.json";
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& path) {
    expect_refused(arguments, {"--out " + path + ": cannot be written: No such file or directory", "folder that exists"});
  };
  refused({"trace", "text", "--hooks", "hook_logits", "--out", nowhere}, nowhere);
  refused({"explain", "text", "--out", page}, page);
  refused({"picture", "tokens", "--out", svg}, svg);
  refused({"intervene", std::string(VITRINE_SOURCE) + "/examples/ablate-heads.yaml", "--out", json}, json);
  // A folder, and a file where a folder should be.
  expect_refused({"picture", "tokens", "--svg", "--out", scratch / ""}, {"is a directory; expected a file"});
  const std::string below = scratch.write("file", "text") + "/tokens.svg";
  expect_refused({"picture", "tokens", "--out", below}, {"--out " + below, "Not a directory"});
  // The look at the path leaves nothing behind, also when the run then fails, and an old file stays.
  const std::string old = scratch.write("old.json", "old");
  expect_refused({"picture", "softmax", "The king", "--position", "99", "--out", old}, {"position 99"});
  EXPECT_EQ(read_file(old), "old");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch / "")) ++files;
  EXPECT_EQ(files, 2u);
}

TEST(ExitCode, AResultThatIsLostFailsTheRun) {
  const Outcome outcome = vitrine({"predict", "a"}, {}, "/dev/full");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_CONTAINS(outcome.err, "standard output");
}

TEST(ExitCode, AMessageThatIsLostChangesNothing) {
  const auto silent = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full", VITRINE_PROGRAM});
    return run_program(std::move(arguments));
  };
  EXPECT_EQ(silent({"predict", "a", "--model", "nowhere"}).code, 2);
  const Scratch scratch;
  const std::string fables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";
  EXPECT_EQ(silent({"data", fables, "--out", scratch / "out"}).code, 0);
}

// As with ulimit -f: the message of a full disk, and nothing half-written is left.
TEST(ExitCode, AFileThatMayNotGrowFailsTheRun) {
  const Scratch scratch;
  const std::string fables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";
  const std::string yaml =
      scratch.write("train.yaml", "model: " + golden_model("gpt2_a") + "\ndata: {train: " + scratch / "data/train" +
                                      "}\nsequence_length: 8\nbatch: 1\nsteps: 1\n"
                                      "optimizer: {lr: 1e-3}\nout: " +
                                      scratch / "run" + "\n");
  ASSERT_EQ(vitrine({"data", fables, "--tokenizer", golden_model("gpt2_a"), "--out", scratch / "data"}).code, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"train", yaml},
      {"data", fables, "--tokenizer", golden_model("gpt2_a"), "--out", scratch / "made"},
      {"tokenizer", "train", fables, "--vocab-size", "2000", "--out", scratch / "made/deeper"},
      {"tokenizer", "train", fables, "--kind", "sentencepiece-bpe", "--vocab-size", "2000", "--out", scratch / "made/deeper"},
      {"convert", golden_model("gpt2_a"), scratch / "made"},
      {"convert", golden_model("gpt2_a"), scratch / "made.gguf"}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = vitrine_with_small_files(8, command);
    EXPECT_EQ(outcome.code, 1) << command[0] << outcome.err;
    EXPECT_CONTAINS(outcome.err, ": cannot be written at byte ");
    EXPECT_CONTAINS(outcome.err, ": File too large");
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch / ""))
      if (const std::string path = entry.path(); path.find("/data") == std::string::npos) left.push_back(entry.path().filename());
    std::sort(left.begin(), left.end());
    std::vector<std::string> expected = {"config.yaml", "metrics.jsonl", "run", "train.yaml"};
    if (command.back().ends_with(".gguf")) {  // it can go on where it stopped
      EXPECT_CONTAINS(outcome.err, ".converting-made.gguf");
      expected.insert(expected.begin(), {".converting-made.gguf", "bytes", "made-from"});
      std::sort(expected.begin(), expected.end());
    }
    EXPECT_EQ(left, expected) << command[0];
  }
}

}  // namespace
}  // namespace vitrine
