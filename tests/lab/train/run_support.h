#pragma once
// A small run for the tests: data, configuration, and what its folder holds afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/philox.h"
#include "support/scratch.h"
#include "train/data/token_data_writer.h"
#include "train/train.h"

namespace vitrine {

/// Token data that can be learned: words of a small language, in documents of 20 to 60 tokens.
inline std::string small_data(const Scratch& scratch, const std::string& name, int documents, uint64_t seed,
                              uint64_t tokenizer = 1) {
  const std::string path = scratch / name;
  std::filesystem::create_directories(path);
  TokenDataWriter writer(path, {.vocab_size = 61, .tokenizer = tokenizer});
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> ids = {static_cast<int32_t>(d % 61)};
    const uint32_t length = 20 + philox(seed, static_cast<uint64_t>(d), 1)[0] % 40;
    for (uint32_t i = 1; i < length; ++i) {
      const uint32_t noise = philox(seed, static_cast<uint64_t>(d), i + 2)[0] % 4;
      ids.push_back(static_cast<int32_t>((static_cast<uint32_t>(ids.back()) * 2 + noise) % 61));
    }
    writer.add(ids, ids.size());
    writer.end_document();
  }
  writer.finish();
  return path;
}

/// Trains and stops behind that step, as Ctrl-C does; to be resumed.
inline TrainResult train_up_to(const TrainConfig& config, int64_t step) {
  const auto done = std::make_shared<int64_t>(0);
  TrainEvents cut;
  cut.stepped = [done](const StepReport& r, const TrainEvents::Rate&) { *done = r.step; };
  cut.stop = [done, step] { return *done >= step; };
  return train(config, false, cut);
}

/// A run of 12 steps of a GPT-2 with dropout; `extra` is added at the end.
inline std::string small_config(const Scratch& scratch, const std::string& out, const std::string& extra = "") {
  return "model:\n"
         "  config: {model_type: gpt2, n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 61, n_positions: 32,\n"
         "           embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}\n"
         "data: {train: " +
         scratch / "data" + ", validation: " + scratch / "valid" +
         "}\n"
         "sequence_length: 16\nbatch: 3\naccumulate: 2\nsteps: 12\nseed: 5\n"
         "optimizer: {name: adamw, lr: 1e-2}\nschedule: {warmup: 3, minimum: 1e-3}\n"
         "eval_every: 4\ncheckpoint: {every: 3, keep: 2}\n"
         "out: " +
         out + "\n" + extra;
}

inline std::string weights_bytes(const std::string& checkpoint) {
  return read_file(checkpoint + "/model.safetensors") + read_file(checkpoint + "/training/optimizer.safetensors");
}

/// The lines of metrics.jsonl without what two runs do not share: rates, and when checkpoints were saved.
inline std::vector<Json> metrics_of(const std::string& run) {
  std::vector<Json> lines;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    lines.push_back(Json::parse(line));
    for (const char* own : {"tokens_per_s", "peak_share", "saved"}) lines.back().erase(own);
  }
  return lines;
}

/// Expects these numbers of every line that has them to agree to 1e-4.
inline void expect_near(const std::vector<Json>& got, const std::vector<Json>& want, std::initializer_list<const char*> keys) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    for (const char* key : keys)
      if (want[i].contains(key)) {
        const double wanted = want[i].at(key).get<double>();
        EXPECT_NEAR(got[i].at(key).get<double>(), wanted, 1e-4 * std::max(1.0, std::abs(wanted))) << key << " " << i;
      }
}

inline std::vector<std::string> names_under(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace vitrine
