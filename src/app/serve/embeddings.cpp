// POST /v1/embeddings: the mean over a text's tokens of the residual stream behind the final norm, scaled to length 1.
#include "serve/embeddings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "base/base64.h"
#include "base/error.h"
#include "ops/stopping.h"
#include "serve/endpoints.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"
#include "serve/token_text.h"

namespace vitrine::serve {
namespace {

constexpr size_t kPartTokens = 128;  // about as many as the scheduler reads of a prompt beside streams

/// Reads a text in parts.
class Pooling {
 public:
  /// Errors: as Engine::check_ids.
  Pooling(const Engine& engine, const std::vector<int32_t>& ids)
      : ids_(ids), sum_(static_cast<size_t>(engine.shape().d_model), 0.0) {
    engine.check_ids(ids);
    cache_ = engine.make_cache(std::ssize(ids));
    sequence_ = cache_->sequence();
  }

  /// Whether there is more to read.
  bool read(Engine& engine) {
    const std::span<const int32_t> rest = std::span(ids_).subspan(read_), part = rest.first(std::min(rest.size(), kPartTokens));
    const auto see = [&](const Step& step, const Tensor& residual, size_t) {
      for (int64_t row = 0; row < step.rows(); ++row) {
        const float* x = residual.row<float>(row);
        for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += x[i];
      }
    };
    engine.each_step(part, *sequence_, see, ids_.size());
    read_ += part.size();
    return read_ < ids_.size();
  }

  /// Errors: RunError for a NaN.
  std::vector<float> embedding() const {
    double squares = 0;
    for (const double x : sum_) squares += x * x;
    if (!std::isfinite(squares)) throw RunError("the residual stream holds a NaN or an infinity");
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;  // the mean's factor cancels
    std::vector<float> embedding;
    embedding.reserve(sum_.size());
    for (const double x : sum_) embedding.push_back(static_cast<float>(x * scale));
    return embedding;
  }

 private:
  const std::vector<int32_t>& ids_;
  std::vector<double> sum_;
  size_t read_ = 0;
  std::unique_ptr<KvCache> cache_;
  std::optional<CacheSequence> sequence_;  // in the cache
};

static_assert(std::endian::native == std::endian::little);  // as clients read the bytes of a vector

/// A job of the scheduler's for each text, one behind the other, in parts: streams get their steps in between.
class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
 public:
  EmbeddingAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, std::vector<std::vector<int32_t>> inputs,
                  ScaledAdapters adapters, OrderedJson json, AddEmbedding add, ErrorForm form)
      : service_(service),
        scheduler_(service.shared_scheduler()),
        exchange_(std::move(exchange)),
        inputs_(std::move(inputs)),
        adapters_(std::move(adapters)),
        json_(std::move(json)),
        add_(std::move(add)),
        form_(form) {}

  /// Errors: as Scheduler::run; then nothing was answered.
  void begin() {
    exchange_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->gone_ = true;
    });
    submit();
  }

 private:
  void submit() {
    const std::shared_ptr<Scheduler> scheduler = scheduler_.lock();
    if (scheduler == nullptr) throw Draining("this server ends");
    const auto part = [self = shared_from_this()](Engine& engine) { return self->work(engine); };
    scheduler->run_in_parts(part, exchange_->request().owner, next_ > 0);
  }

  // On the scheduler's thread. Whether there is more of this text.
  bool work(Engine& engine) {
    std::exception_ptr error;
    try {
      const Stopping stopping(engine.context(), gone_);
      const Adapted adapted(engine, adapters_);
      if (!pooling_) pooling_.emplace(engine, inputs_[next_]);
      if (pooling_->read(engine)) return true;
      embedding_ = pooling_->embedding();
    } catch (...) {
      error = std::current_exception();
    }
    pooling_.reset();
    service_.answers().post([self = shared_from_this(), error] { self->take(error); });
    return false;
  }

  // On the thread of answers.
  void take(std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
      add_(json_, embedding_);
      service_.count_tokens(*exchange_, std::ssize(inputs_[next_]), 0);
      if (++next_ < inputs_.size()) return submit();
      exchange_->respond(json_response(json_));
    } catch (...) {
      exchange_->respond(error_response(api_error(std::current_exception()), form_));
    }
  }

  Service& service_;
  const std::weak_ptr<Scheduler> scheduler_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::vector<std::vector<int32_t>> inputs_;
  const ScaledAdapters adapters_;
  OrderedJson json_;
  const AddEmbedding add_;
  const ErrorForm form_;
  size_t next_ = 0;
  std::optional<Pooling> pooling_;  // of the text that is being read
  std::vector<float> embedding_;
  std::atomic<bool> gone_{false};
};

// llama.cpp's forms: {"prompt_string": …}, or {"content": [parts of text]}, which are joined as they are.
std::string object_text(const OrderedJson& json) {
  if (const auto text = json.find("prompt_string"); text != json.end() && text->is_string()) return text->get<std::string>();
  const auto content = json.find("content");
  if (content == json.end() || !content->is_array() || content->empty())
    throw invalid("input", "\"input\" holds an object without a string \"prompt_string\" or a list \"content\"", "invalid_type");
  std::string text;
  for (const OrderedJson& part : *content) {
    if (!part.is_object() || part.value("type", OrderedJson()) != "text" || !part.contains("text") || !part["text"].is_string())
      throw invalid("input", "\"input\" has a part that is no {\"type\": \"text\", \"text\": …}; this model reads only text",
                    "unsupported_content");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

std::vector<std::vector<int32_t>> read_inputs(const OrderedJson& input, const Engine& engine) {
  std::vector<std::vector<int32_t>> all;
  const auto add = [&](const OrderedJson& each) {
    if (each.is_string()) return all.push_back(engine.prompt_ids(each.get_ref<const std::string&>()));
    if (each.is_object()) return all.push_back(engine.prompt_ids(object_text(each)));
    if (!each.is_array() || each.empty())
      throw invalid("input", "\"input\" holds " + kind_of(each) + "; expected strings or lists of ids", "invalid_type");
    all.push_back(mixed_ids(engine, each, "input", Special::as_file));
  };
  if (input.is_array() && input.empty()) throw invalid("input", "\"input\" is an empty list; give text or ids");
  if (!input.is_array() || input[0].is_number()) {
    add(input);
    return all;
  }
  check_embedded_texts(input.size());
  for (const OrderedJson& each : input) add(each);
  return all;
}

}  // namespace

void check_embedded_texts(size_t count) {
  constexpr size_t kMost = 2048;  // as OpenAI takes them
  if (count > kMost)
    throw invalid("input", "\"input\" has " + std::to_string(count) + " texts; expected " + std::to_string(kMost) +
                               " at most, so send several requests");
}

void check_width(const Fields& fields, const Engine& engine) {
  const int64_t width = engine.shape().d_model;
  if (const int64_t wanted = fields.integer("dimensions").value_or(width); wanted != width)
    throw invalid("dimensions", "\"dimensions\" is " + std::to_string(wanted) + "; this model's vectors have " +
                                    std::to_string(width) + ", and nothing is cut");
}

void answer_embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange,
                       std::vector<std::vector<int32_t>> inputs, ScaledAdapters adapters, OrderedJson json, AddEmbedding add,
                       ErrorForm form) {
  std::make_shared<EmbeddingAnswer>(service, exchange, std::move(inputs), std::move(adapters), std::move(json), std::move(add),
                                    form)
      ->begin();
}

const std::vector<Field>& embedding_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field input{"input", text | list | object,
                "A string, a list of ids, or a list of either, at most 2048: a vector for each. As in llama.cpp, a list of "
                "ids may contain strings, and {\"prompt_string\": …} and {\"content\": [parts of text]} can replace a string."};
    input.required = true;
    return std::vector<Field>{model_field(),
                              input,
                              {"encoding_format", text, "float (the default), or base64: little-endian 32-bit floats."},
                              {"dimensions", integer, "The model's width; others are refused.", Use::honored, 1, 1e9},
                              lora_fields()[0],
                              Field::ignored("user", "The user of the request; has no effect.")};
  }();
  return table;
}

void embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, embedding_fields(), service.options().strict_fields);
  const std::string model = service.model_named(fields.text("model"));
  std::vector<std::vector<int32_t>> inputs = read_inputs(*fields.find("input"), service.engine());
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    throw invalid("encoding_format", "\"encoding_format\" is \"" + format + "\"; expected float or base64");
  check_width(fields, service.engine());
  int64_t tokens = 0;
  for (const std::vector<int32_t>& ids : inputs) {
    check_room(service, ids.size(), "input");
    tokens += static_cast<int64_t>(ids.size());
  }
  ScaledAdapters adapters = read_adapters(fields, service);
  OrderedJson head = {{"object", "list"}, {"model", model}, {"pooling", "mean"}, {"normalized", "l2"}};
  fields.add_ignored(head);
  head["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  head["data"] = OrderedJson::array();
  const auto add = [as_base64 = format == "base64"](OrderedJson& json, const std::vector<float>& embedding) {
    OrderedJson& data = json["data"];
    data.push_back(
        {{"object", "embedding"},
         {"index", data.size()},
         {"embedding", as_base64 ? OrderedJson(base64(std::as_bytes(std::span(embedding)))) : OrderedJson(embedding)}});
  };
  answer_embeddings(service, exchange, std::move(inputs), std::move(adapters), std::move(head), add, ErrorForm::openai);
}

void rerank(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  throw unsupported("", exchange->request().path +
                            " is not supported: language models have no output that says how well a document answers a query. "
                            "Instead, compare vectors of /v1/embeddings, or the log-probabilities that /v1/score gives a query "
                            "after each document");
}

}  // namespace vitrine::serve
