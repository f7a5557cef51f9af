// vitrine collect: the values at hooks over a corpus, as shards on disk.
#include "collect/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/document_source.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/sae_flags.h"
#include "cli/session.h"
#include "cli/shard_flags.h"

namespace vitrine::cli {
namespace {

struct CollectArguments {
  ModelOptions model;
  std::vector<SaeFile> saes;
  CollectOptions collect;
  DocumentSource source;
  std::string type = "f32";
  int64_t max_tokens = 0, shard_mb = 256;
  ShardFlags sharing;
};

std::string speed_text(double tokens_per_s) { return grouped(static_cast<int64_t>(tokens_per_s)) + " tokens/s"; }

void run_collect(CollectArguments o) {
  o.collect.special = !o.source.no_special;
  o.collect.max_tokens = static_cast<uint64_t>(o.max_tokens);
  o.collect.shard_bytes = static_cast<uint64_t>(o.shard_mb) << 20;
  o.collect.type = o.type == "f16" ? DType::f16 : o.type == "bf16" ? DType::bf16 : DType::f32;
  o.model.may_lack_head = true;
  o.model.through = through_saes(o.saes);
  Engine engine = open_engine(o.model);
  const std::unique_ptr<DocumentTokens> documents =
      open_documents(o.source, engine, "collect tales.txt.gz --hooks blocks.3.hook_resid_post --out acts");
  SharedWork work = shared_work(o.sharing, {&engine});
  Progress progress("collecting");
  bool begun = false;
  const auto show = [&](const CollectProgress& now) {
    if (!begun) progress.begin(o.collect.resume ? now.share : 0);
    begun = true;
    progress.show(now.share, speed_text(now.tokens_per_s));
  };
  const Collected made = collect(engine, *documents, o.collect, show, &work);
  if (finish_part(work, o.model.json)) return;
  const ActivationManifest& m = made.manifest;
  const double speed = made.seconds > 0 ? static_cast<double>(made.computed) / made.seconds : 0;
  const double bytes = static_cast<double>(m.tokens()) * static_cast<double>(m.bytes_per_token());
  if (o.model.json) {
    OrderedJson hooks = OrderedJson::array();
    for (const auto& hook : m.hooks) hooks.push_back({{"name", hook.name}, {"shape", hook.shape}});
    print_json({{"out", o.collect.out},
                {"model", m.model},
                {"hooks", hooks},
                {"type", name_of(m.type)},
                {"context", m.context},
                {"tokens", m.tokens()},
                {"contexts", m.contexts()},
                {"shards", m.shards.size()},
                {"bytes", bytes},
                {"computed", made.computed},
                {"seconds", made.seconds},
                {"tokens_per_s", speed}});
    return;
  }
  for (const auto& hook : m.hooks) {
    std::vector<int64_t> shape{static_cast<int64_t>(m.tokens())};
    shape.insert(shape.end(), hook.shape.begin(), hook.shape.end());
    print("{}  {}\n", hook.name, shape_text(shape));
  }
  if (made.computed == 0) {
    log("nothing was left to do: {} is complete", o.collect.out);
    return;
  }
  log("{} in {}, {} in {}, written to {}; {}", plural(grouped(static_cast<int64_t>(m.tokens())), "token"),
      plural(grouped(static_cast<int64_t>(m.contexts())), "context"), bytes_text(bytes), plural(m.shards.size(), "shard"),
      o.collect.out, speed_text(speed));
}

Action define_collect(CLI::App& app) {
  auto o = std::make_shared<CollectArguments>();
  add_document_source(app, o->source);
  app.add_option("--hooks", o->collect.hooks,
                 "A hook name, in which * matches any characters, or an alias such as resid_post.3. May be repeated")
      ->type_name("HOOK")
      ->expected(1)
      ->take_all()
      ->required();
  app.add_option("--out,-o", o->collect.out, "The folder to create; if it exists, it must be empty")
      ->type_name("OUT")
      ->required()
      ->check(not_empty());
  add_count(app, "--context", o->collect.context, 1, int64_t{1} << 30,
            "Maximum tokens of a context; default: 256, or the model's context length");
  add_count(app, "--max-tokens", o->max_tokens, 1, int64_t{1} << 40, "Stop after this many tokens");
  add_choice(app, "--type", o->type, "f32|f16|bf16", "Type of the values on disk (default f32)");
  add_count(app, "--shard-mb", o->shard_mb, 1, 1 << 20, "Maximum MiB of a shard (default 256)");
  app.add_flag("--resume", o->collect.resume, "Continue an interrupted run after its last complete shard");
  add_document_source_flags(app, o->source);
  add_sae_option(app, o->saes);
  add_model_options(app, o->model);
  add_shard_flags(app, o->sharing);
  for (const char* flag : {"--shard", "--join"}) app.get_option("--resume")->excludes(app.get_option(flag));
  return [o] { run_collect(*o); };
}

}  // namespace

const Command collect_command = {
    "collect", "Write activations of a corpus to disk",
    "Runs text in contexts of --context tokens and writes the values at hooks for every token, with the tokens' ids and "
    "positions, as safetensors shards beside a manifest. Each document is split into contexts separately, and each "
    "context begins with BOS if the tokenizer adds it to texts. Blocks after the last hook are skipped. Memory does not "
    "grow with the corpus. An interrupted run loses only its current shard: --resume continues after the last complete "
    "one, and writes the same bytes. docs/collect.md describes the files.",
    "vitrine collect examples/fables.txt --document '\\n\\n\\n' --hooks blocks.3.hook_resid_post --max-tokens 2000 --out "
    "fables-activations",
    define_collect};

}  // namespace vitrine::cli
