"""Attributions and gradients at hooks, held to torch's autograd (tests/golden/attribution/make.py)."""

import json
import unittest

import numpy as np

import vitrine

from support import GOLDEN, Case, golden_model, tales

GOLD = json.loads((GOLDEN / "attribution" / "attribution.json").read_text())


class Gradients(Case):
    def test_attribution_is_the_golden_one(self):
        for name, gold in GOLD.items():
            model = vitrine.load(golden_model(name))
            found = model.attribute(gold["ids"], gold["token"], gold["against"], steps=512)
            self.assertEqual(found.token, gold["token"])
            self.assertAlmostEqual(found.value, gold["value"], delta=2e-5)
            self.assertAlmostEqual(found.baseline_value, gold["mean_value"], delta=2e-5)
            for ours, theirs, tolerance in ((found.saliency, "saliency", 1e-4), (found.gradient_input, "gradient_input", 1e-4),
                                            (found.integrated, "mean", 1e-3)):
                expected = np.array(gold[theirs])
                self.assert_close(ours, expected, tolerance * np.abs(expected).max(), 0, f"{name} {theirs}")
            self.assertAlmostEqual(found.integrated.sum(), found.value - found.baseline_value + found.gap, places=9)

    def test_tokens_and_labels_beyond_the_vocabulary(self):
        model = tales()
        for words, call in (
            ("a label is 1099511627776", lambda: model.gradients([2, 3], "embed", labels=[1, 2**40])),
            ("token 9223372036854775809 at place 1", lambda: model.gradients([2, 3], "embed", labels=[1, 2**63 + 1])),
            ("a token is 1099511627776; expected a whole number from 0 to 6143", lambda: model.attribute("Once", 2**40)),
            ("a token is -1099511627776", lambda: model.attribute("Once", 5, -(2**40))),
            ("steps is 1180591620717411303424", lambda: model.attribute("Once", steps=2**70)),
        ):
            with self.assert_says(vitrine.InputError, words):
                call()

    def test_tokens_may_be_words(self):
        model = tales()
        found = model.attribute("Once upon a", " time", steps=0)
        self.assertEqual(found.token, model.tokenizer.encode(" time", add_special=False)[0])
        self.assertIsNone(found.integrated)
        self.assertEqual(model.attribute("Once upon a", steps=0).token, model.predict("Once upon a", 1)[-1].top[0].token)
        with self.assert_says(vitrine.InputError, "is no single token but"):
            model.attribute("Once", "zzz")
        with self.assert_says(vitrine.UsageError, "baseline is 'none'"):
            model.attribute("Once", baseline="none")

    def test_gradients_at_hooks_predict_a_small_change(self):
        model = vitrine.load(golden_model("gemma2"))
        ids = [5, 17, 3, 101, 42, 8]
        loss, at = model.gradients(ids, ["blocks.1.hook_resid_pre", "pattern.0"])
        self.assertEqual(list(at), ["blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre"])
        self.assertAlmostEqual(loss, float(model(ids, "loss")), places=4)
        g = at["resid_pre", 1]

        def along(step):
            return float(model.run_with_hooks(ids, [("blocks.1.hook_resid_pre", lambda x, hook: x + step * g)], "loss"))

        step = 1e-2 / np.linalg.norm(g)
        self.assertAlmostEqual((along(step) - along(-step)) / (2 * step), float((g * g).sum()), delta=0.02 * float((g * g).sum()))


if __name__ == "__main__":
    unittest.main()
