#include "ops/linear.h"

#include <algorithm>
#include <memory>

#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/layout.h"
#include "ops/low_rank.h"
#include "ops/packed_product.h"
#include "ops/panel.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// A product of few rows: weights read per chunk, and in all from where on threads share it (a region costs about as much as
// reading 16 KiB).
constexpr size_t kMostChunk = size_t{64} << 10, kLeastChunk = size_t{8} << 10, kShared = size_t{24} << 10;
// Of a product whose chunks are neither the largest nor the smallest: ten for each thread, so that rounding to whole chunks gives
// none a tenth more than its part, and no more than that, since a chunk of 8 KiB is read a sixth slower than one of 64. An output
// has the same bits in chunks of any size.
constexpr size_t kFewestChunks = 32, kChunksPerThread = 10;
constexpr int64_t kPackedRows = 64;  // f32 weights: from here on packing both sides pays
// A product of many rows with fewer panels than this takes smaller ones: three panels are no even share for two threads.
constexpr int64_t kFewPanels = 8, kLeastOutputs = 32;
constexpr size_t kNearParts = 8;  // of a call, for which no heap is needed
// Where outputs lie side by side a chunk is a rectangle: as many chunks as with [out, in], and so an even share for every
// thread, without reading fewer than 512 bytes at a time. Inputs beyond a rectangle give partial sums, joined in order.
constexpr int64_t kColumns = 256, kColumnInputs = 128;

// Outputs [first, first + n) of a weight for rows [row, row + rows) of x, and where they go.
struct Part {
  const Weight* w;
  int64_t first, n;
  int64_t row, rows;
  void* y;
  int64_t y_stride;
  const float* bias = nullptr;  // of these outputs: added to their sums
};

// One element for each part.
template <class T>
class PerPart {
 public:
  explicit PerPart(size_t n) : far_(n > kNearParts ? std::make_unique<T[]>(n) : nullptr) {}
  T* data() { return far_ != nullptr ? far_.get() : near_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return (far_ != nullptr ? far_.get() : near_)[i]; }

 private:
  T near_[kNearParts] = {};
  std::unique_ptr<T[]> far_;
};

// Where outputs from `first` on begin.
const std::byte* outputs_begin(const Weight& w, int64_t first) {
  return w.by_columns ? w.data + row_bytes(w.dtype, static_cast<size_t>(first)) : w.stored_row(first);
}

size_t type_index(const Weight& w) { return static_cast<size_t>(w.dtype); }

// Chunks of all parts in one numbering: part i has chunks [begin[i], begin[i + 1]), those of one block of inputs in a row.
class Chunks {
 public:
  struct OfPart {
    int64_t begin = 0, end = 0;  // numbers of its chunks
    int64_t size = 0;            // outputs per chunk
    int64_t strips = 0;          // chunks per block of inputs
  };
  explicit Chunks(size_t parts) : of_(parts) {}

  void add(int64_t outputs, int64_t per_chunk, int64_t blocks = 1) {
    const int64_t begin = count(), strips = ceil_div(outputs, per_chunk);
    of_[parts_++] = {begin, begin + strips * blocks, per_chunk, strips};
  }
  int64_t count() const { return parts_ == 0 ? 0 : of_[parts_ - 1].end; }
  size_t part_of(int64_t chunk) const {
    size_t low = 0;
    for (size_t n = parts_; n > 1;) {  // the part is one of n from `low` on
      const size_t half = n / 2;
      if (of_[low + half].begin <= chunk) low += half;
      n -= half;
    }
    return low;
  }
  const OfPart& operator[](size_t part) const { return of_[part]; }

 private:
  PerPart<OfPart> of_;
  size_t parts_ = 0;
};

struct Chunk {
  size_t part;
  int64_t first, n, block;  // outputs [first, first + n) of the part, block of inputs
  bool all_inputs;          // there is one block
};

// y += bias, for outputs [first, first + n) of a part that are sums by now.
void add_bias(const Part& p, int64_t first, int64_t n) {
  if (p.bias == nullptr) return;
  for (int64_t r = 0; r < p.rows; ++r) {
    float* y = static_cast<float*>(p.y) + r * p.y_stride + first;
    kernels().add(y, p.bias + first, static_cast<size_t>(n), y);
  }
}

// What a chunk reads and multiplies.
TaskCost cost_of(const Part& p, const Chunk& c) {
  const Weight& w = *p.w;
  const std::byte* const data = w.data == nullptr ? nullptr : outputs_begin(w, p.first + c.first);
  if (!w.by_columns) {
    const auto bytes = c.n * static_cast<int64_t>(row_bytes(w.dtype, static_cast<size_t>(w.in)));
    return {.data = data, .bytes = bytes, .multiply_adds = p.rows * c.n * w.in};
  }
  const int64_t inputs = c.all_inputs ? w.in : std::min(kColumnInputs, w.in - c.block * kColumnInputs);
  return {.bytes = inputs * static_cast<int64_t>(row_bytes(w.dtype, static_cast<size_t>(c.n))),
          .multiply_adds = p.rows * c.n * inputs};
}

// Runs f(chunk, thread) for all chunks; on the caller alone if there is too little to share.
template <class F>
void run_chunks(Context& ctx, const Chunks& chunks, const Part* parts, bool share, F&& f) {
  const auto chunk_of = [&](int64_t number) {
    const size_t i = chunks.part_of(number);
    const Chunks::OfPart& of = chunks[i];
    const int64_t in_part = number - of.begin, first = in_part % of.strips * of.size;
    const bool all_inputs = of.end - of.begin == of.strips;
    return Chunk{i, first, std::min(of.size, parts[i].n - first), in_part / of.strips, all_inputs};
  };
  ctx.run(
      chunks.count(), share, [&](int64_t number, int thread) { f(chunk_of(number), thread); },
      [&](int64_t number) {
        const Chunk c = chunk_of(number);
        return cost_of(parts[c.part], c);
      });
}

// y += partial[0] + partial[1] + …, one after the other; each is [rows, n].
void join(Context& ctx, const Part& p, const float* partial, int64_t partials) {
  constexpr int64_t kStrip = 1024;  // elements of y that stay in the first cache while the partial sums pass
  const int64_t strips = ceil_div(p.n, kStrip);
  parallel_for(ctx, p.rows * strips, kStrip * partials, [&](int64_t first, int64_t n) {
    for (int64_t item = first; item < first + n; ++item) {
      const int64_t row = item / strips, column = item % strips * kStrip;
      const auto width = static_cast<size_t>(std::min(kStrip, p.n - column));
      float* y = static_cast<float*>(p.y) + row * p.y_stride + column;
      for (int64_t b = 0; b < partials; ++b) kernels().add(y, partial + (b * p.rows + row) * p.n + column, width, y);
    }
  });
}

void few_rows(Context& ctx, const Tensor& x, const Part* parts, size_t n_parts) {
  const KernelTable& k = kernels();
  const auto in = static_cast<size_t>(x.row_size()), row_blocks = activation_blocks(in);
  const ActivationBlock* blocks = nullptr;
  for (size_t i = 0; i < n_parts && blocks == nullptr; ++i) {
    if (k.dot_rows_int8[type_index(*parts[i].w)] == nullptr || ctx.numerics.f32) continue;
    auto* quantized = ctx.scratch<ActivationBlock>(static_cast<size_t>(x.rows()) * row_blocks);
    parallel_for(ctx, x.rows(), x.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        k.quantize_int8(x.row<float>(r), in, quantized + static_cast<size_t>(r) * row_blocks);
    });
    blocks = quantized;
  }
  Chunks chunks(n_parts);
  size_t bytes = 0, work = 0;  // bytes, once and for every row
  for (size_t i = 0; i < n_parts; ++i) {
    const size_t of_part = row_bytes(parts[i].w->dtype, in) * static_cast<size_t>(parts[i].n);
    bytes += of_part;
    work += of_part * static_cast<size_t>(parts[i].rows);
  }
  const size_t wanted = std::max(kFewestChunks, kChunksPerThread * static_cast<size_t>(ctx.pool().threads()));
  const size_t chunk_bytes = std::clamp(bytes / wanted, kLeastChunk, kMostChunk);
  const int64_t blocks_of_inputs = std::max<int64_t>(1, ceil_div(x.row_size(), kColumnInputs));
  PerPart<float*> partial(n_parts);  // by columns: [block - 1][row][output]
  for (size_t i = 0; i < n_parts; ++i) {
    const size_t per_output = row_bytes(parts[i].w->dtype, in);
    if (parts[i].w->by_columns) {
      chunks.add(parts[i].n, kColumns, blocks_of_inputs);
      partial[i] = ctx.scratch<float>(static_cast<size_t>((blocks_of_inputs - 1) * parts[i].rows * parts[i].n));
    } else {
      const size_t eights = chunk_bytes / (8 * std::max<size_t>(per_output, 1));
      chunks.add(parts[i].n, static_cast<int64_t>(8 * std::max<size_t>(eights, 1)));
    }
  }
  run_chunks(ctx, chunks, parts, work > kShared, [&](const Chunk& c, int) {
    const Part& p = parts[c.part];
    const Weight& w = *p.w;
    const std::byte* data = outputs_begin(w, p.first + c.first);
    const float* const x_rows = x.row<float>(p.row);
    const auto rows = static_cast<size_t>(p.rows);
    float* y = static_cast<float*>(p.y) + c.first;
    const auto stride = static_cast<size_t>(p.y_stride), outputs = static_cast<size_t>(c.n);
    if (w.by_columns) {
      const auto input = static_cast<size_t>(c.block * kColumnInputs), inputs = std::min<size_t>(kColumnInputs, in - input);
      const auto width = static_cast<size_t>(p.n);
      float* sums = c.block == 0 ? y : partial[c.part] + static_cast<size_t>(c.block - 1) * rows * width + c.first;
      k.dot_columns[type_index(w)](data + input * w.stride, w.stride, outputs, inputs, x_rows + input, in, rows, sums,
                                   c.block == 0 ? stride : width);
    } else if (k.dot_rows_int8[type_index(w)] != nullptr && blocks != nullptr) {
      k.dot_rows_int8[type_index(w)](data, w.stride, outputs, in, blocks + static_cast<size_t>(p.row) * row_blocks, row_blocks,
                                     rows, y, stride);
    } else {
      k.dot_rows[type_index(w)](data, w.stride, outputs, in, x_rows, in, rows, y, stride);
    }
    if (!w.by_columns) add_bias(p, c.first, c.n);
  });
  for (size_t i = 0; i < n_parts; ++i) {
    if (!parts[i].w->by_columns) continue;
    join(ctx, parts[i], partial[i], blocks_of_inputs - 1);
    ctx.run(1, false, [&](int64_t, int) { add_bias(parts[i], 0, parts[i].n); });
  }
}

// Where outputs [first, first + n) of a part, inputs [input, input + depth), lie; n and depth are cut to what there is.
ReadNext panel_read(const Part& p, int64_t first, int64_t n, size_t input, size_t depth) {
  const Weight& w = *p.w;
  if (first >= p.n) return {};
  n = std::min(n, p.n - first);
  depth = std::min(depth, static_cast<size_t>(w.in) - input);
  const std::byte* begin = outputs_begin(w, p.first + first);
  if (w.by_columns) return {begin + input * w.stride, depth, row_bytes(w.dtype, static_cast<size_t>(n)), w.stride};
  return {begin + row_bytes(w.dtype, input), static_cast<size_t>(n), row_bytes(w.dtype, depth), w.stride};
}

bool lies_as_read(const PanelKernels& panel, const Weight& w) {
  return panel.multiply_in_place != nullptr && w.dtype == panel.in_place_type && !w.by_columns &&
         static_cast<size_t>(w.in) % panel.in_place_step == 0;
}

// All parts go through the same panel routines: the caller groups them.
void many_rows(Context& ctx, const Tensor& x, const Part* parts, size_t n_parts, const PanelKernels& panel) {
  const auto in = static_cast<size_t>(x.row_size());
  PerPart<std::byte*> packed(n_parts);  // x's rows of each part; parts of the same rows stand side by side and share them
  constexpr int64_t kRows = 32;
  Chunks strips(n_parts);
  for (size_t i = 0; i < n_parts; ++i) {
    const Part& p = parts[i];
    const bool same = i > 0 && p.row == parts[i - 1].row && p.rows == parts[i - 1].rows;
    const size_t bytes = same ? 0 : panel.x_bytes(static_cast<size_t>(p.rows), in);
    packed[i] = same ? packed[i - 1] : bytes > 0 ? ctx.scratch<std::byte>(bytes) : nullptr;
    strips.add(bytes > 0 ? p.rows : 0, kRows);
  }
  ctx.run(
      strips.count(), true,
      [&](int64_t strip, int) {
        const size_t i = strips.part_of(strip);
        const auto rows = static_cast<size_t>(parts[i].rows), row0 = static_cast<size_t>((strip - strips[i].begin) * kRows);
        panel.pack_x(x.row<float>(parts[i].row), in, row0, std::min(static_cast<size_t>(kRows), rows - row0), rows, in,
                     packed[i]);
      },
      [&](int64_t strip) {
        const size_t i = strips.part_of(strip);
        return TaskCost{.elements = std::min(kRows, parts[i].rows - (strip - strips[i].begin) * kRows) * x.row_size()};
      });
  const size_t panel_bytes = (panel.panel_bytes + 63) & ~size_t{63};
  auto* panels = ctx.scratch<std::byte>(panel_bytes * static_cast<size_t>(ctx.pool().threads()));
  int64_t outputs = 0, per_chunk = static_cast<int64_t>(panel.outputs);
  for (size_t i = 0; i < n_parts; ++i) outputs += parts[i].n;
  if (outputs < kFewPanels * per_chunk)
    per_chunk = std::min(per_chunk, std::max(kLeastOutputs, ceil_div(outputs, kFewPanels * 16) * 16));
  Chunks chunks(n_parts);
  for (size_t i = 0; i < n_parts; ++i) chunks.add(parts[i].n, per_chunk);
  run_chunks(ctx, chunks, parts, true, [&](const Chunk& c, int thread) {
    const Part& p = parts[c.part];
    const Weight& w = *p.w;
    const std::byte* weights = outputs_begin(w, p.first + c.first);
    const float* const data = x.row<float>(p.row);
    const std::byte* const x_packed = packed[c.part];
    const auto rows = static_cast<size_t>(p.rows);
    std::byte* mine = panels + panel_bytes * static_cast<size_t>(thread);
    float* y = static_cast<float*>(p.y) + c.first;
    const auto n = static_cast<size_t>(c.n);
    for (size_t k0 = 0; k0 < in; k0 += panel.depth) {
      const size_t depth = std::min(panel.depth, in - k0);
      // The rest of these outputs' weights, or else those that follow, which this thread most likely takes (ThreadPool's shares).
      const ReadNext next = k0 + depth < in ? panel_read(p, c.first, c.n, k0 + depth, panel.depth)
                                            : panel_read(p, c.first + c.n, c.n, 0, panel.depth);
      const auto y_stride = static_cast<size_t>(p.y_stride);
      if (rows <= kRowsInPlace && lies_as_read(panel, w)) {
        panel.multiply_in_place(weights, w.stride, x_packed, rows, in, k0, depth, n, y, y_stride, k0 > 0, next);
        continue;
      }
      panel.expand(w.dtype, weights, w.stride, w.by_columns, n, k0, depth, mine);
      panel.multiply(mine, data, in, x_packed, rows, 0, rows, in, k0, depth, w.by_columns, n, y, y_stride, k0 > 0, next);
    }
    add_bias(p, c.first, c.n);
  });
}

// f32 weights. In f32 the bits are those of the panels: the same sums in the same order (tests/engine/kernels/packed_test.cpp).
void packed_part(Context& ctx, const Tensor& x, const Part& p) {
  const Operand weights{reinterpret_cast<const float*>(outputs_begin(*p.w, p.first)), p.w->stride / sizeof(float),
                        !p.w->by_columns};
  const auto in = static_cast<size_t>(x.row_size());
  packed_product(ctx, {x.row<float>(p.row), in}, weights, static_cast<size_t>(p.rows), static_cast<size_t>(p.n), in,
                 static_cast<float*>(p.y), static_cast<size_t>(p.y_stride), false);
  if (p.bias != nullptr)
    parallel_for(ctx, p.rows, p.n, [&](int64_t first, int64_t n) {
      add_bias({p.w, p.first, p.n, p.row + first, n, static_cast<float*>(p.y) + first * p.y_stride, p.y_stride, p.bias}, 0, p.n);
    });
}

// Gradient checks: plain sums in double.
void in_double(Context& ctx, const Tensor& x, const Part& p) {
  const int64_t in = x.row_size();
  ctx.run(p.n, [&](int64_t j, int) {
    for (int64_t r = 0; r < p.rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += x.row<double>(p.row + r)[i] * p.w->at<double>(p.first + j, i);
      static_cast<double*>(p.y)[r * p.y_stride + j] = sum;
    }
  });
}

void multiply(Context& ctx, const Tensor& x, const Part* parts, size_t n_parts) {
  if (x.dtype() == DType::f64) {
    for (size_t i = 0; i < n_parts; ++i) in_double(ctx, x, parts[i]);
    return;
  }
  const auto scratch = ctx.frame();
  int64_t most_rows = 0;
  for (size_t i = 0; i < n_parts; ++i) most_rows = std::max(most_rows, parts[i].rows);
  const bool few = most_rows <= static_cast<int64_t>(kFewRows) && !ctx.numerics.exact;
  if (few) return few_rows(ctx, x, parts, n_parts);
  const KernelTable& k = kernels();
  PerPart<Part> by_panel(n_parts);
  size_t n_by_panel = 0;
  for (size_t i = 0; i < n_parts; ++i) {
    if (parts[i].w->dtype == DType::f32 && (parts[i].rows >= kPackedRows || ctx.numerics.bf16))
      packed_part(ctx, x, parts[i]);
    else
      by_panel[n_by_panel++] = parts[i];
  }
  for (const PanelKernels* panel : {&k.panel_f32, &k.panel_bf16, &k.panel_int8}) {
    PerPart<Part> chosen(n_by_panel);
    size_t n = 0;
    for (size_t i = 0; i < n_by_panel; ++i)
      if (&panel_for(k, ctx.numerics, by_panel[i].w->dtype, by_panel[i].rows) == panel) chosen[n++] = by_panel[i];
    if (n > 0) many_rows(ctx, x, chosen.data(), n, *panel);
  }
}

void check_linear(const Tensor& x, const Weight& w) {
  if (x.shape().rank() < 2 || x.row_size() != w.in)
    throw ShapeError("linear: " + w.name + " takes " + std::to_string(w.in) + " inputs; found x of shape " + x.shape().text());
}

struct LinearNode {
  Tensor x, y;
  const Weight* w;
};

void linear_backward(Context& ctx, Tape& tape, const LinearNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  linear_part_backward(ctx, node.x, *node.w, 0, node.w->out, dy.raw(), node.w->out, dx.to, !dx.fresh, takes_first(node.w->grad));
  bias_backward(ctx, *node.w, 0, node.w->out, dy.raw(), node.w->out, dy.rows(), dy.dtype());
  tape.release(node.y);
}

OpCall product_call(const Tensor& x, const WeightRef* weights, const Tensor* results, size_t n) {
  OpCall call{.op = "linear", .inputs = {x}, .outputs = {results, results + n}};
  for (size_t i = 0; i < n; ++i) {
    const Weight& w = weights[i];
    call.weights.push_back(&w);
    if (w.bias.size > 0) call.vectors.push_back(&w.bias);
    call.multiply_adds += x.rows() * w.in * w.out;
  }
  return call;
}

}  // namespace

void add_bias(Context& ctx, const Vector& bias, const Tensor& y) {
  visit_scalar(y, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    const T* b = values_of<T>(ctx, bias);
    parallel_for(ctx, y.rows(), y.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) {
        T* row = y.row<T>(r);
        if constexpr (std::is_same_v<T, float>) {
          kernels().add(row, b, static_cast<size_t>(bias.size), row);
        } else {
          for (int64_t j = 0; j < bias.size; ++j) row[j] += b[j];
        }
      }
    });
  });
}

void linear_into(Context& ctx, const Tensor& x, const WeightRef* weights, Tensor* results, size_t n) {
  PerPart<Part> parts(n);
  for (size_t i = 0; i < n; ++i) {
    const Weight& w = weights[i];
    check_linear(x, w);
    results[i] = ctx.empty({x.rows(), w.out});
    parts[i] = {&w, 0, w.out, 0, x.rows(), results[i].raw(), w.out};
    if (w.bias && w.bias.dtype == DType::f32 && x.dtype() == DType::f32) parts[i].bias = static_cast<const float*>(w.bias.data);
  }
  if (Listener* listener = ctx.listener())
    for (size_t i = 0; i < n; ++i) listener->see_input(weights[i], x);
  multiply(ctx, x, parts.data(), n);
  for (size_t i = 0; i < n; ++i) {
    const Weight& w = weights[i];
    if (w.bias && parts[i].bias == nullptr) add_bias(ctx, w.bias, results[i]);
    if (Tape* tape = ctx.tape()) tape->record(&linear_backward, LinearNode{x, results[i], &w});
    if (w.adapter != nullptr) add_low_rank(ctx, x, w, *w.adapter, results[i]);
    add_row_adapters(ctx, x, w, results[i]);
  }
  if (DryRun* dry = ctx.dry()) dry->add(ctx, product_call(x, weights, results, n));
}

Tensor linear(Context& ctx, const Tensor& x, const Weight& w) {
  const WeightRef ref = w;
  Tensor result;
  linear_into(ctx, x, &ref, &result, 1);
  return result;
}

void linear_part(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, void* y, int64_t y_stride) {
  check_linear(x, w);
  const Part part{&w, first, n, 0, x.rows(), y, y_stride};
  multiply(ctx, x, &part, 1);
}

void linear_stretches(Context& ctx, const Tensor& x, std::span<const Stretch> stretches) {
  PerPart<Part> parts(stretches.size());
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& s = stretches[i];
    check_linear(x, *s.w);
    parts[i] = {s.w, 0, s.w->out, s.row, s.rows, s.y, s.w->out};
  }
  multiply(ctx, x, parts.data(), stretches.size());
}

}  // namespace vitrine
