#pragma once
// A model that says a given text behind a prompt of a given length, whatever the prompt is: a GPT-2 whose only layer adds
// nothing, so that a position's vector alone decides what comes next.
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "runtime/engine.h"
#include "support/scratch.h"

namespace vitrine {

/// Writes it with the tokenizer of `vocabulary`, a Hugging Face directory with tokenizer.json.
inline void write_scripted_model(const Scratch& folder, const Engine& vocabulary, size_t prompt, const std::string& text) {
  constexpr int64_t kWidth = 256;  // and positions
  const int64_t n_vocab = vocabulary.shape().vocab_size;
  folder.write("config.json", Json{{"architectures", {"GPT2LMHeadModel"}},
                                   {"model_type", "gpt2"},
                                   {"vocab_size", n_vocab},
                                   {"n_embd", kWidth},
                                   {"n_positions", kWidth},
                                   {"n_head", 1},
                                   {"n_layer", 1},
                                   {"n_inner", 8},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"tie_word_embeddings", true},
                                   {"eos_token_id", vocabulary.tokenizer().eos().value()}}
                                  .dump());
  const std::string from = vocabulary.opened().files.directory;
  folder.link("tokenizer.json", from + "/tokenizer.json");
  folder.link("tokenizer_config.json", from + "/tokenizer_config.json");

  std::vector<int32_t> said = vocabulary.prompt_ids("<" + text, false, Special::text);  // behind a token, as an answer is
  said.erase(said.begin());
  said.push_back(vocabulary.tokenizer().eos().value());
  if (prompt + said.size() > static_cast<size_t>(kWidth)) throw std::logic_error("the text is too long for the scripted model");
  std::vector<float> tokens(static_cast<size_t>(n_vocab * kWidth)), positions(static_cast<size_t>(kWidth * kWidth));
  for (int64_t p = 0; p < kWidth; ++p) positions[static_cast<size_t>(p * kWidth + p)] = 1;  // position p has direction p
  for (size_t i = 0; i < said.size(); ++i) tokens[static_cast<size_t>(said[i] * kWidth) + prompt - 1 + i] = 0.01f;

  const std::vector<float> zeros(static_cast<size_t>(kWidth * 3 * kWidth), 0.0f), ones(static_cast<size_t>(kWidth), 1.0f);
  std::vector<TensorToWrite> tensors = {{"transformer.wte.weight", DType::f32, {n_vocab, kWidth}, tokens.data()},
                                        {"transformer.wpe.weight", DType::f32, {kWidth, kWidth}, positions.data()},
                                        {"transformer.ln_f.weight", DType::f32, {kWidth}, ones.data()},
                                        {"transformer.ln_f.bias", DType::f32, {kWidth}, zeros.data()}};
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    tensors.push_back({"transformer.h.0." + name, DType::f32, std::move(shape), values.data()});
  };
  for (const char* norm : {"ln_1", "ln_2"}) {
    add(std::string(norm) + ".weight", {kWidth}, ones);
    add(std::string(norm) + ".bias", {kWidth}, zeros);
  }
  add("attn.c_attn.weight", {kWidth, 3 * kWidth}, zeros);
  add("attn.c_attn.bias", {3 * kWidth}, zeros);
  add("attn.c_proj.weight", {kWidth, kWidth}, zeros);
  add("attn.c_proj.bias", {kWidth}, zeros);
  add("mlp.c_fc.weight", {kWidth, 8}, zeros);
  add("mlp.c_fc.bias", {8}, zeros);
  add("mlp.c_proj.weight", {8, kWidth}, zeros);
  add("mlp.c_proj.bias", {kWidth}, zeros);
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace vitrine
