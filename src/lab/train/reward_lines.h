#pragma once
// Numbers that a reward model gives to prompts with completions.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "train/data/prepare.h"

namespace vitrine {

/// Rewards of texts, each the ids of one: read off their ends (reward_rows()). Errors: InputError for one beyond the context.
std::vector<double> rewards_of(Engine& engine, std::span<const std::vector<int32_t>> texts);

/// Rewards of lines of JSON.
class RewardLines {
 public:
  /// engine: of a model opened with ModelFiles::rewards. chat_template: in the place of its own.
  /// Errors: InputError for a model without a tokenizer, and for a mistake in the template.
  explicit RewardLines(std::shared_ptr<Engine> engine, const std::optional<std::string>& chat_template = {});

  /// Of {"prompt", "completion"} (texts, messages, or messages and a text of the assistant) and of conversations, whose ids are
  /// those of training data: texts with BOS where the tokenizer adds it and EOS, messages through the chat template. Errors:
  /// InputError beginning with `where` and the line's number from 1 for any other line; as rewards_of.
  std::vector<double> rewards(std::span<const std::string> lines, const std::string& where);

 private:
  std::shared_ptr<Engine> engine_;
  LineEncoder encode_;
};

}  // namespace vitrine
