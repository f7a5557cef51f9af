#include "sae/sae_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "io/huggingface.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "sae/circuit_tracer.h"
#include "sae/stored_floats.h"

namespace vitrine {
namespace {

constexpr const char* kArchitectures =
    "standard, gated, topk, abstopk, jumprelu, batchtopk, matryoshka_batchtopk, transcoder, skip_transcoder, jumprelu_transcoder "
    "or jumprelu_skip_transcoder";

std::string joined(const std::string& directory, const char* name) { return (std::filesystem::path(directory) / name).string(); }

// A batch-topk checkpoint of training: one threshold for all features, in units of pre · ‖W_dec row‖ if it rescales.
void from_batch_topk(const StoredFloats& weights, SparseAutoencoder& sae) {
  const double limit = [&] {
    const FloatVector t = weights.get("topk_threshold", {});
    return static_cast<double>(t[0]);
  }();
  sae.threshold.assign(static_cast<size_t>(sae.d_sae), static_cast<float>(limit));
  if (!sae.rescale_acts_by_decoder_norm) return;
  for (int64_t f = 0; f < sae.d_sae; ++f) {
    double sum = 0;
    for (const float w : sae.direction(f)) sum += static_cast<double>(w) * w;
    const double norm = std::max(std::sqrt(sum), 1e-8);
    for (int64_t i = 0; i < sae.d_in; ++i) {
      float& w = sae.W_enc[static_cast<size_t>(i * sae.d_sae + f)];
      w = static_cast<float>(w * norm);
    }
    for (int64_t i = 0; i < sae.d_out; ++i) {
      float& w = sae.W_dec[static_cast<size_t>(f * sae.d_out + i)];
      w = static_cast<float>(w / norm);
    }
    float& b = sae.b_enc[static_cast<size_t>(f)];
    b = static_cast<float>(b * norm);
  }
  sae.rescale_acts_by_decoder_norm = false;
}

void read_tensors(const std::string& path, const std::string& architecture, SparseAutoencoder& sae) {
  const Checkpoint file = open_safetensors(path);
  const StoredFloats weights(file);
  const int64_t in = sae.d_in, n = sae.d_sae, out = sae.d_out;
  sae.W_enc = weights.get("W_enc", {in, n});
  sae.W_dec = weights.get("W_dec", {n, out});
  sae.b_dec = weights.get("b_dec", {out});
  if (sae.activation == SparseAutoencoder::Activation::gated) {
    sae.r_mag = weights.get("r_mag", {n});
    sae.b_mag = weights.get("b_mag", {n});
    sae.b_gate = weights.get("b_gate", {n});
  } else {
    sae.b_enc = weights.get("b_enc", {n});
  }
  if (architecture.ends_with("skip_transcoder")) sae.W_skip = weights.get("W_skip", {out, in});
  if (sae.activation != SparseAutoencoder::Activation::jumprelu) return;
  if (architecture.ends_with("batchtopk") && weights.has("topk_threshold")) {
    from_batch_topk(weights, sae);
  } else if (!weights.has("threshold") && weights.has("log_threshold")) {  // training checkpoints before SAELens 6.5
    sae.threshold = weights.get("log_threshold", {n});
    for (float& t : sae.threshold) t = std::exp(t);
  } else {
    sae.threshold = weights.get("threshold", {n});
  }
}

// SAELens's cfg.json. Before version 6 the metadata's keys stood beside the others.
SparseAutoencoder from_config(const Json& json, const std::string& path, std::string& architecture) {
  const ConfigReader config(json, path);
  const std::optional<ConfigReader> metadata = config.find_object("metadata");
  const auto said = [&](std::string_view key, ConfigReader::Names older = {}) -> std::string {
    if (metadata && metadata->has(key)) return metadata->string(key);
    return config.string(key, older, std::string());
  };

  SparseAutoencoder sae;
  using enum SparseAutoencoder::Activation;
  architecture = config.string("architecture", {}, "standard");
  const std::string function = config.string("activation_fn", {"activation_fn_str"}, std::string("relu"));
  const std::optional<ConfigReader> arguments = config.find_object("activation_fn_kwargs");
  if (architecture == "standard" && function == "topk") architecture = "topk";  // as it was before version 6
  if (function != "relu" && !(function == "topk" && architecture == "topk"))
    config.fail("activation_fn", "expected relu, or topk with architecture topk");
  if (architecture == "gated") {
    sae.activation = gated;
  } else if (architecture == "topk") {
    sae.activation = topk;
  } else if (architecture == "abstopk") {
    sae.activation = abs_topk;
  } else if (architecture.starts_with("jumprelu") || architecture == "batchtopk" || architecture == "matryoshka_batchtopk") {
    sae.activation = jumprelu;
  } else if (architecture != "standard" && architecture != "transcoder" && architecture != "skip_transcoder") {
    config.fail("architecture", std::string("expected ") + kArchitectures);
  }
  sae.transcoder = architecture.ends_with("transcoder");
  if (architecture.starts_with("jumprelu") && !sae.transcoder && architecture != "jumprelu")
    config.fail("architecture", std::string("expected ") + kArchitectures);
  sae.d_in = config.positive("d_in");
  sae.d_sae = config.positive("d_sae");
  sae.d_out = sae.transcoder ? config.positive("d_out") : sae.d_in;
  if (sae.activation == topk || sae.activation == abs_topk) {
    if (!config.has("k") && arguments && arguments->has("k")) {
      sae.k = arguments->positive("k");
    } else {
      const double k = config.number("k");
      if (k < 1 || k != std::floor(k) || k > static_cast<double>(sae.d_sae))
        config.fail("k", "expected a whole number from 1 to d_sae (" + std::to_string(sae.d_sae) + ")");
      sae.k = static_cast<int64_t>(k);
    }
  }
  sae.rescale_acts_by_decoder_norm = config.flag("rescale_acts_by_decoder_norm", {}, false);
  sae.apply_b_dec_to_input = !sae.transcoder && config.flag("apply_b_dec_to_input", {}, true);

  // true and false in old files. "expected_average_only_in" and "covariance_whitening" are folded into the weights when training
  // ends.
  const bool flag = json.contains("normalize_activations") && json["normalize_activations"].is_boolean();
  const std::string norm = flag ? "none" : config.string("normalize_activations", {}, "none");
  if (norm == "constant_norm_rescale") {
    sae.input_norm = SparseAutoencoder::InputNorm::constant_norm_rescale;
  } else if (norm == "layer_norm") {
    sae.input_norm = SparseAutoencoder::InputNorm::layer_norm;
  } else if (norm != "none" && norm != "expected_average_only_in" && norm != "covariance_whitening") {
    config.fail("normalize_activations",
                "expected none, expected_average_only_in, constant_norm_rescale, layer_norm or covariance_whitening");
  }

  sae.hook_name = said("hook_name", {"hook_point"});
  const std::string out = said("hook_name_out");
  sae.hook_name_out = out.empty() ? sae.hook_name : out;
  sae.model_name = said("model_name");
  return sae;
}

SparseAutoencoder read_saelens(const std::string& directory) {
  const std::string path = joined(directory, "cfg.json");
  std::string architecture;
  SparseAutoencoder sae = from_config(read_json(path, size_t{16} << 20), path, architecture);
  read_tensors(joined(directory, "sae_weights.safetensors"), architecture, sae);
  return sae;
}

// The number behind `word` in the path: "layer_20".
std::optional<int> number_after(const std::string& path, std::string_view word) {
  const size_t at = path.rfind(word);
  if (at == std::string::npos) return {};
  size_t end = at + word.size();
  int number = 0, digits = 0;
  while (end < path.size() && path[end] >= '0' && path[end] <= '9' && digits < 6)
    number = number * 10 + (path[end++] - '0'), ++digits;
  return digits > 0 ? std::optional(number) : std::nullopt;
}

// What both of Gemma Scope's have: JumpReLU, b_dec not taken from the input, names in small or large letters, the hook in the
// path.
SparseAutoencoder read_gemma_scope(const Checkpoint& file, const std::string& directory) {
  const StoredFloats weights(file);
  const auto named = [&](const char* name, const char* other) { return std::string(weights.has(name) ? name : other); };
  const std::string enc_name = named("w_enc", "W_enc"), dec_name = named("w_dec", "W_dec");
  const std::vector<int64_t> enc = weights.shape(enc_name), dec = weights.shape(dec_name);
  if (enc.size() != 2 || dec.size() != 2)
    throw FileError(file.path(), "" + enc_name + " is " + shape_text(enc) + " and " + dec_name + " " + shape_text(dec) +
                                     "; expected [d_in, d_sae] and [d_sae, d_out]");
  SparseAutoencoder sae;
  sae.activation = SparseAutoencoder::Activation::jumprelu;
  sae.apply_b_dec_to_input = false;
  sae.d_in = enc[0];
  sae.d_sae = enc[1];
  sae.d_out = dec[1];
  sae.W_enc = weights.get(enc_name, {sae.d_in, sae.d_sae});
  sae.W_dec = weights.get(dec_name, {sae.d_sae, sae.d_out});
  sae.b_enc = weights.get("b_enc", {sae.d_sae});
  sae.b_dec = weights.get("b_dec", {sae.d_out});
  sae.threshold = weights.get("threshold", {sae.d_sae});
  if (weights.has("affine_skip_connection")) {
    sae.W_skip = weights.get("affine_skip_connection", {sae.d_in, sae.d_out});
    transpose(sae.W_skip, sae.d_in, sae.d_out);
  }

  const std::string whole = std::filesystem::absolute(directory).lexically_normal().string();
  const auto says = [&](std::string_view word) { return whole.find(word) != std::string::npos; };
  sae.transcoder = says("transcoder") || !sae.W_skip.empty() || sae.d_in != sae.d_out;
  const std::optional<int> layer = number_after(whole, "layer_");
  if (!layer) return sae;
  const std::string block = "blocks." + std::to_string(*layer) + ".";
  if (sae.transcoder) {
    sae.hook_name = block + "ln2.hook_normalized_pre";  // TransformerLens's ln2.hook_normalized: before the norm's weight
    sae.hook_name_out = block + "hook_mlp_out";
    return sae;
  }
  // "gemma-scope-2b-pt-att/layer_3/…", "gemma-scope-2-1b-pt/attn_out/layer_3_…"
  if (says("attn_out") || says("-att/")) {
    sae.hook_name = block + "attn.hook_z";
  } else if (says("mlp_out") || says("-mlp/")) {
    sae.hook_name = block + "hook_mlp_out";
  } else if (says("resid_post") || says("-res/")) {
    sae.hook_name = block + "hook_resid_post";
  }
  sae.hook_name_out = sae.hook_name;
  return sae;
}

SparseAutoencoder read_gemma_scope_2(const std::string& directory) {
  const std::string path = joined(directory, "config.json");
  const ConfigReader config(read_json(path, size_t{16} << 20), path);
  if (config.string("architecture") != "jump_relu")
    config.fail("architecture", "expected jump_relu, which is what Gemma Scope 2 has");
  SparseAutoencoder sae = read_gemma_scope(open_safetensors(joined(directory, "params.safetensors")), directory);
  sae.model_name = config.string("model_name", {}, std::string());
  return sae;
}

SparseAutoencoder read_whatever_is_there(const std::string& path) {
  std::string directory = path;
  if (!is_folder(path)) {
    if (!present(path))
      throw FileError(
          path,
          "the file or directory does not exist; expected the directory of an autoencoder, with cfg.json and "
          "sae_weights.safetensors in it" +
              std::string(path.find(':') != std::string::npos && path.find('/') == std::string::npos
                              ? ". Is it SAELens's RELEASE:ID? `vitrine pull RELEASE:ID --sae-registry FILE` downloads "
                                "it, and prints its name for --sae"
                              : ""));
    directory = std::filesystem::path(path).parent_path().string();
    if (directory.empty()) directory = ".";
    const std::string name = std::filesystem::path(path).filename().string();
    if (name.ends_with(".safetensors") && name != "sae_weights.safetensors" && name != "params.safetensors")
      return read_layer_transcoder(path);
  }
  SparseAutoencoder sae;
  if (is_cross_layer(directory))
    throw FileError(directory,
                    "this is a cross-layer transcoder, which is not one autoencoder; `vitrine generate --sae` steers with it");
  if (present(joined(directory, "cfg.json"))) {
    sae = read_saelens(directory);
  } else if (present(joined(directory, "params.safetensors")) && present(joined(directory, "config.json"))) {
    sae = read_gemma_scope_2(directory);
  } else if (present(joined(directory, "params.npz"))) {
    sae = read_gemma_scope(open_npz(joined(directory, "params.npz")), directory);
  } else {
    throw FileError(directory,
                    "there is no cfg.json; expected an autoencoder in SAELens's form (cfg.json and "
                    "sae_weights.safetensors) or Gemma Scope's (params.npz, or config.json and params.safetensors)");
  }
  sae.check(directory);
  return sae;
}

}  // namespace

SparseAutoencoder read_sae(const std::string& path, const std::string& hook) {
  const std::optional<std::string> cached = present(path) ? std::nullopt : locate_folder(path);
  SparseAutoencoder sae = read_whatever_is_there(cached.value_or(path));
  if (hook.empty()) return sae;
  sae.hook_name = hook;
  if (!sae.transcoder) sae.hook_name_out = hook;
  return sae;
}

SparseAutoencoder subtracting_the_mean(SparseAutoencoder sae) {
  if (sae.input_norm == SparseAutoencoder::InputNorm::layer_norm) return sae;  // it subtracts the mean itself
  if (sae.input_norm != SparseAutoencoder::InputNorm::none)
    throw InputError("an autoencoder that scales its input to a norm cannot subtract the input's mean by its weights");
  for (int64_t o = 0; o < (sae.W_skip.empty() ? 0 : sae.d_out); ++o) {
    const std::span<float> row(sae.W_skip.data() + o * sae.d_in, static_cast<size_t>(sae.d_in));
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(sae.d_in);
    for (float& w : row) w -= static_cast<float>(mean);
  }
  // With C = 1 - 11ᵀ / d_in: (C x - b_dec) W + b = (x - b_dec) (C W) + b - sum(b_dec) · mean(W) of each column.
  const double shift = sae.apply_b_dec_to_input ? std::accumulate(sae.b_dec.begin(), sae.b_dec.end(), 0.0) : 0;
  const bool gated = sae.activation == SparseAutoencoder::Activation::gated;
  for (int64_t f = 0; f < sae.d_sae; ++f) {
    double sum = 0;
    for (int64_t i = 0; i < sae.d_in; ++i) sum += static_cast<double>(sae.W_enc[static_cast<size_t>(i * sae.d_sae + f)]);
    const double mean = sum / static_cast<double>(sae.d_in);
    for (int64_t i = 0; i < sae.d_in; ++i) sae.W_enc[static_cast<size_t>(i * sae.d_sae + f)] -= static_cast<float>(mean);
    const size_t at = static_cast<size_t>(f);
    if (!gated) {
      sae.b_enc[at] -= static_cast<float>(shift * mean);
    } else {
      sae.b_gate[at] -= static_cast<float>(shift * mean);
      sae.b_mag[at] -= static_cast<float>(shift * mean * std::exp(static_cast<double>(sae.r_mag[at])));
    }
  }
  return sae;
}

SparseAutoencoder sae_without_weights(const Json& config, const std::string& where) {
  std::string architecture;
  SparseAutoencoder sae = from_config(config, where, architecture);
  if (architecture.ends_with("batchtopk"))
    throw FileError(where, "architecture is " + architecture + ", which is one of training; its weights are those of jumprelu");
  return sae;
}

Json sae_config(const SparseAutoencoder& sae, const Json& extra) {
  using enum SparseAutoencoder::Activation;
  Json metadata = {{"sae_lens_version", "6.54.12"}, {"sae_lens_training_version", nullptr}};
  if (!sae.hook_name.empty()) metadata["hook_name"] = sae.hook_name;
  if (sae.transcoder && !sae.hook_name_out.empty()) metadata["hook_name_out"] = sae.hook_name_out;
  if (!sae.model_name.empty()) metadata["model_name"] = sae.model_name;
  metadata.update(extra);
  Json config = {
      {"architecture", architecture_name(sae)},
      {"d_in", sae.d_in},
      {"d_sae", sae.d_sae},
      {"dtype", "float32"},
      {"device", "cpu"},
      {"apply_b_dec_to_input", sae.apply_b_dec_to_input && !sae.transcoder},
      {"normalize_activations", sae.input_norm == SparseAutoencoder::InputNorm::none         ? "none"
                                : sae.input_norm == SparseAutoencoder::InputNorm::layer_norm ? "layer_norm"
                                                                                             : "constant_norm_rescale"},
      {"reshape_activations", sae.hook_name.ends_with("hook_z") ? "hook_z" : "none"},
      {"metadata", metadata}};
  if (sae.transcoder) config["d_out"] = sae.d_out;
  if (sae.activation == topk || sae.activation == abs_topk) {
    config["k"] = sae.k;
    config["rescale_acts_by_decoder_norm"] = sae.rescale_acts_by_decoder_norm;
  }
  return config;
}

void write_sae(const std::string& directory, const SparseAutoencoder& sae, const Json& extra) {
  sae.check(directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunError(directory + ": the directory cannot be made: " + error.message());
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* name, const FloatVector& w, std::vector<int64_t> shape) {
    if (!w.empty()) tensors.push_back({name, DType::f32, std::move(shape), w.data()});
  };
  add("W_enc", sae.W_enc, {sae.d_in, sae.d_sae});
  add("W_dec", sae.W_dec, {sae.d_sae, sae.d_out});
  add("b_enc", sae.b_enc, {sae.d_sae});
  add("b_dec", sae.b_dec, {sae.d_out});
  add("threshold", sae.threshold, {sae.d_sae});
  add("r_mag", sae.r_mag, {sae.d_sae});
  add("b_mag", sae.b_mag, {sae.d_sae});
  add("b_gate", sae.b_gate, {sae.d_sae});
  add("W_skip", sae.W_skip, {sae.d_out, sae.d_in});
  write_safetensors(joined(directory, "sae_weights.safetensors"), tensors);
  write_file_atomically(joined(directory, "cfg.json"), sae_config(sae, extra).dump(2) + "\n");
}

}  // namespace vitrine
