#include "train/learner.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/recorder.h"

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

void end_pass(Context& ctx, Tape& tape) {
  ctx.listen(nullptr);
  ctx.record_on(nullptr);
  tape.watch(nullptr);
  tape.clear();
}

void set_to_zero(float* numbers, size_t n) { std::fill(numbers, numbers + n, 0.0f); }

constexpr const char* kAdvice =
    ". Nothing was learned from this step, and no checkpoint was written from it. A lower learning rate, a longer warm-up or "
    "clipping helps if the loss had been rising before; if it comes at the first step, look at the weights with `vitrine verify`";
constexpr const char* kAdviceOfValidation =
    ". No checkpoint was written from this step. A lower learning rate, a longer warm-up or clipping helps if training brought "
    "it; if it comes before the first step, look at the weights with `vitrine verify`";

}  // namespace

Learner::Learner(OpenedModel opened, const LearnerOptions& options)
    : options_(options),
      engine_(std::move(opened), {.threads = options.threads}),
      parameters_(engine_.opened().adapter != nullptr
                      ? Parameters(*engine_.opened().adapter)
                      : Parameters(*engine_.opened().model,
                                   comm().size() == 1 ? Parameters::Grads::first_sets : Parameters::Grads::added)),
      shards_(parameters_, comm()),
      tape_(options.recompute) {
  if (engine_.opened().adapter == nullptr) {  // copied
    VITRINE_CHECK(engine_.opened().files.kind == ModelFiles::Kind::huggingface, "a GGUF model is brought into that form first");
    if (engine_.opened().gguf == nullptr) engine_.opened().checkpoint = Checkpoint("");  // which also holds the vocabulary
    engine_.opened().widened.clear();
  }
  optimiser_.emplace(options.optimiser, parameters_, shards_);  // takes its memory once the files are closed
  engine_.context().seed = options.seed;
  engine_.context().numerics.bf16 = options.bf16;
  engine_.context().numerics.f32 = !options.bf16;  // of stored weights beside an adapter too
  if (options.init) initialise(parameters_, engine_.model(), *options.init, options.seed);
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

void Learner::each_state(const std::function<void(size_t which, const float* whole)>& show) {
  float* const room = parameters_.gradients();  // of nobody between steps
  bool used = false;
  for (size_t which = 0; which < optimiser_->state().size(); ++which) {
    const float* const whole = optimiser_->whole_state(which, room);
    used |= whole == room;
    if (comm().rank() == 0 && show) show(which, whole);
  }
  if (used) set_to_zero(room, parameters_.size());
}

// So many that passing over the weights and their gradients once more is little beside the products; no more, since the memory
// of a pass grows with them.
int64_t Learner::pass_rows() const { return std::max<int64_t>(2048, 4 * engine_.shape().d_model); }

// Threads that share each op read what the others wrote and meet at its end. Where one half of them takes one half of the rows
// from the tokens to the gradients of all weights, the halves share nothing but the weights, and do not wait for each other.
// They are cut by shape and their gradients are added in order, whoever computes them: the same bits for any number of threads.
// That takes a second gradient of each weight, and packs each weight twice, so it is for many rows and not too many weights.
bool Learner::may_halve(int64_t rows) {
  constexpr int64_t kFewest = 512;
  constexpr size_t kMostNumbers = size_t{1} << 25;
  return rows >= kFewest && parameters_.size() <= kMostNumbers && comm().size() == 1 && engine_.opened().adapter == nullptr;
}

// Rows of a pass through a half of so many rows: as many passes through each half.
int64_t Learner::half_pass_rows(int64_t rows) const {
  const int64_t half = pieces<int64_t>(rows, 2);
  return pieces(half, pieces(half, pass_rows()));
}

Learner::Second::Second(std::unique_ptr<Model> m, const Parameters& parameters, int threads, bool recompute)
    : model(std::move(m)),
      gradients(parameters.bind(*model)),
      teams{ThreadPool(ThreadPool::Guests{threads}), ThreadPool(ThreadPool::Guests{threads})},
      ctx(teams[1]),
      tape(recompute) {}

// The parts of each batch in which anything is scored.
std::vector<Learner::Pass> Learner::passes_of(std::span<const Batch> batches, int64_t most) const {
  std::vector<Pass> passes;
  for (size_t i = 0; i < batches.size(); ++i)
    for (Batch& part : parts_of(batches[i], most))
      if (scored_in(part.labels) > 0)
        passes.push_back({std::move(part), static_cast<uint64_t>(steps_done_) * batches.size() + i});
  return passes;
}

// first_half: so many of them are one half, if that is about as long as the other one; else all.
std::vector<Learner::Pass> Learner::passes_of(std::span<const Batch> batches, size_t& first_half) {
  int64_t rows = 0;
  for (const Batch& batch : batches) rows += static_cast<int64_t>(batch.tokens.size());
  if (may_halve(rows)) {
    std::vector<Pass> passes = passes_of(batches, half_pass_rows(rows));
    int64_t whole = 0, before = 0;
    for (const Pass& pass : passes) whole += static_cast<int64_t>(pass.batch.tokens.size());
    for (first_half = 0; first_half < passes.size() && 2 * before < whole; ++first_half)
      before += static_cast<int64_t>(passes[first_half].batch.tokens.size());
    if (16 * std::max(before, whole - before) <= 9 * whole) return passes;
  }
  std::vector<Pass> passes = passes_of(batches, pass_rows());
  first_half = passes.size();
  return passes;
}

void Learner::begin(Context& ctx, const Pass& pass) const {
  ctx.step_number = pass.step_number;
  ctx.first_row = pass.batch.first_row;
}

void Learner::set_guides(std::vector<Guide> guides, double cross_entropy_weight) {
  guides_ = std::move(guides);
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
Tensor Learner::loss_of(const Side& side, const Step& step, const Batch& batch, LossParts& parts, Listener* watch) {
  Context& ctx = side.ctx;
  const auto stored = [&](const Guide& guide) { return guide.stored && batch.teacher.k > 0; };
  ctx.record_on(nullptr);
  std::vector<Tensor> expected;
  for (const Guide& guide : guides_) {
    expected.push_back(stored(guide) ? Tensor() : guide.model->residual(ctx, step));
    if (expected.back() && first_not_finite(expected.back()) >= 0)
      throw RunError("step " + std::to_string(steps_done_ + 1) + ": the model behind \"" + guide.name +
                     "\" gives NaN or infinity" + kAdvice);
  }
  ctx.record_on(&side.tape, options_.dropout);
  if (watch != nullptr) ctx.listen(watch);
  const Tensor x = side.model.residual(ctx, step);
  const Head head = side.model.head();
  Tensor loss;
  if (!batch.sampled) {
    if (cross_entropy_weight_ == 0) ctx.record_on(nullptr);  // for the report only
    const Tensor part = cross_entropy(ctx, x, head, batch.labels);
    ctx.record_on(&side.tape, options_.dropout);
    parts.cross_entropy = static_cast<double>(*part.data<float>());
    if (cross_entropy_weight_ == 1) loss = part;
    if (cross_entropy_weight_ > 0 && cross_entropy_weight_ < 1) loss = scale(ctx, part, cross_entropy_weight_);
  }
  for (size_t i = 0; i < guides_.size(); ++i) {
    const Guide& guide = guides_[i];
    Tensor part = stored(guide) ? divergence(ctx, x, head, batch.teacher, batch.labels, guide.spec)
                                : divergence(ctx, x, head, expected[i], guide.model->head(), batch.labels, guide.spec);
    parts.divergences.push_back(static_cast<double>(*part.data<float>()));
    if (!std::isfinite(parts.divergences.back()) && parts.cross_entropy && std::isfinite(*parts.cross_entropy))
      throw RunError("step " + std::to_string(steps_done_ + 1) + ": the model behind \"" + guide.name +
                     "\" gives NaN or infinity" + kAdvice);
    part = scale(ctx, part, guide.weight);
    loss = loss ? add(ctx, loss, part) : part;
  }
  VITRINE_CHECK(loss, "a sampled batch needs a guide");
  return loss;
}

// Adds to the side's gradients, and says what the loss of each pass is; ends early where one is no number. `tokens`: of the whole
// step.
void Learner::run(std::span<Pass> passes, const Side& side, double tokens, Listener* watch) {
  for (Pass& pass : passes) {
    Context& ctx = side.ctx;
    begin(ctx, pass);
    const Step step = step_of(pass.batch);
    const auto frame = ctx.frame();
    const bool last = &pass == &passes.back();
    side.tape.watch(comm().size() > 1 && last ? &shards_ : nullptr);  // earlier, gradients are not complete
    const Tensor loss = loss_of(side, step, pass.batch, pass.parts, std::exchange(watch, nullptr));
    pass.loss = static_cast<double>(*loss.data<float>());
    if (std::isfinite(pass.loss))  // divided by the tokens of the whole step, not of the pass
      side.tape.backward(ctx, scale(ctx, loss, static_cast<double>(scored_in(pass.batch.labels)) / tokens));
    end_pass(ctx, side.tape);
    if (!std::isfinite(pass.loss)) return;
  }
}

void Learner::run_halves(std::span<Pass> first, std::span<Pass> second, double tokens, Listener* watch) {
  Context& ctx = engine_.context();
  ThreadPool& pool = ctx.pool();
  const int of_side = std::max(1, pool.threads() / 2);
  if (second_ == nullptr)
    second_ = std::make_unique<Second>(model_from_config(engine_.opened().files), parameters_, of_side, options_.recompute);
  if (!runs_side_by_side()) {  // one after the other, each with all threads
    run(first, whole(), tokens, watch);
    return run(second, {*second_->model, ctx, tape_}, tokens, nullptr);
  }
  second_->ctx.numerics = ctx.numerics;
  second_->ctx.seed = ctx.seed;
  std::exception_ptr failed[2];
  for (ThreadPool& team : second_->teams) team.admit();
  ctx.run_on(second_->teams[0]);
  pool.run(pool.threads(), [&](int64_t chunk, int) {
    const auto place = static_cast<int>(chunk) % of_side, half = static_cast<int>(chunk) / of_side;
    ThreadPool& team = second_->teams[half];
    if (place > 0) return team.help(place);
    try {
      if (half == 0)
        run(first, whole(), tokens, watch);
      else
        run(second, {*second_->model, second_->ctx, second_->tape}, tokens, nullptr);
    } catch (...) {
      failed[half] = std::current_exception();
    }
    team.dismiss();
  });
  ctx.run_on(pool);
  for (const std::exception_ptr& failure : failed)
    if (failure) std::rethrow_exception(failure);
}

// After a step that failed: the next one begins like any other.
void Learner::forget_step() {
  end_pass(engine_.context(), tape_);
  set_to_zero(parameters_.gradients(), parameters_.size());
  if (second_ == nullptr) return;
  end_pass(second_->ctx, second_->tape);
  set_to_zero(second_->gradients.data(), second_->gradients.size());
}

double Learner::peak_bytes() {
  const auto peak = [](Context& ctx, const Tape& tape) { return static_cast<double>(tape.peak() + ctx.arena().peak()); };
  const double first = peak(engine_.context(), tape_);
  if (second_ == nullptr) return first;
  return first + peak(second_->ctx, second_->tape) + static_cast<double>(second_->gradients.size() * sizeof(float));
}

StepReport Learner::step(std::span<const Batch> batches, double lr, bool with_update, Listener* watch) {
  Context& ctx = engine_.context();
  StepReport report;
  std::vector<double> sums(3 + guides_.size());  // loss; cross-entropy and its tokens; divergences
  report.step = steps_done_ + 1;
  report.lr = lr;
  double tokens = 0;
  for (const Batch& batch : batches) tokens += static_cast<double>(scored_in(batch.labels));
  comm().all_reduce({&tokens, 1});
  report.tokens = static_cast<int64_t>(tokens);
  if (report.tokens == 0) throw InputError("no token of the step is scored, so there is nothing to learn from");
  try {
    size_t half = 0;
    std::vector<Pass> passes = passes_of(batches, half);
    const std::span<Pass> all(passes);
    const bool halved = half < passes.size();
    if (halved)
      run_halves(all.first(half), all.subspan(half), tokens, watch);
    else
      run(all, whole(), tokens, watch);
    for (const Pass& pass : passes) {
      if (!std::isfinite(pass.loss)) report_forward(pass);
      const auto weight = static_cast<double>(scored_in(pass.batch.labels));
      sums[0] += pass.loss * weight;
      if (pass.parts.cross_entropy) {
        sums[1] += *pass.parts.cross_entropy * weight;
        sums[2] += weight;
      }
      for (size_t g = 0; g < guides_.size(); ++g) sums[3 + g] += pass.parts.divergences[g] * weight;
    }
    shards_.finish_gradients(ctx.pool());
    comm().all_reduce(sums);
    report.loss = sums[0] / tokens;
    if (!guides_.empty() && sums[2] > 0) report.cross_entropy = sums[1] / sums[2];
    for (size_t g = 0; g < guides_.size(); ++g) report.divergences.push_back(sums[3 + g] / tokens);
    Norms norms = optimiser_->gradient_norms(ctx.pool(), halved ? &second_->gradients : nullptr);
    report.gradient_norm = norms.whole;
    report.gradient_norms = std::move(norms.each);
    if (!std::isfinite(report.gradient_norm)) report_backward(passes, report.gradient_norms);
  } catch (...) {
    forget_step();
    throw;
  }
  const double over = options_.clip > 0 ? report.gradient_norm / options_.clip : 0;
  optimiser_->step(ctx.pool(), lr, over > 1 ? 1 / over : 1, report.step, with_update ? &report.update : nullptr);
  shards_.share_weights();
  if (ema_ != nullptr) ema_->update(ctx.pool());
  ++steps_done_;
  return report;
}

Learner::Sum Learner::evaluate(const Batch& batch, bool averaged) {
  Context& ctx = engine_.context();
  const Model& model = averaged && ema_ != nullptr ? ema_->model() : engine_.model();
  Sum sum;  // stays empty where the rest of the data did not reach this rank
  for (const Batch& part : parts_of(batch, pass_rows())) {
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    const Tensor loss = cross_entropy(ctx, model.residual(ctx, step), model.head(), part.labels);
    const int64_t scored = scored_in(part.labels);
    const double mean = static_cast<double>(*loss.data<float>());
    if (!std::isfinite(mean)) report_validation(model, part);
    sum.loss += mean * static_cast<double>(scored);
    sum.tokens += scored;
  }
  return sum;
}

double Learner::activation_bytes(int64_t rows, int64_t length, int64_t batches) {
  Context& ctx = engine_.context();
  constexpr int64_t kFirst = 32, kSecond = 64;
  const auto taken = [&](int64_t n, int64_t longest, size_t room = 0) {
    Batch batch{.tokens = std::vector<int32_t>(static_cast<size_t>(n)),
                .labels = std::vector<int32_t>(static_cast<size_t>(n)),
                .lengths = {}};
    for (int64_t row = 0; row < n; row += longest) batch.lengths.push_back(std::min(longest, n - row));
    const Step step = step_of(batch);
    Tape tape(options_.recompute, room);
    const auto frame = ctx.frame();
    LossParts parts;
    tape.backward(ctx, loss_of({engine_.model(), ctx, tape}, step, batch, parts));
    ctx.record_on(nullptr);
    return static_cast<double>(tape.peak() + ctx.arena().peak());
  };
  const int64_t brief = length < kSecond ? length : kFirst;
  const double first = taken(kFirst, brief), second = taken(kSecond, brief);
  // Attention patterns that exist as tables (with dropout on them) take a row's part by each key as well.
  const double by_row = (second - first) / static_cast<double>(kSecond - kFirst);
  const auto linear = [&](int64_t n) { return first + by_row * static_cast<double>(n - kFirst); };
  double by_key = 0;
  if (const int64_t far = std::min<int64_t>(length, 256); far >= kSecond && taken(kSecond, kSecond) > second)
    by_key = (taken(far, far) - linear(far)) / static_cast<double>(far * (far - brief));
  const auto forget = [&] { set_to_zero(parameters_.gradients(), parameters_.size()); };
  forget();
  const auto estimate = [&](int64_t n) {
    return linear(n) + std::max(0.0, by_key) * static_cast<double>(n) * static_cast<double>(length - brief);
  };
  // In halves, two passes run at once, and each weight has a second gradient.
  const bool halved = may_halve(batches * rows);
  const auto of_step = [&](double pass) {
    if (!halved) return pass;
    return (runs_side_by_side() ? 2 : 1) * pass + static_cast<double>(parameters_.size() * sizeof(float));
  };
  const int64_t all = std::max(kFirst, rows_of_part(rows, length, halved ? half_pass_rows(batches * rows) : pass_rows()));
  // In bf16 a small model goes through many rows in another way (ops/mlp_packed.h), which is soon tried.
  constexpr int64_t kMany = 2048, kMore = 2560;
  constexpr double kSoon = 1 << 30;
  if (all >= kMany && ctx.numerics.bf16 && estimate(kMore) < kSoon) {
    const double many = taken(kMany, length, tape_.room()), more = taken(kMore, length, tape_.room());
    forget();
    return of_step(many + (more - many) / static_cast<double>(kMore - kMany) * static_cast<double>(all - kMany));
  }
  // The logits that a tape keeps have a bound and do not grow with the batch.
  const double logits = static_cast<double>(all) * static_cast<double>(engine_.shape().vocab_size) * sizeof(float);
  return of_step(estimate(all) + std::min(logits, static_cast<double>(tape_.room())));
}

// Runs one sequence after the other, which takes no more memory than the pass did. Says where the first NaN or infinity is.
std::string Learner::first_not_finite_of(const Model& model, const Batch& batch, uint64_t step_number, bool learning) {
  Context& ctx = engine_.context();
  for (const Batch& part : parts_of(batch, 1)) {
    begin(ctx, {part, step_number});  // dropout falls as it did
    const Step step = step_of(part);
    const auto frame = ctx.frame();
    Tape tape(options_.recompute);
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

void Learner::report_forward(const Pass& pass) {
  throw RunError("step " + std::to_string(steps_done_ + 1) + ": " +
                 first_not_finite_of(engine_.model(), pass.batch, pass.step_number, true) + kAdvice);
}

void Learner::report_validation(const Model& model, const Batch& part) {
  const bool averaged = &model != &engine_.model();
  throw RunError(std::string("validation") + (averaged ? " of the averaged weights" : "") +
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
      throw RunError("step " + std::to_string(steps_done_ + 1) + ": going backwards, NaN or infinity appeared first in the " +
                     "gradient at " + watch.name + kAdvice);
    }
  }
  comm().all_reduce({});  // a rank that knows more has ended all
  throw RunError("step " + std::to_string(steps_done_ + 1) + ": the gradient of " + parameter + " holds NaN or infinity" +
                 kAdvice);
}

}  // namespace vitrine
