#include "merge/extract.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "merge/extract_plan.h"
#include "merge/numbers.h"
#include "merge/truncated_svd.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using ExtractPart = ExtractPlan::Part;

constexpr int64_t kExtractPiece = 1 << 15;  // elements that are read at once
constexpr const char* kAdapterWeights = "adapter_model.safetensors";
constexpr const char* kFactors = "factors";  // A and B until all ranks are known

void check_finite(const MergeInput& input, const std::string& tensor, const float* x, size_t n, int64_t first) {
  if (const size_t bad = first_not_finite(x, n); bad < n)
    throw RunError(tensor + " of " + input.name() + ": element " + std::to_string(first + static_cast<int64_t>(bad)) + " is " +
                   std::to_string(x[bad]) +
                   "; expected finite numbers. Mend the model, or leave the module out with "
                   "--exclude-regex");
}

// Calls f(first, n) for the pieces of a tensor: whole rows of a matrix.
template <class F>
void each_piece(const InputTensor& tensor, F&& f) {
  const int64_t n = tensor.elements(), width = tensor.shape.size() < 2 ? n : std::max<int64_t>(1, tensor.shape.back());
  const int64_t step = tensor.shape.size() < 2 ? n : std::max<int64_t>(1, kExtractPiece / width) * width;
  for (int64_t first = 0; first < n; first += step) f(first, static_cast<size_t>(std::min(step, n - first)));
}

// What both types hold; f32 where they differ, as PyTorch has it.
DType dtype_of(const ExtractPart& part) {
  const bool same = part.model->dtype == part.base->dtype;
  return same && (part.model->dtype == DType::f16 || part.model->dtype == DType::bf16) ? part.model->dtype : DType::f32;
}

// Numbers of A or B, or of a difference of biases, as the file holds them.
std::vector<std::byte> narrowed(const std::string& name, DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(dtype, values.size()));
  narrow_to(dtype, values.data(), values.size(), bytes.data());
  if (dtype == DType::f16)
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(f16_to_f32(reinterpret_cast<const uint16_t*>(bytes.data())[i])))
        throw RunError(name + ": element " + std::to_string(i) + " is " + std::to_string(values[i]) +
                       ", beyond what f16 holds; convert the models to bf16 or f32 first");
  return bytes;
}

// Names of folders need not be UTF-8.
std::string utf8_json(const Json& document) {
  return document.dump(document.is_object() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

// A tensor of the adapter, in the file of the factors or made when it is written.
struct AdapterTensor {
  TensorPlan plan;
  uint64_t begin = 0;
};

class Extractor {
 public:
  Extractor(const MergeInput& model, const MergeInput& base, const std::string& folder, const ExtractOptions& options)
      : model_(model), base_(base), folder_(folder), options_(options), plan_(plan_extraction(model, base, options)) {
    result_.notes = plan_.notes;
  }

  ExtractResult run(ThreadPool& pool, const WatchExtract& watch) {
    decompose(pool, watch);
    std::map<std::string, int64_t> ranks;
    for (const ExtractedModule& module : result_.modules)
      if (module.kind != ExtractedModule::Kind::saved && module.rank > 0) ranks[module.name] = module.rank;
    if (ranks.empty())
      throw InputError("no matrix of " + model_.name() + " differs from " + base_.name() + " by a singular value above " +
                       std::to_string(options_.sv_epsilon) + "; expected one at least. Lower --sv-epsilon");
    for (const auto& [name, rank] : ranks) result_.rank = std::max(result_.rank, rank);
    write_weights();
    write_file_atomically(folder_ + "/adapter_config.json", utf8_json(adapter_config(plan_, ranks, base_.name())) + "\n");
    if (options_.write_model_card) write_file_atomically(folder_ + "/README.md", model_card());
    return std::move(result_);
  }

 private:
  // A and B of every matrix, into a file of their own: threads take whole matrices.
  void decompose(ThreadPool& pool, const WatchExtract& watch) {
    AtomicFile file(folder_ + "/" + kFactors);
    const size_t n = plan_.modules.size();
    result_.modules.resize(n);
    tensors_.resize(n);
    std::mutex mutex;
    std::exception_ptr error;
    size_t failed = n, done = 0;  // the first module that did
    std::atomic<bool> stop = false;
    pool.run(static_cast<int64_t>(n), [&](int64_t index, int) {
      if (stop) return;
      const auto i = static_cast<size_t>(index);
      try {
        one(i, file);
        const std::lock_guard lock(mutex);
        ++done;
        if (watch) watch(done, n, plan_.modules[i].name);
      } catch (...) {
        const std::lock_guard lock(mutex);
        stop = true;
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    });
    if (error) std::rethrow_exception(error);
    file.finish();
  }

  void one(size_t i, AtomicFile& file) {
    const ExtractPlan::Module& planned = plan_.modules[i];
    ExtractedModule& made = result_.modules[i];
    made.name = planned.name;
    made.kind = planned.kind;
    made.shape = planned.parts[0].model->shape;
    if (planned.kind == ExtractedModule::Kind::saved) {
      for (const ExtractPart& part : planned.parts)
        tensors_[i].push_back({{"base_model.model." + part.name, stored_as(part), part.model->shape}});
      return;
    }
    const ExtractPart& weight = planned.parts[0];
    const int64_t rows = made.shape[0], columns = made.shape[1];
    const std::vector<float> difference = difference_of(weight);
    MergeInput::release(*weight.model);
    MergeInput::release(*weight.base);
    double squares = 0;
    for (const float x : difference) squares += static_cast<double>(x) * static_cast<double>(x);
    made.norm = std::sqrt(squares);
    TruncatedSvd svd = truncated_svd(difference.data(), rows, columns, options_.max_rank);
    if (options_.sv_epsilon > 0)
      made.rank = std::count_if(svd.values.begin(), svd.values.end(),
                                [&](float value) { return static_cast<double>(value) > options_.sv_epsilon; });
    else
      made.rank = svd.rank;
    double held = 0;
    for (int64_t k = 0; k < made.rank; ++k) {
      const auto value = static_cast<double>(svd.values[static_cast<size_t>(k)]);
      held += value * value;
    }
    made.kept = squares > 0 ? std::min(1.0, held / squares) : 1;
    if (made.rank == 0) return;

    // B A = out x in; the file holds in x out where a row of it is one input's, as an embedding's.
    const bool embedding = planned.kind == ExtractedModule::Kind::embedding, turned = embedding || planned.by_columns;
    const std::vector<float>&of_A = turned ? svd.u : svd.v, &of_B = turned ? svd.v : svd.u;
    const auto in = static_cast<size_t>(turned ? rows : columns), out = static_cast<size_t>(turned ? columns : rows);
    const auto rank = static_cast<size_t>(made.rank);
    std::vector<float> A(rank * in), B(out * rank);
    for (size_t k = 0; k < rank; ++k) {
      const float value = svd.values[k], root = std::sqrt(value);
      const float to_A = options_.distribute_scale ? root : value, to_B = options_.distribute_scale ? root : 1;
      for (size_t c = 0; c < in; ++c) A[k * in + c] = to_A * of_A[k * in + c];
      for (size_t r = 0; r < out; ++r) B[r * rank + k] = to_B * of_B[k * out + r];
    }
    const std::string before = "base_model.model." + planned.name + (embedding ? ".lora_embedding_" : ".lora_");
    const std::string after = embedding ? "" : ".weight";
    const DType dtype = dtype_of(weight);
    put(i, file, {before + "A" + after, dtype, {made.rank, static_cast<int64_t>(in)}}, A);
    put(i, file, {before + "B" + after, dtype, {static_cast<int64_t>(out), made.rank}}, B);
    if (!plan_.biases || embedding) return;
    std::vector<float> bias(out, 0.0f);  // PEFT has one for each matrix, or none
    if (planned.parts.size() == 2) bias = difference_of(planned.parts[1]);
    put(i, file, {before + "B.bias", dtype, {static_cast<int64_t>(out)}}, bias);
  }

  std::vector<float> difference_of(const ExtractPart& part) const {
    std::vector<float> x(static_cast<size_t>(part.model->elements())), piece;
    each_piece(*part.model, [&](int64_t first, size_t n) {
      float* const to = x.data() + first;
      model_.read(*part.model, first, n, to);
      check_finite(model_, part.name, to, n, first);
      piece.resize(std::max(piece.size(), n));
      base_.read(*part.base, first, n, piece.data());
      check_finite(base_, part.name, piece.data(), n, first);
      for (size_t k = 0; k < n; ++k) to[k] -= piece[k];
    });
    return x;
  }

  void put(size_t i, AtomicFile& file, TensorPlan plan, const std::vector<float>& values) {
    const std::vector<std::byte> bytes = narrowed(plan.name, plan.dtype, values);
    const uint64_t begin = factors_end_.fetch_add(bytes.size());
    file.write_at(begin, bytes);
    tensors_[i].push_back({std::move(plan), begin});
  }

  static DType stored_as(const ExtractPart& part) { return part.model->dtype; }

  void write_weights() {
    std::vector<TensorPlan> plans;
    for (const auto& tensors : tensors_)
      for (const AdapterTensor& tensor : tensors) {
        plans.push_back(tensor.plan);
        int64_t n = 1;
        for (const int64_t size : tensor.plan.shape) n *= size;
        result_.parameters += n;
        result_.bytes += row_bytes(tensor.plan.dtype, static_cast<size_t>(n));
      }
    SafetensorsWriter writer(folder_ + "/" + kAdapterWeights, plans, {{"format", "pt"}});
    {
      const MappedFile factors = MappedFile::open(folder_ + "/" + kFactors);
      size_t index = 0;
      for (size_t i = 0; i < tensors_.size(); ++i)
        for (size_t k = 0; k < tensors_[i].size(); ++k, ++index) {
          const AdapterTensor& tensor = tensors_[i][k];
          if (plan_.modules[i].kind == ExtractedModule::Kind::saved) {
            save(writer, index, plan_.modules[i].parts[k], tensor.plan.dtype);
            continue;
          }
          uint64_t n = row_bytes(tensor.plan.dtype, 1);
          for (const int64_t size : tensor.plan.shape) n *= static_cast<uint64_t>(size);
          writer.write(index, factors.bytes().subspan(tensor.begin, n));
        }
    }
    writer.finish();
    fs::remove(folder_ + "/" + kFactors);
  }

  // The model's own tensor, as it is stored.
  void save(SafetensorsWriter& writer, size_t index, const ExtractPart& part, DType dtype) const {
    const InputTensor& tensor = *part.model;
    const bool floats = static_cast<int>(dtype) < kWeightTypes || dtype == DType::f64;
    if (!floats) return writer.write(index, {tensor.stored->data, tensor.stored->bytes});
    std::vector<float> x;
    each_piece(tensor, [&](int64_t first, size_t n) {
      x.resize(n);
      model_.read(tensor, first, n, x.data());
      check_finite(model_, part.name, x.data(), n, first);
      const size_t offset = row_bytes(dtype, static_cast<size_t>(first));
      if (tensor.stored != nullptr && tensor.stored->dtype == dtype)
        writer.write(index, {tensor.stored->data + offset, row_bytes(dtype, n)}, offset);
      else
        writer.write(index, narrowed(part.name, dtype, x), offset);
    });
    MergeInput::release(tensor);
  }

  std::string model_card() const {
    std::string text = "---\nbase_model: " + utf8_json(base_.name()) +
                       "\nlibrary_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n- vitrine\n---\n"
                       "# LoRA adapter of " +
                       model_.name() + "\n\nThe difference between " + model_.name() + " and " + base_.name() +
                       " as matrices of rank " + std::to_string(result_.rank) + " at most, by truncated SVD.\n\n" +
                       "Extracted by `vitrine extract-lora`.\n";
    if (!plan_.notes.empty()) {
      text += "\n";
      for (const std::string& note : plan_.notes) text += "- " + note + "\n";
    }
    return text;
  }

  const MergeInput &model_, &base_;
  std::string folder_;
  const ExtractOptions& options_;
  ExtractPlan plan_;
  ExtractResult result_;
  std::vector<std::vector<AdapterTensor>> tensors_;  // of each module
  std::atomic<uint64_t> factors_end_ = 0;
};

}  // namespace

ExtractResult extract_lora(const MergeInput& model, const MergeInput& base, const std::string& directory,
                           const ExtractOptions& options, ThreadPool& pool, const WatchExtract& watch) {
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(path, error)))
    throw InputError(directory + " is there already; name a new directory, or remove it first");
  const std::string folder = (path.parent_path() / (".extracting-" + path.filename().string())).string();
  fs::create_directories(folder, error);
  if (error) throw InputError(directory + " cannot be made: " + error.message() + ". Name a place that you may write to");
  const FolderLock lock(folder, folder + " is being written by another process; wait for it, or name another directory");
  if (!lock.is_at(folder)) throw InputError(directory + " has just been written by another process");
  try {
    for (const auto& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path());  // of a run that was killed
    ExtractResult result = Extractor(model, base, folder, options).run(pool, watch);
    if (std::rename(folder.c_str(), path.c_str()) != 0)
      throw RunError(directory + " cannot be put in place: " + std::strerror(errno));
    return result;
  } catch (...) {
    fs::remove_all(folder, error);
    throw;
  }
}

}  // namespace vitrine
