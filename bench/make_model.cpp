// Writes a model of a configuration's full shape with random weights: speed and memory do not depend on their values.
//   bench_make_model CONFIG.json OUT_DIRECTORY [f32|f16|bf16]
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "model/load.h"

using namespace vitrine;

namespace {

// Uniform numbers of standard deviation 0.02 (norm weights of families without an offset: near 1), from a 64-bit LCG.
class Numbers {
 public:
  float next(float center) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return center + (static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f) * 0.0346f;
  }

 private:
  uint64_t state_ = 20240221;
};

int make(const std::string& config_path, const std::string& out, DType dtype) {
  ModelFiles files;
  files.config = read_json(config_path);
  files.config_path = config_path;
  const std::unique_ptr<Model> model = model_from_config(files);
  std::vector<TensorPlan> plan;
  for (const FileTensor& tensor : file_tensors(*model, false)) plan.push_back({tensor.name, dtype, tensor.shape});
  std::filesystem::create_directories(out);
  SafetensorsWriter writer(out + "/model.safetensors", plan, {{"format", "pt"}});
  const bool zero_centered = files.config.value("model_type", "").rfind("gemma", 0) == 0;
  Numbers numbers;
  std::vector<std::byte> buffer;
  constexpr size_t kPiece = size_t{1} << 20;
  for (size_t t = 0; t < plan.size(); ++t) {
    size_t count = 1;
    for (const int64_t size : plan[t].shape) count *= static_cast<size_t>(size);
    const bool norm = plan[t].shape.size() == 1 && !plan[t].name.ends_with("bias");
    for (size_t done = 0; done < count; done += kPiece) {
      const size_t n = std::min(kPiece, count - done);
      buffer.resize(row_bytes(dtype, n));
      for (size_t i = 0; i < n; ++i) {
        const float x = numbers.next(norm && !zero_centered ? 1.0f : 0.0f);
        if (dtype == DType::f32) std::memcpy(buffer.data() + 4 * i, &x, 4);
        const uint16_t half = dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
        if (dtype != DType::f32) std::memcpy(buffer.data() + 2 * i, &half, 2);
      }
      writer.write(t, buffer, row_bytes(dtype, done));
    }
  }
  writer.finish();
  write_file_atomically(out + "/config.json", files.config.dump(1));
  std::printf("%s: %lld parameters as %s\n", out.c_str(), static_cast<long long>(parameter_count(*model)),
              std::string(name_of(dtype)).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_make_model CONFIG.json OUT_DIRECTORY [f32|f16|bf16]\n");
    return 2;
  }
  const std::string type = argc > 3 ? argv[3] : "bf16";
  const DType dtype = type == "f32" ? DType::f32 : type == "f16" ? DType::f16 : DType::bf16;
  if (dtype == DType::bf16 && type != "bf16") {
    std::fprintf(stderr, "bench_make_model: %s is none of f32, f16, bf16\n", type.c_str());
    return 2;
  }
  try {
    return make(argv[1], argv[2], dtype);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_make_model: %s\n", e.what());
    return 2;
  }
}
