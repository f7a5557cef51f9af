"""Circuits, comparisons and recipes from Python, against what NumPy makes of the same definitions."""

import pathlib
import tempfile
import unittest

import numpy as np

import vitrine
from support import Case, golden_model, tales

IDS = [5, 17, 3, 101, 42, 8]


def log_softmax(z):
    z = z.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


class Whole(Case):
    def test_circuits_are_products_of_the_weights(self):
        for name in ("gpt2_a", "gemma"):
            model = vitrine.load(golden_model(name), compute="f32")
            c = model.cfg
            found = model.circuits()
            self.assertEqual(len(found["heads"]), c.n_layers * c.n_heads)

            def behind(norm, w):  # what reads behind a norm, as if it read before it
                w = norm.w[:, None] * w
                return w - w.mean(0) if name == "gpt2_a" else w

            circuits = {}
            for one in found["heads"]:
                block, h = model.blocks[one["layer"]], one["head"]
                group = h // (c.n_heads // c.n_kv_heads)
                qk = behind(block.ln1, block.attn.W_Q[h]) @ behind(block.ln1, block.attn.W_K[group]).T
                ov = behind(block.ln1, block.attn.W_V[group]) @ block.attn.W_O[h]
                circuits[one["layer"], h] = qk, ov
                for key, m in (("qk", qk), ("ov", ov)):
                    s = np.linalg.svd(m, compute_uv=False)[: c.d_head]
                    self.assert_close(one[key]["singular_values"], s, 1e-4, 1e-4)
                    self.assertAlmostEqual(one[key]["frobenius"], float(np.linalg.norm(m)), delta=1e-3)
                eigenvalues = one["eigenvalues"]
                self.assertAlmostEqual(one["copying"], float(eigenvalues.real.sum() / np.abs(eigenvalues).sum()), places=9)
            first = found["composition"][0]
            ov = circuits[first["from_layer"], first["from_head"]][1]
            qk, later = circuits[first["to_layer"], first["to_head"]]
            for key, m in (("q", qk), ("k", qk.T), ("v", later)):
                self.assertAlmostEqual(first[key], float(np.linalg.norm(ov @ m) / np.linalg.norm(ov) / np.linalg.norm(m)), places=4)
            few = model.circuits(1, 0, composition=False)
            self.assertEqual([(h["layer"], h["head"]) for h in few["heads"]], [(1, 0)])
            self.assertEqual(few["composition"], [])
            with self.assert_says(vitrine.InputError, "layer"):
                model.circuits(99)

    def test_compare_is_the_distance_of_two_runs(self):
        a, b = vitrine.load(golden_model("llama"), compute="f32"), vitrine.load(
            pathlib.Path(golden_model("llama")).parents[2] / "gguf" / "llama_q4_0.gguf", compute="f32")
        found = a.compare(b, IDS)
        (za, ca), (zb, cb) = (m.run_with_cache(IDS) for m in (a, b))
        p, q = log_softmax(za[0]), log_softmax(zb[0])
        kl = (np.exp(p) * (p - q)).sum(-1)
        self.assert_close([one["kl"] for one in found["predictions"]], kl, 1e-6, 1e-3)
        self.assertAlmostEqual(found["kl_mean"], kl.mean(), delta=1e-5)
        for key, of in (("a", p), ("b", q)):
            self.assertEqual([one[key]["token"] for one in found["predictions"]], of.argmax(-1).tolist())
        self.assertEqual([one["layer"] for one in found["layers"]], [None, *range(a.cfg.n_layers)])
        x, y = ca["resid_post", -1][0].astype(np.float64), cb["resid_post", -1][0].astype(np.float64)
        self.assertAlmostEqual(found["layers"][-1]["relative"], float(np.linalg.norm(y - x) / np.linalg.norm(x)), places=4)
        self.assertEqual(found["a"]["dtypes"], ["f32"])
        for words, call in (("compared with itself", lambda: a.compare(a, IDS)),
                            ("not two files of one model", lambda: a.compare(vitrine.load(golden_model("gpt2_a")), IDS))):
            with self.assert_says(vitrine.InputError, words):
                call()

    def test_a_recipe_does_what_a_hook_does(self):
        model = tales()
        prompt = "Hansel and Gretel, Hansel and"

        def off(z, hook):
            z[:, :, 3] = 0

        recipe = {"prompt": prompt, "interventions": [{"head": 1.3, "do": "zero"}]}
        expected = log_softmax(model.run_with_hooks(prompt, [("blocks.1.attn.hook_z", off)])[0, -1])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "recipe.yaml"
            path.write_text(f'prompt: "{prompt}"\ninterventions:\n  - head: 1.3\n    do: zero\n')
            for form in (recipe, path.read_text(), path, str(path)):
                found = model.intervene(form, top=3)
                (after,) = found["after"]
                self.assertEqual(len(after["top"]), 3)
                for one in after["top"]:
                    self.assertAlmostEqual(one["logprob"], expected[one["token"]], delta=1e-4)
        with model.hooks([("embed", lambda value, hook: None)]), self.assert_says(vitrine.UsageError, "without hook functions"):
            model.intervene(recipe)
        for error, words, wrong in ((vitrine.InputError, "the recipe", {"prompt": prompt, "interventons": []}),
                                    (vitrine.InputError, "leave model and adapter out", {**recipe, "model": "x"}),
                                    (vitrine.InputError, "YAML has no word for", {"prompt": object()}),
                                    (vitrine.MissingFileError, "nowhere.yaml", "nowhere.yaml")):
            with self.assert_says(error, words):
                model.intervene(wrong)


if __name__ == "__main__":
    unittest.main()
