// vitrine serve as a shell runs it: start, signals, refusals.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <regex>
#include <thread>

#include "cli/program.h"
#include "http/client.h"
#include "http/server.h"

namespace vitrine {
namespace {

class ServeCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!http::can_serve()) GTEST_SKIP() << "built without serving, for lack of Boost's headers";
  }
  void TearDown() override {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }

  /// Starts it on a free port, and waits until it listens.
  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {VITRINE_PROGRAM, "serve", "--port", "0"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string err = scratch_ / "err";
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, std::string(scratch_ / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    if (!terminal_.empty()) {  // of a session of its own, whose first terminal is this one
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, terminal_.c_str(), O_RDWR, 0);
    }
    ASSERT_EQ(posix_spawn(&child_, VITRINE_PROGRAM, &actions, &attributes, argv.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = 0; i < 6000 && port_ == 0; ++i) {
      std::smatch found;
      const std::string said = read_file(err);
      if (std::regex_search(said, found, std::regex("listening on http://127\\.0\\.0\\.1:([0-9]+)\n")))
        port_ = static_cast<uint16_t>(std::stoi(found[1]));
      ASSERT_EQ(::waitpid(child_, nullptr, WNOHANG), 0) << said;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_NE(port_, 0);
  }
  void signal(int which) const { ::kill(child_, which); }
  bool eventually(const std::function<bool()>& holds) const {
    for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  }
  /// Waits until this stands on stderr.
  void expect_said(const std::string& text) const {
    EXPECT_TRUE(eventually([&] { return read_file(scratch_ / "err").find(text) != std::string::npos; }))
        << text << " is not among:\n"
        << read_file(scratch_ / "err");
  }
  /// The exit code; 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(child_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  Scratch scratch_;
  std::string terminal_;  // that it runs in; empty: none
  pid_t child_ = 0;
  uint16_t port_ = 0;
};

TEST_F(ServeCommand, AnswersUntilItIsToldToEnd) {
  for (const int which : {SIGTERM, SIGINT}) {
    port_ = 0;
    start();
    http::Client client(port_);
    const http::Reply reply = client.ask(http::get("/health"));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(parse_json(reply.body, "answer").at("status"), "ok");
    EXPECT_EQ(client.ask(http::get("/no-such-path")).status, 404);
    signal(which);
    EXPECT_EQ(wait(), 0);
    EXPECT_TRUE(client.ended());
    EXPECT_CONTAINS(read_file(scratch_ / "err"), "stopping: running answers finish");
    EXPECT_CONTAINS(read_file(scratch_ / "err"), "tales9m: 1024 positions, 64 streams at once");
    EXPECT_CONTAINS(read_file(scratch_ / "err"), "the model has no chat template: messages are joined by blank lines");
  }
}

// What systemd's Type=notify and WatchdogSec listen to.
TEST_F(ServeCommand, TellsTheServiceManager) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = scratch_ / "notify";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int manager = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  ASSERT_EQ(::bind(manager, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto told = [manager] {
    char text[256];
    const ssize_t n = ::recv(manager, text, sizeof text, 0);
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  };
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "20000", 1);
  start();
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(told(), "READY=1\nSTATUS=tales9m at http://127.0.0.1:" + std::to_string(port_));
  EXPECT_EQ(told(), "WATCHDOG=1");
  EXPECT_EQ(told(), "WATCHDOG=1");
  signal(SIGUSR1);  // ends nothing
  signal(SIGTERM);
  std::string last;
  while ((last = told()) == "WATCHDOG=1") continue;
  EXPECT_EQ(last, "STOPPING=1");
  EXPECT_EQ(wait(), 0);
  ::close(manager);
}

// Command lines must run where they are shown, and tell other machines nothing of this one.
TEST_F(ServeCommand, CommandLinesHavePathsWhereOnlyThisMachineHasAccess) {
  const std::string model = VITRINE_GOLDEN "/models/llama/model", adapter = VITRINE_GOLDEN "/lora/llama/adapter";
  const auto told = [this](const std::string& head) {
    const http::Reply reply = http::Client(port_).ask(http::get("/v1/live", head));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json json = parse_json(reply.body, "answer");
    return json.at("command_model").get<std::string>() + " " + json.at("command_options").get<std::string>();
  };
  start({"--model", model, "--adapter", adapter});
  EXPECT_EQ(told(""), "--model " + model + " --adapter " + adapter);
  signal(SIGTERM);
  EXPECT_EQ(wait(), 0);
  port_ = 0;
  start({"--model", model, "--adapter", adapter, "--api-key", "sk-key"});
  EXPECT_EQ(told("Authorization: Bearer sk-key\r\n"), "--model model --adapter adapter");
}

// With adapters, edits, seeds and stop strings.
TEST_F(ServeCommand, CommandLinesOfAnswersGiveTheirNumbers) {
  const std::string model = VITRINE_GOLDEN "/models/llama/model";
  start({"--model", model, "--lora", VITRINE_GOLDEN "/lora/llama/adapter", "--lora", VITRINE_GOLDEN "/lora/mixed/second",
         "--exact"});
  const Json ids = {3, 17, 4, 5, 9, 12, 7, 21, 6, 8, 30};
  const Json lora = {{{"id", 0}, {"scale", 0.5}}, {{"id", 1}, {"scale", -1.5}}};
  const auto answer = [&](const std::string& path, Json request) {
    request["lora"] = path == "/v1/attribute" ? Json::array() : lora;  // which has gradients of the plain model alone
    const http::Reply reply = http::Client(port_).ask(http::post(path, request.dump(), "Content-Type: application/json\r\n"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return parse_json(reply.body, path);
  };
  const auto run = [&](const std::string& command) {
    EXPECT_TRUE(command.starts_with("vitrine ")) << command;
    const std::string line = "cd \"$1\" && \"$0\"" + command.substr(command.find(' '));
    const Outcome outcome = run_program({"/bin/sh", "-c", line, VITRINE_PROGRAM, scratch_.path()});
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    return outcome.json();
  };

  const Json scores = answer("/v1/score", {{"prompts", {ids, {5, 9, 12}}}});
  EXPECT_EQ(run(scores.at("command")).at("results"), scores.at("results"));

  const Json attribution =
      answer("/v1/attribute", {{"prompt", ids}, {"token", 9}, {"against", 4}, {"steps", 3}, {"baseline", "zero"}});
  const Json again = run(attribution.at("command"));
  for (const char* key : {"token", "value", "saliency", "gradient_input", "integrated"})
    EXPECT_EQ(again.at(key), attribution.at(key)) << key;

  const Json steered = answer(
      "/v1/steer", {{"prompt", ids},
                    {"max_tokens", 12},
                    {"temperature", 1.5},
                    {"top_k", 40},
                    {"frequency_penalty", -0.5},
                    {"logit_bias", {{"7", -2.5}}},
                    {"seed", 17},
                    {"ignore_eos", true},
                    {"edits", {{{"head", "1.1"}, {"do", "zero"}}, {{"hook", "resid_post.0"}, {"do", "scale"}, {"by", 1.5}}}}});
  scratch_.write("recipe.yaml", steered.at("yaml").get<std::string>());
  std::string command = steered.at("command");
  const Json after = run(command);
  EXPECT_EQ(after.at("tokens"), steered.at("after").at("tokens"));
  EXPECT_EQ(after.at("logprobs"), steered.at("after").at("logprobs"));
  const std::string edits = " --edits recipe.yaml";
  ASSERT_NE(command.find(edits), std::string::npos) << command;
  EXPECT_EQ(run(command.erase(command.find(edits), edits.size())).at("tokens"), steered.at("before").at("tokens"));
  EXPECT_NE(steered.at("before").at("tokens"), steered.at("after").at("tokens"));
}

// Another program writes over the model's file. A sanitizer's own handler is asked to leave SIGBUS alone.
TEST_F(ServeCommand, NamesAModelThatIsCutWhileItRuns) {
  for (const char* options : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* const given = std::getenv(options);
    ::setenv(options, (std::string(given != nullptr ? given : "") + ":handle_sigbus=0").c_str(), 1);
  }
  const Scratch folder;
  const std::string model = copy_model(folder, golden_model("llama"));
  start({"--model", model});
  EXPECT_EQ(http::Client(port_).ask(http::get("/health")).status, 200);
  std::filesystem::resize_file(model + "/model.safetensors", 16);
  http::Client client(port_);
  client.send(http::post("/v1/completions", R"({"prompt": [1, 2, 3], "max_tokens": 1})"));
  EXPECT_EQ(wait(), 1);
  EXPECT_CONTAINS(read_file(scratch_ / "err"),
                  "vitrine: " + model + "/model.safetensors: became shorter while it was read: it had ");
}

TEST_F(ServeCommand, KeysAndTheLog) {
  const std::string keys = scratch_.write("keys", "alice sk-alice\n"), log = scratch_ / "log";
  start({"--api-key", "sk-first", "--api-key-file", keys, "--log", log});
  EXPECT_EQ(http::Client(port_).ask(http::get("/health")).status, 200);
  EXPECT_EQ(http::Client(port_).ask(http::get("/v1/models")).status, 401);
  EXPECT_NE(http::Client(port_).ask(http::get("/v1/models", "Authorization: Bearer sk-alice\r\n")).status, 401);
  EXPECT_NE(http::Client(port_).ask(http::get("/v1/models", "X-Api-Key: sk-first\r\n")).status, 401);
  signal(SIGTERM);
  EXPECT_EQ(wait(), 0);
  const std::string lines = read_file(log);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
  EXPECT_CONTAINS(lines, "\"owner\":\"alice\"");
  EXPECT_CONTAINS(lines, "\"owner\":\"key 1\"");
  EXPECT_EQ(lines.find("sk-"), std::string::npos);
}

// What SIGHUP reads again: each part by itself, and no connection is lost.
TEST_F(ServeCommand, SighupReadsItsFilesAgain) {
  const std::string keys = scratch_.write("keys", "alice sk-alice\n");
  std::filesystem::create_directories(scratch_ / "models");
  scratch_.link("models/one", golden_model("llama"));
  start({"--api-key-file", keys, "--models", scratch_ / "models"});
  http::Client client(port_);
  const auto models = [&](const std::string& key) {
    const http::Reply reply = client.ask(http::get("/v1/models", "x-api-key: " + key + "\r\n"));
    std::string names;
    if (reply.status != 200) return std::to_string(reply.status);
    const Json list = parse_json(reply.body, "answer").at("data");
    for (const Json& model : list) names += model.at("id").get<std::string>() + " ";
    return names;
  };
  EXPECT_EQ(models("sk-alice"), "one ");
  scratch_.write("keys", "alice sk-alice\nbob sk-bob\n");
  scratch_.link("models/two", golden_model("qwen3"));
  signal(SIGHUP);
  expect_said("read again: the list of models");
  EXPECT_EQ(models("sk-bob"), "one two ");
  scratch_.write("keys", "bob sk-bob owner\n");
  std::filesystem::remove(scratch_ / "models/one");
  signal(SIGHUP);
  expect_said("not read again, as before: the keys of " + keys);
  EXPECT_TRUE(eventually([&] { return models("sk-alice") == "two "; })) << models("sk-alice");
  signal(SIGTERM);
  EXPECT_EQ(wait(), 0);
}

// It is also what the shell sends when its terminal is closed.
TEST_F(ServeCommand, EndsWithItsTerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_TRUE(terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  terminal_ = ::ptsname(terminal);
  start();
  signal(SIGHUP);
  expect_said("SIGHUP reads --api-key-file");
  ::close(terminal);
  EXPECT_EQ(wait(), 0);
}

// The last word of a stream that draining cuts.
TEST_F(ServeCommand, InterruptedStreamsSaySo) {
  start({"--drain-seconds", "0"});
  http::Client client(port_);
  client.send(
      http::post("/v1/completions", R"({"prompt": "Once", "max_tokens": 1000, "n": 32, "ignore_eos": true, "stream": true})"));
  client.read_head();
  client.read_chunk();
  signal(SIGTERM);
  EXPECT_EQ(wait(), 0);
  EXPECT_CONTAINS(client.read_all(), "this server is ending, and the answer is not complete");
}

// From the header of a client to the collector, with what the model did in between.
TEST_F(ServeCommand, SendsSpansToACollector) {
  std::mutex mutex;
  std::string received;
  http::ServerOptions options;
  options.port = 0;
  const http::Server collector(options, [&](const std::shared_ptr<http::Exchange>& exchange) {
    const std::lock_guard lock(mutex);
    received += exchange->request().path + " " + exchange->request().body + "\n";
    exchange->respond({200, "application/json", "{}", {}});
  });
  start({"--otlp-endpoint", collector.url()});
  http::Client client(port_);
  EXPECT_EQ(client.ask(http::get("/health")).status, 200);
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(client
                .ask(http::post("/v1/completions", R"({"prompt": "Once", "max_tokens": 5, "ignore_eos": true})",
                                "traceparent: 00-" + trace + "-00f067aa0ba902b7-01\r\n"))
                .status,
            200);
  signal(SIGTERM);
  EXPECT_EQ(wait(), 0);
  const std::lock_guard lock(mutex);
  EXPECT_CONTAINS(received, "/v1/traces {");
  EXPECT_CONTAINS(received, "\"traceId\":\"" + trace + "\"");
  EXPECT_CONTAINS(received, "\"name\":\"POST /v1/completions\"");
  EXPECT_CONTAINS(received, R"({"key":"gen_ai.usage.output_tokens","value":{"intValue":"5"}})");
  EXPECT_EQ(received.find("/health"), std::string::npos) << received;
  EXPECT_EQ(received.find("Once"), std::string::npos) << received;
}

TEST_F(ServeCommand, NamesAndTheJsonLine) {
  start({"--json", "--alias", "gpt-4o,other", "--alias", "third"});
  const Json said = parse_json(read_file(scratch_ / "out"), "out");
  EXPECT_EQ(said.at("url"), "http://127.0.0.1:" + std::to_string(port_));
  EXPECT_EQ(said.at("model"), "tales9m");
  EXPECT_EQ(said.at("positions"), 1024);
  for (const auto& [name, status] : std::vector<std::pair<std::string, int>>{
           {"gpt-4o", 200}, {"other", 200}, {"third", 200}, {"tales9m", 200}, {"gpt-4o,other", 404}})
    EXPECT_EQ(http::Client(port_).ask(http::post("/v1/embeddings", R"({"input": "a", "model": ")" + name + "\"}")).status, status)
        << name;
  EXPECT_EQ(http::Client(port_).ask(http::post("/embeddings", R"({"input": "a"})")).status, 200);
}

TEST_F(ServeCommand, OneModelOfModelsHasItsNameToo) {
  start({"--models", "fable=" VITRINE_GOLDEN "/models/llama/model", "--no-page"});
  EXPECT_EQ(http::Client(port_).ask(http::get("/v1/models/fable")).status, 200);
  EXPECT_EQ(http::Client(port_).ask(http::get("/")).status, 404);
}

// Of several keys none may fill the queue: here 2 of 4 places, besides the one that runs.
TEST_F(ServeCommand, OneOfSeveralKeysHasHalfOfTheQueue) {
  const std::string four = R"({"prompt": "Once", "n": 4, "max_tokens": 1})";
  const std::string head = "Authorization: Bearer sk-a\r\n";
  const std::vector<std::string> one = {"--api-key", "sk-a", "--parallel", "1", "--queue", "4"};
  for (const auto& [more, status] : std::vector<std::pair<std::vector<std::string>, int>>{
           {{}, 200}, {{"--api-key", "sk-b"}, 400}, {{"--api-key", "sk-b", "--queue-per-key", "0"}, 200}}) {
    port_ = 0;
    std::vector<std::string> words = one;
    words.insert(words.end(), more.begin(), more.end());
    start(words);
    const http::Reply reply = http::Client(port_).ask(http::post("/v1/completions", four, head));
    EXPECT_EQ(reply.status, status) << reply.body;
    signal(SIGTERM);
    EXPECT_EQ(wait(), 0);
  }
}

TEST_F(ServeCommand, RefusesWhatCannotBe) {
  expect_refused({"serve", "--host", "0.0.0.0"}, {"--no-auth"});
  expect_refused({"serve", "--tls-cert", "a.pem"}, {"--tls-key"});
  expect_refused({"serve", "--no-tcp"}, {"--unix-socket"});
  expect_refused({"serve", "--port", "65536"}, {"--port"});
  expect_refused({"serve", "--cors-origin", "example.org"}, {"example.org", "https://"});
  expect_refused({"serve", "--chat-template-kwargs", "[1]"}, {"--chat-template-kwargs", "enable_thinking"});
  expect_refused({"serve", "--chat-template-kwargs", R"({"tools": 1})"}, {"tools", "each request"});
  expect_refused({"serve", "--host", "127.0.0.1,"}, {"127.0.0.1,", "empty"});
  expect_refused({"serve", "--api-key", "a b"}, {"space"});
  expect_refused({"serve", "--api-key-file", "no-such-file"}, {"no-such-file"});
  expect_refused({"serve", "--host", "no-such-host.invalid"}, {"no-such-host.invalid"});
  start();
  const Outcome taken = vitrine({"serve", "--port", std::to_string(port_)});
  EXPECT_EQ(taken.code, 1);
  EXPECT_CONTAINS(taken.err, "port " + std::to_string(port_));
}

}  // namespace
}  // namespace vitrine
