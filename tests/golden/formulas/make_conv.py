"""Causal depthwise convolutions and their gradients in float64, by torch.nn.functional.conv1d.

usage: make_conv.py
needs: torch, safetensors (made with torch 2.15.0)

conv.safetensors, for each kernel size K in 1, 3, 4, 9 under conv<K>/: x [7, 5], w [5, K], b [5], dy [7, 5]; y without bias, silu
with bias and SiLU, both [7, 5]; of sum(silu · dy): dx, dw, db.
"""
import pathlib
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

g = torch.Generator().manual_seed(9)
rnd = lambda *s: torch.randn(*s, generator=g, dtype=torch.float64)
T = {}
for K in (1, 3, 4, 9):
    x, w, b, dy = rnd(7, 5).requires_grad_(), rnd(5, K).requires_grad_(), rnd(5).requires_grad_(), rnd(7, 5)
    conv = lambda bias: F.conv1d(F.pad(x.T[None], (K - 1, 0)), w[:, None], bias, groups=5)[0].T
    silu = F.silu(conv(b))
    (silu * dy).sum().backward()
    values = dict(x=x, w=w, b=b, dy=dy, y=conv(None), silu=silu, dx=x.grad, dw=w.grad, db=b.grad)
    T |= {f"conv{K}/{name}": t.detach().contiguous().clone() for name, t in values.items()}
save_file(T, pathlib.Path(__file__).parent / "conv.safetensors")
