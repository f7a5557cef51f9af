"""Reading and changing what happens inside, and who owns the numbers."""

import functools
import gc
import json
import pathlib
import shutil
import signal
import tempfile
import threading
import time
import unittest

import numpy as np

import vitrine
from support import Case, golden_model, tales

PROMPT = "The old king had three sons, and the youngest"


class Requests(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = tales()
        cls.tokens = cls.model.to_tokens(PROMPT)
        cls.logits, cls.all = cls.model.run_with_cache(cls.tokens)

    def kept(self, *args, **options):
        return self.model.run_with_cache(self.tokens, *args, **options)[1]

    def test_everything_is_every_hook_but_results(self):
        self.assertEqual(list(self.all), [n for n in self.model.hook_names if not n.endswith("hook_result")])
        np.testing.assert_array_equal(self.logits, self.all["hook_logits"])
        # Attention runs step by step where its scores are kept, and in one kernel otherwise.
        self.assert_close(self.logits, self.model(self.tokens), 1e-5, 1e-5)

    def test_names_patterns_aliases_lists_and_predicates(self):
        patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in range(8)]
        for request in ("blocks.*.attn.hook_pattern", "pattern", ["pattern"], patterns, lambda name: name.endswith("hook_pattern")):
            cache = self.kept(request)
            self.assertEqual(list(cache), patterns)
            for name in patterns:
                self.assert_close(cache[name], self.all[name], 1e-6, 1e-5)
        self.assertEqual(list(self.kept(["embed", "resid_post.3"])), ["hook_embed", "blocks.3.hook_resid_post"])
        self.assertEqual(list(self.kept("unembed.hook_out")), ["hook_logits"])

    def test_slices(self):
        whole = self.all["pattern", 2]
        rows = self.tokens.shape[1]
        for request, options in (("blocks.2.attn.hook_pattern[heads=1:3,positions=-1]", {}),
                                 ("pattern.2", {"heads": slice(1, 3), "positions": -1}),
                                 ("pattern.2", {"heads": slice(1, 3), "positions": slice(rows - 1, None)})):
            self.assert_close(self.kept(request, **options)["pattern", 2], whole[:, 1:3, -1:], 1e-6, 1e-5)
        self.assert_close(self.kept("z.2", heads=0)["z", 2], self.all["z", 2][:, :, :1], 1e-5, 1e-5)
        logits, cache = self.model.run_with_cache(self.tokens, "logits", positions=-1, return_type=None)
        self.assertIsNone(logits)
        np.testing.assert_array_equal(cache["hook_logits"], self.model(self.tokens)[:, -1:])

    def test_slices_of_all(self):
        rows = self.tokens.shape[1]
        logits, cache = self.model.run_with_cache(self.tokens, positions=-1)
        self.assertEqual(list(cache), list(self.all))
        self.assert_close(logits, self.logits, 1e-5, 1e-5)
        np.testing.assert_array_equal(cache["logits"], logits[:, -1:])
        for name, value in cache.items():
            cut = self.all[name]
            self.assert_close(value, cut[:, :, -1:] if name.endswith(("scores", "pattern")) else cut[:, -1:], 1e-5, 1e-5, name)
        # What has no heads stays whole.
        _, cache = self.model.run_with_cache(self.tokens, heads=slice(1, 3))
        for name, value in cache.items():
            cut = self.all[name]
            if name.endswith(("scores", "pattern")):
                cut = cut[:, 1:3]
            elif name.endswith(("hook_q", "hook_rot_q", "hook_z")):
                cut = cut[:, :, 1:3]
            elif name.endswith(("hook_k", "hook_rot_k", "hook_v")):
                cut = cut[:, :, 1:3]  # of two
            self.assert_close(value, cut, 1e-5, 1e-5, name)
        _, cache = self.model.run_with_cache(self.tokens, ["resid_post.3", "z.3"], heads=0, positions=slice(-2, None))
        self.assert_close(cache["resid_post", 3], self.all["resid_post", 3][:, -2:], 1e-5, 1e-5)
        self.assert_close(cache["z", 3], self.all["z", 3][:, -2:, :1], 1e-5, 1e-5)
        _, of_loss = self.model.gradients(self.tokens, ["resid_post.3", "z.3"], heads=0)
        self.assertEqual((of_loss["resid_post", 3].shape[1], of_loss["z", 3].shape[2]), (rows, 1))

        for request, options, kept in (("logits", {"positions": -1}, slice(rows - 1, rows)),
                                       ("logits[positions=1:-1]", {}, slice(1, rows - 1)),
                                       (["logits[positions=0]", "resid_post.0"], {}, slice(0, 1)),
                                       ("*[positions=:2]", {}, slice(0, 2)),
                                       ("*[heads=0,positions=:2]", {}, slice(0, 2)),
                                       ("*[positions=:2,heads=0]", {}, slice(0, 2)),
                                       ("*", {"positions": slice(0, 99)}, slice(0, rows)),
                                       (lambda name: "logits" in name, {"positions": 2}, slice(2, 3))):
            logits, cache = self.model.run_with_cache(self.tokens, request, **options)
            self.assertEqual(logits.shape, self.logits.shape)
            np.testing.assert_array_equal(cache["logits"], logits[:, kept])
            if isinstance(request, str) and "heads" in request:
                self.assert_close(cache["z", 1], self.all["z", 1][:, kept, :1], 1e-5, 1e-5)
                self.assert_close(cache["embed"], self.all["embed"][:, kept], 1e-5, 1e-5)
        logits, cache = self.model.run_with_cache([[2, 300, 301], [2, 302, 303]], "logits", positions=-1)
        np.testing.assert_array_equal(cache["logits"], logits[:, -1:])

    def test_keys(self):
        name = "blocks.7.attn.hook_pattern"
        for key in (name, ("pattern", 7), ("pattern", -1), "pattern.7"):
            self.assertIn(key, self.all)
            self.assertIs(self.all[key], self.all[name])
        self.assertIs(self.all["normalized", 0, "ln1"], self.all["blocks.0.ln1.hook_normalized"])
        self.assertIs(self.all["embed"], self.all["hook_embed"])
        self.assertEqual(self.all.stack_activation("pattern").shape, (8, *self.all[name].shape))
        self.assertEqual(self.all.remove_batch_dim()[name].shape, self.all[name].shape[1:])
        self.assertEqual(self.kept("pattern.0", remove_batch_dim=True)["pattern", 0].ndim, 3)
        few = self.kept("pattern.0")
        for key, words in (("blocks.1.attn.hook_pattern", "was not kept"), (("pattern", 8), "0 to 7"), ("pattern", "every layer"),
                           ("nothing", "was not kept"), ("blocks.1.attn.hook_patern", "Did you mean 'blocks.1.attn.hook_pattern'?"),
                           (("patern", 1), "Did you mean 'pattern.1'?"), ("block.1.hook_resid_pre", "Did you mean 'blocks.1.hook_resid_pre'?")):
            self.assertNotIn(key, few)
            with self.assert_says(KeyError, words):
                few[key]

    def test_functions_take_the_hook_by_its_name_as_in_transformer_lens(self):
        model = vitrine.load(golden_model("llama"), compute="f32")
        seen = []

        def named(value, *, hook):
            seen.append(hook.name)
            return value * 2

        def behind_another(value, factor=2.0, hook=None):
            seen.append(hook.name)
            return value * factor

        def first(factor, value, hook):
            seen.append(hook.name)
            return value * factor

        class WithForward:
            def forward(self, value, factor=2.0, hook=None):
                seen.append(hook.name)
                return value * factor

            def backward(self, gradient, hook):
                return gradient * 2

        name = "blocks.1.hook_resid_pre"
        doubled = model.run_with_hooks([5, 6], [(name, lambda value, point: value * 2)])
        for function in (named, behind_another, functools.partial(first, 2.0), functools.partial(behind_another, factor=2.0), WithForward()):
            np.testing.assert_array_equal(model.run_with_hooks([5, 6], [(name, function)]), doubled)
        self.assertEqual(seen, [name] * 5)

    def test_numbers_of_numpy_and_tuples_as_transformer_lens_takes_them(self):
        model = vitrine.load(golden_model("llama"), compute="f32")
        _, cache = model.run_with_cache([[5, 17, 3, 101], [5, 90, 3, 8]])
        parts = cache.decompose_resid()
        np.testing.assert_array_equal(cache.decompose_resid(pos_slice=np.int64(-1)), parts[:, :, -1])
        np.testing.assert_array_equal(cache.decompose_resid(pos_slice=(1, 3)), parts[:, :, 1:3])  # a slice
        np.testing.assert_array_equal(cache.decompose_resid(pos_slice=[1, 3]), parts[:, :, [1, 3]])
        np.testing.assert_array_equal(cache.decompose_resid(pos_slice=np.array([False, True, False, True])), parts[:, :, [1, 3]])
        one = cache.apply_slice_to_batch_dim(np.int64(1))
        self.assertFalse(one.has_batch_dim)
        np.testing.assert_array_equal(one["resid_post", 0], cache["resid_post", 0][1])
        _, ragged = model.run_with_cache([[5, 17, 3], [5]])
        np.testing.assert_array_equal(ragged.apply_slice_to_batch_dim([1]).lengths, [1])
        np.testing.assert_array_equal(cache.stack_neuron_results(1, neuron_slice=(2, 4)), cache.stack_neuron_results(1)[2:4])

    def test_a_token_for_each_prompt(self):
        model = vitrine.load(golden_model("llama"), compute="f32")
        _, cache = model.run_with_cache([[5, 17, 3, 101], [5, 90, 3, 8]])
        parts = cache.decompose_resid()
        each = cache.logit_attrs(parts, [7, 9])
        np.testing.assert_array_equal(each[:, 0], cache.logit_attrs(parts, 7)[:, 0])
        np.testing.assert_array_equal(each[:, 1], cache.logit_attrs(parts, 9)[:, 1])
        for tokens in ([7, 9, 11, 13], [7, 9, 11]):  # of which the first would fit the positions
            with self.assert_says(vitrine.ShapeError, f"there are {len(tokens)} tokens for 2 prompts"):
                cache.logit_attrs(parts, tokens)

    def test_what_stands_before_a_norm_behind_a_sub_layer(self):
        model = vitrine.load(golden_model("gemma2"), compute="f32")
        _, cache = model.run_with_cache([5, 17, 3, 101])
        for name, written in (("ln1_post", cache["blocks.1.attn.hook_out"]),
                              ("ln2_post", cache["blocks.1.mlp.hook_post"] @ model.weight("blocks.1.mlp.W_out"))):
            before = cache[f"blocks.1.{name}.hook_normalized_pre"] * cache[f"blocks.1.{name}.hook_scale"]
            self.assert_close(before, written, 1e-5, 1e-4)
        np.testing.assert_array_equal(cache["mlp_out", 1], cache["blocks.1.ln2_post.hook_normalized"])

    def test_wrong_requests(self):
        for words, call in (
            ("Did you mean \"blocks.*.attn.hook_pattern\"", lambda: self.kept("blocks.*.attn.hook_patern")),
            ("hook_names lists every one", lambda: self.kept("blocks.*.attn.hook_patern")),
            ("a cache holds a hook once", lambda: self.kept(["pattern.0", "pattern.0[heads=0]"])),
            ("8 layers", lambda: self.kept("blocks.8.hook_resid_pre")),
            ("neither an index nor a range", lambda: self.kept("pattern[heads=x]")),
            ("has slices of its own", lambda: self.kept("pattern[heads=0]", heads=1)),
            ("heads=1 is of no use", lambda: self.kept("resid_post", heads=1)),
            ("different slices of hook_logits", lambda: self.kept(["logits", "*[positions=-1]"])),
            ("\"logits[positions=99]\" selects one that does not exist", lambda: self.kept("logits", positions=99)),
            ("\"logits[positions=4:2]\" selects nothing", lambda: self.kept("logits", positions=slice(4, 2))),
            ("no hook that it fits has any", lambda: self.kept("logits[heads=0,positions=-1]")),
            ("names positions twice", lambda: self.kept("logits[positions=0,positions=1]")),
            ("has a step", lambda: self.kept("pattern", heads=slice(0, 4, 2))),
            ("chose none", lambda: self.kept(lambda name: False)),
            ("Did you mean", lambda: self.model.run_with_hooks(self.tokens, [("hook_zzz", print)])),
            ("has slices; a hook function", lambda: self.model.run_with_hooks(self.tokens, [("pattern[heads=0]", print)])),
            ("expected a function", lambda: self.model.run_with_hooks(self.tokens, [("pattern", 3)])),
        ):
            with self.assert_says(vitrine.InputError, words):
                call()


class Functions(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = tales()
        cls.tokens = cls.model.to_tokens(PROMPT)
        cls.logits, cls.stream = cls.model.run_with_cache(cls.tokens, "*resid*")

    def test_a_function_that_only_reads_changes_no_bit(self):
        seen = {}
        logits = self.model.run_with_hooks(self.tokens, [("*resid*", lambda value, hook: seen.__setitem__(hook.name, value))])
        np.testing.assert_array_equal(logits, self.logits)
        self.assertEqual(len(seen), 24)
        for name, value in seen.items():  # kept after the run, and still what the run showed
            np.testing.assert_array_equal(value, self.stream[name])

    def test_the_hook_says_where_it_is(self):
        places = []
        self.model.run_with_hooks(self.tokens, [("pattern.3", lambda _, hook: places.append((hook.name, hook.layer(), hook.position)))])
        self.assertEqual(places, [("blocks.3.attn.hook_pattern", 3, 0)])
        with self.assert_says(ValueError, "in no layer"):
            self.model.run_with_hooks(self.tokens, [("hook_embed", lambda _, hook: hook.layer())])

    def test_functions_of_one_hook_follow_each_other(self):
        logits = self.model.run_with_hooks(self.tokens, [("mlp_out.2", lambda v, hook: v * 4), ("mlp_out.2", lambda v, hook: v * 0.25)])
        np.testing.assert_array_equal(logits, self.logits)

    def test_a_patched_stream_gives_the_other_prompt(self):
        other = self.model.to_tokens("The old queen had three sons, and the youngest")
        self.assertEqual(other.shape, self.tokens.shape)
        patched = self.model.run_with_hooks(other, [("blocks.0.hook_resid_pre", lambda v, hook: self.stream[hook.name])])
        np.testing.assert_array_equal(patched, self.logits)

    def test_what_is_no_pair_of_name_and_function(self):
        model = vitrine.load(golden_model("llama"), compute="f32")
        for hooks in (["resid_pre.0"], [("resid_pre.0",)], [3]):
            with self.assert_says(vitrine.InputError, "a hook is a pair of a name and a function"):
                model.run_with_hooks([5, 17, 3], hooks)

    def test_replacements_of_other_types_and_wrong_shapes(self):
        same = self.model.run_with_hooks(self.tokens, [("resid_mid.1", lambda v, hook: v.astype(np.float64))])
        np.testing.assert_array_equal(same, self.logits)
        same = self.model.run_with_hooks(self.tokens, [("resid_mid.1", lambda v, hook: np.asfortranarray(v))])
        np.testing.assert_array_equal(same, self.logits)
        with self.assert_says(vitrine.ShapeError, "blocks.1.hook_resid_mid", "expected [1, ", ", 256]"):
            self.model.run_with_hooks(self.tokens, [("resid_mid.1", lambda v, hook: v[0])])
        for replace, kind in ((lambda v: np.full(v.shape, None), "object"), (lambda v: v + 1j, "complex"),
                              (lambda v: v.astype(str), "<U")):
            with self.assert_says(vitrine.InputError, "blocks.1.hook_resid_mid is an array of", kind, "expected real numbers"):
                self.model.run_with_hooks(self.tokens, [("resid_mid.1", lambda v, hook, replace=replace: replace(v))])

    def test_hooks_act_in_every_kind_of_run(self):
        def off(value, hook):
            value[...] = 0

        plain = self.model.generate(PROMPT, 8)
        with self.model.hooks([("mlp_out", off)]):
            logits, cache = self.model.run_with_cache(self.tokens, ["mlp_out", "logits"])
            self.assertTrue(all(not value.any() for name, value in cache.items() if name.endswith("mlp_out")))
            np.testing.assert_array_equal(logits, cache["logits"])
            self.assertFalse(np.array_equal(logits, self.logits))
            made = self.model.generate(PROMPT, 8)
            self.assertNotEqual(made.tokens, plain.tokens)
            stream = self.model.stream(PROMPT, 8)
            self.assertEqual(self.model.predict(PROMPT)[0].top[0].token, int(logits[0, -1].argmax()))
            with self.assert_says(vitrine.UsageError, "without hook functions"):
                self.model.beams(PROMPT)
        self.assertEqual("".join(stream), made.text)  # with the hooks of the moment it was made
        self.assertEqual(self.model.generate(PROMPT, 8).tokens, plain.tokens)

    def test_positions_of_new_tokens(self):
        rows = []
        with self.model.hooks([("pattern.0", lambda v, hook: rows.append((hook.position, v.shape)))]):
            self.model.generate(self.tokens, 3)
        n = self.tokens.shape[1]
        self.assertEqual(rows, [(0, (1, 4, n, n)), (n, (1, 4, 1, n + 1)), (n + 1, (1, 4, 1, n + 2))])

    def test_an_exception_ends_the_run_and_nothing_else(self):
        class Boom(Exception):
            pass

        boom = Boom("from inside")

        def fail(value, hook):
            raise boom

        for run in (lambda: self.model(self.tokens), lambda: self.model.predict(PROMPT), lambda: self.model.generate(PROMPT, 4),
                    lambda: list(self.model.stream(PROMPT, 4))):
            with self.model.hooks([("resid_mid.4", fail)]):
                with self.assertRaises(Boom) as raised:
                    run()
            self.assertIs(raised.exception, boom)
            np.testing.assert_array_equal(self.model(self.tokens), self.logits)

    def test_a_failed_stream_has_ended(self):
        with self.model.hooks([("pattern.0", lambda v, hook: 1 / 0 if hook.position else None)]):
            stream = self.model.stream(PROMPT, 4)
        next(stream)
        with self.assertRaises(ZeroDivisionError):
            next(stream)
        self.assertEqual(list(stream), [])
        self.assertEqual(stream.finish_reason, "error")

    def test_the_model_cannot_run_inside_itself_but_another_can(self):
        with self.assert_says(vitrine.UsageError, "is running"):
            self.model.run_with_hooks(self.tokens, [("pattern.0", lambda v, hook: self.model.predict(PROMPT) and None)])
        other = tales()
        seen = []
        self.model.run_with_hooks(self.tokens, [("embed", lambda v, hook: seen.append(other(self.tokens)))])
        np.testing.assert_array_equal(seen[0], self.logits)

    def test_nan_is_an_error_of_the_run(self):
        with self.model.hooks([("mlp_out.3", lambda v, hook: v * np.nan)]):
            for run in (lambda: self.model(self.tokens), lambda: self.model(self.tokens, "loss"), lambda: self.model.predict(PROMPT),
                        lambda: self.model.run_with_cache(self.tokens), lambda: self.model.generate(PROMPT, 2),
                        lambda: self.model.run_with_cache(self.tokens, "resid_post.3", return_type=None),
                        lambda: list(self.model.stream(PROMPT, 2))):
                with self.assert_says(vitrine.RunError, "NaN", "function at blocks.3.hook_mlp_out left", "at position 0"):
                    run()
            logits, cache = self.model.run_with_cache(self.tokens, "resid_post.2", allow_nan=True)
            self.assertTrue(np.isnan(logits).all())
            self.assertTrue(np.isfinite(cache["resid_post", 2]).all())

        def one_row(value, hook):
            value[0, 4] = np.inf

        with self.assert_says(vitrine.RunError, "blocks.5.hook_resid_mid left NaN or infinity at position 4"):
            self.model.run_with_hooks(self.tokens, [("resid_mid.5", one_row)])

        def mask(scores, hook):
            scores[:, 1, :, 1:] = -np.inf

        self.assertTrue(np.isfinite(self.model.run_with_hooks(self.tokens, [("attn_scores.2", mask)])).all())

    def test_nan_of_the_weights_is_an_error_that_can_be_looked_at(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(golden_model("gpt2_a"), folder, dirs_exist_ok=True)
            (path,) = pathlib.Path(folder).glob("*.safetensors")
            file = bytearray(path.read_bytes())
            header = 8 + int.from_bytes(file[:8], "little")
            (entry,) = (v for k, v in json.loads(file[8:header]).items() if k.endswith("h.1.mlp.c_fc.bias"))
            begin = header + entry["data_offsets"][0]
            file[begin : begin + 4] = np.float32(np.nan).tobytes()
            path.write_bytes(file)
            model = vitrine.load(folder)
            for run in (lambda: model([1, 2, 3]), lambda: model.run_with_cache([1, 2, 3]),
                        lambda: model.run_with_cache([1, 2, 3], "mlp_out.1", return_type=None)):
                with self.assert_says(vitrine.RunError, "appeared first in blocks.1.mlp.hook_pre at position 0"):
                    run()
            _, cache = model.run_with_cache([1, 2, 3], "resid_mid.1", return_type=None)  # ends before it
            self.assertTrue(np.isfinite(cache["resid_mid", 1]).all())
            logits, cache = model.run_with_cache([1, 2, 3], allow_nan=True)
            self.assertTrue(np.isnan(logits).all())
            self.assertTrue(np.isnan(cache["pre", 1][..., 0]).all())


class Memory(Case):
    def test_arrays_outlive_their_model(self):
        model = vitrine.load(golden_model("gpt2_a"))
        logits, cache = model.run_with_cache([1, 2, 3])
        pattern, weight, bias = cache["pattern", 0], model.weight("W_E"), model.weight("ln_final.b")
        before = [x.copy() for x in (logits, pattern, weight, bias)]
        tokenizer = model.tokenizer
        del model, cache
        gc.collect()
        vitrine.load(golden_model("gpt2_a"))([1, 2, 3])
        for now, then in zip((logits, pattern, weight, bias), before, strict=True):
            np.testing.assert_array_equal(now, then)
        self.assertEqual(tokenizer.decode(tokenizer.encode("still here")), "still here")

    def test_f32_weights_are_seen_where_they_lie(self):
        model = vitrine.load(golden_model("gpt2_a"))
        for name in model.weight_names:
            w = model.weight(name)
            self.assertEqual(w.dtype, np.float32)
            self.assertTrue(np.shares_memory(w, model.weight(name)), name)
            self.assertFalse(w.flags.writeable, name)
        self.assertTrue(np.shares_memory(model.W_U, model.W_E))
        with self.assert_says(ValueError, "Did you mean \"blocks.0.attn.W_Q\"?"):
            model.weight("blocks.0.attn.W_q")

    def test_bf16_weights_are_widened(self):
        model = vitrine.load()
        w = model.weight("blocks.2.attn.W_K", raw=True)
        self.assertEqual(w.shape, (128, 256))
        self.assertEqual(model.weight("blocks.2.attn.W_K").shape, (2, 256, 64))
        self.assertEqual(model.W_K.shape, (8, 2, 256, 64))
        np.testing.assert_array_equal(model.W_K[2, 1], w[64:].T)
        np.testing.assert_array_equal(w.view(np.uint32) & 0xFFFF, np.zeros(w.shape, np.uint32))  # as bf16 has them
        with self.assert_says(ValueError, "no parameter \"W_pos\""):
            model.W_pos

    def test_dlpack_shares_the_numbers(self):
        _, cache = tales().run_with_cache(PROMPT, "pattern.0")
        pattern = cache["pattern", 0]
        self.assertTrue(np.shares_memory(np.from_dlpack(pattern), pattern))
        pattern[...] = 0  # the caller's own
        self.assertFalse(cache["pattern", 0].any())


class Threads(Case):
    def test_other_python_threads_run_while_the_model_does(self):
        model, stamps, done = tales(), [], threading.Event()

        def count():
            while not done.is_set():
                stamps.append(time.perf_counter())
                time.sleep(0.002)

        thread = threading.Thread(target=count)
        thread.start()
        begin = time.perf_counter()
        model.generate(PROMPT, 200, ignore_eos=True)
        end = time.perf_counter()
        done.set()
        thread.join()
        self.assertGreater(sum(begin < stamp < end for stamp in stamps), 3)

    def test_threads_take_turns(self):
        model = tales()
        prompts = [PROMPT, "Once upon a time", "A wolf"] * 3
        expected = [model.generate(p, 12).tokens for p in prompts]
        found: list = [None] * len(prompts)

        def run(i):
            with model.hooks([("resid_pre.0", lambda value, hook: time.sleep(0.001))]):  # lets the others in
                found[i] = model.generate(prompts[i], 12).tokens

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, expected)

    def test_hooks_belong_to_the_thread_that_sets_them(self):
        model = tales()
        first_set, second_set, first_gone = threading.Event(), threading.Event(), threading.Event()
        tokens = model.to_tokens(PROMPT)
        off = [("blocks.5.hook_mlp_out", lambda value, hook: 0 * value)]
        plain, without = model(tokens), model.run_with_hooks(tokens, off)
        found = {}

        def second():
            first_set.wait()
            with model.hooks([("blocks.5.hook_mlp_out", lambda value, hook: None)]):
                found["second, beside the first"] = model(tokens)
                second_set.set()
                first_gone.wait()
            found["second, after both"] = model(tokens)

        thread = threading.Thread(target=second)
        thread.start()
        with model.hooks(off):
            first_set.set()
            second_set.wait()
            np.testing.assert_array_equal(model(tokens), without)
        first_gone.set()
        thread.join()
        for when, logits in {**found, "first, after both": model(tokens)}.items():
            np.testing.assert_array_equal(logits, plain, when)

    def test_ctrl_c_ends_a_run(self):
        model = tales()
        # A shell that starts a job in the background has it ignore the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        main = threading.main_thread().ident
        width = model.cfg.d_model
        weights = np.random.default_rng(0).standard_normal((width, 32768)).astype(np.float32)
        sae = vitrine.SparseAutoencoder.from_arrays({"architecture": "topk", "k": 8, "d_in": width, "d_sae": 32768}, W_enc=weights,
                                                    W_dec=weights.T, b_enc=np.zeros(32768), b_dec=np.zeros(width))
        rows = np.tile(weights.T, (8, 1))

        def again_and_again():
            for _ in range(100):
                model.generate(PROMPT, 1000, ignore_eos=True)

        # Each would take half a minute or more, of the processor's time, which other processes do not lengthen.
        for call in (again_and_again, lambda: model.attribute(PROMPT, steps=4096), lambda: sae.encode_sparse(rows)):
            timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
            begin = time.process_time()
            with self.assertRaises(KeyboardInterrupt):
                timer.start()  # here, so that a signal that comes early is met here, too
                call()
            self.assertLess(time.process_time() - begin, 20)
            timer.join()
        self.assertEqual(model.generate(PROMPT, 4).tokens, tales().generate(PROMPT, 4).tokens)


if __name__ == "__main__":
    unittest.main()
