#pragma once
// What tests of pictures share: documents of golden models, decoded grids.
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "hooks/trace.h"
#include "io/atomic_file.h"
#include "picture/data/document.h"
#include "picture/page/page.h"
#include "picture/svg/drawings.h"
#include "picture/svg/opening.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {

inline const EngineOptions kF32 = {2, {.f32 = true, .exact = false}};

inline PicturePrompt ids_prompt(std::vector<int32_t> ids) { return {std::nullopt, std::move(ids), {}, ""}; }
inline PicturePrompt text_prompt(const Engine& engine, const std::string& text) {
  PicturePrompt prompt{text, engine.tokenizer().encode(text), engine.tokenizer().encode_with_offsets(text), ""};
  return prompt;
}

/// Golden models that pages are about.
inline std::vector<std::string> models_with_attention() {
  std::vector<std::string> names = Golden::all();
  std::erase(names, "mamba2");
  return names;
}

/// One picture of a document of its own.
inline PictureJson picture_of(Engine& engine, const PicturePrompt& prompt, const std::string& name,
                              const PictureOptions& options = {}) {
  return picture_document(engine, prompt, name, options).at("pictures").at(name);
}

/// What a run of the ids shows under a hook's name.
inline Recorder::Value hook_value(Engine& engine, std::span<const int32_t> ids, const std::string& hook) {
  return trace_to_memory(engine, ids, std::span(&hook, 1)).values().at(hook);
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

/// GPT-2's spelling of a byte: itself where it prints, else a letter from U+0100 on.
inline std::string byte_piece(int byte) {
  int code = byte, hidden = 0;
  const auto prints = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  for (int b = 0; b < byte; ++b) hidden += prints(b) ? 0 : 1;
  if (!prints(byte)) code = 256 + hidden;
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

/// A GPT-2 of one small layer that spells every byte, and three merges: aa, ab, aaab.
inline void write_toy_gpt2(const std::string& folder, bool tokenizer = true) {
  write_random_model(folder, {{"architectures", {"GPT2LMHeadModel"}},
                              {"model_type", "gpt2"},
                              {"n_embd", 16},
                              {"n_layer", 1},
                              {"n_head", 2},
                              {"n_positions", 32},
                              {"vocab_size", 259}});
  if (!tokenizer) return;
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_piece(byte)] = byte;
  vocabulary["aa"] = 256;
  vocabulary["ab"] = 257;
  vocabulary["aaab"] = 258;
  write_file_atomically(folder + "/vocab.json", vocabulary.dump());
  write_file_atomically(folder + "/merges.txt", "#version: 0.2\na a\na b\naa ab\n");
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
