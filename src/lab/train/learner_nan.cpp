// Where NaN or infinity came from: the pass is run again, one sequence after the other, and watched.
#include <cmath>

#include "ops/recorder.h"
#include "train/learner.h"

namespace vitrine {
namespace {

// Notes the first hook, in the order of the backward pass, whose gradient holds a NaN or an infinity.
class FirstGradientNotFinite final : public Listener {
 public:
  std::string name;
  bool wants(std::string_view) const override { return false; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view) const override { return name.empty(); }
  void see_gradient(std::string_view hook, const Tensor& gradient) override {
    if (name.empty() && first_not_finite(gradient.view({gradient.count() / gradient.dim(gradient.shape().rank() - 1),
                                                        gradient.dim(gradient.shape().rank() - 1)})) >= 0)
      name = hook;
  }
};

constexpr const char* kAdvice =
    ". Nothing was learned from this step, and no checkpoint was written from it. A lower learning rate, a longer warm-up or "
    "clipping helps if the loss had been rising before; if it comes at the first step, look at the weights with `vitrine verify`";
constexpr const char* kAdviceOfValidation =
    ". No checkpoint was written from this step. A lower learning rate, a longer warm-up or clipping helps if training brought "
    "it; if it comes before the first step, look at the weights with `vitrine verify`";

}  // namespace

// Runs one sequence after the other, which takes no more memory than the pass did. Says where the first NaN or infinity is.
std::string Learner::first_not_finite_of(const Model& model, const Batch& batch, uint64_t step_number, bool learning) {
  Context& ctx = engine_.context();
  for (const Batch& part : parts_of(batch, 1)) {
    begin(ctx, {part, step_number});  // dropout falls as it did
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    Tape tape(options_.recomputed_layers);
    FirstNotFinite watch;
    if (learning) ctx.record_on(&tape, options_.dropout);
    ctx.listen(&watch);
    model.residual(ctx, step);
    end_pass(ctx, tape);
    if (watch.row < 0) continue;
    const auto row = static_cast<size_t>(watch.row);
    return "NaN or infinity appeared first in " + watch.name + " at position " + std::to_string(step.positions()[row]) +
           " (token " + std::to_string(step.tokens()[row]) + ")";
  }
  return "the loss is NaN or infinite, although no intermediate is: it appeared first in hook_logits";
}

void Learner::report_guide(const TeacherSpec& teacher) {
  throw NotFiniteError("step " + std::to_string(steps_done_ + 1) + ": the model behind \"" + teacher.name +
                       "\" gives NaN or infinity" + kAdvice);
}

void Learner::report_forward(const Pass& pass) {
  throw NotFiniteError("step " + std::to_string(steps_done_ + 1) + ": " +
                       first_not_finite_of(engine_.model(), pass.batch, pass.step_number, true) + kAdvice);
}

void Learner::report_validation(const Model& model, const Batch& part) {
  const bool averaged = &model != &engine_.model();
  throw NotFiniteError(std::string("validation") + (averaged ? " of the averaged weights" : "") +
                       (steps_done_ > 0 ? " after step " + std::to_string(steps_done_) : " before the first step") + ": " +
                       first_not_finite_of(model, part, 0, false) + kAdviceOfValidation);
}

void Learner::report_backward(std::span<const Pass> passes, const std::vector<double>& norms) {
  Context& ctx = engine_.context();
  std::string parameter;
  for (size_t i = 0; i < norms.size(); ++i)
    if (parameter.empty() && !std::isfinite(norms[i])) parameter = parameters_.list()[i].name;
  for (const Pass& pass : passes) {
    for (const Batch& part : parts_of(pass.batch, 1)) {
      if (scored_in(part.labels) == 0) continue;
      begin(ctx, {part, pass.step_number});
      const Step step = step_of(part);
      FirstGradientNotFinite watch;
      const auto frame = ctx.frame();
      Tape tape;  // a recomputed block shows no gradient within it, and one sequence has room
      ctx.listen(&watch);
      LossParts parts;
      tape.backward(ctx, loss_of({engine_.model(), ctx, tape}, step, part, parts));
      end_pass(ctx, tape);
      if (watch.name.empty()) continue;
      throw NotFiniteError("step " + std::to_string(steps_done_ + 1) +
                           ": going backwards, NaN or infinity appeared first in the " + "gradient at " + watch.name + kAdvice);
    }
  }
  comm().all_reduce({});  // a rank that knows more has ended all
  throw NotFiniteError("step " + std::to_string(steps_done_ + 1) + ": the gradient of " + parameter + " holds NaN or infinity" +
                       kAdvice);
}

}  // namespace vitrine
