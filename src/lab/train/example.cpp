#include "train/example.h"

#include <fmt/format.h>

#include "io/yaml_reader.h"

namespace vitrine {

std::string example_train_config(const std::string& model) {
  return fmt::format(R"(# Fine-tunes a small model on Aesop's fables: a minute or two. Prepare the data first, then train:
#   vitrine data examples/fables.txt --document '\n\n\n' --valid 0.2 --out fables
#   vitrine train --example > fables.yaml
#   vitrine train fables.yaml
# docs/training.md explains every key.

model: {model}        # a Hugging Face directory to go on from
# For fresh weights:
# model:
#   config: {{model_type: gpt2, n_embd: 128, n_layer: 4, n_head: 4, n_positions: 128, vocab_size: 6144}}
#   tokenizer: {model}

data:
  train: fables/train        # made by `vitrine data`
  validation: fables/valid

sequence_length: 64
batch: 2
accumulate: 2                # batches of a step: the same gradient as batch: 4
steps: 12

optimizer:
  name: adamw                # or sgd
  lr: 1e-4
  betas: [0.9, 0.95]
  weight_decay: 0.1          # of matrices; norms and biases are left alone
schedule:
  warmup: 4                  # steps that rise to lr; then along a cosine
  minimum: 1e-5
clip: 1                      # largest norm of the whole gradient
# compute: bf16              # products in bf16 where the CPU has them
# ema: 0.999                 # also keep an average of the weights, in step-N/ema
# lora: {{rank: 8, alpha: 16, targets: [q_proj, v_proj]}}   # an adapter learns, the model stays: docs/lora.md

eval_every: 6                # steps
sample_every: 6
sample_prompts: ["A Fox saw"]
sample_tokens: 24
checkpoint:
  every: 6
  keep: 2                    # the newest two, and the best
layers_every: 6              # gradient norm and update-to-weight ratio of each layer in metrics.jsonl

out: fables-run              # metrics.jsonl, step-N/, last, best
)",
                     fmt::arg("model", yaml_quoted(model)));
}

}  // namespace vitrine
