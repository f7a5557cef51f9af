#pragma once
// Models for tests of the scheduler: golden ones made for long texts, and one that fails at a token.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "io/huggingface.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {

/// A copy of a golden model whose context is longer: nothing else in its configuration goes by that.
inline std::string with_context(const Scratch& scratch, const std::string& family, int64_t positions) {
  const std::string to = scratch / (family + std::to_string(positions));
  std::filesystem::copy(Golden::open(family).model(), to, std::filesystem::copy_options::recursive);
  Json config = read_json(to + "/config.json");
  config[family == "bloom" ? "seq_length" : "max_position_embeddings"] = positions;
  if (config.contains("text_config")) config["text_config"]["max_position_embeddings"] = positions;
  scratch.write(family + std::to_string(positions) + "/config.json", config.dump());
  return to;
}

/// A small Mistral whose stream is NaN from a token on: its row of the embedding is.
inline std::string with_nan_at(const Scratch& scratch, int32_t token) {
  const Json config = small_mistral(100);
  write_random_model(scratch.path(), config);
  const std::string path = scratch / "model.safetensors";
  std::string bytes = read_file(path, size_t{1} << 30);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json tensors = Json::parse(bytes.substr(8, header));
  const size_t begin = tensors["model.embed_tokens.weight"]["data_offsets"][0].get<size_t>();
  const size_t row = 8 + header + begin + static_cast<size_t>(token) * config["hidden_size"].get<size_t>() * sizeof(float);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + row, &nan, sizeof nan);
  scratch.write("model.safetensors", bytes);
  return scratch.path();
}

/// Token ids that depend on the seed, from 1 to `most`.
inline std::vector<int32_t> random_ids(uint64_t seed, size_t length, int32_t most) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < length; ++at)
    ids.push_back(1 + static_cast<int32_t>(philox(seed, at, 0)[0] % static_cast<uint32_t>(most)));
  return ids;
}

}  // namespace vitrine
