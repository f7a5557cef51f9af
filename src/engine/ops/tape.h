#pragma once
// What backward needs, recorded while ops run. Nodes are plain structs with a function pointer, in the tape's own arena.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/context.h"

namespace vitrine {

class Step;
template <class M>
struct CheckpointNode;
template <class M, size_t N>
struct StateNode;

/// Told how far a backward pass is, so that what is complete can be used while the rest runs.
class BackwardWatch {
 public:
  virtual ~BackwardWatch() = default;
  /// After every node.
  virtual void node_done() = 0;
  /// The gradients of that block's parameters are complete, and those of the blocks after it.
  virtual void block_done(int layer) = 0;
};

/// Records ops of one step, then walks them backwards. Activations made while it records live in its arena until
/// clear(); their gradients live in a third arena.
class Tape {
 public:
  /// recomputed: of so many first blocks, keep the input alone and run the block again in backward. saved_budget: bytes for
  /// what backward could also compute again, as logits; none where all blocks are.
  explicit Tape(int64_t recomputed = 0, size_t saved_budget = kSavedBytes)
      : recomputed_(recomputed), saved_budget_(saved_budget) {}
  explicit Tape(bool recompute, size_t saved_budget = kSavedBytes) = delete;
  static constexpr int64_t kAllBlocks = INT64_MAX;
  static constexpr size_t kSavedBytes = size_t{64} << 20;

  /// From the next step on.
  void recompute(int64_t blocks) { recomputed_ = blocks; }
  bool recomputes(int layer) const { return layer < recomputed_; }
  /// Bytes of it that are left for allocate_saved().
  size_t saved_budget() const { return recomputed_ == kAllBlocks ? 0 : saved_budget_ - saved_; }
  /// Memory within that budget. Its op gives it up with reuse_for_gradients() once backward has read it: gradients go there
  /// next, so that a step's memory hardly grows.
  void* allocate_saved(size_t bytes);
  void reuse_for_gradients(void* data, size_t bytes) { reusable_ = {data, bytes}; }
  Arena& arena() { return arena_; }
  /// The most bytes that activations, nodes and gradients ever took together.
  size_t peak() const { return arena_.peak() + grads_.peak(); }

  /// Adds a node. `payload` is copied and must be plain data; run_backward(ctx, tape, payload) adds to the gradients of
  /// its inputs from that of its output.
  template <class P>
  void record(void (*run_backward)(Context&, Tape&, const P&), const P& payload) {
    static_assert(std::is_trivially_copyable_v<P> && std::is_trivially_destructible_v<P>);
    struct Typed {
      Node node;
      void (*back)(Context&, Tape&, const P&);
      P payload;
    };
    auto* typed = static_cast<Typed*>(arena_.allocate(sizeof(Typed)));
    typed->node = {last_, [](Context& ctx, Tape& tape, Node* node) {
                     const Typed& self = *reinterpret_cast<Typed*>(node);
                     self.back(ctx, tape, self.payload);
                   }};
    typed->back = run_backward;
    std::memcpy(static_cast<void*>(&typed->payload), &payload, sizeof(P));
    last_ = &typed->node;
  }

  /// A copy of plain data that lives as long as what was recorded.
  template <class T>
  T* keep(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto* const kept = static_cast<T*>(arena_.allocate(items.size_bytes()));
    if (!items.empty()) std::memcpy(static_cast<void*>(kept), items.data(), items.size_bytes());
    return kept;
  }

  /// The gradient that reached `t`, or an empty tensor if none did.
  Tensor gradient(const Tensor& t) const;
  /// A place to add to the gradient of `t`: zeros if nothing was added yet; empty if `t` is a constant.
  Tensor accumulate(const Tensor& t);

  /// The same without the zeros: `fresh` says that nothing was added yet and the elements are undefined, to be set.
  struct Sum {
    Tensor to;
    bool fresh = false;
    explicit operator bool() const { return static_cast<bool>(to); }
  };
  Sum contribute(const Tensor& t);

  /// Says that the op that made `t` has used its gradient, whose memory goes to the next one of that size: half of a
  /// step's memory, and what is written next is still in the caches. Not for tensors that several nodes make.
  void release(const Tensor& t);

  /// Tells `watch` (or nobody, if null) of the backward pass over what is recorded from now on.
  void watch(BackwardWatch* watch) { watch_ = watch; }
  /// A block begins here: going backwards, it is done when this place is reached.
  void mark_block(int layer);

  /// Back-propagates from `loss` (one number, gradient 1) through everything recorded.
  void backward(Context& ctx, const Tensor& loss);

  /// Back-propagates from the gradients that were added by hand (accumulate), as often as wanted: what was recorded stays. Not
  /// through ops that give up saved values in backward (cross_entropy), and not on a tape that recomputes.
  void walk(Context& ctx);
  /// Takes all gradients away, before the next walk.
  void forget_gradients();

  /// Gives back every node, activation and gradient.
  void clear();

 private:
  friend class Context;
  struct Node {
    Node* previous;
    void (*run)(Context&, Tape&, Node*);
  };
  void run_back(Context& ctx);
  template <class M>
  static void run_block_again(Context& ctx, Tape& tape, const CheckpointNode<M>& node);
  template <class M, size_t N>
  static void run_state_again(Context& ctx, Tape& tape, const StateNode<M, N>& node);

  struct Unused {
    void* data;
    size_t bytes;
  };
  void rewind_gradients(size_t mark);

  void* room_for_gradient(size_t bytes);

  int64_t recomputed_;
  size_t saved_budget_, saved_ = 0;
  Arena arena_, grads_;
  std::vector<Unused> unused_;      // released gradients
  std::vector<GradSlot*> touched_;  // slots that got a gradient
  Unused reusable_ = {};            // the rest of what reuse_for_gradients() got last
  BackwardWatch* watch_ = nullptr;
  Node* last_ = nullptr;
};

/// The node of a recomputed block.
template <class M>
struct CheckpointNode {
  Tensor (M::*block)(Context&, const Step&, int, Tensor) const;
  const M* model;
  const Step* step;
  int layer;
  Tensor x, y;
};

template <class M>
void Tape::run_block_again(Context& ctx, Tape& tape, const CheckpointNode<M>& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  tape.accumulate(node.x);  // made before the marks, so that it outlives the block's own gradients
  const size_t nodes = tape.arena_.mark(), grads = tape.grads_.mark();
  Listener* const listener = std::exchange(ctx.listener_, nullptr);
  Node* const before = std::exchange(tape.last_, nullptr);
  ctx.tape_ = &tape;
  const Tensor y = (node.model->*node.block)(ctx, *node.step, node.layer, node.x);
  ctx.tape_ = nullptr;
  std::memcpy(tape.contribute(y).to.raw(), dy.raw(), dy.bytes());
  tape.run_back(ctx);
  tape.last_ = before;
  ctx.listener_ = listener;
  tape.arena_.rewind(nodes);
  tape.rewind_gradients(grads);
  tape.release(node.y);
}

template <class M>
Tensor Context::checkpoint(Tensor (M::*block)(Context&, const Step&, int, Tensor) const, const M& model, const Step& step,
                           int layer, const Tensor& before) {
  if (layer < first_block_) return before;
  const Tensor x = entering(layer, before);
  if (tape_ != nullptr) tape_->mark_block(layer);
  if (tape_ == nullptr || !tape_->recomputes(layer)) return (model.*block)(*this, step, layer, x);
  Tape* const tape = std::exchange(tape_, nullptr);
  Tensor inner;
  {
    const Frame scratch(*this);
    inner = (model.*block)(*this, step, layer, x.without_grad());
    tape_ = tape;
    const Tensor y = empty(inner.shape());  // in the tape's arena
    std::memcpy(y.raw(), inner.raw(), inner.bytes());
    inner = y;
  }
  tape->record(&Tape::run_block_again<M>, CheckpointNode<M>{block, &model, &step, layer, x, inner});
  return inner;
}

/// The node of a recomputed block with several tensors.
template <class M, size_t N>
struct StateNode {
  void (M::*block)(Context&, const Step&, int, std::array<Tensor, N>&) const;
  const M* model;
  const Step* step;
  int layer;
  std::array<Tensor, N> before, after;

  /// Whether the block put something in the place of the i-th.
  bool made(size_t i) const { return after[i].raw() != before[i].raw(); }
};

template <class M, size_t N>
void Tape::run_state_again(Context& ctx, Tape& tape, const StateNode<M, N>& node) {
  std::array<Tensor, N> gradients;  // of what the block made
  bool any = false;
  for (size_t i = 0; i < N; ++i) {
    if (node.made(i)) gradients[i] = tape.gradient(node.after[i]);
    any = any || gradients[i];
  }
  if (!any) return;
  for (const Tensor& x : node.before)  // made before the marks, so that they outlive the block's own gradients
    if (x) tape.accumulate(x);
  const size_t nodes = tape.arena_.mark(), grads = tape.grads_.mark();
  Listener* const listener = std::exchange(ctx.listener_, nullptr);
  Node* const last = std::exchange(tape.last_, nullptr);
  ctx.tape_ = &tape;
  std::array<Tensor, N> state = node.before;
  (node.model->*node.block)(ctx, *node.step, node.layer, state);
  ctx.tape_ = nullptr;
  for (size_t i = 0; i < N; ++i)
    if (gradients[i]) std::memcpy(tape.contribute(state[i]).to.raw(), gradients[i].raw(), gradients[i].bytes());
  tape.run_back(ctx);
  tape.last_ = last;
  ctx.listener_ = listener;
  tape.arena_.rewind(nodes);
  tape.rewind_gradients(grads);
  for (size_t i = 0; i < N; ++i)
    if (gradients[i]) tape.release(node.after[i]);
}

template <class M, size_t N>
void Context::checkpoint(void (M::*block)(Context&, const Step&, int, std::array<Tensor, N>&) const, const M& model,
                         const Step& step, int layer, std::array<Tensor, N>& state) {
  if (layer < first_block_) return;
  state[0] = entering(layer, state[0]);  // a block's stream comes first
  if (tape_ != nullptr) tape_->mark_block(layer);
  if (tape_ == nullptr || !tape_->recomputes(layer)) return (model.*block)(*this, step, layer, state);
  Tape* const tape = std::exchange(tape_, nullptr);
  StateNode<M, N> node{block, &model, &step, layer, state, state};
  {
    const Frame scratch(*this);
    std::array<Tensor, N> inner;
    for (size_t i = 0; i < N; ++i) inner[i] = state[i].without_grad();
    (model.*block)(*this, step, layer, inner);
    tape_ = tape;
    for (size_t i = 0; i < N; ++i) {
      if (inner[i].raw() == state[i].raw()) continue;
      node.after[i] = empty(inner[i].shape());  // in the tape's arena
      std::memcpy(node.after[i].raw(), inner[i].raw(), inner[i].bytes());
    }
  }
  tape->record(&Tape::run_state_again<M, N>, node);
  state = node.after;
}

}  // namespace vitrine
