"""Numbers of the pictures of merging: mergekit's SLERP on rows of the models' own weights, everything else in NumPy.

Run from the repository's root: python tests/golden/pictures/make_merging.py
needs: mergekit, torch, safetensors (made with mergekit 0.1.5, torch 2.15.0, NumPy 2.4.6)

merging.json:
  slerp     pairs of vectors a, b and mergekit's result for each t, in float64: at any angle, nearly parallel, just spherical,
            nearly opposite, at a right angle, with a vector of zeros.
  models    for each model the rows of its MLP's input matrix in one layer: which of the first 128 are most alike and most
            opposed, what lies between them, and their task vectors from the mean of those rows.
"""
import json, pathlib
import numpy as np, torch
from mergekit.merge_methods.slerp import slerp as mergekit_slerp
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[3]


def slerp(t, a, b):
    one = lambda v: torch.tensor(v, dtype=torch.float64)[None]
    return mergekit_slerp(torch.tensor([t], dtype=torch.float64), one(a), one(b))[0].numpy()


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


rng = np.random.default_rng(27)
a = rng.standard_normal(12)
turned = rng.standard_normal(12)
turned -= turned @ a / (a @ a) * a
turned /= np.linalg.norm(turned)
unit = a / np.linalg.norm(a)
pairs = {"general": (a, rng.standard_normal(12)), "parallel": (a, 1.3 * a + 1e-4 * turned), "spherical": (a, 2 * (0.9993 * unit + np.sqrt(1 - 0.9993**2) * turned)),
         "opposite": (a, -a + 1e-4 * turned), "right_angle": (a, 0.4 * turned), "obtuse": (a, -0.9 * a + 2 * turned), "zero": (a, 0 * a)}
out = {"slerp": [{"name": name, "a": x.tolist(), "b": y.tolist(), "results": [{"t": t, "result": slerp(t, x, y).tolist()} for t in (0, 0.25, 0.5, 0.9, 1)]}
                 for name, (x, y) in pairs.items()], "models": {}}

T = np.arange(41) / 40
for name, folder, tensor, columns in [("tales9m", "models/tales9m", "model.layers.{}.mlp.up_proj.weight", False), ("gemma2", "tests/golden/models/gemma2/model", "model.layers.{}.mlp.up_proj.weight", False),
                                      ("gpt2_a", "tests/golden/models/gpt2_a/model", "transformer.h.{}.mlp.c_fc.weight", True)]:
    tensors = {}
    for file in sorted((ROOT / folder).glob("*.safetensors")):
        tensors |= load_file(file)
    layer = json.loads((ROOT / folder / "config.json").read_text()).get("num_hidden_layers" if not columns else "n_layer") // 2
    key = tensor.format(layer)
    matrix = tensors[key if key in tensors else key.removeprefix("transformer.")].double().numpy()
    rows = (matrix.T if columns else matrix)[:128]
    unit_rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit_rows @ unit_rows.T
    upper = np.triu_indices(len(rows), 1)
    chosen = [int(np.argmax(cosines[upper])), 0, int(np.argmin(cosines[upper]))]
    made = []
    for i, j in dict.fromkeys((int(upper[0][k]), int(upper[1][k])) for k in chosen):
        x, y = rows[i], rows[j]
        made.append({"rows": [i, j], "lengths": [float(np.linalg.norm(x)), float(np.linalg.norm(y))], "cosine": cosine(x, y), "angle": float(np.arccos(cosine(x, y))),
                     "linearLengths": [float(np.linalg.norm((1 - t) * x + t * y)) for t in T], "slerpLengths": [float(np.linalg.norm(slerp(t, x, y))) for t in T],
                     # How near each point of the arc is to a and b: what the drawing in the plane must show.
                     "slerpToA": [float(np.linalg.norm(slerp(t, x, y) - x)) for t in T], "slerpToB": [float(np.linalg.norm(slerp(t, x, y) - y)) for t in T]})
    start = rows.mean(0)
    i, j = made[0]["rows"]
    x, y = rows[i] - start, rows[j] - start
    merged = slerp(0.5, x, y)
    etas = np.arange(11) / 10
    out["models"][name] = {"layer": layer, "shape": list((matrix.T if columns else matrix).shape), "pairs": made,
                           "tasks": {"initialLength": float(np.linalg.norm(start)), "taskLengths": [float(np.linalg.norm(x)), float(np.linalg.norm(y))], "taskCosine": cosine(x, y),
                                     "averageLength": float(np.linalg.norm((x + y) / 2)), "slerpLength": float(np.linalg.norm(merged)),
                                     "mergedLengths": {"average": float(np.linalg.norm(start + (x + y) / 2)), "slerp": float(np.linalg.norm(start + merged))},
                                     "litiDistances": [float(np.linalg.norm(e * merged)) for e in etas], "litiLengths": [float(np.linalg.norm(start + e * merged)) for e in etas],
                                     "slerpToA": float(np.linalg.norm(merged - x)), "slerpToB": float(np.linalg.norm(merged - y))}}
(pathlib.Path(__file__).parent / "merging.json").write_text(json.dumps(out) + "\n")
