#pragma once
// The values at hooks over a whole corpus, written to disk as they are computed (docs/collect.md).
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/activations.h"
#include "io/shared_work.h"
#include "io/text_reader.h"
#include "runtime/engine.h"

namespace vitrine {

/// Token ids of documents, one after the other.
class DocumentTokens {
 public:
  virtual ~DocumentTokens() = default;
  /// The next ids, of one document; false after the last. begins: they are its first. A document comes in pieces of any size.
  virtual bool next(std::vector<int32_t>& ids, bool& begins) = 0;
  /// How much was read, 0 to 1.
  virtual double share() const = 0;
};

/// Of text files, tokenized as they are read: memory does not grow with them. Control tokens spelled out in the text stay text.
/// Errors: as TextReader and Tokenizer::encode; FileError for a file that cannot be opened, before any is read.
std::unique_ptr<DocumentTokens> text_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                                            const TextOptions& text);

struct CollectOptions {
  std::vector<std::string> hooks = {};  // requests as HookQuery describes them, without slices
  std::string out = {};                 // the folder to make
  DType type = DType::f32;              // of the values on disk: f32, f16 or bf16
  int64_t context = 0;                  // most tokens run together; 0: 256, or what the model holds
  bool special = true;                  // every context begins with BOS, if the tokenizer puts one in front of texts
  uint64_t max_tokens = 0;              // collected, at most; 0: the whole text
  uint64_t shard_bytes = uint64_t{256} << 20;
  bool resume = false;  // goes on behind the last whole shard of an unfinished folder
};

struct CollectProgress {
  uint64_t tokens = 0, contexts = 0;  // of the folder
  double share = 0;                   // of the text, or of max_tokens
  double tokens_per_s = 0;            // of this call
};

struct Collected {
  ActivationManifest manifest;
  uint64_t computed = 0;  // tokens that this call ran
  double seconds = 0;     // that it took for them: reading, tokenizing, computing, writing
};

/// Cuts each document into contexts, runs them, and writes the values at hooks of every token as shards of at most shard_bytes,
/// with the tokens' ids and positions. No context holds two documents. Blocks behind the last hook are left out, as is the head.
/// Memory stays at a step's, whatever the corpus. A shard has its name when it is whole, and the manifest lists whole shards:
/// a run that is killed loses the shard it was in. Resumed, it gives the bytes of a run that was not.
///
/// shared: whose units are the steps; without it all are computed here. Unless it gives all, `out` is not touched, and the result
/// has counts alone. It is finished before the manifest says that the folder is complete.
///
/// Errors: as plan_captures and SharedWork; InputError for a hook whose value is not a row for each token (patterns, logits),
/// slices, a context longer than the model's, an `out` that holds something (without resume), and for a resumed folder made from
/// another model, text or options; RunError from the disk, and naming hook and token of a NaN or of a number that f16 cannot
/// hold.
Collected collect(Engine& engine, DocumentTokens& documents, const CollectOptions& options,
                  const std::function<void(const CollectProgress&)>& progress = {}, SharedWork* shared = nullptr);

}  // namespace vitrine
