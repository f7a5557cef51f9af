#pragma once
// What all families share around their blocks: the embedding, the loop over the layers, the final norm, the head, and the first
// and last lines of the list of tensors. A family that does one of these in another way overrides it.
// T rows of the step, D d_model, V vocab_size.
#include "model/config.h"
#include "model/part_list.h"

namespace vitrine {

/// A stack of blocks between an embedding and a head.
class Decoder : public Model {
 public:
  explicit Decoder(const ModelShape& shape) : Model(shape) {}
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;

 protected:
  /// One layer, from the stream that enters it to the stream that leaves it, [T, D]: what a family is. Called by residual(); a
  /// family whose layers pass on more than the stream overrides that instead.
  virtual Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  virtual Tensor final_norm(Context& ctx, const Tensor& x) const = 0;
  /// Tied: the same rows look tokens up and score them.
  const Weight* unembedding() const { return shape().tied ? &W_E : &W_U; }

  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
};

/// A decoder with RMSNorm and RoPE.
class RopeDecoder : public Decoder {
 public:
  explicit RopeDecoder(const DecoderConfig& config);

 protected:
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  /// Scores divided by sqrt(head_dim), keys within the layer's window.
  virtual AttentionSpec attention_spec(int64_t layer) const;
  virtual const RopeSpec& rope_spec(int64_t) const { return common_.rope; }

  /// A list that begins with the embedding; the parts of the blocks follow.
  PartList begin_tensors(const StoredLayout& norms = {}, const StoredLayout& qk = {});
  /// Ends it with the final norm and the unembedding, and makes it the model's.
  void end_tensors(PartList& list);

  RmsNorm ln_final{{"ln_final", "model.norm", "output_norm"}};  // [D]

 private:
  const DecoderConfig common_;
};

}  // namespace vitrine
