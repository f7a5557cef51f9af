// Any bytes as the body of a request to any route: an answer or an error that names what is wrong, never 500, and nothing runs
// on. The first line is the path; one that is none chooses among the routes by its first byte.
#include <condition_variable>
#include <mutex>
#include <string>

#include "runtime/engine.h"
#include "serve/routes.h"

namespace {

using namespace vitrine;

// Remembers how it was answered.
class Recorded final : public http::Exchange {
 public:
  explicit Recorded(http::Request request) : request_(std::move(request)) {}
  const http::Request& request() const override { return request_; }
  void respond(http::Response response) override { finish(response.status, response.body); }
  std::shared_ptr<http::Stream> stream(http::Response head) override {
    if (head.status != 200) __builtin_trap();
    return std::make_shared<Pieces>(*this);
  }
  http::WorkCharge charge(size_t bytes) override { return http::WorkCharge(std::make_shared<http::WorkBudget>(bytes)); }
  void on_gone(std::function<void()>) override {}
  void name_model(const std::string&) override {}
  void count_tokens(int64_t, int64_t) override {}

  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return status_ != 0; });
    return status_;
  }

 private:
  class Pieces final : public http::Stream {
   public:
    explicit Pieces(Recorded& owner) : owner_(owner) {}
    bool send(std::string bytes) override {
      if (!bytes.ends_with("\n\n")) __builtin_trap();
      return true;
    }
    void close() override { owner_.finish(200, ""); }

   private:
    Recorded& owner_;
  };
  void finish(int status, const std::string& body) {
    if (!body.empty() && body[0] == '{')
      if (!OrderedJson::accept(body)) __builtin_trap();
    const std::lock_guard lock(mutex_);
    if (status_ != 0) __builtin_trap();  // answered twice
    status_ = status;
    changed_.notify_all();
  }
  const http::Request request_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
};

struct Running {
  Engine engine{VITRINE_SOURCE "/tests/golden/models/gpt2_a/model", {.threads = 1}};
  serve::Service service{engine, {}, options()};
  static serve::ServiceOptions options() {
    serve::ServiceOptions options;
    options.name = "m";
    options.chat_template =
        "{% for t in tools or [] %}<tool_call>{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}{{ m.content }}{% "
        "for c in "
        "m.tool_calls or [] %}{{ c | tojson }}{% endfor %}{% endfor %}";
    return options;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Running running;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return 0;
  const serve::Route* route = &serve::routes()[static_cast<uint8_t>(input[0]) % serve::routes().size()];
  for (const serve::Route& each : serve::routes())
    if (each.path == input.substr(0, line) && each.fields != nullptr) route = &each;
  http::Request request;
  request.method = route->method;
  request.path = route->path;
  request.body = input.substr(line + 1);
  request.owner = "fuzz";
  const auto exchange = std::make_shared<Recorded>(std::move(request));
  serve::answer(running.service, exchange);
  if (exchange->wait() == 500) __builtin_trap();
  return 0;
}
