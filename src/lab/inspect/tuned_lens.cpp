#include "inspect/tuned_lens.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/plural.h"
#include "io/safetensors.h"
#include "model/fingerprint.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "sae/stored_floats.h"

namespace vitrine {
namespace {

constexpr char kModel[] = "base_model_name_or_path", kFingerprint[] = "fingerprint";

std::vector<std::byte> narrowed(const FloatVector& values, DType type, const std::string& path) {
  std::vector<std::byte> bytes(values.size() * sizeof(uint16_t));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::f16 && !(std::abs(values[i]) <= 65504))
      throw RunError(path + ": a translator holds " + std::to_string(values[i]) + ", which f16 cannot; write it as bf16 or f32");
    const uint16_t half = type == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
  return bytes;
}

}  // namespace

Tensor TunedLens::translated(Context& ctx, size_t layer, const Tensor& h) const {
  const Translator& t = translators[layer];
  Weight weight;
  weight.data = reinterpret_cast<const std::byte*>(t.A.data());
  weight.out = weight.in = d_model;
  weight.stride = static_cast<size_t>(d_model) * sizeof(float);
  weight.bias.data = t.b.data();
  weight.bias.size = d_model;
  return add(ctx, h, linear(ctx, h, weight));
}

TunedLens read_tuned_lens(const std::string& path) {
  const Checkpoint file = open_safetensors(path);
  const StoredFloats values(file);
  TunedLens lens;
  const auto name = [](size_t layer, const char* which) { return std::to_string(layer) + "." + which; };
  if (!values.has(name(0, "weight")))
    throw FileError(path,
                    "there is no tensor \"0.weight\"; expected a tuned lens: 0.weight, 0.bias, 1.weight, … "
                    "(`vitrine lens train` makes one)");
  const std::vector<int64_t> square = values.shape(name(0, "weight"));
  lens.d_model = square.empty() ? 0 : square[0];
  for (size_t layer = 0; values.has(name(layer, "weight")); ++layer)
    lens.translators.push_back(
        {values.get(name(layer, "weight"), {lens.d_model, lens.d_model}), values.get(name(layer, "bias"), {lens.d_model})});
  if (file.tensors().size() != 2 * lens.translators.size())
    throw FileError(path, "holds " + plural(file.tensors().size(), "tensor") + "; expected a weight and a bias of each of " +
                              plural(lens.translators.size(), "layer") + ", and nothing else");
  const auto word = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  lens.model = word(kModel);
  lens.fingerprint = word(kFingerprint);
  return lens;
}

void write_tuned_lens(const std::string& path, const TunedLens& lens, DType type, const Checkpoint::Metadata& more) {
  std::vector<std::vector<std::byte>> half;
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const FloatVector& values, std::vector<int64_t> shape) {
    const void* data = values.data();
    if (type != DType::f32) data = half.emplace_back(narrowed(values, type, path)).data();
    tensors.push_back({name, type, std::move(shape), data});
  };
  for (size_t layer = 0; layer < lens.translators.size(); ++layer) {
    add(std::to_string(layer) + ".weight", lens.translators[layer].A, {lens.d_model, lens.d_model});
    add(std::to_string(layer) + ".bias", lens.translators[layer].b, {lens.d_model});
  }
  Checkpoint::Metadata metadata = more;
  metadata[kModel] = lens.model;
  metadata[kFingerprint] = lens.fingerprint;
  metadata["lens_type"] = "linear_tuned_lens";
  write_safetensors(path, tensors, metadata);
}

std::shared_ptr<const TunedLens> open_tuned_lens(const std::string& path, const Engine& engine) {
  auto lens = std::make_shared<TunedLens>(read_tuned_lens(path));
  const ModelShape& shape = engine.shape();
  const auto layers = static_cast<int64_t>(lens->translators.size());
  const auto sizes = [](int64_t n, int64_t width) { return plural(n, "layer") + " of width " + std::to_string(width); };
  if (lens->d_model != shape.d_model || layers != shape.n_layers)
    throw InputError(path + ": is a tuned lens of " + (lens->model.empty() ? "a model" : lens->model) + " with " +
                     sizes(layers, lens->d_model) + "; " + engine.name() + " has " + sizes(shape.n_layers, shape.d_model) +
                     ". Train one for it with `vitrine lens train`");
  return lens;
}

bool trained_on(const TunedLens& lens, const Engine& engine) {
  return lens.fingerprint.empty() || lens.fingerprint == hexadecimal(fingerprint_of(engine.opened()));
}

}  // namespace vitrine
