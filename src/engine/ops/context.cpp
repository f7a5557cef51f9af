#include "ops/context.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ops/dry_run.h"
#include "ops/every_sequence.h"
#include "ops/step.h"
#include "ops/stopping.h"
#include "ops/tape.h"

namespace vitrine {

Context::Context(ThreadPool& pool, DryRun& dry) : pool_(&pool), dry_(&dry), arena_(Arena::Nowhere{}) { listen(&dry); }

void Context::record_region(int64_t tasks, bool share, const std::function<TaskCost(int64_t)>& cost) {
  dry_->add_region(tasks, share, cost);
}

void Context::throw_stopped() { throw Stopped(); }

Tensor Context::empty(const Shape& shape) {
  check_stop();  // every op comes here, where it may find no memory, too
  const auto count = static_cast<size_t>(shape.count());
  const size_t bytes = row_bytes(activations, count);
  if (tape_ == nullptr) {
    const bool apart = listener_ != nullptr && activations == DType::f32 && listener_->takes();
    return {apart ? vectors_.allocate(count) : arena_.allocate(bytes), activations, shape};
  }
  Arena& arena = tape_->arena();
  auto* slot = new (arena.allocate(sizeof(GradSlot))) GradSlot;
  return {arena.allocate(bytes), activations, shape, slot};
}

Tensor Context::zeros(const Shape& shape) {
  const Tensor t = empty(shape);
  if (dry_ == nullptr) std::memset(t.raw(), 0, t.bytes());
  return t;
}

void Context::copy(const Tensor& from, const Tensor& to) const {
  if (dry_ != nullptr) return dry_->move(from, to);
  std::memcpy(to.raw(), from.raw(), from.bytes());
}

Tensor Context::Frame::keep(const Tensor& t) {
  kept_ = true;
  if (ctx_.tape_ != nullptr) {  // t lies in the tape's arena
    ctx_.arena_.rewind(mark_);
    return t;
  }
  if (ctx_.vectors_.rewind_keeping(vectors_mark_, t.raw())) {
    ctx_.arena_.rewind(mark_);
    return t;
  }
  const Tensor kept(ctx_.arena_.rewind_keeping(mark_, t.raw(), t.bytes()), t.dtype(), t.shape());
  if (ctx_.dry_ != nullptr) ctx_.dry_->move(t, kept);
  ctx_.vectors_.rewind(vectors_mark_);
  return kept;
}

void Context::push_scope(std::string_view name, int index) {
  const int room = kLongestName - scope_length_;
  const int written = index < 0 ? std::snprintf(scope_ + scope_length_, static_cast<size_t>(room), "%.*s.",
                                                static_cast<int>(name.size()), name.data())
                                : std::snprintf(scope_ + scope_length_, static_cast<size_t>(room), "%.*s.%d.",
                                                static_cast<int>(name.size()), name.data(), index);
  VITRINE_CHECK(written > 0 && written < room, "a hook's name fits its buffer");
  scope_length_ += written;
}

std::string_view Context::full_name(std::string_view name, char* buffer) const {
  VITRINE_CHECK(static_cast<size_t>(scope_length_) + name.size() <= kLongestName, "a hook's name fits its buffer");
  std::memcpy(buffer, scope_, static_cast<size_t>(scope_length_));
  std::copy(name.begin(), name.end(), buffer + scope_length_);
  return {buffer, static_cast<size_t>(scope_length_) + name.size()};
}

bool Context::listens_to(std::string_view name) const {
  if (dry_ != nullptr) return dry_->looks_inside();
  char buffer[kLongestName];
  const std::string_view full = full_name(name, buffer);
  if (insert_ != nullptr && insert_->at(full)) return true;
  return listener_ != nullptr && (listener_->wants(full) || (tape_ != nullptr && listener_->wants_gradient(full)));
}

Tensor Context::copy_of_entering(const Tensor& computed) {
  if (entering_->shape() != computed.shape())
    throw ShapeError("the stream that enters block " + std::to_string(first_block_) + " is " + entering_->shape().text() +
                     "; expected " + computed.shape().text() + ", the rows of the step");
  const Tensor copy = empty(computed.shape());
  this->copy(*entering_, copy);
  return copy;
}

void Context::enter(const Step& step) {
  if (listener_ == nullptr) return;
  if (sequence_ == kEverySequence) {
    listen_first_ = 0;
    listen_rows_ = step.rows();
    listen_position_ = step.sequences().empty() ? 0 : step.sequences()[0].position;
    return;
  }
  if (sequence_ < 0 || static_cast<size_t>(sequence_) >= step.sequences().size())
    throw UsageError("a listener asks for sequence " + std::to_string(sequence_) + " of a step that has " +
                     std::to_string(step.sequences().size()));
  const StepSequence& sequence = step.sequences()[static_cast<size_t>(sequence_)];
  listen_first_ = sequence.first_row;
  listen_rows_ = sequence.rows;
  listen_position_ = sequence.position;
}

namespace {

struct GradientHook {
  Tensor x;
  int64_t first, rows;  // rows < 0: all of x
  Listener* listener;
  const char* name;
  size_t length;
};

void gradient_hook_backward(Context&, Tape& tape, const GradientHook& node) {
  const Tensor dx = tape.gradient(node.x);
  if (!dx) return;
  node.listener->see_gradient({node.name, node.length}, node.rows < 0 ? dx : dx.rows_view(node.first, node.rows));
}

void record_gradient_hook(Tape& tape, Listener* listener, std::string_view name, const Tensor& x, int64_t first, int64_t rows) {
  tape.record(&gradient_hook_backward,
              GradientHook{x, first, rows, listener, tape.keep(std::span(name.data(), name.size())), name.size()});
}

Tensor checked(Tensor replacement, const Tensor& value, std::string_view name) {
  if (replacement && (replacement.shape() != value.shape() || replacement.dtype() != value.dtype()))
    throw ShapeError("the replacement for " + std::string(name) + " has shape " + replacement.shape().text() + "; expected " +
                     value.shape().text());
  return replacement;
}

}  // namespace

Tensor Context::hook_rows(std::string_view name, const Tensor& x) {
  if (insert_ == nullptr) return show_rows(name, x);
  char buffer[kLongestName];
  const std::string_view full = full_name(name, buffer);
  if (!insert_->at(full)) return listener_ == nullptr ? x : show_rows(name, x);
  Tensor now;
  {
    const auto inside = scope(name);
    now = checked(insert_->replaced(*this, full, x), x, full);
  }
  if (listener_ != nullptr) now = show_rows(name, now);
  insert_->passed(*this, full, now);
  return now;
}

Tensor Context::show_rows(std::string_view name, const Tensor& x) {
  if (x.rows() == listen_rows_) return show(name, x);  // all of the step's
  char buffer[kLongestName];
  const std::string_view full = full_name(name, buffer);
  Tensor result = x;
  if (listener_->wants(full)) {
    const Tensor mine = x.rows_view(listen_first_, listen_rows_);
    if (const Tensor replacement = checked(listener_->see(*this, full, mine), mine, full)) {
      if (tape_ != nullptr)
        throw UsageError("a hook can be replaced while a tape records only in a step of one sequence: " + std::string(full));
      result = empty(x.shape());  // the other sequences' rows stay as they are
      std::memcpy(result.raw(), x.raw(), x.bytes());
      std::memcpy(result.rows_view(listen_first_, listen_rows_).raw(), replacement.raw(), replacement.bytes());
    }
  }
  if (tape_ != nullptr && listener_->wants_gradient(full))
    record_gradient_hook(*tape_, listener_, full, result, listen_first_, listen_rows_);
  return result;
}

Tensor Context::show(std::string_view name, const Tensor& x) {
  char buffer[kLongestName];
  const std::string_view full = full_name(name, buffer);
  Tensor result = x;
  if (listener_->wants(full)) {
    if (const Tensor replacement = checked(listener_->see(*this, full, x), x, full)) {
      result = replacement;
      if (tape_ != nullptr && result.grad() == nullptr) {
        result = empty(x.shape());
        std::memcpy(result.raw(), replacement.raw(), replacement.bytes());
        // A listener's own memory has no gradient slot; it gets one if the gradient at this hook is asked for, else no op
        // computes one.
        if (!listener_->wants_gradient(full)) result = result.without_grad();
      } else if (tape_ == nullptr && result.raw() != x.raw()) {
        result = empty(x.shape());
        std::memcpy(result.raw(), replacement.raw(), replacement.bytes());
      }
    }
  }
  if (tape_ != nullptr && listener_->wants_gradient(full)) record_gradient_hook(*tape_, listener_, full, result, 0, -1);
  return result;
}

}  // namespace vitrine
