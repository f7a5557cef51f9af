// Byte-level BPE by the rules of Hugging Face's BpeTrainer with the ByteLevel pre-tokenizer: the special tokens, the 256 bytes
// in the order of their stand-in characters, then the merges; of equally frequent pairs the one with the lower ids first.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_words.h"
#include "tokenizer/train_kinds.h"
#include "tokenizer/train_merges.h"

namespace vitrine {
namespace {

class Gpt2Splitter final : public WordSplitter {
 public:
  size_t safe_cut(std::string_view text, size_t from, size_t limit) const override { return gpt2_safe_cut(text, from, limit); }
  void split(char* text, size_t size, std::vector<std::string_view>& words) const override {
    each_gpt2_word({text, size}, [&](size_t begin, size_t end) { words.emplace_back(text + begin, end - begin); });
  }
};

class ByteRules {
 public:
  explicit ByteRules(TrainedTokenizer& trained) : trained_(trained) {
    for (const std::string& token : trained.options.special) {
      if (token.empty()) throw InputError("a special token is empty; give it a spelling, such as <|endoftext|>.");
      if (!is_valid_utf8(token)) throw InputError("the special token \"" + utf8_lossy(token) + "\" is not UTF-8.");
      if (std::count(trained.options.special.begin(), trained.options.special.end(), token) > 1)
        throw InputError("the special token \"" + token + "\" is given twice.");
      const int32_t id = add(token, PieceType::control);
      std::string spelled;  // a merge that spells the same leads to this token, as in the reference
      if (append_byte_level(token, spelled)) ids_.emplace(spelled, id);
    }
    std::array<int, 256> order{};  // by their characters
    std::iota(order.begin(), order.end(), 0);
    const auto& alphabet = byte_level_alphabet();
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return utf8_at(alphabet[size_t(a)], 0).code < utf8_at(alphabet[size_t(b)], 0).code; });
    for (const int byte : order) {
      const std::string spelled(1, char(byte));
      const auto known = ids_.find(spelled);
      byte_ids_[size_t(byte)] = known != ids_.end() ? known->second : add(alphabet[size_t(byte)], PieceType::normal);
      ids_.emplace(spelled, byte_ids_[size_t(byte)]);
    }
    spelled_.resize(trained.pieces.size());
    for (size_t b = 0; b < 256; ++b) spelled_[size_t(byte_ids_[b])] = std::string(1, char(b));
    require_vocab_size(trained.options.vocab_size, trained.pieces.size(), "256 bytes and the special tokens");
  }

  int32_t id_of(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }

  // The rules, see MergeTrainer.
  bool allows(int32_t, int32_t) const { return true; }
  uint64_t order(int32_t left, int32_t right) const { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  bool before(int32_t, int32_t, int32_t, int32_t) const { return false; }
  bool enough() const { return int64_t(trained_.pieces.size()) >= trained_.options.vocab_size; }
  int32_t accept(int32_t left, int32_t right, int64_t count) {
    const std::string spelled = spelled_[size_t(left)] + spelled_[size_t(right)];
    const auto known = ids_.find(spelled);
    int32_t id = 0;
    if (known != ids_.end()) {
      id = known->second;  // spelled in another way before: both merges lead to the one token
      // A pair that comes again takes its later place, as ranks do in the reference.
      std::erase_if(trained_.merges, [&](const TrainedMerge& m) { return m.left == left && m.right == right; });
    } else {
      id = add(trained_.pieces[size_t(left)].text + trained_.pieces[size_t(right)].text, PieceType::normal);
      ids_.emplace(spelled, id);
    }
    spelled_.resize(trained_.pieces.size());
    spelled_[size_t(id)] = spelled;
    trained_.merges.push_back({left, right, id, uint64_t(count)});
    return id;
  }

 private:
  int32_t add(const std::string& text, PieceType type) {
    trained_.pieces.push_back({text, 0, type});
    return int32_t(trained_.pieces.size() - 1);
  }
  TrainedTokenizer& trained_;
  std::unordered_map<std::string, int32_t> ids_;  // by the bytes spelled
  std::vector<std::string> spelled_;              // by id; empty for special tokens no merge has spelled
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace

std::unique_ptr<WordSplitter> gpt2_splitter() { return std::make_unique<Gpt2Splitter>(); }

void train_byte_bpe(WordCounts words, TrainedTokenizer& trained) {
  ByteRules rules(trained);
  trained.alphabet = 256;
  TrainCorpus corpus;
  if (words.text_bytes() + words.size() + 1 >= TrainCorpus::kMostSlots)
    throw InputError(fmt::format("{} distinct words of {} MiB are more than training can hold (2 GiB); lower --limit-memory.",
                                 words.size(), words.text_bytes() >> 20));
  corpus.reserve(words.text_bytes() + words.size() + 1);
  for (const WordCounts::Word& word : words.by_count()) {
    corpus.begin_word(word.count);
    for (const char byte : word.text) corpus.add_symbol(rules.id_of(byte));
  }
  corpus.finish();
  words = WordCounts();
  give_back_freed_memory();
  MergeTrainer(corpus, rules, trained.options.min_frequency).run();
}

}  // namespace vitrine
