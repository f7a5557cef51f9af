#pragma once
// The tensors of a layer with experts, in the forms that files have them.
#include "model/part_list.h"

namespace vitrine {

/// What a family's Hugging Face files call them, without the layer's prefix.
struct ExpertNames {
  const char* router = "mlp.gate";      // and ".weight"
  const char* experts = "mlp.experts";  // of one expert: and ".<e>.<matrix>.weight"
  const char *gate = "gate_proj", *in = "up_proj", *out = "down_proj";
};

/// Adds "mlp.W_router" and, for each expert, "mlp.experts.<e>.W_gate", "W_in" and "W_out".
/// GGUF stacks each of them over the experts. A Hugging Face file has a tensor each, or, if `stacked`, as transformers 5 holds
/// them, `experts`.gate_up_proj [E, 2 F, D], with an expert's gate before its up, and `experts`.down_proj [E, D, F].
void add_experts(PartList& list, ExpertMlp& mlp, const ExpertSpec& spec, bool stacked, const ExpertNames& names = {});

}  // namespace vitrine
