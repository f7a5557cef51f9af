#include "cli/other_names.h"

#include <algorithm>

namespace vitrine::cli {
namespace {

struct OtherName {
  std::string_view word;
  std::string_view option;  // ours
  std::string_view note;    // where the command has no such option
};

constexpr std::string_view kHub = "fetch the model with `vitrine pull`, and name it with --model",
                           kPrompt = "the prompt is given without an option";
constexpr std::string_view kOfRequests = "it is a field of each request", kAlways = "it is always on; leave it out",
                           kCpu = "vitrine runs on the CPU; leave it out",
                           kBatch = "steps are sized by the scheduler; leave it out",
                           kMapped = "files are mapped, and stay in memory as long as there is room; leave it out";

constexpr OtherName kNames[] = {
    {"-c", "--context", ""},
    {"--ctx-size", "--context", ""},
    {"-np", "--parallel", ""},
    {"-t", "--threads", ""},
    {"-tb", "--threads", ""},
    {"--threads-batch", "--threads", ""},
    {"-a", "--alias", ""},
    {"-n", "--max-tokens", kOfRequests},
    {"--n-predict", "--max-tokens", kOfRequests},
    {"--predict", "--max-tokens", kOfRequests},
    {"-s", "--seed", kOfRequests},
    {"--seed", "", kOfRequests},
    {"--temp", "--temperature", kOfRequests},
    {"--temperature", "", kOfRequests},
    {"--top-k", "", kOfRequests},
    {"--top-p", "", kOfRequests},
    {"--min-p", "", kOfRequests},
    {"-md", "--draft", ""},
    {"--model-draft", "--draft", ""},
    {"--draft-max", "--draft-tokens", ""},
    {"--draft-n", "--draft-tokens", ""},
    {"-ctk", "--cache-type-k", ""},
    {"-ctv", "--cache-type-v", ""},
    {"--chat-template-file", "--template", ""},
    {"--chat-template", "--template", ""},
    {"--no-ui", "--no-page", ""},
    {"--no-webui", "--no-page", ""},
    {"--cors-origins", "--cors-origin", ""},
    {"--lora", "--adapter", ""},
    {"--lora-scaled", "--lora", ""},
    {"--enable-lora", "", kAlways},
    {"--ssl-key-file", "--tls-key", ""},
    {"--ssl-cert-file", "--tls-cert", ""},
    {"-hf", "", kHub},
    {"-hfr", "", kHub},
    {"--hf-repo", "", kHub},
    {"-p", "", kPrompt},
    {"--prompt", "", kPrompt},
    {"-ngl", "", kCpu},
    {"--gpu-layers", "", kCpu},
    {"--n-gpu-layers", "", kCpu},
    {"-fa", "", kAlways},
    {"--flash-attn", "", kAlways},
    {"--jinja", "", kAlways},
    {"-cb", "", kAlways},
    {"--cont-batching", "", kAlways},
    {"--metrics", "", kAlways},
    {"--slots", "", kAlways},
    {"--props", "", kAlways},
    {"--embedding", "", kAlways},
    {"--embeddings", "", kAlways},
    {"-b", "", kBatch},
    {"-ub", "", kBatch},
    {"--batch-size", "", kBatch},
    {"--ubatch-size", "", kBatch},
    {"--mlock", "", kMapped},
    {"--no-mmap", "", kMapped},
};

constexpr std::string_view kTalk = "here it is `vitrine chat`, or `vitrine generate` to continue a text",
                           kKept = "models are files and folders; `vitrine info --model PATH` shows one",
                           kWorking = "`vitrine serve` shows what it does under /slots and /metrics",
                           kLearn = "here it is `vitrine train`", kConvert = "here it is `vitrine convert`",
                           kLook = "here it is `vitrine explain`", kTokens = "here it is `vitrine tokenize`",
                           kServe = "here it is `vitrine serve`", kSteer = "here it is `vitrine intervene`",
                           kMeasure = "here it is `vitrine eval perplexity`", kMerge = "here it is `vitrine merge`",
                           kPages = "here it is `vitrine --help`";

struct OtherCommand {
  std::string_view word, note;
};
constexpr OtherCommand kCommands[] = {
    {"run", kTalk},
    {"ask", kTalk},
    {"prompt", kTalk},
    {"cli", kTalk},
    {"llama-cli", kTalk},
    {"complete", "here it is `vitrine generate`"},
    {"completions", "here it is `vitrine generate`"},
    {"list", kKept},
    {"ls", kKept},
    {"show", kKept},
    {"models", kKept},
    {"rm", "models are files and folders; remove them as such"},
    {"cp", "models are files and folders; copy them as such"},
    {"ps", kWorking},
    {"stop", kWorking},
    {"server", kServe},
    {"llama-server", kServe},
    {"api", kServe},
    {"download", "here it is `vitrine pull`"},
    {"create", "a model is made by `vitrine train`, `vitrine convert` or `vitrine merge`"},
    {"finetune", kLearn},
    {"fine-tune", kLearn},
    {"sft", kLearn},
    {"dpo", kLearn},
    {"orpo", kLearn},
    {"kto", kLearn},
    {"grpo", kLearn},
    {"lora", "`vitrine train` makes an adapter with lora in its recipe, `vitrine extract-lora` takes one out of a model"},
    {"quantize", kConvert},
    {"quantise", kConvert},
    {"llama-quantize", kConvert},
    {"export", kConvert},
    {"llama-imatrix", "here it is `vitrine imatrix`"},
    {"llama-bench", "here it is `vitrine bench`"},
    {"benchmark", "here it is `vitrine bench`"},
    {"perplexity", kMeasure},
    {"ppl", kMeasure},
    {"llama-perplexity", kMeasure},
    {"lm_eval", "here it is `vitrine eval choices`"},
    {"lm-eval", "here it is `vitrine eval choices`"},
    {"encode", kTokens},
    {"llama-tokenize", kTokens},
    {"decode", "here it is `vitrine detokenize`"},
    {"inspect", kLook},
    {"visualize", kLook},
    {"visualise", kLook},
    {"ablate", kSteer},
    {"patch", kSteer},
    {"steer", kSteer},
    {"mergekit", kMerge},
    {"mergekit-yaml", kMerge},
    {"help", kPages},
    {"version", "here it is `vitrine --version`"},
};

}  // namespace

std::string known_elsewhere(std::string_view word, std::span<const std::string> options) {
  const auto has = [&](std::string_view option) { return std::find(options.begin(), options.end(), option) != options.end(); };
  if (!word.starts_with('-') && word.ends_with(".gguf") && has("--model")) return "; a model is given with --model";
  const auto at = std::find_if(std::begin(kNames), std::end(kNames), [&](const OtherName& name) { return name.word == word; });
  if (at == std::end(kNames)) return "";
  if (has(at->option)) return "; here it is " + std::string(at->option);
  return at->note.empty() ? "" : "; " + std::string(at->note);
}

std::string command_elsewhere(std::string_view word) {
  const auto at = std::find_if(std::begin(kCommands), std::end(kCommands), [&](const OtherCommand& c) { return c.word == word; });
  return at == std::end(kCommands) ? "" : "; " + std::string(at->note);
}

std::string_view command_of_program(std::string_view path) {
  return path.substr(path.rfind('/') + 1) == "mergekit-yaml" ? "merge" : "";
}

}  // namespace vitrine::cli
