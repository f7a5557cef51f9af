// POST /api/pull: a model from the hub into its cache on this machine, one at a time.
#include <mutex>
#include <string_view>

#include "serve/endpoints.h"
#include "serve/ollama.h"

namespace vitrine::serve {
namespace {

constexpr uint64_t kLines = 200;  // of progress for each file

/// The answer while a model is fetched: lines from the first progress on, so that what fails before has a status.
class PullAnswer {
 public:
  PullAnswer(std::shared_ptr<http::Exchange> exchange, bool streamed) : exchange_(std::move(exchange)), streamed_(streamed) {}

  // To a client that is there: the model is fetched for others, too.
  void tell(const OrderedJson& line) {
    if (!streamed_) return;
    if (stream_ == nullptr) {
      http::Response head;
      head.type = "application/x-ndjson";
      stream_ = exchange_->stream(std::move(head));
    }
    stream_->send(json_text(line) + "\n");
  }
  void progress(const PullStep& step) {
    const bool same = step.file == file_;
    if (same && step.arrived < told_ + step.total / kLines && step.arrived < step.total) return;
    file_ = step.file;
    told_ = step.arrived;
    tell({{"status", "pulling " + step.file}, {"total", step.total}, {"completed", step.arrived}});
  }
  void done() {
    const OrderedJson line = {{"status", "success"}};
    if (!streamed_) return exchange_->respond(json_response(line));
    tell(line);
    stream_->close();
  }
  /// False: nothing was told yet.
  bool fail(const ApiError& error) {
    if (stream_ == nullptr) return false;
    tell(error_json(error, ErrorForm::ollama));
    stream_->close();
    return true;
  }

 private:
  const std::shared_ptr<http::Exchange> exchange_;
  const bool streamed_;
  std::shared_ptr<http::Stream> stream_;
  std::string file_;
  uint64_t told_ = 0;
};

// OWNER/NAME:TYPE of "hf.co/OWNER/NAME:TYPE" and "OWNER/NAME:latest".
std::string hub_name(const std::string& name) {
  std::string_view rest = name;
  for (const std::string_view host : {"https://", "hf.co/", "huggingface.co/"})
    if (rest.starts_with(host)) rest.remove_prefix(host.size());
  if (rest.find('/') == std::string_view::npos)
    throw invalid("model", "\"model\" is \"" + name +
                               "\"; expected a model of the Hugging Face hub, such as Qwen/Qwen3-0.6B-GGUF:Q8_0: this server has "
                               "no other source");
  return without_ollama_tag(std::string(rest));
}

}  // namespace

const std::vector<Field>& ollama_pull_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field name{"model", text, "OWNER/NAME of the Hugging Face hub, as `vitrine pull` takes it, also with hf.co/ in front."},
        old = name;
    old.name = "name", old.same_as = "model", old.about = "The same as `model`.";
    return std::vector<Field>{name,
                              old,
                              {"stream", boolean, "Progress as one JSON object a line. Default: true."},
                              Field::refused("insecure", "only the hub is asked, with its certificate", "[false]")};
  }();
  return table;
}

void ollama_pull(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Fields fields(exchange->request().body, ollama_pull_fields(), service.options().strict_fields);
  if (!service.options().pull)
    throw unsupported("",
                      "/api/pull is not supported here: without keys a server fetches models for this machine alone. Instead, "
                      "`vitrine pull NAME` downloads a model");
  const std::optional<std::string> name = fields.text("model");
  if (!name) throw invalid("model", "\"model\" is missing; expected a string", "missing_required_parameter");
  const std::string wanted = hub_name(*name);
  std::unique_lock pulling(service.pulling(), std::try_to_lock);
  if (!pulling) {
    ApiError busy(429, "rate_limit_exceeded", "another model is being pulled; wait for it");
    busy.retry_after = 10;
    throw busy;
  }
  PullAnswer answer(exchange, fields.boolean("stream", true));
  try {
    service.options().pull(wanted, [&](const PullStep& step) { answer.progress(step); });
    pulling.unlock();  // who has the answer may pull the next one
    answer.done();
  } catch (...) {
    if (pulling.owns_lock()) pulling.unlock();
    if (!answer.fail(api_error(std::current_exception()))) throw;
  }
}

}  // namespace vitrine::serve
