#include "train/data/prepare.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fnv.h"
#include "base/philox.h"
#include "base/plural.h"
#include "io/folder_lock.h"
#include "model/fingerprint.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTask = size_t{64} << 10;        // bytes of text of one task, or one longer piece
constexpr size_t kLongestLine = size_t{4} << 20;  // bytes of a conversation
constexpr const char* kTokenizerNames[] = {"tokenizer.json", "tokenizer_config.json", kTemplateName};

// Pieces that are read together, and what becomes of them.
struct Round {
  std::vector<TextPiece> pieces;
  std::vector<std::string> files;                      // that each piece is from
  std::vector<std::vector<MaskedDocument>> documents;  // of each piece; masks are empty where all is scored
  std::vector<size_t> tasks;                           // first piece of each
  std::vector<std::exception_ptr> failures;            // of each task
  uint64_t read_bytes = 0;                             // of all files, when the round had been read
  bool valid = false;                                  // from the files that are held out
};

// The pieces of several files, a round at a time.
class Corpus {
 public:
  Corpus(const PrepareOptions& options, TextOptions reading) : options_(options), reading_(std::move(reading)) {
    for (const auto* files : {&options.files, &options.valid_files})
      for (const std::string& file : *files) file_bytes_ += ByteStream::open(file)->file_bytes();  // all exist before any is read
  }
  uint64_t file_bytes() const { return file_bytes_; }

  // The next round; empty at the end. Rounds hold pieces of held-out files alone or of the others alone.
  Round read() {
    Round round;
    size_t bytes = 0;
    while (bytes < options_.round_bytes) {
      if (reader_ == nullptr) {
        const bool valid = next_file_ >= options_.files.size();
        if (next_file_ == options_.files.size() + options_.valid_files.size()) break;
        if (!round.pieces.empty() && valid != round.valid) break;
        reader_ = std::make_unique<TextReader>(
            valid ? options_.valid_files[next_file_ - options_.files.size()] : options_.files[next_file_], reading_);
        ++next_file_;
      }
      round.valid = next_file_ > options_.files.size();
      TextPiece piece;
      if (!reader_->next(piece)) {
        done_bytes_ += reader_->file_bytes();
        reader_.reset();
        continue;
      }
      bytes += piece.text.size() + sizeof piece;
      const std::string& file = next_file_ <= options_.files.size()
                                    ? options_.files[next_file_ - 1]
                                    : options_.valid_files[next_file_ - 1 - options_.files.size()];
      round.files.push_back(file + (piece.member.empty() ? "" : ": " + piece.member));
      round.pieces.push_back(std::move(piece));
    }
    round.read_bytes = done_bytes_ + (reader_ != nullptr ? reader_->consumed() : 0);
    return round;
  }

 private:
  const PrepareOptions& options_;
  TextOptions reading_;
  std::unique_ptr<TextReader> reader_;
  size_t next_file_ = 0;
  uint64_t file_bytes_ = 0, done_bytes_ = 0;
};

std::vector<MaskedDocument> encode_line(const LineEncoder& encode, const TextPiece& piece, const std::string& file) {
  const std::string where = file + " line " + std::to_string(piece.line);
  if (piece.text.size() > kLongestLine)
    throw InputError(where + ": has more than " + std::to_string(kLongestLine >> 20) +
                     " MiB; an object holds one conversation, or one prompt with what belongs to it");
  try {
    return encode(piece.text);
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}

// Tokenizes all pieces of a round.
void encode(const Tokenizer& tokenizer, const PrepareOptions& options, const Prepared& around, ThreadPool& pool, Round& round) {
  round.documents.resize(round.pieces.size());
  size_t bytes = kTask;
  for (size_t i = 0; i < round.pieces.size(); ++i) {
    if (bytes >= kTask) {
      round.tasks.push_back(i);
      bytes = 0;
    }
    bytes += round.pieces[i].text.size();
  }
  round.failures.resize(round.tasks.size());
  pool.run(static_cast<int64_t>(round.tasks.size()), [&](int64_t chunk, int) {
    const auto task = static_cast<size_t>(chunk);
    const size_t end = task + 1 < round.tasks.size() ? round.tasks[task + 1] : round.pieces.size();
    try {
      for (size_t i = round.tasks[task]; i < end; ++i) {
        const TextPiece& piece = round.pieces[i];
        if (options.encode_line) {
          round.documents[i] = encode_line(options.encode_line, piece, round.files[i]);
          continue;
        }
        std::vector<int32_t> ids = tokenizer.encode(piece.text, /*add_special=*/false, Special::text);
        if (piece.begins && around.bos) ids.insert(ids.begin(), *around.bos);
        if (piece.ends && around.eos) ids.push_back(*around.eos);
        round.documents[i].push_back({std::move(ids), {}});
      }
    } catch (...) {
      round.failures[task] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : round.failures)
    if (failure != nullptr) std::rethrow_exception(failure);
}

// A checksum of the text.
uint64_t key_of(const Round& round) {
  uint64_t key = round.valid ? 1 : 0;
  for (const TextPiece& piece : round.pieces) {
    const uint64_t borders = (piece.begins ? 1U : 0U) + (piece.ends ? 2U : 0U);
    key = add_to_fingerprint(key + borders, std::as_bytes(std::span(piece.text)));
  }
  return key;
}

uint64_t tokens_of(const Round& round) {
  uint64_t tokens = 0;
  for (const std::vector<MaskedDocument>& documents : round.documents)
    for (const MaskedDocument& document : documents) tokens += document.ids.size();
  return tokens;
}

// Writes what became of the pieces, or reads it. Errors: as UnitBytes; FileError for a mask that does not fit its ids.
void exchange(UnitBytes& bytes, Round& round, DataContent content) {
  bytes.each(
      round.documents,
      [&](std::vector<MaskedDocument>& documents) {
        bytes.each(documents, [&](MaskedDocument& document) {
          bytes.values(document.ids);
          bytes.values(document.scored);
          const size_t expected = content == DataContent::text ? 0 : document.ids.size();
          if (!document.scored.empty() && document.scored.size() != expected)
            throw FileError("the parts", "a mask of " + std::to_string(document.scored.size()) + " numbers; expected " +
                                             std::to_string(expected) + ", one for each id of masked data");
        });
      },
      round.pieces.size());
}

InputError no_text_at_all(const PrepareOptions& options) {
  return InputError("the corpus is empty: " + options.files.front() +
                    (options.files.size() > 1 ? " and the other files hold" : " holds") + " no text");
}

// Which documents are held out: each is drawn by its number alone.
bool held_out(uint64_t document, const PrepareOptions& options) {
  return options.valid > 0 && static_cast<double>(philox(options.seed, document, 0)[0]) * 0x1p-32 < options.valid;
}

void check_files(const PrepareOptions& options) {
  if (options.files.empty()) throw InputError("no text: name at least one file");
  std::error_code error;
  for (const std::string& valid : options.valid_files)
    for (const std::string& file : options.files)
      if (fs::equivalent(file, valid, error))
        throw InputError(valid + ": is among the files to train on as well; what is held out must be other text");
}

bool is_shard(const std::string& file) {
  const size_t digits = file.find_first_not_of("0123456789");
  return digits != std::string::npos && digits >= 5 && is_or_becomes(file.substr(digits), ".tokens");
}

// Whether the folder holds shards and their index alone, complete or not.
bool only_shards(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(error) ||
        (!is_or_becomes(name, kIndexName) && !is_or_becomes(name, kLinesName) && !is_shard(name)))
      return false;
  }
  return !error;  // which a file gives
}

// Errors: InputError if `out` is anything but a folder with token data, complete or not, or an empty one.
void check_replaceable(const fs::path& out) {
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) throw InputError(out.string() + ": is a file; token data is a folder");
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    const bool of_tokenizer = std::any_of(std::begin(kTokenizerNames), std::end(kTokenizerNames),
                                          [&](const char* one) { return is_or_becomes(name, one); });
    const bool ours =
        (entry.is_regular_file(error) && of_tokenizer) || ((name == "train" || name == "valid") && only_shards(entry.path()));
    if (!ours)
      throw InputError(out.string() + ": holds " + name +
                       ", which is no token data, and will not be replaced. Name another folder");
  }
}

// `out` without links and dots. Errors: InputError where a folder cannot take that name when it is complete.
fs::path place_of(const std::string& out) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical((fs::path(out) / "").parent_path(), error);
  if (error) throw InputError(out + ": " + error.message());
  const char* const advice = "; the data takes that place when it is complete. Name a folder inside it";
  if (fs::is_symlink(path, error)) throw InputError(out + ": is a link to nothing; make the folder that it names, or remove it");
  if (path == fs::current_path(error)) throw InputError(out + ": is the folder that this runs in" + advice);
  struct stat here{}, above{};
  if (::stat(path.c_str(), &here) == 0 && ::stat(path.parent_path().c_str(), &above) == 0 &&
      (here.st_dev != above.st_dev || path == path.root_path()))
    throw InputError(out + ": is where a file system is mounted" + advice);
  return path;
}

// The folder under another name until everything in it is complete.
class Unfinished {
 public:
  explicit Unfinished(const std::string& out) : out_(place_of(out)) {
    work_ = out_.string() + ".unfinished";
    old_ = out_.string() + ".replaced";
    for (const fs::path& replaced : {out_, work_, old_}) check_replaceable(replaced);
    do {
      make(work_);
      lock_.emplace(work_.string(), out_.string() + ": another process writes it. Wait for it, or name another folder");
    } while (!lock_->is_at(work_));
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(work_)) fs::remove_all(entry, ignored);  // of a run that was killed
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!work_.empty()) fs::remove_all(work_, ignored);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  std::string folder(const char* name) const {
    make(work_ / name);
    return (work_ / name).string();
  }
  std::string path(const std::string& name) const { return (work_ / name).string(); }

  void finish() {
    std::error_code error, ignored;
    fs::remove_all(old_, ignored);
    const bool replaces = fs::exists(out_);
    if (replaces) fs::rename(out_, old_, error);
    if (!error) fs::rename(work_, out_, error);
    const std::string made = std::exchange(work_, {}).string();
    if (error) {
      if (replaces && !fs::exists(out_)) fs::rename(old_, out_, ignored);
      throw RunError(out_.string() + ": cannot be put in place: " + error.message() + ". The data is complete in " + made);
    }
    fs::remove_all(old_, ignored);
  }

 private:
  static void make(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
      throw InputError(folder.string() + ": cannot be made: " + error.message() +
                       ". Name a folder in a place that you may write to");
  }
  fs::path out_, work_, old_;
  std::optional<FolderLock> lock_;  // of work_
};

PreparedSplit written(const TokenDataWriter& writer, uint64_t scored) {
  return {writer.tokens(), writer.documents(), writer.text_bytes(), scored};
}

}  // namespace

uint64_t tokenizer_fingerprint(const Tokenizer& tokenizer) {
  uint64_t sum = kFnvOfNothing;  // over the pieces, each with its length's lowest byte first
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.piece(id);
    const auto length = static_cast<std::byte>(piece.size() & 0xff);
    sum = fnv1a(piece, fnv1a({&length, 1}, sum));
  }
  return sum;
}

Prepared prepare_data(const Tokenizer& tokenizer, ThreadPool& pool, const PrepareOptions& options, const std::string& out,
                      const std::map<std::string, std::string>& tokenizer_files,
                      const std::function<void(const PrepareProgress&)>& progress, SharedWork* shared) {
  check_files(options);
  VITRINE_CHECK((options.content == DataContent::text) == !options.encode_line, "masked data has an encoder of its lines");
  TextOptions reading = options.text;
  if (options.encode_line) reading.format = TextFormat::objects;
  reading.lies_across = [&tokenizer](std::string_view text, size_t at) { return tokenizer.lies_across(text, at); };
  SharedWork alone = SharedWork::alone();
  SharedWork& work = shared != nullptr ? *shared : alone;
  Prepared prepared;
  if (options.special && tokenizer.adds_bos()) prepared.bos = tokenizer.bos();
  if (options.special) prepared.eos = tokenizer.eos();
  Corpus corpus(options, reading);
  uint64_t document = 0, scored[2] = {};
  const auto each_round = [&](auto&& use) {
    std::future<Round> coming = std::async(std::launch::async, [&] { return corpus.read(); });
    while (true) {
      Round round = coming.get();
      if (round.pieces.empty()) break;
      coming = std::async(std::launch::async, [&] { return corpus.read(); });  // while this one is tokenized
      const bool here = work.unit(
          key_of(round), [&] { encode(tokenizer, options, prepared, pool, round); },
          [&](UnitBytes& bytes) { exchange(bytes, round, options.content); });
      if (here) prepared.tokens += tokens_of(round);
      use(round);
      if (progress) progress({round.read_bytes, corpus.file_bytes(), prepared.tokens, document});
    }
    if (document == 0) throw no_text_at_all(options);
  };
  if (!work.gives_all()) {
    each_round([&](const Round& round) {
      for (const TextPiece& piece : round.pieces) document += piece.ends ? 1 : 0;
    });
    work.finish();
    return prepared;
  }
  Unfinished unfinished(out);
  const TokenDataKind kind{tokenizer.vocab_size(), tokenizer_fingerprint(tokenizer), options.content};
  TokenDataWriter train(unfinished.folder("train"), kind, options.shard_tokens);
  std::unique_ptr<TokenDataWriter> valid;
  if (options.valid > 0 || !options.valid_files.empty())
    valid = std::make_unique<TokenDataWriter>(unfinished.folder("valid"), kind, options.shard_tokens);
  each_round([&](const Round& round) {
    for (size_t i = 0; i < round.pieces.size(); ++i) {
      const TextPiece& piece = round.pieces[i];
      const bool aside = round.valid || (valid != nullptr && held_out(document, options));
      TokenDataWriter& to = aside ? *valid : train;
      for (const MaskedDocument& one : round.documents[i]) {
        to.add(one.ids, one.scored.empty() ? piece.text.size() : 0, one.scored);
        const auto label = options.content == DataContent::unpaired && !one.scored.empty() ? 1 : 0;
        scored[aside ? 1 : 0] += static_cast<uint64_t>(std::count(one.scored.begin() + label, one.scored.end(), 1));
        if (piece.ends) to.end_document();
      }
      if (options.content == DataContent::prompts) to.add_line(piece.text);
      if (piece.ends) ++document;
    }
  });
  work.finish();

  const auto no_text = [&](const char* side) {
    if (!options.valid_files.empty()) return InputError(std::string("the files to ") + side + " hold no text");
    return InputError(std::string("of ") + plural(document, "document") + " none was left to " + side +
                      ". Give another share, cut the text into documents with a separator, or name files to validate on");
  };
  if (train.documents() == 0) throw no_text("train on");
  if (valid != nullptr && valid->documents() == 0) throw no_text("validate on");
  train.finish();
  if (valid != nullptr) valid->finish();
  for (const auto& [name, text] : tokenizer_files) write_file_atomically(unfinished.path(name), text);
  unfinished.finish();
  const bool all = options.content == DataContent::text;
  prepared.train = written(train, all ? train.tokens() : scored[0]);
  if (valid != nullptr) prepared.valid = written(*valid, all ? valid->tokens() : scored[1]);
  return prepared;
}

}  // namespace vitrine
