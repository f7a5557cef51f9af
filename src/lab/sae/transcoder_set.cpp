#include "sae/transcoder_set.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "io/file_checks.h"
#include "io/yaml_reader.h"
#include "kernels/table.h"
#include "sae/circuit_tracer.h"
#include "sae/sae_file.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using Shared = std::shared_ptr<const SparseAutoencoder>;

constexpr int kDeepest = 3;              // folders below the one that is named
constexpr int64_t kMostFolders = 10000;  // looked into

// "blocks.12.hook_mlp_out": 12.
std::optional<int64_t> layer_of(const std::string& hook) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!hook.starts_with(kBlocks)) return {};
  size_t end = kBlocks.size();
  int64_t layer = 0;
  while (end < hook.size() && hook[end] >= '0' && hook[end] <= '9' && layer < 100000) layer = 10 * layer + (hook[end++] - '0');
  return end > kBlocks.size() && end < hook.size() && hook[end] == '.' ? std::optional(layer) : std::nullopt;
}

std::string named(const std::string& directory) {
  const std::string config = (fs::path(directory) / "config.yaml").string();
  if (present(config)) {
    if (const auto scan = YamlValue::read(config).find("scan")) return scan->text();
  }
  const fs::path path = fs::path(directory).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

bool holds_autoencoder(const fs::path& folder) {
  const auto has = [&](const char* name) { return present((folder / name).string()); };
  return has("cfg.json") || has("params.npz") || (has("config.json") && has("params.safetensors"));
}

// Folders below `folder` that read_sae reads, in the order of their names.
void find_autoencoders(const fs::path& folder, int depth, int64_t& seen, std::vector<std::string>& found) {
  std::vector<fs::path> inside;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code none;
    if (it->is_directory(none)) inside.push_back(it->path());
  }
  if (error) throw FileError(folder.string(), "cannot be listed: " + error.message());
  std::ranges::sort(inside);
  for (const fs::path& path : inside) {
    if (++seen > kMostFolders) throw FileError(folder.string(), "there are too many folders to look for transcoders in");
    if (holds_autoencoder(path)) {
      found.push_back(path.string());
    } else if (depth < kDeepest) {
      find_autoencoders(path, depth + 1, seen, found);
    }
  }
}

std::vector<Shared> read_layer_files(const std::string& directory) {
  std::vector<Shared> layers;
  const auto path = [&](size_t layer) {
    return (fs::path(directory) / ("layer_" + std::to_string(layer) + ".safetensors")).string();
  };
  while (present(path(layers.size())))
    layers.push_back(std::make_shared<SparseAutoencoder>(read_layer_transcoder(path(layers.size()))));
  for (const std::string& name : names_in(directory, {".safetensors"})) {
    const bool of_layer = name.starts_with("layer_") &&
                          name.find_first_not_of("0123456789", 6) == name.size() - std::string_view(".safetensors").size();
    if (of_layer && layers.size() <= static_cast<size_t>(std::strtoull(name.c_str() + 6, nullptr, 10)))
      throw FileError(path(layers.size()), "is missing, while " + name + " is there; every layer from 0 on needs a transcoder");
  }
  return layers;
}

}  // namespace

TranscoderSet transcoder_set(std::vector<Shared> layers, const std::string& name, const std::string& where) {
  const auto fail = [&](const std::string& what) { throw InputError(where + ": " + what); };
  if (layers.empty()) fail("there is no transcoder; give one for each layer of the model");
  TranscoderSet set;
  set.name = name;
  set.layers.resize(layers.size());
  for (Shared& sae : layers) {
    const std::string hooks = sae->hook_name + " to " + sae->hook_name_out;
    const auto layer = layer_of(sae->hook_name_out);
    if (!sae->transcoder)
      fail("what reads at " + sae->hook_name +
           " is an autoencoder; expected a transcoder, from what an MLP reads to what it writes");
    if (!layer || layer_of(sae->hook_name) != layer)
      fail("a transcoder from \"" + sae->hook_name + "\" to \"" + sae->hook_name_out +
           "\"; expected two hooks of one layer, such as blocks.3.ln2.hook_normalized and blocks.3.hook_mlp_out");
    if (sae->input_norm != SparseAutoencoder::InputNorm::none)
      fail("the transcoder from " + hooks + " normalizes its input (normalize_activations), which has no linear effect");
    if (*layer >= static_cast<int64_t>(layers.size()))
      fail("there is a transcoder of layer " + std::to_string(*layer) + ", but only " + std::to_string(layers.size()) +
           " in all; every layer from 0 on needs one");
    Shared& place = set.layers[static_cast<size_t>(*layer)];
    if (place != nullptr) fail("there are two transcoders of layer " + std::to_string(*layer) + "; leave one");
    place = std::move(sae);
  }
  return set;
}

TranscoderSet read_transcoders(const std::string& directory) {
  if (!is_folder(directory)) throw FileError(directory, "is no folder; expected one with a transcoder for each layer");
  if (is_cross_layer(directory)) {
    CrossLayerTranscoder read = read_cross_layer(directory);
    TranscoderSet set;
    set.name = named(directory);
    set.b_dec = std::move(read.b_dec);
    for (SparseAutoencoder& layer : read.layers) set.layers.push_back(std::make_shared<SparseAutoencoder>(std::move(layer)));
    return set;
  }
  std::vector<Shared> layers = read_layer_files(directory);
  if (layers.empty()) {
    std::vector<std::string> folders;
    int64_t seen = 0;
    find_autoencoders(directory, 1, seen, folders);
    for (const std::string& folder : folders) layers.push_back(std::make_shared<SparseAutoencoder>(read_sae(folder)));
  }
  if (layers.empty())
    throw FileError(directory,
                    "there are no transcoders; expected layer_0.safetensors, layer_1.safetensors, … (circuit-tracer), "
                    "W_enc_0.safetensors, … (a cross-layer transcoder), or folders of SAELens's or Gemma Scope's transcoders");
  try {
    return transcoder_set(std::move(layers), named(directory), "the transcoders");
  } catch (const InputError& e) {
    throw FileError(directory, e.what());
  }
}

std::vector<FloatVector> decode(Context& ctx, const TranscoderSet& set, const std::vector<SparseFeatures>& features,
                                const std::vector<FloatVector>& inputs) {
  VITRINE_CHECK(features.size() == set.layers.size() && inputs.size() == set.layers.size(),
                "every layer has features and inputs");
  const auto rows = static_cast<size_t>(features.front().rows()), d = static_cast<size_t>(set.layers.front()->d_in);
  std::vector<FloatVector> y;
  for (size_t l = 0; l < set.layers.size(); ++l) {
    FloatVector& to = y.emplace_back(rows * d, 0.0F);
    for (size_t r = 0; set.cross_layer() && r < rows; ++r)
      std::ranges::copy(set.b_dec[l], to.begin() + static_cast<std::ptrdiff_t>(r * d));
  }
  for (size_t i = 0; i < set.layers.size(); ++i) {
    const SparseAutoencoder& layer = *set.layers[i];
    const auto width = static_cast<size_t>(layer.d_out);
    FloatVector all(rows * width);
    decode(ctx, layer, features[i], inputs[i].data(), all.data());
    for (size_t l = i; (l - i) * d < width; ++l)
      for (size_t r = 0; r < rows; ++r) kernels().add_scaled(all.data() + r * width + (l - i) * d, 1, d, y[l].data() + r * d);
  }
  return y;
}

}  // namespace vitrine
