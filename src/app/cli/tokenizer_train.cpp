// vitrine tokenizer train: a vocabulary from text files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "io/atomic_file.h"
#include "io/byte_stream.h"
#include "io/corpus_files.h"
#include "io/text_reader.h"
#include "tokenizer/train.h"

namespace vitrine::cli {
namespace {

struct TokenizerTrainArguments {
  std::vector<std::string> files;
  std::string kind = "byte-bpe", out, byte_fallback = "on";
  TextOptions text = {.invalid = InvalidText::keep};
  int64_t vocab_size = 0, memory_mib = 1024, threads = 0;
  TrainTokenizerOptions train;
  bool has_key = false, show_merges = false, overwrite = false, json = false;
};

/// The files one after the other; JSON lines by their texts, everything else as it is.
class Corpus {
 public:
  Corpus(const std::vector<std::string>& files, const TextOptions& options) : files_(files), options_(options) {
    for (const std::string& file : files) file_bytes_ += ByteStream::open(file)->file_bytes();  // a wrong name is told at once
  }

  /// Bytes of the files as they lie on the disk that were read, and of all.
  uint64_t read_bytes() const { return done_bytes_ + (reader_ ? reader_->consumed() : stream_ ? stream_->consumed() : 0); }
  uint64_t file_bytes() const { return file_bytes_; }

  bool next(CorpusPiece& piece) {
    while (file_ < files_.size()) {
      if (!reader_ && !stream_) open();
      if (reader_) {
        if (reader_->next(text_)) {
          piece = {text_.text, text_.ends};
          return true;
        }
        done_bytes_ += reader_->file_bytes();
        reader_.reset();
      } else {
        const size_t got = stream_->read(buffer_);
        if (got > 0) {
          piece = {std::string_view(buffer_.data(), got), false};
          return true;
        }
        done_bytes_ += stream_->file_bytes();
        stream_.reset();
        ++file_;
        piece = {{}, true};  // a file is a text
        return true;
      }
      ++file_;
    }
    return false;
  }

 private:
  void open() {
    if (reads_json_lines(files_[file_]) || !options_.separator.empty()) {
      reader_ = std::make_unique<TextReader>(files_[file_], options_);
    } else {
      stream_ = ByteStream::open(files_[file_]);
      buffer_.resize(size_t{1} << 20);
    }
  }
  const std::vector<std::string>& files_;
  TextOptions options_;
  size_t file_ = 0;
  std::unique_ptr<TextReader> reader_;
  std::unique_ptr<ByteStream> stream_;
  TextPiece text_;
  std::vector<char> buffer_;
  uint64_t file_bytes_ = 0, done_bytes_ = 0;
};

/// A folder, made here if it is not there, with those above it. What was made goes again if nothing came into it.
class MadeFolder {
 public:
  explicit MadeFolder(const std::filesystem::path& folder) {
    std::error_code error;
    for (auto path = std::filesystem::absolute(folder, error); !path.empty() && !std::filesystem::exists(path, error);
         path = path.parent_path())
      made_.push_back(path);
    std::filesystem::create_directories(folder, error_);
  }
  MadeFolder(MadeFolder&&) = default;
  ~MadeFolder() {
    for (const auto& path : made_) ::rmdir(path.c_str());  // which leaves a folder that is not empty
  }
  std::string error() const { return error_.message(); }

 private:
  std::vector<std::filesystem::path> made_;  // the innermost first
  std::error_code error_;
};

/// What is replaced in the folder: written, or removed, since it would be read with what is written.
constexpr const char* kFiles[] = {"tokenizer.json", "tokenizer.model",         "tokenizer_config.json", "vocab.json",
                                  "merges.txt",     "special_tokens_map.json", "added_tokens.json"};

/// Makes the folder; refuses one that holds a tokenizer already, or one of the texts under the name of such a file.
MadeFolder prepare_folder(const std::string& folder, bool overwrite, const std::vector<std::string>& texts) {
  const std::vector<std::filesystem::path> inputs(texts.begin(), texts.end());
  for (const char* name : kFiles) check_output((std::filesystem::path(folder) / name).string(), inputs);
  MadeFolder made(folder);
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("--out {}: is no folder, and cannot be made one: {}", folder, made.error()));
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"})
    if (!overwrite && std::filesystem::exists(std::filesystem::path(folder) / name))
      throw UsageError(fmt::format("--out {}: holds a {} already. Name another folder, or give --overwrite.", folder, name));
  check_writable("--out", (std::filesystem::path(folder) / "tokenizer.json").string());
  return made;
}

void write_files(const TrainedTokenizer& trained, const std::string& folder) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  const bool model = trained.options.kind == TokenizerKind::sentencepiece_bpe;
  std::vector<std::pair<std::string, std::string>> files = {{path("tokenizer.json"), tokenizer_json(trained)},
                                                            {path("tokenizer_config.json"), tokenizer_config_json(trained)}};
  if (model) files.emplace_back(path("tokenizer.model"), tokenizer_model(trained));
  write_files_atomically(files);
  std::error_code ignored;
  for (const char* name : kFiles)
    if (std::none_of(files.begin(), files.end(), [&](const auto& file) { return file.first == path(name); }))
      std::filesystem::remove(path(name), ignored);
}

OrderedJson document(const TrainedTokenizer& trained, const TokenizerTrainArguments& o, double seconds) {
  OrderedJson json = {{"kind", o.kind},
                      {"vocab_size", trained.pieces.size()},
                      {"merges", trained.merges.size()},
                      {"texts", trained.texts},
                      {"bytes", trained.bytes},
                      {"words", trained.words},
                      {"distinct_words", trained.distinct_words},
                      {"pruned_words", trained.pruned_words},
                      {"invalid_characters", trained.invalid_characters},
                      {"seconds", seconds},
                      {"out", o.out}};
  if (o.show_merges) {
    OrderedJson list = OrderedJson::array();
    for (const TrainedMerge& m : trained.merges)
      list.push_back({{"left", trained.pieces[size_t(m.left)].text},
                      {"right", trained.pieces[size_t(m.right)].text},
                      {"piece", trained.pieces[size_t(m.id)].text},
                      {"id", m.id},
                      {"count", m.count}});
    json["merge_list"] = std::move(list);
  }
  return json;
}

void print_merges(const TrainedTokenizer& trained) {
  int widest = 5;
  const auto piece = [&](int32_t id) { return visible(trained.pieces[size_t(id)].text); };
  for (const TrainedMerge& m : trained.merges) widest = std::max(widest, width_of(piece(m.id)));
  print("{}\n", dim(fmt::format("{:>7}  {:>12}  {}  {}", "id", "count", pad_right("piece", widest), "joins")));
  for (const TrainedMerge& m : trained.merges)
    print("{:>7}  {:>12}  {}  {} + {}\n", m.id, grouped(int64_t(m.count)), pad_right(piece(m.id), widest), piece(m.left),
          piece(m.right));
}

void report(const TrainedTokenizer& t, const TokenizerTrainArguments& o, double seconds) {
  log("{} of text, {} words, {} of them different; {:.2f} s", bytes_text(double(t.bytes)), grouped(int64_t(t.words)),
      grouped(int64_t(t.distinct_words)), seconds);
  if (t.pruned_words > 0)
    log("{} words that came less than {} times were left out to stay within {} MiB; the counts of rare words are too low.",
        grouped(int64_t(t.pruned_words)), t.pruned_below, o.memory_mib);
  if (t.invalid_characters > 0) log("Bytes that are not UTF-8 were counted as U+FFFD, {}.", plural(t.invalid_characters, "time"));
  if (t.rare_characters > 0)
    log("{} of {} characters are pieces; {} are rare and {}", grouped(int64_t(t.alphabet)), grouped(int64_t(t.characters)),
        plural(t.rare_characters, "other"), t.options.byte_fallback ? "spelled in bytes." : "become <unk>.");
  if (int64_t(t.pieces.size()) < o.vocab_size)
    log("No pair is left to merge: {} pieces instead of {}. A larger text, or a lower --min-frequency, gives more.",
        grouped(int64_t(t.pieces.size())), grouped(o.vocab_size));
  if (!t.merges.empty()) {
    const TrainedMerge& first = t.merges.front();
    log("The first merge: {} + {}, {} times.", visible(t.pieces[size_t(first.left)].text),
        visible(t.pieces[size_t(first.right)].text), grouped(int64_t(first.count)));
  }
  log("{} pieces written to {}", grouped(int64_t(t.pieces.size())), o.out);
}

void train(TokenizerTrainArguments o) {
  o.train.kind = o.kind == "byte-bpe" ? TokenizerKind::byte_bpe : TokenizerKind::sentencepiece_bpe;
  if (o.train.kind == TokenizerKind::byte_bpe) {
    if (!o.train.user_defined.empty()) throw UsageError("--user-defined is for --kind sentencepiece-bpe; use --special.");
    if (o.byte_fallback == "off")
      throw UsageError("--byte-fallback off is for --kind sentencepiece-bpe: byte-bpe is made of bytes.");
    const TrainTokenizerOptions fresh;
    const std::pair<const char*, bool> others[] = {
        {"--split-digits", o.train.split_digits},
        {"--dummy-prefix", o.train.dummy_prefix},
        {"--whitespace-pieces", o.train.whitespace_pieces},
        {"--character-coverage", o.train.character_coverage != fresh.character_coverage}};
    for (const auto& [flag, given] : others)
      if (given) throw UsageError(std::string(flag) + " is for --kind sentencepiece-bpe.");
  }
  const auto text_of = [](std::string& text, const char* flag) {
    require_utf8(text, flag);
    text = unescape(text, flag);
  };
  for (std::string& token : o.train.special) text_of(token, "--special");
  for (std::string& piece : o.train.user_defined) text_of(piece, "--user-defined");
  text_of(o.text.separator, "--document");
  o.files = corpus_files(o.files);
  check_text_flags(o.files, o.text, o.has_key);
  o.train.vocab_size = o.vocab_size;
  o.train.byte_fallback = o.byte_fallback == "on";
  o.train.memory_bytes = uint64_t(o.memory_mib) << 20;
  Corpus corpus(o.files, o.text);
  const MadeFolder made = prepare_folder(o.out, o.overwrite, o.files);

  const Stopwatch watch;
  TrainedTokenizer trained;
  {
    ThreadPool pool(int(o.threads));
    Progress progress("reading");
    const auto next = [&](CorpusPiece& piece) {
      progress.show(static_cast<double>(corpus.read_bytes()) / static_cast<double>(std::max<uint64_t>(corpus.file_bytes(), 1)),
                    bytes_text(static_cast<double>(corpus.read_bytes())));
      return corpus.next(piece);
    };
    trained = train_tokenizer(next, o.train, pool);
  }
  const double seconds = watch.ms() / 1000;
  write_files(trained, o.out);
  if (o.json) {
    print_json(document(trained, o, seconds));
  } else if (o.show_merges) {
    print_merges(trained);
  }
  report(trained, o, seconds);
}

Action define_tokenizer_train(CLI::App& app) {
  auto o = std::make_shared<TokenizerTrainArguments>();
  app.add_option("FILES", o->files, kTextFiles)->type_name("")->required();
  add_count(app, "--vocab-size", o->vocab_size, 1, 10'000'000,
            "Size of the vocabulary, including special tokens, bytes and "
            "characters")
      ->required();
  add_choice(app, "--kind", o->kind, "byte-bpe|sentencepiece-bpe",
             "Bytes as in GPT-2, or characters with bytes for the rare ones as in Gemma (default byte-bpe)");
  app.add_option("--out", o->out, "The folder to write tokenizer.json and related files to; it is created")
      ->type_name("DIR")
      ->required()
      ->check(not_empty());
  app.add_option("--special", o->train.special, "A control token, such as <|endoftext|>; may be given several times")
      ->type_name("TOKEN")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--user-defined", o->train.user_defined,
                 "A piece that is always one token where it occurs (sentencepiece-bpe, without --dummy-prefix); may be given "
                 "several times")
      ->type_name("PIECE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_count(app, "--min-frequency", o->train.min_frequency, 0, int64_t{1} << 40,
            "Pairs that occur less often are not merged (default 0)");
  app.add_option("--key", o->text.key, "JSON lines: the key of the text")
      ->type_name("KEY")
      ->capture_default_str()
      ->each([o](const std::string&) { o->has_key = true; });
  app.add_option("--document", o->text.separator, "The separator between the documents of a text file; it belongs to no word")
      ->type_name("TEXT")
      ->check(not_empty());
  add_number(app, "--character-coverage", o->train.character_coverage, 0, 1,
             "Share of the text that single-character pieces must cover (sentencepiece-bpe, default 0.9995)", true);
  add_choice(app, "--byte-fallback", o->byte_fallback, "on|off",
             "256 byte pieces for rare characters (sentencepiece-bpe, default on)");
  app.add_flag("--split-digits", o->train.split_digits, "Each digit is a separate piece (sentencepiece-bpe)");
  app.add_flag("--dummy-prefix", o->train.dummy_prefix, "Add a space before every text (sentencepiece-bpe)");
  app.add_flag("--whitespace-pieces", o->train.whitespace_pieces, "Runs of spaces may be pieces (sentencepiece-bpe)");
  app.add_flag("--show-merges", o->show_merges, "Print each merge with its count");
  add_count(app, "--threads", o->threads, 1, 1024, "Threads (default: the cores this process may use)");
  add_count(app, "--limit-memory", o->memory_mib, 16, int64_t{1} << 30,
            "MiB for words and merging; beyond that the rarest words are dropped (default 1024)");
  app.add_flag("--overwrite", o->overwrite, "Replace an existing tokenizer in DIR");
  add_json(app, o->json);
  return [o] { train(*o); };
}

}  // namespace

const Command tokenizer_train_command = {
    "tokenizer train", "Train a tokenizer on text files",
    "Builds a vocabulary by byte-pair encoding (BPE): the most frequent pair of neighboring pieces is repeatedly merged into "
    "a new piece. byte-bpe gives the same ids and merges as Hugging Face's BpeTrainer with the ByteLevel pre-tokenizer. "
    "sentencepiece-bpe gives the same pieces as SentencePiece's trainer without normalization. Writes tokenizer.json, "
    "tokenizer_config.json and, for sentencepiece-bpe, "
    "tokenizer.model. \\n, \\t, \\r and \\\\ can be written in --special, --user-defined and --document. "
    "docs/tokenizer-training.md explains the rules.",
    "vitrine tokenizer train examples/fables.txt --vocab-size 400 --out fables-bytes --show-merges\n"
    "vitrine tokenizer train examples/fables.txt --kind sentencepiece-bpe --vocab-size 600 --user-defined '\\n' --out "
    "fables-pieces\n"
    "vitrine tokenize --model fables-pieces \"A lion and a mouse\"",
    define_tokenizer_train};

}  // namespace vitrine::cli
