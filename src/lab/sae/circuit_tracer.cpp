#include "sae/circuit_tracer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "io/yaml_reader.h"
#include "kernels/table.h"
#include "sae/stored_floats.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

struct Hooks {
  std::string in, out, model;
};

// TransformerLens's words for a layer's hooks as ours.
std::string our_hook(const std::string& name) {
  if (name == "mlp.hook_in") return "ln2.hook_normalized";
  if (name == "ln2.hook_normalized") return "ln2.hook_normalized_pre";
  if (name == "mlp.hook_out") return "hook_mlp_out";
  return name;
}

std::string their_hook(const std::string& name) {
  const size_t layer = name.find('.', name.find('.') + 1);  // after "blocks.3"
  const std::string hook = layer == std::string::npos ? name : name.substr(layer + 1);
  if (hook == "ln2.hook_normalized") return "mlp.hook_in";
  if (hook == "ln2.hook_normalized_pre") return "ln2.hook_normalized";
  return hook;
}

Hooks hooks_beside(const std::string& directory, const char* in) {
  Hooks hooks{in, "hook_mlp_out", ""};
  const std::string path = (fs::path(directory) / "config.yaml").string();
  if (!present(path)) return hooks;
  const YamlValue config = YamlValue::read(path);
  if (const auto value = config.find("feature_input_hook")) hooks.in = our_hook(value->text());
  if (const auto value = config.find("feature_output_hook")) hooks.out = our_hook(value->text());
  if (const auto value = config.find("model_name")) hooks.model = value->text();
  return hooks;
}

// The number at the end of a name: "layer_12".
std::optional<int> number_at_end(std::string_view name) {
  size_t begin = name.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  int number = 0;
  const auto [end, error] = std::from_chars(name.data() + begin, name.data() + name.size(), number);
  return error == std::errc() && end != name.data() + begin ? std::optional(number) : std::nullopt;
}

std::string in_layer(int64_t layer, const std::string& hook) { return "blocks." + std::to_string(layer) + "." + hook; }

std::string layer_file(const std::string& directory, const char* what, int64_t layer) {
  return (fs::path(directory) / (std::string(what) + "_" + std::to_string(layer) + ".safetensors")).string();
}

void read_encoder(const StoredFloats& weights, const std::string& suffix, const std::string& threshold, SparseAutoencoder& sae) {
  sae.transcoder = true;
  sae.apply_b_dec_to_input = false;
  sae.W_enc = weights.get("W_enc" + suffix, {sae.d_sae, sae.d_in});
  transpose(sae.W_enc, sae.d_sae, sae.d_in);
  sae.b_enc = weights.get("b_enc" + suffix, {sae.d_sae});
  if (!weights.has(threshold)) return;
  sae.activation = SparseAutoencoder::Activation::jumprelu;
  sae.threshold = weights.get(threshold, {sae.d_sae});
}

std::vector<int64_t> matrix_shape(const StoredFloats& weights, const std::string& name, const std::string& file) {
  const std::vector<int64_t> shape = weights.shape(name);
  if (shape.size() != 2) throw FileError(file, name + " is " + shape_text(shape) + "; expected [d_sae, d_model]");
  return shape;
}

}  // namespace

SparseAutoencoder read_layer_transcoder(const std::string& file) {
  const Checkpoint checkpoint = open_safetensors(file);
  const StoredFloats weights(checkpoint);
  const std::vector<int64_t> shape = matrix_shape(weights, "W_enc", file);
  SparseAutoencoder sae;
  sae.d_sae = shape[0];
  sae.d_in = sae.d_out = shape[1];
  read_encoder(weights, "", "activation_function.threshold", sae);
  sae.W_dec = weights.get("W_dec", {sae.d_sae, sae.d_out});
  sae.b_dec = weights.get("b_dec", {sae.d_out});
  if (weights.has("W_skip")) sae.W_skip = weights.get("W_skip", {sae.d_out, sae.d_in});
  std::string directory = fs::path(file).parent_path().string();
  const Hooks hooks = hooks_beside(directory.empty() ? "." : directory, "ln2.hook_normalized");
  sae.model_name = hooks.model;
  if (const auto layer = number_at_end(fs::path(file).stem().string())) {
    sae.hook_name = in_layer(*layer, hooks.in);
    sae.hook_name_out = in_layer(*layer, hooks.out);
  }
  sae.check(file);
  return sae;
}

bool is_cross_layer(const std::string& directory) { return is_folder(directory) && present(layer_file(directory, "W_enc", 0)); }

CrossLayerTranscoder read_cross_layer(const std::string& directory) {
  if (!is_cross_layer(directory))
    throw FileError(directory, "there is no W_enc_0.safetensors; expected a cross-layer transcoder in circuit-tracer's form");
  CrossLayerTranscoder t;
  while (present(layer_file(directory, "W_enc", t.n_layers))) ++t.n_layers;
  const Hooks hooks = hooks_beside(directory, "hook_resid_mid");
  for (int64_t i = 0; i < t.n_layers; ++i) {
    const std::string number = "_" + std::to_string(i), file = layer_file(directory, "W_enc", i);
    const Checkpoint encoder = open_safetensors(file), decoder = open_safetensors(layer_file(directory, "W_dec", i));
    const StoredFloats weights(encoder);
    const std::vector<int64_t> shape = matrix_shape(weights, "W_enc" + number, file);
    if (i == 0) t.d_sae = shape[0], t.d_model = shape[1];
    SparseAutoencoder sae;
    sae.d_sae = t.d_sae;
    sae.d_in = t.d_model;
    sae.d_out = (t.n_layers - i) * t.d_model;
    read_encoder(weights, number, "threshold" + number, sae);
    sae.W_dec = StoredFloats(decoder).get("W_dec" + number, {t.d_sae, t.n_layers - i, t.d_model});
    sae.b_dec.assign(static_cast<size_t>(sae.d_out), 0.0F);
    t.b_dec.push_back(weights.get("b_dec" + number, {t.d_model}));
    sae.hook_name = in_layer(i, hooks.in);
    sae.hook_name_out = in_layer(i, hooks.out);
    sae.model_name = hooks.model;
    sae.check(file);
    t.layers.push_back(std::move(sae));
  }
  return t;
}

void write_cross_layer(const std::string& directory, const CrossLayerTranscoder& t) {
  for (int64_t i = 0; i < t.n_layers; ++i) {
    const SparseAutoencoder& layer = t.layers[static_cast<size_t>(i)];
    const std::string number = "_" + std::to_string(i), file = layer_file(directory, "W_enc", i);
    layer.check(file);
    if (layer.d_in != t.d_model || layer.d_out != (t.n_layers - i) * t.d_model || layer.d_sae != t.d_sae)
      throw InputError(file + ": layer " + std::to_string(i) + " has d_in " + std::to_string(layer.d_in) + ", d_out " +
                       std::to_string(layer.d_out) + ", d_sae " + std::to_string(layer.d_sae) + "; expected " +
                       std::to_string(t.d_model) + ", " + std::to_string((t.n_layers - i) * t.d_model) + ", " +
                       std::to_string(t.d_sae) + ", as circuit-tracer's files have one width");
    const bool jumps = layer.activation == SparseAutoencoder::Activation::jumprelu;
    if (!jumps && layer.activation != SparseAutoencoder::Activation::relu)
      throw InputError(file + ": circuit-tracer has no cross-layer transcoders of architecture " + architecture_name(layer));
    FloatVector encoder = layer.W_enc;
    transpose(encoder, layer.d_in, layer.d_sae);
    std::vector<TensorToWrite> tensors{
        {"W_enc" + number, DType::f32, {layer.d_sae, layer.d_in}, encoder.data()},
        {"b_enc" + number, DType::f32, {layer.d_sae}, layer.b_enc.data()},
        {"b_dec" + number, DType::f32, {t.d_model}, t.b_dec[static_cast<size_t>(i)].data()},
    };
    if (jumps) tensors.push_back({"threshold" + number, DType::f32, {layer.d_sae}, layer.threshold.data()});
    write_safetensors(layer_file(directory, "W_dec", i),
                      {{"W_dec" + number, DType::f32, {layer.d_sae, t.n_layers - i, t.d_model}, layer.W_dec.data()}});
    write_safetensors(file, tensors);
  }
  const SparseAutoencoder& first = t.layers.front();
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  write_file_atomically((fs::path(directory) / "config.yaml").string(),
                        "model_name: " + quoted(first.model_name) +
                            "\nmodel_kind: cross_layer_transcoder\nfeature_input_hook: " + quoted(their_hook(first.hook_name)) +
                            "\nfeature_output_hook: " + quoted(their_hook(first.hook_name_out)) + "\n");
}

std::vector<FloatVector> decode(Context& ctx, const CrossLayerTranscoder& t, const std::vector<SparseFeatures>& features) {
  if (features.size() != t.layers.size())
    throw UsageError("features of " + std::to_string(features.size()) + " layers; the cross-layer transcoder has " +
                     std::to_string(t.n_layers));
  const int64_t rows = features.front().rows();
  const auto d = static_cast<size_t>(t.d_model);
  std::vector<FloatVector> y;
  for (const FloatVector& b : t.b_dec) {
    FloatVector& to = y.emplace_back();
    for (int64_t r = 0; r < rows; ++r) to.insert(to.end(), b.begin(), b.end());
  }
  for (size_t i = 0; i < t.layers.size(); ++i) {
    const SparseAutoencoder& layer = t.layers[i];
    FloatVector all(static_cast<size_t>(rows * layer.d_out));
    decode(ctx, layer, features[i], nullptr, all.data());
    for (size_t l = i; l < t.layers.size(); ++l)
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
        kernels().add_scaled(all.data() + r * static_cast<size_t>(layer.d_out) + (l - i) * d, 1, d, y[l].data() + r * d);
  }
  return y;
}

}  // namespace vitrine
