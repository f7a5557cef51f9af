#pragma once
// An opened model with its tokenizer, threads and memory: what every command and the public library run on.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/huge_pages.h"
#include "model/adapter.h"
#include "model/load.h"
#include "ops/context.h"
#include "ops/kv_cache.h"
#include "runtime/logits.h"
#include "runtime/weight_places.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

/// Where weights are read from.
enum class Load : uint8_t {
  map,        // the mapped file: pages are shared with every process that maps it
  copy,       // huge pages of this process's own (HugePageCopy), from the beginning
  automatic,  // them, once a run goes on for long enough to win back the copy, where memory allows
};
/// Errors: UsageError that names --load, what was found and the three words.
Load load_named(std::string_view name);

/// Whether threads stay on one processor each.
enum class Pin : uint8_t {
  none,   // the system moves them: right where other programs run too
  cores,  // cpus_for_threads(); weights that are copied to huge pages lie near the threads that read them
};
/// Errors: UsageError that names --pin, what was found and the two words.
Pin pin_named(std::string_view name);

struct EngineOptions {
  int threads = 0;  // 0: the cores this process may use
  Numerics numerics = {};
  CacheTypes cache = {};         // of the caches that make_cache gives
  bool decode_narrow = false;    // those of decoding_cache have the types of cache_types_for() instead
  ScaledAdapters adapters = {};  // as adapt()
  Load load = Load::map;
  Pin pin = Pin::none;
  /// Makes what runs go through of the model of the files (Engine::run_through); empty: that model itself.
  std::function<std::shared_ptr<const Model>(const Model&)> through = {};
};

/// The types of a cache whose rounding is finer than that of the products it stands beside: f16 for a model with matrices in 16
/// bits or blocks (or without weights), f32 for others, and where everything is computed in f32 or exactly.
CacheTypes cache_types_for(const OpenedModel& opened, const Numerics& numerics);

/// Rows of a prompt that go through the model together. Longer prompts are cut; with Numerics::exact that changes no bit.
inline constexpr int64_t kPrefillChunk = 512;
/// Rows of the vocabulary's width that exist at once.
inline constexpr int64_t kLogitRows = 64;

/// Notes the first hook of a run that holds a NaN or an infinity, and in which row.
class FirstNotFinite final : public Listener {
 public:
  std::string name;
  int64_t row = -1;
  bool wants(std::string_view) const override { return row < 0; }
  Tensor see(Context& ctx, std::string_view hook, const Tensor& value) override;
};

/// What the model expects after one position.
struct Prediction {
  int64_t position = 0;
  std::vector<TokenLogprob> top;  // most likely first

  VITRINE_MEMBERS(position, top);
};

/// Not thread-safe: one call at a time.
class Engine {
 public:
  /// Opens files and tokenizer. A model without a tokenizer runs on token ids. Errors: as open_model and load_tokenizer.
  explicit Engine(std::string_view model, const EngineOptions& options = {});
  /// Runs a model whose weights are somebody's: a trainer's buffers. The tokenizer is that of the model's directory.
  explicit Engine(OpenedModel opened, const EngineOptions& options = {});

  /// What runs: the model of the files, or the one that runs go through.
  const Model& model() const { return through_ != nullptr ? *through_ : *opened_.model; }
  /// Runs go through `model` from now on, which wraps that of the files (hooks/spliced_model.h); null: through that one.
  void run_through(std::shared_ptr<const Model> model) { through_ = std::move(model); }
  OpenedModel& opened() { return opened_; }
  const OpenedModel& opened() const { return opened_; }
  const ModelShape& shape() const { return shape_; }
  Context& context() { return ctx_; }
  const std::string& name() const { return opened_.files.name; }
  /// Every run has these adapters from now on, in this order, until others are given; none: the model is as it lies.
  void adapt(ScaledAdapters adapters);

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  /// Errors: InputError saying that this model has none and that --tokens works without.
  const Tokenizer& tokenizer() const;
  /// An id as the vocabulary spells it. Nothing without a tokenizer and for an id that has no piece: a model may have more rows
  /// than its tokenizer has pieces.
  std::optional<std::string> piece(int32_t id) const;
  /// What turns the ids behind `prompt` into the text behind the prompt's: many a tokenizer takes the space off the first piece
  /// of a text, and none of theirs is it. Errors: as tokenizer().
  StreamDecoder decoder_behind(std::span<const int32_t> prompt) const;
  /// The text of ids behind a prompt; those without a piece have none. Errors: as tokenizer().
  std::string text_behind(std::span<const int32_t> prompt, std::span<const int32_t> ids) const;

  /// The ids of a prompt, BOS by the tokenizer's rule unless `add_special` is false. Errors: InputError for an empty result.
  std::vector<int32_t> prompt_ids(std::string_view text, bool add_special = true, Special special = Special::as_file) const;
  /// Errors: InputError for no ids, an id outside the vocabulary (with its place), or more than the context holds.
  void check_ids(std::span<const int32_t> ids) const;

  /// Ends of text: generation_config.json, else config.json or GGUF's key, else the tokenizer's.
  std::vector<int32_t> end_tokens() const;

  /// What the model expects next, after every position or after the last one only.
  /// `top` most likely tokens each. Errors: as check_ids; RunError naming layer, op and token of a NaN.
  std::vector<Prediction> predict(std::span<const int32_t> ids, int64_t top, bool all_positions);

  /// The last position of each of several prompts, run together. Errors: as predict.
  std::vector<Prediction> predict_batch(const std::vector<std::vector<int32_t>>& prompts, int64_t top);

  /// Log-probabilities of ids[1..], each given what precedes it. The last needs no position: context + 1 ids will do.
  std::vector<float> token_logprobs(std::span<const int32_t> ids);

  /// An empty cache for sequences of up to `positions` (0: the model's context) and steps of up to kPrefillChunk rows.
  std::unique_ptr<KvCache> make_cache(int64_t positions) const;

  CacheTypes cache_types() const { return cache_types_; }
  /// The same for sequences that are written, not scored: their types may be narrower (EngineOptions::decode_narrow).
  std::unique_ptr<KvCache> decoding_cache(int64_t positions) const;
  CacheTypes decoding_types() const { return decoding_types_; }

  /// Bytes of the weights that lie in huge pages by now.
  size_t huge_bytes() const { return copy_ == nullptr ? 0 : copy_->bytes(); }
  /// Waits until all of them do that will, if their copy has begun.
  void wait_for_copy();

  /// Runs the step and gives the logits of these rows [rows, vocab_size], valid until the context's next frame ends.
  /// The step is not committed. Errors: RunError naming the layer, op and token where a NaN or infinity first appeared, in
  /// whatever row.
  Tensor run(const Step& step, std::span<const int64_t> rows);

  /// Runs ids through the cache, in steps as large as it takes, and commits them. For each step see(step, stream behind the last
  /// block [rows, d_model], place in ids of its first row); what it is shown is valid during the call. prompt: the length of the
  /// whole prompt, where ids are its beginning.
  template <class F>
  void each_step(std::span<const int32_t> ids, CacheSequence& sequence, F&& see, size_t prompt = 0) {
    const auto chunk = static_cast<size_t>(sequence.cache().largest_step());
    for (size_t begin = 0; begin < ids.size(); begin += chunk) {
      Step step;
      step.add(ids.subspan(begin, std::min(chunk, ids.size() - begin)), &sequence,
               static_cast<int64_t>(std::max(ids.size(), prompt)));
      const auto frame = ctx_.frame();
      see(step, model().residual(ctx_, step), begin);
      step.commit();
    }
  }

  /// Runs ids through the cache in steps and commits them; the logits of the last one.
  Tensor prefill(std::span<const int32_t> ids, CacheSequence& sequence);

  /// For a step that gave a NaN or infinity and was not committed: runs it again and throws the RunError of run().
  [[noreturn]] void report_not_finite(const Step& step, std::span<const int64_t> rows);

 private:
  // see(row, its logits [vocab_size]) for rows of a step with the residual stream x, some at a time.
  // Errors: RunError for NaN and infinity.
  template <class F>
  void each_row(const Step& step, const Tensor& x, std::span<const int64_t> rows, F&& see);
  // Runs ids through the cache and commits them: see(place in ids, logits [vocab_size] there), places in order.
  template <class F>
  void each_logits(std::span<const int32_t> ids, CacheSequence& sequence, F&& see);

  std::unique_ptr<KvCache> cache_of(CacheTypes types, int64_t positions) const;
  // Begins to copy the weights into huge pages. Nothing happens where memory is short.
  void copy_weights();

  OpenedModel opened_;
  std::shared_ptr<const Model> through_;
  ModelShape shape_;
  std::vector<Cpu> pinned_;  // the processor of each thread; empty: they are not pinned
  ThreadPool pool_;
  Context ctx_;
  ScaledAdapters adapters_;
  std::vector<RowAdapter> adapted_rows_;  // all, by each of adapters_
  CacheTypes cache_types_, decoding_types_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string no_tokenizer_;  // why there is none
  Load load_;
  int short_steps_ = 0;                   // that were run
  std::unique_ptr<WeightPlaces> places_;  // of a machine with several nodes
  std::unique_ptr<HugePageCopy> copy_;    // ends before the maps do
};

/// The chat template of a model's files, or nothing: its adapter's chat_template.jinja, its own, tokenizer_config.json's
/// chat_template (the one named "default" of several), GGUF's tokenizer.chat_template.
std::optional<std::string> chat_template_of(const OpenedModel& opened);

}  // namespace vitrine
