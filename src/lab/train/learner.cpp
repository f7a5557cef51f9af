#include "train/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/table.h"
#include "model/abilities.h"
#include "ops/elementwise.h"
#include "train/masking.h"
#include "train/scored_rows.h"

namespace vitrine {

Learner::Learner(OpenedModel opened, const LearnerOptions& options)
    : options_(options),
      engine_(std::move(opened), {.threads = options.threads}),
      parameters_(engine_.opened().adapter != nullptr
                      ? Parameters(*engine_.opened().adapter)
                      : Parameters(*engine_.opened().model,
                                   comm().size() == 1 ? Parameters::Grads::first_sets : Parameters::Grads::added)),
      shards_(parameters_, comm(), Optimizer::whole(options.optimizer, parameters_)),
      tape_(options.recomputed_layers) {
  if (options.masked)
    require_fills_masks(engine_.model(), engine_.name(), "Training on masked tokens");
  else
    require_next_token(engine_.model(), engine_.name(), "Training on next tokens");
  if (engine_.opened().adapter == nullptr) {  // copied
    VITRINE_CHECK(engine_.opened().files.kind == ModelFiles::Kind::huggingface, "a GGUF model is brought into that form first");
    if (engine_.opened().gguf == nullptr) engine_.opened().checkpoint = Checkpoint("");  // which also holds the vocabulary
    engine_.opened().widened.clear();
  }
  optimizer_.emplace(options.optimizer, parameters_, shards_);  // takes its memory once the files are closed
  engine_.context().step_of_training.seed = options.seed;
  engine_.context().numerics.bf16 = options.bf16;
  engine_.context().numerics.f32 = !options.bf16;  // of stored weights beside an adapter too
  if (options.init) initialize(parameters_, engine_.model(), *options.init, options.seed);
  begin_together();
  if (options.ema) ema_ = std::make_unique<Ema>(model_from_config(engine_.opened().files), parameters_, *options.ema);
}

void Learner::begin_together() {
  if (comm().size() == 1) return;
  double squares = 0;
  for (const Parameter& p : parameters_.list()) squares += kernels().sum_of_squares(parameters_.weights(p), p.count);
  double range[] = {squares, -squares};  // the largest, and minus the smallest
  comm().all_reduce(range, Comm::Fold::largest);
  if (range[0] + range[1] > 1e-6 * range[0])
    throw InputError(engine_.name() + ": the processes begin with different weights (sums of squares from " +
                     std::to_string(-range[1]) + " to " + std::to_string(range[0]) +
                     "). Each must see the same model and the same folder `out`, as on a shared file system");
  shards_.share_weights();  // machines of several kinds may have drawn fresh ones with other last bits
}

void Learner::each_state(const std::function<void(size_t which, const float* whole)>& show,
                         const std::function<void(const Optimizer::Aside& aside, const float* values)>& show_aside) {
  float* const room = parameters_.gradients();  // of nobody between steps
  bool used = false;
  for (size_t which = 0; which < optimizer_->states(); ++which) {
    const float* const whole = optimizer_->whole_state(which, room);
    used |= whole == room;
    if (comm().rank() == 0 && show) show(which, whole);
  }
  if (used) clear_gradients();
  for (const Optimizer::Aside& aside : optimizer_->asides()) {
    std::vector<double> numbers;  // one rank has them, and the others zeros
    if (comm().size() > 1) {
      numbers.assign(aside.values.begin(), aside.values.end());
      numbers.resize(aside.size());
      comm().all_reduce(numbers);
    }
    if (comm().rank() > 0 || !show_aside) continue;
    const std::vector<float> whole(numbers.begin(), numbers.end());
    show_aside(aside, comm().size() > 1 ? whole.data() : aside.values.data());
  }
}

// So many that passing over the weights and their gradients once more is little beside the products; no more, since the memory
// of a pass grows with them.
int64_t Learner::pass_rows() const { return std::max<int64_t>(2048, 4 * engine_.shape().d_model); }

void Learner::clear_gradients() { std::fill_n(parameters_.gradients(), parameters_.size(), 0.0f); }

void Learner::begin(Context& ctx, const Pass& pass) const {
  ctx.step_of_training.number = pass.step_number;
  ctx.step_of_training.first_row = pass.batch.first_row;
}

void Learner::end_pass(Context& ctx, Tape& tape) {
  ctx.listen(nullptr);
  ctx.record_on(nullptr);
  ctx.step_of_training.balance = nullptr;
  tape.watch(nullptr);
  tape.clear();
}

void Learner::set_teachers(std::vector<TeacherSpec> teachers, double cross_entropy_weight) {
  teachers_ = std::move(teachers);
  cross_entropy_weight_ = cross_entropy_weight;
}

Step Learner::step_of(const Batch& batch) const {
  const int64_t context = engine_.shape().context_length;
  Step step;
  size_t row = 0;
  for (const int64_t length : batch.lengths) {
    if (context > 0 && length > context)
      throw InputError("a sequence of the batch has " + std::to_string(length) + " tokens; the context of the model holds " +
                       std::to_string(context) + ". Lower sequence_length");
    step.add(std::span(batch.tokens).subspan(row, static_cast<size_t>(length)));
    row += static_cast<size_t>(length);
  }
  return step;
}

// The loss of one batch, recorded on the side's tape; `watch`, if given, hears the learner's own pass. A frame of the caller's
// must be open until backward has run.
Tensor Learner::loss_of(const Replica& replica, const Step& step, const Batch& batch, LossParts& parts, Listener* watch) {
  Context& ctx = replica.ctx;
  const auto stored = [&](const TeacherSpec& teacher) { return teacher.stored && batch.teacher.k > 0; };
  ctx.record_on(nullptr);
  std::vector<Tensor> expected;
  for (const TeacherSpec& teacher : teachers_) {
    expected.push_back(stored(teacher) ? Tensor() : teacher.model->residual(ctx, step));
    if (expected.back() && first_not_finite(expected.back()) >= 0) report_guide(teacher);
  }
  ctx.record_on(&replica.tape, options_.dropout);
  if (watch != nullptr) ctx.listen(watch);
  ctx.step_of_training.balance = parts.balance;
  const Tensor x = replica.model.residual(ctx, step);
  const Head head = replica.model.head();
  if (!batch.policy.advantages.empty()) return policy_loss(ctx, x, head, batch, policy_, parts.policy);
  if (!batch.pairs.empty()) return preference_loss(ctx, x, head, batch, preference_, totals_, parts.preference);
  Tensor loss;
  if (!batch.sampled) {
    if (cross_entropy_weight_ == 0) ctx.record_on(nullptr);  // for the report only
    const Tensor part = scored_cross_entropy(ctx, x, head, batch.labels);
    ctx.record_on(&replica.tape, options_.dropout);
    parts.cross_entropy = static_cast<double>(*part.data<float>());
    if (cross_entropy_weight_ == 1) loss = part;
    if (cross_entropy_weight_ > 0 && cross_entropy_weight_ < 1) loss = scale(ctx, part, cross_entropy_weight_);
  }
  for (size_t i = 0; i < teachers_.size(); ++i) {
    const TeacherSpec& teacher = teachers_[i];
    Tensor part = stored(teacher) ? divergence(ctx, x, head, batch.teacher, batch.labels, teacher.spec)
                                  : divergence(ctx, x, head, expected[i], teacher.model->head(), batch.labels, teacher.spec);
    parts.divergences.push_back(static_cast<double>(*part.data<float>()));
    if (!std::isfinite(parts.divergences.back()) && parts.cross_entropy && std::isfinite(*parts.cross_entropy))
      report_guide(teacher);
    part = scale(ctx, part, teacher.weight);
    loss = loss ? add(ctx, loss, part) : part;
  }
  VITRINE_CHECK(loss, "a sampled batch needs a teacher");
  return loss;
}

// Adds to the side's gradients, and says what the loss of each pass is; ends early where one is no number. `counted`: what the
// loss of the whole step is a mean over.
void Learner::run(std::span<Pass> passes, const Replica& replica, double counted, Listener* watch) {
  for (Pass& pass : passes) {
    Context& ctx = replica.ctx;
    begin(ctx, pass);
    const Step step = step_of(pass.batch);
    const auto frame = ctx.frame();
    const bool last = &pass == &passes.back();
    replica.tape.watch(comm().size() > 1 && last ? &shards_ : nullptr);  // earlier, gradients are not complete
    RouterBalance balance;
    const double coefficient = replica.model.shape().router_loss;
    if (coefficient > 0) pass.parts.balance = &balance;
    const Tensor loss = loss_of(replica, step, pass.batch, pass.parts, std::exchange(watch, nullptr));
    pass.parts.balance = nullptr;
    pass.loss = static_cast<double>(*loss.data<float>());
    const double share = static_cast<double>(counted_in(pass.batch)) / counted;  // of the whole step's
    if (coefficient > 0) {  // of the pass's rows, as a reference computes it of what goes through it at once
      pass.loss += coefficient * balance.loss();
      balance.weight = coefficient * share;
      balance.complete = true;
    }
    if (std::isfinite(pass.loss)) replica.tape.backward(ctx, scale(ctx, loss, share));
    end_pass(ctx, replica.tape);
    if (!std::isfinite(pass.loss)) return;
  }
}

// After a step that failed: the next one begins like any other.
void Learner::forget_step() {
  end_pass(engine_.context(), tape_);
  clear_gradients();
  if (second_replica_ == nullptr) return;
  end_pass(second_replica_->ctx, second_replica_->tape);
  std::fill_n(second_replica_->gradients.data(), second_replica_->gradients.size(), 0.0f);
}

StepReport Learner::step(std::span<const Batch> batches, double lr, bool with_update, Listener* watch) {
  Context& ctx = engine_.context();
  StepReport report;
  std::vector<double> sums(12 + teachers_.size());  // loss; cross-entropy and its tokens; policy; preferences; divergences
  report.step = steps_done_ + 1;
  report.lr = lr;
  totals_ = {};
  std::vector<Batch> examples;  // without the answers of others, which are measured and not learned
  for (const Batch& batch : batches) {
    if (!batch.pairs.empty() && preference_.needs_totals()) add_totals(batch, totals_);
    if (!batch.desirable.empty()) examples.push_back(halves_of(batch, 0));
  }
  if (!examples.empty()) batches = examples;
  if (preference_.needs_totals()) comm().all_reduce(totals_.sums);
  double totals[2] = {};  // scored tokens; what the loss is a mean over
  for (const Batch& batch : batches) {
    totals[0] += static_cast<double>(scored_in(batch.labels));
    totals[1] += static_cast<double>(counted_in(batch));
  }
  comm().all_reduce(totals);
  const double counted = totals[1];
  report.tokens = static_cast<int64_t>(totals[0]);
  if (report.tokens == 0) throw InputError("no token of the step is scored, so there is nothing to learn from");
  try {
    size_t half = 0;
    std::vector<Pass> passes = passes_of(batches, half);
    const std::span<Pass> all(passes);
    const bool halved = half < passes.size();
    if (halved)
      run_in_two_replicas(all.first(half), all.subspan(half), counted, watch);
    else
      run(all, whole(), counted, watch);
    for (const Pass& pass : passes) {
      if (!std::isfinite(pass.loss)) report_forward(pass);
      const auto weight = static_cast<double>(counted_in(pass.batch));
      sums[0] += pass.loss * weight;
      if (pass.parts.cross_entropy) {
        sums[1] += *pass.parts.cross_entropy * weight;
        sums[2] += weight;
      }
      sums[3] += pass.parts.policy.entropy;
      sums[4] += pass.parts.policy.kl;
      sums[5] += pass.parts.policy.clipped;
      sums[6] += pass.parts.policy.tokens;
      const PreferenceReport& preference = pass.parts.preference;
      sums[7] += preference.chosen_reward;
      sums[8] += preference.rejected_reward;
      sums[9] += preference.accuracy;
      sums[10] += preference.chosen;
      sums[11] += preference.rejected;
      for (size_t g = 0; g < pass.parts.divergences.size(); ++g) sums[12 + g] += pass.parts.divergences[g] * weight;
    }
    shards_.finish_gradients(ctx.pool());
    comm().all_reduce(sums);
    report.loss = sums[0] / counted;
    if (!batches[0].pairs.empty()) report.preference = means_of({sums[7], sums[8], sums[9], sums[10], sums[11], totals_.kl()});
    if (sums[6] > 0) report.policy = {sums[3] / sums[6], sums[4] / sums[6], sums[5] / sums[6], sums[6]};
    if (!teachers_.empty() && sums[2] > 0) report.cross_entropy = sums[1] / sums[2];
    for (size_t g = 0; g < teachers_.size(); ++g) report.divergences.push_back(sums[12 + g] / counted);
    Norms norms = optimizer_->gradient_norms(ctx.pool(), halved ? &second_replica_->gradients : nullptr);
    report.gradient_norm = norms.whole;
    report.gradient_norms = std::move(norms.each);
    if (!std::isfinite(report.gradient_norm)) report_backward(passes, report.gradient_norms);
  } catch (...) {
    forget_step();
    throw;
  }
  const double over = options_.clip > 0 ? report.gradient_norm / options_.clip : 0;
  optimizer_->step(ctx.pool(), lr, over > 1 ? 1 / over : 1, report.step, with_update ? &report.update : nullptr);
  shards_.share_weights();
  if (ema_ != nullptr) ema_->update(ctx.pool());
  ++steps_done_;
  return report;
}

std::vector<double> Learner::answer_logprobs(const Batch& batch, bool averaged) {
  Context& ctx = engine_.context();
  const Model& from = model(averaged);
  std::vector<double> all;
  for (const Batch& part : parts_of(batch, pass_rows())) {
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    const std::vector<double> some = sequence_logprobs(ctx, from.residual(ctx, step), from.head(), part);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void Learner::add_totals(const Batch& batch, PreferenceTotals& totals, bool averaged) {
  totals.sums[0] += static_cast<double>(batch.pairs.size());
  totals.sums[1] += static_cast<double>(nll_rows(batch, preference_));
  if (preference_.loss != PreferenceOptions::Loss::kto) return;
  const Batch others = halves_of(batch, 1);
  const std::vector<double> logprobs = answer_logprobs(others, averaged);
  for (size_t i = 0; i < logprobs.size(); ++i) totals.sums[2] += logprobs[i] - others.reference[i];
}

std::vector<float> Learner::label_logprobs(const Batch& batch, const Model& model) {
  Context& ctx = engine_.context();
  std::vector<float> all;
  for (const Batch& part : parts_of(batch, pass_rows())) {
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    const Tensor x = model.residual(ctx, step);
    const ScoredRows scored = scored_rows(part.labels, 0, static_cast<int64_t>(part.labels.size()));
    const size_t first = all.size();
    all.resize(first + part.labels.size());
    if (scored.rows.empty()) continue;
    const Tensor some =
        vitrine::label_logprobs(ctx, take_rows(ctx, x, scored.rows), model.head(), scored.labels, policy_.temperature);
    for (size_t i = 0; i < scored.rows.size(); ++i) {
      const float logprob = some.data<float>()[i];
      if (!std::isfinite(logprob)) report_validation(model, part);
      all[first + static_cast<size_t>(scored.rows[i])] = logprob;
    }
  }
  return all;
}

Learner::Sum Learner::evaluate(const Batch& batch, bool averaged, std::optional<PreferenceTotals> totals) {
  Context& ctx = engine_.context();
  const Model& from = model(averaged);
  Sum sum;  // stays empty where the rest of the data did not reach this rank
  if (!totals && !batch.pairs.empty()) add_totals(batch, totals.emplace(), averaged);
  for (const Batch& part : parts_of(batch.desirable.empty() ? batch : halves_of(batch, 0), pass_rows())) {
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    const Tensor x = from.residual(ctx, step);
    const Tensor loss = part.pairs.empty() ? scored_cross_entropy(ctx, x, from.head(), part.labels)
                                           : preference_loss(ctx, x, from.head(), part, preference_, *totals, sum.preference);
    const int64_t scored = counted_in(part);
    const double mean = static_cast<double>(*loss.data<float>());
    if (!std::isfinite(mean)) report_validation(from, part);
    sum.loss += mean * static_cast<double>(scored);
    sum.tokens += scored;
  }
  return sum;
}

}  // namespace vitrine
