#pragma once
// The library: open a model, predict, generate text, read and change intermediates.
//
//   #include <vitrine/vitrine.h>
//   #include <cstdio>
//
//   int main() {
//     vitrine::LanguageModel model("google/gemma-2b");
//     const auto expected = model.predict("I want to move");
//     for (const vitrine::NextToken& next : expected.back().top)
//       std::printf("%6.2f %%  %s\n", 100 * next.probability(), next.piece.c_str());
//     const auto seen = model.trace("I want to move", {"blocks.*.attn.hook_pattern"});
//     std::printf("%zu attention patterns\n", seen.size());
//   }
//
// Errors are exceptions of vitrine/error.h: InputError where the input is wrong (files, ids, options, hook names), RunError
// where a run failed on valid input (NaN, memory, disk). Their what() is a message for the user.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vitrine/error.h"
#include "vitrine/float_vector.h"
#include "vitrine/sampling.h"
#include "vitrine/version.h"

namespace vitrine {

/// How a model is opened.
struct OpenOptions {
  int threads = 0;           // 0: as many as this process has cores
  bool compute_f32 = false;  // widen stored weights and compute everything in f32; otherwise 16-bit and quantized weights
                             // multiply operands rounded to match (docs/numerics.md)
  bool exact = false;        // same kernels: bit-identical for any batch, chunking and cache state
  // The types of the keys and values that a generation caches: "f32", "f16", "q8_0" or "q4_0". Smaller types take less memory and
  // are faster, but are rounded (docs/numerics.md).
  std::string cache_type_k = "f32", cache_type_v = "f32";
};

/// A token that may come next.
struct NextToken {
  std::int32_t token = 0;
  std::string piece;  // as the vocabulary spells it; empty without a tokenizer
  float logprob = 0;  // natural logarithm of its probability, under the model's unmodified logits
  double probability() const;
};

/// The model's prediction after one position of a prompt.
struct NextTokens {
  std::int64_t position = 0;   // of the last token before the prediction
  std::vector<NextToken> top;  // most likely first
};

/// A named intermediate during a run: it can be read or changed in place, and the run continues with the new values.
struct HookView {
  std::string_view name;                // in full: "blocks.3.attn.hook_pattern"
  std::int64_t first_position = 0;      // of the first row (of scores and patterns: the first query)
  std::span<const std::int64_t> shape;  // row-major: [position, …], scores and patterns [head, query, key]
  std::span<float> values;
};

/// Calls `change` at every hook whose name matches `hook`: a name, a pattern ("blocks.*.hook_attn_out") or an alias, as in
/// LanguageModel::trace, without slices. Called once per step of the run: a long prompt is several steps, and each new token is
/// one. With lookup or draft several tokens are one step, including rejected drafts.
struct HookEdit {
  std::string hook = {};
  std::function<void(const HookView&)> change = {};
};

struct PredictOptions {
  std::int64_t top = 10;       // tokens per position, at most the vocabulary
  bool all_positions = false;  // after every token of the prompt, or only after the last
  std::vector<HookEdit> edits = {};
};

class LanguageModel;

/// How text is continued.
struct GenerationOptions {
  std::int64_t max_tokens = 128;
  SamplingOptions sampling = {};                             // what chooses tokens
  std::vector<std::string> stops = {};                       // strings that end the text; not part of it
  std::optional<std::vector<std::int32_t>> end_tokens = {};  // default: the model's own
  std::function<void(std::string_view)> on_text = {};        // text as it becomes certain: whole characters
  // Speculative decoding: faster, with the same tokens. At most one of the two.
  std::int64_t lookup = 0;         // prompt lookup: draft up to this many tokens, 1 to 7; 0: off
  LanguageModel* draft = nullptr;  // a smaller model of the same vocabulary, which drafts draft_tokens (1 to 7) tokens
  std::int64_t draft_tokens = 4;
  std::vector<HookEdit> edits = {};
};

struct GeneratedText {
  std::string text;                  // the new text; empty without a tokenizer
  std::vector<std::int32_t> tokens;  // the new ones, including the end token
  std::vector<float> logprobs;       // natural logarithm, one for each new token
  std::string finish_reason;         // "stop": end token or stop string; "length": max_tokens, or the context is full
  std::int64_t drafted_tokens = 0, accepted_tokens = 0;  // with lookup or draft: drafted tokens, and the accepted ones
};

/// A copy of one intermediate.
struct HookValue {
  std::vector<std::int64_t> shape;  // row-major
  FloatVector values;
};

struct ModelDescription {
  std::string name, family;
  std::int64_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0, vocab_size = 0;
  std::int64_t context_length = 0;  // positions; 0: any number
  std::int64_t parameters = 0;      // every number of every tensor once
  bool tied = false;                // the embedding is the output matrix
  std::string tokenizer;            // in words; empty if there is none
  std::string kernels;              // those used on this machine: "avx2", "avx512", "avx512_bf16", "amx", "neon", "reference"
  std::vector<std::string> hooks;   // every hook name, in the order of the run
};

/// A model with its tokenizer, ready to run. Not thread-safe: one call at a time; two objects may run at the same time.
class LanguageModel {
 public:
  /// `model`: a Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache. Files are mapped, not read.
  /// Errors: InputError naming the file and what is wrong with it.
  explicit LanguageModel(std::string_view model, const OpenOptions& options = {});
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  ModelDescription description() const;

  /// Ids of `text`; `add_special` adds BOS (and EOS) if the tokenizer does. Any bytes are accepted.
  /// Errors: InputError if the model has no tokenizer.
  std::vector<std::int32_t> tokenize(std::string_view text, bool add_special = true) const;
  /// The text of `tokens`, byte for byte as the tokenizer's reference library gives it.
  /// Errors: InputError for an id outside the vocabulary, or without a tokenizer.
  std::string detokenize(std::span<const std::int32_t> tokens) const;

  /// The model's prediction after the prompt, or after each of its tokens. Prompts given as tokens are used unchanged.
  /// Errors: InputError for an empty prompt, an id outside the vocabulary, a prompt longer than the context, a hook name
  /// that the model does not have; RunError for NaN or infinite logits, naming where they first appeared.
  std::vector<NextTokens> predict(std::string_view text, const PredictOptions& options = {});
  std::vector<NextTokens> predict(std::span<const std::int32_t> tokens, const PredictOptions& options = {});

  /// Continues the prompt. Errors: as predict; InputError naming the option that is out of its range, for lookup together with
  /// draft, for a draft model of another vocabulary, and for drafts with a model that has recurrent layers.
  GeneratedText generate(std::string_view text, const GenerationOptions& options = {});
  GeneratedText generate(std::span<const std::int32_t> tokens, const GenerationOptions& options = {});

  /// Intermediates of one run over the prompt, by full hook name. `hooks` are names, patterns in which * matches any characters,
  /// or aliases ("resid_post", "pattern.3"), each optionally with slices: "blocks.*.attn.hook_pattern[heads=0:2,positions=-1]".
  /// hook_logits is [position, vocab_size]; scores and patterns are [head, query, key] over all keys; everything else has the
  /// positions first. Edits are applied before a value is copied.
  /// Errors: InputError for a request that matches no hook, with the nearest names, and for more bytes than fit in memory;
  /// otherwise as predict. NaN is not an error here: it is returned.
  std::map<std::string, HookValue> trace(std::string_view text, const std::vector<std::string>& hooks,
                                         const std::vector<HookEdit>& edits = {});
  std::map<std::string, HookValue> trace(std::span<const std::int32_t> tokens, const std::vector<std::string>& hooks,
                                         const std::vector<HookEdit>& edits = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vitrine
