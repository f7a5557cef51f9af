#pragma once
// Each command (see command.h), named here once for the table.
#include "cli/command.h"

namespace vitrine::cli {

extern const Command attribute_command, bench_command, book_command, chat_command, circuits_command, collect_command,
    compare_command, completion_command, convert_command, curves_command, data_command, detokenize_command, distill_command,
    eval_choices_command, eval_compare_command, eval_perplexity_command, explain_command, extract_lora_command, features_command,
    generate_command, graph_command, imatrix_command, info_command, intervene_command, lens_train_command, manual_command,
    merge_command, picture_command, predict_command, pull_command, reward_command, sae_train_command, serve_command,
    tokenize_command, tokenizer_train_command, trace_command, train_command, units_command, verify_command, warp_command;

}  // namespace vitrine::cli
