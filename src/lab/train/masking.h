#pragma once
// Masked language modeling: tokens of a batch are hidden, and the model is scored on what they were. BERT: Devlin et al.,
// arXiv:1810.04805, section 3.1.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/data/batch_source.h"

namespace vitrine {

struct OpenedModel;
class Model;
class Tokenizer;

/// The section `masked` of a training configuration.
struct MaskingOptions {
  double share = 0.15;              // of the tokens: those that are scored
  double mask = 0.8, random = 0.1;  // of the scored tokens: become the mask; become any token. The others stay as they are
  std::string token = {};           // the piece that is the mask; empty: as the tokenizer's files name it
  std::optional<int32_t> id = {};   // the same as an id, for models without a tokenizer
};

/// The token that hides others. Errors: InputError, beginning with `where`, if there is none or it is outside the vocabulary.
int32_t mask_for_training(const MaskingOptions& options, const OpenedModel& opened, const Tokenizer* tokenizer,
                          const std::string& where);

/// Errors: InputError, beginning with `where`, for a model that predicts next tokens: it would see the mask's answer at the
/// position before.
void require_fills_masks(const Model& model, const std::string& name, const std::string& where);

/// Hides tokens of batches. Each token is drawn by itself, as transformers' DataCollatorForLanguageModeling does, from numbers
/// that depend on seed, stream and row alone: ranks hide together what one process hides.
class TokenMasker {
 public:
  /// mask: the token that hides others; vocab_size: ids below it are drawn at random.
  /// special: ids that are never hidden, such as BOS.
  TokenMasker(const MaskingOptions& options, int32_t mask, int32_t vocab_size, std::vector<bool> special, uint64_t seed);

  /// Sets the labels of the batch to its own tokens where they are scored, and hides those.
  /// stream: the number of the batch; first_row: that of the batch's first row among those of the stream.
  void hide(Batch& batch, uint64_t stream, uint64_t first_row) const;

  int32_t mask() const { return mask_; }

 private:
  MaskingOptions options_;
  int32_t mask_, vocab_size_;
  std::vector<bool> special_;
  uint64_t key_;
};

/// The stream of validation data, whose rows are counted from the first of all batches: the same tokens are hidden each time.
inline constexpr uint64_t kValidationMasks = ~uint64_t{0};

}  // namespace vitrine
