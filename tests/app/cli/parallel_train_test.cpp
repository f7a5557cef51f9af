// vitrine train under mpirun: the same learning on any number of processes, and the end of all when one is lost.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "cli/program.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

TEST(WithoutMpi, StartedByAnMpiLauncherItRefuses) {
  const Scratch scratch;
  const std::string alone = scratch / "vitrine";  // a copy has no module beside it
  std::filesystem::copy_file(VITRINE_PROGRAM, alone);
  small_data(scratch, "data", 10, 1);
  const std::string config = scratch.write("run.yaml", small_config(scratch, scratch / "run"));
  const std::string run = " " + alone + " train " + config + " 2> " + scratch / "err";
  for (const char* launcher : {"OMPI_COMM_WORLD_SIZE=2", "PMI_SIZE=2", "PMIX_RANK=0", "OMPI_COMM_WORLD_SIZE=two"}) {
    EXPECT_EQ(WEXITSTATUS(std::system((launcher + run).c_str())), 2) << launcher;
    const std::string message = read_file(scratch / "err");
    EXPECT_CONTAINS(message, "vitrine train: an MPI launcher started this process");
    EXPECT_CONTAINS(message, "this vitrine has no MPI support: there is no " + scratch / "vitrine_mpi.so");
    EXPECT_CONTAINS(message, "Install the package vitrine-mpi, or build with Open MPI");
  }
  scratch.write("vitrine_mpi.so", "no library");
  EXPECT_EQ(WEXITSTATUS(std::system(("OMPI_COMM_WORLD_SIZE=2" + run).c_str())), 2);
  EXPECT_CONTAINS(read_file(scratch / "err"), "vitrine_mpi.so: ");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  // One process needs no others.
  small_data(scratch, "valid", 6, 2);
  EXPECT_EQ(WEXITSTATUS(std::system(("PMI_SIZE=1" + run + " > /dev/null").c_str())), 0) << read_file(scratch / "err");
  std::filesystem::remove_all(scratch / "run");
  EXPECT_EQ(WEXITSTATUS(std::system(("PMIX_RANK=0 SLURM_NTASKS=1" + run + " > /dev/null").c_str())), 0)
      << read_file(scratch / "err");
}

#ifdef VITRINE_MPIRUN

using Clock = std::chrono::steady_clock;

class ParallelTrain : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
  }
  // Ten steps from a golden model, without its tokenizer, which has not made this data.
  std::string golden(const std::string& model, const std::string& out, int steps = 10) {
    for (const char* name : {"/config.json", "/model.safetensors"})
      scratch.write(model + name, read_file(golden_model(model) + name));
    return scratch.write(
        out + ".yaml",
        "model: " + scratch / model + "\ndata: {train: " + scratch / "data" + ", validation: " + scratch / "valid" +
            "}\nsequence_length: 16\nbatch: 4\naccumulate: 2\ndropout: 0\nthreads: 1\nsteps: " + std::to_string(steps) +
            "\nschedule: {decay: constant}\noptimizer: {lr: 1e-3}\neval_every: 5\n"
            "checkpoint: {every: 2}\nout: " +
            scratch / out + "\n");
  }
  // A long run that saves after every step.
  std::string endless(const std::string& out) {
    std::string text = small_config(scratch, scratch / out, "threads: 1\n");
    text.replace(text.find("batch: 3"), 8, "batch: 4");
    text.replace(text.find("steps: 12"), 9, "steps: 1000000");
    text.replace(text.find("{every: 3, keep: 2}"), 19, "{every: 1, keep: 2}");
    return scratch.write(out + ".yaml", text);
  }

  // mpirun -n RANKS vitrine ARGUMENTS…; `meanwhile` is called with mpirun's process id until it returns true.
  template <class F>
  Outcome mpirun(int ranks, const std::vector<std::string>& arguments, F&& meanwhile) {
    std::vector<std::string> words = {VITRINE_MPIRUN, "-n", std::to_string(ranks), VITRINE_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    // More ranks than cores, and as root in a container; other launchers do not read these.
    std::vector<std::string> added = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_mpi_yield_when_idle=1",
                                      "OMPI_MCA_hwloc_base_binding_policy=none"};
    std::vector<char*> argv, env;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& word : added) env.push_back(word.data());
    for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
    argv.push_back(nullptr);
    env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = scratch / "out", err = scratch / "err";
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    EXPECT_EQ(posix_spawnp(&child, VITRINE_MPIRUN, &actions, nullptr, argv.data(), env.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    Outcome outcome;
    int status = 0;
    bool told = false;
    const auto begin = Clock::now();
    while (waitpid(child, &status, WNOHANG) != child) {
      told = told || meanwhile(child);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (Clock::now() - begin < std::chrono::minutes(3)) continue;
      ADD_FAILURE() << "mpirun did not end";
      kill(child, SIGKILL);
    }
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = read_file(out);
    outcome.err = read_file(err);
    return outcome;
  }
  Outcome mpirun(int ranks, const std::vector<std::string>& arguments) {
    return mpirun(ranks, arguments, [](pid_t) { return true; });
  }

  // The processes that mpirun started, by rank.
  static std::vector<pid_t> ranks_of(pid_t launcher) {
    std::map<int, pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream stat(entry.path() / "stat"), environment(entry.path() / "environ", std::ios::binary);
      std::string text, variable;
      std::getline(stat, text);
      const size_t state = text.rfind(") ");
      if (state == std::string::npos || std::atoi(text.c_str() + state + 4) != launcher) continue;
      while (std::getline(environment, variable, '\0'))
        if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) found[std::atoi(variable.c_str() + 21)] = std::stoi(name);
    }
    std::vector<pid_t> ranks;
    for (const auto& [rank, pid] : found) ranks.push_back(pid);
    return ranks;
  }

  void expect_same_metrics(const std::string& out, const std::string& wanted_out) {
    const std::vector<Json> got = metrics_of(scratch / out), wanted = metrics_of(scratch / wanted_out);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(got[i].at("step"), wanted[i].at("step"));
      EXPECT_EQ(got[i].at("tokens"), wanted[i].at("tokens"));
      for (const char* key : {"loss", "val_loss"})
        if (wanted[i].contains(key)) {
          const double want = wanted[i].at(key).get<double>();
          EXPECT_NEAR(got[i].at(key).get<double>(), want, 1e-5 * want) << key << " of step " << wanted[i].at("step");
        }
    }
  }
  Scratch scratch;
};

TEST_F(ParallelTrain, LearnsWhatOneProcessLearns) {
  for (const std::string model : {"gemma2", "gpt2_b"}) {
    const Outcome one = vitrine({"train", golden(model, model + "1")});
    ASSERT_EQ(one.code, 0) << one.err;
    for (const int ranks : {2, 4}) {
      const std::string out = model + std::to_string(ranks);
      const Outcome many = mpirun(ranks, {"train", golden(model, out), "--json"});
      ASSERT_EQ(many.code, 0) << many.err;
      EXPECT_CONTAINS(many.err, std::to_string(ranks) + " processes of 1 thread");
      EXPECT_EQ(many.json().at("processes"), ranks);
      EXPECT_GT(many.json().at("comm_share").get<double>(), 0);
      EXPECT_LT(many.json().at("comm_share").get<double>(), 1);
      EXPECT_TRUE(metrics_of(scratch / out).back().contains("comm_share"));
      expect_same_metrics(out, model + "1");
      EXPECT_EQ(names_under(scratch / out), names_under(scratch / (model + "1")));
      EXPECT_EQ(names_under(scratch / out + "/last"), names_under(scratch / (model + "1") + "/last"));
    }
  }
}

TEST_F(ParallelTrain, AKilledProcessEndsAllAndOthersGoOn) {
  const std::string cut = golden("llama", "cut", 1'000'000);
  auto killed = Clock::now();
  const Outcome lost = mpirun(2, {"train", cut}, [&](pid_t launcher) {
    const std::vector<pid_t> ranks = ranks_of(launcher);
    if (ranks.size() != 2 || !std::filesystem::exists(scratch / "cut/step-4")) return false;
    kill(ranks[1], SIGKILL);
    killed = Clock::now();
    return true;
  });
  EXPECT_NE(lost.code, 0);
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(60));
  EXPECT_CONTAINS(lost.err, "noticed that process rank 1");
  EXPECT_CONTAINS(lost.err, "signal 9");
  EXPECT_EQ(vitrine({"predict", "--model", scratch / "cut/last", "--tokens", "3,6,12"}).code, 0);
  // Two processes were cut off; one goes on for a while, then four do.
  const int last = std::stoi(std::filesystem::read_symlink(scratch / "cut/last").string().substr(5));
  const Outcome one = vitrine({"train", golden("llama", "cut", last + 2), "--resume"});
  ASSERT_EQ(one.code, 0) << one.err;
  const Outcome four = mpirun(4, {"train", golden("llama", "cut", last + 4), "--resume"});
  ASSERT_EQ(four.code, 0) << four.err;
  EXPECT_CONTAINS(four.out, "done: step " + std::to_string(last + 4) + ", ");
  const Outcome whole = vitrine({"train", golden("llama", "whole", last + 4)});
  ASSERT_EQ(whole.code, 0) << whole.err;
  expect_same_metrics("cut", "whole");
}

TEST_F(ParallelTrain, AnInterruptOfAnyProcessSavesAndEndsAll) {
  const std::string file = endless("run");
  const Outcome stopped = mpirun(2, {"train", file}, [&](pid_t launcher) {
    const std::vector<pid_t> ranks = ranks_of(launcher);
    if (ranks.size() != 2 || !std::filesystem::exists(scratch / "run/step-2")) return false;
    kill(ranks[1], SIGINT);
    return true;
  });
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_CONTAINS(stopped.out, "stopped after step ");
  EXPECT_CONTAINS(stopped.out, "2 processes: ");
  const std::string last = std::filesystem::read_symlink(scratch / "run/last").string();
  EXPECT_EQ(metrics_of(scratch / "run").back().at("step"), std::stoi(last.substr(5)));
}

TEST_F(ParallelTrain, FailsWithOneMessageAndTheCodeOfASingleProcess) {
  std::string text = read_file(endless("run"));
  text.replace(text.find("lr: 1e-2"), 8, "lr: 1e30");
  const Outcome failed = mpirun(2, {"train", scratch.write("run.yaml", text)});
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_CONTAINS(failed.err, "NaN or infinity appeared first in ");
  const auto times_said = [](const std::string& all, const std::string& words) {
    int times = 0;
    for (size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1)) ++times;
    return times;
  };
  const Outcome refused = mpirun(4, {"train", scratch.write("wrong.yaml", text + "bacth: 4\n")});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_EQ(times_said(refused.err, "\"bacth\" is not known"), 1) << refused.err;
  const Outcome uneven = mpirun(3, {"train", endless("uneven")});
  EXPECT_EQ(uneven.code, 2) << uneven.err;
  EXPECT_EQ(times_said(uneven.err, "batch is 4; expected a multiple of the 3 processes that share it"), 1) << uneven.err;
}

#else
TEST(ParallelTrain, NeedsMpi) { GTEST_SKIP() << "not run: this build has no MPI (VITRINE_MPI, docs/parallel-training.md)"; }
#endif

}  // namespace
}  // namespace vitrine
