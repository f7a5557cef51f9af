"""Batches: rows that differ in length run together, functions see all of them, and nothing of one reaches another."""

import unittest

import numpy as np

import vitrine
from support import Case, golden_model, tales

TEXTS = ["The old king had three sons, and the youngest", "Once upon a time", "In a wood there lived a fox who"]
FAMILIES = ("gpt2_a", "gemma2", "gemma4_moe", "lfm2", "qwen3_5", "mixtral")
ROWS = [[5, 3, 7, 9, 11, 2], [8, 1], [6, 6, 2, 10]]


class Ragged(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = vitrine.load(compute="f32", exact=True)
        cls.rows = [cls.model.to_tokens(text)[0] for text in TEXTS]

    def assert_same(self, ours, expected, what=""):
        np.testing.assert_array_equal(ours, expected, what)  # exact=True: every bit

    def assert_rows(self, batch, alone, lengths, shorter=0, what=""):
        """The first numbers of every row are those of the row by itself; behind them is NaN."""
        for row, one, length in zip(batch, alone, lengths, strict=True):
            self.assert_same(row[: length - shorter], one, what)
            self.assertTrue(np.isnan(row[length - shorter:]).all(), what)

    def test_what_a_prompt_may_be(self):
        lengths = [len(row) for row in self.rows]
        self.assertGreater(len(set(lengths)), 1)
        for prompt in (TEXTS, tuple(TEXTS), self.rows, [list(map(int, row)) for row in self.rows], [TEXTS[0], *self.rows[1:]]):
            self.assertEqual(self.model.lengths(prompt).tolist(), lengths)
        self.assertEqual(self.model.lengths(np.zeros((3, 4), int)).tolist(), [4, 4, 4])
        self.assertEqual(self.model.lengths("Once").tolist(), [self.model.to_tokens("Once").shape[1]])
        for words, prompt in (
            ("row 1 of the batch is 4", [[2, 3], 4]),
            ("row 0 of the batch is float64", [[0.5], [2]]),
            ("row 1 of the batch is <U", [[2], ["Once"]]),
            ("row 1 of the batch is int64 [1, 1]", [[2], [[3]]]),
            ("row 1: token 6144 at place 0 is outside", [[2], [6144]]),
            ("row 1: there are no tokens", [[2], []]),
            ("row 2: the prompt has 1025 tokens", [[2], [3], [2] * 1025]),
            ("token 18446744073709551616 at place 0", [[2], [2**64]]),
        ):
            with self.assert_says(vitrine.InputError, words):
                self.model(prompt)
        for call in (self.model.predict, self.model.stream):
            with self.assert_says(vitrine.InputError, "batch of 3"):
                call(TEXTS)
        with self.assert_says(vitrine.InputError, "differ in length"):
            self.model.loss_fn(self.model(TEXTS), TEXTS)

    def test_logits_and_caches_of_every_kind(self):
        for name in FAMILIES:
            model = vitrine.load(golden_model(name), compute="f32", exact=True)
            logits, cache = model.run_with_cache(ROWS)
            lengths = cache.lengths
            self.assertEqual(lengths.tolist(), [6, 2, 4])
            alone = [model.run_with_cache(row) for row in ROWS]
            self.assert_rows(logits, [z[0] for z, _ in alone], lengths, what=name)
            self.assert_rows(model(ROWS), [model(row)[0] for row in ROWS], lengths, what=name)
            self.assertEqual(list(cache), list(alone[0][1]))
            for hook, value in cache.items():
                for i, (row, length) in enumerate(zip(value, lengths, strict=True)):
                    one = alone[i][1][hook][0]
                    if hook.endswith(("hook_pattern", "hook_attn_scores")):
                        self.assert_same(row[:, :length, :length], one, hook)
                        self.assertTrue((row[:, :length, length:] == (0 if hook.endswith("pattern") else -np.inf)).all(), hook)
                        self.assertTrue(np.isnan(row[:, length:]).all(), hook)
                    else:
                        self.assert_same(row[:length], one, hook)
                        self.assertTrue(np.isnan(row[length:]).all(), hook)
            some = model.run_with_cache(ROWS, ["hook_embed[positions=-1]", "logits[positions=-2:]"])[1]
            for i, row in enumerate(ROWS):  # a slice is of each row's own length
                self.assert_same(some["embed"][i], alone[i][1]["embed"][0, -1:])
                self.assert_same(some["logits"][i], model(row)[0, -2:])
            with self.assert_says(vitrine.InputError, "row 1: ", "selects one that does not exist"):
                model.run_with_cache(ROWS, "hook_embed[positions=3]", return_type=None)

    def test_lists_of_texts_as_tokens_and_back(self):
        model = tales()
        texts = ["Once upon a time", "Once upon a king"]
        rows = model.to_tokens(texts)
        np.testing.assert_array_equal(rows, np.concatenate([model.to_tokens(text) for text in texts]))
        self.assertEqual(model.to_string(rows), [model.to_string(row) for row in rows])
        self.assertEqual(model.to_str_tokens(["Once", "Once upon"]), [model.to_str_tokens("Once"), model.to_str_tokens("Once upon")])
        self.assertEqual(model.to_str_tokens([5, 6]), model.to_str_tokens(np.array([5, 6])))
        with self.assert_says(vitrine.InputError, "the rows of a batch differ in length"):
            model.to_tokens(["Once", "Once upon"])
        with self.assert_says(vitrine.InputError, "to_tokens takes a text or a list of texts"):
            model.to_tokens([1, 2])

    def test_losses_beside_a_cache(self):
        model = tales()
        rows = ["Once upon a time", "The old king had three sons"]
        for per_token in (False, True):
            expected, logits = model(rows, "loss", loss_per_token=per_token), model(rows)
            loss, cache = model.run_with_cache(rows, "resid_post.1", return_type="loss", loss_per_token=per_token)
            np.testing.assert_array_equal(loss, expected)
            self.assertEqual(list(cache), ["blocks.1.hook_resid_post"])
            both, cache = model.run_with_cache(rows, ["hook_logits[positions=-1]", "resid_post.1"], return_type="both", loss_per_token=per_token)
            self.assert_close(both[1], expected, 1e-5)
            self.assert_close(both[0], logits)
            self.assertEqual(cache["hook_logits"].shape[1], 1)
        with self.assert_says(vitrine.InputError, "a loss takes a prompt of two tokens or more"):
            model.run_with_cache([5], "resid_post.1", return_type="loss")
        with self.assert_says(vitrine.UsageError, "return_type is 'losses'; expected 'logits', 'loss', 'both' or None"):
            model.run_with_cache([5], return_type="losses")

    def test_a_stream_of_rows_of_different_length_needs_its_tokens(self):
        model = tales()
        stream = model(["Once upon a time", "The"], stop_at_layer=2)
        with self.assert_says(vitrine.UsageError, "needs tokens="):
            model(stream, start_at_layer=2)

    def test_losses(self):
        model, lengths = self.model, [len(row) for row in self.rows]
        alone = [model(row, "loss", loss_per_token=True)[0] for row in self.rows]
        each = model(TEXTS, "loss", loss_per_token=True)
        self.assert_rows(each, alone, lengths, shorter=1)
        self.assertAlmostEqual(model(TEXTS, "loss"), np.concatenate(alone).mean(), places=6)
        logits, loss = model(TEXTS, "both")
        self.assertAlmostEqual(loss, model(TEXTS, "loss"), places=6)
        for row, z, expected in zip(self.rows, logits, alone, strict=True):
            z = z[: len(row) - 1].astype(np.float64)
            scores = np.log(np.exp(z).sum(-1)) - z[np.arange(len(row) - 1), row[1:]]
            self.assert_close(expected, scores, 1e-5, 1e-5)
        off = [("mlp_out.5", lambda value, hook: value * 0)]
        hooked = [model.run_with_hooks(row, off, return_type="loss", loss_per_token=True)[0] for row in self.rows]
        self.assert_rows(model.run_with_hooks(TEXTS, off, return_type="loss", loss_per_token=True), hooked, lengths, shorter=1)
        self.assertGreater(np.abs(hooked[0] - alone[0]).max(), 1e-3)
        colder = [("logits", lambda z, hook: z / 2)]
        self.assert_close(model.run_with_hooks(self.rows[0], colder, return_type="loss"), model.run_with_hooks(
            self.rows[0], colder, return_type="both")[1])
        self.assertNotAlmostEqual(model.run_with_hooks(self.rows[0], colder, return_type="loss"), alone[0].mean(), places=3)
        stream = model(TEXTS, stop_at_layer=3)
        self.assert_close(model(stream, "loss", start_at_layer=3, tokens=TEXTS), model(TEXTS, "loss"))
        self.assert_rows(model(stream, start_at_layer=3, tokens=TEXTS), [model(row)[0] for row in self.rows], lengths)
        past = model.kv_cache()
        model(self.rows[0][:3], past_kv_cache=past)
        behind = model(self.rows[0][3:], "loss", loss_per_token=True, past_kv_cache=past)
        self.assert_same(behind[0], alone[0][3:])
        with self.assert_says(ValueError, "two tokens or more"):
            model([[2, 3], [2]], "loss")

    def test_functions_see_all_rows_at_once(self):
        for name in FAMILIES:
            model = vitrine.load(golden_model(name), compute="f32", exact=True)
            hooks = [h for h in ("blocks.1.hook_mlp_out", "blocks.0.attn.hook_q", "blocks.1.attn.hook_pattern", "blocks.1.ln1.hook_scale",
                                 "blocks.1.hook_resid_mid", "blocks.0.attn.hook_attn_scores") if h in model.hook_names]
            self.assertGreater(len(hooks), 1, name)
            for rows in (ROWS, [row[:2] for row in ROWS], ROWS[:1]):
                for hook in hooks:
                    seen = []

                    def change(value, point, seen=seen):
                        seen.append(value.shape)
                        value *= 1.2
                        value[:, :, 1:] *= 0.7

                    together = model.run_with_hooks(rows, [(hook, change)])
                    longest = max(map(len, rows))
                    whole = model.run_with_cache([*rows], hook)[1][hook]
                    self.assertEqual(seen, [whole.shape], hook)
                    for i, row in enumerate(rows):
                        self.assert_same(together[i, : len(row)], model.run_with_hooks(row, [(hook, change)])[0], hook)
                        self.assertTrue(np.isnan(together[i, len(row):]).all())
                    self.assertEqual(whole.shape[0], len(rows))
                    self.assertIn(longest, whole.shape)

    def test_what_functions_leave(self):
        model = self.model
        # What is put behind a row's end is dropped; one row is changed and the others stay as they were.
        def one_row(value, hook):
            self.assertTrue(np.isnan(value[1, len(self.rows[1]):]).all())
            value[1] = 0.25

        together = model.run_with_hooks(TEXTS, [("resid_post.2", one_row)])
        def changed(value, hook):
            value[:] = 0.25

        for i, row in enumerate(self.rows):
            alone = model.run_with_hooks(row, [("resid_post.2", changed)] if i == 1 else [])
            self.assert_same(together[i, : len(row)], alone[0])

        def poison(value, hook):
            value[2, 1] = np.nan

        for run in (lambda: model.run_with_hooks(TEXTS, [("resid_post.2", poison)]),
                    lambda: model.run_with_hooks(np.array([[2, 3], [4, 5], [6, 7]]), [("mlp_out.0", poison)])):
            with self.assert_says(vitrine.RunError, "NaN or infinity at position 1 of row 2"):
                run()
        with model.hooks([("resid_post.2", poison)]):
            shown = model.run_with_cache(TEXTS, "resid_post.2", allow_nan=True)[1]["resid_post", 2]
        self.assertTrue(np.isnan(shown[2, 1]).all())
        with self.assert_says(vitrine.ShapeError, "expected [3, "):
            model.run_with_hooks(TEXTS, [("resid_post.2", lambda value, hook: value[:1])])
        doubled = [("q_input.3", lambda value, hook: value * 2)]
        together = model.run_with_hooks(TEXTS, doubled)
        kept = model.run_with_cache(TEXTS, "q_input.3")[1]["q_input", 3]
        for i, row in enumerate(self.rows):
            self.assert_close(together[i, : len(row)], model.run_with_hooks(row, doubled)[0])  # whose queries NumPy makes
            self.assert_same(kept[i, : len(row)], model.run_with_cache(row, "q_input.3")[1]["q_input", 3][0])


class Lists(Case):
    def test_generate_continues_each(self):
        model = vitrine.load(exact=True)
        for options in ({}, {"temperature": 0.9, "seed": 3}, {"stop": "."}, {"lookup": 3}):
            together = model.generate(TEXTS, 12, **options)
            self.assertEqual(together, [model.generate(text, 12, **options) for text in TEXTS], options)
        off = [("mlp_out.5", lambda value, hook: value * 0)]
        self.assertEqual(model.generate(TEXTS, 5, fwd_hooks=off), [model.generate(text, 5, fwd_hooks=off) for text in TEXTS])
        self.assertNotEqual(model.generate(TEXTS, 5, fwd_hooks=off), model.generate(TEXTS, 5))
        self.assertEqual(model.generate(TEXTS[:1], 3), [model.generate(TEXTS[0], 3)])
        self.assertEqual(model.generate(model.to_tokens(TEXTS[0]), 3), [model.generate(TEXTS[0], 3)])
        self.assertEqual(model.generate(np.array([[2, 3], [4, 5]]), 3), [model.generate([2, 3], 3), model.generate([4, 5], 3)])
        with self.assert_says(vitrine.InputError, "prompt 1: token 6144"):
            model.generate([[2], [6144]], 3)

    def test_attribute_takes_each(self):
        model = tales()
        found = model.attribute(TEXTS[:2], steps=4)
        for one, text in zip(found, TEXTS, strict=False):
            alone = model.attribute(text, steps=4)
            self.assertEqual(one.token, alone.token)
            np.testing.assert_array_equal(one.integrated, alone.integrated)


class Sweeps(Case):
    """Those of run in parts against setters that the package does not know, which run whole."""

    def test_in_parts_and_whole(self):
        patching = vitrine.patching
        for name, batch in (("gpt2_a", 1), ("gemma2", 2), ("lfm2", 1), ("gemma4", 1)):  # the last two only run whole
            model = vitrine.load(golden_model(name), compute="f32", exact=True)
            rng = np.random.default_rng(1)
            clean_ids, corrupted = rng.integers(3, model.cfg.d_vocab, (2, batch, 12))
            clean = model.run_with_cache(clean_ids)[1]

            def metric(z):
                return (z[:, -1, 5] - z[:, 3, 7]).sum()

            for activation, known, axes in (
                ("resid_pre", patching.layer_pos_patch_setter, ["layer", "pos"]),
                ("z", patching.layer_pos_head_vector_patch_setter, ["layer", "pos", "head"]),
                ("v", patching.layer_pos_head_vector_patch_setter, ["layer", "pos", "head"]),
                ("pattern", patching.layer_head_pos_pattern_patch_setter, ["layer", "head_index", "dest_pos"]),
                ("pattern", patching.layer_head_dest_src_pos_pattern_patch_setter, ["layer", "head_index", "dest_pos", "src_pos"]),
            ):
                layers = [i for i in range(model.cfg.n_layers) if (activation, i) in clean]
                if name in ("lfm2", "gemma4") and activation != "resid_pre":
                    continue  # its layers differ
                self.assertEqual(len(layers), model.cfg.n_layers)
                sizes = [patching._sizes(model, activation, 12, axis) for axis in axes]
                indices = [[int(i) for i in rng.integers(0, sizes)] for _ in range(30)] + [[-1, *([1] * (len(axes) - 1))]]

                def unknown(*arguments, known=known):
                    return known(*arguments)

                whole = patching.generic_activation_patch(model, corrupted, clean, metric, unknown, activation, indices=indices)
                parts = patching.generic_activation_patch(model, corrupted, clean, metric, known, activation, indices=indices)
                self.assert_close(parts, whole, 1e-5, 1e-5, f"{name} {activation}")
                self.assertGreater(np.ptp(whole), 1e-4, f"{name} {activation}")
            for words, error, indices in (("position 12", (vitrine.InputError, IndexError), [(0, 12)]), ("layer 99", vitrine.InputError, [(99, 0)])):
                with self.assertRaises(error) as found:
                    patching.get_act_patch_resid_pre(model, corrupted, clean, metric, indices=indices)
                self.assertTrue(words in str(found.exception) or isinstance(found.exception, IndexError))
            with self.assert_says(vitrine.InputError, "differ in length, 1 to 2 tokens"):
                patching.get_act_patch_resid_pre(model, [[3, 4], [5]], clean, metric)
            with self.assert_says(vitrine.ShapeError, "prompts of the same length"):
                patching.get_act_patch_resid_pre(model, corrupted[:, 1:], clean, metric)


if __name__ == "__main__":
    unittest.main()
