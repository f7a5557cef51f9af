#include "runtime/engine.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/mapped_file.h"
#include "base/memory.h"
#include "io/config_reader.h"
#include "kernels/table.h"
#include "model/abilities.h"
#include "model/config_file.h"
#include "ops/every_sequence.h"
#include "ops/listener_chain.h"
#include "ops/recorder.h"
#include "runtime/model_tokenizer.h"

namespace vitrine {
namespace {

// A copy costs about as much as four steps and gains up to a fifth of each.
constexpr int kStepsBeforeCopy = 32;

std::vector<Cpu> pinned_cpus(const EngineOptions& options) {
  if (options.pin == Pin::none) return {};
  return cpus_for_threads(read_cpus(), allowed_cpus(), options.threads > 0 ? options.threads : usable_cores());
}

std::vector<int> numbers_of(const std::vector<Cpu>& cpus) {
  std::vector<int> numbers;
  for (const Cpu& cpu : cpus) numbers.push_back(cpu.number);
  return numbers;
}

}  // namespace

Load load_named(std::string_view name) {
  if (name == "map") return Load::map;
  if (name == "copy") return Load::copy;
  if (name == "auto") return Load::automatic;
  throw UsageError("--load is \"" + std::string(name) + "\"; expected map, copy or auto");
}

Pin pin_named(std::string_view name) {
  if (name == "none") return Pin::none;
  if (name == "cores") return Pin::cores;
  throw UsageError("--pin is \"" + std::string(name) + "\"; expected none or cores");
}

CacheTypes cache_types_for(const OpenedModel& opened, const Numerics& numerics) {
  const auto& tensors = opened.checkpoint.tensors();
  const bool rounded = tensors.empty() || std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
                         return entry.second.shape.size() > 1 && entry.second.dtype != DType::f32;
                       });
  const DType type = rounded && !numerics.f32 && !numerics.exact ? DType::f16 : DType::f32;
  return {type, type};
}

Tensor FirstNotFinite::see(Context&, std::string_view hook, const Tensor& value) {
  int64_t found = -1;
  if (hook.ends_with("hook_attn_scores")) {  // masked scores are -inf by definition
    const std::span<const float> scores(value.data<float>(), static_cast<size_t>(value.count()));
    const auto nan = std::find_if(scores.begin(), scores.end(), [](float x) { return std::isnan(x); });
    if (nan != scores.end()) found = (nan - scores.begin()) / value.dim(value.shape().rank() - 1);
  } else {
    const int64_t width = value.dim(value.shape().rank() - 1);
    found = first_not_finite(heads_first(hook) ? value.view({value.count() / width, width}) : value);
  }
  if (found < 0) return {};
  name = hook;
  row = found;
  if (!heads_first(hook)) return {};
  const int rank = value.shape().rank();  // [head, query, key], or with the sequences of shown_row() in front
  const int64_t queries = value.dim(rank - 2);
  row = found % queries + (rank == 4 ? found / (queries * value.dim(1)) * queries : 0);
  return {};
}

Engine::Engine(std::string_view model, const EngineOptions& options) : Engine(open_model(model), options) {}

Engine::Engine(OpenedModel opened, const EngineOptions& options)
    : opened_(std::move(opened)),
      shape_(opened_.model->shape()),
      pinned_(pinned_cpus(options)),
      pool_(options.threads, numbers_of(pinned_)),
      ctx_(pool_),
      cache_types_(options.cache),
      decoding_types_(options.decode_narrow ? cache_types_for(opened_, options.numerics) : options.cache),
      load_(options.load) {
  ctx_.numerics = options.numerics;
  adapt(options.adapters);
  if (options.through) run_through(options.through(model()));
  if (load_ == Load::copy) copy_weights();
  if (opened_.gguf != nullptr && has_vocabulary(*opened_.gguf)) {
    tokenizer_ = tokenizer_from_gguf(*opened_.gguf);
  } else if (opened_.gguf == nullptr && has_tokenizer_files(opened_.files.directory)) {
    tokenizer_ = load_tokenizer(opened_.files.directory);
  } else {
    no_tokenizer_ = opened_.files.name + " has no tokenizer" +
                    (opened_.gguf != nullptr ? " in its metadata, and text needs one: take a file that has it"
                                             : ", and text needs one: put tokenizer.json, tokenizer.model or vocab.json + "
                                               "merges.txt beside its weights");
  }
}

void Engine::copy_weights() {
  std::vector<std::span<const std::byte>> maps;
  size_t bytes = 0;
  for (const MappedFile& file : opened_.checkpoint.files()) {
    maps.push_back(file.bytes());
    bytes += file.bytes().size();
  }
  const size_t available = available_memory();
  if (available != 0 && available / 5 * 4 < bytes) maps.clear();
  HugePageCopy::Near near;
  if (std::any_of(pinned_.begin(), pinned_.end(), [&](const Cpu& cpu) { return cpu.node != pinned_[0].node; })) {
    places_ = std::make_unique<WeightPlaces>(read_pieces(model(), ctx_.numerics, pool_.threads()), pinned_,
                                             only_allowed(read_cpus(), allowed_cpus()));
    near = [places = places_.get()](std::span<const std::byte> page) { return places->near(page); };
  }
  copy_ = std::make_unique<HugePageCopy>(std::move(maps), std::move(near));
}

void Engine::wait_for_copy() {
  if (copy_ != nullptr) copy_->wait();
}

void Engine::adapt(ScaledAdapters adapters) {
  adapters_ = std::move(adapters);
  adapted_rows_.clear();
  add_row_adapters(adapters_, 0, RowAdapter::kAllRows, adapted_rows_);
  ctx_.row_adapters = adapted_rows_;
}

const Tokenizer& Engine::tokenizer() const {
  if (tokenizer_ == nullptr) throw InputError(no_tokenizer_);
  return *tokenizer_;
}

std::optional<std::string> Engine::piece(int32_t id) const {
  if (tokenizer_ == nullptr || id < 0 || id >= tokenizer_->vocab_size()) return {};
  return tokenizer_->piece(id);
}

StreamDecoder Engine::decoder_behind(std::span<const int32_t> prompt) const {
  StreamDecoder decoder(tokenizer());
  for (const int32_t id : prompt)
    if (id < tokenizer().vocab_size()) decoder.push(id);
  return decoder;
}

std::string Engine::text_behind(std::span<const int32_t> prompt, std::span<const int32_t> ids) const {
  StreamDecoder decoder = decoder_behind(prompt);
  std::string text;
  for (const int32_t id : ids)
    if (id < tokenizer().vocab_size()) text += decoder.push(id);
  return text + decoder.flush();
}

std::vector<int32_t> Engine::prompt_ids(std::string_view text, bool add_special, Special special) const {
  std::vector<int32_t> ids = tokenizer().encode(text, add_special, special);
  if (ids.empty())
    throw InputError(text.empty()
                         ? "the prompt is empty and gets no BOS, so there is nothing to predict from; give some text"
                         : "the vocabulary has no token for any character of the prompt, so there is nothing to predict from; "
                           "give other text");
  return ids;
}

void Engine::check_ids(std::span<const int32_t> ids) const {
  if (ids.empty()) throw InputError("there are no tokens to run; give at least one");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= shape_.vocab_size)
      throw InputError("token " + std::to_string(ids[i]) + " at place " + std::to_string(i) + " is outside the vocabulary of " +
                       opened_.files.name + " (0 to " + std::to_string(shape_.vocab_size - 1) + ")");
  const auto n = static_cast<int64_t>(ids.size());
  if (shape_.context_length > 0 && n > shape_.context_length)
    throw InputError("the prompt has " + std::to_string(n) + " tokens; the context of " + opened_.files.name + " holds " +
                     std::to_string(shape_.context_length) + ". Shorten it; nothing is cut silently");
}

std::vector<int32_t> Engine::end_tokens() const {
  std::vector<int64_t> ids;
  if (opened_.gguf != nullptr) {
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
      if (opened_.gguf->has(key)) ids.push_back(opened_.gguf->integer(key));
  } else {
    if (!opened_.files.generation_config.is_null())
      ids = ConfigReader(opened_.files.generation_config, opened_.files.generation_config_path).counts("eos_token_id");
    if (ids.empty()) ids = config_token_ids(opened_.files, "eos_token_id");
  }
  if (ids.empty() && tokenizer_ != nullptr && tokenizer_->eos()) ids.push_back(*tokenizer_->eos());
  std::vector<int32_t> result;
  for (const int64_t id : ids)
    if (id >= 0 && id < shape_.vocab_size) result.push_back(static_cast<int32_t>(id));
  return result;
}

std::unique_ptr<KvCache> Engine::make_cache(int64_t positions) const { return cache_of(cache_types_, positions); }
std::unique_ptr<KvCache> Engine::decoding_cache(int64_t positions) const { return cache_of(decoding_types_, positions); }

std::unique_ptr<KvCache> Engine::cache_of(CacheTypes types, int64_t positions) const {
  require_causal(model(), name(), "A KV cache (generate, chat, serve, drafts, scores of next tokens)");
  int64_t context = positions > 0 ? positions : shape_.context_length;
  if (shape_.context_length > 0) context = std::min(context, shape_.context_length);
  return std::make_unique<KvCache>(model().cache_layers(types), context, std::min(context, kPrefillChunk));
}

Tensor Engine::run(const Step& step, std::span<const int64_t> rows) {
  if (load_ == Load::automatic && copy_ == nullptr && step.rows() <= static_cast<int64_t>(kFewRows) &&
      ++short_steps_ == kStepsBeforeCopy)
    copy_weights();
  const Tensor x = model().residual(ctx_, step), z = logits(ctx_, x, model().head(), rows);
  if (first_not_finite(x) >= 0 || first_not_finite(z) >= 0) report_not_finite(step, rows);
  return z;
}

void Engine::report_not_finite(const Step& step, std::span<const int64_t> rows) {
  // The step was not committed, so it can run again with somebody watching, behind who listens now.
  Listener* const before = ctx_.listener();
  const int heard = ctx_.listening_sequence();
  const bool together = before != nullptr && heard == kEverySequence;  // they must be heard as they were, or nothing repeats
  const auto all = step.sequences();
  for (size_t s = 0; s < (together ? 1 : all.size()); ++s) {
    FirstNotFinite watch;
    ListenerChain chain({together || static_cast<int>(s) == heard ? before : nullptr, &watch});
    ctx_.listen(&chain, together ? kEverySequence : static_cast<int>(s));
    logits(ctx_, model().residual(ctx_, step), model().head(), rows);
    ctx_.listen(before, heard);
    if (watch.row < 0) continue;
    const ShownRow shown = together ? shown_row(all, watch.row, heads_first(watch.name)) : ShownRow{s, watch.row};
    const int64_t row = all[shown.sequence].first_row + shown.row;
    throw RunError(
        "NaN or infinity appeared first in " + watch.name + " at position " +
        std::to_string(step.positions()[static_cast<size_t>(row)]) +
        (together && all.size() > 1 ? " of row " + std::to_string(shown.sequence) : "") + " (token " +
        std::to_string(step.tokens()[static_cast<size_t>(row)]) +
        "). Do the weights hold NaN, or does a hook put it there? `vitrine verify` or a trace of that hook shows more");
  }
  throw RunError("the logits hold NaN or infinity, although no intermediate does");
}

Tensor Engine::prefill(std::span<const int32_t> ids, CacheSequence& sequence) {
  const auto chunk = static_cast<size_t>(sequence.cache().largest_step());
  const size_t before = (std::max<size_t>(ids.size(), 1) - 1) / chunk * chunk;  // the last step's logits outlive it
  each_step(
      ids.first(before), sequence,
      [&](const Step& step, const Tensor& x, size_t) {
        const int64_t last = step.rows() - 1;
        if (first_not_finite(x) >= 0) report_not_finite(step, std::span(&last, 1));
      },
      ids.size());
  Step step;
  step.add(ids.subspan(before), &sequence);
  const int64_t last = step.rows() - 1;
  const Tensor z = run(step, std::span(&last, 1));
  step.commit();
  return z;
}

template <class F>
void Engine::each_row(const Step& step, const Tensor& x, std::span<const int64_t> rows, F&& see) {
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), static_cast<size_t>(kLogitRows)))) {
    const auto frame = ctx_.frame();
    const auto part = rows.first(std::min(rows.size(), static_cast<size_t>(kLogitRows)));
    const Tensor z = logits(ctx_, x, model().head(), part);
    if (first_not_finite(z) >= 0) report_not_finite(step, part);
    for (size_t i = 0; i < part.size(); ++i)
      see(part[i], std::span<const float>(z.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(z.row_size())));
  }
}

template <class F>
void Engine::each_logits(std::span<const int32_t> ids, CacheSequence& sequence, F&& see) {
  each_step(ids, sequence, [&](const Step& step, const Tensor& x, size_t begin) {
    std::vector<int64_t> rows(static_cast<size_t>(step.rows()));
    std::iota(rows.begin(), rows.end(), 0);
    each_row(step, x, rows, [&](int64_t row, std::span<const float> z) { see(begin + static_cast<size_t>(row), z); });
  });
}

std::vector<Prediction> Engine::predict(std::span<const int32_t> ids, int64_t top, bool all_positions) {
  check_ids(ids);
  std::vector<Prediction> result;
  if (!is_causal(model())) {  // one step. A model that fills masks predicts the token that stands at a position
    std::vector<int64_t> places(ids.size());
    std::iota(places.begin(), places.end(), 0);
    if (!all_positions && predicts_next(model()))
      places = {std::ssize(ids) - 1};
    else if (!all_positions)
      places = masked_places(opened_, tokenizer_.get(), ids);
    const auto frame = ctx_.frame();
    const Step step = Step::of(ids);
    each_row(step, model().residual(ctx_, step), places,
             [&](int64_t row, std::span<const float> z) { result.push_back({row, top_logprobs(z, static_cast<size_t>(top))}); });
    return result;
  }
  const std::unique_ptr<KvCache> cache = make_cache(static_cast<int64_t>(ids.size()));
  CacheSequence sequence = cache->sequence();
  if (!all_positions) {
    const auto frame = ctx_.frame();
    const Tensor z = prefill(ids, sequence);
    result.push_back({static_cast<int64_t>(ids.size()) - 1,
                      top_logprobs({z.data<float>(), static_cast<size_t>(z.count())}, static_cast<size_t>(top))});
    return result;
  }
  each_logits(ids, sequence, [&](size_t place, std::span<const float> logits) {
    result.push_back({static_cast<int64_t>(place), top_logprobs(logits, static_cast<size_t>(top))});
  });
  return result;
}

std::vector<Prediction> Engine::predict_batch(const std::vector<std::vector<int32_t>>& prompts, int64_t top) {
  if (!prompts.empty()) require_next_token(model(), name(), "A next token");
  for (const auto& prompt : prompts) check_ids(prompt);
  std::vector<Prediction> result;
  for (size_t begin = 0; begin < prompts.size();) {
    Step step;
    std::vector<int64_t> last;
    size_t end = begin;
    if (static_cast<int64_t>(prompts[begin].size()) > kPrefillChunk) {  // too long to share a step
      result.push_back(predict(prompts[begin++], top, false)[0]);
      continue;
    }
    for (; end < prompts.size(); ++end) {
      const auto n = static_cast<int64_t>(prompts[end].size());
      if (step.rows() + n > kPrefillChunk) break;
      step.add(prompts[end]);
      last.push_back(step.rows() - 1);
    }
    const auto frame = ctx_.frame();
    const Tensor z = run(step, last);
    for (size_t i = 0; i < last.size(); ++i)
      result.push_back(
          {static_cast<int64_t>(prompts[begin + i].size()) - 1,
           top_logprobs({z.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(z.row_size())}, static_cast<size_t>(top))});
    begin = end;
  }
  return result;
}

std::vector<float> Engine::token_logprobs(std::span<const int32_t> ids) {
  if (ids.empty()) return {};
  check_ids(ids.last(1));
  const std::span<const int32_t> read = ids.first(ids.size() - 1);  // the last one is scored and needs no position
  if (read.empty()) return {};
  check_ids(read);
  std::vector<float> result;
  const std::unique_ptr<KvCache> cache = make_cache(static_cast<int64_t>(read.size()));
  CacheSequence sequence = cache->sequence();
  each_logits(read, sequence, [&](size_t place, std::span<const float> logits) {
    const double lse = log_sum_exp(logits);
    result.push_back(static_cast<float>(static_cast<double>(logits[static_cast<size_t>(ids[place + 1])]) - lse));
  });
  return result;
}

std::optional<std::string> chat_template_of(const OpenedModel& opened) {
  if (opened.adapter != nullptr)
    for (const std::string& file : opened.adapter->files())
      if (const auto beside = std::filesystem::path(file).parent_path() / "chat_template.jinja"; std::filesystem::exists(beside))
        return read_file(beside.string(), 1 << 20);
  if (opened.gguf != nullptr) {
    if (!opened.gguf->has("tokenizer.chat_template")) return {};
    return std::string(opened.gguf->string("tokenizer.chat_template"));
  }
  const std::filesystem::path directory(opened.files.directory);
  if (const auto file = directory / "chat_template.jinja"; std::filesystem::exists(file))
    return read_file(file.string(), 1 << 20);
  const auto file = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return {};
  const Json config = read_json(file.string());
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"].is_null()) return {};
  const Json& found = config["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array())
    for (const Json& one : found)
      if (one.is_object() && one.value("name", "") == "default" && one.contains("template") && one["template"].is_string())
        return one["template"].get<std::string>();
  throw FileError(file.string(), "\"chat_template\" is neither a text nor a list with one named \"default\"");
}

}  // namespace vitrine
