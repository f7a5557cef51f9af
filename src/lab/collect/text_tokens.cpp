// The text files of collect/collect.h.
#include <algorithm>

#include "base/error.h"
#include "collect/collect.h"
#include "io/byte_stream.h"

namespace vitrine {
namespace {

class TextTokens final : public DocumentTokens {
 public:
  TextTokens(const Tokenizer& tokenizer, std::vector<std::string> files, TextOptions text)
      : tokenizer_(tokenizer), files_(std::move(files)), text_(std::move(text)) {
    if (files_.empty()) throw InputError("no text: name at least one file");
    text_.lies_across = [&tokenizer](std::string_view piece, size_t at) { return tokenizer.lies_across(piece, at); };
    text_.longest = std::min<size_t>(text_.longest, size_t{1} << 16);  // so that long documents come while they are tokenized
    for (const std::string& file : files_) bytes_ += ByteStream::open(file)->file_bytes();  // all exist before any is read
  }

  bool next(std::vector<int32_t>& ids, bool& begins) override {
    TextPiece piece;
    while (true) {
      if (reader_ == nullptr) {
        if (file_ == files_.size()) return false;
        reader_ = std::make_unique<TextReader>(files_[file_++], text_);
      }
      if (reader_->next(piece)) break;
      done_ += reader_->file_bytes();
      reader_.reset();
    }
    begins = piece.begins;
    ids = tokenizer_.encode(piece.text, /*add_special=*/false, Special::text);
    return true;
  }

  double share() const override {
    const uint64_t read = done_ + (reader_ != nullptr ? reader_->consumed() : 0);
    return static_cast<double>(read) / static_cast<double>(std::max<uint64_t>(bytes_, 1));
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::string> files_;
  TextOptions text_;
  std::unique_ptr<TextReader> reader_;
  size_t file_ = 0;  // the next one
  uint64_t done_ = 0, bytes_ = 0;
};

}  // namespace

std::unique_ptr<DocumentTokens> text_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                                            const TextOptions& text) {
  return std::make_unique<TextTokens>(tokenizer, files, text);
}

}  // namespace vitrine
