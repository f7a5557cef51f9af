#pragma once
// Each command's define function (see command.h), named here once for the table.
#include "cli/command.h"

namespace vitrine::cli {

Action define_attribute(CLI::App& app);
Action define_bench(CLI::App& app);
Action define_chat(CLI::App& app);
Action define_circuits(CLI::App& app);
Action define_collect(CLI::App& app);
Action define_compare(CLI::App& app);
Action define_completion(CLI::App& app);
Action define_convert(CLI::App& app);
Action define_data(CLI::App& app);
Action define_detokenize(CLI::App& app);
Action define_distill(CLI::App& app);
Action define_eval_choices(CLI::App& app);
Action define_eval_compare(CLI::App& app);
Action define_eval_perplexity(CLI::App& app);
Action define_explain(CLI::App& app);
Action define_extract_lora(CLI::App& app);
Action define_features(CLI::App& app);
Action define_graph(CLI::App& app);
Action define_generate(CLI::App& app);
Action define_imatrix(CLI::App& app);
Action define_info(CLI::App& app);
Action define_intervene(CLI::App& app);
Action define_manual(CLI::App& app);
Action define_merge(CLI::App& app);
Action define_picture(CLI::App& app);
Action define_predict(CLI::App& app);
Action define_pull(CLI::App& app);
Action define_sae_train(CLI::App& app);
Action define_serve(CLI::App& app);
Action define_tokenize(CLI::App& app);
Action define_tokenizer_train(CLI::App& app);
Action define_trace(CLI::App& app);
Action define_train(CLI::App& app);
Action define_curves(CLI::App& app);
Action define_units(CLI::App& app);
Action define_verify(CLI::App& app);
Action define_warp(CLI::App& app);

}  // namespace vitrine::cli
