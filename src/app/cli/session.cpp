#include "cli/session.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "model/adapter.h"
#include "model/reward_model.h"
#include "model/unknown_keys.h"
#include "runtime/model_tokenizer.h"

namespace vitrine::cli {
namespace {

constexpr char kAuto[] = "auto";

Numerics numerics(const ModelOptions& options) { return {.f32 = options.compute == "f32", .exact = options.exact}; }

}  // namespace

void add_model_name(CLI::App& app, std::string& model) {
  app.add_option("--model,-m", model,
                 "A Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache; default: the shipped model")
      ->type_name("MODEL")
      ->check(not_empty());
}

void add_window(CLI::App& app, int64_t& window) {
  add_count(
      app, "--window", window, 1, int64_t{1} << 40,
      "How many positions each layer sees, for a GGUF file that does not say it: llama.cpp's files of Mistral 7B v0.1 leave out "
      "its 4096");
}

void add_json(CLI::App& app, bool& json) { app.add_flag("--json", json, "One JSON document on standard output"); }

void add_run_options(CLI::App& app, ModelOptions& options) {
  add_count(app, "--threads", options.threads, 1, 1024,
            "Threads; default: the cores this process may use. The result does not depend on it");
  add_choice(app, "--compute", options.compute, "auto|f32",
             "Precision: auto multiplies 16-bit and block weights in their own precision, f32 widens them and computes in f32 "
             "(default auto)");
  app.add_flag("--exact", options.exact,
               "Always use the same kernels: results are bit-identical for any batch, chunks and cache state");
  add_json(app, options.json);
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  add_model_name(app, options.model);
  app.add_option(
         "--adapter", options.adapter,
         "A LoRA adapter to run with the model: the folder that PEFT or `vitrine train` wrote, or a .gguf file of llama.cpp")
      ->type_name("FOLDER")
      ->check(not_empty());
  app.add_flag(
      "--ignore-unknown-keys", options.ignore_unknown_keys,
      "Run a model whose config.json has settings that are not known here, without them and with a warning that names them. "
      "Where they matter, the numbers are wrong");
  add_window(app, options.window);
  add_run_options(app, options);
  add_choice(
      app, "--pin", options.pin, "none|cores",
      "Whether threads stay on one processor each: cores takes whole cores first, and on a machine with several memory nodes "
      "copies weights near the threads that read them. For a machine that nothing else uses (default none)");
}

void add_cache_types(CLI::App& app, ModelOptions& options) {
  options.cache_keys = options.cache_values = "f32";
  add_choice(app, "--cache-type-k", options.cache_keys, "f32|f16|q8_0|q4_0",
             "The type of cached keys: smaller types take less memory and are faster, but are rounded (default f32)");
  add_choice(app, "--cache-type-v", options.cache_values, "f32|f16|q8_0|q4_0", "The type of cached values (default f32)");
}

void add_decoding_cache_types(CLI::App& app, ModelOptions& options) {
  add_choice(app, "--cache-type-k", options.cache_keys, "auto|f32|f16|q8_0|q4_0",
             "The type of cached keys: smaller types take less memory and are faster, but are rounded. auto, the default, is f16 "
             "for models of 16-bit or quantized weights, f32 for others and with --exact or --compute f32");
  add_choice(app, "--cache-type-v", options.cache_values, "auto|f32|f16|q8_0|q4_0", "The type of cached values (default auto)");
}

void add_load(CLI::App& app, ModelOptions& options) {
  options.load = kAuto;
  add_choice(
      app, "--load", options.load, "map|copy|auto",
      "Where weights are read from: map, the file's pages, which all processes share; copy, huge pages of this process's own, "
      "filled in the background where memory allows, which are faster to read; auto, the default, the same once a run has gone "
      "on for a while");
}

std::optional<DType> cache_type(const std::string& word, std::string_view option) {
  if (word == kAuto) return {};
  return cache_type_named(word, option);
}

std::string shipped_model() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string tried;
  for (const char* place : {"models/tales9m", "../share/vitrine/models/tales9m"}) {
    const std::filesystem::path folder = (program.parent_path() / place).lexically_normal();
    if (std::filesystem::exists(folder / "config.json", error)) return folder.string();
    tried += (tried.empty() ? "" : " and ") + folder.string();
  }
  throw InputError("the shipped model was not found at " + tried + ". Name a model with --model.");
}

std::string model_or_shipped(const std::string& model) { return model.empty() ? shipped_model() : model; }

void add_prompt_options(CLI::App& app, PromptOptions& options, bool batches) {
  app.add_option("TEXT", options.text, "The prompt; - reads it from standard input")
      ->type_name("")
      ->each([&options](const std::string&) { options.has_text = true; });
  app.add_option("--tokens", options.tokens,
                 "The prompt as token ids, used exactly as given: 2,651; several sequences: 2,651;2,77")
      ->type_name("IDS")
      ->each([&options](const std::string&) { options.has_tokens = true; });
  options.batches = batches;
  if (batches)
    app.add_option("--jsonl", options.jsonl,
                   "Many prompts: a file (- for standard input) with one {\"text\": …} per line; prints one object per line")
        ->type_name("FILE")
        ->each([&options](const std::string&) { options.has_jsonl = true; });
  app.add_flag("--no-special", options.no_special, "Do not add BOS or EOS to the text");
}

Engine open_engine(const ModelOptions& options) {
  ModelFiles files = resolve_model(model_or_shipped(options.model));
  files.window = options.window;
  files.may_lack_head = options.may_lack_head;
  files.rewards = options.rewards;
  if (options.rewards && !options.adapter.empty()) open_for_rewards(files, "--adapter");  // it has the score
  if (options.ignore_unknown_keys)
    for (const std::string& key : drop_unknown_keys(files))
      log("warning: {} sets \"{}\", which is not known here and is ignored; the numbers may be wrong", files.config_path, key);
  OpenedModel opened = open_model(std::move(files));
  if (!options.adapter.empty()) open_adapter(opened, options.adapter);
  if (opened.files.fresh_score) {
    const std::vector<std::string>& saved = opened.adapter->options().saved;
    if (std::find(saved.begin(), saved.end(), "score") == saved.end())
      throw InputError(options.adapter +
                       ": is not an adapter of a reward model: \"score\" is not among its modules_to_save. `vitrine train` with "
                       "reward_model and lora makes one");
  }
  ScaledAdapters adapters;
  for (const std::string& word : options.lora) {
    const LoraWord lora = parse_lora(word);
    adapters.push_back({read_adapter(opened, lora.path), lora.scale});
  }
  // What auto chooses is for writing: scores are not rounded by it.
  const std::optional<DType> keys = cache_type(options.cache_keys, "--cache-type-k"),
                             values = cache_type(options.cache_values, "--cache-type-v");
  const CacheTypes chosen = cache_types_for(opened, numerics(options));
  const bool automatic = !keys && !values;
  const CacheTypes types = automatic ? CacheTypes() : CacheTypes{keys.value_or(chosen.keys), values.value_or(chosen.values)};
  return Engine(std::move(opened), {.threads = static_cast<int>(options.threads),
                                    .numerics = numerics(options),
                                    .cache = types,
                                    .decode_narrow = automatic,
                                    .adapters = std::move(adapters),
                                    .load = load_named(options.load),
                                    .pin = pin_named(options.pin),
                                    .through = options.through});
}

void check_output(const std::string& out, std::span<const std::filesystem::path> inputs) {
  for (const std::filesystem::path& input : inputs) {
    std::error_code not_there;
    if (!input.empty() && std::filesystem::equivalent(input, out, not_there))
      throw UsageError(fmt::format("{} is a file that this run reads, and would be lost; name another.", out));
  }
}

void check_output(const Engine& engine, const std::string& out, std::vector<std::filesystem::path> inputs) {
  const ModelFiles& files = engine.opened().files;
  inputs.emplace_back(files.config_path);
  inputs.emplace_back(files.generation_config_path);
  for (const MappedFile& file : engine.opened().checkpoint.files()) inputs.emplace_back(file.path());
  if (engine.opened().adapter != nullptr)
    for (const std::string& file : engine.opened().adapter->files()) inputs.emplace_back(file);
  if (files.kind == ModelFiles::Kind::huggingface)
    for (const char* name :
         {"model.safetensors.index.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
          "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja"})
      inputs.push_back(std::filesystem::path(files.directory) / name);
  check_output(out, inputs);
}

namespace {

// Errors: InputError that says what a command with --tokens can do without a tokenizer.
const Tokenizer& tokenizer_or_ids(const Engine& engine) {
  try {
    return engine.tokenizer();
  } catch (const InputError& error) {
    throw InputError(std::string(error.what()) + ", or give token ids with --tokens");
  }
}

}  // namespace

std::vector<Prompt> read_prompts(Engine& engine, const PromptOptions& options, bool empty_allowed) {
  const int given = int{options.has_text} + int{options.has_tokens} + int{options.has_jsonl};
  if (given == 0)
    throw UsageError("no prompt: give a text, such as \"Once upon a time\", - for standard input, or ids with --tokens 2,651.");
  if (given > 1)
    throw UsageError(std::string("more than one prompt: give a text") +
                     (options.batches ? ", --tokens or --jsonl." : " or --tokens."));

  std::vector<Prompt> prompts;
  if (options.has_tokens) {
    for (auto& ids : parse_sequences(options.tokens, "--tokens")) prompts.push_back({"", std::move(ids), false});
  } else {
    std::vector<std::string> texts;
    if (options.has_jsonl) {
      texts = read_jsonl_texts(options.jsonl);
    } else {
      texts = {options.text == "-" ? read_text("-") : options.text};
      if (options.text == "-" && texts[0].ends_with('\n')) texts[0].pop_back();  // echo's
      require_utf8(texts[0], "the prompt");
    }
    for (std::string& text : texts) {
      Prompt prompt{std::move(text), {}, true};
      prompt.ids = tokenizer_or_ids(engine).encode(prompt.text, !options.no_special, Special::as_file, engine.context().pool());
      prompts.push_back(std::move(prompt));
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].ids.empty() && empty_allowed) continue;
    if (prompts[i].ids.empty())
      throw InputError(
          "the prompt has no token, so there is nothing to predict from. Give some text, or a first token with --tokens.");
    try {
      engine.check_ids(prompts[i].ids);
    } catch (const InputError& error) {
      if (prompts.size() == 1) throw;
      throw InputError(fmt::format("prompt {}: {}", i + 1, error.what()));
    }
  }
  return prompts;
}

OrderedJson prompt_json(const Engine& engine, const Prompt& prompt) {
  return vitrine::prompt_json(engine, prompt.ids, prompt.from_text ? std::optional(prompt.text) : std::nullopt);
}

std::string shown_piece(const Engine& engine, int32_t id) {
  const std::optional<std::string> piece = engine.piece(id);
  return piece ? visible(*piece) : fmt::format("{}", id);
}

}  // namespace vitrine::cli
