#pragma once
// A model that gives a text one number instead of next tokens: transformers' …ForSequenceClassification with one label.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/huggingface.h"
#include "model/model.h"

namespace vitrine {

/// The blocks of a language model with a head of one output, score.weight [1, d_model], in the place of the matrix over the
/// vocabulary. Nothing is added to its product.
class RewardModel final : public Model {
 public:
  explicit RewardModel(std::unique_ptr<Model> model);

  Tensor residual(Context& ctx, const Step& step) const override { return model_->residual(ctx, step); }
  Tensor embedded(Context& ctx, const Step& step) const override { return model_->embedded(ctx, step); }
  Head head() const override { return {.weight = &score_}; }
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override {
    return model_->first_sublayer(ctx, step, layer, x);
  }
  std::span<const Expert> experts(int64_t layer) const override { return model_->experts(layer); }
  Json config(ConfigFormat format) const override { return model_->config(format); }
  Form form() const override { return model_->form(); }

  static constexpr const char* kScore = "score.weight";

 private:
  std::unique_ptr<Model> model_;
  Weight score_;
};

/// Makes the files of a language model those of a reward model whose score is zeros; of a reward model, keeps its own.
/// Errors: InputError, beginning with `where`, for a family without reward models. A GGUF file is refused when it is opened.
void open_for_rewards(ModelFiles& files, const std::string& where);

/// The id that fills up texts in transformers, which reads a reward off the last token that is another: pad_token_id, or -1.
int32_t padding_of(const ModelFiles& files);
/// Names it where the configuration names none; transformers needs it to read rewards of several texts at once.
void set_missing_padding(ModelFiles& files, int32_t padding);

/// The row of each sequence that its reward is read off. `padding`: as padding_of().
std::vector<int64_t> reward_rows(std::span<const int32_t> tokens, std::span<const int64_t> lengths, int32_t padding);

}  // namespace vitrine
