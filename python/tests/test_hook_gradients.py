"""Gradients of runs that hook functions change, of batches, and what is told by gradients, held to the runs they speak of."""

import importlib.util
import json
import unittest

import numpy as np

import vitrine
from vitrine import metrics

from support import GOLDEN, Case, golden_model

IDS = [5, 17, 3, 101, 42, 8]
OTHER = [5, 90, 3, 101, 77, 8]
METRIC = metrics.logit_difference(7, 11)
PLACE = "blocks.1.hook_resid_pre"
TORCH = importlib.util.find_spec("torch") is not None


def opened(name="gemma2"):
    return vitrine.load(golden_model(name), compute="f32")


class Functions(Case):
    def slope_along(self, model, functions, direction, hook="blocks.0.hook_resid_post"):
        """The metric's change along a direction at a hook that lies before PLACE, by a central difference."""
        def run(step):
            return METRIC.value(model.run_with_hooks(IDS, [(hook, lambda x, hook: x + np.float32(step) * direction), *functions]))
        return (run(0.01) - run(-0.01)) / 0.02

    def check(self, function):
        """That the gradient is that of the run which the function changes."""
        model, functions = opened(), [(PLACE, function)]
        value, at = model.gradients(IDS, ["blocks.0.hook_resid_post", PLACE], metric=METRIC, fwd_hooks=functions)
        self.assertAlmostEqual(value, METRIC.value(model.run_with_hooks(IDS, functions)), places=4)
        g = at["resid_post", 0]
        direction = (g / np.linalg.norm(g) if g.any() else np.ones_like(g)).astype(np.float32)
        self.assertAlmostEqual(self.slope_along(model, functions, direction), float((g * direction).sum()), delta=0.01 * max(np.linalg.norm(g), 1e-3))
        return at

    def test_what_is_put_is_constant(self):
        def patch(value, hook):
            value[:, 2:4] = 0.5
        at = self.check(patch)
        np.testing.assert_array_equal(at["resid_post", 0][:, 2:4], 0)
        self.assertTrue((at["resid_post", 0][:, :2] == at["resid_pre", 1][:, :2]).all())  # bit for bit
        self.assertTrue(at["resid_pre", 1][:, 2:4].any())
        self.assertFalse(self.check(lambda value, hook: np.zeros_like(value))["resid_post", 0].any())

    def test_what_is_added_is_constant(self):
        steer = np.linspace(-2, 2, opened().config.d_model)
        def add(value, hook):
            value[:, -1] += steer
        at = self.check(add)
        np.testing.assert_array_equal(at["resid_post", 0], at["resid_pre", 1])
        far = [(PLACE, lambda value, hook: value + 3e4)]  # where sums are rounded to thousandths
        _, at = opened().gradients(IDS, ["blocks.0.hook_resid_post", PLACE], metric=METRIC, fwd_hooks=far)
        np.testing.assert_array_equal(at["resid_post", 0], at["resid_pre", 1])

    def test_who_looks_changes_nothing(self):
        seen = []
        with opened().hooks([(PLACE, lambda value, hook: seen.append(value.copy()))]) as model:
            value, at = model.gradients(IDS, PLACE, metric=METRIC)
        self.assertEqual(len(seen), 1)
        expected_value, expected = opened().gradients(IDS, PLACE, metric=METRIC)
        self.assertEqual(value, expected_value)
        np.testing.assert_array_equal(at[PLACE], expected[PLACE])

    def test_a_number_that_was_already_there_is_put_as_well(self):
        model = vitrine.load(golden_model("classic_pre"), compute="f32")  # GELU of 0 is 0, which is put again
        def ablate(value, hook):
            value[..., ::2] = 0
        _, at = model.gradients(IDS, ["blocks.0.mlp.hook_pre"], metric=METRIC, fwd_hooks=[("blocks.0.mlp.hook_pre", ablate), ("blocks.0.mlp.hook_post", ablate)])
        _, post = model.gradients(IDS, ["blocks.0.mlp.hook_pre"], metric=METRIC, fwd_hooks=[("blocks.0.mlp.hook_post", ablate)])
        self.assertFalse(post["blocks.0.mlp.hook_pre"][..., ::2].any())
        self.assertTrue(post["blocks.0.mlp.hook_pre"].any())
        self.assertFalse(at["blocks.0.mlp.hook_pre"][..., ::2].any())

    def test_what_is_computed_is_refused(self):
        model = opened()
        axis = np.ones(model.config.d_model, np.float32) / model.config.d_model**0.5
        for function in (lambda v, hook: v * 2, lambda v, hook: np.maximum(v, 0), lambda v, hook: v - v.mean(-1, keepdims=True),
                         lambda v, hook: v - (v @ axis)[..., None] * axis, lambda v, hook: v[:, ::-1]):
            with self.assert_says(vitrine.UsageError, f"the function at {PLACE} computes", "vitrine.torch_hook", "backward(gradient, hook)"):
                model.gradients(IDS, "hook_embed", metric=METRIC, fwd_hooks=[(PLACE, function)])

    def test_an_object_knows_its_derivative(self):
        class Twice:
            def forward(self, value, hook):
                self.value = value.copy()
                return value**2

            def backward(self, gradient, hook):
                return 2 * self.value * gradient
        self.check(Twice())
        # One object at two hooks, and in a batch: backward is that of the place.
        model, both, rows = opened(), Twice(), np.array([IDS, OTHER])
        two = [(PLACE, both), ("blocks.2.hook_resid_pre", both)]
        _, at = model.gradients(rows, "hook_embed", metric=METRIC, fwd_hooks=two)
        for i, row in enumerate(rows):
            _, alone = model.gradients(row, "hook_embed", metric=METRIC, fwd_hooks=[(PLACE, Twice()), ("blocks.2.hook_resid_pre", Twice())])
            self.assert_close(at["embed"][i] * 2, alone["embed"][0], 1e-6)

        class Wrong(Twice):
            def backward(self, gradient, hook):
                return gradient[0]
        with self.assert_says(vitrine.ShapeError, f"the gradient that a function at {PLACE} returns"):
            model.gradients(IDS, "hook_embed", metric=METRIC, fwd_hooks=[(PLACE, Wrong())])

    @unittest.skipUnless(TORCH, "PyTorch is not installed")
    def test_functions_of_tensors(self):
        import torch

        def square(value, hook):
            value[:, 1] = value[:, 1].clone() ** 2
        self.check(vitrine.torch_hook(square))
        self.check(vitrine.torch_hook(lambda value, hook: torch.relu(value) - value.mean(-1, keepdim=True)))
        self.check(vitrine.torch_hook(lambda value, hook: torch.zeros_like(value)))

    @unittest.skipUnless(TORCH, "PyTorch is not installed")
    def test_plain_functions_are_derived_as_pytorch_does(self):
        def patch(value, hook):
            value[:, 2, ::3] = 0.5
            value[:, 4] += 1.0
        model = opened()
        _, plain = model.gradients(IDS, "resid_pre", metric=METRIC, fwd_hooks=[(PLACE, patch)])
        _, torch = model.gradients(IDS, "resid_pre", metric=METRIC, fwd_hooks=[(PLACE, vitrine.torch_hook(patch))])
        for name in plain:
            self.assert_close(plain[name], torch[name], 1e-7, 1e-5, name)

    def test_functions_inside_attention_and_at_its_scores(self):
        for hook in ("blocks.0.attn.hook_attn_scores", "blocks.1.attn.hook_pattern", "blocks.0.attn.hook_z", "blocks.0.ln1.hook_scale", "blocks.0.mlp.hook_post"):
            model = opened()
            _, free = model.gradients(IDS, [hook, "hook_embed"], metric=METRIC)
            _, kept = model.gradients(IDS, [hook, "hook_embed"], metric=METRIC, fwd_hooks=[(hook, lambda value, hook: value.copy())])
            _, cut = model.gradients(IDS, [hook, "hook_embed"], metric=METRIC, fwd_hooks=[(hook, vitrine_constant)])
            self.assert_close(kept["embed"], free["embed"], 1e-7, 1e-5, hook)
            self.assert_close(cut[hook], free[hook], 1e-7, 1e-5, hook)
            self.assertGreater(np.abs(cut["embed"] - free["embed"]).max(), 1e-6, hook)

    def test_backward_functions(self):
        model, seen = opened(), {}
        _, free = model.gradients(IDS, "resid_pre", metric=METRIC)
        _, at = model.gradients(IDS, "resid_pre", metric=METRIC, bwd_hooks=[
            ("resid_pre", lambda g, hook: seen.__setitem__(hook.name, g.copy())), (PLACE, lambda g, hook: 2 * g)])
        for name in free:
            np.testing.assert_array_equal(seen[name], at[name])
        np.testing.assert_array_equal(at[PLACE], free[PLACE])
        self.assert_close(at["resid_pre", 0], 2 * free["resid_pre", 0], 1e-7, 1e-5)
        def stop(g, hook):
            g[:] = 0
        self.assertFalse(model.gradients(IDS, "hook_embed", metric=METRIC, bwd_hooks=[(PLACE, stop)])[1]["embed"].any())

    def test_nan_that_a_function_gives_back_is_an_error_of_the_run(self):
        class Broken:
            def forward(self, value, hook):
                return value * 2

            def backward(self, gradient, hook):
                return gradient * np.nan

        model = opened()

        def spoil(gradient, hook):
            gradient[0, 2] = np.inf

        for hooks in ({"fwd_hooks": [(PLACE, Broken())]}, {"bwd_hooks": [(PLACE, lambda gradient, hook: gradient * np.nan)]},
                      {"bwd_hooks": [(PLACE, spoil)]}):
            with self.assert_says(vitrine.RunError, f"the gradient that a function at {PLACE} gives back holds NaN or infinity"):
                model.gradients(IDS, "hook_embed", metric=METRIC, **hooks)
        with self.assert_says(vitrine.UsageError, "this model is running, and a function that the run calls (a hook, a metric"):
            model.gradients(IDS, "hook_embed", metric=lambda z: (model(IDS).sum(), z))

    def test_where_a_constant_is_put_nothing_flows_back(self):
        model = opened()
        _, at = model.gradients(IDS, "resid_pre", metric=METRIC, fwd_hooks=[(PLACE, lambda value, hook: value * 0)])
        self.assertFalse(at["resid_pre", 0].any())

    def test_an_error_of_a_function_ends_the_run_and_leaves_the_model_as_it_was(self):
        model = opened()
        before = model.gradients(IDS, PLACE, metric=METRIC)
        def fail(*_):
            raise KeyError("mine")
        class Fails:
            forward, backward = staticmethod(lambda value, hook: value * 2), staticmethod(fail)
        for options in ({"fwd_hooks": [(PLACE, fail)]}, {"bwd_hooks": [(PLACE, fail)]}, {"fwd_hooks": [(PLACE, Fails())]}):
            with self.assert_says(KeyError, "mine"):
                model.gradients(IDS, PLACE, metric=METRIC, **options)
        with self.assert_says(KeyError, "mine"):
            model.gradients(IDS, PLACE, metric=fail)
        after = model.gradients(IDS, PLACE, metric=METRIC)
        self.assertEqual(before[0], after[0])
        np.testing.assert_array_equal(before[1][PLACE], after[1][PLACE])
        with self.assert_says(vitrine.RunError, f"the hook function at {PLACE} left NaN or infinity at position 0"):
            model.gradients(IDS, PLACE, metric=METRIC, fwd_hooks=[(PLACE, lambda v, hook: v * np.nan)])
        with self.assert_says(vitrine.UsageError, "hook_q_input"):
            model.gradients(IDS, PLACE, metric=METRIC, fwd_hooks=[("blocks.0.hook_q_input", lambda v, hook: None)])


class Inputs(Case):
    def test_of_heads_and_mlps_are_those_of_runs_that_change_them(self):
        for family in ("gpt2_a", "gemma2", "qwen2", "classic_pre"):
            model = opened(family)
            names = [f"blocks.1.hook_{kind}_input" for kind in "qkv"] + ["blocks.1.hook_mlp_in"]
            if family == "gpt2_a":
                names.append("blocks.1.hook_attn_in")
            value, at = model.gradients(IDS, [*names, "resid_pre.0"], metric=METRIC)
            self.assertEqual(set(at), {*names, "blocks.0.hook_resid_pre"})
            for name in names:
                g = at[name]
                self.assertEqual(g.shape, model.run_with_cache(IDS, name)[1][name].shape)
                direction = (g / np.linalg.norm(g)).astype(np.float32)
                def run(step):
                    return METRIC.value(model.run_with_hooks(IDS, [(name, lambda x, hook: x + np.float32(step) * direction)]))
                self.assertAlmostEqual((run(0.01) - run(-0.01)) / 0.02, float((g * direction).sum()), delta=0.01 * np.linalg.norm(g), msg=f"{family} {name}")

    def test_add_up_to_what_the_stream_is_read_for(self):
        model = opened("gpt2_a")
        value, at = model.gradients([IDS, OTHER], ["blocks.1.hook_q_input", "blocks.1.hook_k_input", "blocks.1.hook_v_input", "resid_pre", "resid_mid"], metric=METRIC)
        read = sum(at[f"blocks.1.hook_{kind}_input"].sum(2) for kind in "qkv")
        self.assert_close(at["resid_mid", 1] + read, at["resid_pre", 1], 1e-6)
        self.assertEqual(value, model.gradients([IDS, OTHER], "resid_pre", metric=METRIC)[0])
        _, all_of_one = model.gradients(IDS, "q_input", labels=IDS)
        self.assertEqual(list(all_of_one), [f"blocks.{i}.hook_q_input" for i in range(model.config.n_layers)])

    def test_edges_are_attributed(self):
        model = opened("gpt2_a")
        told = model.attribution_patching(IDS, OTHER, METRIC, ["q_input", "k_input", "v_input", "mlp_in", "hook_embed"], per="position")
        self.assertEqual(told.effects["blocks.0.hook_mlp_in"].shape, (1, 6))
        by_head = model.attribution_patching(IDS, OTHER, METRIC, "v_input", per="head").effects["blocks.1.hook_v_input"]
        self.assert_close(by_head.sum(-1), told.effects["blocks.1.hook_v_input"], 1e-6)


class LikeTransformerLens(Case):
    """tests/golden/python/make_gradients.py"""

    class Halve:
        forward, backward = staticmethod(lambda value, hook: value * 0.5), staticmethod(lambda gradient, hook: gradient * 0.5)

    class Rectify:
        def forward(self, value, hook):
            self.on = value > 0
            return np.maximum(value, 0) - value.mean(-1, keepdims=True)

        def backward(self, gradient, hook):
            return gradient * self.on - gradient.mean(-1, keepdims=True)

    def test_gradients_of_changed_runs(self):
        def patch(value, hook):
            value[:, 2:4] = 0.5

        def ablate(value, hook):
            value[:, :, 1] = 0
        functions = {"free": [], "patched": [("blocks.1.hook_resid_pre", patch)], "ablated": [("blocks.0.attn.hook_z", ablate)],
                     "steered": [("blocks.0.hook_mlp_out", lambda value, hook: value + 1.5)],
                     "halved": [("blocks.0.hook_mlp_out", self.Halve())], "rectified": [("blocks.1.hook_resid_pre", self.Rectify())]}
        for name, cases in json.loads((GOLDEN / "python" / "transformer_lens_gradients.json").read_text()).items():
            model = opened(name)
            self.assertEqual(list(cases), list(functions))
            for case, gold in cases.items():
                value, at = model.gradients([5, 17, 3, 101, 42, 8, 77], list(gold["at"]), metric=METRIC, fwd_hooks=functions[case])
                self.assertAlmostEqual(value, gold["value"], delta=1e-4)
                for hook, expected in gold["at"].items():
                    g = at[hook].astype(np.float64).ravel()
                    ours = [g @ np.cos(0.7 + 1.9 * k + (1.1 + 0.37 * k) * np.arange(g.size)) for k in range(3)]
                    self.assert_close(ours, expected, 1e-5 * np.linalg.norm(g), 0, f"{name} {case} {hook}")


def vitrine_constant(value, hook):
    """Puts its own value there as a constant."""
    if not hasattr(hook, "mine"):
        hook.mine = value.copy()
    return hook.mine


class Batches(Case):
    def test_rows_have_their_share_of_a_mean(self):
        model, rows = opened("llama"), np.array([IDS, OTHER])
        value, at = model.gradients(rows, ["resid_pre", "pattern.1"], metric=metrics.log_probability([7, 9], [-1, 2]))
        single = [model.gradients(row, ["resid_pre", "pattern.1"], metric=metrics.log_probability(token, position))
                  for row, token, position in ((IDS, 7, -1), (OTHER, 9, 2))]
        self.assertAlmostEqual(value, (single[0][0] + single[1][0]) / 2, places=5)
        for name in at:
            self.assert_close(at[name], np.concatenate([g[name] for _, g in single]) / 2, 1e-7, 1e-5, name)

    def test_the_loss_of_a_batch(self):
        model, rows = opened("llama"), np.array([IDS, OTHER])
        labels = rows.copy()
        labels[1, 3:] = -100
        value, at = model.gradients(rows, "resid_pre", labels=labels)
        same, by_metric = model.gradients(rows, "resid_pre", metric=metrics.cross_entropy(labels))
        self.assertAlmostEqual(value, same, places=5)
        for name in at:
            self.assert_close(at[name], by_metric[name], 1e-6, 1e-5, name)

    def test_rows_of_different_length(self):
        model, rows = opened("llama"), [IDS, OTHER[:4]]
        names = ["resid_pre", "pattern.1", "attn_scores.0", "q_input.1"]

        def look(value, hook):
            seen.append(value.shape[1])

        for functions in ([], [(PLACE, lambda x, hook: x + 1)]):
            seen = []
            value, at = model.gradients(rows, names, metric=metrics.log_probability([7, 9]), fwd_hooks=[*functions, (PLACE, look)])
            self.assertEqual(seen, [6, 4])
            single = [model.gradients(row, names, metric=metrics.log_probability(token), fwd_hooks=functions) for row, token in zip(rows, (7, 9))]
            self.assertAlmostEqual(value, (single[0][0] + single[1][0]) / 2, places=5)
            np.testing.assert_array_equal(at.lengths, [6, 4])
            for name in at:
                self.assert_close(at[name][0], single[0][1][name][0] / 2, 1e-7, 1e-5, name)
                short, whole = single[1][1][name][0] / 2, at[name][1]
                if "attn." in name and not name.endswith("input"):
                    self.assert_close(whole[:, :4, :4], short, 1e-7, 1e-5, name)
                    self.assertTrue(np.isnan(whole[:, 4:]).all() and not whole[:, :4, 4:].any(), name)
                else:
                    self.assert_close(whole[:4], short, 1e-7, 1e-5, name)
                    self.assertTrue(np.isnan(whole[4:]).all(), name)

    def test_the_loss_of_rows_of_different_length(self):
        model, rows = opened("llama"), [IDS, OTHER[:4]]
        value, at = model.gradients(rows, "resid_pre")
        self.assertAlmostEqual(value, float(model(rows, "loss")), places=5)
        same, by_metric = model.gradients(rows, "resid_pre", metric=metrics.cross_entropy(rows))
        self.assertAlmostEqual(value, same, places=5)
        for name in at:
            self.assert_close(at[name], by_metric[name], 1e-6, 1e-5, name)
        labels = [[-100] * 6, OTHER[:4]]
        self.assertAlmostEqual(model.gradients(rows, "resid_pre", labels=labels)[0], float(model(OTHER[:4], "loss")), places=5)
        with self.assert_says(vitrine.InputError, "labels are of [6, 3] tokens, and the prompts of [6, 4]"):
            model.gradients(rows, "resid_pre", labels=[IDS, OTHER[:3]])
        with self.assert_says(vitrine.ShapeError, "labels are 2 rows of [6, 3] and the logits 2 rows of [6, 4]"):
            model.gradients(rows, "resid_pre", metric=metrics.cross_entropy([IDS, OTHER[:3]]))

    def test_metrics_of_rows_of_different_length(self):
        model, rows = opened("llama"), [IDS, OTHER[:4]]
        logits = model(rows)
        single = [model(row) for row in rows]
        for metric in (METRIC, metrics.log_probability(3, [2, -3]), metrics.kl_divergence(model([OTHER, IDS[:4]]), -1)):
            parts = [metric, metric] if metric is METRIC else None
            if parts:
                self.assertAlmostEqual(metric.value(logits), np.mean([part.value(z) for part, z in zip(parts, single)]), places=5)
            self.assertTrue(np.isfinite(metric(logits)[1][0]).all())
        other = model([OTHER, IDS[:4]])
        whole = metrics.kl_divergence(other).value(logits)
        apart = [metrics.kl_divergence(z).value(x) for z, x in zip((model(OTHER), model(IDS[:4])), single)]
        self.assertAlmostEqual(whole, (6 * apart[0] + 4 * apart[1]) / 10, places=5)
        with self.assert_says(vitrine.InputError, "is outside the prompt of row 1, whose positions are 0 to 3"):
            metrics.log_probability(3, 5).value(logits)
        with self.assert_says(vitrine.ShapeError, "the logits to compare with are of [6, 5] tokens; expected [6, 4]"):
            metrics.kl_divergence(model([OTHER, IDS[:5]])).value(logits)
        with np.errstate(all="ignore"), self.assert_says(vitrine.RunError, "Logits behind the end of a shorter row are NaN"):
            model.gradients(rows, "hook_embed", metric=lambda z: (z.sum(), np.ones_like(z)))

    def test_attribution_of_rows_of_different_length(self):
        model = opened("llama")
        told = model.attribution_patching([IDS, OTHER[:4]], [OTHER, IDS[:4]], METRIC, ["resid_pre", "z"], per="position")
        layers = model.attribution_patching([IDS, OTHER[:4]], [OTHER, IDS[:4]], METRIC, "resid_pre", per="layer")
        single = [model.attribution_patching(clean, corrupted, METRIC, ["resid_pre", "z"]) for clean, corrupted in ((IDS, OTHER), (OTHER[:4], IDS[:4]))]
        for name, effect in told.effects.items():
            for i, n in ((0, 6), (1, 4)):
                self.assert_close(effect[i, :n], single[i].effects[name][0] / 2, 1e-6, 1e-4, name)
            self.assertFalse(effect[1, 4:].any())
            if name in layers.effects:
                self.assert_close(layers.effects[name], effect.sum(1), 1e-6, 1e-4)
        with self.assert_says(vitrine.ShapeError, "the clean prompt is [6, 4] tokens and the corrupted one [4, 6] tokens"):
            model.attribution_patching([IDS, OTHER[:4]], [OTHER[:4], IDS], METRIC, "resid_pre")
        with self.assert_says(vitrine.InputError, "integrated_gradients takes rows of one length"):
            model.integrated_gradients([IDS, OTHER[:4]], [OTHER, IDS[:4]], METRIC, "resid_pre.0")

    def test_a_metric_sees_all_rows(self):
        model, rows = opened("llama"), np.array([IDS, OTHER])
        def product(z):
            self.assertEqual(z.shape, (2, 6, model.config.vocab_size))
            d = np.zeros_like(z)
            d[0, -1, 3], d[1, -1, 4] = z[1, -1, 4], z[0, -1, 3]
            return z[0, -1, 3] * z[1, -1, 4], d
        _, at = model.gradients(rows, "hook_embed", metric=product)
        z = np.concatenate([model(row) for row in rows])  # by themselves, as gradients run them
        _, first = model.gradients(IDS, "hook_embed", metric=lambda x: (0, np.where(np.arange(x.shape[2]) == 3, [[[0]] * 5 + [[z[1, -1, 4]]]], 0)))
        self.assert_close(at["embed"][:1], first["embed"], 1e-7, 1e-5)


class Metrics(Case):
    def test_derivatives_are_the_differences(self):
        draw = np.random.default_rng(1)
        z, step = draw.normal(size=(2, 5, 9)), 1e-6
        for metric in (metrics.logit_difference([1, 2], 3, [-1, 0]), metrics.log_probability(4), metrics.cross_entropy(np.array([[1, 2, 3, -100, 5], [0, 0, 1, 8, 2]])),
                       metrics.kl_divergence(draw.normal(size=z.shape)), metrics.kl_divergence(draw.normal(size=z.shape), [1, -2])):
            direction = draw.normal(size=z.shape)
            expected = (metric.value(z + step * direction) - metric.value(z - step * direction)) / (2 * step)
            self.assertAlmostEqual(float((metric(z)[1] * direction).sum()), expected, places=7, msg=repr(metric))

    def test_what_cannot_be_is_refused(self):
        model = opened("llama")
        size = model.config.vocab_size
        for error, words, metric in (
            (vitrine.InputError, f"token {size} is outside the vocabulary, 0 to {size - 1}", metrics.log_probability(size)),
            (vitrine.InputError, "position [6] is outside the prompt", metrics.log_probability(1, 6)),
            (vitrine.InputError, "one for each of the 1 rows", metrics.log_probability([1, 2, 3])),
            (vitrine.ShapeError, "labels are [1, 2] and the logits [1, 6]", metrics.cross_entropy([1, 2])),
            (vitrine.InputError, "no position is scored", metrics.cross_entropy([-100] * 6)),
            (vitrine.ShapeError, "the logits to compare with are [1, 6, 3]", metrics.kl_divergence(np.zeros((1, 6, 3)))),
            (vitrine.ShapeError, "the metric's derivative is float32 [2]", lambda z: (1.0, np.zeros(2, np.float32))),
            (vitrine.ShapeError, "the metric gave 3 things", lambda z: (1.0, z, z)),
            (vitrine.RunError, "the metric is nan", lambda z: (np.nan, z)),
            (vitrine.RunError, "the metric or its derivative is NaN", lambda z: (0.0, z / np.zeros(1, np.float32))),
            (vitrine.InputError, "the metric gave", lambda z: "x"),
        ):
            with np.errstate(all="ignore"), self.assert_says(error, words):
                model.gradients(IDS, "hook_embed", metric=metric)
        with self.assert_says(vitrine.UsageError, "metric and labels are both given"):
            model.gradients(IDS, "hook_embed", metric=METRIC, labels=IDS)
        with self.assert_says(vitrine.InputError, "labels"):
            model.gradients(IDS, "hook_embed", labels=IDS[:3])

    @unittest.skipUnless(TORCH, "PyTorch is not installed")
    def test_functions_of_tensors(self):
        import torch

        model = opened("llama")
        for ours, theirs in ((METRIC, lambda z: z[0, -1, 7] - z[0, -1, 11]), (metrics.log_probability(4), lambda z: torch.log_softmax(z, -1)[:, -1, 4].mean()),
                             (metrics.cross_entropy(IDS), lambda z: torch.nn.functional.cross_entropy(z[0, :-1], torch.tensor(IDS[1:])))):
            value, at = model.gradients(IDS, "resid_pre", metric=ours)
            same, by_torch = model.gradients(IDS, "resid_pre", metric=theirs)
            self.assertAlmostEqual(value, same, places=5)
            for name in at:
                self.assert_close(at[name], by_torch[name], 1e-6, 1e-5, name)
        with self.assert_says(vitrine.ShapeError, "the metric gave [6]"):
            model.gradients(IDS, "hook_embed", metric=lambda z: torch.sum(z, -1)[0])
        with self.assert_says(vitrine.InputError, "does not depend on the logits"):
            model.gradients(IDS, "hook_embed", metric=lambda z: torch.zeros(1))


class ToldByGradients(Case):
    def test_is_exact_where_the_metric_is_linear(self):
        model = opened("llama")  # no cap: the logit difference is linear in what the last norm gives
        told = model.attribution_patching(IDS, OTHER, METRIC, ["ln_final.hook_normalized", "hook_logits"])
        self.assertAlmostEqual(told.clean, METRIC.value(model(IDS)), places=5)
        self.assertAlmostEqual(told.corrupted, METRIC.value(model(OTHER)), places=5)
        _, cache = model.run_with_cache(IDS, "ln_final.hook_normalized")
        for name in ("ln_final.hook_normalized", "hook_logits"):
            self.assertEqual(told.effects[name].shape, (1, 6))
            self.assertAlmostEqual(float(told.effects[name].sum()), told.clean - told.corrupted, places=4)

    def test_patching_takes_metrics_as_they_are(self):
        model = opened("llama")
        _, clean = model.run_with_cache(IDS, "resid_pre")
        sweep = vitrine.patching.get_act_patch_resid_pre
        for indices in (None, [(1, 2), (0, -1)]):
            np.testing.assert_array_equal(sweep(model, OTHER, clean, METRIC, indices=indices), sweep(model, OTHER, clean, METRIC.value, indices=indices))
        with self.assert_says(vitrine.InputError, "an index has layer 9; there are"):
            sweep(model, OTHER, clean, METRIC, indices=[(9, 0)])

    def test_agrees_with_exact_patching_for_small_changes(self):
        model = opened("llama")
        _, at = model.run_with_cache(IDS, "resid_pre")
        z = model.attribution_patching(IDS, OTHER, METRIC, "z", per="value")
        by_head = model.attribution_patching(IDS, OTHER, METRIC, "z", per="head")
        by_layer = model.attribution_patching(IDS, OTHER, METRIC, "z", per="layer")
        for name, effects in z.effects.items():
            self.assert_close(by_head.effects[name], effects.sum(-1), 1e-6)
            self.assert_close(by_layer.effects[name], effects.sum((1, 2, 3)), 1e-5)
        # The change made small: one thousandth of it, patched exactly, has a thousandth of the effect.
        _, clean = model.run_with_cache(IDS, "z")
        name = "blocks.1.attn.hook_z"
        for head in range(model.config.n_heads):
            def nudge(step):
                def function(value, hook):
                    value[:, :, head] += np.float32(step) * (clean[name] - value)[:, :, head]
                return METRIC.value(model.run_with_hooks(OTHER, [(name, function)]))
            slope = (nudge(0.01) - nudge(-0.01)) / 0.02
            self.assertAlmostEqual(slope, float(by_head.effects[name][..., head].sum()), delta=2e-3 * max(1, abs(slope)))

    def test_integrated_effects_add_up_to_what_patching_does(self):
        for family in ("gpt2_a", "gemma2"):
            model = opened(family)
            names = ["blocks.1.hook_resid_pre", "blocks.0.hook_mlp_out", "blocks.1.attn.hook_pattern", "blocks.0.attn.hook_z"]
            told = model.integrated_gradients(IDS, OTHER, METRIC, names, steps=40)
            _, clean = model.run_with_cache(IDS, names)
            for name in names:
                patched = METRIC.value(model.run_with_hooks(OTHER, [(name, lambda value, hook: clean[name])]))
                self.assertAlmostEqual(float(told.effects[name].sum()), patched - told.corrupted, delta=2e-3 * max(1, abs(patched - told.corrupted)), msg=name)
            self.assertAlmostEqual(float(told.effects[names[0]].sum()), told.clean - told.corrupted, delta=2e-3)

    def test_integrated_effects_of_a_part(self):
        model = opened("gpt2_a")
        name = "blocks.0.attn.hook_z"
        told = model.integrated_gradients(IDS, OTHER, METRIC, name, steps=24, heads=1, positions=slice(-2, None), per="head")
        self.assertEqual(told.effects[name].shape, (1, 2, 1))
        _, clean = model.run_with_cache(IDS, name)
        def part(value, hook):
            value[:, -2:, 1] = clean[name][:, -2:, 1]
        patched = METRIC.value(model.run_with_hooks(OTHER, [(name, part)]))
        self.assertAlmostEqual(float(told.effects[name].sum()), patched - told.corrupted, delta=2e-3)

    def test_batches(self):
        model = opened("llama")
        told = model.integrated_gradients([IDS, OTHER], [OTHER, IDS], METRIC, PLACE, steps=4)
        alone = [model.integrated_gradients(*pair, METRIC, PLACE, steps=4) for pair in ((IDS, OTHER), (OTHER, IDS))]
        self.assert_close(told.effects[PLACE], np.concatenate([a.effects[PLACE] for a in alone]) / 2, 1e-6)
        told = model.attribution_patching([IDS, OTHER], [OTHER, IDS], METRIC, "pattern", per="head")
        self.assertEqual(told.effects["blocks.0.attn.hook_pattern"].shape, (2, 6, model.config.n_heads))

    def test_refusals(self):
        model = opened("llama")
        for error, words, call in (
            (vitrine.ShapeError, "the clean prompt is [1, 5] tokens and the corrupted one [1, 6]", lambda: model.attribution_patching(IDS[1:], OTHER, METRIC, "z")),
            (vitrine.UsageError, "per is 'token'", lambda: model.attribution_patching(IDS, OTHER, METRIC, "z", per="token")),
            (vitrine.InputError, "blocks.0.hook_resid_pre has no heads", lambda: model.attribution_patching(IDS, OTHER, METRIC, "resid_pre.0", per="head")),
            (vitrine.InputError, "names with slices", lambda: model.integrated_gradients(IDS, OTHER, METRIC, "z[heads=0]")),
            (vitrine.UsageError, "steps is 0", lambda: model.integrated_gradients(IDS, OTHER, METRIC, "z", steps=0)),
        ):
            with self.assert_says(error, words):
                call()


if __name__ == "__main__":
    unittest.main()
