"""TransformerLens 4's names of hooks give its values; its keywords are accepted or answered."""

import json
import re
import unittest

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model, tales

FILE = np.load(GOLDEN / "python" / "transformer_lens_names.npz")
# Not here: ids and tables of RoPE are no activations; the last stream's name depends on the number of layers; no hook is between an MLP
# and the norm that follows it.
ABSENT = ("embed.hook_in", "pos_embed.hook_in", "rotary_emb.hook_in", "rotary_emb.hook_cos", "rotary_emb.hook_sin", "attn.hook_cos",
          "attn.hook_sin", "attn.hook_hidden_states", "ln_final.hook_in")
BEHIND_A_NORM = ("mlp.hook_out", "mlp.out.hook_out", "ln2_post.hook_in")


class Names(Case):
    def test_every_name_of_version_4(self):
        compared = 0
        for name in ("gpt2_a", "gemma2", "llama"):
            model = vitrine.load(golden_model(name), compute="f32")
            ids = FILE[f"{name}/ids"]
            _, whole = model.run_with_cache(ids)
            for key in FILE.files:
                if not key.startswith(name + "/") or key.endswith("/ids"):
                    continue
                hook, expected = key.split("/", 1)[1], FILE[key]
                point = hook.removeprefix("blocks.1.")
                if point in ABSENT or (name == "gemma2" and point in BEHIND_A_NORM):
                    with self.assert_says(vitrine.InputError, "no hook of this"):
                        model.run_with_cache(ids, hook)
                    continue
                if hook in ("unembed.hook_out", "hook_unembed") and name == "gemma2":
                    continue  # before the soft cap there
                asked = hook.replace("hook_normalized", "hook_normalized_pre")  # which is before the norm's weight
                _, cache = model.run_with_cache(ids, asked, return_type=None)
                (value,) = cache.values()
                finite = expected > -1e30  # of masked scores
                self.assert_close(np.where(finite, value, 0), np.where(finite, expected, 0), 1e-4, what=key)
                np.testing.assert_array_equal(whole[asked], whole[next(iter(cache))])
                compared += 1
        self.assertGreater(compared, 110)

    def test_a_key_of_a_cache_is_what_a_request_of_that_name_gives(self):
        table = (SOURCE / "src" / "lab" / "hooks" / "hooks.cpp").read_text(encoding="utf-8")
        aliases = sorted(set(re.findall(r'Alias{"([^"]+)"', table)))
        self.assertGreater(len(aliases), 70)
        for name in ("gpt2_a", "gemma2", "llama", "olmo2", "mixtral", "classic_post", "mamba2"):
            model = vitrine.load(golden_model(name), compute="f32")
            _, whole = model.run_with_cache([5, 6, 7], "*")
            answered = 0
            for alias in (form for one in aliases for form in (one, f"{one}.1", f"blocks.1.{one}")):
                try:
                    _, asked = model.run_with_cache([5, 6, 7], alias, return_type=None)
                except vitrine.InputError:
                    asked = {}
                if len(asked) == 1:
                    (hook,) = asked
                    self.assertIs(whole[alias], whole[hook], f"{name} {alias}")
                    answered += 1
                else:
                    with self.assertRaises(KeyError, msg=f"{name} {alias}"):
                        whole[alias]
            self.assertGreater(answered, 10, name)

    def test_a_key_keeps_its_meaning_where_its_hook_was_not_kept(self):
        for name, kept, key in (("gemma2", "hook_mlp_out", "mlp.out.hook_out"), ("mixtral", "ln2.hook_normalized", "mlp.in.hook_in"),
                                ("olmo2", "hook_resid_pre", "ln1.hook_in"), ("llama", "mlp.hook_pre", "mlp.in.hook_out")):
            _, cache = vitrine.load(golden_model(name)).run_with_cache([5, 6], f"blocks.1.{kept}", return_type=None)
            with self.assert_says(KeyError, "was not kept by this run"):
                cache[f"blocks.1.{key}"]

    def test_hook_functions_at_these_names(self):
        model = tales()
        tokens = model.to_tokens("The old king")

        def zero(value, hook):
            value[...] = 0

        for theirs, ours in (("blocks.2.mlp.in.hook_out", "blocks.2.mlp.hook_pre_linear"), ("blocks.1.attn.o.hook_in", "blocks.1.attn.hook_z"),
                             ("blocks.1.hook_out", "blocks.1.hook_resid_post")):
            np.testing.assert_array_equal(model.run_with_hooks(tokens, [(theirs, zero)]), model.run_with_hooks(tokens, [(ours, zero)]))
        self.assertEqual(len(model.run_with_cache(tokens, "attn.q.hook_out", return_type=None)[1]), 8)

    def test_there_is_no_gate_where_there_is_none(self):
        with self.assert_says(vitrine.InputError, "no hook of this gpt2 model"):
            vitrine.load(golden_model("gpt2_a")).run_with_cache([5, 6], "blocks.1.mlp.gate.hook_out")

    def test_where_norms_come_after_their_sublayer(self):
        model = vitrine.load(golden_model("olmo2"))
        for name in ("blocks.0.attn.hook_in", "blocks.0.ln1.hook_in", "blocks.0.mlp.hook_in"):
            with self.assert_says(vitrine.InputError, "no hook of this"):
                model.run_with_cache([5, 6], name)

    def test_short_names(self):
        for given, expected in FILE["act_names"]:
            self.assertEqual(vitrine.get_act_name(*json.loads(given)), expected)


class Keywords(Case):
    def test_stop_at_layer_of_a_cache(self):
        model = tales()
        for stop in (0, 1, 3, -1, 8):
            stream, cache = model.run_with_cache(["The old king", "Once"], stop_at_layer=stop)
            self.assert_close(stream, model(["The old king", "Once"], stop_at_layer=stop))
            reached = {int(name.split(".")[1]) for name in cache if name.startswith("blocks.")}
            self.assertEqual(reached, set(range(7 if stop < 0 else max(stop, 1))))
            self.assertNotIn("hook_logits", cache)
        _, cache = model.run_with_cache("The old king", ["pattern", "resid_pre"], stop_at_layer=3, heads=0)
        self.assertEqual(list(cache), [f"blocks.{layer}.{hook}" for layer in range(3) for hook in ("hook_resid_pre", "attn.hook_pattern")])
        self.assertEqual(cache["pattern", 2].shape[1], 1)

    def test_stop_at_layer_with_slices(self):
        model = tales()
        prompts = ["The old king", "Once"]
        whole, everything = model.run_with_cache(prompts, stop_at_layer=2)
        for positions in (-1, slice(1), slice(-2, None)):
            asked, kept = ["resid_post", "z.0"], ["blocks.0.attn.hook_z", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
            stream, cache = model.run_with_cache(prompts, asked, stop_at_layer=2, positions=positions)
            self.assert_close(stream, whole)
            self.assertEqual(list(cache), kept)
            for name in cache:
                for row, (value, length) in enumerate(zip(cache[name], everything.lengths, strict=True)):
                    expected = everything[name][row, :length][positions if isinstance(positions, slice) else slice(positions, None)]
                    self.assert_close(value[: len(expected)], expected, what=f"{name} {positions}")
        _, cache = model.run_with_cache(prompts, stop_at_layer=1, positions=-1)
        self.assertEqual(cache["resid_post", 0].shape[1], 1)
        _, cache = model.run_with_cache(prompts, "resid_pre[positions=0]", stop_at_layer=0)
        self.assertEqual({name: value.shape for name, value in cache.items()}, {"blocks.0.hook_resid_pre": (2, 1, 256)})
        with self.assert_says(vitrine.InputError, "ask for different slices of blocks.0.hook_resid_post"):
            model.run_with_cache("Once upon", ["resid_post.0[positions=0]", "resid_post.0[positions=1]"], stop_at_layer=1)

    def test_prepend_bos(self):
        model = tales()
        for bos in (True, False):
            ids = model.to_tokens("The old king", prepend_bos=bos)
            np.testing.assert_array_equal(model("The old king", prepend_bos=bos), model(ids))
            self.assert_close(model.run_with_cache("The old king", "embed", prepend_bos=bos)[0], model.run_with_cache(ids, "embed")[0], 1e-6)
            np.testing.assert_array_equal(model.run_with_hooks("The old king", prepend_bos=bos), model(ids))

    def test_answers(self):
        model = tales()
        for words, call in (
            ("use max_tokens=", lambda: model.generate("Once", max_new_tokens=3)),
            ("use max_tokens=", lambda: model.stream("Once", max_new_tokens=3)),
            ("use frequency_penalty=", lambda: model.generate("Once", freq_penalty=0.5)),
            ("use eos=", lambda: model.generate("Once", eos_token_id=1)),
            ("greedy unless", lambda: model.generate("Once", do_sample=False)),
            ("to_tokens", lambda: model.generate("Once", prepend_bos=False)),
            ("use positions=", lambda: model.run_with_cache("Once", pos_slice=-1)),
            ("use gradients()", lambda: model.run_with_cache("Once", incl_bwd=True)),
            ("nothing is padded", lambda: model("Once", attention_mask=None)),
            ("unexpected keyword argument 'thing'", lambda: model("Once", thing=1)),
            ("unexpected keyword argument 'thing'", lambda: model.run_with_cache("Once", thing=1)),
            ("unexpected keyword argument 'thing'", lambda: model.generate("Once", thing=1)),
        ):
            with self.assert_says(TypeError, words):
                call()

    def test_config(self):
        self.assertEqual((tales().cfg.act_fn, tales().cfg.device), ("gelu_pytorch_tanh", "cpu"))
        self.assertEqual(vitrine.load(golden_model("llama")).cfg.act_fn, "silu")
        self.assertEqual(vitrine.load(golden_model("opt")).cfg.act_fn, "relu")


if __name__ == "__main__":
    unittest.main()
