"""Weights that mean what their name says: in every family what the model computes, from whichever file."""

import json
import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model, tales

IDS = [5, 17, 3, 101, 42, 8]
MODELS = sorted(p.parent for p in (GOLDEN / "models").glob("*/model/config.json"))
FILES = sorted(p for p in (GOLDEN / "gguf").glob("*.gguf") if "imatrix" not in p.name)


def bias(b):
    return 0 if b is None else b


class EveryFamily(Case):
    def test_weights_compute_what_the_model_does(self):
        seen = 0
        for path in [*MODELS, *FILES]:
            model = vitrine.load(path, compute="f32")
            ids = [i % model.cfg.d_vocab for i in IDS]
            logits, cache = model.run_with_cache(ids)
            said = str(path)
            if "ln_embed.w" not in model.weight_names:
                self.assert_close(model.W_E[ids], cache["embed"][0], what=said)
            self.assert_close(model.embed(ids), cache["embed"][0], what=said)
            self.assert_close(model.unembed(model.ln_final(cache["resid_post", -1])), logits, what=said)
            x = model.ln_final(cache["resid_post", -1])
            self.assert_close(x @ model.W_U + model.b_U, model.unembed(x, softcap=False), what=said)
            for layer, block in enumerate(model.blocks):
                facts = model._session.describe_layer(layer)
                prefix = f"blocks.{layer}."
                if facts["attention"]:
                    before = "hook_resid_pre" if facts["norms_after"] or "ln1" not in dir(block) else "ln1.hook_normalized"
                    x = cache[prefix + before]
                    latent = "W_DKV" in dir(block.attn)  # keys, values and often queries are made of latent vectors
                    for role in "" if latent else "qkv" if facts["keys_of"] < 0 and {"W_V", "W_QKV"} & set(dir(block.attn)) else "q":
                        w, b = getattr(block.attn, "W_" + role.upper()), bias(getattr(block.attn, "b_" + role.upper()))
                        value = cache[f"{prefix}attn.hook_{role}"]
                        if role == "v" and prefix + "attn.v_norm.hook_scale" in cache:
                            value = value * cache[prefix + "attn.v_norm.hook_scale"]
                        self.assert_close(np.einsum("bpd,hdi->bphi", x, w) + b, value, what=said + role)
                    z = cache[prefix + ("attn.hook_gated_z" if facts["gated_heads"] else "attn.hook_z")]
                    out = np.einsum("bphi,hid->bpd", z, block.attn.W_O) + bias(block.attn.b_O)
                    self.assert_close(out, cache[prefix + "attn.hook_out"], what=said)
                    seen += 1
                if "mlp" in dir(block) and "W_in" in dir(block.mlp):
                    normed = prefix + "ln2.hook_normalized" in cache and not facts["norms_after"]
                    alone = prefix + "hook_resid_mid" not in cache  # a layer of one sub-layer, whose norm is ln1
                    before = "ln2.hook_normalized" if normed else "ln1.hook_normalized" if alone else "hook_resid_mid"
                    gated = "W_gate" in dir(block.mlp)
                    value = cache[prefix + ("mlp.hook_pre_linear" if gated else "mlp.hook_pre")]
                    self.assert_close(cache[prefix + before] @ block.mlp.W_in + bias(block.mlp.b_in), value, what=said)
                for name in dir(block):
                    if prefix + name + ".w" in model.weight_names and prefix + name + ".hook_normalized" in cache:
                        pre, w = cache[f"{prefix}{name}.hook_normalized_pre"], getattr(block, name).w
                        b = getattr(block, name).b if prefix + name + ".b" in model.weight_names else 0
                        self.assert_close(pre * w + b, cache[f"{prefix}{name}.hook_normalized"], what=said + name)
        self.assertGreater(seen, 50)

    def test_both_forms_of_a_file_give_the_same_weights(self):
        for name in ("gemma", "gemma2", "gemma3", "gpt2_a", "qwen3", "olmo2"):
            directory, file = vitrine.load(golden_model(name)), vitrine.load(GOLDEN / "gguf" / f"{name}.gguf")
            for weight in directory.weight_names:
                self.assert_close(file.weight(weight), directory.weight(weight), 1e-6, 1e-6, f"{name} {weight}")
            if name.startswith("gemma"):
                difference = file.weight("ln_final.w", raw=True) - directory.weight("ln_final.w", raw=True)
                self.assert_close(difference, np.ones_like(difference), 1e-6)
                np.testing.assert_array_equal(file.ln_final.w, file.weight("ln_final.w", raw=True))


class Adapters(Case):
    def test_an_adapter_is_in_the_logits_and_in_the_weights(self):
        folder = GOLDEN / "lora" / "gpt2_a"
        file = (folder / "golden.safetensors").read_bytes()
        begin = 8 + int.from_bytes(file[:8], "little")
        entries = json.loads(file[8:begin])

        def gold(name, dtype):
            first, end = entries[name]["data_offsets"]
            return np.frombuffer(file[begin + first : begin + end], dtype).reshape(entries[name]["shape"])

        model = vitrine.load(golden_model("gpt2_a"), adapter=folder / "adapter", compute="f32")
        ids = gold("ids", np.int32)[0]
        logits, cache = model.run_with_cache(ids)
        self.assert_close(logits[0], gold("logits", np.float32))
        base = vitrine.load(golden_model("gpt2_a"))
        for layer, block in enumerate(model.blocks):
            x = cache["normalized", layer, "ln1"]
            self.assert_close(np.einsum("bpd,hdi->bphi", x, block.attn.W_Q) + block.attn.b_Q, cache["q", layer])
            self.assert_close(cache["post", layer] @ block.mlp.W_out + block.mlp.b_out, cache["mlp_out", layer])
            name = f"blocks.{layer}.attn.W_Q"
            self.assertFalse(np.allclose(model.weight(name), base.weight(name)))
            np.testing.assert_array_equal(model.weight(name, raw=True), base.weight(name, raw=True))
        with self.assert_says(vitrine.FileError, "adapter_config.json"):
            vitrine.load(golden_model("gpt2_a"), adapter=GOLDEN / "lora")


class Circuits(Case):
    def test_stacks_biases_and_names(self):
        model = vitrine.load(golden_model("gpt2_a"))
        c = model.cfg
        self.assertEqual(model.weight("blocks.0.mlp.W_in").shape, (c.d_model, c.d_mlp))
        np.testing.assert_array_equal(model.weight("blocks.0.mlp.W_in"), model.W_in[0])
        self.assertEqual(model.weight("blocks.0.mlp.W_in", raw=True).shape, (c.d_mlp, c.d_model))
        for name, shape in (("b_Q", (c.n_heads, c.d_head)), ("b_K", (c.n_heads, c.d_head)), ("b_V", (c.n_heads, c.d_head)),
                            ("b_O", (c.d_model,)), ("b_in", (c.d_mlp,)), ("b_out", (c.d_model,))):
            stack = getattr(model, name)
            self.assertEqual(stack.shape, (c.n_layers, *shape), name)
            self.assertTrue(stack.any(), name)
        self.assertEqual(model.b_U.shape, (c.d_vocab,))
        self.assertEqual(model.W_E_pos.shape, (c.d_vocab + c.n_ctx, c.d_model))
        gemma = vitrine.load(golden_model("gemma"))
        for name in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U"):
            self.assertFalse(getattr(gemma, name).any(), name)
        self.assertIsNone(gemma.blocks[0].mlp.b_in)
        for words, call in (("no layer of this model has a parameter \"mlp.W_gate\"", lambda: model.W_gate),
                            ("layer 0 has no attn.W_Q", lambda: vitrine.load(golden_model("lfm2")).W_Q),
                            ("differs in size from layer to layer", lambda: vitrine.load(golden_model("gemma4")).W_Q),
                            ("outside the vocabulary", lambda: model.embed([0, c.d_vocab])),
                            ("expected d_model, ", lambda: model.unembed(np.zeros((2, 3)))),
                            ("expected ", lambda: model.ln_final(np.zeros((2, 3)))),
                            ("no parameter \"W_U\"", lambda: model.weight("W_U", raw=True))):
            with self.assert_says(vitrine.InputError, words):
                call()
        with self.assert_says(AttributeError, "blocks.0.attn has no 'W_X'; it has", "W_Q"):
            model.blocks[0].attn.W_X

    def test_accumulated_bias(self):
        model = vitrine.load(golden_model("gpt2_a"))
        b_O, b_out = model.b_O, model.b_out
        self.assert_close(model.accumulated_bias(), b_O.sum(0) + b_out.sum(0))
        self.assert_close(model.accumulated_bias(1, mlp_input=True), b_O[:2].sum(0) + b_out[0])
        self.assert_close(model.accumulated_bias(2, include_mlp_biases=False), b_O[:2].sum(0))
        with self.assert_says(vitrine.InputError, "layer is 99"):
            model.accumulated_bias(99)

    def test_factored_circuits(self):
        model = vitrine.load(golden_model("gemma"))  # one key head for all
        c = model.cfg
        self.assertEqual(model.QK.shape, (c.n_layers, c.n_heads, c.d_model, c.d_model))
        for layer, head in ((0, 0), (1, c.n_heads - 1)):
            group = head // (c.n_heads // c.n_kv_heads)
            self.assert_close(model.QK[layer, head].AB, model.W_Q[layer, head] @ model.W_K[layer, group].T)
            self.assert_close(model.OV[layer, head].AB, model.W_V[layer, group] @ model.W_O[layer, head])

    def test_factored_matrices(self):
        random = np.random.default_rng(0)
        a, b = random.normal(size=(2, 3, 7, 4)).astype(np.float32), random.normal(size=(3, 4, 7)).astype(np.float32)
        m = vitrine.FactoredMatrix(a, b)
        whole = a @ b
        self.assertEqual((m.shape, m.ndim, m.mdim), ((2, 3, 7, 7), 4, 4))
        x, v = random.normal(size=(7, 5)), random.normal(size=7)
        self.assert_close((m @ x).AB, whole @ x, 1e-4)
        self.assert_close((x.T @ m).AB, x.T @ whole, 1e-4)
        self.assert_close(m @ v, whole @ v, 1e-4)
        self.assert_close(v @ m, v @ whole, 1e-4)
        self.assert_close((m @ m.T).AB, whole @ np.swapaxes(whole, -1, -2), 1e-4)
        self.assert_close((2 * m).AB, 2 * whole, 1e-5)
        for index in ((1,), (1, 2), (slice(None), 0, 3), (0, 1, 2, 3), (..., 2, slice(1, 4)), (0, ..., -1)):
            cut = index if len(index) == 4 or Ellipsis in index else (*index, ...)
            expected = whole[cut]
            self.assert_close(np.squeeze(m[index].AB), np.squeeze(expected), 1e-5, what=str(index))
        self.assert_close(m.S, np.linalg.svd(whole, compute_uv=False)[..., :4], 1e-4)
        self.assert_close(m.U * m.S[..., None, :] @ np.swapaxes(m.V, -1, -2), whole, 1e-4)
        self.assert_close(m.norm(), np.linalg.norm(whole, axis=(-2, -1)), 1e-4)
        self.assert_close(m.make_even().AB, whole, 1e-4)
        self.assert_close(np.swapaxes(m.collapse_l(), -1, -2) @ m.collapse_l(), np.swapaxes(whole, -1, -2) @ whole, 2e-4)
        ours = np.sort(np.abs(m.eigenvalues))
        self.assert_close(ours, np.sort(np.abs(np.linalg.eigvals(whole.astype(np.float64))))[..., 3:], 1e-3)
        for words, call in (("do not fit", lambda: vitrine.FactoredMatrix(a, a)), ("expected 7 rows", lambda: m @ x.T),
                            ("expected 7 columns", lambda: x @ m), ("for a product of matrices use @", lambda: m * v)):
            with self.assert_says(vitrine.ShapeError, words):
                call()
        with self.assertRaises(IndexError):
            m[0, 0, 7]

    def test_a_logit_lens_written_the_obvious_way(self):
        model = tales()  # bf16 in the file, embeddings scaled, norms that hold w for 1 + w, capped logits
        logits, cache = model.run_with_cache("Once upon a time there was a")
        self.assert_close(model.unembed(model.ln_final(cache["resid_post", -1])), logits, 1e-4)
        self.assert_close(model.W_E[model.to_tokens("Once upon a time there was a")], cache["embed"], 1e-5)


if __name__ == "__main__":
    unittest.main()
