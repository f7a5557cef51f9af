"""Processed scores of each sampling rule, by transformers' own classes where it has the rule.

Writes sampling.json (the cases, with the rules in their order) and sampling.safetensors (raw rows and processed rows; a dropped
token is -inf). Run with transformers 5.x: python make_sampling.py
torch.sort orders equal scores arbitrarily (the AVX sort is not stable), so which of them top-p drops at the border is undefined
there; here it sorts stably: the lower id is dropped first.
frequency and presence penalties are OpenAI's: s[t] -= c[t] * frequency + (c[t] > 0) * presence, computed here in numpy.
"""
import json, os
import numpy as np
import torch
from safetensors.torch import save_file
from transformers.generation.logits_process import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
                                                    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper)

HERE = os.path.dirname(os.path.abspath(__file__))
V = 257
unstable_sort = torch.sort
torch.sort = lambda x, **options: unstable_sort(x, stable=True, **options)
rng = np.random.default_rng(20261)


def penalty(kind, value):
    def apply(prompt, generated, s):
        c = np.zeros(V)
        for t in generated:
            c[t] += 1
        change = value * c if kind == "frequency" else value * (c > 0)
        return s - torch.tensor(change.astype(np.float32))[None]
    return apply


def rule(name, value):
    if name in ("frequency", "presence"):
        return penalty(name, value)
    made = {"bias": lambda: SequenceBiasLogitsProcessor({(t,): float(b) for t, b in value}), "repetition": lambda: RepetitionPenaltyLogitsProcessor(value),
            "temperature": lambda: TemperatureLogitsWarper(value), "top_k": lambda: TopKLogitsWarper(value), "top_p": lambda: TopPLogitsWarper(value),
            "min_p": lambda: MinPLogitsWarper(value), "typical": lambda: TypicalLogitsWarper(value)}[name]()
    return lambda prompt, generated, s: made(torch.tensor([prompt + generated]), s)


rows = {"gauss": rng.normal(0, 3, V), "peaked": rng.normal(0, 1, V), "flat": rng.normal(0, 0.02, V), "ties": np.round(rng.normal(0, 2, V)),
        "equal": np.zeros(V), "two_levels": (np.arange(V) % 5 == 0) * 2.0}
rows["peaked"][77] = 14
rows["wide"] = rng.normal(0, 40, V)
prompt = rng.integers(0, V, 12).tolist()
generated = rng.integers(0, V, 20).tolist() + [5, 5, 5, 77, 77]

single = [("temperature", [0.1, 0.7, 1.8]), ("top_k", [1, 7, 40, 256, 257, 1000]), ("top_p", [0.0, 0.05, 0.3, 0.5, 0.9, 0.999]),
          ("min_p", [0.0, 0.02, 0.5, 1.0]), ("typical", [0.05, 0.2, 0.5, 0.9, 0.99]), ("repetition", [0.8, 1.3]), ("frequency", [0.5, -0.7]), ("presence", [1.25]),
          ("bias", [[[3, 2.5], [77, -100.0], [5, -0.25]]])]
chains = [[["bias", [[9, 4.0]]], ["repetition", 1.2], ["frequency", 0.4], ["presence", 0.3], ["temperature", 0.8], ["top_k", 50], ["top_p", 0.9], ["min_p", 0.05], ["typical", 0.7]],
          [["top_k", 30], ["temperature", 2.0], ["top_p", 0.8]], [["top_p", 0.6], ["top_k", 10], ["temperature", 0.5], ["repetition", 1.5]],
          [["typical", 0.6], ["top_p", 0.7], ["min_p", 0.2]], [["min_p", 0.1], ["typical", 0.4], ["frequency", 0.9]]]

cases, tensors = [], {}
for row, values in rows.items():
    raw = torch.tensor(values.astype(np.float32))
    tensors["raw/" + row] = raw
    todo = [[[name, v]] for name, vs in single for v in vs] + chains
    for i, rules in enumerate(todo):
        s = raw.clone()[None]
        for name, v in rules:
            s = rule(name, v)(prompt, generated, s)
        key = f"{row}/{i}"
        cases.append({"row": row, "key": key, "rules": rules})
        tensors[key] = s[0].contiguous()
json.dump({"vocab_size": V, "prompt": prompt, "generated": generated, "cases": cases}, open(HERE + "/sampling.json", "w"))
save_file(tensors, HERE + "/sampling.safetensors")
print(len(cases), "cases")
