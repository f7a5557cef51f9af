#!/usr/bin/env python3
"""Holds the table of rotary settings (tests/golden/rope/cases.json) to the transformers that is installed.

usage: check_rope_defaults.py

Walks the configuration classes of every family: settings that are silent, null, of each type, at the top and by type of layer, as
tests/golden/rope/make.py does, and compares what comes out with the table, to which test_model holds our reader (RopeConfig.*).
Prints what differs and exits with 1 if anything does: then a newer transformers reads something in another way. Exits with 77 where
transformers or torch is not installed. Not part of CI.
"""
import json, pathlib, sys

ROPE = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/rope"
sys.path.insert(0, str(ROPE))
try:
    import make, transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def differs(a, b):
    """Beyond the last bits of a power in f32."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() != b.keys() or any(differs(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) > 3e-7 * abs(b)
    return a != b


table = {(case["model"], case["name"]): case for case in json.loads((ROPE / "cases.json").read_text())}
now = {(case["model"], case["name"]): case for case in make.cases(lambda *_: None)}
wrong = [key for key in table.keys() | now.keys() if differs(table.get(key), now.get(key))]
for model, name in sorted(wrong):
    print(f"{model} {name}:\n  table          {table.get((model, name))}\n  transformers   {now.get((model, name))}")
print(f"{len(table)} cases, transformers {transformers.__version__}: {len(wrong)} differ")
sys.exit(bool(wrong))
