// vitrine trace: any intermediate, by name, to a file; gradients too.
#include "hooks/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"

namespace vitrine::cli {
namespace {

struct TraceArguments {
  ModelOptions model;
  PromptOptions prompt;
  TraceOptions trace;
  std::string labels, out;
};

void run_trace(TraceArguments o) {
  const bool gradients = o.trace.gradients || !o.trace.gradients_at.empty();
  if (o.trace.hooks.empty() && !gradients)
    throw UsageError(
        "nothing to trace: name hooks with --hooks, such as 'blocks.*.hook_resid_post', or give --gradients or --gradients-at.");
  if (!o.labels.empty()) {
    if (!gradients) throw UsageError("--labels needs --gradients or --gradients-at.");
    o.trace.labels = parse_labels(o.labels, "--labels");
  }
  check_writable("--out", o.out);
  Engine engine = open_engine(o.model);
  check_output(engine, o.out);
  std::vector<std::vector<int32_t>> sequences;
  for (Prompt& prompt : read_prompts(engine, o.prompt)) sequences.push_back(std::move(prompt.ids));
  const Trace traced = trace(engine, sequences, o.trace, o.out);

  if (o.model.json) {
    OrderedJson tensors = OrderedJson::array();
    for (const TracedTensor& tensor : traced.tensors) tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    OrderedJson tokens = sequences;
    if (sequences.size() == 1) tokens = sequences[0];
    print_json({{"out", o.out},
                {"tokens", tokens},
                {"loss", traced.loss ? OrderedJson(*traced.loss) : OrderedJson(nullptr)},
                {"scored", traced.scored},
                {"bytes", traced.bytes},
                {"tensors", tensors}});
    return;
  }
  int widest = 0;
  for (const TracedTensor& tensor : traced.tensors) widest = std::max(widest, width_of(tensor.name));
  for (const TracedTensor& tensor : traced.tensors) print("{}  {}\n", pad_right(tensor.name, widest), shape_text(tensor.shape));
  if (traced.loss) print("loss {:.6f} over {}\n", *traced.loss, plural(traced.scored, "label"));
  log("{}, {}, written to {}", plural(traced.tensors.size(), "tensor"), bytes_text(static_cast<double>(traced.bytes)), o.out);
}

}  // namespace

Action define_trace(CLI::App& app) {
  auto o = std::make_shared<TraceArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_option("--hooks", o->trace.hooks,
                 "A hook name, in which * matches any characters, or an alias such as pattern.3; slices such as "
                 "[heads=0:2,positions=-1] select a part. May be repeated")
      ->type_name("HOOK")
      ->expected(1)
      ->take_all();
  app.add_flag("--gradients", o->trace.gradients,
               "Also the gradient of the mean loss for every parameter, as grad.<its name in the model's files>");
  app.add_option("--gradients-at", o->trace.gradients_at,
                 "Also the gradient of the same loss at a hook, as grad.<hook>; named as for --hooks. May be repeated")
      ->type_name("HOOK")
      ->expected(1)
      ->take_all();
  app.add_option("--labels", o->labels,
                 "With gradients: the labels, in the shape of the tokens; label t + 1 is scored at position t (by a model in "
                 "both directions, label t), -100 is not "
                 "scored; default: the tokens")
      ->type_name("IDS")
      ->check(not_empty());
  app.add_option("--out,-o", o->out, "The safetensors file to write (replaced if it exists)")
      ->type_name("FILE")
      ->required()
      ->check(not_empty());
  add_model_options(app, o->model);
  return [o] { run_trace(*o); };
}

}  // namespace vitrine::cli
