"""Types of results follow from the form of the prompt; positions are counted alike everywhere; caches can be pickled."""

import copy
import pickle
import subprocess
import sys
import unittest

import numpy as np

import vitrine
from support import Case, golden_model, tales

TEXTS = ["The old king had three sons, and the youngest", "Once upon a time", "In a wood there lived a fox who"]


class OneOrSeveral(Case):
    def test_the_form_of_the_prompt_decides(self):
        model = tales()
        row = model.to_tokens("Once upon a time")[0]
        one = model.generate("Once upon a time", 3)
        self.assertIsInstance(one, vitrine.Generation)
        for prompt in (row, row.tolist()):
            self.assertEqual(model.generate(prompt, 3), one)
        for prompt in (["Once upon a time"], ("Once upon a time",), [row.tolist()], [row], row[None]):
            for options in ({}, {"lookup": 2}):
                several = model.generate(prompt, 3, **options)
                self.assertIsInstance(several, vitrine.Generations)
                self.assertEqual((several.text, several.tokens, several.finish_reason), ([one.text], [one.tokens], [one.finish_reason]))
                self.assertEqual(len(several.logprobs[0]), 3)
                self.assertEqual(list(several), [several[0]])
            self.assertIsInstance(model.attribute(prompt, steps=0), list)
        self.assertEqual(len(model.generate(np.stack([row, row]), 3)), 2)
        self.assertIsInstance(model.attribute(row, steps=0), vitrine.Attribution)
        text = model.to_string(row)
        self.assertEqual(model.to_string(row[None]), [text])
        self.assertEqual(model.to_string([row.tolist()]), [text])
        self.assertEqual(model.to_string(model.to_tokens([TEXTS[0], TEXTS[0]])), [TEXTS[0]] * 2 if text == "Once upon a time" else
                         model.to_string(model.to_tokens(TEXTS[0])) * 2)
        self.assertEqual(model.to_str_tokens(row[None]), model.to_str_tokens(row))


class Positions(Case):
    def test_each_row_counts_its_own(self):
        for model in (tales(), vitrine.load(golden_model("gpt2_a"), compute="f32")):
            prompts = TEXTS if model.cfg.family == "gemma2" else [[5, 3, 7, 9, 11, 2], [8, 1, 4], [6, 6, 2, 10]]
            _, cache = model.run_with_cache(prompts)
            alone = [model.run_with_cache(prompt)[1] for prompt in prompts]
            for where in (-1, 1, slice(-2, None), (-2, None), slice(1, None), slice(0, 2), [0, -1]):
                for method in ("decompose_resid", "stack_head_results", "accumulated_resid"):
                    together = getattr(cache, method)(pos_slice=where, apply_ln=True)
                    for i, one in enumerate(alone):
                        expected = getattr(one, method)(pos_slice=where, apply_ln=True)[:, 0]
                        mine = together[:, i] if isinstance(where, int) else together[:, i, : expected.shape[1]]
                        self.assert_close(mine, expected, 1e-4, what=f"{method} {where}")
                        if not isinstance(where, int):
                            self.assertTrue(np.isnan(together[:, i, expected.shape[1]:]).all())
            parts = cache.decompose_resid(pos_slice=-1)
            attributed = cache.logit_attrs(parts, 7, pos_slice=-1)
            for i, one in enumerate(alone):
                self.assert_close(attributed[:, i], one.logit_attrs(one.decompose_resid(pos_slice=-1), 7, pos_slice=-1)[:, 0], 1e-4)
            # positions= of the run and pos_slice= of the cache agree, also of values that the run has sliced
            for positions in (-1, slice(1, None), slice(-2, None)):
                _, cut = model.run_with_cache(prompts, "resid_post", positions=positions)
                last = model.cfg.n_layers - 1
                self.assert_close(cut._at(cut["resid_post", last], -1), cache._at(cache["resid_post", last], -1))
            with self.assertRaises(IndexError):
                cache.decompose_resid(pos_slice=max(cache.lengths) - 1)

    def test_lengths_are_always_numbers(self):
        model = vitrine.load(golden_model("gpt2_a"))
        _, cache = model.run_with_cache([5, 6, 7])
        self.assertEqual(cache.lengths.tolist(), [3])
        self.assertEqual(cache.apply_slice_to_batch_dim(slice(0, 1)).lengths.tolist(), [3])
        with self.assert_says(vitrine.UsageError, "without lengths="):
            vitrine.ActivationCache(dict(cache), model).lengths


class Pickled(Case):
    def test_a_cache(self):
        model = tales()
        _, cache = model.run_with_cache(TEXTS, ["resid_post", "hook_embed", "attn_out", "mlp_out", "ln_final.hook_scale"])
        data = pickle.dumps(cache)
        again = pickle.loads(data)
        self.assertEqual(list(again), list(cache))
        self.assertEqual(again.lengths.tolist(), cache.lengths.tolist())
        np.testing.assert_array_equal(again["resid_post", 3], cache["resid_post", 3])
        np.testing.assert_array_equal(again.decompose_resid(), cache.decompose_resid())
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(again))["embed"], cache["embed"])
        self.assertLess(len(data), sum(value.nbytes for value in cache.values()) + 20000)
        single = pickle.loads(pickle.dumps(model.run_with_cache("Once")[1].remove_batch_dim()))
        self.assertFalse(single.has_batch_dim)
        self.assert_close(single.logit_attrs(single.decompose_resid(), 7), model.run_with_cache("Once")[1].remove_batch_dim().logit_attrs(
            single.decompose_resid(), 7), 1e-6)

    def test_of_a_model_that_was_changed(self):
        model = tales()
        model.weights["ln_final.w"][0] = 1
        _, cache = model.run_with_cache("Once", ["resid_post", "hook_embed"])
        again = pickle.loads(pickle.dumps(cache))
        np.testing.assert_array_equal(again["resid_post", 3], cache["resid_post", 3])
        with self.assert_says(vitrine.UsageError, "pickled without its model"):
            again.decompose_resid()
        self.assertEqual(list(pickle.loads(pickle.dumps(again))), list(cache))


    def test_copies(self):
        model = tales()
        model.weights["ln_final.w"][0] = 1  # of which there is no file
        names = ["resid_post", "hook_embed", "attn_out", "mlp_out", "ln_final.hook_scale", "z"]
        _, cache = model.run_with_cache(TEXTS, names)
        expected = cache.decompose_resid()
        for again in (copy.copy(cache), copy.deepcopy(cache)):
            self.assertIs(again._model, model)
            self.assertEqual(list(again), list(cache))
            np.testing.assert_array_equal(again.decompose_resid(), expected)
            self.assertEqual(again.lengths.tolist(), cache.lengths.tolist())
            again.compute_head_results()
            self.assertIn(("result", 0), again)
            self.assertNotIn(("result", 0), cache)
        shallow, deep = copy.copy(cache), copy.deepcopy(cache)
        cache["embed"][:] = 0
        self.assertFalse(shallow["embed"].any())
        self.assertTrue(deep["embed"].any())
        without = pickle.loads(pickle.dumps(model.run_with_cache("Once", names)[1]))
        self.assertEqual(without.remove_batch_dim()["embed"].ndim, 2)  # which takes no model
        self.assertEqual(copy.deepcopy(without).apply_slice_to_batch_dim(0)["embed"].ndim, 2)


    def test_keys_and_values_are_not_copied(self):
        past = tales().kv_cache()
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assert_says(vitrine.UsageError, "cannot be copied or pickled", "truncate()"):
                copied(past)


class CommandLine(Case):
    def test_python_m_vitrine(self):
        found = subprocess.run([sys.executable, "-m", "vitrine", "--version"], capture_output=True, text=True, check=True)
        self.assertIn(vitrine.__version__, found.stdout)
        wrong = subprocess.run([sys.executable, "-m", "vitrine", "no-such-command"], capture_output=True, text=True, check=False)
        self.assertNotEqual(wrong.returncode, 0)


if __name__ == "__main__":
    unittest.main()
