#include "serve/inside.h"

#include <fmt/format.h>

#include <utility>

#include "base/shell_word.h"
#include "ops/stopping.h"
#include "serve/chat_prompt.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"

namespace vitrine::serve {

InsideRun::InsideRun(Service& service, const std::shared_ptr<http::Exchange>& exchange, ScaledAdapters adapters)
    : service_(service),
      adapters_(std::move(adapters)),
      owner_(exchange->request().owner),
      gone_(std::make_shared<std::atomic<bool>>(false)) {
  exchange->on_gone([gone = gone_] { *gone = true; });
}

InsideRun::~InsideRun() {
  if (counted_) --service_.inside();
}

void InsideRun::begin() {
  if (counted_) return;
  const int most = service_.options().most_inside;
  if (service_.inside().fetch_add(1) >= most) {
    --service_.inside();
    ApiError busy(429, "rate_limit_exceeded",
                  "as many requests as may look inside the model at once are under way, which is " + std::to_string(most));
    busy.retry_after = 1;
    throw busy;
  }
  counted_ = true;
}

void InsideRun::operator()(const std::function<void(Engine&)>& work) {
  begin();
  service_.scheduler()
      .run(
          [&](Engine& engine) {
            const Stopping stopping(engine.context(), *gone_);
            const Adapted adapted(engine, adapters_);
            work(engine);
          },
          owner_, begun_)
      .get();
  begun_ = true;
}

Host host_of(Service& service, InsideRun* run) {
  Host host{.engine = service.engine(), .name = service.engine().name(), .run = {}, .files = true};
  host.lens = service.options().lens;
  host.lens_file = service.options().lens_file;
  if (run != nullptr) {
    host.run = [run](const std::function<void(Engine&)>& work) { (*run)(work); };
    host.gone = &run->gone();
  }
  host.chat = [&service](const OrderedJson& messages, Fields& fields) {
    Conversation conversation;
    conversation.messages = read_messages(messages, fields);
    std::vector<int32_t> ids = chat_prompt(service, conversation).ids;
    check_room(service, ids.size(), "messages");
    return ids;
  };
  return host;
}

OrderedJson command_line(const Service& service, const std::vector<std::string>& words, const ScaledAdapters& adapters,
                         const std::vector<int32_t>& ids) {
  std::string line = "vitrine";
  for (const std::string& word : words) line += " " + word;
  for (size_t i = 0; i < ids.size(); ++i) line += (i == 0 ? " --tokens " : ",") + std::to_string(ids[i]);
  line += " --model " + shell_word(service.shown_path());
  if (const std::string& options = service.options().command_options; !options.empty()) line += " " + options;
  for (const auto& [adapter, scale] : adapters) {
    const std::string& directory = adapter->directory();
    line += " --lora " + shell_word(fmt::format("{}:{}", service.options().show_paths ? directory : last_part(directory), scale));
  }
  return line;
}

}  // namespace vitrine::serve
