#include "serve/infill.h"

#include <array>
#include <optional>

#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

struct MiddlePieces {
  const char *prefix, *suffix, *middle;
};

// As vocabularies spell them: Qwen and CodeGemma, StarCoder and Granite, SantaCoder, Code Llama, DeepSeek Coder, GLM.
constexpr std::array kPieces = {MiddlePieces{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                MiddlePieces{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                MiddlePieces{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                                MiddlePieces{"▁<PRE>", "▁<SUF>", "▁<MID>"},
                                MiddlePieces{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
                                MiddlePieces{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}};

struct MiddleTokens {
  int32_t prefix, suffix, middle;
};

MiddleTokens middle_tokens(const Tokenizer& tokenizer) {
  for (const MiddlePieces& pieces : kPieces) {
    const std::optional<int32_t> prefix = tokenizer.find(pieces.prefix), suffix = tokenizer.find(pieces.suffix),
                                 middle = tokenizer.find(pieces.middle);
    if (prefix && suffix && middle) return {*prefix, *suffix, *middle};
  }
  throw unsupported("",
                    "/infill needs a model with tokens to fill in the middle, such as <|fim_prefix|>, <|fim_suffix|> and "
                    "<|fim_middle|>; the vocabulary of this one has none");
}

}  // namespace

std::vector<Field> infill_prompt_fields() {
  using namespace type;
  return {{"input_prefix", text, "The text before the gap. Default: none."},
          {"input_suffix", text, "The text after the gap. Default: none."},
          {"prompt", text, "The beginning of the text in the gap. Default: none."},
          Field::refused("input_extra", "put other files into input_prefix, as the model's authors format them", "[[]]")};
}

std::vector<int32_t> infill_prompt(const Fields& fields, const Tokenizer& tokenizer) {
  const MiddleTokens tokens = middle_tokens(tokenizer);
  std::vector<int32_t> ids;
  if (tokenizer.adds_bos() && tokenizer.bos()) ids.push_back(*tokenizer.bos());
  const auto add = [&](int32_t token, const char* field) {
    ids.push_back(token);
    const std::vector<int32_t> text = tokenizer.encode(fields.text(field).value_or(""), false, Special::text);
    ids.insert(ids.end(), text.begin(), text.end());
  };
  add(tokens.prefix, "input_prefix");
  add(tokens.suffix, "input_suffix");
  add(tokens.middle, "prompt");
  return ids;
}

}  // namespace vitrine::serve
