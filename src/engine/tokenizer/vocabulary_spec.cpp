// Vocabularies that lie in a GGUF file: kind "llama" is SentencePiece, kind "gpt2" byte-level BPE with a named way to cut
// words, kind "gemma4" BPE over whole texts whose spaces are written as U+2581. The patterns belong to the families' own
// tokenizer.json files; GGUF only names them.
#include "tokenizer/vocabulary_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/components.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/sentencepiece.h"

namespace vitrine {
namespace {

constexpr const char* kMarkedSpace = "\xE2\x96\x81";  // ▁

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<PreTokenization>& known_pre_tokenizations() {
  const std::string gpt2(kGpt2Pattern);
  static const std::vector<PreTokenization> table = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling"}, {gpt2}},
      {{"glm4"}, {kLlama3}, true},  // before llama-bpe, the name that is written of the two
      {{"llama-bpe", "llama3", "llama-v3", "falcon3"}, {kLlama3}, true, true},
      {{"smaug-bpe", "dbrx", "chatglm-bpe"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"}, {std::string(kQwen2Pattern)}},
      {{"qwen35"}, {kQwen35}},
      {{"gpt-4o", "llama4"}, {kGpt4o}},
      {{"tekken"}, {kTekken}, true, true},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2, "[0-9][0-9][0-9]"}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}, {R"(\p{N})", gpt2}},
      {{"deepseek-coder"},
       {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"}},
      {{"deepseek-v3"}, {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepseekV3}},
      {{"default", ""}, {R"([\p{P}\$\+<=>\^~\|]+)", gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return table;
}

}  // namespace

const PreTokenization& find_pre_tokenization(const VocabularySpec& spec) {
  std::string known;
  for (const PreTokenization& p : known_pre_tokenizations()) {
    for (const std::string& name : p.names) {
      if (name == spec.pre) return p;
      if (!name.empty()) known += (known.empty() ? "" : ", ") + name;
    }
  }
  throw FileError(spec.source,
                  fmt::format("tokenizer.ggml.pre is \"{}\", which is not supported; supported are {}. A folder with the "
                              "model's tokenizer.json can be opened instead",
                              spec.pre, known));
}

namespace {

// A pattern with the characters themselves where it names them by their numbers: \x{4E00}.
std::string with_characters(std::string_view pattern) {
  std::string out;
  while (!pattern.empty()) {
    uint32_t code = 0;
    const char* const digits = pattern.data() + 3;
    const auto [end, error] = pattern.starts_with("\\x{") ? std::from_chars(digits, pattern.data() + pattern.size(), code, 16)
                                                          : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (error == std::errc() && end < pattern.data() + pattern.size() && *end == '}') {
      append_utf8(out, code);
      pattern.remove_prefix(size_t(end - pattern.data()) + 1);
    } else {
      out += pattern.front();
      pattern.remove_prefix(1);
    }
  }
  return out;
}

bool same_patterns(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const std::string& x, const std::string& y) { return with_characters(x) == with_characters(y); });
}

}  // namespace

std::string name_of_cuts(const std::vector<std::string>& patterns, bool ignore_merges, const std::string& path) {
  const PreTokenization* found = nullptr;
  for (const PreTokenization& p : known_pre_tokenizations())
    if (same_patterns(p.patterns, patterns) && (found == nullptr || p.ignore_merges == ignore_merges)) found = &p;
  if (found != nullptr) return found->names.front();
  std::string list;
  for (const std::string& pattern : patterns) list += (list.empty() ? "" : ", then ") + pattern;
  throw FileError(path, "cuts words by " + list +
                            ", a way that vitrine knows no name of (tokenizer.ggml.pre). Name a directory as OUT instead of a "
                            ".gguf file, or convert the model with the program that knows it");
}

Json whole_text_normalizer() { return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMarkedSpace}}; }

Json whole_text_decoder() {
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"String", kMarkedSpace}}}, {"content", " "}};
  return {{"type", "Sequence"}, {"decoders", {spaces, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
}

PieceType piece_type(const VocabularySpec& spec, size_t id) {
  if (spec.types.empty()) return PieceType::normal;
  const int32_t type = spec.types[id];
  if (type < 0 || type > 6)
    throw FileError(spec.source, fmt::format("tokenizer.ggml.token_type[{}] is {}, expected 1 to 6", id, type));
  return type == 0 ? PieceType::normal : PieceType(type);
}

namespace {

void check(const VocabularySpec& spec) {
  const size_t n = spec.pieces.size();
  if (n == 0 || n > size_t(INT32_MAX)) throw FileError(spec.source, fmt::format("tokenizer.ggml.tokens holds {} pieces", n));
  if (!spec.types.empty() && spec.types.size() != n)
    throw FileError(spec.source, fmt::format("tokenizer.ggml.token_type has {} entries, tokens has {}", spec.types.size(), n));
  if (!spec.scores.empty() && spec.scores.size() != n)
    throw FileError(spec.source, fmt::format("tokenizer.ggml.scores has {} entries, tokens has {}", spec.scores.size(), n));
  const auto in_range = [&](const char* key, std::optional<int32_t> id) {
    if (id && (*id < 0 || size_t(*id) >= n))
      throw FileError(spec.source, fmt::format("tokenizer.ggml.{}_token_id is {}, outside the {} pieces", key, *id, n));
  };
  in_range("bos", spec.bos);
  in_range("eos", spec.eos);
  in_range("unknown", spec.unknown);
  in_range("padding", spec.padding);
}

}  // namespace

SentencePieceSpec sentencepiece_of(VocabularySpec spec) {
  if (spec.scores.empty())
    throw FileError(spec.source, "tokenizer.ggml.scores is missing; a vocabulary of kind \"llama\" needs it");
  SentencePieceSpec out;
  out.source = spec.source;
  out.origin = "GGUF SentencePiece";
  int bytes = 0;
  int32_t unknown = -1;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    PieceType type = piece_type(spec, i);
    if (spec.types.empty() && byte_of_piece(spec.pieces[i]) >= 0) type = PieceType::byte;
    if (spec.types.empty() && (spec.bos == int32_t(i) || spec.eos == int32_t(i))) type = PieceType::control;
    bytes += type == PieceType::byte;
    if (type == PieceType::unknown) {  // files of Phi-3 give this type to the rows behind the vocabulary, too
      if (unknown >= 0) type = PieceType::unused;
      if (unknown < 0) unknown = int32_t(i);
    }
    out.pieces.push_back({std::move(spec.pieces[i]), spec.scores[i], type});
  }
  if (unknown >= 0 && spec.unknown && *spec.unknown != unknown) out.pieces[size_t(unknown)].type = PieceType::unused;
  out.pieces[size_t(spec.unknown.value_or(std::max(unknown, 0)))].type = PieceType::unknown;
  out.byte_fallback = bytes == 256;
  out.add_dummy_prefix = spec.add_space_prefix.value_or(true);
  out.remove_extra_whitespaces = spec.remove_extra_whitespaces.value_or(false);
  out.bos = spec.bos, out.eos = spec.eos, out.padding = spec.padding;
  out.add_bos = spec.add_bos, out.add_eos = spec.add_eos;
  if (spec.add_bos || spec.add_eos) out.rule_source = "tokenizer.ggml.add_bos_token and add_eos_token";
  return out;
}

namespace {

// The pieces; those that are looked for first go to parts.
Vocabulary read_pieces(const VocabularySpec& spec, PipelineParts& parts) {
  Vocabulary vocabulary;
  size_t bytes = 0;
  for (const std::string& piece : spec.pieces) bytes += piece.size();
  vocabulary.reserve(spec.pieces.size(), bytes);
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::string& piece = spec.pieces[i];
    if (vocabulary.add(piece, int32_t(i)) != Vocabulary::Added::yes)
      throw FileError(spec.source,
                      fmt::format("tokenizer.ggml.tokens {} and {} are both \"{}\"", vocabulary.find(piece), i, piece));
    const PieceType type = piece_type(spec, i);
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    AddedToken token;
    token.id = int32_t(i), token.content = piece, token.special = type == PieceType::control;
    parts.added.push_back(std::move(token));
  }
  return vocabulary;
}

std::unique_ptr<BpeModel> read_merges(const VocabularySpec& spec, Vocabulary vocabulary, const BpeModel::Options& options) {
  auto model = std::make_unique<BpeModel>(std::move(vocabulary), options, spec.source);
  model->reserve_merges(spec.merges.size());
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string& merge = spec.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size())
      throw FileError(
          spec.source,
          fmt::format("tokenizer.ggml.merges[{}] is \"{}\", expected two pieces with a space between them", i, merge));
    model->add_merge(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
  }
  model->finish();
  return model;
}

// What stands around a text, and the ids that have a meaning.
void set_specials(const VocabularySpec& spec, bool add_bos, PipelineParts& parts) {
  parts.finds_control = false;
  parts.bos = spec.bos, parts.eos = spec.eos, parts.unknown = spec.unknown, parts.padding = spec.padding;
  if (spec.add_bos.value_or(add_bos) && spec.bos) parts.frame.before = {*spec.bos};
  if (spec.add_eos.value_or(false) && spec.eos) parts.frame.after = {*spec.eos};
  parts.rule_source = spec.add_bos || spec.add_eos ? "tokenizer.ggml.add_bos_token and add_eos_token" : "default of the family";
}

std::shared_ptr<const Tokenizer> from_gpt2(const VocabularySpec& spec) {
  const PreTokenization& pre = find_pre_tokenization(spec);
  PipelineParts parts;
  parts.path = spec.source;
  parts.kind = fmt::format("GGUF byte-level (words cut as \"{}\")", spec.pre.empty() ? "default" : spec.pre);
  BpeModel::Options options;
  options.ignore_merges = pre.ignore_merges;
  parts.model = read_merges(spec, read_pieces(spec, parts), options);
  for (const std::string& pattern : pre.patterns)
    parts.pre_tokenizers.push_back(make_split(pattern, spec.source, "tokenizer.ggml.pre"));
  parts.pre_tokenizers.push_back(make_byte_level(spec.add_space_prefix.value_or(false), false));
  parts.has_decoder = true;
  parts.decoder.push_back(make_byte_level_decoder(true));
  set_specials(spec, pre.add_bos, parts);
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

// Characters outside the vocabulary are spelled in bytes, <0x0A>.
std::shared_ptr<const Tokenizer> from_gemma4(const VocabularySpec& spec) {
  PipelineParts parts;
  parts.path = spec.source;
  parts.kind = "GGUF BPE over whole texts";
  BpeModel::Options options;
  options.byte_fallback = options.fuse_unknown = true;
  options.word_marker = kMarkedSpace;
  if (spec.unknown) options.unknown_token = spec.pieces[size_t(*spec.unknown)];
  parts.model = read_merges(spec, read_pieces(spec, parts), options);
  const Json normalizer = whole_text_normalizer(), decoder = whole_text_decoder();
  parts.normalizers = parse_normalizers(Component(normalizer, spec.source, "normalizer"));
  parts.has_decoder = true;
  parts.decoder = parse_decoders(Component(decoder, spec.source, "decoder"));
  set_specials(spec, true, parts);
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_vocabulary(VocabularySpec spec) {
  check(spec);
  if (spec.kind == "llama") return std::make_shared<SentencePieceTokenizer>(sentencepiece_of(std::move(spec)));
  if (spec.kind == "gpt2") return from_gpt2(spec);
  if (spec.kind == "gemma4") return from_gemma4(spec);
  throw FileError(spec.source,
                  fmt::format("tokenizer.ggml.model is \"{}\"; vitrine knows \"llama\" (SentencePiece BPE), \"gpt2\" "
                              "(byte-level BPE) and \"gemma4\" (BPE over whole texts). A folder with the model's tokenizer.json "
                              "can be opened instead",
                              spec.kind));
}

}  // namespace vitrine
