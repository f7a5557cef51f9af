#pragma once
// The tensors of a layer with experts, in the forms that files have them.
#include "model/part_list.h"

namespace vitrine {

/// What a family's Hugging Face files call them, without the layer's prefix, and how they hold them.
struct ExpertNames {
  const char* router = "mlp.gate";                                      // and ".weight"
  const char* experts = "mlp.experts";                                  // of one expert: and ".<e>.<matrix>.weight"
  const char *gate = "gate_proj", *in = "up_proj", *out = "down_proj";  // gate null: experts have none
  // Of tensors that hold those of all, where that is not `experts`.gate_up_proj and `experts`.down_proj:
  std::string gate_in_of_all = {}, out_of_all = {};
  bool by_columns = false;  // stacked tensors are [E, D, 2 F] and [E, F, D]
};

/// Of files that hold a tensor for each expert, as Mixtral's and Phi-3.5-MoE's are published.
inline const ExpertNames kPublishedMixtral{
    .router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts", .gate = "w1", .in = "w3", .out = "w2"};

/// Adds "mlp.W_router" and, for each expert, "mlp.experts.<e>.W_gate", "W_in" and "W_out".
/// GGUF stacks each of them over the experts. A Hugging Face file has a tensor each, or, if `stacked`, as transformers 5 holds
/// them, `experts`.gate_up_proj [E, 2 F, D], with an expert's gate before its up, and `experts`.down_proj [E, D, F]; without
/// gates `experts`.up_proj [E, F, D]. width: of what they read and give, if it is not D.
void add_experts(PartList& list, ExpertMlp& mlp, const ExpertSpec& spec, bool stacked, const ExpertNames& names = {},
                 int64_t width = 0);

/// Adds "mlp.correction" of the router's scores, and makes it part of the layer's ExpertSpec. as_row: the Hugging Face file has
/// it as [1, E].
void add_correction(PartList& list, ExpertMlp& mlp, std::string_view huggingface, bool as_row = false);

/// Adds its gate, "shared.gate"; huggingface: without ".weight". Comes before add_shared.
void add_shared_gate(PartList& list, SharedExpert& shared, const std::string& huggingface);
/// Adds "shared.W_gate", "shared.W_in" and "shared.W_out" with d_ff hidden units; huggingface: "mlp.shared_experts".
void add_shared(PartList& list, SharedExpert& shared, int64_t d_ff, const std::string& huggingface);

}  // namespace vitrine
