#include "ops/tape.h"

#include <algorithm>
#include <iterator>

namespace vitrine {

Tensor Tape::gradient(const Tensor& t) const {
  if (t.grad() == nullptr || t.grad()->data == nullptr) return {};
  return {t.grad()->data, t.dtype(), t.shape()};
}

Tape::Sum Tape::contribute(const Tensor& t) {
  if (t.grad() == nullptr) return {};
  const bool fresh = t.grad()->data == nullptr;
  if (fresh) {
    t.grad()->data = room_for_gradient(t.bytes());
    if (recomputed_ == 0) touched_.push_back(t.grad());
  }
  return {{t.grad()->data, t.dtype(), t.shape()}, fresh};
}

void* Tape::room_for_gradient(size_t bytes) {
  const auto fits = std::find_if(unused_.rbegin(), unused_.rend(), [&](const Unused& u) { return u.bytes == bytes; });
  if (fits != unused_.rend()) {
    void* const data = fits->data;
    unused_.erase(std::next(fits).base());
    return data;
  }
  const size_t taken = (bytes + 63) & ~size_t{63};
  if (reusable_.bytes <= taken) return grads_.allocate(bytes);
  void* const data = reusable_.data;
  reusable_ = {static_cast<std::byte*>(data) + taken, reusable_.bytes - taken};
  return data;
}

void* Tape::allocate_saved(size_t bytes) {
  VITRINE_CHECK(bytes <= saved_budget(), "what is saved fits its budget");
  saved_ += bytes;
  return arena_.allocate(bytes);
}

void Tape::release(const Tensor& t) {
  if (t.grad() == nullptr || t.grad()->data == nullptr) return;
  unused_.push_back({t.grad()->data, t.bytes()});
  t.grad()->data = nullptr;
}

void Tape::rewind_gradients(size_t mark) {
  grads_.rewind(mark);
  std::erase_if(unused_, [&](const Unused& u) { return !grads_.holds(u.data); });
}

Tensor Tape::accumulate(const Tensor& t) {
  const Sum sum = contribute(t);
  if (sum.fresh) std::memset(sum.to.raw(), 0, sum.to.bytes());
  return sum.to;
}

void Tape::run_back(Context& ctx) {
  while (last_ != nullptr) {
    Node* const node = last_;
    last_ = node->previous;
    ctx.check_stop();
    const Context::Frame scratch(ctx);
    node->run(ctx, *this, node);
    if (watch_ != nullptr) watch_->node_done();
  }
}

void Tape::mark_block(int layer) {
  struct Mark {
    BackwardWatch* watch;
    int layer;
  };
  if (watch_ != nullptr)
    record<Mark>([](Context&, Tape&, const Mark& mark) { mark.watch->block_done(mark.layer); }, {watch_, layer});
}

void Tape::backward(Context& ctx, const Tensor& loss) {
  VITRINE_CHECK(loss.count() == 1, "back-propagation starts from one number");
  if (loss.grad() == nullptr) throw UsageError("the loss was not computed while this tape recorded");
  visit_scalar(loss, [&](auto zero) { *accumulate(loss).data<decltype(zero)>() = 1; });
  Tape* const recording = std::exchange(ctx.tape_, nullptr);  // backward itself records nothing
  run_back(ctx);
  ctx.tape_ = recording;
}

void Tape::walk(Context& ctx) {
  VITRINE_CHECK(recomputed_ == 0, "a tape that is walked again keeps its blocks");
  Node* const end = last_;
  Tape* const recording = std::exchange(ctx.tape_, nullptr);
  run_back(ctx);
  ctx.tape_ = recording;
  last_ = end;
}

void Tape::forget_gradients() {
  for (GradSlot* slot : touched_) slot->data = nullptr;
  touched_.clear();
  reusable_ = {};
  rewind_gradients(0);
}

void Tape::clear() {
  last_ = nullptr;
  touched_.clear();
  reusable_ = {};
  saved_ = 0;
  arena_.rewind(0);
  rewind_gradients(0);
}

}  // namespace vitrine
