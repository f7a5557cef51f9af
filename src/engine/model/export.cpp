#include "model/export.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "kernels/table.h"
#include "model/adapter.h"
#include "model/config_file.h"
#include "model/registry.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

void widen(const Weight& w, int64_t stored_row, int64_t first, size_t n, float* to) {
  kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(stored_row) + row_bytes(w.dtype, static_cast<size_t>(first)), n, to);
}

void columns_of(const FileTensor& source, int64_t first, int64_t n, float* rows);

// Rows [first, first + n) of the file's matrix, as f32.
void matrix_rows(const FileTensor& source, int64_t first, int64_t n, float* rows) {
  const int64_t width = source.width();
  if (!source.by_columns) {
    auto part = source.parts.begin();
    for (int64_t i = first; i < first + n; ++i, rows += width) {
      while (i >= (*part)->first_row(false) + (*part)->out.size) ++part;
      const Weight& w = *(*part)->weight;
      const int64_t row = i - (*part)->first_row(false);
      widen(w, row, 0, static_cast<size_t>(w.in), rows);
      if (w.adapter != nullptr) add_merged(*w.adapter, row, rows);
    }
    return;
  }
  if (source.shape.size() > 2) {  // an expert after the other, each whole
    const int64_t inputs = source.shape[1];
    for (int64_t done = 0; done < n;) {
      const int64_t row = first + done, here = std::min(n - done, inputs - row % inputs);
      const auto each = static_cast<std::ptrdiff_t>(source.parts.size()) / source.shape[0];
      const auto parts = source.parts.begin() + row / inputs * each;
      columns_of({source.name, {inputs, width}, true, {parts, parts + each}}, row % inputs, here, rows + done * width);
      done += here;
    }
    return;
  }
  columns_of(source, first, n, rows);
}

// The same of a matrix [in, out], whose parts lie side by side.
void columns_of(const FileTensor& source, int64_t first, int64_t n, float* rows) {
  const int64_t width = source.width();
  std::vector<float> output;
  for (const TensorLine* part : source.parts) {
    const Weight* const w = part->weight;
    if (w->by_columns) {
      for (int64_t i = 0; i < n; ++i) widen(*w, first + i, 0, static_cast<size_t>(w->out), rows + i * width);
    } else {                                                              // stored the other way round, as in GGUF
      const auto block = static_cast<int64_t>(block_elements(w->dtype));  // whole ones are widened
      const int64_t begin = first / block * block, end = (first + n + block - 1) / block * block;
      output.resize(static_cast<size_t>(end - begin));
      for (int64_t j = 0; j < w->out; ++j) {
        widen(*w, j, begin, output.size(), output.data());
        for (int64_t i = 0; i < n; ++i) rows[i * width + j] = output[static_cast<size_t>(first - begin + i)];
      }
    }
    if (const LowRank* adapter = w->adapter) {
      const std::vector<float> ratios = adapter->magnitude ? magnitude_ratios(*w, *adapter) : std::vector<float>();
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < w->out; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < adapter->A.out; ++k) sum += adapter->B.at<double>(j, k) * adapter->A.at<double>(k, first + i);
          float& number = rows[i * width + j];
          number += static_cast<float>(adapter->scale * sum);
          if (!ratios.empty()) number *= ratios[static_cast<size_t>(j)];
        }
    }
    rows += w->out;
  }
}

// Rounds n values into `to`. Returns the first that the type cannot hold, or -1.
int64_t round_to(DType dtype, const float* from, size_t n, std::byte* to) {
  int64_t bad = -1;
  auto* const narrow = reinterpret_cast<uint16_t*>(to);
  for (size_t i = n; i-- > 0;) {
    float kept = from[i];
    if (dtype == DType::f32) {
      std::memcpy(to + i * sizeof(float), &kept, sizeof(float));
    } else if (dtype == DType::bf16) {
      narrow[i] = f32_to_bf16(kept);
      kept = bf16_to_f32(narrow[i]);
    } else {
      narrow[i] = f32_to_f16(kept);
      kept = f16_to_f32(narrow[i]);
    }
    if (!std::isfinite(kept)) bad = static_cast<int64_t>(i);
  }
  return bad;
}

// Rounds and writes the pieces of one tensor, one after the other.
class Rounder {
 public:
  Rounder(SafetensorsWriter& writer, size_t index, const FileTensor& source, DType dtype)
      : writer_(writer), index_(index), source_(source), dtype_(dtype) {}

  void add(const float* numbers, size_t n) {
    bytes_.resize(row_bytes(dtype_, n));
    if (const int64_t bad = round_to(dtype_, numbers, n, bytes_.data()); bad >= 0) {
      const float value = numbers[bad];
      throw RunError(source_.name + ": number " + std::to_string(done_ + bad) + " is " + std::to_string(value) +
                     (std::isfinite(value) ? ", beyond what " + std::string(name_of(dtype_)) + " holds; use " +
                                                 (dtype_ == DType::bf16 ? "f32" : "bf16 or f32")
                                           : "; a model with NaN or infinity is not converted"));
    }
    writer_.write(index_, bytes_, row_bytes(dtype_, static_cast<size_t>(done_)));
    done_ += static_cast<int64_t>(n);
  }

 private:
  SafetensorsWriter& writer_;
  size_t index_;
  const FileTensor& source_;
  DType dtype_;
  int64_t done_ = 0;
  std::vector<std::byte> bytes_;
};

void write_weights(const Model& model, const std::string& path, DType dtype, const std::function<void(double)>& wrote) {
  const std::vector<FileTensor> tensors = file_tensors(model, false);
  std::vector<TensorPlan> plans;
  double all = 0, done = 0;
  for (const FileTensor& s : tensors) {
    plans.push_back({s.name, dtype, s.shape});
    all += static_cast<double>(s.rows()) * static_cast<double>(s.width());
  }
  SafetensorsWriter writer(path, std::move(plans), {{"format", "pt"}});
  std::vector<float> rows;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const FileTensor& s = tensors[index];
    Rounder rounder(writer, index, s, dtype);
    if (s.parts.front()->vector != nullptr) {
      for (const TensorLine* part : s.parts) {
        const Vector* const v = part->vector;
        rows.resize(static_cast<size_t>(v->size));
        for (int64_t i = 0; i < v->size; ++i) rows[static_cast<size_t>(i)] = v->at<float>(i);
        rounder.add(rows.data(), rows.size());
      }
      continue;
    }
    constexpr int64_t kNumbers = 1 << 20,
                      kRows = kLargestBlock;  // written at once; whole blocks of what is stored the other way round
    const int64_t width = s.width(), per_piece = std::max<int64_t>(1, kNumbers / width / kRows) * kRows;
    for (int64_t first = 0; first < s.rows(); first += per_piece) {
      const int64_t n = std::min(per_piece, s.rows() - first);
      rows.resize(static_cast<size_t>(n * width));
      matrix_rows(s, first, n, rows.data());
      rounder.add(rows.data(), rows.size());
      done += static_cast<double>(n * width);
      if (wrote) wrote(done / all);
    }
  }
  writer.finish();
}

}  // namespace

void read_rows(const FileTensor& tensor, int64_t first, int64_t n, float* to) {
  if (tensor.parts.front()->vector == nullptr) return matrix_rows(tensor, first, n, to);
  first *= tensor.width();  // of the biases of experts; numbers from here on
  n *= tensor.width();
  int64_t begin = 0;
  for (const TensorLine* part : tensor.parts) {
    const Vector& v = *part->vector;
    for (int64_t i = std::max(first, begin); i < std::min(first + n, begin + v.size); ++i) to[i - first] = v.at<float>(i - begin);
    begin += v.size;
  }
}

Json exported_config(const ModelFiles& files, DType dtype) {
  Json config = files.config;
  if (!config.contains("architectures"))
    if (const char* architecture = find_family(ConfigReader(files.config, files.config_path), false).architecture)
      config["architectures"] = Json::array({architecture});
  config.erase("quantization_config");
  set_config_dtype(config, dtype);
  return config;
}

Companions companions_in(const ModelFiles& files) {
  Companions found;
  if (!files.generation_config_path.empty()) found["generation_config.json"] = read_file(files.generation_config_path);
  const std::string& directory = files.directory;
  if (directory.empty()) return found;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja"}) {
    const std::string path = directory + "/" + name;
    if (fs::is_regular_file(path)) found[name] = read_file(path);
  }
  return found;
}

void write_companions(const Companions& companions, const std::string& directory) {
  for (const auto& [name, content] : companions) write_file_atomically(directory + "/" + name, content);
}

void check_written(ModelFiles files, const std::string& path) {
  try {
    open_headers(std::move(files));
  } catch (const FileError& error) {
    throw RunError(path + " is not put in place, since vitrine could not open it again: " + error.what() +
                   ".\n  Please report this with the command; the model that it was made from is not changed");
  }
}

void write_huggingface(OpenedModel& opened, const Companions& companions, const std::string& directory, DType dtype,
                       const std::function<void(double)>& wrote) {
  VITRINE_CHECK(opened.files.kind == ModelFiles::Kind::huggingface, "a GGUF model is brought into that form first");
  if (torch_name(dtype) == nullptr)
    throw InputError(directory + ": a Hugging Face directory holds f32, bf16 or f16, not " + std::string(name_of(dtype)));
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error)))
    throw InputError(directory + " is there already; name a new directory, or remove it first");
  const std::string temporary =
      (path.parent_path() / (".converting-" + path.filename().string() + "-" + std::to_string(::getpid()))).string();
  fs::remove_all(temporary, error);  // of a process of the same number that was killed
  fs::create_directories(temporary, error);
  if (error) throw InputError(directory + " cannot be made: " + error.message() + ". Name a place that you may write to");
  try {
    write_file_atomically(temporary + "/config.json", exported_config(opened.files, dtype).dump(2) + "\n");
    write_companions(companions, temporary);
    write_weights(*opened.model, temporary + "/model.safetensors", dtype, wrote);
    check_written(resolve_model(temporary), directory);
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
      throw RunError(directory + " cannot be put in place: " + std::strerror(errno));
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

}  // namespace vitrine
