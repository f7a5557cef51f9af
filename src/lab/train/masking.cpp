#include "train/masking.h"

#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "model/abilities.h"
#include "model/model.h"
#include "runtime/model_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

int32_t mask_for_training(const MaskingOptions& options, const OpenedModel& opened, const Tokenizer* tokenizer,
                          const std::string& where) {
  const int64_t vocab_size = opened.model->shape().vocab_size;
  const auto within = [&](int32_t id) {
    if (id >= vocab_size)
      throw InputError(where + ": the mask is token " + std::to_string(id) + ", and the model's vocabulary has " +
                       std::to_string(vocab_size) + " (0 to " + std::to_string(vocab_size - 1) + ")");
    return id;
  };
  if (options.id) return within(*options.id);
  if (tokenizer == nullptr)
    throw InputError(where + ": the model has no tokenizer, which would name its mask. Give the mask's id (token: 4)" +
                     ", or a tokenizer");
  const std::optional<int32_t> id = options.token.empty() ? mask_token(opened, *tokenizer) : tokenizer->find(options.token);
  if (id) return within(*id);
  if (!options.token.empty())
    throw InputError(where + ": token is \"" + options.token + "\", which the vocabulary does not have. Expected a piece of it");
  throw InputError(where + ": the tokenizer names no mask. Name a piece of it (token: \"[MASK]\"), or add one: " +
                   "`vitrine tokenizer train --special \"[MASK]\"`");
}

void require_fills_masks(const Model& model, const std::string& name, const std::string& where) {
  if (!predicts_next(model)) return;
  throw InputError(where + ": " + name + " (" + model.shape().family +
                   ") predicts the next token of a text from what stands before it, and masked tokens are filled in from both "
                   "sides. Train a model in both directions, such as model_type: roformer, or leave masked out");
}

TokenMasker::TokenMasker(const MaskingOptions& options, int32_t mask, int32_t vocab_size, std::vector<bool> special,
                         uint64_t seed)
    : options_(options), mask_(mask), vocab_size_(vocab_size), special_(std::move(special)) {
  const auto words = philox(seed, 0x6d61736b, 0);  // apart from what dropout and the order of the data draw
  key_ = uint64_t{words[0]} << 32 | words[1];
}

void TokenMasker::hide(Batch& batch, uint64_t stream, uint64_t first_row) const {
  const auto below = [](uint32_t word, double share) { return static_cast<double>(word) * 0x1p-32 < share; };
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    int32_t& token = batch.tokens[row];
    int32_t& label = batch.labels[row];
    label = kNotScored;
    const auto words = philox(key_, first_row + row, stream);
    if (static_cast<size_t>(token) < special_.size() && special_[static_cast<size_t>(token)]) continue;
    if (!below(words[0], options_.share)) continue;
    label = token;
    if (below(words[1], options_.mask))
      token = mask_;
    else if (below(words[1], options_.mask + options_.random))
      token = static_cast<int32_t>(uint64_t{words[2]} * static_cast<uint64_t>(vocab_size_) >> 32);
  }
}

}  // namespace vitrine
