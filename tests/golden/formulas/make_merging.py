"""EMA, LITI and SLERP of task vectors (arXiv:2406.16768, equations 1 to 4) in float64.

usage: make_merging.py
needs: torch, safetensors (made with torch 2.15.0)

merging.safetensors: init, a, b, c: checkpoints of one layer with two tensors, w [5, 4] and v [3]; ema_0.2/w, /v (the average over
init, a, b, c with the rate 0.2); liti_<eta>/… (init towards c); slerp_<t>/… (task vectors of a and b, an angle for each tensor);
slerp_layer_<t>/… (one angle for the layer); slerp_three/… (a, b, c, one angle for the layer: slerp of the slerp with 1/3);
near/…: a checkpoint whose task vector is parallel to that of a; slerp_near_0.25/…: of a and it, linear.
"""
import math, pathlib
import torch
from safetensors.torch import save_file

g = torch.Generator().manual_seed(11)
rnd = lambda *s: torch.randn(*s, generator=g, dtype=torch.float64).float().double()  # what f32 holds
T = {}
put = lambda name, w, v: T.update({name + "/w": w, name + "/v": v})
flat = lambda m: torch.cat([m[0].flatten(), m[1].flatten()])
cut = lambda x: (x[:20].reshape(5, 4), x[20:])


def slerp(t, a, b):
    cosine = float(a.flatten() @ b.flatten() / (a.norm() * b.norm()))
    if abs(cosine) > 0.9995:
        return torch.lerp(a, b, t)
    angle = math.acos(cosine)
    return (math.sin((1 - t) * angle) * a + math.sin(t * angle) * b) / math.sin(angle)


init, a, b, c = [(rnd(5, 4), rnd(3)) for _ in range(4)]
for name, m in zip(("init", "a", "b", "c"), (init, a, b, c)):
    put(name, *m)
ema = init
for m in (a, b, c):
    ema = tuple(torch.lerp(e, x, 0.2) for e, x in zip(ema, m))
put("ema_0.2", *ema)
for eta in (0.0, 0.3, 1.0, 1.2):
    put(f"liti_{eta}", *(torch.lerp(i, x, eta) for i, x in zip(init, c)))
for t in (0.25, 0.5):
    put(f"slerp_{t}", *(i + slerp(t, x - i, y - i) for i, x, y in zip(init, a, b)))
    put(f"slerp_layer_{t}", *cut(flat(init) + slerp(t, flat(a) - flat(init), flat(b) - flat(init))))
both = slerp(1 / 2, flat(a) - flat(init), flat(b) - flat(init))
put("slerp_three", *cut(flat(init) + slerp(1 / 3, both, flat(c) - flat(init))))
near = tuple((i + 1.01 * (x - i)).float().double() for i, x in zip(init, a))
put("near", *near)
put("slerp_near_0.25", *cut(flat(init) + slerp(0.25, flat(a) - flat(init), flat(near) - flat(init))))
save_file({k: v.contiguous().clone() for k, v in T.items()}, pathlib.Path(__file__).parent / "merging.safetensors")
print(torch.__version__, len(T), "tensors")
