"""The gated delta rule as transformers computes it without a fused kernel, one row after the other.

usage: make.py
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.24)

gated_delta.safetensors: q, k [70, 2, 8], v [70, 6, 5], a, b [70, 6], A_log, dt_bias [6]; beta = sigmoid(b),
log_decay = -exp(A_log) softplus(a + dt_bias); z [70, 6, 5]; state [6, 8, 5] behind the last row. The chunked form gives the same.
"""
import pathlib
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule

g = torch.Generator().manual_seed(17)
rnd = lambda *s: torch.randn(*s, generator=g)
T = {"q": rnd(70, 2, 8), "k": rnd(70, 2, 8), "v": rnd(70, 6, 5), "a": rnd(70, 6), "b": 2 * rnd(70, 6)}
T["A_log"], T["dt_bias"] = torch.log(torch.rand(6, generator=g) * 2 + 0.01), rnd(6)
T["beta"], T["log_decay"] = T["b"].sigmoid(), -T["A_log"].exp() * F.softplus(T["a"] + T["dt_bias"])
one = lambda name: T[name][None]
results = [
    f(one("q"), one("k"), one("v"), g=one("log_decay"), beta=one("beta"), initial_state=None, output_final_state=True,
      use_qk_l2norm_in_kernel=True) for f in (torch_recurrent_gated_delta_rule, torch_chunk_gated_delta_rule)
]
torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)
T["z"], T["state"] = results[0][0][0], results[0][1][0]
save_file({k: v.contiguous().clone() for k, v in T.items()}, pathlib.Path(__file__).parent / "gated_delta.safetensors")
