#include "train/average.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 16;  // elements

const StoredTensor& same_in(const Checkpoint& file, const StoredTensor& wanted) {
  const StoredTensor* t = file.find(wanted.name);
  if (t == nullptr || t->dtype != wanted.dtype || t->shape != wanted.shape)
    throw FileError(file.path(), "lacks the f32 tensor \"" + wanted.name + "\" of shape " + shape_text(wanted.shape) +
                                     ", which the newest checkpoint has; it is of another model");
  return *t;
}

void average_files(const std::vector<std::string>& paths, const std::string& out) {
  std::vector<Checkpoint> files;
  for (const std::string& path : paths) files.push_back(open_safetensors(path));
  const Checkpoint& newest = files.back();
  std::vector<TensorPlan> plan;
  for (const auto& [name, t] : newest.tensors()) {
    if (t.dtype != DType::f32) throw FileError(newest.path(), "has \"" + name + "\" in another type than f32");
    plan.push_back({name, t.dtype, t.shape});
  }
  SafetensorsWriter writer(out, plan, newest.metadata());
  std::vector<double> sum(kChunk);
  std::vector<float> mean(kChunk);
  size_t i = 0;
  for (const auto& [name, wanted] : newest.tensors()) {
    std::vector<const float*> values;
    for (const Checkpoint& file : files) values.push_back(reinterpret_cast<const float*>(same_in(file, wanted).data));
    const size_t count = wanted.bytes / sizeof(float);
    for (size_t first = 0; first < count; first += kChunk) {
      const size_t n = std::min(kChunk, count - first);
      std::fill_n(sum.begin(), n, 0.0);
      for (const float* of_one : values)
        for (size_t k = 0; k < n; ++k) sum[k] += static_cast<double>(of_one[first + k]);
      for (size_t k = 0; k < n; ++k) mean[k] = static_cast<float>(sum[k] / static_cast<double>(values.size()));
      writer.write(i, std::as_bytes(std::span(mean.data(), n)), first * sizeof(float));
    }
    ++i;
  }
  writer.finish();
}

}  // namespace

void average_checkpoints(std::span<const std::string> folders, const std::string& out) {
  for (const auto& entry : fs::directory_iterator(folders.back())) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".safetensors") {
      fs::copy_file(entry.path(), out + "/" + name);
      continue;
    }
    std::vector<std::string> paths;
    for (const std::string& folder : folders) paths.push_back(folder + "/" + name);
    average_files(paths, out + "/" + name);
  }
}

}  // namespace vitrine
