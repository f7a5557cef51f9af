"""Norms, activations, RoPE and sinusoidal positions in float64.

usage: make.py
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.24.0)

blocks.safetensors, blocks/...:  x [3, 10], w, b [10]; layer_norm_eps1e-5, rms_norm_eps1e-6, rms_norm_gemma_eps1e-6 (weight w - 1
under the rule 1 + weight), gelu_exact, gelu_tanh, silu, relu2, quick_gelu, tanh, softcap30, softmax of x; rope_q [40, 16] at positions 0 to 39 turned in
both layouts (rope_half_split, rope_interleaved), rope_cos, rope_sin, rope_wavelengths_dim16, sinusoidal_positions_interleaved.
"""
import math, pathlib
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers.activations import ACT2FN

g = torch.Generator().manual_seed(5)
rnd = lambda *s: torch.randn(*s, generator=g, dtype=torch.float64)
T = {}
x, w, b = rnd(3, 10) * 3, 1 + 0.2 * rnd(10), 0.1 * rnd(10)
T["x"], T["w"], T["b"] = x, w, b
T["layer_norm_eps1e-5"] = F.layer_norm(x, (10,), w, b, 1e-5)
T["rms_norm_eps1e-6"] = F.rms_norm(x, (10,), w, 1e-6)
T["rms_norm_gemma_eps1e-6"] = F.rms_norm(x, (10,), 1 + (w - 1), 1e-6)
T["gelu_exact"], T["gelu_tanh"], T["silu"] = F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x)
for name in ("relu2", "quick_gelu", "tanh"):
    T[name] = ACT2FN[name](x)
T["softcap30"], T["softmax"] = 30 * torch.tanh(x / 30), torch.softmax(x, -1)
position, dim = torch.arange(40, dtype=torch.float64), 16
frequency = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
angle, q = position[:, None] * frequency, rnd(40, dim)
turned = torch.polar(torch.ones_like(angle), angle)  # a turn is a product of complex numbers
half, pairs = torch.complex(q[:, :8], q[:, 8:]) * turned, torch.complex(q[:, 0::2], q[:, 1::2]) * turned
T["rope_q"], T["rope_cos"], T["rope_sin"], T["rope_wavelengths_dim16"] = q, turned.real, turned.imag, 2 * math.pi / frequency
T["rope_half_split"] = torch.cat([half.real, half.imag], -1)
T["rope_interleaved"] = torch.stack([pairs.real, pairs.imag], -1).reshape(40, dim)
T["sinusoidal_positions_interleaved"] = torch.stack([angle.sin(), angle.cos()], -1).reshape(40, dim)
save_file({"blocks/" + k: v.contiguous().clone() for k, v in T.items()}, pathlib.Path(__file__).parent / "blocks.safetensors")
