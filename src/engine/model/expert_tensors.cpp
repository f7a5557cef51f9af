#include "model/expert_tensors.h"

namespace vitrine {

void add_experts(PartList& list, ExpertMlp& mlp, const ExpertSpec& spec, bool stacked, const ExpertNames& names, int64_t width) {
  const Dim D = list.size.D, E{"n_experts", spec.count}, F{"d_ff of an expert", spec.d_ff};
  const Dim R = width > 0 ? Dim{"width of experts", width} : D;
  const auto n = static_cast<int>(spec.count);
  const std::string experts = names.experts;
  const std::string gate_in = names.gate_in_of_all.empty() ? experts + ".gate_up_proj" : names.gate_in_of_all;
  const std::string all_out = names.out_of_all.empty() ? experts + ".down_proj" : names.out_of_all;
  mlp.spec = spec;
  mlp.experts.resize(static_cast<size_t>(spec.count));
  list.add(mlp.router, "mlp.W_router", std::string(names.router) + ".weight", "ffn_gate_inp.weight", E, D);
  for (int e = 0; e < n; ++e) {
    Expert& expert = mlp.experts[static_cast<size_t>(e)];
    const std::string ours = "mlp.experts." + std::to_string(e) + ".";
    const auto add = [&](Weight& weight, const char* our, const char* name, const std::string& together, const char* gguf,
                         int part, int parts, Dim out, Dim in) {
      const std::string alone = experts + "." + std::to_string(e) + "." + name + ".weight";
      StoredLayout layout{.expert = e, .experts = n, .experts_stacked = stacked};
      if (stacked) {
        layout.by_columns = names.by_columns;
        layout.part = part;
        layout.parts = parts;
        layout.gguf_apart = parts > 1;
      }
      list.add(weight, ours + our, stacked ? together : alone, gguf, out, in, layout);
    };
    if (names.gate != nullptr) {
      add(expert.gate, "W_gate", names.gate, gate_in, "ffn_gate_exps.weight", 0, 2, F, R);
      add(expert.in, "W_in", names.in, gate_in, "ffn_up_exps.weight", 1, 2, F, R);
    } else {
      add(expert.in, "W_in", names.in, experts + "." + names.in, "ffn_up_exps.weight", 0, 1, F, R);
    }
    add(expert.out, "W_out", names.out, all_out, "ffn_down_exps.weight", 0, 1, R, F);
  }
}

void add_correction(PartList& list, ExpertMlp& mlp, std::string_view huggingface, bool as_row) {
  list.add(mlp.correction, "mlp.correction", huggingface, "exp_probs_b.bias", {"n_experts", mlp.spec.count},
           {.gguf_flat = as_row, .constant = true});
  mlp.spec.correction = &mlp.correction;
}

void add_shared_gate(PartList& list, SharedExpert& shared, const std::string& huggingface) {
  list.add(shared.gate, "shared.gate", huggingface + ".weight", "ffn_gate_inp_shexp.weight", {"one gate", 1}, list.size.D,
           {.gguf_flat = true});
}

void add_shared(PartList& list, SharedExpert& shared, int64_t d_ff, const std::string& huggingface) {
  const Dim D = list.size.D, S{"d_ff of the shared expert", d_ff};
  shared.f = list.spec.activation;
  list.add(shared.W_gate, "shared.W_gate", huggingface + ".gate_proj.weight", "ffn_gate_shexp.weight", S, D);
  list.add(shared.W_in, "shared.W_in", huggingface + ".up_proj.weight", "ffn_up_shexp.weight", S, D);
  list.add(shared.W_out, "shared.W_out", huggingface + ".down_proj.weight", "ffn_down_shexp.weight", D, S);
}

}  // namespace vitrine
