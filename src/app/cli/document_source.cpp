#include "cli/document_source.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "io/corpus_files.h"
#include "train/data/prepare.h"
#include "train/data/token_data.h"

namespace vitrine::cli {
namespace {

/// What `vitrine data` wrote. A document's own BOS is left out where contexts begin with one.
class StoredTokens final : public DocumentTokens {
 public:
  StoredTokens(const std::string& folder, const Engine& engine, bool special) : data_(TokenData::open(folder)) {
    if (!engine.has_tokenizer()) return;
    const Tokenizer& tokenizer = engine.tokenizer();
    if (data_.tokenizer() != tokenizer_fingerprint(tokenizer))
      throw InputError(folder + ": was tokenized by another tokenizer than that of " + engine.name() +
                       ". Make it again with `vitrine data --tokenizer`, or give the text files themselves");
    if (special && tokenizer.adds_bos()) bos_ = tokenizer.bos();
  }

  bool next(std::vector<int32_t>& ids, bool& begins) override {
    if (at_ >= data_.tokens()) return false;
    const uint64_t end = std::min<uint64_t>(data_.tokens(), at_ + kTogether);
    const std::vector<uint64_t> starts = data_.document_starts(at_, end);
    begins = !starts.empty() && starts[0] == at_;
    const size_t following = begins ? 1 : 0;
    ids.resize((starts.size() > following ? starts[following] : end) - at_);
    data_.read(at_, ids);
    at_ += ids.size();
    if (begins && bos_ && !ids.empty() && ids[0] == *bos_) ids.erase(ids.begin());
    return true;
  }
  double share() const override { return static_cast<double>(at_) / static_cast<double>(std::max<uint64_t>(data_.tokens(), 1)); }

 private:
  static constexpr uint64_t kTogether = 1 << 16;
  TokenData data_;
  std::optional<int32_t> bos_;
  uint64_t at_ = 0;
};

}  // namespace

std::unique_ptr<DocumentTokens> open_documents(DocumentSource& o, const Engine& engine, const std::string& example) {
  if (!o.data.empty()) {
    if (!o.files.empty()) throw UsageError("--data and FILES are two sources of text; give one.");
    return std::make_unique<StoredTokens>(o.data, engine, !o.no_special);
  }
  if (o.files.empty()) throw UsageError("no text: name files, as in `vitrine " + example + "`, or --data.");
  o.files = corpus_files(o.files);
  read_document_flags(o.files, o.text, o.documents);
  return text_tokens(engine.tokenizer(), o.files, o.text);
}

void add_document_source(CLI::App& app, DocumentSource& source) {
  app.add_option("FILES", source.files, kTextFiles)->type_name("");
  app.add_option("--data", source.data,
                 "Instead of FILES: a folder that `vitrine data` made with this model's tokenizer (OUT/train)")
      ->type_name("FOLDER")
      ->check(not_empty());
}

void add_document_source_flags(CLI::App& app, DocumentSource& source) {
  add_document_flags(app, source.text, source.documents);
  app.add_flag("--no-special", source.no_special, "No BOS at the beginning of contexts");
}

}  // namespace vitrine::cli
