#include "train/reward_lines.h"

#include "base/error.h"
#include "base/json.h"
#include "model/reward_model.h"
#include "train/data/conversations.h"

namespace vitrine {
namespace {

constexpr size_t kRows = 2048;  // of a pass

// A line in which messages are answered by a text, as rewards of grpo get it, with a message in its place; others as they are.
std::string with_message(const std::string& line) {
  if (!OrderedJson::accept(line)) return line;
  OrderedJson json = OrderedJson::parse(line);
  if (!json.is_object() || !json.contains("prompt") || !json.at("prompt").is_array() || !json.contains("completion") ||
      !json.at("completion").is_string())
    return line;
  json["completion"] = OrderedJson::array({{{"role", "assistant"}, {"content", json.at("completion")}}});
  return json.dump();
}

}  // namespace

std::vector<double> rewards_of(Engine& engine, std::span<const std::vector<int32_t>> texts) {
  Context& ctx = engine.context();
  const int32_t padding = padding_of(engine.opened().files);
  std::vector<double> rewards;
  for (size_t next = 0; next < texts.size();) {
    Step step;
    std::vector<int32_t> tokens;
    std::vector<int64_t> lengths;
    while (next < texts.size() && (tokens.empty() || tokens.size() + texts[next].size() <= kRows)) {
      const std::vector<int32_t>& text = texts[next++];
      engine.check_ids(text);
      step.add(text);
      tokens.insert(tokens.end(), text.begin(), text.end());
      lengths.push_back(static_cast<int64_t>(text.size()));
    }
    const auto frame = ctx.frame();
    const Tensor some =
        logits(ctx, engine.model().residual(ctx, step), engine.model().head(), reward_rows(tokens, lengths, padding));
    for (size_t i = 0; i < lengths.size(); ++i) rewards.push_back(static_cast<double>(some.data<float>()[i]));
  }
  return rewards;
}

RewardLines::RewardLines(std::shared_ptr<Engine> engine, const std::optional<std::string>& chat_template)
    : engine_(std::move(engine)), encode_(read_lines(engine_, {.chat_template = chat_template}).encode) {}

std::vector<double> RewardLines::rewards(std::span<const std::string> lines, const std::string& where) {
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& line : lines) {
    const std::string at = where + " line " + std::to_string(texts.size() + 1);
    try {
      std::vector<MaskedDocument> documents = encode_(with_message(line));
      if (documents.size() != 1)
        throw InputError("the chat template writes its turns in " + std::to_string(documents.size()) +
                         " ways, so it has no single reward. Give the turns before the last one as \"prompt\"");
      texts.push_back(std::move(documents[0].ids));
    } catch (const InputError& error) {
      throw InputError(at + ": " + error.what());
    }
  }
  return rewards_of(*engine_, texts);
}

}  // namespace vitrine
