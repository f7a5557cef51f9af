#include "quantize/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "model/fingerprint.h"
#include "ops/weight.h"

namespace vitrine {
namespace {

// Chunks whose sums are added up before they meet those of others: a unit of shared work. Larger ones make smaller parts.
constexpr int64_t kChunksTogether = 4;
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

std::vector<float> floats_of(const StoredTensor& tensor, const std::string& path, const std::string& name) {
  if (tensor.dtype != DType::f32)
    throw FileError(path, "tensor \"" + name + "\" is " + std::string(name_of(tensor.dtype)) + "; expected f32");
  std::vector<float> values(tensor.bytes / sizeof(float));
  std::memcpy(values.data(), tensor.data, tensor.bytes);
  for (const float v : values)
    if (!(v >= 0) || !std::isfinite(v))
      throw FileError(path, "tensor \"" + name + "\" holds " + std::to_string(v) + "; expected sums of squares and counts");
  return values;
}

ImportanceMatrix read_gguf_importance(const std::string& path, std::span<const std::byte> bytes) {
  const Gguf gguf = read_gguf(bytes, path);
  const GgufMetadata& keys = gguf.metadata;
  if (keys.string("general.type", "") != "imatrix")
    throw FileError(path, "has the general.type \"" + std::string(keys.string("general.type", "")) +
                              "\"; expected \"imatrix\", as vitrine imatrix and llama-imatrix write it");
  ImportanceMatrix matrix;
  if (keys.has("imatrix.datasets"))
    for (const std::string_view name : keys.strings("imatrix.datasets")) matrix.datasets.emplace_back(name);
  matrix.chunks = static_cast<uint32_t>(keys.integer("imatrix.chunk_count", 0));
  matrix.chunk_size = static_cast<uint32_t>(keys.integer("imatrix.chunk_size", 0));
  for (const auto& [name, tensor] : gguf.checkpoint.tensors()) {
    if (!name.ends_with(kSums)) continue;
    const std::string of = name.substr(0, name.size() - kSums.size()), counts_name = of + std::string(kCounts);
    const StoredTensor* const counts = gguf.checkpoint.find(counts_name);
    if (counts == nullptr) throw FileError(path, "has \"" + name + "\" without \"" + counts_name + "\"");
    ImportanceMatrix::Entry& entry = matrix.entries[of];
    entry.sums = floats_of(tensor, path, name);
    entry.counts = floats_of(*counts, path, counts_name);
    if (entry.counts.empty() || entry.sums.empty() || entry.sums.size() % entry.counts.size() != 0)
      throw FileError(path, "has " + std::to_string(entry.sums.size()) + " sums and " + std::to_string(entry.counts.size()) +
                                " counts for \"" + of + "\"; expected sums for each count");
  }
  return matrix;
}

// The form before llama.cpp's GGUF one: number of entries; for each its name, number of calls, values: mean squares times calls.
ImportanceMatrix read_dat_importance(const std::string& path, std::span<const std::byte> bytes) {
  size_t at = 0;
  const auto fail = [&](const std::string& what) -> FileError {
    return FileError(path, "is no importance matrix: byte " + std::to_string(at) + " " + what +
                               ". Expected a file of vitrine imatrix or llama-imatrix");
  };
  const auto take = [&](void* to, size_t n) {
    if (n > bytes.size() - at)
      throw fail("is followed by " + std::to_string(bytes.size() - at) + " bytes, not " + std::to_string(n));
    std::memcpy(to, bytes.data() + at, n);
    at += n;
  };
  const auto number = [&](const char* what, int64_t most) {
    int32_t n = 0;
    take(&n, sizeof(n));
    if (n < 1 || n > most) {
      at -= sizeof(n);
      throw fail("gives " + std::to_string(n) + " as the " + what);
    }
    return static_cast<size_t>(n);
  };
  ImportanceMatrix matrix;
  const size_t entries = number("number of entries", 1 << 20);
  for (size_t i = 0; i < entries; ++i) {
    std::string name(number("length of a name", 4096), '\0');
    take(name.data(), name.size());
    const auto calls = static_cast<float>(number("number of calls", INT32_MAX));
    std::vector<float> values(std::min(number("number of values", INT32_MAX), bytes.size() / sizeof(float)));
    take(values.data(), values.size() * sizeof(float));
    for (const float v : values)
      if (!(v >= 0) || !std::isfinite(v)) throw fail("ends values of " + name + " of which one is " + std::to_string(v));
    matrix.entries[name] = {std::move(values), {calls}};
  }
  if (bytes.size() - at >= 8) {
    matrix.chunks = static_cast<uint32_t>(number("number of chunks", INT32_MAX));
    std::string dataset(std::min(number("length of the text's name", 1 << 20), bytes.size() - at), '\0');
    take(dataset.data(), dataset.size());
    matrix.datasets.push_back(dataset);
  }
  return matrix;
}

// Sums of squares of what the matrices under one name read, and how many rows.
struct Squares {
  std::vector<double> squares;  // [matrices, in]
  std::vector<int64_t> rows;    // [matrices]
};
struct NamedSquares {
  std::string name;
  Squares sums;
};

// Adds up the squares of what matrices read.
class SquaresOfInputs final : public Listener {
 public:
  explicit SquaresOfInputs(const Model& model) {
    for (const TensorLine& line : model.tensors())
      if (line.weight != nullptr && (line.layout.part == 0 || !line.stacked(true))) {
        const int matrices = std::max(line.layout.experts, 1);
        places_[line.weight] = {line.gguf, line.gguf_odd, line.layout.expert, matrices};
        sizes_[line.gguf] = {static_cast<size_t>(line.weight->in * matrices), static_cast<size_t>(matrices)};
      }
  }
  bool wants(std::string_view) const override { return false; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }

  void see_input(const Weight& w, const Tensor& x) override {
    const auto found = places_.find(&w);
    if (found == places_.end()) return;
    const Place& place = found->second;
    Squares& sums = together_[place.name];
    const int64_t width = w.in, rows = x.count() / width;
    sums.squares.resize(static_cast<size_t>(width * place.matrices));
    sums.rows.resize(static_cast<size_t>(place.matrices));
    double* const squares = sums.squares.data() + width * place.matrix;
    const float* from = x.data<float>();
    for (int64_t r = 0; r < rows; ++r, from += width)
      for (int64_t i = 0; i < width; ++i) squares[i] += static_cast<double>(from[i] * from[i]);
    sums.rows[static_cast<size_t>(place.matrix)] += rows;
  }

  // What was read since the last call.
  std::vector<NamedSquares> take() {
    std::vector<NamedSquares> taken;
    for (auto& [name, sums] : together_) taken.push_back({name, std::move(sums)});
    together_.clear();
    return taken;
  }
  // Adds what was taken to the sums of all. Errors: FileError naming `where` for matrices that the model does not have.
  void add(const std::vector<NamedSquares>& taken, const std::string& where) {
    for (const NamedSquares& one : taken) {
      const auto size = sizes_.find(one.name);
      if (size == sizes_.end() || one.sums.squares.size() != size->second.first || one.sums.rows.size() != size->second.second)
        throw FileError(where, "holds " + std::to_string(one.sums.squares.size()) + " sums of \"" + one.name +
                                   "\"; this model has no matrix of that name and size");
      Squares& sums = all_[one.name];
      sums.squares.resize(one.sums.squares.size());
      sums.rows.resize(one.sums.rows.size());
      for (size_t i = 0; i < sums.squares.size(); ++i) sums.squares[i] += one.sums.squares[i];
      for (size_t i = 0; i < sums.rows.size(); ++i) sums.rows[i] += one.sums.rows[i];
    }
  }

  std::map<std::string, ImportanceMatrix::Entry> entries() const {
    std::map<std::string, ImportanceMatrix::Entry> entries;
    for (const auto& [name, sums] : all_)
      entries[name] = {std::vector<float>(sums.squares.begin(), sums.squares.end()),
                       std::vector<float>(sums.rows.begin(), sums.rows.end())};
    for (const auto& [weight, place] : places_)
      if (const auto same = entries.find(place.name); !place.also.empty() && same != entries.end())
        entries[place.also] = same->second;
    return entries;
  }

 private:
  struct Place {
    std::string name, also;        // in GGUF; `also`: a second tensor that reads the same
    int matrix = 0, matrices = 1;  // of those under the name: experts
  };
  std::unordered_map<const Weight*, Place> places_;
  std::map<std::string, std::pair<size_t, size_t>> sizes_;  // of squares and of rows under each name
  std::map<std::string, Squares> together_, all_;
};

}  // namespace

std::vector<float> ImportanceMatrix::means(const std::string& name, int64_t in, int64_t matrix, int64_t matrices,
                                           const std::string& file) const {
  const auto found = entries.find(name);
  if (found == entries.end()) return {};
  const Entry& entry = found->second;
  const auto has = static_cast<int64_t>(entry.sums.size());
  if (has != in * matrices && has != in)
    throw InputError(file + ": \"" + name + "\" has " + std::to_string(has) + " values; expected " +
                     std::to_string(in * matrices) + ". Make the importance matrix of this model");
  const auto of = has == in ? size_t{0} : static_cast<size_t>(matrix);
  const float count = entry.counts[std::min(of, entry.counts.size() - 1)];
  std::vector<float> means(static_cast<size_t>(in), 1.0f);
  if (count > 0)
    for (size_t i = 0; i < means.size(); ++i) means[i] = entry.sums[of * means.size() + i] / count;
  return means;
}

ImportanceMatrix read_importance(std::span<const std::byte> bytes, const std::string& path) {
  const bool gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  return gguf ? read_gguf_importance(path, bytes) : read_dat_importance(path, bytes);
}

ImportanceMatrix read_importance(const std::string& path) { return read_importance(MappedFile::open(path).bytes(), path); }

void write_importance(const ImportanceMatrix& matrix, const std::string& path) {
  GgufKeys keys = {{"general.type", std::string("imatrix")},
                   {"imatrix.datasets", matrix.datasets},
                   {"imatrix.chunk_count", matrix.chunks},
                   {"imatrix.chunk_size", matrix.chunk_size}};
  std::vector<TensorPlan> plans;
  for (const auto& [name, entry] : matrix.entries) {
    const auto matrices = static_cast<int64_t>(entry.counts.size());
    plans.push_back({name + std::string(kSums), DType::f32, {matrices, static_cast<int64_t>(entry.sums.size()) / matrices}});
    plans.push_back({name + std::string(kCounts), DType::f32, {matrices, 1}});
  }
  GgufWriter writer(path, keys, plans);
  size_t index = 0;
  for (const auto& [name, entry] : matrix.entries) {
    writer.write(index++, std::as_bytes(std::span(entry.sums)));
    writer.write(index++, std::as_bytes(std::span(entry.counts)));
  }
  writer.finish();
}

namespace {

// Shows `squares` what the matrices read in a run of the chunk.
void run_chunk(Engine& engine, const std::vector<int32_t>& chunk, SquaresOfInputs& squares) {
  engine.check_ids(chunk);
  Step step;
  step.add(chunk);
  Context& ctx = engine.context();
  ctx.listen(&squares);
  const auto frame = ctx.frame();
  const Tensor x = engine.model().residual(ctx, step);
  ctx.listen(nullptr);
  for (int64_t j = 0; j < x.count(); ++j)
    if (!std::isfinite(x.data<float>()[j])) {
      const int64_t row = j / x.row_size();
      engine.report_not_finite(step, std::span(&row, 1));
    }
}

}  // namespace

ImportanceMatrix collect_importance(Engine& engine, std::span<const int32_t> ids, int64_t chunk_size, int64_t most_chunks,
                                    const std::function<void(double)>& done, SharedWork* shared) {
  SharedWork alone = SharedWork::alone();
  SharedWork& work = shared != nullptr ? *shared : alone;
  const Model& model = engine.model();
  for (const TensorLine& line : model.tensors())
    if (line.gguf.empty())
      throw InputError("the family " + model.shape().family + " has no names in GGUF, so it has no importance matrix either");
  if (chunk_size < 1 || chunk_size > model.shape().context_length)
    throw InputError("a chunk of " + std::to_string(chunk_size) + " tokens; expected 1 to " +
                     std::to_string(model.shape().context_length) + ", the context of the model");
  const int64_t chunks = std::min<int64_t>(static_cast<int64_t>(ids.size()) / chunk_size, most_chunks);
  if (chunks < 1)
    throw InputError("the text has " + std::to_string(ids.size()) + " tokens, less than one chunk of " +
                     std::to_string(chunk_size) + "; give more text or smaller chunks (--context)");
  const std::vector<int32_t> start = engine.has_tokenizer() ? engine.tokenizer().encode("", true) : std::vector<int32_t>();
  SquaresOfInputs squares(model);
  std::vector<int32_t> chunk;
  for (int64_t begin = 0; begin < chunks; begin += kChunksTogether) {
    const int64_t end = std::min(begin + kChunksTogether, chunks);
    std::vector<NamedSquares> sums;
    const auto compute = [&] {
      for (int64_t i = begin; i < end; ++i) {
        chunk.assign(ids.begin() + i * chunk_size, ids.begin() + (i + 1) * chunk_size);
        if (start.size() == 1) chunk[0] = start[0];
        run_chunk(engine, chunk, squares);
        if (done) done(static_cast<double>(i + 1) / static_cast<double>(chunks));
      }
      sums = squares.take();
    };
    const std::span<const int32_t> read =
        ids.subspan(static_cast<size_t>(begin * chunk_size), static_cast<size_t>((end - begin) * chunk_size));
    const bool here = work.unit(add_to_fingerprint(0, std::as_bytes(read)), compute, [&](UnitBytes& bytes) {
      bytes.each(sums, [&](NamedSquares& one) {
        bytes.text(one.name);
        bytes.values(one.sums.rows);
        bytes.values(one.sums.squares);
      });
    });
    if (here && work.gives_all()) squares.add(sums, "the parts");
  }
  ImportanceMatrix matrix;
  if (work.gives_all()) matrix.entries = squares.entries();
  matrix.chunks = static_cast<uint32_t>(chunks);
  matrix.chunk_size = static_cast<uint32_t>(chunk_size);
  return matrix;
}

}  // namespace vitrine
