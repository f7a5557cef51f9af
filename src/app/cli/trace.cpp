// vitrine trace: any intermediate, by name, to a file; gradients too.
#include "hooks/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sae_flags.h"
#include "cli/session.h"

namespace vitrine::cli {
namespace {

struct TraceArguments {
  ModelOptions model;
  std::vector<SaeFile> saes;
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
  o.model.may_lack_head = true;
  o.model.through = through_saes(o.saes);
  Engine engine = open_engine(o.model);
  check_output(engine, o.out);
  std::vector<std::vector<int32_t>> sequences;
  for (Prompt& prompt : read_prompts(engine, o.prompt)) sequences.push_back(std::move(prompt.ids));
  const Trace traced = trace(engine, sequences, o.trace, o.out);
  if (gradients && engine.shape().router_loss > 0)
    log("the loss and its gradients are without the load-balancing loss of the experts (router_aux_loss_coef {:g}), which "
        "`vitrine train` "
        "adds",
        engine.shape().router_loss);

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
  add_sae_option(app, o->saes);
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  return [o] { run_trace(*o); };
}

}  // namespace

const Command trace_command = {
    "trace", "Write any activation, by hook name, to a file",
    "Values are f32. With one sequence a tensor has the name of its hook, with several the name and #<number>. Attention "
    "patterns and scores are [head, query, key] over all keys; a masked key has 0 in the pattern. In a layer with experts "
    "mlp.hook_router_logits is [token, expert], and mlp.hook_expert_out is [token, choice, component]: the output of each "
    "chosen expert before its weight. Experts beside an MLP have the same hooks under experts. instead of mlp. Gemma 4's "
    "hook_per_layer is [token, layer, component], and hook_per_layer_out a layer's contribution from it. In a layer with "
    "a convolution conv.hook_in [token, channel] is its input, and conv.hook_conv its output. In a layer with a "
    "recurrence delta.hook_z [token, head, component] is its output before the norm and gate. hook_token_type_embed is the "
    "embedding of a token's type, hook_full_embed an embedding projected to the width of the residual stream, "
    "attn.hook_rot_v the rotated values, attn.hook_temperature [token, 1] what Llama 4's queries are multiplied by; names of a "
    "head for masked tokens begin with mlm_head. `vitrine info --hooks` "
    "lists the names.",
    "vitrine trace \"Once upon a time\" --hooks 'blocks.*.attn.hook_pattern' --hooks hook_logits --out trace.safetensors\n"
    "vitrine trace --tokens 2,2165,374 --gradients --out gradients.safetensors\n"
    "vitrine trace \"Once upon a time\" --gradients-at 'blocks.*.hook_resid_post' --out at-hooks.safetensors",
    define_trace};

}  // namespace vitrine::cli
