#include "ops/tape.h"

namespace vitrine {

Tensor Tape::gradient(const Tensor& t) const {
  if (t.grad() == nullptr || t.grad()->data == nullptr) return {};
  return {t.grad()->data, t.dtype(), t.shape()};
}

Tensor Tape::accumulate(const Tensor& t) {
  if (t.grad() == nullptr) return {};
  if (t.grad()->data == nullptr) {
    t.grad()->data = grads_.allocate(t.bytes());
    std::memset(t.grad()->data, 0, t.bytes());
  }
  return {t.grad()->data, t.dtype(), t.shape()};
}

void Tape::run_back(Context& ctx) {
  while (last_ != nullptr) {
    Node* const node = last_;
    last_ = node->previous;
    const Context::Frame scratch(ctx);
    node->run(ctx, *this, node);
  }
}

void Tape::backward(Context& ctx, const Tensor& loss) {
  VITRINE_CHECK(loss.count() == 1, "back-propagation starts from one number");
  if (loss.grad() == nullptr) throw UsageError("the loss was not computed while this tape recorded");
  visit_scalar(loss, [&](auto zero) { *accumulate(loss).data<decltype(zero)>() = 1; });
  Tape* const recording = std::exchange(ctx.tape_, nullptr);  // backward itself records nothing
  run_back(ctx);
  ctx.tape_ = recording;
}

void Tape::clear() {
  last_ = nullptr;
  arena_.rewind(0);
  grads_.rewind(0);
}

}  // namespace vitrine
