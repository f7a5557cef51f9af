// vitrine train as a shell runs it: kills, Ctrl-C, resuming, messages.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/thread_pool.h"
#include "cli/program.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

class TrainCommand : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
  }
  // A run of `steps` steps that saves after every one.
  std::string config(const std::string& out, int steps, const std::string& extra = "") {
    std::string text = small_config(scratch, scratch / out, extra);
    text.replace(text.find("steps: 12"), 9, "steps: " + std::to_string(steps));
    text.replace(text.find("{every: 3, keep: 2}"), 19, "{every: 1, keep: 2}");
    return scratch.write(out + ".yaml", text);
  }
  // Starts the program, and sends it the signal after that time, or when `ready` says so. Returns its status.
  template <class Ready>
  int signaled(const std::vector<std::string>& arguments, int signal, Ready&& ready) {
    std::vector<std::string> words = {VITRINE_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = scratch / "out", err = scratch / "err";
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, VITRINE_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    for (;;) {
      if (waitpid(child, &status, WNOHANG) == child) return status;
      if (ready()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, signal);
    waitpid(child, &status, 0);
    return status;
  }
  Scratch scratch;
};

// VITRINE_KILLS sets how many; each at another moment, of starting, stepping, validating, writing or removing checkpoints.
TEST_F(TrainCommand, KilledAtAnyMomentItGoesOnToTheSameBits) {
  const char* const wanted = std::getenv("VITRINE_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 5;
  const int steps = std::max(120, 8 * kills);  // so that runs seldom end before they are killed
  const Outcome whole = vitrine({"train", config("whole", steps), "--json"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.json().at("step"), steps);
  const std::string cut = config("cut", steps);
  int killed = 0;
  for (int i = 0; killed < kills && i < 3 * kills; ++i) {
    // From when the last checkpoint of the run before is passed, a random while.
    const auto begin = std::chrono::steady_clock::now();
    const auto wait = std::chrono::microseconds(5'000 + philox(std::random_device{}(), static_cast<uint64_t>(i), 0)[0] % 150'000);
    const int status =
        signaled({"train", cut, "--resume"}, SIGKILL, [&] { return std::chrono::steady_clock::now() - begin > wait; });
    if (WIFSIGNALED(status))
      ++killed;
    else
      ASSERT_EQ(WEXITSTATUS(status), 0) << read_file(scratch / "err");
  }
  RecordProperty("kills", killed);
  EXPECT_GE(killed, kills / 2);
  const Outcome rest = vitrine({"train", cut, "--resume", "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const std::string last = "/step-" + std::to_string(steps);
  EXPECT_EQ(weights_bytes(scratch / ("cut" + last)), weights_bytes(scratch / ("whole" + last)));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  EXPECT_EQ(names_under(scratch / "cut"), names_under(scratch / "whole"));
}

// The run's folder has what `extends` and --set made of the configuration, so nothing of it is needed again.
TEST_F(TrainCommand, TheRunsFolderResumesWithWhatWasSet) {
  const std::string base = config("run", 4, "ema: 0.5\n"), top = scratch.write("top.yaml", "extends: run.yaml\nema: null\n");
  const std::vector<std::string> settings = {"--set", "optimizer.lr=5e-3", "--set", "steps=8"};
  std::vector<std::string> words = {"train", top, "--json"};
  words.insert(words.end(), settings.begin(), settings.end());
  ASSERT_EQ(vitrine(words).code, 0);
  words = {"train", top, "--set", "out=" + scratch / "cut", "--set", "optimizer.lr=5e-3", "--set", "steps=1000000"};
  const int status = signaled(words, SIGINT, [&] { return std::filesystem::exists(scratch / "cut/step-2"); });
  ASSERT_EQ(WEXITSTATUS(status), 0) << read_file(scratch / "err");
  EXPECT_CONTAINS(read_file(scratch / "out"), "Go on with: vitrine train " + scratch / "cut" + " --resume");
  std::filesystem::remove(base);
  std::filesystem::remove(top);
  std::filesystem::rename(scratch / "run", scratch / "moved");
  const Outcome longer = vitrine({"train", scratch / "moved", "--resume", "--set", "steps=10", "--json"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_EQ(longer.json().at("step"), 10);
  EXPECT_EQ(longer.json().at("checkpoint"), scratch / "moved/step-10");
  EXPECT_FALSE(std::filesystem::exists(scratch / "moved/step-10/ema"));
  EXPECT_CONTAINS(read_file(scratch / "moved/config.yaml"), "steps: 10\n");
  EXPECT_CONTAINS(read_file(scratch / "moved/config.yaml"), "  lr: 5e-3\n");
}

TEST_F(TrainCommand, ASweepRunsComparesAndResumes) {
  const std::string base = config("sweep", 6);
  const std::string file =
      scratch.write("s.yaml", "runs: [{name: plain}, {ema: 0.5, steps: 4}]\nproduct: {optimizer.lr: [1e-3, 2e-3]}\n");
  const Outcome outcome = vitrine({"train", base, "--set", "batch=2", "--sweep", file, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> names = {"plain,optimizer.lr=1e-3", "plain,optimizer.lr=2e-3",
                                          "ema=0.5,steps=4,optimizer.lr=1e-3", "ema=0.5,steps=4,optimizer.lr=2e-3"};
  const Json runs = outcome.json().at("runs");
  ASSERT_EQ(runs.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string folder = scratch / "sweep/" + names[i];
    EXPECT_EQ(runs[i].at("name"), names[i]);
    EXPECT_EQ(runs[i].at("values").at("optimizer.lr"), i % 2 == 0 ? "1e-3" : "2e-3");
    const std::vector<Json> lines = metrics_of(folder);
    EXPECT_EQ(runs[i].at("last").at("val_loss"), lines.back().at("val_loss"));
    EXPECT_EQ(lines.back().at("step"), i < 2 ? 6 : 4);
    EXPECT_CONTAINS(read_file(folder + "/config.yaml"), "batch: 2\n");
    EXPECT_CONTAINS(read_file(scratch / "sweep/sweep.html"), names[i]);
  }
  const std::string csv = read_file(scratch / "sweep/sweep.csv");
  EXPECT_TRUE(csv.starts_with("name,optimizer.lr,ema,steps,best_val_loss,best_step,")) << csv;
  EXPECT_CONTAINS(csv, "\n\"ema=0.5,steps=4,optimizer.lr=2e-3\",2e-3,0.5,4,");

  // The last run is lost, and the third's end: the sweep goes on from what there is.
  const std::string third = scratch / "sweep/" + names[2], last = scratch / "sweep/" + names[3];
  const std::string before = weights_bytes(third + "/step-4");
  std::filesystem::remove_all(last);
  std::filesystem::remove_all(third + "/step-4");
  EXPECT_EQ(vitrine({"train", base, "--set", "batch=2", "--sweep", file}).code, 2);  // there are runs already
  const Outcome again = vitrine({"train", base, "--set", "batch=2", "--sweep", file, "--resume"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(weights_bytes(third + "/step-4"), before);
  EXPECT_TRUE(std::filesystem::exists(last + "/step-4"));
  EXPECT_CONTAINS(again.out, names[3]);
}

TEST_F(TrainCommand, ASweepRefusesValuesByTheirPlaceAndOutlivesARunThatFails) {
  const std::string base = config("sweep", 6);
  const auto refused = [&](const std::string& text) {
    const Outcome outcome = vitrine({"train", base, "--sweep", scratch.write("s.yaml", text)});
    EXPECT_EQ(outcome.code, 2) << text;
    return outcome.err;
  };
  const std::string file = scratch / "s.yaml";
  EXPECT_CONTAINS(refused("product: {optimizer.lr: [1e-3],\n  batch: [2, x]}\n"),
                  file + ":2: \"batch\" is \"x\"; expected a whole number");
  EXPECT_CONTAINS(refused("runs:\n- {optimizer.lrr: 1}\n"), file + ":2: \"optimizer.lrr\" is not known. Did you mean \"lr\"?");
  EXPECT_CONTAINS(refused("runs: [{seed: 1}, {seed: 1}]\n"), "two runs are called \"seed=1\"");
  EXPECT_CONTAINS(refused("runs: [{out: x}]\n"), "a sweep's runs have folders of their own");
  EXPECT_CONTAINS(refused("runs: [{name: a/b}]\n"), "expected the name of a folder");
  EXPECT_CONTAINS(refused("product: {seed: 1}\n"), "expected a list of values, such as [1e-3, 2e-3]");
  EXPECT_CONTAINS(refused("grid: {seed: [1]}\n"), "\"grid\" is not known");
  EXPECT_FALSE(std::filesystem::exists(scratch / "sweep"));
  const Outcome outcome =
      vitrine({"train", base, "--sweep", scratch.write("s.yaml", "product: {optimizer.lr: [1e30, 1e-3]}\n"), "--json"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_CONTAINS(outcome.err, "these runs of the sweep failed: optimizer.lr=1e30");
  EXPECT_TRUE(outcome.json().at("runs")[0].at("failed"));
  EXPECT_EQ(outcome.json().at("runs")[1].at("last").at("step"), 6);
}

TEST_F(TrainCommand, FindsALearningRateAndWritesTheCurve) {
  const std::string run = config("run", 4);
  const std::vector<std::string> search = {"train", run, "--find-lr", "--lr-from", "1e-6", "--lr-to", "10", "--lr-steps", "30"};
  std::vector<std::string> with_curve = search;
  with_curve.insert(with_curve.end(), {"--curve", scratch / "curve.csv", "--json"});
  const Outcome found = vitrine(with_curve);
  ASSERT_EQ(found.code, 0) << found.err;
  const Json json = found.json();
  const double suggestion = json.at("suggestion").get<double>();
  EXPECT_GT(suggestion, 1e-6);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  const std::string curve = read_file(scratch / "curve.csv");
  EXPECT_TRUE(curve.starts_with("lr,loss,smoothed\n1e-06,")) << curve;
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(curve, '\n')), json.at("curve").size() + 1);
  const Outcome text = vitrine(search);
  EXPECT_EQ(text.code, 0);
  EXPECT_CONTAINS(text.out, "the loss falls fastest at " + fmt::format("{:.2e}: --set optimizer.lr=", suggestion));
  EXPECT_CONTAINS(vitrine({"train", run, "--lr-steps", "30"}).err, "--find-lr");
  EXPECT_CONTAINS(vitrine({"train", run, "--find-lr", "--lr-from", "1"}).err, "expected a rate that rises");
}

TEST_F(TrainCommand, AClosedTerminalFinishesTheStepAndSaves) {
  const std::string file = config("run", 1'000'000);
  const int status = signaled({"train", file}, SIGHUP, [&] { return std::filesystem::exists(scratch / "run/step-2"); });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(scratch / "err");
  EXPECT_CONTAINS(read_file(scratch / "out"), "stopped after step ");
}

TEST_F(TrainCommand, OutlivesTheReaderOfItsMessages) {
  const std::string file = config("run", 40);
  const Outcome outcome = run_program({"/bin/sh", "-c", "{ \"$0\" train \"$1\"; echo $? > \"$2\"; } 2>&1 > /dev/null | head -n 1",
                                       VITRINE_PROGRAM, file, scratch / "code"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(read_file(scratch / "code"), "0\n");
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "run/last").string(), "step-40");
}

TEST_F(TrainCommand, CtrlCFinishesTheStepAndSaves) {
  const std::string file = config("run", 1'000'000);
  const int status = signaled({"train", file}, SIGINT, [&] { return std::filesystem::exists(scratch / "run/step-2"); });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(scratch / "err");
  const std::string out = read_file(scratch / "out");
  EXPECT_CONTAINS(out, "stopped after step ");
  EXPECT_CONTAINS(out, "Go on with: vitrine train " + file + " --resume");
  const std::string name = std::filesystem::read_symlink(scratch / "run/last").string();
  EXPECT_CONTAINS(out, name);
  EXPECT_EQ(metrics_of(scratch / "run").back().at("step"), std::stoi(name.substr(5)));
  EXPECT_CONTAINS(read_file(scratch / "err"), "\nstopping: finishing this step and saving\n");
}

TEST_F(TrainCommand, AStopInTheFirstValidationLeavesNothing) {
  small_data(scratch, "long", 60'000, 2);
  std::string text = read_file(config("run", 4));
  text.replace(text.find(scratch / "valid"), (scratch / "valid").size(), scratch / "long");
  const std::string file = scratch.write("run.yaml", text);
  const int status =
      signaled({"train", file}, SIGTERM, [&] { return read_file(scratch / "err").find("parameters: ") != std::string::npos; });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(scratch / "err");
  EXPECT_EQ(read_file(scratch / "out"),
            "stopped before step 1, so there is no checkpoint. Begin again with: vitrine train " + file + "\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

TEST_F(TrainCommand, SaysThatNoStepIsLeft) {
  ASSERT_EQ(vitrine({"train", config("run", 5)}).code, 0);
  for (const int steps : {5, 4}) {
    const Outcome again = vitrine({"train", config("run", steps), "--resume"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_CONTAINS(again.err, "no step is left: the run has done 5, and the configuration asks for " + std::to_string(steps));
    EXPECT_CONTAINS(again.out, "done: step 5, ");
  }
}

// A configuration that the run cannot go on with is refused, also where it asks for no step more.
TEST_F(TrainCommand, ChecksTheConfigurationBeforeItSaysThatNoStepIsLeft) {
  ASSERT_EQ(vitrine({"train", config("run", 5)}).code, 0);
  std::string text = read_file(config("run", 5));
  text.replace(text.find("seed: 5"), 7, "seed: 6");
  const Outcome again = vitrine({"train", scratch.write("other.yaml", text), "--resume"});
  EXPECT_EQ(again.code, 2);
  EXPECT_CONTAINS(again.err, "the run has seed 5, and the configuration now says 6");
  EXPECT_EQ(again.err.find("no step is left"), std::string::npos) << again.err;
}

TEST_F(TrainCommand, SaysThatThreadsAreMoreThanTheCores) {
  const std::string said = " threads on " + std::to_string(usable_cores()) + " core";
  const std::string many = std::to_string(2 * usable_cores() + 1);
  EXPECT_CONTAINS(vitrine({"train", config("many", 4, "threads: " + many + "\n")}).err, many + said);
  EXPECT_EQ(vitrine({"train", config("few", 4, "threads: 2\n")}).err.find(said), std::string::npos);
}

TEST_F(TrainCommand, TheCheckpointIsAModelForEveryCommand) {
  const Outcome run = vitrine({"train", config("run", 4)});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_CONTAINS(run.err, "parameters: ");
  EXPECT_CONTAINS(run.err, "step 4/4  loss ");
  EXPECT_CONTAINS(run.out, "done: step 4, ");
  const Outcome predicted = vitrine({"predict", "--model", scratch / "run/last", "--tokens", "3,6,12", "--json"});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  const Json config = read_json(scratch / "run/last/config.json");
  EXPECT_EQ(config.at("architectures"), Json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config.at("torch_dtype"), "float32");
  // Said, so that no program takes GPT-2's 50256 for it.
  EXPECT_TRUE(config.contains("eos_token_id") && config.at("eos_token_id").is_null()) << config;
}

TEST_F(TrainCommand, OneStepRaisesWhatShouldFollow) {
  const std::vector<std::string> words = {"train", "--one-step", "the fat cat sat on the", "--target", " mat"};
  std::vector<std::string> json = words;
  json.insert(json.end(), {"--json", "--top", "5"});
  const Outcome outcome = vitrine(json);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_LT(document.at("loss_after").get<double>(), document.at("loss_before").get<double>());
  EXPECT_GT(document.at("target").at(0).at("logprob_after").get<double>(),
            document.at("target").at(0).at("logprob_before").get<double>());
  EXPECT_EQ(document.at("before").size(), 5u);
  EXPECT_EQ(document.at("after").size(), 5u);
  EXPECT_EQ(document.at("layers").size(), 8u + 2u);  // blocks, W_E and the last norm
  const Outcome text = vitrine(words);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_CONTAINS(text.out, "-log p( mat | the fat cat sat on the)");
  EXPECT_CONTAINS(text.out, "blocks.7");
  std::vector<std::string> several = json;
  several.insert(several.end(), {"--steps", "3"});
  const Outcome run = vitrine(several);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json().at("losses").size(), 4u);
  EXPECT_EQ(run.json().at("losses").at(1), document.at("loss_after"));
  EXPECT_LT(run.json().at("loss_after").get<double>(), document.at("loss_after").get<double>());
  several = words;
  several.insert(several.end(), {"--steps", "3"});
  const Outcome lines = vitrine(several);
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_CONTAINS(lines.out, "3 steps of gradient descent on -log p( mat | the fat cat sat on the)");
  for (const char* steps : {"0", "201"})
    expect_refused({"train", "--one-step", "a", "--target", " b", "--steps", steps}, {"--steps", "is not between 1 and 200"});
  expect_refused({"train", "--one-step", "the fat cat"}, {"--one-step needs --target"});
  expect_refused({"train", "--one-step", "the fat cat sat on the", "--target", "n"}, {"--target \"n\" melts into the last word"});
}

// Such a tokenizer ends every text: the prompt goes on with the target, and EOS is not part of it.
TEST_F(TrainCommand, OneStepWithATokenizerThatAddsEos) {
  const auto step = [](const std::string& model) {
    const Outcome outcome = vitrine({"train", "--one-step", "the king", "--target", " was", "--json", "--model", model});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json() : Json();
  };
  std::filesystem::copy(shipped_model_folder(), scratch / "ending", std::filesystem::copy_options::recursive);
  const std::string path = scratch / "ending/tokenizer_config.json";
  Json config = read_json(path);
  config["add_eos_token"] = true;
  std::filesystem::remove(path);
  std::filesystem::remove(scratch / "ending/tokenizer.json");  // which has a rule of its own
  scratch.write("ending/tokenizer_config.json", config.dump());
  const Json tokens = vitrine({"tokenize", "the king", "--json", "--model", scratch / "ending"}).json().at("tokens");
  const Json document = step(scratch / "ending");
  EXPECT_EQ(document.at("tokens").size() + 1, tokens.size());
  EXPECT_EQ(document, step(shipped_model_folder()));
}

// It takes text alone, so ids are no way out.
TEST_F(TrainCommand, OneStepNeedsATokenizer) {
  const Outcome refused = vitrine({"train", "--one-step", "a", "--target", " b", "--model", golden_model("mistral")});
  EXPECT_EQ(refused.code, 2);
  EXPECT_CONTAINS(refused.err,
                  "/mistral/model has no tokenizer, and text needs one: put tokenizer.json, tokenizer.model or "
                  "vocab.json + merges.txt beside its weights\n");
  expect_refused({"predict", "a", "--model", golden_model("mistral")},
                 {"has no tokenizer, and text needs one", " beside its weights, or give token ids with --tokens\n"});
}

// Its matrices lie the other way round than in the directory that it was made of.
TEST_F(TrainCommand, OneStepFromGgufIsThatOfTheDirectory) {
  const auto step = [](const std::string& model) {
    const Outcome outcome = vitrine({"train", "--one-step", "once upon a", "--target", " time", "--json", "--model", model});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  EXPECT_EQ(step(std::string(VITRINE_GOLDEN) + "/gguf/gpt2_a.gguf"), step(golden_model("gpt2_a")));
}

// The gradient is that of the loss which is shown.
TEST_F(TrainCommand, OneStepIsWithoutTheModelsDropout) {
  const auto step = [](const std::string& model) {
    const Outcome outcome = vitrine({"train", "--one-step", "once upon a", "--target", " time", "--json", "--model", model});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  std::filesystem::copy(golden_model("gpt2_a"), scratch / "dropping", std::filesystem::copy_options::recursive);
  Json config = read_json(scratch / "dropping/config.json");
  for (const char* rate : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config[rate] = 0.5;
  scratch.write("dropping/config.json", config.dump());
  EXPECT_EQ(step(scratch / "dropping"), step(golden_model("gpt2_a")));
}

TEST_F(TrainCommand, RefusesWithTwoAndFailsWithOne) {
  expect_refused({"train"}, {"no configuration"});
  for (const char* option : {"--target", "--rate", "--steps", "--top", "--model"})
    expect_refused({"train", config("a", 4), option, "1"}, {option, "--one-step"});
  expect_refused({"train", config("a", 4), "--one-step", "a", "--target", " b"}, {"CONFIG", "--one-step"});
  expect_refused({"train", "--one-step", "a", "--target", " b", "--resume"}, {"--resume", "--one-step"});
  expect_refused({"train", "--example", "--resume"}, {"--resume", "--example"});
  expect_refused({"train", "--example", "--json"}, {"--json", "--example"});
  expect_refused({"train", scratch / "none.yaml"}, {"none.yaml"});
  expect_refused({"train", config("a", 4, "stepps: 1\n")}, {"\"stepps\" is not known", "Here can stand: "});
  expect_refused({"train", config("b", 4, "threads: 0\n")}, {"\"threads\" is \"0\"; expected a whole number from 1 to 1024"});
  std::string text = read_file(config("c", 4));
  text.replace(text.find("lr: 1e-2"), 8, "lr: 1e30");
  const Outcome failed = vitrine({"train", scratch.write("c.yaml", text)});
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_CONTAINS(failed.err, "NaN or infinity appeared first in ");
}

// The table of docs/trainability.md: each row's recipe gives its number.
TEST(TrainabilityDocument, NumbersAreThoseOfTheRecipes) {
  const Scratch scratch;
  const std::string source = VITRINE_SOURCE, data = scratch / "fables-characters";
  ASSERT_EQ(
      vitrine({"data", source + "/examples/fables.txt", "--document", "\\n\\n\\n", "--tokenizer", "characters", "--out", data})
          .code,
      0);
  std::map<std::string, double> written;
  std::istringstream document(read_file(source + "/docs/trainability.md"));
  for (std::string line; std::getline(document, line);)
    for (const char* row : {"| `examples/healthy.yaml` |", "| `examples/vanishing.yaml` |", "| `examples/exploding.yaml` |",
                            "| exploding, with norms |", "| vanishing, with norms |"})
      if (line.starts_with(row)) written[row] = std::stod(line.substr(line.find_last_of('|', line.size() - 2) + 1));
  ASSERT_EQ(written.size(), 5u);
  for (const auto& [row, number] : written) {
    const std::string name = row.find("exploding") != std::string::npos   ? "exploding"
                             : row.find("vanishing") != std::string::npos ? "vanishing"
                                                                          : "healthy";
    std::string recipe = read_file(source + "/examples/" + name + ".yaml");
    const auto replace = [&](const std::string& from, const std::string& to) {
      const size_t at = recipe.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      recipe.replace(at, from.size(), to);
    };
    replace("steps: 60", "steps: 1");
    replace("out: " + name + "-run", "out: " + scratch / "run");
    replace("tokenizer: fables-characters", "tokenizer: " + data);
    replace("train: fables-characters/train", "train: " + data + "/train");
    if (row.find("with norms") != std::string::npos) replace("norms: off", "norms: pre");
    std::filesystem::remove_all(scratch / "run");
    const Outcome outcome = vitrine({"train", scratch.write("recipe.yaml", recipe)});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string metrics = read_file(scratch / "run/metrics.jsonl");
    const Json gradients = Json::parse(metrics.substr(0, metrics.find('\n'))).at("layer_stream_grad_norm");
    const double ratio = gradients.at("blocks.0").get<double>() / gradients.at("blocks.11").get<double>();
    EXPECT_NEAR(ratio / number, 1, 0.05) << row << " has " << number << ", the run " << ratio;
  }
}

}  // namespace
}  // namespace vitrine
