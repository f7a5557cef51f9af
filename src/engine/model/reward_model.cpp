#include "model/reward_model.h"

#include "base/error.h"
#include "model/config_file.h"
#include "model/registry.h"

namespace vitrine {
namespace {

ModelShape untied(ModelShape shape) {
  shape.tied = false;
  return shape;
}

}  // namespace

RewardModel::RewardModel(std::unique_ptr<Model> model) : Model(untied(model->shape())), model_(std::move(model)) {
  std::vector<TensorLine> lines;
  for (const TensorLine& line : model_->tensors())
    if (line.ours != "W_U" && line.ours != "b_U") lines.push_back(line);
  TensorList score;
  score.add(score_, "W_score", kScore, "", {"num_labels", 1}, {"d_model", shape().d_model});
  lines.push_back(score.take().front());
  set_tensors(std::move(lines));
}

void open_for_rewards(ModelFiles& files, const std::string& where) {
  files.rewards = true;
  if (files.kind == ModelFiles::Kind::gguf) return;  // which opening refuses
  Json rewards = files.config;
  set_config_rewards(rewards, where);
  files.fresh_score = files.config.value("architectures", Json()) != rewards.at("architectures");
  files.config = std::move(rewards);
}

int32_t padding_of(const ModelFiles& files) {
  const std::vector<int64_t> ids = config_token_ids(files, "pad_token_id");
  return ids.empty() ? -1 : static_cast<int32_t>(ids.front());
}

void set_missing_padding(ModelFiles& files, int32_t padding) {
  if (padding_of(files) < 0) files.config["pad_token_id"] = padding;
}

std::vector<int64_t> reward_rows(std::span<const int32_t> tokens, std::span<const int64_t> lengths, int32_t padding) {
  std::vector<int64_t> rows;
  int64_t first = 0;
  for (const int64_t length : lengths) {
    int64_t row = first + length - 1;
    while (row > first && tokens[static_cast<size_t>(row)] == padding) --row;
    rows.push_back(row);
    first += length;
  }
  return rows;
}

}  // namespace vitrine
