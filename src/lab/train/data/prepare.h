#pragma once
// From text files to token data: read, tokenized by all threads, written as shards.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "io/shared_work.h"
#include "io/text_reader.h"
#include "tokenizer/tokenizer.h"
#include "train/data/token_data_writer.h"

namespace vitrine {

/// Beside the splits: the chat template that messages went through. A model that learns from them keeps it.
inline constexpr char kTemplateName[] = "chat_template.jinja";

/// A number that two tokenizers share if every id stands for the same piece in both.
uint64_t tokenizer_fingerprint(const Tokenizer& tokenizer);

/// The ids of a document of masked data, and which of them are scored; of unpaired preferences, the first of these is the label.
struct MaskedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> scored;
};
/// What an object of the files (a line, or one of a list) becomes: one document or several, which stay together where text is
/// held out. Called by several threads at once. Errors: InputError, which is then told with file and line.
using LineEncoder = std::function<std::vector<MaskedDocument>(std::string_view line)>;

struct PrepareOptions {
  std::vector<std::string> files = {}, valid_files = {};
  TextOptions text = {};
  double valid = 0;     // share of the documents of `files` that is held out, each drawn by itself; below 1
  uint64_t seed = 0;    // of that draw
  bool special = true;  // a document begins with BOS where the tokenizer's file says so, and ends with EOS if there is one
  uint64_t shard_tokens = TokenDataWriter::kShardTokens;
  size_t round_bytes = size_t{8} << 20;  // of text that are tokenized at once; the result does not depend on it
  DataContent content = DataContent::text;
  LineEncoder encode_line = {};  // for other content than text: of each object, in the place of text and special
};

/// What was written.
struct PreparedSplit {
  uint64_t tokens = 0, documents = 0, text_bytes = 0;
  uint64_t scored = 0;  // of the tokens
};
struct Prepared {
  PreparedSplit train;
  std::optional<PreparedSplit> valid;
  std::optional<int32_t> bos, eos;  // what each document begins and ends with
  uint64_t tokens = 0;              // that this call made of text, or read from parts
};

struct PrepareProgress {
  uint64_t read_bytes = 0, file_bytes = 0;  // of the files as they lie on the disk
  uint64_t tokens = 0, documents = 0;
};

/// Tokenizes the files into `out`/train and, if asked for, `out`/valid, in the order of the files; a folder that an earlier
/// call made is replaced. Everything is written to `out`.unfinished, which takes the name `out` when it is complete: an error
/// leaves what was there. The same bytes come out for any number of threads.
///
/// Control tokens that are spelled out in the text stay text. A document of more than TextOptions::longest bytes is tokenized
/// in pieces (see TextReader), which end inside no added token or user-defined piece as far as TextOptions::lies_across is asked;
/// a tokenizer that puts a space before a text does so before each piece.
///
/// tokenizer_files  by name, written to `out`: tokenizer.json, tokenizer_config.json, kTemplateName
/// shared           whose units are rounds of text: every process reads all text and tokenizes its own; without it all are
///                  tokenized here. Unless it gives all, `out` is not touched, and nothing but `tokens` is counted. It is
///                  finished before `out` takes its name.
/// progress         called now and then from the calling thread, and at the end
/// Errors: as TextReader, Tokenizer::encode and SharedWork; InputError for files without text, for a held-out share that holds no
/// document or all of them, for a file in both lists, and for an `out` that holds anything else or cannot be made or replaced;
/// UsageError while another process writes it; RunError from the disk.
Prepared prepare_data(const Tokenizer& tokenizer, ThreadPool& pool, const PrepareOptions& options, const std::string& out,
                      const std::map<std::string, std::string>& tokenizer_files = {},
                      const std::function<void(const PrepareProgress&)>& progress = {}, SharedWork* shared = nullptr);

}  // namespace vitrine
