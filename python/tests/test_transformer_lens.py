"""The values, shapes and names of TransformerLens 4.3 on the golden GPT-2 (tests/golden/python/make.py)."""

import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model


class TransformerLens(Case):
    @classmethod
    def setUpClass(cls):
        cls.gold = np.load(GOLDEN / "python" / "transformer_lens_gpt2_a.npz")
        cls.model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        cls.tokens = cls.gold["tokens"]

    def test_cache_holds_the_same_values_in_the_same_shapes(self):
        logits, cache = self.model.run_with_cache(self.tokens)
        self.assert_close(logits, self.gold["logits"], what="logits")
        compared = 0
        for key in self.gold.files:
            if not key.startswith("cache/"):
                continue
            name = key.removeprefix("cache/")
            # Version 4 shows hook_normalized before the norm's weight; here that is hook_normalized_pre.
            ours = cache[name + "_pre" if name.endswith("hook_normalized") else name]
            self.assert_close(ours, self.gold[key], what=name)
            compared += 1
        self.assertEqual(compared, 4 + 17 * self.model.cfg.n_layers)

    def test_loss(self):
        self.assert_close(self.model(self.tokens, return_type="loss"), self.gold["loss"])

    def test_hook_that_changes_its_value_in_place(self):
        def zero_head(value, hook):
            self.assertEqual(value.shape, (1, 12, 4, 12))
            value[:, :, 2] = 0
            return value

        def zero_head_and_return_nothing(value, hook):
            value[:, :, 2] = 0

        for function in (zero_head, zero_head_and_return_nothing):
            logits = self.model.run_with_hooks(self.tokens, fwd_hooks=[("blocks.1.attn.hook_z", function)])
            self.assert_close(logits, self.gold["zero_head"])

    def test_hook_that_returns_another_value(self):
        logits = self.model.run_with_hooks(
            self.tokens, fwd_hooks=[(lambda name: name.endswith("hook_mlp_out"), lambda value, hook: value * 2)])
        self.assert_close(logits, self.gold["double_mlp"])

    def test_weights_have_its_shapes_and_compute_what_the_model_does(self):
        c, m = self.model.cfg, self.model
        self.assertEqual(m.W_Q.shape, (c.n_layers, c.n_heads, c.d_model, c.d_head))
        self.assertEqual(m.W_K.shape, m.W_Q.shape)
        self.assertEqual(m.W_O.shape, (c.n_layers, c.n_heads, c.d_head, c.d_model))
        self.assertEqual(m.W_in.shape, (c.n_layers, c.d_model, c.d_mlp))
        self.assertEqual(m.W_out.shape, (c.n_layers, c.d_mlp, c.d_model))
        self.assertEqual(m.W_U.shape, (c.d_model, c.d_vocab))
        self.assertEqual(m.W_pos.shape, (c.n_ctx, c.d_model))
        _, cache = m.run_with_cache(self.tokens)
        for layer in range(c.n_layers):
            x = cache["normalized", layer, "ln1"][0]
            for name, w in (("q", m.W_Q), ("k", m.W_K), ("v", m.W_V)):
                bias = m.weight(f"blocks.{layer}.attn.b_{name.upper()}").reshape(c.n_heads, c.d_head)
                self.assert_close(np.einsum("pd,hdi->phi", x, w[layer]) + bias, cache[name, layer][0])
            out = np.einsum("phi,hid->pd", cache["z", layer][0], m.W_O[layer]) + m.weight(f"blocks.{layer}.attn.b_O")
            self.assert_close(out, cache["attn_out", layer][0])
            y = cache["normalized", layer, "ln2"][0]
            self.assert_close(y @ m.W_in[layer] + m.weight(f"blocks.{layer}.mlp.b_in"), cache["pre", layer][0])
            self.assert_close(cache["post", layer][0] @ m.W_out[layer] + m.weight(f"blocks.{layer}.mlp.b_out"),
                              cache["mlp_out", layer][0])
        self.assert_close(m.W_E[self.tokens], cache["embed"])
        self.assert_close(cache["ln_final.hook_normalized"] @ m.W_U, cache["logits"])


if __name__ == "__main__":
    unittest.main()
