#include "cli/commands.h"

namespace vitrine::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      predict_command,
      generate_command,
      chat_command,
      serve_command,
      tokenize_command,
      detokenize_command,
      {"tokenizer", "Train a tokenizer: tokenizer train", "", "", nullptr},
      tokenizer_train_command,
      data_command,
      trace_command,
      collect_command,
      {"sae", "Sparse autoencoders: sae train", "", "", nullptr},
      sae_train_command,
      {"lens", "Tuned lenses: lens train", "", "", nullptr},
      lens_train_command,
      explain_command,
      book_command,
      picture_command,
      intervene_command,
      attribute_command,
      units_command,
      features_command,
      graph_command,
      verify_command,
      circuits_command,
      compare_command,
      {"eval", "Evaluate a model: eval perplexity, eval choices, eval compare", "", "", nullptr},
      eval_perplexity_command,
      eval_choices_command,
      eval_compare_command,
      train_command,
      reward_command,
      curves_command,
      pull_command,
      convert_command,
      imatrix_command,
      merge_command,
      extract_lora_command,
      warp_command,
      distill_command,
      info_command,
      bench_command,
      completion_command,
      manual_command,
  };
  return table;
}

const std::vector<Purpose>& purposes() {
  static const std::vector<Purpose> table = {
      {"Run a model", {"predict", "generate", "chat", "serve"}},
      {"Inspect and evaluate a model",
       {"explain", "book", "picture", "attribute", "units", "trace", "collect", "circuits", "features", "graph", "eval",
        "compare", "verify", "bench"}},
      {"Change a model", {"intervene", "merge", "extract-lora", "convert", "imatrix"}},
      {"Train", {"train", "distill", "reward", "warp", "sae", "lens", "data", "tokenizer", "curves"}},
      {"Files and the program", {"pull", "info", "tokenize", "detokenize", "completion", "manual"}},
  };
  return table;
}

}  // namespace vitrine::cli
