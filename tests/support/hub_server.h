#pragma once
// A hub of our own (tests/app/hub/hub_server.py): a folder of repositories behind TLS, and a plan of what goes wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"

extern char** environ;

namespace vitrine {

class HubServer {
 public:
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  HubServer() {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) throw RunError("no pipe");
    const std::string script = std::string(VITRINE_SOURCE) + "/tests/app/hub/hub_server.py";
    std::vector<std::string> words = {"python3", script, folder_.path()};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1]}) posix_spawn_file_actions_addclose(&actions, fd);
    if (::posix_spawnp(&process_, "python3", &actions, nullptr, argv.data(), environ) != 0) process_ = 0;
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    keeps_it_running_ = in[1];
    FILE* lines = ::fdopen(out[0], "r");
    if (process_ == 0 || std::fscanf(lines, "%d %d", &port_, &storage_port_) != 2) port_ = 0;
    std::fclose(lines);
  }
  ~HubServer() {
    ::close(keeps_it_running_);
    if (process_ != 0) ::waitpid(process_, nullptr, 0);
  }
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  bool runs() const { return port_ != 0; }
  std::string endpoint() const { return "https://localhost:" + std::to_string(port_); }
  std::string storage() const { return "https://localhost:" + std::to_string(storage_port_); }
  std::string certificates() const { return folder_ / "cert.pem"; }

  /// A file of a repository at kCommit, which main names.
  void add(const std::string& id, const std::string& name, std::string_view content) const {
    folder_.write("repos/" + id + "/refs/main", kCommit);
    folder_.write("repos/" + id + "/" + kCommit + "/" + name, content);
  }
  void plan(const Json& plan) const { folder_.write("plan.json", plan.dump()); }

  /// The requests since the beginning, or since forget().
  std::vector<Json> requests() const {
    std::vector<Json> all;
    if (!std::filesystem::exists(folder_ / "requests.jsonl")) return all;
    const std::string text = read_file(folder_ / "requests.jsonl");
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      all.push_back(parse_json(text.substr(begin, end - begin), "requests.jsonl"));
      begin = end + 1;
    }
    return all;
  }
  void forget() const { std::filesystem::remove(folder_ / "requests.jsonl"); }

 private:
  Scratch folder_;
  pid_t process_ = 0;
  int keeps_it_running_ = -1, port_ = 0, storage_port_ = 0;
};

/// Bytes that no compression and no mistake in an offset leaves as they are.
inline std::string random_content(size_t bytes, uint32_t seed = 1) {
  std::string content(bytes, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : content) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return content;
}

}  // namespace vitrine
