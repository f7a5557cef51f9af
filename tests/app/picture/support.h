#pragma once
// What tests of pictures share: documents of golden models, decoded grids.
#include <cstring>
#include <string>
#include <vector>

#include "picture/data/document.h"
#include "picture/page/page.h"
#include "picture/svg/drawings.h"
#include "picture/svg/opening.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {

inline const EngineOptions kF32 = {2, {.f32 = true, .exact = false}};

inline PicturePrompt ids_prompt(std::vector<int32_t> ids) { return {std::nullopt, std::move(ids), {}, ""}; }
inline PicturePrompt text_prompt(const Engine& engine, const std::string& text) {
  PicturePrompt prompt{text, engine.tokenizer().encode(text), engine.tokenizer().encode_with_offsets(text), ""};
  return prompt;
}

/// Of a chapter of the book, as its page has them.
inline std::vector<PictureInfo> chapter_pictures(std::string_view chapter = kFirstChapter) {
  std::vector<PictureInfo> infos;
  for (const std::string& name : pictures_of(chapter_of(chapter)))
    for (const PictureInfo& info : pictures())
      if (name == info.name) infos.push_back(info);
  return infos;
}

/// The chapter told by the model and on the prompt of the book.
inline PictureJson chapter_document(const Chapter& chapter) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/" + chapter.model, kF32);
  return explain_document(engine, text_prompt(engine, chapter.prompt), {}, chapter.name);
}

/// config.json of a narrow Gemma with eight heads.
inline Json small_gemma(int64_t layers, int64_t head_dim) {
  return {{"architectures", {"GemmaForCausalLM"}},
          {"model_type", "gemma"},
          {"hidden_size", 16},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 1},
          {"head_dim", head_dim},
          {"intermediate_size", 24},
          {"vocab_size", 64},
          {"max_position_embeddings", 8192},
          {"hidden_act", "gelu_pytorch_tanh"}};
}

inline std::vector<double> doubles(const PictureJson& list) { return number_list(list); }
inline std::vector<double> doubles(const Json& list) {
  std::vector<double> values;
  for (const Json& v : list) values.push_back(v.is_null() ? std::nan("") : v.get<double>());
  return values;
}
/// A list of lists, one after the other.
template <class J>
std::vector<double> flat(const J& rows) {
  std::vector<double> values;
  for (const auto& row : rows)
    for (const auto& v : row) values.push_back(v.template get<double>());
  return values;
}

/// Every key of each object of a list.
template <class J>
std::vector<double> column(const J& list, const char* key) {
  std::vector<double> values;
  for (const auto& entry : list) values.push_back(entry.at(key).template get<double>());
  return values;
}

}  // namespace vitrine
