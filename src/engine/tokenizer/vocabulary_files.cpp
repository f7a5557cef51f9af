#include "tokenizer/vocabulary_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/json_writer.h"
#include "tokenizer/sentencepiece_writer.h"
#include "tokenizer/vocabulary_spec.h"

namespace vitrine {
namespace {

void check_text(const VocabularySpec& spec, const std::string& key, std::string_view text) {
  if (!is_valid_utf8(text))
    throw FileError(spec.source,
                    fmt::format("{} is \"{}\", which is not UTF-8; a tokenizer's JSON files cannot hold it. Keep the "
                                "model as GGUF, or give the tokenizer files of the model that it was made from",
                                key, utf8_lossy(text)));
}

// {"type": "TemplateProcessing", …}: BOS and EOS around each text.
std::string template_processing(const VocabularySpec& spec, const Tokenizer& tokenizer) {
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto token = [&](int32_t id, Json& list, int type) {
    const std::string& piece = spec.pieces[size_t(id)];
    list.push_back({{"SpecialToken", {{"id", piece}, {"type_id", type}}}});
    tokens[piece] = {{"id", piece}, {"ids", Json::array({id})}, {"tokens", Json::array({piece})}};
  };
  for (const auto& [name, type] : {std::pair{"A", 0}, std::pair{"B", 1}}) {
    Json part = Json::array();
    if (tokenizer.adds_bos()) token(*spec.bos, part, type);
    part.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (tokenizer.adds_eos()) token(*spec.eos, part, type);
    if (type == 0) single = part;
    pair.insert(pair.end(), part.begin(), part.end());
  }
  return Json{{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}}.dump();
}

// What a tokenizer.json says around its vocabulary.
struct Steps {
  Json normalizer = nullptr, pre_tokenizer = nullptr, post_processor = nullptr, decoder = nullptr;
  Json unknown = nullptr;
  bool byte_fallback = false, ignore_merges = false;
};

Steps byte_level_steps(const VocabularySpec& spec) {
  const PreTokenization& pre = find_pre_tokenization(spec);
  Json cuts = Json::array();
  for (const std::string& pattern : pre.patterns)
    cuts.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  const auto byte_level = [](bool prefix) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", false}};
  };
  cuts.push_back(byte_level(spec.add_space_prefix.value_or(false)));
  return {.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", cuts}},
          .post_processor = byte_level(false),
          .decoder = byte_level(false),
          .ignore_merges = pre.ignore_merges};
}

Steps whole_text_steps(const VocabularySpec& spec) {
  return {.normalizer = whole_text_normalizer(),
          .decoder = whole_text_decoder(),
          .unknown = spec.unknown ? Json(spec.pieces[size_t(*spec.unknown)]) : Json(),
          .byte_fallback = true};
}

std::string merges_json(const VocabularySpec& spec, const Steps& steps, const Tokenizer& tokenizer) {
  for (size_t id = 0; id < spec.pieces.size(); ++id)
    check_text(spec, fmt::format("tokenizer.ggml.tokens[{}]", id), spec.pieces[id]);
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  JsonList added(out, 4);
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const PieceType type = piece_type(spec, id);
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    added.add(
        fmt::format("{{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": {}}}",
                    id, json_text(spec.pieces[id]), type == PieceType::control));
  }
  added.close("],\n");
  out += fmt::format("  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n", steps.normalizer.dump(), steps.pre_tokenizer.dump());
  out += fmt::format(
      "  \"post_processor\": {},\n  \"decoder\": {},\n",
      tokenizer.adds_bos() || tokenizer.adds_eos() ? template_processing(spec, tokenizer) : steps.post_processor.dump(),
      steps.decoder.dump());
  out += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": {},\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": {},\n"
      "    \"byte_fallback\": {},\n    \"ignore_merges\": {},\n    \"vocab\": {{",
      steps.unknown.dump(), steps.byte_fallback, steps.byte_fallback, steps.ignore_merges);
  JsonList vocabulary(out, 6);
  for (size_t id = 0; id < spec.pieces.size(); ++id) vocabulary.add(fmt::format("{}: {}", json_text(spec.pieces[id]), id));
  vocabulary.close("},\n");
  out += "    \"merges\": [";
  JsonList merges(out, 6);
  for (const std::string& merge : spec.merges) {
    const size_t space = merge.find(' ', 1);  // it is there: the vocabulary was read
    merges.add(fmt::format("[{}, {}]", json_text(merge.substr(0, space)), json_text(merge.substr(space + 1))));
  }
  merges.close("]\n  }\n}\n");
  return out;
}

std::string sentencepiece_file(const VocabularySpec& spec) {
  const SentencePieceSpec pieces = sentencepiece_of(spec);
  const auto check_control = [&](const char* key, std::optional<int32_t> id) {
    if (id && pieces.pieces[size_t(*id)].type != PieceType::control)
      throw FileError(
          spec.source,
          fmt::format("tokenizer.ggml.{}_token_id is {}, whose token_type is not 3 (control); a tokenizer.model knows "
                      "such tokens by that type. Convert the model again, or give the tokenizer files of the model "
                      "that it was made from",
                      key, *id));
  };
  check_control("bos", pieces.bos);
  check_control("eos", pieces.eos);
  for (size_t id = 0; id < pieces.pieces.size(); ++id)
    if (pieces.pieces[id].text.empty())
      throw FileError(spec.source, fmt::format("tokenizer.ggml.tokens[{}] is empty; a tokenizer.model cannot hold that", id));
  return sentencepiece_model(pieces);
}

std::string config_json(const VocabularySpec& spec, const Tokenizer& tokenizer, const std::optional<std::string>& chat_template) {
  nlohmann::ordered_json config;
  const bool json = spec.kind != "llama";
  // Which of transformers' classes cuts a text as this tokenizer.model does: one puts a space in front, the other does not.
  config["tokenizer_class"] = json                                   ? "PreTrainedTokenizerFast"
                              : spec.add_space_prefix.value_or(true) ? "LlamaTokenizer"
                                                                     : "GemmaTokenizer";
  if (!json) {  // tokenizer.json says it itself
    config["add_bos_token"] = tokenizer.adds_bos();
    config["add_eos_token"] = tokenizer.adds_eos();
  }
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (!id) return;
    check_text(spec, fmt::format("tokenizer.ggml.tokens[{}]", *id), spec.pieces[size_t(*id)]);
    config[key] = spec.pieces[size_t(*id)];
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("unk_token", tokenizer.unknown());
  name("pad_token", tokenizer.padding());
  if (chat_template) {
    check_text(spec, "tokenizer.chat_template", *chat_template);
    config["chat_template"] = *chat_template;
  }
  config["clean_up_tokenization_spaces"] = false;
  return config.dump(2) + "\n";
}

}  // namespace

std::map<std::string, std::string> vocabulary_files(const VocabularySpec& spec, const std::optional<std::string>& chat_template) {
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_from_vocabulary(spec);
  std::map<std::string, std::string> files;
  if (spec.kind == "llama")
    files["tokenizer.model"] = sentencepiece_file(spec);
  else
    files["tokenizer.json"] =
        merges_json(spec, spec.kind == "gpt2" ? byte_level_steps(spec) : whole_text_steps(spec), *tokenizer);
  files["tokenizer_config.json"] = config_json(spec, *tokenizer, chat_template);
  return files;
}

}  // namespace vitrine
