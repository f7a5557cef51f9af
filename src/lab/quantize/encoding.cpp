#include "quantize/encoding.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "model/model.h"
#include "quantize/encode.h"

namespace vitrine {
namespace {

// The matrices that the file will have.
std::vector<GgufTensor> matrices_of(const OpenedModel& opened) {
  std::vector<GgufTensor> matrices;
  GgufEncoding look;
  look.type_of = [&](const GgufTensor& tensor) {
    matrices.push_back(tensor);
    return DType::f32;
  };
  plan_gguf(opened, {}, look);
  return matrices;
}

// In a layer, the most.
int64_t experts_of(const Model& model) {
  int64_t most = 0;
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (const auto experts = model.layer(layer).experts) most = std::max(most, experts->count);
  return most;
}

// Of each matrix under a name, one after the other: [matrices, in]; empty if there is nothing of that name.
std::vector<float> means_of(const QuantizeOptions& options, const GgufTensor& tensor) {
  const int64_t matrices = tensor.shape.size() > 2 ? tensor.shape.front() : 1;
  std::vector<float> all;
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    const std::vector<float> means =
        options.importance->means(tensor.name, tensor.shape.back(), matrix, matrices, options.importance_file);
    all.insert(all.end(), means.begin(), means.end());
  }
  return all;
}

}  // namespace

GgufEncoding mixture_encoding(const OpenedModel& opened, const Mixture& mixture, const QuantizeOptions& options) {
  const ModelShape& shape = opened.model->shape();
  const bool starts_with_attention = shape.n_layers == 0 || opened.model->layer(0).has_attention();
  const MixtureModel model{.n_layers = shape.n_layers,
                           .n_heads = shape.n_heads,
                           .n_experts = experts_of(*opened.model),
                           .n_kv_heads = starts_with_attention ? shape.n_kv_heads : 0,
                           .with_importance = options.importance != nullptr};
  const std::vector<GgufTensor> matrices = matrices_of(opened);
  std::vector<MixtureTensor> tensors;
  for (const GgufTensor& matrix : matrices) {
    const bool narrow = matrix.stored == DType::f16 || matrix.stored == DType::bf16;
    tensors.push_back({matrix.name, matrix.shape, narrow ? *matrix.stored : DType::f32});
  }
  std::vector<DType> types = choose_types(mixture, model, tensors, options.pure);
  const bool keeps = opened.gguf == nullptr && (!is_block(mixture.base) || mixture.base == DType::q8_0);
  bool kept = false;
  for (size_t i = 0; i < matrices.size(); ++i)  // as llama.cpp's converter does: no other type holds them exactly and as small
    if (keeps && matrices[i].stored == DType::mxfp4) {
      types[i] = DType::mxfp4;
      kept = true;
    }

  auto type_of = std::make_shared<std::map<std::string, DType>>();
  struct Means {
    std::vector<float> means;
    size_t in = 0;
  };
  auto importance = std::make_shared<std::map<std::string, Means>>();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const std::string& name = matrices[i].name;
    (*type_of)[name] = types[i];
    if (options.importance != nullptr)
      (*importance)[name] = {means_of(options, matrices[i]), static_cast<size_t>(matrices[i].shape.back())};
    if (needs_importance(mixture, types[i], name) && (options.importance == nullptr || (*importance)[name].means.empty()))
      throw UsageError(std::string(mixture.name) + " puts " + name + " into " + std::string(name_of(types[i])) +
                       (options.importance == nullptr ? ", which is of use with an importance matrix only"
                                                      : ", and " + options.importance_file + " has nothing of that name") +
                       ". Make one: vitrine imatrix --model MODEL --file TEXT --out FILE, and give it with --imatrix");
  }
  GgufEncoding encoding;
  encoding.file_type = kept && !is_block(mixture.base) ? find_mixture("MXFP4_MOE")->file_type : mixture.file_type;
  encoding.type_of = [type_of](const GgufTensor& tensor) { return type_of->at(tensor.name); };
  encoding.importance = [importance](const std::string& name, int64_t matrix) -> const float* {
    const auto found = importance->find(name);
    if (found == importance->end() || found->second.means.empty()) return nullptr;
    return found->second.means.data() + static_cast<size_t>(matrix) * found->second.in;
  };
  encoding.encode = [](DType type, const float* rows, size_t n, size_t row, const float* weights, std::byte* out) {
    for (size_t i = 0; i < n; i += row, out += row_bytes(type, row)) encode_row(type, rows + i, row, weights, out);
  };
  return encoding;
}

}  // namespace vitrine
