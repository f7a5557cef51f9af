#pragma once
// What goes along with a step: memory, threads, and who watches. Nothing about weights, caches, files or configuration.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "base/thread_pool.h"
#include "ops/region.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"
#include "tensor/vectors.h"

namespace vitrine {

class Context;
class DryRun;
struct LowRanks;
class Step;
class Tape;
struct RouterBalance;
struct Weight;

/// In place of a sequence's number in Context::listen: the listener is shown each hook once, with the rows of all sequences of
/// the step, one behind the other. A tape may record, but for scores and patterns of several sequences.
inline constexpr int kEverySequence = -1;

/// Reads, replaces or differentiates named intermediates ("hooks") of one sequence of a step, or of all of them.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Whether the hook of this full name ("blocks.3.attn.hook_pattern") is to be shown to see().
  virtual bool wants(std::string_view name) const = 0;
  /// `value` holds the rows of the listener's sequence (or, for scores and patterns, [head, query, key]; of several sequences
  /// [sequence, head, query, key], as large as the longest needs, where nobody looks 0, of scores -inf); read-only and valid
  /// during the call. Returns an empty Tensor to go on unchanged, or a tensor of the same shape that flows on. On a tape a
  /// replacement is a constant unless it was built with ops.
  virtual Tensor see(Context& ctx, std::string_view name, const Tensor& value) = 0;
  /// Whether it takes what it sees out of the context (Context::take), so that tensors are made where that costs no copy.
  virtual bool takes() const { return false; }
  /// Whether see_gradient is to be called in backward with the gradient at that hook.
  virtual bool wants_gradient(std::string_view) const { return false; }
  virtual void see_gradient(std::string_view, const Tensor&) {}
  /// Shown what every product with a matrix reads, whatever wants() says: x [rows, in] of all the step's rows that meet it.
  virtual void see_input(const Weight&, const Tensor&) {}
};

/// Something at a model's hooks that is computed there for all rows of a step, such as a sparse autoencoder
/// (hooks/spliced_model.h).
class Insert {
 public:
  virtual ~Insert() = default;
  /// Whether it reads or replaces the hook of this full name.
  virtual bool at(std::string_view name) const = 0;
  /// The value that flows on, before listeners see it: `value` itself, or a tensor of its shape. Hooks that it calls lie under
  /// that name: "blocks.3.hook_resid_post.hook_sae_acts_post".
  virtual Tensor replaced(Context& ctx, std::string_view name, const Tensor& value) = 0;
  /// What flows on after listeners saw it.
  virtual void passed(Context& ctx, std::string_view name, const Tensor& value) = 0;
};

/// How products are computed; the same in every command (docs/numerics.md).
struct Numerics {
  bool f32 = false;    // --compute f32: stored weights are widened and everything is f32
  bool exact = false;  // --exact: one kernel class, so batch, chunking and cache state change no bit
  bool bf16 = false;   // training: products of many rows round f32 operands to bf16, forward and backward; sums are f32
};

/// Rows of a step that read more than the stored matrices: `scale` times what an adapter adds (ops/low_rank.h).
struct RowAdapter {
  static constexpr int64_t kAllRows = -1;
  int64_t first = 0, rows = kAllRows;  // rows [first, first + rows) of every product that the step's rows meet
  const LowRanks* parts = nullptr;
  double scale = 1;
};

/// What decides a step of training besides the weights and the rows: dropout depends on the first three; the balance is what the
/// load-balancing loss of experts is made of (ops/experts.h; null: there is none).
struct TrainingStep {
  uint64_t seed = 0, number = 0;
  uint64_t first_row = 0;  // of this step's rows among those of all ranks
  RouterBalance* balance = nullptr;
};

/// What a run is told besides its rows.
struct RunSettings {
  Numerics numerics;
  DType activations = DType::f32;  // f64: every op runs in double on the reference kernels (gradient checks)
  TrainingStep step_of_training;   // unused outside of training
  /// Adapters of some rows or of all, added one after the other; not with a tape. Those that stand at the weights
  /// (Weight::adapter) act on every row besides.
  std::span<const RowAdapter> row_adapters;
};

/// Where a run stands: what Context::Aside sets aside.
struct RunState {
  static constexpr int kLongestName = 160;
  Tape* tape_ = nullptr;
  bool training_ = false;
  int first_block_ = 0;
  const Tensor* entering_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;
  const std::function<void()>* between_ = nullptr;
  Listener* listener_ = nullptr;
  Insert* insert_ = nullptr;
  int sequence_ = 0;
  int64_t listen_first_ = 0, listen_rows_ = 0, listen_position_ = 0;
  int scope_length_ = 0;
  char scope_[kLongestName] = {};
};

/// One per running step, never shared between threads, nothing global.
class Context : public RunSettings, private RunState {
 public:
  explicit Context(ThreadPool& pool) : pool_(&pool) {}
  /// A dry run (ops/dry_run.h): ops allocate, record and call hooks as in a run on that pool, but compute nothing. Their tensors
  /// have a shape and no memory, which nobody may read or write.
  Context(ThreadPool& pool, DryRun& dry);

  ThreadPool& pool() { return *pool_; }
  /// f(task, thread) for every task in [0, tasks), shared among the threads (ThreadPool::run); in a dry run it is only recorded.
  /// All that reads or writes elements goes through here or parallel_for (ops/rows.h).
  template <class F>
  void run(int64_t tasks, F&& f) {
    run(tasks, true, f);
  }
  /// The same on the caller alone, unless `share`: a parallel region costs about 1 us.
  template <class F>
  void run(int64_t tasks, bool share, F&& f) {
    run(tasks, share, f, [](int64_t) { return TaskCost{}; });
  }
  /// cost(task) says what a task is; it is called in a dry run only.
  template <class F, class Cost>
  void run(int64_t tasks, bool share, F&& f, Cost&& cost) {
    if (dry_ != nullptr) [[unlikely]]
      return record_region(tasks, share, cost);
    if (share) return pool_->run(tasks, f);
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
  /// Where ops record what they are; null except in a dry run.
  DryRun* dry() const { return dry_; }
  /// Ops share their work among the threads of that pool from now on.
  void run_on(ThreadPool& pool) { pool_ = &pool; }

  // Memory ------------------------------------------------------------------------------------------------------
  /// A tensor of the activation type, content undefined, valid until the enclosing frame ends (with a tape: until the
  /// tape is cleared). With a tape it carries a gradient slot.
  Tensor empty(const Shape& shape);
  Tensor zeros(const Shape& shape);
  /// Bytes for an op's own use, valid until the enclosing frame ends.
  template <class T>
  T* scratch(size_t count) {
    return static_cast<T*>(arena_.allocate(count * sizeof(T)));
  }
  Arena& arena() { return arena_; }
  /// Copies elements between tensors of one shape; nothing in a dry run.
  void copy(const Tensor& from, const Tensor& to) const;
  /// Hands `t` over to a listener that takes, without a copy: the elements stay where they are and may be read, not written,
  /// until the run ends. False if they cannot be had: a part of a tensor, or one that was taken under another name.
  bool take(const Tensor& t, FloatVector& numbers) {
    return t.dtype() == DType::f32 && vectors_.take(t.raw(), static_cast<size_t>(t.count()), numbers);
  }

  /// The scratch of a block or an op: everything made after it is given back when it ends (a tape's tensors live on).
  class Frame {
   public:
    explicit Frame(Context& ctx) : ctx_(ctx), mark_(ctx.arena_.mark()), vectors_mark_(ctx.vectors_.mark()) {}
    Frame(Context& ctx, const Tensor& consumed)
        : ctx_(ctx),
          mark_(ctx.arena_.begin_if_last(consumed.raw(), consumed.bytes())),
          vectors_mark_(ctx.vectors_.begin_if_last(consumed.raw())) {}
    ~Frame() {
      if (kept_) return;
      ctx_.arena_.rewind(mark_);
      ctx_.vectors_.rewind(vectors_mark_);
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    /// Ends the frame now and moves `t` to its start, where it outlives it.
    Tensor keep(const Tensor& t);

   private:
    Context& ctx_;
    size_t mark_, vectors_mark_;
    bool kept_ = false;
  };
  Frame frame() { return Frame(*this); }
  /// A frame that also gives back `consumed` if it is the last thing made: a block's input, which its result replaces.
  Frame frame(const Tensor& consumed) { return Frame(*this, consumed); }

  // Hooks -------------------------------------------------------------------------------------------------------
  /// Shows hooks of the step's sequence number `sequence`, or of kEverySequence, to `listener` until another one (or null) is
  /// set.
  void listen(Listener* listener, int sequence = 0) {
    listener_ = listener;
    sequence_ = sequence;
  }
  Listener* listener() const { return listener_; }
  int listening_sequence() const { return sequence_; }
  /// Position of the first row that the listener is shown in the running step; of every sequence: that of the first one's.
  int64_t listening_position() const { return listen_position_; }

  /// What stands at the hooks of the runs from now on; null: nothing. Blocks that are recomputed in backward are run without it.
  void insert(Insert* insert) { insert_ = insert; }
  bool has_hooks() const { return listener_ != nullptr || insert_ != nullptr; }

  /// Names inside it are prefixed: scope("blocks", 3) gives "blocks.3.". Costs two null tests if nobody listens.
  class Scope {
   public:
    Scope(Context& ctx, std::string_view name, int index) : ctx_(ctx), length_(ctx.scope_length_) {
      if (ctx.has_hooks()) ctx.push_scope(name, index);
    }
    ~Scope() { ctx_.scope_length_ = length_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Context& ctx_;
    int length_;
  };
  Scope scope(std::string_view name, int index = -1) { return Scope(*this, name, index); }

  /// A named intermediate with the step's rows first. What comes back is what flows on.
  Tensor hook(std::string_view name, const Tensor& x) {
    if (!has_hooks()) [[likely]]
      return x;
    return hook_rows(name, x);
  }
  /// The same for a tensor that belongs to the listener's sequences alone, such as a pattern [head, query, key].
  Tensor hook_of_sequence(std::string_view name, const Tensor& x) {
    if (listener_ == nullptr) [[likely]]
      return x;
    return show(name, x);
  }
  bool listens(std::string_view name) const { return has_hooks() && listens_to(name); }

  /// Says which rows the listener's sequence has; every model's residual() begins with it.
  void enter(const Step& step);

  // Starting in the middle --------------------------------------------------------------------------------------
  /// From now on residual() leaves out the blocks before `layer`, and `stream` [rows of the step, d_model] enters that one; null:
  /// nothing is left out. The embedding, from which some families tell later layers their token, is still computed. With cached
  /// keys, or where a later layer reads the keys of an earlier one, the blocks left out are missed: for the caller to know.
  void start_at(int layer, const Tensor* stream) {
    first_block_ = stream != nullptr ? layer : 0;
    entering_ = stream;
  }

  // Stopping ----------------------------------------------------------------------------------------------------
  /// Runs end with Stopped once `flag` is true; null: they are not stopped (ops/stopping.h).
  void stop_on(const std::atomic<bool>* flag) { stop_ = flag; }
  /// To be called where a run may fail. Errors: Stopped.
  void check_stop() const {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) [[unlikely]]
      throw_stopped();
    if (between_ != nullptr) [[unlikely]]
      (*between_)();
  }

  // Other runs in between ---------------------------------------------------------------------------------------
  /// check_stop() calls it, which is before each op, forward and backward; null: nothing is called. Inside it, other runs of this
  /// context may take place while an Aside lives.
  void call_between(const std::function<void()>* f) { between_ = f; }
  /// The run that is under way, set aside: until this ends, the context is as if none were, with those settings. The memory of
  /// runs in between lies behind its own, so they have to be over by then.
  class Aside {
   public:
    Aside(Context& ctx, const RunSettings& settings)
        : ctx_(ctx), settings_(std::exchange<RunSettings>(ctx, settings)), state_(std::exchange<RunState>(ctx, {})) {}
    ~Aside() {
      static_cast<RunSettings&>(ctx_) = settings_;
      static_cast<RunState&>(ctx_) = state_;
    }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    Context& ctx_;
    const RunSettings settings_;
    const RunState state_;
  };

  // Training ----------------------------------------------------------------------------------------------------
  Tape* tape() const { return tape_; }
  /// training: whether dropout acts; without, a tape gives the gradients of the plain forward pass.
  void record_on(Tape* tape, bool training = true) {
    tape_ = tape;
    training_ = tape != nullptr && training;
  }
  /// Whether dropout acts: while a tape records, also in the first pass of a block that is recomputed later.
  bool training() const { return training_; }

  /// Runs one block. On a tape that recomputes, only its input is kept, and backward runs the block again with the
  /// listener silent.
  template <class M>
  Tensor checkpoint(Tensor (M::*block)(Context&, const Step&, int, Tensor) const, const M& model, const Step& step, int layer,
                    const Tensor& x);
  /// The same for a block that reads and writes several tensors: they go in, and what the block put in their place comes out.
  /// Without a tape a block makes what later blocks shall find outside its frame.
  template <class M, size_t N>
  void checkpoint(void (M::*block)(Context&, const Step&, int, std::array<Tensor, N>&) const, const M& model, const Step& step,
                  int layer, std::array<Tensor, N>& state);

 private:
  friend class Tape;
  friend class DryRun;
  bool listens_to(std::string_view name) const;
  std::string_view full_name(std::string_view name, char* buffer) const;
  void record_region(int64_t tasks, bool share, const std::function<TaskCost(int64_t)>& cost);
  Tensor hook_rows(std::string_view name, const Tensor& x);
  Tensor show_rows(std::string_view name, const Tensor& x);
  Tensor show(std::string_view name, const Tensor& x);
  void push_scope(std::string_view name, int index);
  /// The stream that enters this block: `computed`, or a copy of what start_at() gave, for blocks give their input's memory back.
  Tensor entering(int layer, const Tensor& computed) {
    return entering_ == nullptr || layer != first_block_ ? computed : copy_of_entering(computed);
  }
  Tensor copy_of_entering(const Tensor& computed);

  [[noreturn]] static void throw_stopped();

  ThreadPool* pool_;
  DryRun* dry_ = nullptr;
  Arena arena_;
  Vectors vectors_;  // tensors, while a listener takes
};

}  // namespace vitrine
