#!/usr/bin/env python3
"""Compares docs/transformerlens-table.md with the public methods and properties of the TransformerLens that is installed.

usage: check_transformerlens_table.py   (in an environment with transformer-lens)

Version 4 has the bridge, version 3.9 HookedTransformer. Prints what the page lacks and what it has that is not there, and exits with 1
if there is any. What every torch module has is not counted.
"""
import os
import pathlib
import re
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformer_lens
from transformer_lens import ActivationCache, FactoredMatrix, patching
from transformer_lens.model_bridge import TransformerBridge

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "transformerlens-table.md"


def listed(section):
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_") and name not in dir(torch.nn.Module)}


def functions(module):
    return {name for name, value in vars(module).items()
            if not name.startswith("_") and (name.startswith("get_act_patch") or getattr(value, "__module__", "") == module.__name__)
            and callable(value)}


def main():
    wrong = []
    if "HookedTransformer" in vars(transformer_lens):  # until version 3
        names = public(transformer_lens.HookedTransformer)
        rows = listed("HookedTransformer") + listed("TransformerBridge")
        wrong += [f"HookedTransformer lacks {name}" for name in sorted(names - set(rows))]
        print(f"HookedTransformer: {len(names)} names")
    else:
        for section, names in (("TransformerBridge", public(TransformerBridge)), ("ActivationCache", public(ActivationCache)),
                               ("FactoredMatrix", public(FactoredMatrix)), ("patching", functions(patching))):
            rows = listed(section)
            wrong += [f"{section} lacks {name}" for name in sorted(names - set(rows))]
            wrong += [f"{section} has {name}, which is not there" for name in sorted(set(rows) - names - {"to"})]
            wrong += [f"{section} has {name} twice" for name in sorted({name for name in rows if rows.count(name) > 1})]
            print(f"{section}: {len(names)} names")
    print("\n".join(wrong) or "the page has them all")
    sys.exit(1 if wrong else 0)


main()
