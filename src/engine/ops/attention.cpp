#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/attention.h"
#include "kernels/table.h"
#include "ops/attention_keys.h"
#include "ops/dry_run.h"
#include "ops/elementwise.h"
#include "ops/every_sequence.h"
#include "ops/layout.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/packed_product.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr int64_t kQueryRows = 32;    // of one head that share a pass over a block of keys
constexpr int64_t kShared = 1 << 15;  // multiply-adds from where on threads share them

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Step& step, const AttentionSpec& spec,
                     Context& ctx) {
  if (q.shape().rank() != 3 || k.shape().rank() != 3 || v.shape().rank() != 3 || q.dim(2) != k.dim(2) || k.dim(1) != v.dim(1) ||
      k.dim(1) <= 0 || q.dim(1) % k.dim(1) != 0 || q.rows() != step.rows() || k.rows() != q.rows() || v.rows() != q.rows())
    throw ShapeError("attention: q " + q.shape().text() + ", k " + k.shape().text() + ", v " + v.shape().text() + " for " +
                     std::to_string(step.rows()) +
                     " rows; expected [rows, heads, head_dim], one head_dim for q and k, and heads a multiple of kv heads");
  if (spec.sinks != nullptr && (spec.sinks->size != q.dim(1) || spec.softcap != 0))
    throw ShapeError("attention: " + spec.sinks->name + " holds " + std::to_string(spec.sinks->size) + " sinks for " +
                     std::to_string(q.dim(1)) + " heads; expected one for each, and no soft cap");
  if (spec.alibi && spec.softcap != 0) throw ShapeError("attention: a soft cap with ALiBi; expected one of them");
  for (const StepSequence& s : step.sequences())
    if (s.cache != nullptr && (ctx.training() || q.dtype() == DType::f64 || !spec.causal))
      throw UsageError("attention: a cache cannot be used while a tape records, in f64, or in both directions");
}

// Queries of one sequence that share a key/value head: `rows` positions of `heads` neighboring heads. Either is 1.
struct Unit {
  int64_t row, rows, head, heads;
};

// Partial results of one unit over one block of keys: largest score, sum of exponentials, weighted values per row.
template <class T>
struct Partial {
  T *largest, *total, *slope, *place, *z, *scratch;
  int32_t *first, *last;
  static size_t bytes(int64_t rows, int64_t v_dim) {
    const size_t n = static_cast<size_t>(rows) * ((4 + static_cast<size_t>(v_dim) + kKeyBlock) * sizeof(T) + 2 * sizeof(int32_t));
    return (n + 63) & ~size_t{63};
  }
  Partial(std::byte* memory, int64_t rows, int64_t v_dim) {
    const auto n = static_cast<size_t>(rows);
    z = reinterpret_cast<T*>(memory);
    scratch = z + n * static_cast<size_t>(v_dim);
    largest = scratch + n * kKeyBlock;
    total = largest + n;
    slope = total + n;
    place = slope + n;
    first = reinterpret_cast<int32_t*>(place + n);
    last = first + n;
  }
};

template <class T>
class Fused {
 public:
  Fused(const Tensor& q, const Tensor& v, const Step& step, size_t sequence, const KeySource<T>& source,
        const AttentionSpec& spec, const Tensor& z)
      : q_(q),
        z_(z),
        s_(step.sequences()[sequence]),
        source_(source),
        spec_(spec),
        n_heads_(q.dim(1)),
        per_kv_(q.dim(1) / v.dim(1)),
        v_dim_(v.dim(2)) {}

  int64_t units() const { return s_.rows == 1 ? n_heads_ / per_kv_ : n_heads_ * ceil_div(s_.rows, kQueryRows); }
  Unit unit(int64_t i) const {
    if (s_.rows == 1) return {0, 1, i * per_kv_, per_kv_};
    const int64_t chunks = ceil_div(s_.rows, kQueryRows), row = i % chunks * kQueryRows;
    return {row, std::min(kQueryRows, s_.rows - row), i / chunks, 1};
  }
  int64_t rows_of(const Unit& u) const { return u.rows * u.heads; }
  int64_t first_block(const Unit& u) const { return seen_by(s_, spec_, s_.position + u.row).first / kKeys; }
  int64_t end_block(const Unit& u) const {
    return (seen_by(s_, spec_, s_.position + u.row + u.rows - 1).last + kKeys - 1) / kKeys;
  }
  // What a task on one block of keys is; block -1: on all that the unit sees.
  TaskCost cost(const Unit& u, int64_t block) const {
    KeyRange keys{seen_by(s_, spec_, s_.position + u.row).first, seen_by(s_, spec_, s_.position + u.row + u.rows - 1).last};
    if (block >= 0) keys = {std::max(keys.first, block * kKeys), std::min(keys.last, (block + 1) * kKeys)};
    const int64_t n = keys.last - keys.first;
    return {.bytes = n * source_.bytes_per_key(), .multiply_adds = rows_of(u) * n * (q_.dim(2) + v_dim_)};
  }
  int64_t most_blocks() const { return (s_.position + s_.rows + kKeys - 1) / kKeys; }

  // One block of keys, from a fresh start.
  void block(const Unit& u, int64_t block, const Partial<T>& p) const {
    const auto rows = static_cast<size_t>(rows_of(u));
    const auto slope = [&](int64_t head) { return spec_.alibi ? static_cast<T>(alibi_slope(head, n_heads_)) : T{0}; };
    const T own = slope(u.head);
    for (size_t r = 0; r < rows; ++r) {
      const int64_t query = s_.position + u.row + (u.rows == 1 ? 0 : static_cast<int64_t>(r));
      const KeyRange range = seen_by(s_, spec_, query);
      p.first[r] = static_cast<int32_t>(std::clamp<int64_t>(range.first - block * kKeys, 0, kKeys));
      p.last[r] = static_cast<int32_t>(std::clamp<int64_t>(range.last - block * kKeys, 0, kKeys));
      p.largest[r] = -std::numeric_limits<T>::infinity();
      p.total[r] = 0;
      if (!spec_.alibi) continue;
      p.slope[r] = u.rows == 1 && r > 0 ? slope(u.head + static_cast<int64_t>(r)) : own;
      p.place[r] = static_cast<T>(query - block * kKeys);
    }
    std::fill(p.z, p.z + rows * static_cast<size_t>(v_dim_), T{0});
    const int64_t keys = std::min(kKeys, s_.position + s_.rows - block * kKeys), kv_head = u.head / per_kv_;
    AttentionBlockOf<T> work{};
    work.q = q_.row<T>(s_.first_row + u.row) + u.head * q_.dim(2);
    work.q_stride = static_cast<size_t>(u.rows == 1 ? q_.dim(2) : q_.row_size());
    work.rows = rows;
    work.k_t = source_.keys(block, kv_head);
    work.k_stride = kKeyBlock;
    work.v = source_.values(block, kv_head);
    work.v_stride = source_.v_stride();
    work.k_narrow = source_.narrow_keys(block, kv_head);
    work.v_narrow = source_.narrow_values(block, kv_head);
    work.keys = static_cast<size_t>(keys);
    work.head_dim = static_cast<size_t>(q_.dim(2));
    work.v_dim = static_cast<size_t>(v_dim_);
    work.scale = static_cast<T>(spec_.scale);
    work.softcap = static_cast<T>(spec_.softcap);
    work.slope = spec_.alibi ? p.slope : nullptr;
    work.place = p.place;
    work.first = p.first;
    work.last = p.last;
    work.largest = p.largest;
    work.total = p.total;
    work.z = p.z;
    work.z_stride = static_cast<size_t>(v_dim_);
    work.scratch = p.scratch;
    if constexpr (std::is_same_v<T, float>) {
      kernels().attention(work);
    } else {
      attention_reference(work);
    }
  }

  // Joins a block's partial result to what came before (in z, and largest and total of the running pair).
  void join(const Unit& u, const Partial<T>& p, T* largest, T* total) const {
    for (int64_t r = 0; r < rows_of(u); ++r) {
      if (p.total[r] == 0) continue;  // saw no key of this block
      const T m = std::max(largest[r], p.largest[r]);
      const T before = largest[r] == -std::numeric_limits<T>::infinity() ? T{0} : std::exp(largest[r] - m);
      const T now = std::exp(p.largest[r] - m);
      largest[r] = m;
      total[r] = total[r] * before + p.total[r] * now;
      T* z = z_row(u, r);
      const T* part = p.z + r * v_dim_;
      for (int64_t c = 0; c < v_dim_; ++c) z[c] = z[c] * before + part[c] * now;
    }
  }
  void begin(const Unit& u, T* largest, T* total) const {
    for (int64_t r = 0; r < rows_of(u); ++r) {
      largest[r] =
          spec_.sinks != nullptr ? spec_.sinks->at<T>(u.head + (u.rows == 1 ? r : 0)) : -std::numeric_limits<T>::infinity();
      total[r] = spec_.sinks != nullptr ? T{1} : T{0};  // a sink has the value 0
      std::fill(z_row(u, r), z_row(u, r) + v_dim_, T{0});
    }
  }
  void finish(const Unit& u, const T* total) const {
    for (int64_t r = 0; r < rows_of(u); ++r) {
      T* z = z_row(u, r);
      for (int64_t c = 0; c < v_dim_; ++c) z[c] /= total[r];
    }
  }

 private:
  T* z_row(const Unit& u, int64_t r) const {
    const int64_t row = u.rows == 1 ? 0 : r, head = u.rows == 1 ? r : 0;
    return z_.row<T>(s_.first_row + u.row + row) + (u.head + head) * v_dim_;
  }

  Tensor q_, z_;
  StepSequence s_;
  const KeySource<T>& source_;
  const AttentionSpec& spec_;
  int64_t n_heads_, per_kv_, v_dim_;
};

// Many query rows: each unit walks its blocks. One row: blocks are shared out too, so that one long sequence with few
// key/value heads keeps every core busy. The bits are the same.
template <class T>
void run_fused(Context& ctx, const std::vector<Fused<T>>& sequences, int64_t v_dim, int64_t per_kv) {
  struct Task {
    size_t sequence;
    Unit unit;
    int64_t block;     // -1: all of the unit's blocks
    int64_t partials;  // index of this task's partial result among the shared ones
  };
  const int64_t most_rows = std::max(kQueryRows, per_kv);
  const size_t partial_bytes = Partial<T>::bytes(most_rows, v_dim);
  size_t n_tasks = 0;
  for (const Fused<T>& f : sequences)
    for (int64_t i = 0; i < f.units(); ++i) {
      const Unit u = f.unit(i);
      n_tasks += static_cast<size_t>(u.rows == 1 ? f.end_block(u) - f.first_block(u) : 1);
    }
  Task* tasks = ctx.scratch<Task>(n_tasks);
  std::vector<Task> of_dry_run(ctx.dry() != nullptr ? n_tasks : 0);  // which has no scratch
  if (ctx.dry() != nullptr) tasks = of_dry_run.data();
  int64_t shared = 0, work = 0;
  size_t t = 0;
  const auto add_task = [&](const Task& task) { tasks[t++] = task; };
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int64_t i = 0; i < sequences[s].units(); ++i) {
      const Unit u = sequences[s].unit(i);
      const int64_t first = sequences[s].first_block(u), end = sequences[s].end_block(u);
      work += sequences[s].cost(u, -1).multiply_adds;
      if (u.rows > 1) add_task({s, u, -1, 0});
      for (int64_t b = first; u.rows == 1 && b < end; ++b) add_task({s, u, b, shared++});
    }
  std::byte* own = ctx.scratch<std::byte>(partial_bytes * static_cast<size_t>(ctx.pool().threads()));
  std::byte* parts = ctx.scratch<std::byte>(partial_bytes * static_cast<size_t>(shared));
  const auto partial = [&](std::byte* base, int64_t i) {
    return Partial<T>(base + partial_bytes * static_cast<size_t>(i), most_rows, v_dim);
  };
  const auto run = [&](int64_t i, int thread) {
    const Task& task = tasks[i];
    const Fused<T>& f = sequences[task.sequence];
    if (task.block >= 0) return f.block(task.unit, task.block, partial(parts, task.partials));
    T largest[kQueryRows], total[kQueryRows];
    f.begin(task.unit, largest, total);
    const Partial<T> p = partial(own, thread);
    for (int64_t b = f.first_block(task.unit); b < f.end_block(task.unit); ++b) {
      f.block(task.unit, b, p);
      f.join(task.unit, p, largest, total);
    }
    f.finish(task.unit, total);
  };
  ctx.run(static_cast<int64_t>(n_tasks), work > kShared, run,
          [&](int64_t i) { return sequences[tasks[i].sequence].cost(tasks[i].unit, tasks[i].block); });
  T* largest = ctx.scratch<T>(2 * static_cast<size_t>(most_rows));
  T* total = largest + most_rows;
  const auto join = [&](int64_t, int) {
    for (size_t i = 0; i < n_tasks;) {
      const Task& task = tasks[i];
      if (task.block < 0) {
        ++i;
        continue;
      }
      const Fused<T>& f = sequences[task.sequence];
      f.begin(task.unit, largest, total);
      for (int64_t b = f.first_block(task.unit); b < f.end_block(task.unit); ++b, ++i)
        f.join(task.unit, partial(parts, tasks[i].partials), largest, total);
      f.finish(task.unit, total);
    }
  };
  ctx.run(shared > 0 ? 1 : 0, false, join, [&](int64_t) { return TaskCost{.elements = shared * per_kv * v_dim}; });
}

template <class T>
Tensor attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step, int layer,
              const AttentionSpec& spec) {
  const Tensor z = ctx.empty({q.rows(), q.dim(1), v.dim(2)});
  const auto scratch = ctx.frame();
  const bool listened = ctx.listens("hook_attn_scores") || ctx.listens("hook_pattern");
  const bool dropping = ctx.training() && spec.dropout > 0;
  const bool together = listened && ctx.listening_sequence() == kEverySequence;
  const auto is_shown = [&](size_t s) {
    return dropping || together || (listened && static_cast<int>(s) == ctx.listening_sequence());
  };
  const auto is_packed = [&](size_t s) {
    const StepSequence& sequence = step.sequences()[s];
    return !is_shown(s) && std::is_same_v<T, float> && packs_bf16(ctx) && sequence.cache == nullptr && sequence.rows > 1;
  };
  std::vector<KeySource<T>> sources;  // of those not packed; one heap block per call, of a few words per sequence
  std::vector<Fused<T>> fused;
  std::vector<StepSequence> packed, recorded;
  sources.reserve(step.sequences().size());
  int64_t rows = 0;
  for (size_t s = 0; s < step.sequences().size(); ++s) {
    const StepSequence& sequence = step.sequences()[s];
    if (!is_shown(s) && ctx.tape() != nullptr) recorded.push_back(sequence);
    if (is_packed(s)) {
      packed.push_back(sequence);
      continue;
    }
    sources.emplace_back(ctx, sequence, layer, k, v);
    rows += sequence.rows;
  }
  const int64_t kv_heads = k.dim(1), n_tasks = static_cast<int64_t>(sources.size()) * kv_heads;
  const auto lay_out = [&](int64_t task, int) { sources[static_cast<size_t>(task / kv_heads)].lay_out(task % kv_heads); };
  ctx.run(n_tasks, rows * k.row_size() > 4096, lay_out, [&](int64_t task) {
    return TaskCost{.elements = sources[static_cast<size_t>(task / kv_heads)].rows() * (k.dim(2) + v.dim(2))};
  });
  auto source = sources.begin();
  std::vector<ShownSequence<T>> shown;
  for (size_t s = 0; s < step.sequences().size(); ++s) {
    if (is_packed(s)) continue;
    if (is_shown(s)) {
      const StepSequence& sequence = step.sequences()[s];
      if (sequence.cache != nullptr) source->widen(ctx, seen_by(sequence, spec, sequence.position).first);
      shown.push_back({s, &*source++});
    } else {
      fused.emplace_back(q, v, step, s, *source++, spec, z);
    }
  }
  const size_t at_a_time = together ? shown.size() : 1;
  for (size_t i = 0; i < shown.size(); i += at_a_time)
    attention_stepwise<T>(ctx, q, k, v, step, std::span<const ShownSequence<T>>(shown).subspan(i, at_a_time), spec, z);
  if (!recorded.empty()) record_attention(*ctx.tape(), q, k, v, z, recorded, recorded.size() == step.sequences().size(), spec);
  if (!packed.empty()) attention_packed(ctx, q, k, v, packed, spec, z);
  if (!fused.empty()) run_fused(ctx, fused, v.dim(2), q.dim(1) / k.dim(1));
  return z;
}

}  // namespace

double alibi_slope(int64_t head, int64_t n_heads) {
  int64_t power = 1;
  while (2 * power <= n_heads) power *= 2;
  const double whole = head < power ? static_cast<double>(head + 1) : static_cast<double>(head - power) + 0.5;
  return std::exp2(-8 * whole / static_cast<double>(power));
}

Tensor attention(Context& ctx, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step,
                 int layer, const AttentionSpec& spec) {
  check_attention(q, k, v, step, spec, ctx);
  const auto scope = ctx.scope(name);
  const Tensor z =
      q.dtype() == DType::f64 ? attend<double>(ctx, q, k, v, step, layer, spec) : attend<float>(ctx, q, k, v, step, layer, spec);
  if (DryRun* dry = ctx.dry()) {
    OpCall call{.op = "attention", .inputs = {q, k, v}, .outputs = {z}, .spec = spec, .cache_layer = layer};
    if (spec.sinks != nullptr) call.vectors = {spec.sinks};
    for (const StepSequence& s : step.sequences())
      for (int64_t i = 0; i < s.rows; ++i) {
        const KeyRange range = seen_by(s, spec, s.position + i);
        call.multiply_adds += (range.last - range.first) * q.dim(1) * (q.dim(2) + v.dim(2));
      }
    dry->add(ctx, call);
  }
  return ctx.hook("hook_z", z);
}

namespace {

// The inputs of W_O that hold one head's: its own [begin, end), and [first, first + count) around them, which in quantized
// weights ends where blocks do.
struct HeadInputs {
  HeadInputs(const Weight& W_O, int64_t h, int64_t v_dim) : begin(h * v_dim), end(begin + v_dim), first(begin), count(v_dim) {
    const auto block = static_cast<int64_t>(block_elements(W_O.dtype));
    first = begin / block * block;
    count = (end + block - 1) / block * block - first;
  }
  int64_t begin, end, first, count;
};

// The part of W_O that reads these inputs; all outputs stay. Its gradient is of type `activations`.
Weight part_of(const Weight& W_O, const HeadInputs& head, DType activations) {
  Weight part = W_O;
  part.bias = {};
  part.adapter = nullptr;
  part.in = head.count;
  const auto skipped = static_cast<size_t>(head.first);
  if (part.data != nullptr) part.data += W_O.by_columns ? skipped * W_O.stride : row_bytes(W_O.dtype, skipped);
  if (part.grad.data != nullptr) {
    const size_t first = skipped * (W_O.by_columns ? W_O.grad.stride : 1);
    part.grad.data = static_cast<std::byte*>(part.grad.data) + row_bytes(activations, first);
  }
  return part;
}
// The part of its adapter that reads them. The adapter's dropout is left out: while a model learns, nobody but the watch
// for NaN asks for single heads' results, and what it is shown does not flow on.
struct AdapterOfHead {
  /// ratios: DoRA's, where the adapter has none ready.
  AdapterOfHead(const LowRank& adapter, const std::vector<float>& ratios, const HeadInputs& head, DType activations)
      : part(adapter) {
    if (adapter.whole != nullptr) {
      whole = part_of(*adapter.whole, head, activations);
      part.whole = &whole;
      return;
    }
    part.A = part_of(adapter.A, head, activations);
    if (!ratios.empty()) part.ratio = ratios.data();
  }
  LowRank part;
  Weight whole;
};
// They are of whole rows of W_O.
std::vector<float> ratios_of(Context& ctx, const Weight& W_O) {
  const LowRank* const adapter = W_O.adapter;
  if (adapter == nullptr || !adapter->magnitude || adapter->ratio != nullptr || ctx.dry() != nullptr) return {};
  return magnitude_ratios(W_O, *adapter);
}

// The heads' results [rows, n_heads, d_model] from flat z [rows, n_heads · v_dim].
struct ResultsNode {
  Tensor flat, results;
  const Weight* W_O;
  int64_t v_dim;
};
// Their sum with the bias.
struct SumNode {
  Tensor results, y;
  const Vector* bias;
};

// The head's columns of each row, together; zeros in what lies around them.
template <class T>
Tensor part_of(Context& ctx, const Tensor& flat, const HeadInputs& head) {
  const auto count = static_cast<size_t>(flat.rows() * head.count);
  const Tensor mine(ctx.scratch<T>(count), flat.dtype(), {flat.rows(), head.count});
  ctx.run(flat.rows(), false, [&](int64_t r, int) {
    if (head.count > head.end - head.begin) std::fill_n(mine.row<T>(r), head.count, T{0});
    std::copy(flat.row<T>(r) + head.begin, flat.row<T>(r) + head.end, mine.row<T>(r) + (head.begin - head.first));
  });
  return mine;
}

void results_backward(Context& ctx, Tape& tape, const ResultsNode& n) {
  const Tensor dresults = tape.gradient(n.results);
  if (!dresults) return;
  const Tensor dflat = tape.accumulate(n.flat);
  zero_if_unset(*n.W_O);
  visit_scalar(dresults, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = n.flat.rows(), out = n.W_O->out;
    const std::vector<float> ratios = ratios_of(ctx, *n.W_O);
    for (int64_t h = 0; h < n.results.dim(1); ++h) {
      const auto scratch = ctx.frame();
      const HeadInputs head(*n.W_O, h, n.v_dim);
      const Tensor x = part_of<T>(ctx, n.flat, head);
      const Tensor dx(ctx.scratch<T>(static_cast<size_t>(x.count())), x.dtype(), x.shape());
      std::fill(dx.data<T>(), dx.data<T>() + dx.count(), T{0});
      linear_part_backward(ctx, x, part_of(*n.W_O, head, x.dtype()), 0, out, dresults.data<T>() + h * out, n.results.dim(1) * out,
                           dx);
      if (n.W_O->adapter != nullptr)
        low_rank_part_backward(ctx, x, part_of(*n.W_O, head, x.dtype()),
                               AdapterOfHead(*n.W_O->adapter, ratios, head, x.dtype()).part, 0, out, dresults.data<T>() + h * out,
                               n.results.dim(1) * out, dx);
      for (int64_t r = 0; dflat && r < rows; ++r)
        for (int64_t c = head.begin; c < head.end; ++c) dflat.row<T>(r)[c] += dx.row<T>(r)[c - head.first];
    }
  });
}

void sum_of_results_backward(Context&, Tape& tape, const SumNode& n) {
  const Tensor dy = tape.gradient(n.y);
  if (!dy) return;
  const Tensor dresults = tape.accumulate(n.results);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    auto* dbias = static_cast<T*>(n.bias->grad.data);
    const int64_t n_heads = n.results.dim(1), d_model = dy.row_size();
    for (int64_t r = 0; r < dy.rows(); ++r)
      for (int64_t j = 0; j < d_model; ++j) {
        for (int64_t h = 0; dresults && h < n_heads; ++h) dresults.row<T>(r)[h * d_model + j] += dy.row<T>(r)[j];
        if (dbias != nullptr) dbias[j] += dy.row<T>(r)[j];
      }
  });
}

}  // namespace

Tensor attention_output(Context& ctx, std::string_view name, const Tensor& z, const Weight& W_O) {
  const auto scope = ctx.scope(name);
  const Tensor flat = merge_heads(ctx, z);
  const Tensor out = linear(ctx, flat, W_O);
  if (DryRun* dry = ctx.dry()) dry->fold(ctx, dry->begin() - 1, {.op = "attention_output", .inputs = {z}, .outputs = {out}});
  if (!ctx.listens("hook_result")) return ctx.hook("hook_out", out);
  const int64_t n_heads = z.dim(1), v_dim = z.dim(2);
  const Tensor result = ctx.empty({z.rows(), n_heads, W_O.out});
  visit_scalar(z, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<float> ratios = ratios_of(ctx, W_O);
    for (int64_t h = 0; h < n_heads; ++h) {
      const auto scratch = ctx.frame();
      const HeadInputs head(W_O, h, v_dim);
      const Tensor x = part_of<T>(ctx, flat, head);
      T* const y = result.data<T>() + h * W_O.out;
      const Weight w = part_of(W_O, head, x.dtype());
      linear_part(ctx, x, w, 0, W_O.out, y, n_heads * W_O.out);
      if (W_O.adapter != nullptr)
        low_rank_part(ctx, x, w, AdapterOfHead(*W_O.adapter, ratios, head, x.dtype()).part, 0, W_O.out, y, n_heads * W_O.out);
      each_row_adapter(ctx, W_O, [&](const LowRank& part, const RowAdapter& which) {
        const int64_t rows = which.rows == RowAdapter::kAllRows ? x.rows() : which.rows;
        const AdapterOfHead adapter(part, {}, head, x.dtype());
        low_rank_part(ctx, x.rows_view(which.first, rows), w, adapter.part, 0, W_O.out, y + which.first * result.row_size(),
                      n_heads * W_O.out, which.scale);
      });
    }
  });
  // On a tape the gradient takes the way through the results, replaced or not: what linear recorded gets none.
  Tape* const tape = ctx.tape();
  if (tape != nullptr) tape->record(&results_backward, ResultsNode{flat, result, &W_O, v_dim});
  const Tensor shown = ctx.hook("hook_result", result);
  if (shown.raw() == result.raw() && tape == nullptr) return ctx.hook("hook_out", out);
  // Replaced results: their sum plus the bias flows on. Rows that are as they were, such as other sequences', keep their bits.
  const Tensor sum = ctx.empty(out.shape());
  visit_scalar(z, [&](auto zero) {
    using T = decltype(zero);
    std::copy(out.data<T>(), out.data<T>() + out.count(), sum.data<T>());
    for (int64_t r = 0; r < z.rows(); ++r) {
      if (std::equal(shown.row<T>(r), shown.row<T>(r) + shown.row_size(), result.row<T>(r))) continue;
      for (int64_t j = 0; j < W_O.out; ++j) {
        T total = W_O.bias ? W_O.bias.at<T>(j) : T{0};
        for (int64_t h = 0; h < n_heads; ++h) total += shown.row<T>(r)[h * W_O.out + j];
        sum.row<T>(r)[j] = total;
      }
    }
  });
  if (tape != nullptr) tape->record(&sum_of_results_backward, SumNode{shown, sum, &W_O.bias});
  return ctx.hook("hook_out", sum);
}

}  // namespace vitrine
