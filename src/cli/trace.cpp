// vitrine trace: any intermediate, by name, to a file; gradients too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "io/safetensors.h"
#include "ops/head.h"
#include "ops/recorder.h"
#include "ops/tape.h"

namespace vitrine::cli {
namespace {

struct TraceOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::vector<std::string> hooks;
  std::string labels, out;
  bool gradients = false;
};

struct Traced {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> numbers;
};

/// Errors: InputError for a pattern that fits no hook of this model, with the names that it might have meant.
void check_patterns(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return fits(pattern, name); })) continue;
    std::string close;
    const std::string tail = pattern.substr(pattern.rfind('.') == std::string::npos ? 0 : pattern.rfind('.') + 1);
    int shown = 0;
    for (const std::string& name : names)
      if (shown < 3 && tail.find('*') == std::string::npos && name.find(tail) != std::string::npos)
        close += (shown++ > 0 ? ", " : "") + name;
    throw InputError(fmt::format("--hooks: \"{}\" fits no hook of this model{}. `vitrine info --hooks` lists them.", pattern,
                                 close.empty() ? "" : "; there is " + close));
  }
}

/// The values of one prompt's hooks.
std::vector<Traced> trace_prompt(Engine& engine, const Prompt& prompt, const std::vector<std::string>& patterns,
                                 const std::string& suffix) {
  std::vector<HookRequest> requests;
  for (const std::string& pattern : patterns) requests.push_back({.pattern = pattern});
  Recorder recorder(requests);
  Context& ctx = engine.context();
  ctx.listen(&recorder);
  {
    const auto frame = ctx.frame();
    const Step step = Step::of(prompt.ids);
    const int64_t last = step.rows() - 1;
    engine.run(step, std::span(&last, 1));
  }
  ctx.listen(nullptr);
  std::vector<Traced> traced;
  for (const std::string& name : recorder.order()) {
    const Recorder::Value& value = recorder.values().find(name)->second;
    traced.push_back({name + suffix, value.shape, value.numbers});
  }
  return traced;
}

/// Label t + 1 is scored against the logits of t; the last row of a sequence has none.
std::vector<int32_t> row_labels(const std::vector<Prompt>& prompts, const std::string& given, int64_t vocab_size) {
  std::vector<std::vector<int32_t>> labels;
  if (given.empty()) {
    for (const Prompt& prompt : prompts) labels.push_back(prompt.ids);
  } else {
    labels = parse_labels(given, "--labels");
  }
  if (labels.size() != prompts.size())
    throw InputError(
        fmt::format("--labels: {} sequences for {} of --tokens; they must have the same shape.", labels.size(), prompts.size()));
  std::vector<int32_t> rows;
  int64_t scored = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (labels[i].size() != prompts[i].ids.size())
      throw InputError(fmt::format("--labels: sequence {} has {} labels for {} tokens; they must have the same shape.", i,
                                   labels[i].size(), prompts[i].ids.size()));
    for (size_t t = 0; t < labels[i].size(); ++t) {
      const int32_t label = t + 1 < labels[i].size() ? labels[i][t + 1] : kNotScored;
      if (label >= vocab_size)
        throw InputError(fmt::format("--labels: {} is outside the vocabulary (0 to {}).", label, vocab_size - 1));
      scored += label != kNotScored;
      rows.push_back(label);
    }
  }
  if (scored == 0)
    throw InputError("--gradients: no label is scored. A sequence needs two tokens, and labels other than -100 after the first.");
  return rows;
}

/// Gradients of the mean loss, under the names and in the layout of the model's own files. Returns the loss.
float trace_gradients(Engine& engine, const std::vector<Prompt>& prompts, const std::string& labels,
                      std::vector<Traced>& traced) {
  for (const auto& [name, tensor] : engine.opened().checkpoint.tensors())
    if (is_block(tensor.dtype))
      throw InputError(
          fmt::format("--gradients: tensor \"{}\" is {}; gradients need f32, f16 or bf16 weights.", name, name_of(tensor.dtype)));
  const std::vector<int32_t> rows = row_labels(prompts, labels, engine.shape().vocab_size);
  Context& ctx = engine.context();
  Model& model = *engine.opened().model;
  Gradients gradients(model, engine.opened().gguf != nullptr);
  Step step;
  for (const Prompt& prompt : prompts) step.add(prompt.ids);
  Tape tape;
  ctx.record_on(&tape);
  const Tensor loss = cross_entropy(ctx, model.residual(ctx, step), model.head(), rows);
  const float value = loss.data<float>()[0];
  if (!std::isfinite(value))
    throw RunError(
        "the loss is NaN or infinite, so there are no gradients. Trace the hooks without --gradients to see where it begins.");
  tape.backward(ctx, loss);
  ctx.record_on(nullptr);
  for (const auto& [name, buffer] : gradients.buffers()) {
    const auto* numbers = reinterpret_cast<const float*>(buffer.data.data());
    traced.push_back({"grad." + name, buffer.shape, {numbers, numbers + buffer.data.size() / sizeof(float)}});
  }
  return value;
}

void trace(const TraceOptions& o) {
  if (o.hooks.empty() && !o.gradients)
    throw UsageError("nothing to trace: name hooks with --hooks, such as 'blocks.*.hook_resid_post', or give --gradients.");
  if (!o.labels.empty() && !o.gradients) throw UsageError("--labels needs --gradients.");
  Engine engine = open_engine(o.model);
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  check_patterns(o.hooks, engine.model().hook_names());
  std::vector<Traced> traced;
  if (!o.hooks.empty())
    for (size_t i = 0; i < prompts.size(); ++i)
      for (Traced& one : trace_prompt(engine, prompts[i], o.hooks, prompts.size() > 1 ? fmt::format("#{}", i) : ""))
        traced.push_back(std::move(one));
  OrderedJson loss = nullptr;
  if (o.gradients) loss = trace_gradients(engine, prompts, o.labels, traced);

  std::vector<TensorToWrite> tensors;
  for (const Traced& one : traced) tensors.push_back({one.name, DType::f32, one.shape, one.numbers.data()});
  write_safetensors(o.out, tensors, {{"model", engine.name()}});

  if (o.model.json) {
    OrderedJson list = OrderedJson::array(), tokens = OrderedJson::array();
    for (const Traced& one : traced) list.push_back({{"name", one.name}, {"shape", one.shape}});
    for (const Prompt& prompt : prompts) tokens.push_back(prompt.ids);
    print_json({{"out", o.out}, {"tokens", prompts.size() == 1 ? tokens[0] : tokens}, {"loss", loss}, {"tensors", list}});
    return;
  }
  int widest = 0;
  for (const Traced& one : traced) widest = std::max(widest, width_of(one.name));
  for (const Traced& one : traced) print("{}  {}\n", pad_right(one.name, widest), shape_text(one.shape));
  if (!loss.is_null()) print("loss {:.6f}\n", loss.get<float>());
  log("{} tensors written to {}", traced.size(), o.out);
}

}  // namespace

Action define_trace(CLI::App& app) {
  auto o = std::make_shared<TraceOptions>();
  add_prompt_options(app, o->prompt, false);
  app.add_option("--hooks", o->hooks, "Hook names; * stands for any characters. May be repeated")
      ->type_name("NAMES")
      ->expected(1)
      ->take_all();
  app.add_flag("--gradients", o->gradients,
               "Also the gradient of the mean loss for every parameter, as grad.<its name in the model's files>");
  app.add_option("--labels", o->labels,
                 "With --gradients: the tokens to be predicted, in the shape of the tokens; label t + 1 is scored against "
                 "position t, -100 is not scored; default: the tokens")
      ->type_name("IDS");
  app.add_option("--out,-o", o->out, "The safetensors file to write (replaced if it exists)")->type_name("FILE")->required();
  add_model_options(app, o->model);
  return [o] { trace(*o); };
}

}  // namespace vitrine::cli
