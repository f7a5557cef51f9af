// Load on a running server with OpenAI's /v1/completions: vitrine serve, llama-server, vLLM. Streams with prompts of random ids,
// all of them different, so that no cache of prefixes helps.
//   bench_load PORT [--clients 32] [--requests 128] [--rate R] [--prompt 128] [--new 64] [--vocab 32000] [--seed 1] [--key KEY]
// Without --rate each client sends its next request when the last one is answered. With it requests come R a second, whether
// others are answered or not, on as many connections as that takes. Prints tokens per second and the times of first tokens and
// between tokens.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int port = 0;
  int64_t clients = 32, requests = 128, prompt = 128, tokens = 64, vocab = 32000, seed = 1;
  double rate = 0;
  std::string key;
};

Options read_options(int argc, char** argv) {
  Options o;
  if (argc < 2 || argc % 2 != 0) throw std::invalid_argument("usage: bench_load PORT [--clients N] … (see bench/load.cpp)");
  o.port = std::stoi(argv[1]);
  std::map<std::string, int64_t*> numbers = {{"--clients", &o.clients}, {"--requests", &o.requests}, {"--prompt", &o.prompt},
                                             {"--new", &o.tokens},      {"--vocab", &o.vocab},       {"--seed", &o.seed}};
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--rate")
      o.rate = std::stod(argv[i + 1]);
    else if (name == "--key")
      o.key = argv[i + 1];
    else if (numbers.contains(name))
      *numbers[name] = std::stoll(argv[i + 1]);
    else
      throw std::invalid_argument(name + " is no option");
  }
  return o;
}

/// One request on a connection of its own.
class Request {
 public:
  Request(const Options& o, std::mt19937_64& random) : begun_(Clock::now()), last_(begun_) {
    nlohmann::json ids = nlohmann::json::array();
    for (int64_t i = 0; i < o.prompt; ++i) ids.push_back(3 + random() % static_cast<uint64_t>(o.vocab - 3));
    const std::string body =
        nlohmann::json{{"prompt", ids},      {"max_tokens", o.tokens}, {"temperature", 0},
                       {"ignore_eos", true}, {"stream", true},         {"stream_options", {{"include_usage", true}}}}
            .dump();
    out_ = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n" +
           (o.key.empty() ? "" : "Authorization: Bearer " + o.key + "\r\n") + "Content-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(o.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(std::string("no connection: ") + std::strerror(errno));
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  ~Request() { ::close(socket_); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  pollfd wanted() const { return {socket_, static_cast<int16_t>(sent_ < out_.size() ? POLLIN | POLLOUT : POLLIN), 0}; }

  /// False once the answer is complete.
  bool go_on() {
    while (sent_ < out_.size()) {
      const ssize_t n = ::send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent_ += static_cast<size_t>(n);
    }
    char bytes[65536];
    for (;;) {
      const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
      if (n < 0) return true;
      if (n == 0) break;
      read_.append(bytes, static_cast<size_t>(n));
      take();
    }
    if (status_ != 200) throw std::runtime_error("the server answered: " + read_.substr(0, 500));
    if (tokens == 0) throw std::runtime_error("an answer without usage");
    return false;
  }

  double first = 0;          // seconds to the first event
  std::vector<double> gaps;  // between events
  int64_t tokens = 0;

 private:
  // Events in what has come. Chunk sizes stand on lines of their own and begin no event.
  void take() {
    if (status_ == 0) {
      const size_t end = read_.find("\r\n\r\n");
      if (end == std::string::npos) return;
      std::from_chars(read_.data() + 9, read_.data() + 12, status_);
      if (status_ != 200) return;
      read_.erase(0, end + 4);
    }
    if (status_ != 200) return;
    while (unchunk()) {
    }
    size_t end = 0;
    while ((end = events_.find("\n\n")) != std::string::npos) {
      see(std::string_view(events_).substr(0, end));
      events_.erase(0, end + 2);
    }
  }
  bool unchunk() {
    const size_t line = read_.find("\r\n");
    if (line == std::string::npos) return false;
    size_t size = 0;
    std::from_chars(read_.data(), read_.data() + line, size, 16);
    if (read_.size() < line + 2 + size + 2) return false;
    events_.append(read_, line + 2, size);
    read_.erase(0, line + 2 + size + 2);
    return size > 0;
  }
  void see(std::string_view event) {
    if (!event.starts_with("data: {")) return;
    const auto usage = event.find("\"completion_tokens\":");
    if (usage != std::string_view::npos) {
      const std::string_view number = event.substr(usage + 20);
      std::from_chars(number.data() + number.find_first_not_of(' '), number.data() + number.size(), tokens);
    }
    const auto now = Clock::now();
    const double since = std::chrono::duration<double>(now - last_).count();
    if (!began_)
      first = since;
    else if (usage == std::string_view::npos)
      gaps.push_back(since);
    began_ = true;
    last_ = now;
  }

  Clock::time_point begun_, last_;
  int socket_ = -1, status_ = 0;
  size_t sent_ = 0;
  bool began_ = false;
  std::string out_, read_, events_;
};

double part(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = read_options(argc, argv);
  std::mt19937_64 random(static_cast<uint64_t>(o.seed));
  std::exponential_distribution<double> pause(o.rate > 0 ? o.rate : 1);
  std::vector<std::unique_ptr<Request>> running;
  std::vector<double> firsts, gaps;
  int64_t sent = 0, tokens = 0;
  const auto begin = Clock::now();
  double next = 0;
  for (;;) {
    const double now = std::chrono::duration<double>(Clock::now() - begin).count();
    while (sent < o.requests && (o.rate > 0 ? next <= now : static_cast<int64_t>(running.size()) < o.clients)) {
      running.push_back(std::make_unique<Request>(o, random));
      ++sent;
      next += pause(random);
    }
    if (running.empty() && sent == o.requests) break;
    std::vector<pollfd> wanted;
    for (const auto& each : running) wanted.push_back(each->wanted());
    ::poll(wanted.data(), wanted.size(),
           o.rate > 0 && sent < o.requests ? std::max(0, static_cast<int>((next - now) * 1000)) : -1);
    for (size_t i = running.size(); i-- > 0;) {
      if (wanted[i].revents == 0 || running[i]->go_on()) continue;
      firsts.push_back(running[i]->first);
      gaps.insert(gaps.end(), running[i]->gaps.begin(), running[i]->gaps.end());
      tokens += running[i]->tokens;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf(
      "%lld requests of %lld + %lld tokens in %.2f s: %.1f new tokens/s; first token %.1f ms (median), %.1f (p99); between "
      "tokens %.2f ms "
      "(median), %.2f (p99), %.1f (most)\n",
      static_cast<long long>(o.requests), static_cast<long long>(o.prompt), static_cast<long long>(o.tokens), seconds,
      static_cast<double>(tokens) / seconds, 1000 * part(firsts, 0.5), 1000 * part(firsts, 0.99), 1000 * part(gaps, 0.5),
      1000 * part(gaps, 0.99), 1000 * part(gaps, 1));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_load: %s\n", e.what());
  return 1;
}
