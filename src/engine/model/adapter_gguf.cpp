#include "model/adapter_gguf.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/memory.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "kernels/table.h"
#include "model/adapter_modules.h"
#include "model/gguf_order.h"
#include "model/layer_name.h"
#include "model/registry.h"

namespace vitrine {
namespace {

constexpr const char *kLoraA = ".lora_a", *kLoraB = ".lora_b";

bool lies_in_gguf(const OpenedModel& opened) { return opened.files.kind == ModelFiles::Kind::gguf; }

// Rows of a tensor as they lie in our matrix: row i of the file is row [i] of ours. Empty: the same.
std::vector<int64_t> our_rows(const OpenedModel& opened, const TensorLine& line) {
  return lies_in_gguf(opened) ? std::vector<int64_t>() : gguf_rows(line, opened.model->shape().head_dim);
}
std::vector<int64_t> our_columns(const OpenedModel& opened, const TensorLine& line) {
  return lies_in_gguf(opened) ? std::vector<int64_t>() : gguf_columns(line);
}
int64_t placed(const std::vector<int64_t>& order, int64_t i) { return order.empty() ? i : order[static_cast<size_t>(i)]; }

// A tensor of the file as f32.
std::vector<float> widened(const StoredTensor& t, const std::vector<int64_t>& shape) {
  if (t.shape != shape)
    throw FileError(*t.file, "tensor \"" + t.name + "\" is " + shape_text(t.shape) + "; expected " + shape_text(shape) +
                                 " from the base model and the adapter's rank.\n  Does the adapter belong to this model?");
  if (static_cast<int>(t.dtype) >= kWeightTypes)
    throw FileError(*t.file, "tensor \"" + t.name + "\" has element type " + std::string(name_of(t.dtype)) +
                                 "; expected a float or block type");
  const auto width = static_cast<size_t>(shape.back());
  size_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= static_cast<size_t>(shape[i]);
  std::vector<float> values(rows * width);
  const size_t stride = row_bytes(t.dtype, width);
  for (size_t r = 0; r < rows; ++r)
    kernels().widen[static_cast<size_t>(t.dtype)](t.data + r * stride, width, values.data() + r * width);
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw FileError(*t.file, "tensor \"" + t.name + "\": number " + std::to_string(i) + " is " + std::to_string(values[i]) +
                                   "; expected finite numbers. Is the file damaged?");
  return values;
}

// The module of a tensor of the GGUF file: what it holds of the model's matrices.
Adapter::Module module_of_tensor(const OpenedModel& opened, const FileTensor& tensor) {
  const TensorLine& first = *tensor.parts.front();
  Adapter::Module m;
  m.name = first.huggingface.substr(0, first.huggingface.rfind('.'));
  m.ours = first.ours;
  m.layer = split_layer(first.ours).first;
  m.lookup = m.exchanged = is_lookup(first);
  m.outside = m.lookup || first.ours == "W_U";
  m.in = first.in.size;
  m.experts = first.layout.experts > 0 ? first.layout.experts : 1;
  m.by_columns = first.stored_by_columns(false);
  for (const TensorLine* part : tensor.parts) {
    m.weights.push_back(part->weight);
    m.part_sizes.push_back(part->out.size);
    m.out += part->out.size;
  }
  m.out /= m.experts;
  if (lies_in_gguf(opened)) {
    m.file_row = gguf_rows(first, opened.model->shape().head_dim);
    m.file_column = gguf_columns(first);
  }
  return m;
}

// Where row `row` of an expert's outputs in the file lies in ours: each part has an order of its own.
std::vector<int64_t> rows_of_parts(const OpenedModel& opened, const FileTensor& tensor, int64_t out) {
  std::vector<int64_t> rows;
  for (const TensorLine* part : tensor.parts) {
    if (std::ssize(rows) >= out) break;  // the other experts are as the first
    const std::vector<int64_t> own = our_rows(opened, *part);
    const int64_t before = std::ssize(rows);
    for (int64_t i = 0; i < part->out.size; ++i) rows.push_back(before + placed(own, i));
  }
  return rows;
}

// llama.cpp adapts the embedding of tokens and no other.
bool is_other_lookup(const TensorLine& line) { return is_lookup(line) && line.ours != "W_E"; }
// What GGUF multiplies each output by that our model keeps apart, as rows_of_parts() orders them; empty: 1.
std::vector<float> factors_of_parts(const FileTensor& tensor, int64_t out) {
  std::vector<float> factors;
  bool any = false;
  for (const TensorLine* part : tensor.parts) {
    if (std::ssize(factors) >= out) break;
    any = any || part->layout.gguf_factors;
    for (int64_t i = 0; i < part->out.size; ++i) factors.push_back(part->layout.gguf_factors.apply(1, i));
  }
  return any ? factors : std::vector<float>();
}

struct GgufAdapterFile {
  explicit GgufAdapterFile(const std::string& path) : file(open_gguf(path)) {
    const auto refuse = [&](const char* key, const std::string& expected) {
      throw FileError(path, std::string(key) + " is \"" + std::string(file.metadata.string(key, "")) + "\"; expected \"" +
                                expected + "\": an adapter that llama.cpp's convert_lora_to_gguf.py or vitrine wrote");
    };
    if (file.metadata.string("general.type", "") != "adapter") refuse("general.type", "adapter");
    if (file.metadata.string("adapter.type", "") != "lora") refuse("adapter.type", "lora");
    if (file.metadata.has("adapter.alora.invocation_tokens"))
      throw FileError(path,
                      "has adapter.alora.invocation_tokens; an adapter that acts after certain tokens only is not supported");
  }
  Gguf file;
};

}  // namespace

bool gguf_adapter_parts_embedding(const OpenedModel& opened, const std::string& path) {
  return opened.model->shape().tied && open_gguf(path).checkpoint.find(std::string("token_embd.weight") + kLoraA) != nullptr;
}

Adapter::Parts read_gguf_adapter(const OpenedModel& opened, const std::string& path, size_t most_bytes, AdapterOptions& options) {
  const GgufAdapterFile adapter(path);
  const Checkpoint& stored = adapter.file.checkpoint;
  const GgufMetadata& metadata = adapter.file.metadata;
  const Family& family = family_of(*opened.model);
  const std::string_view architecture = metadata.string("general.architecture");
  if (family.gguf == nullptr || architecture != family.gguf)
    throw FileError(path, "general.architecture is \"" + std::string(architecture) + "\"; expected \"" +
                              (family.gguf != nullptr ? family.gguf : "none") + "\", as of " + opened.files.name);
  const double alpha = metadata.number("adapter.lora.alpha", 0.0);
  if (!std::isfinite(alpha))
    throw FileError(path, "adapter.lora.alpha is " + std::to_string(alpha) + "; expected a finite number");
  Adapter::Parts parts;
  std::set<std::string, std::less<>> used;
  size_t bytes = 0, index = 0;
  for (const FileTensor& tensor : file_tensors(*opened.model, true)) {
    ++index;
    const StoredTensor *const a = stored.find(tensor.name + kLoraA), *const b = stored.find(tensor.name + kLoraB);
    if (a == nullptr && b == nullptr) continue;
    if (a == nullptr || b == nullptr)
      throw FileError(path,
                      "holds \"" + (a != nullptr ? a : b)->name + "\" without the other of lora_a and lora_b; expected both");
    if (tensor.parts.front()->weight == nullptr || tensor.turns != 1 || is_other_lookup(*tensor.parts.front()))
      throw FileError(path, "tensor \"" + a->name + "\" adapts \"" + tensor.name + "\", for which that is not supported");
    Adapter::Module m = module_of_tensor(opened, tensor);
    const int64_t rank =
        m.lookup ? (a->shape.size() == 2 ? a->shape[1] : 0) : (a->shape.size() >= 2 ? a->shape[a->shape.size() - 2] : 0);
    if (rank < 1 || rank > kLargestRank)
      throw FileError(path, "tensor \"" + a->name + "\" is " + shape_text(a->shape) + ", which gives no rank");
    bytes += static_cast<size_t>(m.experts * rank * (m.in + m.out)) * sizeof(float);
    if (bytes > most_bytes)
      throw FileError(path, "has more than " + bytes_text(static_cast<double>(most_bytes)) +
                                " of numbers, counted as f32; expected at most what is left for adapters");
    const bool experts = tensor.shape.size() > 2;
    const auto shape = [&](int64_t rows, int64_t columns) {
      return experts ? std::vector<int64_t>{m.experts, rows, columns} : std::vector<int64_t>{rows, columns};
    };
    const std::vector<float> from_a = widened(*a, m.lookup ? shape(m.out, rank) : shape(rank, m.in)),
                             from_b = widened(*b, m.lookup ? shape(m.in, rank) : shape(m.out, rank));
    set_size(m, rank, alpha != 0 ? alpha : static_cast<double>(rank), options, index);
    float *const to_a = m.values.data(), *const to_b = to_a + m.a_count();
    if (m.lookup) {  // llama.cpp has them exchanged, and A transposed
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t i = 0; i < m.in; ++i) to_a[k * m.in + i] = from_b[static_cast<size_t>(i * rank + k)];
      std::copy(from_a.begin(), from_a.end(), to_b);
    } else {
      const std::vector<int64_t> rows = rows_of_parts(opened, tensor, m.out),
                                 columns = our_columns(opened, *tensor.parts.front());
      for (int64_t row = 0; row < m.experts * rank; ++row)
        for (int64_t i = 0; i < m.in; ++i) to_a[row * m.in + placed(columns, i)] = from_a[static_cast<size_t>(row * m.in + i)];
      for (int64_t row = 0; row < m.experts * m.out; ++row)
        for (int64_t k = 0; k < rank; ++k)
          to_b[(row / m.out * m.out + rows[static_cast<size_t>(row % m.out)]) * rank + k] =
              from_b[static_cast<size_t>(row * rank + k)];
    }
    const std::vector<float> factors = factors_of_parts(tensor, m.out);
    for (size_t row = 0; row < factors.size(); ++row)
      for (int64_t k = 0; k < rank; ++k) to_b[static_cast<int64_t>(row) * rank + k] /= factors[row];
    used.insert({a->name, b->name});
    parts.modules.push_back(std::move(m));
  }
  for (const auto& [name, tensor] : stored.tensors())
    if (used.count(name) == 0)
      throw FileError(path,
                      "tensor \"" + name + "\" adapts no matrix of " + opened.files.name +
                          "; expected names such as \"blk.0.attn_q.weight.lora_a\".\n  Does the adapter belong to this model?");
  if (parts.modules.empty()) throw FileError(path, "holds no tensor");
  options.rank = parts.modules.front().rank;
  options.alpha = parts.modules.front().alpha;
  for (const Adapter::Module& m : parts.modules) options.targets.push_back(m.name);
  return parts;
}

void check_modules_of_peft(const OpenedModel& opened, const Adapter& adapter) {
  refuse_held_factors(opened);
  std::map<const Weight*, size_t> parts;  // of the modules of the Hugging Face file, by their first; names may be other versions'
  for (const Adapter::Module& m : modules_of(opened)) parts[m.weights.front()] = m.weights.size();
  for (const Adapter::Module& m : adapter.modules())
    if (const auto found = parts.find(m.weights.front());
        !m.of_parameter && (found == parts.end() || found->second != m.weights.size()))
      throw InputError("the adapter changes " + m.name +
                       " as a GGUF file holds it, apart from or together with others; PEFT has no such "
                       "adapter. Merge it instead (vitrine convert --adapter)");
}

void check_adapter_of_halves(const OpenedModel& opened) {
  for (const TensorLine& line : opened.model->tensors())
    if (line.layout.split && line.weight->adapter != nullptr)
      throw InputError(
          "the adapter changes " + line.ours + ", whose keys and values " + opened.files.name +
          " holds as two tensors (attn_k_b, attn_v_b); that is not written to a .gguf file. Name a directory as OUT, "
          "or adapt other matrices");
}

void write_gguf_adapter(const OpenedModel& opened, const Adapter& adapter, const std::string& path) {
  check_adapter_of_halves(opened);
  const Family& family = family_of(*opened.model);
  if (family.gguf == nullptr)
    throw InputError("models of the family " + std::string(family.name) +
                     " have no GGUF form, so there is none of their adapters");
  if (!adapter.wholes().empty() || !adapter.tokens().empty())
    throw InputError(
        "the adapter changes whole tensors or tokens, which a GGUF adapter cannot hold. Merge it into its model instead");
  if (std::filesystem::exists(path)) throw InputError(path + " is there already; name a new file, or remove it first");
  // Which module and part stands beside each weight.
  std::map<const Weight*, std::pair<const Adapter::Module*, size_t>> beside;
  for (const Adapter::Module& m : adapter.modules()) {
    if (m.dora) throw InputError("the adapter has DoRA's magnitudes, which a GGUF adapter cannot hold. Merge it instead");
    if (m.also_head)
      throw InputError(
          "the adapter changes the tied embedding in both of its places, which a GGUF adapter cannot. Merge it instead");
    if (opened.files.untied && m.outside && !m.lookup)
      throw InputError(
          "the adapter changes the head of a model whose file has it tied to the embedding, which a GGUF adapter cannot. "
          "Merge it instead");
    for (size_t i = 0; i < m.weights.size(); ++i) beside[m.weights[i]] = {&m, i};
  }
  std::vector<TensorPlan> plans;
  std::vector<std::vector<float>> values;
  const double alpha = adapter.options().alpha != 0 ? adapter.options().alpha : 1;
  size_t written = 0;
  for (const FileTensor& tensor : file_tensors(*opened.model, true)) {
    const auto found = beside.find(tensor.parts.front()->weight);
    if (tensor.parts.front()->weight == nullptr || found == beside.end()) continue;
    if (is_other_lookup(*tensor.parts.front()))
      throw InputError("the adapter changes " + tensor.parts.front()->huggingface +
                       ", an embedding that llama.cpp does not adapt. Merge it instead");
    if (tensor.turns != 1)
      throw InputError("the adapter changes " + tensor.parts.front()->huggingface +
                       ", of which a GGUF file holds every second row apart; "
                       "that is not supported. Merge it instead");
    const Adapter::Module& m = *found->second.first;
    int64_t rank = m.rank;  // of the tensor: that of the expert that has most; the others get zeros
    for (const TensorLine* part : tensor.parts)
      if (const auto other = beside.find(part->weight); other != beside.end()) rank = std::max(rank, other->second.first->rank);
    const bool experts = tensor.shape.size() > 2;
    const int64_t n_experts = experts ? tensor.parts.front()->layout.experts : 1;
    std::vector<float> a, b;
    const std::vector<int64_t> columns = our_columns(opened, *tensor.parts.front());
    int64_t out = 0;
    for (size_t p = 0; p < tensor.parts.size(); ++p) {
      const auto part = beside.find(tensor.parts[p]->weight);
      if (part == beside.end() || (!experts && part->second.first != &m))
        throw InputError("the adapter changes only a part of the GGUF tensor \"" + tensor.name + "\"; that is not supported");
      const LowRank& low = part->second.first->parts[part->second.second];
      out += low.B.out;
      if (p == 0 || experts)
        for (int64_t k = 0; k < rank; ++k)
          for (int64_t i = 0; i < m.in; ++i) a.push_back(k < low.A.out ? low.A.at<float>(k, placed(columns, i)) : 0.0f);
      const std::vector<int64_t> rows = our_rows(opened, *tensor.parts[p]);
      const double factor = low.scale / (alpha / static_cast<double>(rank));  // one alpha for the whole file
      const GgufFactors& held = tensor.parts[p]->layout.gguf_factors;
      for (int64_t row = 0; row < low.B.out; ++row)
        for (int64_t k = 0; k < rank; ++k)
          b.push_back(k < low.B.in
                          ? held.apply(static_cast<float>(factor * low.B.at<double>(placed(rows, row), k)), placed(rows, row))
                          : 0.0f);
      ++written;
    }
    out /= n_experts;
    if (m.lookup) {
      std::vector<float> transposed(a.size());
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t i = 0; i < m.in; ++i) transposed[static_cast<size_t>(i * rank + k)] = a[static_cast<size_t>(k * m.in + i)];
      a = std::move(b);
      b = std::move(transposed);
    }
    const auto shape = [&](int64_t rows, int64_t width) {
      return experts ? std::vector<int64_t>{n_experts, rows, width} : std::vector<int64_t>{rows, width};
    };
    plans.push_back({tensor.name + kLoraA, DType::f32, m.lookup ? shape(out, rank) : shape(rank, m.in)});
    plans.push_back({tensor.name + kLoraB, DType::f32, m.lookup ? shape(m.in, rank) : shape(out, rank)});
    values.push_back(std::move(a));
    values.push_back(std::move(b));
  }
  VITRINE_CHECK(written == beside.size(), "every adapted matrix is in a GGUF file of its family");
  const GgufKeys keys = {{"general.architecture", std::string(family.gguf)},
                         {"general.type", std::string("adapter")},
                         {"adapter.type", std::string("lora")},
                         {"adapter.lora.alpha", static_cast<float>(alpha)}};
  GgufWriter writer(path, keys, plans);
  for (size_t i = 0; i < values.size(); ++i) writer.write(i, std::as_bytes(std::span<const float>(values[i])));
  writer.finish();
}

}  // namespace vitrine
