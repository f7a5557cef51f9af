// vitrine extract-lora: the difference of two models as a LoRA adapter.
#include <algorithm>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/plural.h"
#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "merge/extract.h"

namespace vitrine::cli {
namespace {

struct ExtractArguments {
  std::string model, base, out;
  ExtractOptions options;
  int64_t threads = 0;
  bool json = false, safe = true;
  std::set<std::string> ignored;  // options of mergekit's that were given
};

MergeInput open_named(const std::string& text, const char* option) {
  const auto reference = model_reference(text);
  if (!reference)
    throw UsageError(std::string(option) + " " + text + ": expected a model, or a model and one adapter as model+adapter");
  return MergeInput(*reference);
}

const char* name_of_kind(ExtractedModule::Kind kind) {
  switch (kind) {
    case ExtractedModule::Kind::matrix: return "matrix";
    case ExtractedModule::Kind::embedding: return "embedding";
    case ExtractedModule::Kind::saved: return "whole";
  }
  return "";
}

OrderedJson extract_json(const ExtractArguments& o, const ExtractResult& result, double seconds) {
  OrderedJson modules = OrderedJson::array();
  for (const ExtractedModule& m : result.modules) {
    modules.push_back({{"name", m.name}, {"kind", name_of_kind(m.kind)}, {"shape", m.shape}});
    if (m.kind != ExtractedModule::Kind::saved) modules.back().update({{"rank", m.rank}, {"norm", m.norm}, {"kept", m.kept}});
  }
  return {{"model", o.model},
          {"base_model", o.base},
          {"out", o.out},
          {"rank", result.rank},
          {"parameters", result.parameters},
          {"modules", modules},
          {"notes", result.notes},
          {"seconds", seconds}};
}

void print_extracted(const ExtractArguments& o, const ExtractResult& result, double seconds) {
  int64_t matrices = 0, saved = 0, empty = 0;
  double squares = 0, held = 0;
  const ExtractedModule* least = nullptr;
  for (const ExtractedModule& m : result.modules) {
    if (m.kind == ExtractedModule::Kind::saved) {
      ++saved;
      continue;
    }
    ++(m.rank > 0 ? matrices : empty);
    squares += m.norm * m.norm;
    held += m.kept * m.norm * m.norm;
    if (least == nullptr || m.kept < least->kept) least = &m;
  }
  print("{} of rank {}, {} whole, {} numbers, {} in {}, {:.1f} s\n",
        matrices == 1 ? "1 matrix" : fmt::format("{} matrices", matrices), result.rank, plural(saved, "module"),
        grouped(result.parameters), bytes_text(static_cast<double>(result.bytes)), o.out, seconds);
  if (empty > 0) print("left out, as no singular value is above --sv-epsilon: {}\n", plural(empty, "module"));
  if (squares > 0 && least != nullptr)
    print("the adapter holds {} of the squared difference of the matrices; least in {}: {}\n", percent(held / squares),
          least->name, percent(least->kept));
}

void run_extract_lora(ExtractArguments& o) {
  for (const std::string& flag : o.ignored) log("note: {} has no effect here", flag);
  if (!o.safe) throw UsageError("--no-safe-serialization asks for pickled weights, which are not written; leave it out");
  const MergeInput model = open_named(o.model, "--model"), base = open_named(o.base, "--base-model");
  ThreadPool pool(static_cast<int>(o.threads));
  const Stopwatch watch;
  ExtractResult result;
  {
    Progress progress("extracting");
    result = extract_lora(model, base, o.out, o.options, pool, [&](size_t done, size_t all, const std::string& name) {
      progress.show(static_cast<double>(done) / static_cast<double>(all), name);
    });
  }
  for (const std::string& note : result.notes) log("note: {}", note);
  const double seconds = watch.ms() / 1000;
  if (o.json) return print_json(extract_json(o, result, seconds));
  print_extracted(o, result, seconds);
}

Action define_extract_lora(CLI::App& app) {
  auto o = std::make_shared<ExtractArguments>();
  app.add_option("--model", o->model,
                 "The fine-tuned model: a directory, a .gguf file, an id in the local cache or model+adapter")
      ->type_name("MODEL")
      ->required()
      ->check(not_empty());
  app.add_option("--base-model", o->base, "The model that it was fine-tuned from")
      ->type_name("MODEL")
      ->required()
      ->check(not_empty());
  app.add_option("--out-path", o->out, "The adapter's directory to write")->type_name("DIR")->required()->check(not_empty());
  add_count(app, "--max-rank", o->options.max_rank, 1, 1 << 16, "Maximum rank of A and B (default 128)");
  add_number(app, "--sv-epsilon", o->options.sv_epsilon, 0, 1e30, "Omit singular values up to this (default 0: none)");
  app.add_flag("--distribute-scale,!--no-distribute-scale", o->options.distribute_scale,
               "Put the square roots of the singular values into A and into B (default); otherwise all of them into A");
  app.add_flag("--embed-lora,!--no-embed-lora", o->options.embed_lora,
               "Also extract A and B of embeddings and output matrix; otherwise these are saved whole (default)");
  app.add_option("--save-module", o->options.save_modules, "Save these modules whole: a name, or its last part; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-i,--include-regex", o->options.include, "Only modules whose names contain a match; may be repeated")
      ->type_name("REGEX")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-e,--exclude-regex", o->options.exclude, "Exclude modules whose names contain a match; may be repeated")
      ->type_name("REGEX")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--skip-undecomposable", o->options.skip_undecomposable,
               "Omit tensors that cannot be decomposed, such as norms; otherwise they are saved whole");
  app.add_flag("--write-model-card,!--no-write-model-card", o->options.write_model_card, "Write README.md (default)");
  add_count(app, "-j,--threads,--num-threads", o->threads, 0, 4096, "Threads (default: all cores)");
  add_json(app, o->json);

  // mergekit's options that concern other machines or libraries, or merges.
  app.add_flag("--safe-serialization,!--no-safe-serialization", o->safe, "")->group("");
  for (const char* flag : {"cuda", "low-cpu-memory", "read-to-gpu", "multi-gpu", "trust-remote-code", "clone-tensors",
                           "lazy-unpickle", "async-write", "quiet", "allow-crimes", "copy-tokenizer"}) {
    const std::string name = std::string("--") + flag;
    app.add_flag_callback(name, [o, name] { o->ignored.insert(name); }, "")->group("");
    app.add_flag_callback("--no-" + std::string(flag), [] {}, "")->group("");
  }
  for (const char* flag : {"--gpu-rich", "--unsafe-truncate-embeddings"})
    app.add_flag_callback(flag, [o, flag] { o->ignored.insert(flag); }, "")->group("");
  app.add_flag_callback(
         "-v,--verbose", [o] { o->ignored.insert("-v"); }, "")
      ->group("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const char* option : {"device", "transformers-cache", "lora-merge-cache", "lora-merge-dtype", "write-threads",
                             "out-shard-size", "random-seed"}) {
    const std::string name = std::string("--") + option;
    app.add_option_function<std::string>(name, [o, name](const std::string&) { o->ignored.insert(name); }, "")->group("");
  }
  return [o] { run_extract_lora(*o); };
}

}  // namespace

const Command extract_lora_command = {
    "extract-lora", "Extract a LoRA adapter from a fine-tuned model and its base",
    "The difference of every matrix is approximated by two small ones, A and B, of rank --max-rank (truncated SVD). "
    "Tensors that cannot be decomposed are saved whole if they differ. DIR gets PEFT's files, and its final name when it "
    "is complete; nothing is overwritten. The models may have any architecture. mergekit-extract-lora's options are "
    "accepted; a note lists those that have no effect here. See docs/lora.md.",
    "vitrine extract-lora --model tests/golden/merging/llama/ft1 --base-model tests/golden/merging/llama/base --out-path "
    "adapter "
    "--max-rank 8",
    define_extract_lora};

}  // namespace vitrine::cli
