"""The daily calls of TransformerLens 4.3 on golden models of GPT-2's and Gemma's shape (tests/golden/python/make_calls.py)."""

import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model
from vitrine import patching

CLOSE = {"absolute": 1e-4, "relative": 0}


def each(test):
    def run(self):
        for name in ("gpt2_a", "gemma", "gemma2"):
            with self.subTest(name):
                gold = np.load(GOLDEN / "python" / f"transformer_lens_calls_{name}.npz")
                model = vitrine.load(golden_model(name), compute="f32")
                test(self, name, gold, model, model.run_with_cache(gold["clean"])[1])

    return run


class Calls(Case):
    @each
    def test_parts_of_the_stream(self, name, gold, model, cache):
        self.assert_close(cache["logits"], gold["logits"], **CLOSE)
        for key, options in (("", {}), ("layer1_mid/", {"layer": 1, "mlp_input": True})):
            stack, labels = cache.decompose_resid(return_labels=True, **options)
            self.assertEqual(labels, gold[key + "decompose_labels"].tolist())
            self.assert_close(stack, gold[key + "decompose"], **CLOSE)
            target = cache["resid_mid", 1] if options else cache["resid_post", -1]
            self.assert_close(stack.sum(0), target, **CLOSE)
            stack, labels = cache.accumulated_resid(return_labels=True, incl_mid=True, **options)
            self.assertEqual(labels, gold[key + "accumulated_labels"].tolist())
            self.assert_close(stack, gold[key + "accumulated"], **CLOSE)
        self.assert_close(cache.accumulated_resid(apply_ln=True), gold["accumulated_ln"], **CLOSE)
        self.assert_close(model.unembed(cache.accumulated_resid(apply_ln=True)[-1]), gold["logits"], **CLOSE)
        self.assert_close(cache.apply_ln_to_stack(cache.decompose_resid(pos_slice=-1), pos_slice=-1, weight=False),
                          gold["ln_divided"], **CLOSE)
        parts = cache.decompose_resid(apply_ln=True).sum(0)
        norm_bias = model.ln_final.b if "ln_final.b" in model.weight_names else 0
        self.assert_close(parts + norm_bias, cache["ln_final.hook_normalized"], **CLOSE)
        alone = cache.remove_batch_dim()
        self.assert_close(alone.decompose_resid(apply_ln=True), cache.decompose_resid(apply_ln=True)[:, 0], **CLOSE)
        self.assert_close(cache.decompose_resid(pos_slice=slice(1, 3)), gold["decompose"][:, :, 1:3], **CLOSE)
        self.assert_close(cache.decompose_resid(pos_slice=[0, 4], mode="mlp", incl_embeds=False),
                          np.stack([cache["mlp_out", i][:, [0, 4]] for i in range(model.cfg.n_layers)]), **CLOSE)

    @each
    def test_heads_and_neurons(self, name, gold, model, cache):
        stack, labels = cache.stack_head_results(return_labels=True, incl_remainder=True)
        self.assertEqual(labels, gold["heads_labels"].tolist())
        full, full_labels = cache.get_full_resid_decomposition(return_labels=True, project_output_onto=gold["directions"])
        self.assertEqual(full_labels, gold["full_labels"].tolist())
        if name != "gemma2":
            # Behind the heads of Gemma 2 stands a norm. What they add to the stream is what it lets through, and so it is here.
            self.assert_close(stack, gold["heads"], **CLOSE)
            self.assert_close(full, gold["full"], **CLOSE)
            self.assert_close(cache.get_full_resid_decomposition(1, mlp_input=True, expand_neurons=False), gold["full_mid"], **CLOSE)
        self.assert_close(stack.sum(0), cache["resid_post", -1], **CLOSE)
        for options in ({}, {"expand_neurons": False}, {"layer": 1}, {"layer": 1, "mlp_input": True}):
            whole = cache.get_full_resid_decomposition(**options)
            target = (cache["resid_mid", 1] if options.get("mlp_input") else
                      cache["resid_pre", 1] if "layer" in options else cache["resid_post", -1])
            self.assert_close(whole.sum(0), target, **CLOSE)
            onto = gold["directions"]
            read = cache.get_full_resid_decomposition(apply_ln=True, **options)
            self.assert_close(cache.get_full_resid_decomposition(apply_ln=True, project_output_onto=onto[:, 0], **options), read @ onto[:, 0],
                              **CLOSE)
        heads = stack[: model.cfg.n_heads].sum(0)
        first = cache["attn_out", 0] - cache.get_full_resid_decomposition(0, mlp_input=True)[-1]
        self.assert_close(heads, first, **CLOSE)
        neurons, labels = cache.stack_neuron_results(1, neuron_slice=[0, 3], return_labels=True, incl_remainder=True)
        self.assertEqual(labels, ["L0N0", "L0N3", "remainder"])
        self.assert_close(neurons.sum(0), cache["resid_pre", 1], **CLOSE)

    def test_every_family_adds_up(self):
        for path in sorted((GOLDEN / "models").glob("*/model/config.json")):
            model = vitrine.load(path.parent, compute="f32")
            logits, cache = model.run_with_cache([i % model.cfg.d_vocab for i in (5, 17, 3, 101, 42, 8)])
            lens = model.unembed(cache.accumulated_resid(apply_ln=True))
            self.assert_close(lens[-1], logits, what=str(path), **CLOSE)
            if model._session.describe_layer(0)["norms_after"]:
                with self.assert_says(vitrine.InputError, "normalizes the residual stream itself"):
                    cache.decompose_resid()
                continue
            self.assert_close(cache.decompose_resid().sum(0), cache["resid_post", -1], what=str(path), **CLOSE)
            if "blocks.1.hook_resid_mid" in model.hook_names:
                self.assert_close(cache.decompose_resid(1, mlp_input=True).sum(0), cache["resid_mid", 1], what=str(path), **CLOSE)
            else:
                with self.assert_says(vitrine.InputError, "leave mlp_input out"):
                    cache.decompose_resid(1, mlp_input=True)
            facts = [model._session.describe_layer(i) for i in range(model.cfg.n_layers)]
            if all(one["attention"] for one in facts):
                whole = cache.get_full_resid_decomposition(expand_neurons=False)
                self.assert_close(whole.sum(0), cache["resid_post", -1], what=str(path), **CLOSE)
            else:
                with self.assert_says(vitrine.InputError, "has no attention"):
                    cache.stack_head_results()
            x = cache["ln_final.hook_normalized"] @ model.W_U[:, 7] + model.b_U[7]
            bias = (model.ln_final.b @ model.W_U[:, 7] if "ln_final.b" in model.weight_names else 0) + model.b_U[7]
            self.assert_close(cache.logit_attrs(cache.decompose_resid(), 7).sum(0) + bias, x, what=str(path), **CLOSE)

    @each
    def test_attributions(self, name, gold, model, cache):
        answer, other = (int(i) for i in gold["answers"])
        self.assert_close(model.tokens_to_residual_directions([answer, other]), gold["directions_of_tokens"], **CLOSE)
        self.assert_close(model.W_U[:, [answer, other]].T, gold["directions_of_tokens"], **CLOSE)
        stack = cache.decompose_resid()
        self.assert_close(cache.logit_attrs(stack, answer), gold["folded/attrs"], **CLOSE)
        self.assert_close(cache.logit_attrs(stack, answer, other), gold["folded/differences"], **CLOSE)
        if name != "gemma2":
            self.assert_close(cache.logit_attrs(cache.stack_head_results(pos_slice=-1), answer, pos_slice=-1), gold["folded/heads"],
                              **CLOSE)
        by_position = cache.logit_attrs(stack, np.full((1, stack.shape[2]), answer))
        self.assert_close(by_position, gold["folded/attrs"], **CLOSE)
        # They add up to the logit before its cap, with what the biases give.
        x = cache["ln_final.hook_normalized"]
        logit = x @ model.W_U[:, answer] + model.b_U[answer]
        bias = (model.ln_final.b @ model.W_U[:, answer] if name == "gpt2_a" else 0) + model.b_U[answer]
        self.assert_close(cache.logit_attrs(stack, answer).sum(0) + bias, logit, **CLOSE)

    @each
    def test_weights_and_circuits(self, name, gold, model, cache):
        for weight in ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"):
            self.assert_close(getattr(model, weight), gold["weights/" + weight], **CLOSE)
        self.assert_close(model.QK[1, 0].AB, gold["QK"], **CLOSE)
        self.assert_close(model.OV[1, model.cfg.n_heads - 1].AB, gold["OV"], **CLOSE)
        self.assert_close(model.QK[1, 0].S, gold["QK_S"], **CLOSE)
        self.assert_close(np.sort(np.abs(model.OV[0, 0].eigenvalues)), gold["OV_eigenvalues"], **CLOSE)

    @each
    def test_patching(self, name, gold, model, cache):
        answer, other = gold["answers"]

        def metric(logits):
            return logits[0, -1, answer] - logits[0, -1, other]

        sweeps = [key for key in gold.files if key.startswith("patch/")]
        self.assertEqual(len(sweeps), 10)
        for key in sweeps:
            sweep = getattr(patching, "get_act_patch_" + key.removeprefix("patch/"))
            self.assert_close(sweep(model, gold["corrupted"], cache, metric), gold[key], what=key, **CLOSE)
        # A batch is a mean over its prompts here; every one has its own clean run.
        both = np.concatenate([gold["corrupted"], gold["clean"]])
        clean = model.run_with_cache(np.concatenate([gold["clean"], gold["clean"]]))[1]
        found = patching.get_act_patch_resid_pre(model, both, clean, lambda z: metric(z) + metric(z[1:]))
        self.assert_close(found, gold["patch/resid_pre"] + metric(cache["logits"]), 2e-4, 0)
        some = patching.get_act_patch_resid_pre(model, gold["corrupted"], cache, metric, indices=[(1, 2), (0, 5)])
        self.assert_close(some, gold["patch/resid_pre"][[1, 0], [2, 5]], **CLOSE)
        with model.hooks([("blocks.0.hook_mlp_out", lambda value, hook: value * 0)]):  # is heard in every run
            off = patching.get_act_patch_attn_out(model, gold["corrupted"], cache, metric)
        self.assertGreater(np.abs(off - gold["patch/attn_out"]).max(), 1e-3)

    @each
    def test_hooks_on_inputs(self, name, gold, model, cache):
        def louder(value, hook):
            self.assertEqual(value.shape[2], model.cfg.n_kv_heads if "q" not in hook.name.split("hook_")[1] else model.cfg.n_heads)
            value[:, 1:, 1 % value.shape[2]] *= 1.5

        for kind in ("q_input", "k_input", "v_input"):
            for request in (f"blocks.1.hook_{kind}", f"{kind}.1", f"{kind}1"):
                self.assert_close(model.run_with_hooks(gold["clean"], [(request, louder)]), gold["input/" + kind], what=kind, **CLOSE)
        self.assert_close(model.run_with_hooks(gold["clean"], [("blocks.0.hook_mlp_in", lambda x, hook: x + 0.3)]), gold["input/mlp_in"],
                          **CLOSE)
        plain = model(gold["clean"])
        names = [f"blocks.{i}.hook_{kind}" for i in range(model.cfg.n_layers) for kind in ("q_input", "k_input", "v_input", "mlp_in")]
        np.testing.assert_array_equal(model.run_with_hooks(gold["clean"], [(n, lambda x, hook: None) for n in names]), plain)
        logits, kept = model.run_with_cache(gold["clean"], names)
        np.testing.assert_array_equal(logits, plain)
        self.assert_close(kept["q_input", 1], np.repeat(cache["resid_pre", 1][:, :, None], model.cfg.n_heads, 2), **CLOSE)
        self.assert_close(kept["blocks.0.hook_mlp_in"], cache["resid_mid", 0], **CLOSE)
        self.assertEqual(list(model.run_with_cache(gold["clean"], "mlp_in.1", return_type=None)[1]), ["blocks.1.hook_mlp_in"])
        seen = []
        everything = [(lambda n: "input" in n or n.endswith("embed"), lambda x, hook: seen.append(hook.name))]
        model.run_with_hooks(gold["clean"], everything)
        self.assertNotIn("blocks.0.hook_q_input", seen)
        model.set_use_split_qkv_input(True)
        model.run_with_hooks(gold["clean"], everything)
        self.assertIn("blocks.0.hook_q_input", seen)
        with self.assert_says(vitrine.InputError, "layers, 0 to"):
            model.run_with_hooks(gold["clean"], [("blocks.9.hook_q_input", print)])
        if model.cfg.n_kv_heads != model.cfg.n_heads:
            with self.assert_says(vitrine.InputError, "share keys and values"):
                model.run_with_hooks(gold["clean"], [("attn_in.0", print)])
        else:
            def off(value, hook):
                value[:, :, 1] = 0

            one = model.run_with_hooks(gold["clean"], [("attn_in.0", off)])
            three = model.run_with_hooks(gold["clean"], [(f"{kind}_input.0", off) for kind in "qkv"])
            self.assert_close(one, three, **CLOSE)


if __name__ == "__main__":
    unittest.main()
