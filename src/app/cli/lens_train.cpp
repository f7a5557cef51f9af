// vitrine lens train: a tuned lens from text.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/document_source.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "cli/text_table.h"
#include "lens/train.h"

namespace vitrine::cli {
namespace {

struct LensTrainArguments {
  ModelOptions model;
  DocumentSource source;
  LensTrainOptions train;
  std::string out, type = "f32";
  int64_t max_tokens = 0, seed = 0;
};

void print_trained(const TrainedLens& made) {
  TextTable table{{{"stream", true}, {"logit lens"}, {"tuned lens"}}, {}};
  for (const LensKl& kl : made.kl)
    table.rows.push_back({kl.point, fmt::format("{:.4f}", kl.logit), fmt::format("{:.4f}", kl.tuned)});
  print("KL(model || lens) in nats, mean over {} that were held out\n\n",
        plural(grouped(static_cast<int64_t>(made.held_out_tokens)), "token"));
  print_table(table);
}

void run_lens_train(LensTrainArguments o) {
  o.train.special = !o.source.no_special;
  o.train.max_tokens = static_cast<uint64_t>(o.max_tokens);
  o.train.seed = static_cast<uint64_t>(o.seed);
  check_writable("--out", o.out);
  Engine engine = open_engine(o.model);
  check_output(engine, o.out, {o.source.files.begin(), o.source.files.end()});
  const std::unique_ptr<DocumentTokens> documents =
      open_documents(o.source, engine, "lens train tales.txt.gz --out lens.safetensors");
  Progress progress("training");
  const StopSignals signals(true);
  double speed = 0;
  const TrainedLens made = train_lens(engine, *documents, o.train, [&](const LensProgress& p) {
    speed = p.tokens_per_s;
    progress.show(static_cast<double>(p.step) / static_cast<double>(o.train.steps),
                  fmt::format("step {}, KL {:.4f}, {} tokens/s", p.step, p.kl, grouped(static_cast<int64_t>(speed))));
    return !StopSignals::asked();
  });
  const DType type = o.type == "f16" ? DType::f16 : o.type == "bf16" ? DType::bf16 : DType::f32;
  write_tuned_lens(o.out, made.lens, type, {{"steps", std::to_string(made.steps)}, {"seed", std::to_string(o.seed)}});
  if (o.model.json) {
    print_json({{"out", o.out},
                {"model", made.lens.model},
                {"fingerprint", made.lens.fingerprint},
                {"layers", made.lens.translators.size()},
                {"steps", made.steps},
                {"tokens", made.tokens},
                {"held_out_tokens", made.held_out_tokens},
                {"kl", json_of(made.kl)},
                {"seconds", made.seconds},
                {"tokens_per_s", speed}});
    return;
  }
  print_trained(made);
  log("{}{}, {} tokens/s; written to {}", made.steps < o.train.steps ? "stopped after " : "", plural(grouped(made.steps), "step"),
      grouped(static_cast<int64_t>(speed)), o.out);
}

Action define_lens_train(CLI::App& app) {
  auto o = std::make_shared<LensTrainArguments>();
  LensTrainOptions& t = o->train;
  add_document_source(app, o->source);
  app.add_option("--out,-o", o->out, "The lens to write (replaced if it exists)")
      ->type_name("FILE")
      ->required()
      ->check(not_empty());
  add_count(app, "--steps", t.steps, 1, int64_t{1} << 40, "Steps (default 250)");
  add_count(app, "--batch", t.batch, 1, 1 << 24, "Contexts of a step (default 16)");
  add_count(app, "--context", t.context, 1, int64_t{1} << 30,
            "Maximum tokens of a context; default: 256, or the model's context length");
  add_count(app, "--held-out", t.held_out, 1, 1 << 24, "Contexts that are not learned from and measured at the end (default 32)");
  add_count(app, "--max-tokens", o->max_tokens, 1, int64_t{1} << 40, "Read this many tokens of the text at most");
  add_number(app, "--lr", t.lr, 0, 10, "Peak learning rate of AdamW (default 0.001)", true);
  add_count(app, "--lr-warm-up", t.lr_warm_up, 0, int64_t{1} << 40,
            "Steps in which the learning rate rises, before it falls to 0; default: a tenth of the steps");
  add_count(app, "--seed", o->seed, 0, INT64_MAX, "Seed of the order of contexts and of which are held out (default 0)");
  add_choice(app, "--type", o->type, "f32|f16|bf16", "Type of the numbers in the file (default f32)");
  add_document_source_flags(app, o->source);
  add_model_options(app, o->model);
  return [o] { run_lens_train(*o); };
}

}  // namespace

const Command lens_train_command = {
    "lens train", "Train a tuned lens on a text",
    "For each layer, learns an affine map of the residual stream that enters it, after which the model's own final norm and "
    "output head come closest to the model's prediction: KL(model || lens) falls, and the model does not change. Prints that "
    "KL for the logit lens and the tuned lens, on contexts that were held out. `vitrine picture logit-lens --lens FILE` "
    "looks through it. Ctrl-C ends the run and writes the lens as it is. See docs/tuned-lens.md.",
    "vitrine lens train examples/fables.txt --document '\\n\\n\\n' --steps 4 --batch 4 --held-out 4 --context 64 --out "
    "fables-lens.safetensors",
    define_lens_train};

}  // namespace vitrine::cli
