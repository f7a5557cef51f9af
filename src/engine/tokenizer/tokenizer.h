#pragma once
// Text to token ids and back, exactly as the reference library of each file does it: tokenizer.json as Hugging Face's
// tokenizers runs it, tokenizer.model as SentencePiece does, vocab.json + merges.txt as GPT-2 does, GGUF vocabularies as
// their kind says. One object per file, immutable after loading and usable from many threads at once.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// A token and the bytes [begin, end) of the text it stands for. Tokens that stand for no text (BOS, a prefix that the
/// tokenizer inserts) have begin == end. Where a character is spread over several tokens each has its own bytes of it.
struct TokenPiece {
  int32_t id;
  size_t begin, end;
  bool operator==(const TokenPiece&) const = default;
};

/// Whether control tokens (<bos>, <|endoftext|>, <start_of_turn>) that are spelled out in the text become their ids.
enum class Special {
  as_file,  // as the file's reference library does: tokenizer.json yes; the others only user-defined pieces and added tokens
            // that are not special
  text,     // never: what a user types stays text
  parse,    // always
};

/// What two neighboring pieces become in byte-pair merging. The lowest order merges first, equal ones from left to right: the
/// rank in the file's list of merges, or minus the piece's score where the file has scores.
struct PieceMerge {
  int32_t id;
  double order;
};

class DecodeState;
class ThreadPool;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of `text`. `add_special` adds BOS and EOS by the file's rule (see description()). Any bytes are accepted:
  /// what is not valid UTF-8 becomes U+FFFD, except with vocab.json + merges.txt, where every byte has a token.
  /// Errors: FileError when a regular expression of the file exceeds its match limit on this text; InputError for a text
  /// of 1 GiB or more.
  std::vector<int32_t> encode(std::string_view text, bool add_special = true, Special special = Special::as_file) const;
  /// The same ids, with the threads of `pool`, where the kind of tokenizer allows to cut the text.
  std::vector<int32_t> encode(std::string_view text, bool add_special, Special special, ThreadPool& pool) const;
  std::vector<TokenPiece> encode_with_offsets(std::string_view text, bool add_special = true,
                                              Special special = Special::as_file) const;

  /// The text of `ids`, byte for byte what the reference library gives. `skip_special` leaves control tokens out.
  /// With vocab.json + merges.txt any bytes may come out; everything else gives valid UTF-8.
  /// Errors: InputError for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  /// The token as the vocabulary spells it ("▁fish", "Ġfish", "<0x0A>"). An id that the file leaves unused gives "".
  /// Errors: InputError for an id outside the vocabulary.
  virtual std::string piece(int32_t id) const = 0;
  virtual int32_t vocab_size() const = 0;  // ids are in [0, vocab_size)
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;
  virtual bool is_control(int32_t id) const = 0;  // false outside the vocabulary

  /// Whether a token that is looked for before all others, an added token or a user-defined piece, may lie across text[at], so
  /// that a text cut there gets other ids. Control tokens do not count: they stay text (Special::text).
  virtual bool lies_across(std::string_view text, size_t at) const = 0;

  /// Nothing if these two, as the vocabulary spells them, do not merge, or if this tokenizer does not merge at all (unigram,
  /// WordPiece) or marks where in a word a piece stands.
  virtual std::optional<PieceMerge> merge(std::string_view, std::string_view) const { return {}; }

  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> unknown() const { return unknown_; }
  std::optional<int32_t> padding() const { return padding_; }
  bool adds_bos() const { return adds_bos_; }  // by encode(text, true)
  bool adds_eos() const { return adds_eos_; }

  /// For the user: kind, file, size, the BOS and EOS rule and where it comes from.
  const std::string& description() const { return description_; }

  /// What the token adds in the middle of a text, byte for byte: " the" for "▁the", the byte E2 for "<0xE2>". "" for what is no
  /// text: control tokens, the unknown token, ids that the file leaves unused. Bytes that form no character become U+FFFD when
  /// decoded. Errors: InputError for an id outside the vocabulary, and where the text of a token hangs on those around it.
  virtual std::string token_bytes(int32_t id) const = 0;

  /// What turns ids into text one at a time; for StreamDecoder and decode().
  virtual std::unique_ptr<DecodeState> decode_state() const = 0;

 protected:
  /// encode() of a text below 1 GiB. Offsets need not be right where `offsets` is false.
  virtual std::vector<TokenPiece> run(std::string_view text, bool add_special, Special special, bool offsets) const = 0;
  /// The ids alone; a kind of tokenizer that has a faster way to them says so here. Without a pool: on this thread.
  virtual std::vector<int32_t> run_ids(std::string_view text, bool add_special, Special special, ThreadPool* pool) const;

  std::optional<int32_t> bos_, eos_, unknown_, padding_;
  bool adds_bos_ = false, adds_eos_ = false;
  std::string description_;
};

/// Text of tokens as they come. Never gives out half a UTF-8 character; all pushes and the flush joined equal
/// decode(all ids, skip_special). The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();
  std::string push(int32_t id);  // the text that is now certain, possibly empty. Errors: InputError as decode()
  std::string flush();           // the rest; afterwards the decoder is at the start of a new text

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeState> state_;
};

/// Opens a tokenizer. `path` is a folder (tokenizer.json decides, then tokenizer.model, then vocab.json + merges.txt) or
/// one such file. tokenizer_config.json, special_tokens_map.json and added_tokens.json beside it name and add tokens;
/// what stands around a text is tokenizer.json's own post-processor, and beside the other files add_bos_token and add_eos_token.
/// Errors: FileError naming file, field and what was expected; an unknown component is named with the known ones.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

/// The files that load_tokenizer(path) may read, of those that are there: the tokenizer's own and what
/// stands beside it.
std::vector<std::string> tokenizer_files(const std::string& path);

/// Whether a folder holds one of these files, so that it is to be opened as a tokenizer.
bool has_tokenizer_files(const std::string& folder);

/// The one token that `text`, as it is written, continues a text with: "s" the piece "s" and " the" the piece "▁the", also where
/// the tokenizer puts a space in front of every text. What no text gives may be named as the vocabulary spells it ("▁the",
/// "Ġthe"). Errors: InputError with the pieces when it is not one token.
int32_t single_token(const Tokenizer& tokenizer, std::string_view text);

/// A vocabulary that lies in another file (GGUF), as that file's keys give it.
struct VocabularySpec {
  std::string source;               // path, for messages
  std::string kind;                 // tokenizer.ggml.model: "llama" (SentencePiece BPE) or "gpt2" (byte-level BPE)
  std::string pre;                  // tokenizer.ggml.pre: "default", "gpt-2", "llama-bpe", "qwen2", "falcon", ...
  std::vector<std::string> pieces;  // tokenizer.ggml.tokens
  std::vector<float> scores;        // tokenizer.ggml.scores; needed by "llama"
  std::vector<int32_t> types;       // tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused,
                                    // 6 byte; empty: all normal
  std::vector<std::string> merges;  // tokenizer.ggml.merges, "left right"; needed by "gpt2"
  std::optional<int32_t> bos, eos, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

/// Errors: FileError naming `source`, the key and what was expected.
std::shared_ptr<const Tokenizer> tokenizer_from_vocabulary(VocabularySpec spec);

/// Where two tokenizers first disagree on a text.
struct TokenDifference {
  size_t index;                    // of the first differing token in both lists
  size_t begin;                    // byte of the text at which it starts
  size_t line;                     // of the text, counted from 1
  std::optional<TokenPiece> a, b;  // nothing: that list has ended
  std::string message;             // one sentence with ids, pieces and the text around them
};

/// Encodes `text` with both, without BOS and EOS. nullopt: the ids are equal.
std::optional<TokenDifference> first_difference(const Tokenizer& a, const Tokenizer& b, std::string_view text,
                                                Special special = Special::as_file);

}  // namespace vitrine
