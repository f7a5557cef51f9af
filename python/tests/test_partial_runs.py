"""Runs that start, stop and go on where they are told to, and hooks that stay."""

import threading
import time
import unittest

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model, tales

PROMPT = "The old king had three sons, and the youngest"
FAMILIES = sorted(p.parents[1].name for p in (GOLDEN / "models").glob("*/model/config.json"))


class Layers(Case):
    def test_every_family_starts_and_stops_at_any_layer(self):
        started = 0
        for name in FAMILIES:
            model = vitrine.load(golden_model(name), compute="f32")
            ids = [[i % model.cfg.d_vocab for i in (5, 17, 3, 101, 42, 8)]] * 2
            _, cache = model.run_with_cache(ids, "*hook_resid*")
            n = model.cfg.n_layers
            for layer in range(n + 1):
                stream = model(ids, stop_at_layer=layer)
                expected = cache["resid_pre", layer] if layer < n else cache["resid_post", -1]
                np.testing.assert_array_equal(stream, expected, name)
                if layer == n:
                    continue
                if any(0 <= model._session.describe_layer(i)["keys_of"] < layer for i in range(layer, n)):
                    with self.assert_says(vitrine.InputError, "reads the keys of layer"):
                        model(stream, start_at_layer=layer, tokens=ids)
                    continue
                np.testing.assert_array_equal(model(stream, start_at_layer=layer, tokens=ids), model(ids), name)
                started += layer > 0
                between = model(stream, start_at_layer=layer, stop_at_layer=n, tokens=ids)
                np.testing.assert_array_equal(between, cache["resid_post", -1], name)
        self.assertGreater(started, 20)

    def test_a_changed_stream_and_hooks_after_the_start(self):
        model = tales()
        ids = model.to_tokens(PROMPT)
        stream = model(ids, stop_at_layer=3)
        changed = stream * 1.1
        logits = model(changed, start_at_layer=3)
        self.assert_close(logits, model.run_with_hooks(ids, [("resid_pre.3", lambda value, hook: value * 1.1)]), 1e-5, 1e-5)
        off = [("mlp_out.5", lambda value, hook: value * 0)]
        self.assert_close(model.run_with_hooks(stream, off, start_at_layer=3), model.run_with_hooks(ids, off), 1e-5, 1e-5)
        np.testing.assert_array_equal(model(stream[0], start_at_layer=-5), model(ids))
        self.assert_close(model(stream, "loss", start_at_layer=3, tokens=ids), model(ids, "loss"))
        both = model(ids, "both")
        np.testing.assert_array_equal(both[0], model(ids))
        self.assertEqual(both[1], model(ids, "loss"))
        self.assertIsNone(model(ids, None))
        for error, words, call in (
            (vitrine.UsageError, "start_at_layer is 8", lambda: model(stream, start_at_layer=8)),
            (vitrine.UsageError, "stop_at_layer is 9", lambda: model(ids, stop_at_layer=9)),
            (vitrine.ShapeError, "expected [batch, position, 256]", lambda: model(stream[..., :5], start_at_layer=3)),
            (vitrine.UsageError, "needs tokens= for a loss", lambda: model(stream, "loss", start_at_layer=3)),
            (vitrine.ShapeError, "expected a row for every token", lambda: model(stream, start_at_layer=3, tokens=ids[:, 1:])),
            (vitrine.UsageError, "goes with start_at_layer", lambda: model(ids, tokens=ids)),
            (vitrine.InputError, "blocks.2.hook_resid_mid lies before layer 3",
             lambda: model.run_with_hooks(stream, [("resid_mid.2", print)], start_at_layer=3)),
            (vitrine.InputError, "hook_embed lies before layer 3",
             lambda: model.run_with_hooks(stream, [("embed", print)], start_at_layer=3)),
            (vitrine.RunError, "NaN", lambda: model(stream * np.nan, start_at_layer=3)),
        ):
            with self.assert_says(error, words):
                call()
        np.testing.assert_array_equal(model(ids), both[0])  # nothing of it is left

    def test_a_run_ends_behind_the_last_hook_that_is_wanted(self):
        model = tales()
        ids = np.tile(model.to_tokens(PROMPT), (1, 16))

        def seconds(request):
            best = np.inf
            for _ in range(5):
                begin = time.perf_counter()
                model.run_with_cache(ids, request, return_type=None)
                best = min(best, time.perf_counter() - begin)
            return best

        self.assertLess(seconds("blocks.0.hook_resid_mid"), 0.6 * seconds("blocks.7.hook_resid_post"))
        # Functions at later hooks are called all the same.
        seen = []
        with model.hooks([("resid_post.6", lambda value, hook: seen.append(hook.name))]):
            model.run_with_cache(ids, "resid_pre.1", return_type=None)
        self.assertEqual(seen, ["blocks.6.hook_resid_post"])


class Past(Case):
    def test_tokens_that_follow_give_the_logits_of_the_whole(self):
        for name in ("gpt2_a", "gemma2", "gemma4", "lfm2", "qwen3_5"):
            model = vitrine.load(golden_model(name), compute="f32")
            ids = np.array([[i * 7 % model.cfg.d_vocab for i in range(3, 15)]])
            whole = model(ids)
            past = model.kv_cache()
            parts = [model(part, past_kv_cache=past) for part in (ids[:, :5], ids[:, 5:6], ids[:, 6:])]
            self.assertEqual(len(past), 12)
            self.assert_close(np.concatenate(parts, axis=1), whole, 1e-4, 1e-4, name)
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        past = model.kv_cache()
        model([1, 2, 3], past_kv_cache=past)
        seen = []
        logits = model.run_with_hooks([4], [("z.0", lambda value, hook: seen.append((hook.position, value.shape)))], past_kv_cache=past)
        self.assertEqual(seen[0][0], 3)
        self.assert_close(logits[0, 0], model([1, 2, 3, 4])[0, -1])
        past.truncate(2)
        self.assert_close(model([5], past_kv_cache=past)[0, 0], model([1, 2, 5])[0, -1])
        for words, call in (("those of another model", lambda: vitrine.load(golden_model("gpt2_a"))([1], past_kv_cache=past)),
                            ("a cache of keys and values is of one", lambda: model([[1], [2]], past_kv_cache=past)),
                            ("starts at the first layer", lambda: model(model([1, 2], stop_at_layer=1), start_at_layer=1, past_kv_cache=past)),
                            ("length is 9", lambda: past.truncate(9)), ("context", lambda: model([1] * model.cfg.n_ctx, past_kv_cache=past))):
            with self.assert_says(vitrine.InputError, words):
                call()
        self.assertEqual(repr(past), "<KeyValueCache of 3 tokens>")

    def test_a_cache_is_not_cut_while_a_run_reads_it(self):
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        past = model.kv_cache()
        model([1, 2, 3], past_kv_cache=past)
        with self.assert_says(vitrine.UsageError, "this model is running"):
            model.run_with_hooks([4, 5], [("resid_pre.1", lambda value, hook: past.truncate(0))], past_kv_cache=past)
        self.assertEqual(len(past), 3)
        self.assert_close(model([4], past_kv_cache=past)[0, 0], model([1, 2, 3, 4])[0, -1])


class Staying(Case):
    def test_hooks_that_are_added_stay_until_they_are_reset(self):
        model = tales()
        ids = model.to_tokens(PROMPT)
        plain = model(ids)
        off = [("mlp_out.5", lambda value, hook: value * 0)]
        without = model.run_with_hooks(ids, off)
        model.add_hook(*off[0])
        np.testing.assert_array_equal(model(ids), without)
        with model.hooks([("resid_pre.0", lambda value, hook: None)]):
            model.add_hook("resid_pre.1", lambda value, hook: None)
        np.testing.assert_array_equal(model(ids), without)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(model(ids)))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(elsewhere[0], plain)
        model.reset_hooks()
        np.testing.assert_array_equal(model(ids), plain)
        order = []
        model.add_hook("resid_pre.1", lambda value, hook: order.append("second"))
        model.add_hook("resid_pre.1", lambda value, hook: order.append("first"), prepend=True)
        model(ids)
        self.assertEqual(order, ["first", "second"])
        model.reset_hooks()
        with self.assert_says(vitrine.InputError, "Did you mean"):
            model.add_hook("resid_pro.1", print)

    def test_hooks_in_generation(self):
        model = tales()
        off = [("mlp_out", lambda value, hook: value * 0)]
        plain = model.generate(PROMPT, 8)
        made = model.generate(PROMPT, 8, fwd_hooks=off)
        self.assertNotEqual(made.tokens, plain.tokens)
        self.assertEqual("".join(model.stream(PROMPT, 8, fwd_hooks=off)), made.text)
        self.assertEqual(model.generate(PROMPT, 8).tokens, plain.tokens)
        # Greedy, token by token, it is what the model's call says under the same hooks.
        ids = model.to_tokens(PROMPT)
        for token in made.tokens[:4]:
            self.assertEqual(int(model.run_with_hooks(ids, off)[0, -1].argmax()), token)
            ids = np.concatenate([ids, [[token]]], axis=1)

    def test_tokens_and_directions(self):
        model = tales()
        the = model.to_single_token(" king")
        self.assertEqual(model.to_single_str_token(the), "▁king")
        self.assert_close(model.tokens_to_residual_directions(" king"), model.W_U[:, the], 1e-6)
        self.assertEqual(model.tokens_to_residual_directions([[the, 5]]).shape, (1, 2, 256))
        for words, call in (("is no single token", lambda: model.to_single_token("the king of the")),
                            ("outside the vocabulary", lambda: model.tokens_to_residual_directions(6144)),
                            ("whole numbers", lambda: model.tokens_to_residual_directions(0.5))):
            with self.assert_says(vitrine.InputError, words):
                call()


if __name__ == "__main__":
    unittest.main()
