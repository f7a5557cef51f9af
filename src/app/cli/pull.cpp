// vitrine pull: a model from the Hugging Face hub into the local cache.
#include "hub/pull.h"

#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "io/sae_registry.h"

namespace vitrine::cli {
namespace {

struct PullArguments {
  std::string name, revision = "main", sae_registry;
  int64_t connections = 8;
  bool dry_run = false, json = false;
};

std::string size_text(uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

OrderedJson pull_json(const std::string& name, const PullResult& result, bool dry_run, double seconds) {
  OrderedJson files = OrderedJson::array();
  for (const PulledFile& file : result.files)
    files.push_back({{"name", file.name}, {"hash", file.etag}, {"bytes", file.bytes}, {"bytes_before", file.was_there}});
  return {{"name", name},
          {"model", result.id},
          {"revision", result.revision},
          {"commit", result.commit},
          {"path", result.path},
          {"bytes", result.bytes()},
          {dry_run ? "bytes_to_fetch" : "bytes_fetched", result.fetched()},
          {"seconds", dry_run ? OrderedJson() : OrderedJson(seconds)},
          {"files", files}};
}

void print_files(const PullResult& result) {
  int widest = 0;
  for (const PulledFile& file : result.files) widest = std::max(widest, width_of(visible(file.name)));
  for (const PulledFile& file : result.files) {
    const std::string before = file.was_there == file.bytes ? "in the cache"
                               : file.was_there > 0         ? size_text(file.was_there) + " of it in the cache"
                                                            : "";
    print("  {}  {}  {}\n", pad_right(visible(file.name), widest), pad_left(size_text(file.bytes), 10), before);
  }
}

/// The name on the hub of a RELEASE:ID of SAELens's registry.
std::string registered_name(const PullArguments& o) {
  const size_t colon = o.name.find(':');
  if (colon == std::string::npos)
    throw UsageError("with --sae-registry expected RELEASE:ID, such as gpt2-small-res-jb:blocks.8.hook_resid_pre; got \"" +
                     o.name + "\"");
  const RegisteredSae sae = registered_sae(o.sae_registry, o.name.substr(0, colon), o.name.substr(colon + 1));
  if (!o.json) print("{} is {}\n", o.name, sae.name);
  if (sae.centered)
    log("{} was trained on a residual stream without its mean. In Python, load_sae(RELEASE, ID).save(FOLDER) writes it for "
        "models whose residual stream has one",
        o.name);
  return sae.name;
}

void run_pull(const PullArguments& o) {
  const std::string name = o.sae_registry.empty() ? o.name : registered_name(o);
  PullRequest request = read_pull_name(name, o.revision);
  request.only_plan = o.dry_run;
  HubSettings settings = hub_settings();
  settings.connections = static_cast<int>(o.connections);
  PullResult result;
  double seconds = 0;
  {
    const LastWords words(fmt::format("stopped; `vitrine pull {}` continues from here", name), settings.cache);
    Progress progress("pulling");
    result = pull(request, settings, [&](const PullProgress& now) {
      const double rate = static_cast<double>(now.arrived) / std::max(progress.seconds(), 1e-3);
      progress.show(
          static_cast<double>(now.arrived) / static_cast<double>(std::max<uint64_t>(now.total, 1)),
          fmt::format("{} of {}, {}/s, {}", size_text(now.arrived), size_text(now.total), bytes_text(rate), visible(now.file)));
    });
    seconds = progress.seconds();
  }
  if (o.json) return print_json(pull_json(name, result, o.dry_run, seconds));
  print_files(result);
  if (o.dry_run) {
    print("{} to fetch of {}\n", size_text(result.fetched()), size_text(result.bytes()));
  } else if (result.fetched() == 0) {
    print("{} is complete: {}\n", name, result.path);
  } else {
    print("{} in {}, {}/s: {}\n", size_text(result.fetched()), duration_text(seconds),
          bytes_text(static_cast<double>(result.fetched()) / std::max(seconds, 1e-3)), result.path);
  }
}

Action define_pull(CLI::App& app) {
  auto o = std::make_shared<PullArguments>();
  app.add_option("NAME", o->name,
                 "OWNER/NAME, OWNER/NAME:TYPE for GGUF weights of a type such as Q4_K_M, OWNER/NAME:FILE, or OWNER/NAME:FOLDER "
                 "of an autoencoder")
      ->type_name("")
      ->required();
  app.add_option("--revision", o->revision, "A branch, a tag or a commit (default main)")
      ->type_name("REVISION")
      ->check(not_empty());
  app.add_option("--sae-registry", o->sae_registry,
                 "NAME is RELEASE:ID in this registry: pretrained_saes.yaml of the Python package sae_lens")
      ->type_name("FILE")
      ->check(not_empty());
  add_count(app, "--connections", o->connections, 1, 32, "Parallel requests for a large file (default 8)");
  app.add_flag("--dry-run", o->dry_run, "Show what would be fetched");
  add_json(app, o->json);
  return [o] { run_pull(*o); };
}

}  // namespace

const Command pull_command = {
    "pull",
    "Download a model from the Hugging Face hub",
    "Downloads configuration, tokenizer and safetensors of OWNER/NAME into the cache of the Hugging Face libraries; every "
    "command then takes OWNER/NAME as --model. In a repository with several GGUF files select one by its type or its file "
    "name, and use OWNER/NAME:TYPE as --model. OWNER/NAME:FOLDER downloads a sparse autoencoder's folder, for --sae; "
    "RELEASE:ID with --sae-registry is one of SAELens's. Every file is checked against the hub's hash before it gets its final "
    "name. The same command continues an interrupted download. For private and gated models set HF_TOKEN to a token. See "
    "docs/models.md.",
    "vitrine pull Qwen/Qwen3-0.6B\n"
    "vitrine pull Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
    "vitrine pull google/gemma-scope-2b-pt-res:layer_20/width_16k/average_l0_71\n"
    "vitrine pull Qwen/Qwen3-0.6B --dry-run",
    define_pull,
    "the network"};

}  // namespace vitrine::cli
