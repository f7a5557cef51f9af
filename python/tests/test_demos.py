"""TransformerLens's demo notebooks as examples/transformer_lens has them, with the results of version 4.3
(tests/golden/python/make_demos.py, make_cells.py), and further calls of its models.
"""

import contextlib
import importlib.util
import io
import sys
import unittest
from unittest import mock

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model

CLOSE = {"absolute": 1e-4, "relative": 0}


def example(name):
    spec = importlib.util.spec_from_file_location(name, SOURCE / "examples" / "transformer_lens" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def each_of(kind):
    def each(test):
        def run(self):
            for name in ("gpt2_a", "gemma"):
                with self.subTest(name):
                    test(self, np.load(GOLDEN / "python" / f"transformer_lens_{kind}_{name}.npz"),
                         vitrine.load(golden_model(name), compute="f32"))

        return run

    return each


each = each_of("demos")
each_cell = each_of("cells")


class Demos(Case):
    @each
    def test_exploratory_analysis(self, gold, model):
        demo = example("exploratory_analysis")
        found = demo.attributions(model, gold["tokens"], gold["answers"])
        for key in ("difference", "lens", "layers", "heads"):
            self.assert_close(found[key], gold["explore/" + key], what=key, **CLOSE)
        for key in ("lens_labels", "layer_labels"):
            self.assertEqual(found[key], gold["explore/" + key].tolist())
        effect = demo.patched(model, gold["tokens"], gold["corrupted"], gold["answers"])
        for key, value in effect.items():
            self.assert_close(value, gold["explore/patched/" + key], what=key, **CLOSE)
        self.assert_close(demo.attention_of(model, gold["tokens"], 1, 2), gold["explore/pattern"], **CLOSE)

    @each
    def test_activation_patching(self, gold, model):
        demo = example("activation_patching")
        names = [key.removeprefix("sweeps/") for key in gold.files if key.startswith("sweeps/")]
        self.assertEqual(len(names), 14 if model.cfg.n_kv_heads == model.cfg.n_heads else 10)
        found = demo.sweeps(model, gold["tokens"][:1], gold["corrupted"][:1], *gold["answers"][0], names)
        for name in names:
            self.assert_close(found[name], gold["sweeps/" + name], what=name, **CLOSE)

    @each
    def test_attribution_patching(self, gold, model):
        demo = example("attribution_patching")
        metric = demo.restored(gold["answers"], gold["explore/low"], gold["explore/span"])
        for hook, value in demo.attributions(model, gold["tokens"], gold["corrupted"], metric).items():
            self.assert_close(value, gold["attribution/" + hook], what=hook, **CLOSE)
        self.assertAlmostEqual(metric(model(gold["tokens"]))[0], 1, 4)
        self.assertAlmostEqual(metric(model(gold["corrupted"]))[0], 0, 4)

    @each
    def test_svd_of_circuits(self, gold, model):
        demo = example("svd_of_circuits")
        for key, (scores, S) in (("head", demo.written_by_head(model, 1, 2, 6)), ("mlp", demo.written_by_mlp(model, 1, 6))):
            expected = gold["svd/" + key]
            signs = np.sign((scores * expected).sum(0))
            self.assert_close(scores * signs, expected, what=key, **CLOSE)
            self.assertEqual(S.shape, (6,))
        self.assert_close(demo.written_by_head(model, 1, 2, 6)[1], gold["svd/head_S"], **CLOSE)

    def test_they_run_on_the_model_that_ships(self):
        for name, words in (("exploratory_analysis", ["L4H2", "went home to"]), ("activation_patching", ["resid_pre", "head 1"]),
                            ("svd_of_circuits", ["L7H0"]), ("attribution_patching", ["by gradients", "resid_pre", "single weights"]),
                            ("main_demo", ["the second", "goes on"]), ("head_detector", ["induction_head", "half to the one before"]),
                            ("grokking", ["with them alone"]), ("othello", ["turned round"]), ("patchscopes", ["surprisal", "goes on"])):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), mock.patch.object(sys, "argv", [name]):
                example(name).main()
            for word in words:
                self.assertIn(word, said.getvalue())


class Cells(Case):
    @each_cell
    def test_main_demo(self, gold, model):
        demo, tokens, clean = example("main_demo"), gold["repeated"], gold["clean"]
        self.assert_close(model(tokens, return_type="loss"), gold["main/loss"], **CLOSE)
        self.assert_close(demo.loss_without_values(model, tokens, 1, 0), gold["main/without_values"], **CLOSE)
        during, after = demo.losses_with_a_hook_that_stays(model, tokens, 1, 0)
        self.assert_close(during, gold["main/hook_that_stays"], **CLOSE)
        self.assert_close(after, gold["main/loss"], **CLOSE)
        self.assert_close(demo.patched_stream(model, clean, gold["corrupted"], 7, 11), gold["main/patched"], **CLOSE)
        self.assert_close(demo.repeated_losses(model, tokens), gold["main/losses"], **CLOSE)
        self.assert_close(demo.induction_scores(model, tokens, 7), gold["main/induction"], **CLOSE)
        self.assert_close(demo.copying_scores(model), gold["main/copying"], **CLOSE)
        self.assert_close(demo.neuron(model, clean, 1, 9), gold["main/neuron"], **CLOSE)
        self.assert_close(model.run_with_cache(clean, remove_batch_dim=True)[1]["pattern", 0], gold["main/pattern"], **CLOSE)
        self.assertEqual(demo.written_without(model, clean, 1, 2, 6), gold["main/written"].tolist())
        if "main/positions" in gold.files:
            self.assert_close(demo.similarity_of_positions(model)[:24, :24], gold["main/positions"], **CLOSE)
        else:
            with self.assert_says(vitrine.InputError, "W_pos"):
                demo.similarity_of_positions(model)

    @each_cell
    def test_head_detector(self, gold, model):
        detect, (one, two) = vitrine.head_detector.detect_head, gold["detector/prompts"]
        rounded = {**CLOSE, "absolute": 6e-4}  # TransformerLens rounds "abs" to three digits
        for kind in ("previous_token_head", "duplicate_token_head", "induction_head"):
            self.assert_close(detect(model, one, kind), gold["detector/" + kind], what=kind, **CLOSE)
            self.assert_close(detect(model, [one, two], kind, exclude_bos=True), gold["detector/both/" + kind], what=kind, **CLOSE)
            self.assert_close(detect(model, one, kind, exclude_current_token=True, error_measure="abs"), gold["detector/abs/" + kind],
                              what=kind, **rounded)
        some = [(0, 1), (2, 3)]
        for heads in (some, {0: [1], 2: [3]}):
            found = detect(model, one, "induction_head", heads=heads, exclude_current_token=True)
            self.assert_close(found, gold["detector/some"], **CLOSE)
        cache = model.run_with_cache(one)[1]
        for run in (cache, cache.remove_batch_dim()):
            found = detect(model, one, "induction_head", some, run, exclude_current_token=True)
            self.assert_close(found, gold["detector/some"], **CLOSE)
        mine = example("head_detector").half_to_the_token_before(9)
        self.assert_close(detect(model, one, mine, error_measure="abs"), gold["detector/mine"], **rounded)

    def test_answers_of_the_head_detector(self):
        model, ids = vitrine.load(golden_model("gpt2_a"), compute="f32"), [5, 6, 7]
        detect = vitrine.head_detector.detect_head
        for error, words, arguments, options in (
            (vitrine.InputError, ("'previous_head'", "previous_token_head"), (ids, "previous_head"), {}),
            (vitrine.UsageError, ("'sum'", "'mul' or 'abs'"), (ids, "induction_head"), {"error_measure": "sum"}),
            (vitrine.ShapeError, ("[2, 2]", "3 tokens", "[3, 3]"), (ids, np.eye(2)), {}),
            (vitrine.InputError, ("lower triangular",), (ids, np.ones((3, 3))), {}),
            (vitrine.InputError, ("L1H4", "heads 0 to 3"), (ids, "induction_head", [(1, 4)]), {}),
            (vitrine.UsageError, ("2 prompts", "omit cache"), ([ids, ids], "induction_head"), {"cache": model.run_with_cache(ids)[1]}),
        ):
            with self.assert_says(error, *words):
                detect(model, *arguments, **options)
        self.assertEqual(detect(model, [5, 6], "induction_head", exclude_bos=True, exclude_current_token=True).max(), 0)

    @each_cell
    def test_grokking(self, gold, model):
        demo, p = example("grokking"), 11
        self.assert_close(demo.embedding_waves(model, p) * gold["grokking/embedding"][0] / demo.embedding_waves(model, p)[0],
                          gold["grokking/embedding"], **CLOSE)  # Gemma's W_E has its factor here
        activations = demo.neurons(model, p, 1)
        self.assert_close(activations[:, :, :4], gold["grokking/neurons"], **CLOSE)
        frequency, share = demo.neuron_frequencies(activations)
        self.assert_close(share, gold["grokking/share"], **CLOSE)
        self.assertEqual(frequency.tolist(), gold["grokking/frequency"].tolist())
        logits = demo.logits_of(model, p)
        self.assert_close([demo.loss(logits), *demo.excluded_and_restricted(logits, [2, 5])], gold["grokking/losses"], **CLOSE)

    @each_cell
    def test_othello(self, gold, model):
        demo, tokens, probe = example("othello"), gold["clean"], gold["othello/probe"]
        self.assert_close(demo.probe_values(model, tokens, probe, 1), gold["othello/read"], **CLOSE)
        self.assert_close(demo.written_along(model, tokens, probe[:, 0]), gold["othello/written"], **CLOSE)
        reads, writes = demo.neurons_along(model, 1, probe[:, 0])
        self.assert_close(reads, gold["othello/reads"], **CLOSE)
        self.assert_close(writes, gold["othello/writes"], **CLOSE)
        self.assert_close(demo.flipped(model, tokens, 1, 3, probe[:, 0], 2.0), gold["othello/flipped"], **CLOSE)

    @each_cell
    def test_patchscopes(self, gold, model):
        demo, source, target = example("patchscopes"), gold["scopes/source"], gold["scopes/target"]
        for key, layer in (("same", None), ("first", 0)):
            named, surprisal = demo.precision_and_surprisal(model, source, target, 4, layer)
            self.assertEqual(named.tolist(), gold["scopes/named/" + key].tolist())
            self.assert_close(surprisal, gold["scopes/surprisal/" + key], what=key, **CLOSE)
        vector = demo.representation(model, source, 1)
        self.assertEqual(demo.read(model, vector, target, 0, 4, 6), gold["scopes/written"].tolist())

    @each_cell
    def test_attention_attribution(self, gold, model):
        found = example("attribution_patching").attention_attribution(model, gold["clean"], vitrine.metrics.logit_difference(7, 11))
        self.assert_close(found, gold["attribution/pattern"], **CLOSE)


class FurtherCalls(Case):
    @each
    def test_values(self, gold, model):
        for mode in "QKV":
            found = model.all_composition_scores(mode)
            self.assert_close(found.scores, gold["composition/" + mode], what=mode, **CLOSE)
            self.assertEqual(found.head_labels, gold["head_labels"].tolist())
        self.assertEqual(model.all_head_labels, gold["head_labels"].tolist())
        self.assertEqual(model.attn_head_labels, gold["head_labels"].tolist())
        logits, cache = model.run_with_cache(gold["tokens"])
        self.assert_close(model.loss_fn(logits, gold["tokens"], per_token=True), gold["loss_per_token"], **CLOSE)
        self.assert_close(model.loss_fn(logits, gold["tokens"]), gold["loss_per_token"].mean(), **CLOSE)
        neurons = cache.get_neuron_results(1, [0, 5, 9], -1)
        self.assert_close(neurons, gold["neurons"], **CLOSE)
        onto = np.linspace(-1, 1, 2 * model.cfg.d_model).reshape(-1, 2)
        self.assert_close(cache.get_neuron_results(1, [0, 5, 9], -1, onto), neurons @ onto, **CLOSE)
        self.assert_close(cache.get_neuron_results(1, [0, 5, 9], -1, onto[:, 1]), neurons @ onto[:, 1], **CLOSE)
        cache.compute_head_results()
        self.assert_close(cache["result", 1][:, -1], gold["head_results"], **CLOSE)
        self.assert_close(model.OV[1].get_corner(2), gold["corner"], **CLOSE)
        layers, OV = model.OV_for_attn_layers()
        self.assertEqual(layers, list(range(model.cfg.n_layers)))
        np.testing.assert_array_equal(OV.AB, model.OV.AB)
        np.testing.assert_array_equal(model.QK_for_attn_layers()[1].AB, model.QK.AB)

    def test_direct_paths(self):
        for name in ("gpt2_a", "gemma"):
            gold = np.load(GOLDEN / "python" / f"transformer_lens_demos_{name}.npz")
            model = vitrine.load(golden_model(name), compute="f32")
            clean, corrupted = gold["tokens"][:1], gold["corrupted"][:1]
            clean_cache, corrupted_cache = model.run_with_cache(clean)[1], model.run_with_cache(corrupted)[1]

            def metric(z, pair=gold["answers"][0]):
                return z[0, -1, pair[0]] - z[0, -1, pair[1]]

            found = vitrine.patching.get_act_patch_direct_path(model, corrupted, clean_cache, corrupted_cache, metric, 0, 1, "q")
            self.assert_close(found, gold["direct_path"], what=name, **CLOSE)
            if name == "gpt2_a":
                for_all = vitrine.patching.get_act_patch_direct_path_all_sources(model, corrupted, clean_cache, corrupted_cache, metric)
                self.assert_close(for_all[0, 1], gold["direct_path"], **CLOSE)
            else:
                with self.assert_says(vitrine.InputError, "share keys and values"):
                    vitrine.patching.get_act_patch_direct_path(model, corrupted, clean_cache, corrupted_cache, metric, 0, 1, "k")
        with self.assert_says(vitrine.InputError, "'q', 'k' or 'v'"):
            vitrine.patching.get_act_patch_direct_path(model, corrupted, clean_cache, corrupted_cache, metric, 0, 1, "z")
        with self.assert_says(vitrine.InputError, "head 9"):
            vitrine.patching.get_act_patch_direct_path(model, corrupted, clean_cache, corrupted_cache, metric, 0, 9)

    def test_hooks_that_keep_what_they_see(self):
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        tokens = [[1, 2, 3]]
        _, cache = model.run_with_cache(tokens, ["resid_post", "pattern.1"])
        values, forward, backward = model.get_caching_hooks(["resid_post", "pattern.1"], incl_bwd=True)
        loss, gradients = model.gradients(tokens, "resid_post", fwd_hooks=forward, bwd_hooks=backward)
        self.assertAlmostEqual(loss, float(model(tokens, "loss")), 5)
        for name, value in cache.items():
            self.assert_close(values[name], value, what=name, **CLOSE)
        for name, value in gradients.items():
            self.assert_close(values[name + "_grad"], value, 1e-6)
        self.assertEqual(len(values), 2 * len(cache))
        self.assertEqual(model.get_caching_hooks("resid_post")[2], [])
        stays = model.add_caching_hooks()
        try:
            model([[4, 5]])
            self.assertEqual(stays["blocks.0.hook_resid_pre"].shape[:2], (1, 2))
            self.assertNotIn("blocks.0.attn.hook_result", stays)
        finally:
            model.reset_hooks()

    def test_rows_of_a_batch(self):
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        _, cache = model.run_with_cache([[1, 2, 3], [4, 5, 6]])
        one, some = cache.apply_slice_to_batch_dim(1), cache.apply_slice_to_batch_dim(slice(1, 2))
        np.testing.assert_array_equal(one["resid_post", 0], cache["resid_post", 0][1])
        np.testing.assert_array_equal(some["resid_post", 0], cache["resid_post", 0][1:])
        self.assert_close(one.decompose_resid(apply_ln=True), cache.decompose_resid(apply_ln=True)[:, 1], **CLOSE)
        self.assertFalse(one.has_batch_dim)
        with self.assert_says(vitrine.InputError, "no batch axis"):
            one.apply_slice_to_batch_dim(0)

    def test_what_layers_are_made_of(self):
        model = vitrine.load(golden_model("qwen3_5"), compute="f32")
        self.assertEqual(model.layer_types(), ["delta+mlp", "delta+mlp", "attn+mlp", "delta+mlp"])
        self.assertEqual([layer for layer, _ in model.blocks_with("delta")], [0, 1, 3])
        self.assertEqual(model.composition_layer_indices(), [2])
        self.assertEqual(len(model.all_head_labels), 4 * model.cfg.n_heads)
        self.assertEqual(model.attn_head_labels[0], "L2H0")
        self.assertIn("attn.hook_gated_z", model.block_hooks(2))
        self.assertEqual(model.QK_for_attn_layers()[0], [2])
        self.assertEqual(model.all_composition_scores("V").scores.shape, (1, model.cfg.n_heads, 1, model.cfg.n_heads))
        layers, w = model.stack_params_for("mlp", "mlp.W_in")
        self.assertEqual((layers, w.shape), ([0, 1, 2, 3], (4, model.cfg.d_model, model.cfg.d_mlp)))
        with self.assert_says(vitrine.InputError, "part 'conv'"):
            model.stack_params_for("conv", "conv.W_in")
        with self.assert_says(vitrine.InputError, "no parameter 'attn.W_Z'"):
            model.stack_params_for("attn", "attn.W_Z")
        with self.assert_says(vitrine.InputError, "layers, 0 to 3"):
            model.block_hooks(4)
        with self.assert_says(vitrine.InputError, "'Q', 'K' or 'V'"):
            model.all_composition_scores("O")

    def test_prompts(self):
        model = vitrine.load(compute="f32")
        text = "Once upon a time there was a little"
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            (girl,) = model.test_prompt(text, "girl", top_k=3)
        top = model.predict(text, 3)[-1].top
        self.assertEqual(top[girl.rank].token, girl.token)
        self.assertAlmostEqual(top[girl.rank].prob, girl.prob, 5)
        for one in top:
            self.assertIn(repr(one.piece), said.getvalue())
        both = model.test_prompt(text, ["girl", "boy"], print_details=False)
        self.assertEqual([one.piece for one in both], ["▁girl", "▁boy"])
        longer = model.test_prompt("Once upon", "a time there", print_details=False)
        self.assertEqual([one.piece for one in longer], ["▁a", "▁time", "▁there"])
        with self.assert_says(vitrine.InputError, "answer is empty"):
            model.test_prompt(text, " ")
        self.assertEqual(model.get_token_position(" a", text), 3)
        self.assertEqual(model.get_token_position(" a", text, mode="last"), 7)
        self.assertEqual(model.get_token_position(" a", text, prepend_bos=False), 2)
        self.assertEqual(model.get_token_position(7, [[5, 7, 7]], "last"), 2)
        with self.assert_says(vitrine.InputError, "not in the prompt", "▁upon"):
            model.get_token_position(" king", text)
        with self.assert_says(vitrine.ShapeError, "[1, 2, 6144]"):
            model.loss_fn(np.zeros((1, 2, 6144)), [1, 2, 3])

    def test_factored_matrices(self):
        rng = np.random.default_rng(0)
        one = vitrine.FactoredMatrix(rng.standard_normal((3, 5, 2)), rng.standard_normal((3, 2, 6)))
        self.assertEqual(one.unsqueeze(0).shape, (1, 3, 5, 6))
        self.assertEqual(one.unsqueeze(-3).shape, (3, 1, 5, 6))
        self.assert_close(one.unsqueeze(1).AB[:, 0], one.AB)
        self.assert_close(one.get_corner(2), one.AB[:2, :2, :2])
        np.testing.assert_array_equal(one.Vh, one.V)
        for axis in (-1, -2, 2, -5):
            with self.assert_says(vitrine.ShapeError, "unsqueeze"):
                one.unsqueeze(axis)


if __name__ == "__main__":
    unittest.main()
