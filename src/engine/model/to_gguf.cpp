#include "model/to_gguf.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/stopwatch.h"
#include "kernels/table.h"
#include "model/adapter_gguf.h"
#include "model/gguf_keys.h"
#include "model/gguf_order.h"
#include "model/gguf_output.h"
#include "ops/low_rank.h"

namespace vitrine {
namespace {

// Where the values of one tensor of the file come from: the model, another GGUF file as they are, or numbers at hand.
struct Source {
  FileTensor tensor;                   // of the model: its parts
  const StoredTensor* held = nullptr;  // no tensor of the model: passed on
  std::vector<float> values;           // neither
};

// What llama.cpp reads as f32 only: norms, tables of positions, routers, short convolutions, and whatever is no weight.
bool always_f32(const std::string& name) {
  for (const std::string_view end : {"position_embd.weight", "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
                                     "ssm_conv1d.weight", "shortconv.conv.weight"})
    if (name.ends_with(end)) return true;
  return !name.ends_with(".weight");
}

// A matrix, or several of one shape that follow each other, as rows of the last axis.
int64_t width_of(const std::vector<int64_t>& shape) { return shape.back(); }
int64_t rows_of(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::vector<Source> sources_of(const OpenedModel& opened) {
  std::vector<FileTensor> tensors = file_tensors(*opened.model, true);
  std::vector<Source> sources;
  if (opened.gguf == nullptr) {
    GgufRopeTensors rope = gguf_rope_tensors(*opened.model);
    for (auto& [name, values] : {std::pair<const char*, std::vector<float>&>{"rope_factors_long.weight", rope.long_factors},
                                 {"rope_factors_short.weight", rope.short_factors},
                                 {"rope_freqs.weight", rope.frequencies}})
      if (!values.empty())
        sources.push_back({{name, {static_cast<int64_t>(values.size())}, false, {}}, nullptr, std::move(values)});
    for (FileTensor& tensor : tensors) sources.push_back({std::move(tensor), nullptr, {}});
    return sources;
  }
  // In the order of the file, with what the model does not read.
  std::vector<const StoredTensor*> held;
  for (const auto& [name, tensor] : opened.checkpoint.tensors()) held.push_back(&tensor);
  std::sort(held.begin(), held.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->file == b->file ? a->described_at < b->described_at : *a->file < *b->file;
  });
  for (const StoredTensor* one : held) {
    const auto read = std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& t) { return t.name == one->name; });
    if (read != tensors.end())
      sources.push_back({std::move(*read), nullptr, {}});
    else
      sources.push_back({{one->name, one->shape, false, {}}, one, {}});
  }
  return sources;
}

// The type that all of a matrix has, if its rows may be copied.
std::optional<DType> stored_type(const FileTensor& tensor) {
  const DType type = tensor.parts.front()->weight->dtype;
  for (const TensorLine* part : tensor.parts)
    if (part->weight->dtype != type || part->weight->by_columns || part->weight->adapter != nullptr) return {};
  return type;
}

TensorPlan plan_of(const Source& source, const GgufEncoding& encoding) {
  const FileTensor& t = source.tensor;
  if (source.held != nullptr) return {t.name, source.held->dtype, t.shape};
  if (!source.values.empty() || t.parts.front()->vector != nullptr) return {t.name, DType::f32, t.shape};
  const std::optional<DType> stored = stored_type(t);
  if (always_f32(t.name)) return {t.name, DType::f32, t.shape};
  return {t.name, encoding.type_of({t.name, t.shape, stored}), t.shape};
}

// A matrix as GGUF orders it.
class Matrix {
 public:
  /// reorder: the model's values are those of a Hugging Face file.
  Matrix(const FileTensor& tensor, int64_t head_dim, bool reorder) : tensor_(tensor), width_(width_of(tensor.shape)) {
    const TensorLine& first = *tensor.parts.front();
    turns_ = tensor.turns;
    turn_ = tensor.turn;
    if (!reorder) return;
    order_ = gguf_rows(first, head_dim);
    columns_ = gguf_columns(first);
    scales_ = std::any_of(tensor.parts.begin(), tensor.parts.end(),
                          [](const TensorLine* part) { return bool(part->layout.gguf_factors); });
  }
  /// Whether its rows may be copied as they are stored.
  bool keeps_rows() const { return columns_.empty() && !scales_; }

  /// Rows [first, first + n) as f32, with what the adapter adds.
  void read(int64_t first, int64_t n, float* to) const {
    each_part(first, n, [&](const TensorLine& part, int64_t in_part, int64_t many) {
      const Weight& w = *part.weight;
      if (w.by_columns) {
        read_columns(w, in_part, many, to);
      } else {
        for (int64_t i = 0; i < many; ++i)
          kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(place(in_part + i)), static_cast<size_t>(width_),
                                                        to + i * width_);
      }
      if (w.adapter != nullptr)
        for (int64_t i = 0; i < many; ++i) add_merged(*w.adapter, place(in_part + i), to + i * width_);
      for (int64_t i = 0; i < many && scales_; ++i)
        for (int64_t j = 0; j < width_; ++j)
          to[i * width_ + j] = part.layout.gguf_factors.apply(to[i * width_ + j], place(in_part + i));
      for (int64_t i = 0; i < many && !columns_.empty(); ++i) order_columns(to + i * width_);
      to += many * width_;
    });
  }

  /// The same rows as they are stored.
  void copy(int64_t first, int64_t n, std::byte* to) const {
    each_part(first, n, [&](const TensorLine& part, int64_t in_part, int64_t many) {
      const Weight& w = *part.weight;
      const size_t bytes = row_bytes(w.dtype, static_cast<size_t>(width_));
      for (int64_t i = 0; i < many; ++i, to += bytes) std::memcpy(to, w.stored_row(place(in_part + i)), bytes);
    });
  }

 private:
  // f(part, its first row, rows) for each part that has some of these rows.
  template <class F>
  void each_part(int64_t first, int64_t n, F&& f) const {
    for (const TensorLine* part : tensor_.parts) {
      const int64_t at = part->first_row(true), begin = std::max(first, at);
      const int64_t end = std::min(first + n, at + part->out.size / turns_);
      if (begin < end) f(*part, begin - at, end - begin);
    }
  }
  void order_columns(float* row) const {
    const std::vector<float> stored(row, row + width_);
    for (size_t i = 0; i < columns_.size(); ++i) row[i] = stored[static_cast<size_t>(columns_[i])];
  }
  int64_t place(int64_t row) const { return order_.empty() ? row * turns_ + turn_ : order_[static_cast<size_t>(row)]; }

  // Of a matrix that lies [in, out]: a strip of its columns, transposed.
  void read_columns(const Weight& w, int64_t first, int64_t n, float* rows) const {
    std::vector<float> strip(static_cast<size_t>(n * turns_));
    for (int64_t i = 0; i < width_; ++i) {
      kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(i) + row_bytes(w.dtype, static_cast<size_t>(first * turns_)),
                                                    strip.size(), strip.data());
      for (int64_t j = 0; j < n; ++j) rows[j * width_ + i] = strip[static_cast<size_t>(j * turns_ + turn_)];
    }
  }

  const FileTensor& tensor_;
  int64_t width_;
  std::vector<int64_t> order_;    // row of GGUF: row that it is in the model
  std::vector<int64_t> columns_;  // the same of columns
  bool scales_ = false;           // GGUF holds the values times factors
  int64_t turns_ = 1, turn_ = 0;  // every so manieth row of the model, beginning with this one
};

// A weight that the file cannot hold.
struct WrongNumber : RunError {
  using RunError::RunError;
};

[[noreturn]] void refuse_number(const TensorPlan& plan, int64_t at, float value) {
  throw WrongNumber(plan.name + ": number " + std::to_string(at) + " is " + std::to_string(value) +
                    (std::isfinite(value) ? ", beyond what " + std::string(name_of(plan.dtype)) + " holds; use bf16 or f32"
                                          : "; a model with NaN or infinity is not converted"));
}

int64_t first_not_finite(const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(values[i])) return static_cast<int64_t>(i);
  return -1;
}

// Whether the model's values are those of a Hugging Face file.
bool reorders(const OpenedModel& opened) { return opened.files.kind == ModelFiles::Kind::huggingface; }

std::vector<float> vector_values(const OpenedModel& opened, const FileTensor& tensor) {
  const bool reorder = reorders(opened);
  std::vector<float> values;
  for (const TensorLine* part : tensor.parts) {
    const Vector& v = *part->vector;
    const std::vector<int64_t> order = reorder ? gguf_rows(*part, opened.model->shape().head_dim) : std::vector<int64_t>();
    for (int64_t i = tensor.turn; i < v.size; i += tensor.turns) {
      const int64_t at = order.empty() ? i : order[static_cast<size_t>(i)];
      const auto value = v.at<float>(at);
      values.push_back(!reorder                      ? value
                       : part->layout.gguf_minus_exp ? -std::exp(value)
                                                     : part->layout.gguf_factors.apply(value, at) + part->layout.gguf_offset);
    }
  }
  return values;
}

class Output {
 public:
  Output(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding, const std::string& path, ThreadPool& pool,
         const WriteGgufOptions& options)
      : opened_(opened),
        plan_(plan),
        encoding_(encoding),
        sources_(sources_of(opened)),
        file_(path, plan.keys, plan.tensors, options.made_from),
        pool_(pool),
        watch_(options.watch) {
    VITRINE_CHECK(sources_.size() == plan_.tensors.size(), "the plan is this model's");
  }

  void write() {
    work_ = estimate();
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& s = sources_[i];
      if (s.held != nullptr)
        write_whole(i, {s.held->data, s.held->bytes});
      else if (!s.values.empty())
        write_whole(i, std::as_bytes(std::span(s.values)));
      else if (s.tensor.parts.front()->vector != nullptr)
        write_vector(i, s.tensor);
      else
        write_matrix(i, s.tensor);
    }
    file_.finish();
  }
  void discard() { file_.discard(); }

 private:
  void write_whole(size_t index, std::span<const std::byte> bytes) {
    const bool there = is_there(index, 0, bytes.size());
    if (!there) file_.write(index, bytes);
    advance(index, numbers_of(plan_.tensors[index]), there);
  }

  void write_vector(size_t index, const FileTensor& tensor) {
    const std::vector<float> values = vector_values(opened_, tensor);
    if (const int64_t bad = first_not_finite(values.data(), values.size()); bad >= 0)
      refuse_number(plan_.tensors[index], bad, values[static_cast<size_t>(bad)]);
    write_whole(index, std::as_bytes(std::span(values)));
  }

  // A matrix and how it is cut: chunks are what a thread encodes at a time, a piece is several of them, written together.
  struct Cut {
    static constexpr int64_t kPiece = 1 << 22, kChunk = 1 << 16;  // numbers
    Cut(const TensorPlan& plan, const FileTensor& tensor)
        : rows(rows_of(tensor.shape)),
          width(width_of(tensor.shape)),
          chunk_rows(std::clamp<int64_t>(kChunk / width, 1, rows)),
          piece_rows(std::max<int64_t>(1, kPiece / width / chunk_rows) * chunk_rows),
          row(row_bytes(plan.dtype, static_cast<size_t>(width))) {}
    int64_t rows, width, chunk_rows, piece_rows;
    size_t row;  // bytes
  };

  void write_matrix(size_t index, const FileTensor& tensor) {
    const Cut cut(plan_.tensors[index], tensor);
    const Matrix matrix(tensor, opened_.model->shape().head_dim, reorders(opened_));
    for (int64_t first = 0; first < cut.rows; first += cut.piece_rows) {
      const int64_t n = std::min(cut.piece_rows, cut.rows - first);
      const uint64_t offset = static_cast<uint64_t>(first) * cut.row;
      const bool there = is_there(index, offset, static_cast<uint64_t>(n) * cut.row);
      if (!there) {
        if (const int64_t bad = make_piece(index, tensor, matrix, cut, first, n); bad >= 0)
          refuse_number(plan_.tensors[index], first * cut.width + bad, values_[static_cast<size_t>(bad)]);
        file_.write(index, bytes_, offset);
      }
      advance(index, static_cast<double>(n * cut.width), there);
    }
  }

  // Rows [first, first + n) into bytes_, by all threads. Returns the first number that has no place there, or -1.
  int64_t make_piece(size_t index, const FileTensor& tensor, const Matrix& matrix, const Cut& cut, int64_t first, int64_t n) {
    const TensorPlan& plan = plan_.tensors[index];
    const bool copies = stored_type(tensor) == plan.dtype && matrix.keeps_rows();
    values_.resize(static_cast<size_t>(n * cut.width));
    bytes_.resize(static_cast<size_t>(n) * cut.row);
    std::atomic<int64_t> bad{INT64_MAX};
    pool_.run((n + cut.chunk_rows - 1) / cut.chunk_rows, [&](int64_t chunk, int) {
      const int64_t begin = chunk * cut.chunk_rows, many = std::min(cut.chunk_rows, n - begin);
      float* const values = values_.data() + begin * cut.width;
      std::byte* const bytes = bytes_.data() + static_cast<size_t>(begin) * cut.row;
      const auto count = static_cast<size_t>(many * cut.width);
      matrix.read(first + begin, many, values);
      int64_t wrong = first_not_finite(values, count);
      if (wrong < 0 && copies) matrix.copy(first + begin, many, bytes);
      if (wrong < 0 && !copies) {
        encode(plan, first + begin, many, values, bytes);
        wrong = first_overflow(plan.dtype, bytes, many, cut.width);
      }
      if (wrong < 0) return;
      wrong += begin * cut.width;
      for (int64_t seen = bad; wrong < seen && !bad.compare_exchange_weak(seen, wrong);) {
      }
    });
    return bad == INT64_MAX ? -1 : bad.load();
  }

  // What a number of each tensor costs: a chunk for every thread of the first matrix of each type is made and timed. A model
  // that is encoded in no time is not asked.
  WorkEstimate estimate() {
    constexpr double kSmall = 1 << 23;
    std::vector<double> numbers, seconds;
    double all = 0;
    for (const TensorPlan& tensor : plan_.tensors) all += numbers.emplace_back(numbers_of(tensor));
    std::map<std::pair<DType, bool>, double> known;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& s = sources_[i];
      const bool matrix = s.held == nullptr && s.values.empty() && s.tensor.parts.front()->vector == nullptr;
      double& each = known[{plan_.tensors[i].dtype, matrix && stored_type(s.tensor) == plan_.tensors[i].dtype}];
      if (each == 0) each = matrix && all > kSmall ? sampled_seconds(i, s.tensor) : 1e-9;
      seconds.push_back(each);
    }
    return {std::move(numbers), std::move(seconds)};
  }

  double sampled_seconds(size_t index, const FileTensor& tensor) {
    const Cut cut(plan_.tensors[index], tensor);
    const Matrix matrix(tensor, opened_.model->shape().head_dim, reorders(opened_));
    const int64_t n = std::min(cut.rows, cut.chunk_rows * pool_.threads());
    double least = INFINITY;
    for (int turn = 0; turn < 2; ++turn) {  // the first also waits for threads that sleep, and for memory
      const Stopwatch watch;
      make_piece(index, tensor, matrix, cut, 0, n);
      least = std::min(least, watch.ms() / 1000);
    }
    return least / static_cast<double>(n * cut.width);
  }

  // Rows [first, first + n) of a tensor, whose matrices have importances of their own.
  void encode(const TensorPlan& plan, int64_t first, int64_t n, const float* values, std::byte* bytes) const {
    const int64_t width = width_of(plan.shape), each = plan.shape.size() > 1 ? plan.shape[plan.shape.size() - 2] : 1;
    for (int64_t row = first; row < first + n;) {
      const int64_t matrix = row / each, many = std::min((matrix + 1) * each, first + n) - row;
      const auto count = static_cast<size_t>(many * width);
      encoding_.encode(plan.dtype, values, count, static_cast<size_t>(width),
                       encoding_.importance ? encoding_.importance(plan.name, matrix) : nullptr, bytes);
      values += count;
      bytes += row_bytes(plan.dtype, count);
      row += many;
    }
  }

  // Of finite values that became bytes: the first that these do not give back as a finite one.
  static int64_t first_overflow(DType type, const std::byte* bytes, int64_t rows, int64_t width) {
    if (type == DType::f32) return -1;
    std::vector<float> back(static_cast<size_t>(width));
    for (int64_t row = 0; row < rows; ++row) {
      kernels().widen[static_cast<size_t>(type)](bytes + static_cast<size_t>(row) * row_bytes(type, back.size()), back.size(),
                                                 back.data());
      if (const int64_t wrong = first_not_finite(back.data(), back.size()); wrong >= 0) return row * width + wrong;
    }
    return -1;
  }

  static double numbers_of(const TensorPlan& t) {
    double n = 1;
    for (const int64_t size : t.shape) n *= static_cast<double>(size);
    return n;
  }
  // The first piece that is not there begins the run, for those who watch.
  bool is_there(size_t tensor, uint64_t offset, uint64_t bytes) {
    const bool there = file_.has(tensor, offset, bytes);
    if (!there && !begun_) tell();
    begun_ = begun_ || !there;
    return there;
  }
  void advance(size_t tensor, double numbers, bool was_there) {
    work_.done(tensor, numbers);
    if (!was_there) tell();
  }
  void tell() const {
    if (!watch_) return;
    watch_({.share = work_.share(),
            .seconds = work_.seconds_left(),
            .written = file_.written(),
            .kept = file_.kept(),
            .began_anew = file_.began_anew()});
  }

  const OpenedModel& opened_;
  const GgufPlan& plan_;
  const GgufEncoding& encoding_;
  const std::vector<Source> sources_;
  GgufOutput file_;
  ThreadPool& pool_;
  const std::function<void(const GgufProgress&)>& watch_;
  WorkEstimate work_{{}, {}};
  bool begun_ = false;
  std::vector<float> values_;  // of one piece
  std::vector<std::byte> bytes_;
};

// Of the keys that are large: the vocabulary.
uint64_t key_bytes(const GgufKeys& keys) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : keys) {
    bytes += key.size() + 16;
    if (const auto* text = std::get_if<std::string>(&value)) bytes += text->size();
    if (const auto* list = std::get_if<std::vector<std::string>>(&value))
      for (const std::string& one : *list) bytes += 8 + one.size();
    if (const auto* list = std::get_if<std::vector<float>>(&value)) bytes += 4 * list->size();
    if (const auto* list = std::get_if<std::vector<int32_t>>(&value)) bytes += 4 * list->size();
    if (const auto* held = std::get_if<GgufMetadata::Value>(&value)) bytes += held->bytes.size();
  }
  return bytes;
}

}  // namespace

GgufPlan plan_gguf(const OpenedModel& opened, const GgufKeys& tokenizer, const GgufEncoding& encoding) {
  check_adapter_of_halves(opened);
  GgufPlan plan;
  if (opened.gguf != nullptr) {
    plan.keys = gguf_kept_keys(*opened.gguf, encoding.file_type);
  } else {
    plan.keys = gguf_model_keys(opened, encoding.file_type);
    plan.keys.insert(plan.keys.end(), tokenizer.begin(), tokenizer.end());
  }
  plan.bytes = key_bytes(plan.keys);
  for (const Source& source : sources_of(opened)) {
    TensorPlan& tensor = plan.tensors.emplace_back(plan_of(source, encoding));
    uint64_t numbers = 1;
    for (const int64_t size : tensor.shape) numbers *= static_cast<uint64_t>(size);
    plan.bytes += (row_bytes(tensor.dtype, numbers) + 31) / 32 * 32 + tensor.name.size() + 40;
  }
  return plan;
}

void write_gguf(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding, const std::string& path,
                ThreadPool& pool, const WriteGgufOptions& options) {
  Output output(opened, plan, encoding, path, pool, options);
  try {
    output.write();
  } catch (const WrongNumber&) {  // would come again
    output.discard();
    throw;
  } catch (...) {
    if (options.made_from.empty()) output.discard();
    throw;
  }
}

GgufEncoding gguf_in_f32() {
  return {.file_type = 0,
          .type_of = [](const GgufTensor&) { return DType::f32; },
          .encode = [](DType, const float* rows, size_t n, size_t, const float*,
                       std::byte* out) { std::memcpy(out, rows, n * sizeof(float)); }};
}

std::string gguf_bytes(const OpenedModel& opened, const GgufPlan& plan) {
  const GgufLayout layout = gguf_layout(opened.files.name, plan.keys, plan.tensors);
  const std::vector<Source> sources = sources_of(opened);
  VITRINE_CHECK(sources.size() == plan.tensors.size(), "the plan is this model's");
  std::string file = layout.header;
  file.resize(layout.size);
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& s = sources[i];
    char* const to = file.data() + layout.begin[i];
    if (s.held != nullptr) {
      std::memcpy(to, s.held->data, s.held->bytes);
      continue;
    }
    VITRINE_CHECK(plan.tensors[i].dtype == DType::f32, "the plan is in f32");
    const size_t n = layout.bytes[i] / sizeof(float);
    std::vector<float> values = s.values;
    if (values.empty() && s.tensor.parts.front()->vector != nullptr) values = vector_values(opened, s.tensor);
    if (values.empty()) {
      values.resize(n);
      Matrix(s.tensor, opened.model->shape().head_dim, reorders(opened)).read(0, rows_of(s.tensor.shape), values.data());
    }
    if (const int64_t bad = first_not_finite(values.data(), n); bad >= 0)
      refuse_number(plan.tensors[i], bad, values[static_cast<size_t>(bad)]);
    std::memcpy(to, values.data(), layout.bytes[i]);
  }
  return file;
}

}  // namespace vitrine
