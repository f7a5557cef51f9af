#pragma once
// What every command that runs a model has in common: its flags, the opened model, the threads.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/output.h"
#include "runtime/engine.h"
#include "runtime/token_json.h"

namespace vitrine::cli {

struct ModelOptions {
  std::string model;                                                       // empty: the shipped one
  std::string adapter;                                                     // a folder in PEFT's format; empty: none
  std::vector<std::string> lora;                                           // --lora (cli/lora_option.h)
  std::function<std::shared_ptr<const Model>(const Model&)> through = {};  // EngineOptions::through
  int64_t threads = 0;
  std::string pin = "none";
  std::string compute = "auto";
  std::string cache_keys = "auto", cache_values = "auto", load = "map";  // caches: f32 for scores, narrower for writing
  bool exact = false;
  bool ignore_unknown_keys = false;  // of a config.json
  int64_t window = 0;                // of a GGUF file that names none; 0: as the file says
  bool may_lack_head = false;        // the command does without logits
  bool rewards = false;              // the command reads rewards (ModelFiles::rewards)
  bool json = false;
};

/// --window, of a GGUF file (ModelFiles::window).
void add_window(CLI::App& app, int64_t& window);
/// --model alone, for commands that do not run the model.
void add_model_name(CLI::App& app, std::string& model);
/// --threads, --compute, --exact, --json, for commands that name models otherwise.
void add_run_options(CLI::App& app, ModelOptions& options);
/// --model, --adapter and these.
void add_model_options(CLI::App& app, ModelOptions& options);
/// --cache-type-k and --cache-type-v, for commands that score sequences through a cache.
void add_cache_types(CLI::App& app, ModelOptions& options);
/// The same with `auto`, which is their default, for commands that write.
void add_decoding_cache_types(CLI::App& app, ModelOptions& options);
/// --load.
void add_load(CLI::App& app, ModelOptions& options);
/// The type that a word of these options names; nothing: auto. Errors: UsageError.
std::optional<DType> cache_type(const std::string& word, std::string_view option);
void add_json(CLI::App& app, bool& json);

/// The model that ships with vitrine: beside the program in a build folder, under share/vitrine where it is installed.
/// Errors: FileError that says where it was looked for.
std::string shipped_model();
/// `model`, or the shipped model if it is empty.
std::string model_or_shipped(const std::string& model);

/// A prompt as it was given: text, ids, or several of either.
struct PromptOptions {
  std::string text, tokens, jsonl;
  bool has_text = false, has_tokens = false, has_jsonl = false, no_special = false;
  bool batches = false;  // --jsonl is among the flags
};
/// TEXT and --tokens; --jsonl too with `batches`. Also --no-special.
void add_prompt_options(CLI::App& app, PromptOptions& options, bool batches);

struct Prompt {
  std::string text;          // as given
  std::vector<int32_t> ids;  // what goes into the model
  bool from_text = false;    // given as text, not as ids
};

/// The engine for the options' model, with its adapters.
Engine open_engine(const ModelOptions& options);

/// Errors: UsageError for an output that is one of the inputs: writing it would destroy it.
void check_output(const std::string& out, std::span<const std::filesystem::path> inputs);
/// The same for the files which `engine` runs from, and `inputs`.
void check_output(const Engine& engine, const std::string& out, std::vector<std::filesystem::path> inputs = {});

/// The prompts that the flags hold. Errors: UsageError for none and for more than one kind; InputError for text that is not
/// UTF-8, ids outside the vocabulary, a prompt longer than the context, and (unless `empty_allowed`) one without a token.
std::vector<Prompt> read_prompts(Engine& engine, const PromptOptions& options, bool empty_allowed = false);

/// {text, tokens, pieces}
OrderedJson prompt_json(const Engine& engine, const Prompt& prompt);
/// One piece for a person to read; the id itself without a tokenizer, and for an id without a piece.
std::string shown_piece(const Engine& engine, int32_t id);

}  // namespace vitrine::cli
