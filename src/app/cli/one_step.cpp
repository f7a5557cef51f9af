#include "cli/one_step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/plural.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "hooks/listening.h"
#include "model/from_gguf.h"
#include "train/one_step.h"

namespace vitrine::cli {
namespace {

// A line a step.
void print_course(const Engine& engine, const OneStep& s) {
  std::string head = "step      loss";
  std::vector<int> widths;
  for (const OneStep::Followed& one : s.followed) {
    const std::string piece = shown_piece(engine, one.token);
    widths.push_back(std::max(10, width_of(piece) + 2));
    head += pad_left(piece, widths.back());
  }
  print("\n{}\n", dim(head));
  for (size_t i = 0; i < s.losses.size(); ++i) {
    std::string line = fmt::format("{:>4}{:>10.4f}", i, s.losses[i]);
    for (size_t k = 0; k < s.followed.size(); ++k) line += pad_left(percent(std::exp(s.followed[k].logprobs[i])), widths[k]);
    print("{}\n", line);
  }
}

void print_step(const Engine& engine, const OneStepOptions& o, const OneStep& s) {
  const auto piece = [&](int32_t id) { return shown_piece(engine, id); };
  print("{}\n", bold(fmt::format("{} of gradient descent on -log p({} | {})", o.steps == 1 ? "one step" : plural(o.steps, "step"),
                                 visible(o.target), visible(o.prompt))));
  print("rate {:g}; loss {:.4f} before, {:.4f} after; gradient norm {:.4g}\n", o.rate, s.loss_before, s.loss_after,
        s.gradient_norm);
  for (const OneStep::Target& t : s.target)
    print("  {} {} -> {}\n", piece(t.token), percent(std::exp(t.logprob_before)), percent(std::exp(t.logprob_after)));
  if (o.steps > 1) print_course(engine, s);

  int widest = 6;
  for (const auto* top : {&s.before, &s.after})
    for (const TokenLogprob& entry : *top) widest = std::max(widest, width_of(piece(entry.token)));
  print("\n{}\n", dim(fmt::format("      {}   {}", pad_right("before", widest + 10), "after")));
  for (size_t i = 0; i < s.before.size(); ++i) {
    const auto column = [&](const TokenLogprob& entry) {
      return pad_right(piece(entry.token), widest) + pad_left(percent(entry.prob()), 10);
    };
    const bool wanted = s.after[i].token == s.target[0].token;
    print("{:>4}  {}   {}\n", i + 1, column(s.before[i]), wanted ? bold(column(s.after[i])) : column(s.after[i]));
  }

  double largest = 0;
  size_t name = 5;
  for (const OneStep::Part& part : s.layers) {
    largest = std::max(largest, part.gradient_norm);
    name = std::max(name, part.name.size());
  }
  constexpr int kCells = 24;
  print("\n{}\n", dim(fmt::format("{}   gradient   |change| / |weights|", pad_right("layer", static_cast<int>(name)))));
  for (const OneStep::Part& part : s.layers)
    print("{} {:>10.4g} {:>12.3g}   {}\n", pad_right(part.name, static_cast<int>(name)), part.gradient_norm, part.update_ratio,
          bar(largest > 0 ? part.gradient_norm / largest : 0, kCells));
}

}  // namespace

void add_one_step_options(CLI::App& app, OneStepOptions& o) {
  app.add_option(
         "--one-step", o.prompt,
         "Instead of a run: one step of gradient descent on this text, followed by --target; shows the loss, the gradient "
         "of each layer and the most likely tokens before and after. The weights are widened to f32, and everything is computed "
         "in "
         "f32. No "
         "file is written")
      ->type_name("TEXT")
      ->each([&o](const std::string&) { o.given = true; });
  app.add_option("--target", o.target, "What should follow the text of --one-step, including its leading space: ' mat'")
      ->type_name("TEXT");
  add_number(app, "--rate", o.rate, 0, 1e6, "Learning rate of --one-step (default 0.003)");
  add_count(app, "--steps", o.steps, 1, kMostSteps, "Steps of --one-step, one behind the other (default 1)");
  add_count(app, "--top", o.top, 1, 1 << 20, "Tokens that --one-step shows before and after (default 10)");
  app.add_option("--model,-m", o.model, "The model of --one-step; default: the shipped one")
      ->type_name("MODEL")
      ->check(not_empty());
}

void run_one_step(const OneStepOptions& o) {
  if (o.target.empty()) throw UsageError("--one-step needs --target: what should follow the text, such as ' mat'.");
  require_utf8(o.prompt, "the text of --one-step");
  require_utf8(o.target, "--target");
  const LearnerOptions options = one_step_options(static_cast<int>(o.threads));
  OpenedModel opened = as_huggingface(open_model(model_or_shipped(o.model)));
  require_memory(one_step_bytes(*opened.model), 0, "The weights in f32 and their gradients",
                 "Use a machine with more memory, or a smaller model");
  Learner learner(std::move(opened), options);
  Engine& engine = learner.engine();
  const OneStepText text = one_step_text(engine, o.prompt, o.target);
  const OneStep step = take_steps(learner, text.prompt, text.target, o.rate, o.steps, std::min(o.top, engine.shape().vocab_size));
  if (o.json) return print_json(to_json(engine, o.prompt, text, step));
  print_step(engine, o, step);
}

}  // namespace vitrine::cli
