"""interp-engine's points by its names (tests/golden/python/make_interp_engine.py)."""

import re
import unittest

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model

# Names that TransformerLens gives to a neighboring value, and what to ask for instead (docs/python.md).
INSTEAD = {
    "attn_in": "normalized_resid_pre",
    "mlp_in": "normalized_resid_mid",
    "attn_out": "blocks.{}.attn.hook_out",
    "z": "blocks.{}.attn.hook_gated_z",
}
OF_STREAMS = {"resid_streams", "attn_stream_collapse", "attn_stream_write", "attn_stream_mix", "mlp_stream_collapse",
              "mlp_stream_write", "mlp_stream_mix"}


class Points(Case):
    def test_values(self):
        gold = np.load(GOLDEN / "python" / "interp_engine.npz")
        seen = set()
        for name, layer in (("gemma2", 1), ("qwen3_moe", 1), ("qwen3_5", 2)):
            model = vitrine.load(golden_model(name), compute="f32")
            tokens = gold[f"{name}/tokens"]
            for key in gold.files:
                if not key.startswith(name + "/") or key.endswith("/tokens"):
                    continue
                point, expected = key.split("/")[1], gold[key]
                of_layer = point not in ("embeddings", "final_norm", "lm_head")
                request = f"{point}.{layer}" if of_layer else point
                if point in INSTEAD and (point != "z" or name == "qwen3_5"):
                    request = INSTEAD[point].format(layer) if "{" in INSTEAD[point] else f"{INSTEAD[point]}.{layer}"
                if point == "mlp_out" and name == "gemma2":
                    continue  # before its norm the output has no hook
                _, cache = model.run_with_cache(tokens, request, return_type=None)
                (ours,) = cache.values()
                if point == "attn_gate":  # there each head's queries, then its gate
                    expected = expected.reshape(1, 3, model.cfg.n_heads, -1)[..., model.cfg.head_dim:]
                    expected = expected.reshape(1, 3, -1)
                if point == "lm_head" and name == "gemma2":  # there before the cap
                    expected = 30 * np.tanh(expected / 30)
                if point == "attn_scores":
                    expected = np.where(np.tril(np.ones((3, 3), bool)), expected, -np.inf)
                self.assert_close(ours.reshape(expected.shape), expected, what=key)
                seen.add(point)
        self.assertEqual(len(seen), 27)

    def test_the_table_has_every_point(self):
        page = (SOURCE / "docs" / "python.md").read_text(encoding="utf-8")
        table = page.split("### interp-engine's names")[1].split("\n##")[0]
        gold = np.load(GOLDEN / "python" / "interp_engine.npz")
        points = {key.split("/")[1] for key in gold.files if "/" in key} - {"tokens"} | OF_STREAMS
        self.assertEqual(len(points), 34)
        self.assertEqual(points - set(re.findall(r"`(\w+)`", table)), set())


if __name__ == "__main__":
    unittest.main()
