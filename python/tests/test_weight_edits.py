"""Weights that are changed in memory: the model computes with what was written, and nothing else changes."""

import contextlib
import copy
import json
import pathlib
import pickle
import tempfile
import threading
import unittest
from unittest import mock

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model, tales
from test_weights import MODELS

FILE = np.load(GOLDEN / "python" / "weight_edits.npz")
EDITS = ("head", "prune", "rank_one", "projection", "norms")
TALE = "Once upon a time there was a"


def edit(model, name, key, value, direction):
    """As tests/golden/python/make_weight_edits.py."""
    w = model.weights
    if name == "head":
        w["blocks.1.attn.W_Q"][1] = 0
    elif name == "prune":
        up = w["blocks.0.mlp.W_in"]
        up[np.abs(up) < 0.05] = 0
        w["blocks.0.mlp.W_out"] *= 0.5
    elif name == "rank_one":
        w["blocks.1.mlp.W_out"] += np.outer(key, value)
    elif name == "projection":
        for each in w:
            if each in ("W_E", "W_pos") or each.endswith(("attn.W_O", "mlp.W_out")):
                w[each] -= np.asarray(w[each] @ direction)[..., None] * direction
    elif name == "norms":
        w["blocks.0.ln1.w"] *= 1.25
        w["ln_final.w"][3] = 0


class SameAsTorch(Case):
    def check(self, path, name):
        given = [FILE[f"{name}.{one}"] for one in ("key", "value", "direction")]
        ids = FILE[f"{name}.ids"]
        for one in (*EDITS, "all"):
            model = vitrine.load(path, compute="f32")
            before = model(ids)
            for each in EDITS if one == "all" else (one,):
                edit(model, each, *given)
            self.assert_close(model(ids)[0, -3:], FILE[f"{name}.{one}"], 1e-4, 1e-4, f"{path} {one}")
            np.testing.assert_array_equal(vitrine.load(path, compute="f32")(ids), before)

    def test_directories(self):
        for name in ("gpt2_a", "llama", "gemma", "gpt_neox", "bloom"):
            self.check(golden_model(name), name)

    def test_gguf_files(self):  # norms that hold 1 + w, heads in another order
        for name in ("gpt2_a", "gemma", "gpt_neox", "bloom"):
            self.check(GOLDEN / "gguf" / f"{name}.gguf", name)


class EveryParameter(Case):
    def test_each_is_written_as_it_is_read_and_saved(self):
        random = np.random.default_rng(0)
        for path in [*MODELS, GOLDEN / "gguf" / "gemma4.gguf", GOLDEN / "gguf" / "lfm2.gguf", GOLDEN / "gguf" / "mixtral.gguf"]:
            if not path.exists():
                continue
            model, other = vitrine.load(path, compute="f32"), vitrine.load(path, compute="f32")
            ids = random.integers(3, model.cfg.vocab_size, 9)
            before, written = model(ids), {}
            for name in model.weight_names:
                old = model.weight(name)
                new = old * random.uniform(0.9, 1.1, old.shape).astype(np.float32)
                try:
                    model.weights[name][...] = new
                except vitrine.InputError as error:
                    self.assertIn("is a constant of this model", str(error))
                    continue
                written[name] = new
                self.assert_close(model.weight(name), new, 1e-6, 1e-6, f"{path} {name}")
            after = model(ids)
            self.assertFalse(np.array_equal(after, before), path)
            np.testing.assert_array_equal(other(ids), before, err_msg=str(path))
            for name, new in written.items():  # no name is a part of another but a tied model's
                self.assert_close(model.weight(name), new, 1e-6, 1e-6, f"{path} {name}")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    saved = vitrine.load(model.save(folder + "/saved", dtype="f32"), compute="f32")
                except vitrine.FileError as error:
                    self.assertEqual(path.suffix, ".gguf", error)  # what no config.json can say
                    continue
                self.assert_close(saved(ids), after, 1e-5, 1e-5, str(path))

    def test_heads_of_models_that_stack_them(self):
        for name in ("gpt_neox", "bloom", "falcon", "falcon_40b", "phi3", "gpt2_a"):
            model = vitrine.load(golden_model(name), compute="f32")
            stored = {each for each in model.weight_names if "W_QKV" in each}
            for part, head in ((part, head) for part in "QKV" for head in (0, -1)):
                which = f"blocks.1.attn.W_{part}"
                others = {each: model.weight(each) for each in (f"blocks.1.attn.W_{other}" for other in "QKV") if each != which}
                before, rows = model.weight(which), {each: model.weight(each) for each in stored}
                model.weights[which][head, 2, 1] = 7 + head
                after = model.weight(which)
                self.assertEqual(after[head, 2, 1], 7 + head)
                self.assertEqual((after != before).sum(), 1)
                for each, value in others.items():
                    np.testing.assert_array_equal(model.weight(each), value)
                changed = [np.argwhere(model.weight(each) != value) for each, value in rows.items()]
                self.assertEqual(sum(map(len, changed)), 1 if stored else 0)

    def test_a_head_that_is_set_to_zero_reads_nothing(self):
        ids = [5, 6, 7, 8, 9, 10]
        for name in ("gpt_neox", "bloom", "falcon", "falcon_40b", "phi3", "gpt2_a"):
            for part, head in ((part, head) for part in "QKV" for head in (0, -1)):
                model = vitrine.load(golden_model(name), compute="f32")
                _, before = model.run_with_cache(ids)
                model.weights[f"blocks.1.attn.W_{part}"][head] = 0
                bias = f"blocks.1.attn.b_{part}"
                with contextlib.suppress(vitrine.InputError):
                    model.weights[bias][head] = 0
                _, after = model.run_with_cache(ids)
                value = after[part.lower(), 1]
                self.assertFalse(value[:, :, head].any(), f"{name} {part} {head}")
                kept = np.delete(value, head % value.shape[2], axis=2)
                self.assert_close(kept, np.delete(before[part.lower(), 1], head % value.shape[2], axis=2), what=f"{name} {part}")


class WithoutReading(Case):
    def test_shapes_take_no_numbers(self):
        model = tales()
        w = model.weights["W_E"]
        with mock.patch.multiple("vitrine.editing", reading=None, weight=None):
            shape = (w.shape, w.ndim, w.size, len(w), w[1:9].shape, w.T.shape, model.weights["blocks.0.attn.W_Q"][0].shape)
        vocab, d = model.cfg.vocab_size, model.cfg.d_model
        self.assertEqual(shape, ((vocab, d), 2, vocab * d, vocab, (8, d), (d, vocab), (d, 64)))
        with self.assertRaises(IndexError):
            w[vocab]


class LikeAnArray(Case):
    def setUp(self):
        self.model = vitrine.load(golden_model("gpt2_a"))
        self.name = "blocks.0.mlp.W_in"
        self.expected = self.model.weight(self.name).copy()

    def same(self):
        np.testing.assert_array_equal(self.model.weight(self.name), self.expected)
        np.testing.assert_array_equal(np.asarray(self.model.weights[self.name]), self.expected)

    def test_what_writes(self):
        x = np.random.default_rng(0).normal(size=self.expected.shape).astype(np.float32)
        w = self.model.weights[self.name]
        for write in (
            lambda a: a.__setitem__((slice(None), 3), 0),
            lambda a: a.__setitem__(np.abs(x) < 0.3, -1),
            lambda a: a.__setitem__([1, 4], x[:2]),
            lambda a: a[2].__setitem__(slice(None, None, 2), 5),
            lambda a: a[1:4][1].__setitem__(..., x[0]),
            lambda a: a.T[5].__setitem__(slice(3), 9),
            lambda a: a.__imul__(2),
            lambda a: a.__iadd__(x),
            lambda a: a[3:6].__isub__(x[3:6]),
            lambda a: a.__itruediv__(3),
            lambda a: np.multiply(a, x, out=a),
            lambda a: np.add(x[0], 1, out=a[7]),
            lambda a: np.add.at(a, ([0, 0], [1, 1]), 1),
            lambda a: np.clip(a, -0.5, 0.5, out=a),
            lambda a: np.copyto(a, x, where=x > 1),
            lambda a: np.putmask(a, x > 2, x),
            lambda a: np.fill_diagonal(a, 4),
            lambda a: a.fill(0.25),
            lambda a: a.__setitem__(slice(None), x),
        ):
            write(w)
            write(self.expected)
            self.same()
        self.model.weights[self.name] *= 2
        self.model.weights[self.name][0] += 1
        self.model.weights[self.name][x > 0] *= 3
        self.expected *= 2
        self.expected[0] += 1
        self.expected[x > 0] *= 3
        self.same()
        self.model.weights[self.name] = x
        self.expected = x
        self.same()

    def test_what_reads(self):
        w, a = self.model.weights[self.name], self.expected
        for read in (lambda v: v + 1, lambda v: 2 - v, lambda v: v @ np.ones(a.shape[1]), lambda v: np.ones(a.shape[0]) @ v,
                     lambda v: v > 0, lambda v: np.linalg.norm(v, axis=0), lambda v: np.linalg.svd(v, compute_uv=False), lambda v: np.mean(v),
                     lambda v: np.einsum("ij,ij->i", v, v), lambda v: np.concatenate([v, v]), lambda v: np.stack([v[0], v[1]]),
                     lambda v: np.sum(v, axis=1, keepdims=True), lambda v: v[[2, 0]], lambda v: v[a > 0], lambda v: np.array(v.T[1:3]),
                     lambda v: np.asarray(v, dtype=np.float64), lambda v: v.copy(), lambda v: np.array(list(v)), lambda v: np.array(v[None, 2])):
            np.testing.assert_array_equal(read(w), read(a))
        self.assertEqual((w.shape, w.ndim, w.size, len(w), w.dtype), (a.shape, 2, a.size, len(a), a.dtype))
        self.assertEqual(w[2, 3], a[2, 3])
        self.assertFalse(self.model._session.edited)  # nothing was copied
        self.assertIn("blocks.0.mlp.W_in[2:4, 0]", repr(w[2:4, 0]))
        self.assertIn("parameters of", repr(self.model.weights))
        self.assertEqual(list(self.model.weights), self.model.weight_names)
        x = np.ones(a.shape, np.float32)
        x += w
        np.testing.assert_array_equal(x, 1 + a)

    def test_arrays_stay_what_they_were(self):
        first = self.model.weight(self.name)
        self.model.weights[self.name][0] = 1
        second, third = self.model.weight(self.name), np.asarray(self.model.weights[self.name])
        self.model.weights[self.name][0] = 2
        np.testing.assert_array_equal(first, self.expected)
        self.assertEqual((second[0, 0], third[0, 0], self.model.weights[self.name][0, 0]), (1, 1, 2))

    def test_what_cannot_be_written_says_so(self):
        model = self.model
        for array in (model.W_Q, model.W_E, model.W_E_pos, model.b_in, model.b_U, model.weight(self.name), model.blocks[0].attn.W_O,
                      model.unembed.W_U, model.stack_params_for("attn", "attn.W_V")[1], model.ln_final.w,
                      vitrine.load(golden_model("gemma")).b_Q, vitrine.load(golden_model("llama")).b_U):
            with self.assert_says(ValueError, "read-only"):
                array[0] = 0
        with self.assert_says(AttributeError, 'model.weights["blocks.0.attn.W_Q"]'):
            model.blocks[0].attn.W_Q = 0
        with self.assertRaises(AttributeError):
            model.W_E = 0
        with self.assertRaises(AttributeError):
            model.weights = {}
        with self.assert_says(vitrine.InputError, "no parameter", "Did you mean"):
            model.weights["blocks.0.mlp.W_inn"]
        with self.assertRaises(IndexError):
            model.weights[self.name][10**6]
        self.assertFalse(model._session.edited)
        for wrong in (lambda w: w.__setitem__(slice(None), np.zeros(3)), lambda w: w.__imul__(np.zeros(3)), lambda w: w.__setitem__(0, "x")):
            with self.assertRaises(ValueError):
                wrong(model.weights[self.name])
            self.assertFalse(model._session.edited)  # nothing was left copied
        self.same()
        with self.assert_says(vitrine.InputError, "is a constant of this model"):
            vitrine.load(golden_model("gemma4")).weights["blocks.0.scale"][0] = 1


class WhatSeesTheChange(Case):
    def test_runs_and_generation(self):
        model, other = tales(), tales()
        logits, text = model(TALE), model.generate(TALE, 8).text
        again = model.copy()
        for name in model.weight_names:
            if name.endswith("mlp.W_out"):
                model.weights[name][:100] = 0
        changed = model(TALE)
        self.assertFalse(np.allclose(changed, logits, atol=1e-2))
        for same in (other, again):
            np.testing.assert_array_equal(same(TALE), logits)
            self.assertEqual(same.generate(TALE, 8).text, text)

        def prune(value, hook):
            value[..., :100] = 0

        hooked = other.run_with_hooks(TALE, [(f"blocks.{layer}.mlp.hook_post", prune) for layer in range(8)])
        self.assert_close(changed, hooked, 1e-4)
        greedy = model.generate(TALE, 8).tokens
        with other.hooks([(f"blocks.{layer}.mlp.hook_post", prune) for layer in range(8)]):
            self.assertEqual(greedy, other.generate(TALE, 8).tokens)
        copied = copy.deepcopy(model)
        np.testing.assert_array_equal(copied(TALE), changed)
        copied.weights["W_E"] *= 2
        np.testing.assert_array_equal(model(TALE), changed)
        self.assertNotEqual(model.circuits(0, 0)["heads"][0]["ov"]["frobenius"], 0)
        model.weights["blocks.0.attn.W_O"][0] = 0
        self.assertEqual(model.circuits(0, 0)["heads"][0]["ov"]["frobenius"], 0)
        _, gradients = model.gradients(TALE, "blocks.0.attn.hook_z")
        self.assertFalse(gradients["z", 0][:, :, 0].any())
        self.assertTrue(gradients["z", 0][:, :, 1].any())

    def test_a_tied_embedding_is_the_head(self):
        model = vitrine.load(golden_model("gemma"), compute="f32")
        head = model.W_U
        model.weights["W_E"][7] *= 2
        self.assert_close(model.W_U[:, 7], 2 * head[:, 7], 1e-6)
        model.weights["W_U"][:, 7] *= 0.5
        self.assert_close(model.W_U, head, 1e-6)

    def test_an_adapter_becomes_a_part_of_what_is_written(self):
        folder = GOLDEN / "lora" / "gpt2_a"
        model = vitrine.load(golden_model("gpt2_a"), adapter=folder / "adapter", compute="f32")
        before = model([5, 6, 7])
        for name in model.weight_names:
            model.weights[name] *= 1
        self.assert_close(model([5, 6, 7]), before, 1e-5)
        model.weights["blocks.0.attn.W_Q"][:] = 0
        self.assertFalse(model.W_Q[0].any())
        with tempfile.TemporaryDirectory() as out:
            saved = vitrine.load(model.save(out + "/saved", dtype="f32"), compute="f32")
        self.assert_close(saved([5, 6, 7]), model([5, 6, 7]), 1e-5)

    def test_commands_that_read_the_file_refuse(self):
        model = vitrine.load()
        model.weights["ln_final.w"][0] = 1
        with self.assert_says(vitrine.UsageError, "were changed in memory", "save()"):
            model.picture("predictions", TALE)
        with self.assert_says(vitrine.UsageError, "cannot be pickled"):
            pickle.dumps(model)
        unchanged = vitrine.load(golden_model("llama"))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(unchanged))([5, 6]), unchanged([5, 6]))

    def test_a_function_of_a_run_cannot_write(self):
        model = vitrine.load(golden_model("gpt2_a"))

        def write(value, hook):
            model.weights["W_E"][0] = 0

        with self.assert_says(vitrine.UsageError, "this model is running"):
            model.run_with_hooks([5, 6], [("hook_embed", write)])
        model.weights["W_E"][0] = 0  # afterwards it can

    def test_a_run_never_sees_half_of_a_change(self):
        model = vitrine.load(golden_model("gpt2_a"), threads=1)
        name = "blocks.0.mlp.W_out"
        one = model.weight(name).copy()
        expected = []
        for factor in (1, 2):
            model.weights[name] = one * factor
            expected.append(model([5, 6, 7]))
        stop, wrong = threading.Event(), []

        def run():
            while not stop.is_set():
                logits = model([5, 6, 7])
                if not any(np.array_equal(logits, each) for each in expected):
                    wrong.append(logits)

        reader = threading.Thread(target=run)
        reader.start()
        for turn in range(200):
            model.weights[name] = one * (1 + turn % 2)
        stop.set()
        reader.join()
        self.assertEqual(wrong, [])


class Threads(Case):
    def setUp(self):
        self.model = tales()
        self.name = "blocks.2.mlp.W_out"  # bf16 in the file; large enough that memory which is given back is no longer mapped

    def other_thread(self, function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    def test_what_is_read_stays_while_another_thread_replaces_it(self):
        w = self.model.weights[self.name]
        w *= 1
        before, asked = np.array(w), []

        def first(number):
            if not asked:
                asked.append(number)
                self.other_thread(lambda: (w.__setitem__(0, 3), self.model.weights.encode(self.name)))
            return number

        found = np.frompyfunc(first, 1, 1)(w)
        np.testing.assert_array_equal(found.astype(np.float32), before)
        self.assertEqual(w[0, 0], 3)

    def test_an_array_outlives_what_it_shows(self):
        self.model.weights[self.name] *= 1
        reading = self.model._session.read(self.name)
        kept = reading.begin()
        reading.end()
        expected = kept.copy()
        self.model.weights.encode(self.name)  # the model has other memory now
        np.testing.assert_array_equal(kept, expected)
        edit = self.model._session.edit("ln_final.w")
        numbers = edit.begin()
        edit.end(False)
        copied = numbers.copy()
        del self.model, edit
        np.testing.assert_array_equal(numbers, copied)

    def test_nobody_reads_half_of_a_change(self):
        w = self.model.weights[self.name]
        w.fill(0)
        stop, wrong = threading.Event(), []
        ways = (lambda: np.array(w), lambda: self.model.weight(self.name), lambda: w[3:, 5].copy(), lambda: w + 0, lambda: w[w[...].copy() < 9],
                lambda: self.model.W_out[2])

        def read(way):
            while not stop.is_set():
                numbers = np.ravel(way())
                if (numbers != numbers[0]).any():
                    wrong.append(numbers)

        readers = [threading.Thread(target=read, args=(way,)) for way in ways]
        for reader in readers:
            reader.start()
        for turn in range(50):
            w.fill(turn % 2)
            if turn % 10 == 0:
                self.model.weights.encode(self.name)
        stop.set()
        for reader in readers:
            reader.join()
        self.assertEqual(wrong, [])

    def test_a_write_that_fails_while_others_read(self):
        w = self.model.weights[self.name]
        before, stop, wrong = np.array(w), threading.Event(), []

        def read():
            while not stop.is_set():
                if not np.array_equal(np.array(w), before):
                    wrong.append(1)

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(20):
            with self.assertRaises(ValueError):
                w[...] = np.zeros(3)
        stop.set()
        reader.join()
        self.assertEqual(wrong, [])
        self.assertFalse(self.model._session.edited)

    def test_a_writer_reads_its_own_model(self):
        w = self.model.weights[self.name]
        expected = np.array(w) + np.array(w)
        np.add(w, w, out=w)
        np.testing.assert_array_equal(w, expected)
        w[0] = [w[1, i] for i in range(w.shape[1])]
        w[2:4] = [w[1], self.model.weights["blocks.2.mlp.W_out"][0]]
        np.testing.assert_array_equal(w[2:4], expected[[1, 1]])
        np.copyto(w, w, where=w > 0)

    def test_a_hook_function_reads_weights(self):
        self.model.weights[self.name] *= 2
        found = []
        self.model.run_with_hooks(TALE, [("resid_pre.1", lambda value, hook: found.append(self.model.weights[self.name][0, 0]))])
        self.assertEqual(found, [self.model.weight(self.name)[0, 0]])


class Saved(Case):
    def test_types(self):
        model = vitrine.load(compute="f32")  # bf16 in the file
        model.weights["blocks.2.attn.W_V"] *= 1.01
        logits = model(TALE)
        with tempfile.TemporaryDirectory() as folder:
            path = model.save(pathlib.Path(folder) / "own")
            self.assertEqual(json.loads((pathlib.Path(path) / "config.json").read_text())["torch_dtype"], "bfloat16")
            own = vitrine.load(path, compute="f32")
            expected = np.array(model.weight("blocks.2.attn.W_V"))
            self.assert_close(own.weight("blocks.2.attn.W_V"), expected, 1e-6, 2**-8)
            np.testing.assert_array_equal(own.weight("blocks.3.attn.W_V"), model.weight("blocks.3.attn.W_V"))
            self.assertEqual(own.generate(TALE, 5).text, model.generate(TALE, 5).text)
            file = vitrine.load(model.save(folder + "/model.gguf", dtype="f32"), compute="f32")
            self.assert_close(file(TALE), logits, 1e-4)
            with self.assert_says(vitrine.InputError, "is there already"):
                model.save(folder + "/own")
            with self.assert_says(vitrine.InputError, "is there already"):
                model.save(folder + "/model.gguf")
            with self.assert_says(vitrine.InputError, 'dtype is "q9"', "Q4_K_M"):
                model.save(folder + "/other", dtype="q9")
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["model.gguf", "own"])
            model.weights["blocks.0.mlp.W_in"][0, 0] = np.nan
            with self.assert_says(vitrine.RunError, "NaN or infinity"):
                model.save(folder + "/nan")

    def test_a_quantized_file_keeps_its_types(self):
        with tempfile.TemporaryDirectory() as folder:
            path = vitrine.load().save(folder + "/q.gguf", dtype="q8_0")
            model = vitrine.load(path, compute="f32")
            name, size = "blocks.2.mlp.W_out", pathlib.Path(path).stat().st_size
            model.weights[name] += 0.01
            in_f32 = np.array(model.weight(name))
            whole = vitrine.load(model.save(folder + "/f32.gguf"), compute="f32")
            np.testing.assert_array_equal(whole.weight(name), in_f32)
            np.testing.assert_array_equal(whole(TALE), model(TALE))
            self.assertEqual(model.weights.encode(), [name])
            self.assertEqual(model.weights.encode(), [])
            rounded = np.array(model.weight(name))
            self.assertFalse(np.array_equal(rounded, in_f32))
            self.assert_close(rounded, in_f32, np.abs(in_f32).max() / 127)
            again = vitrine.load(model.save(folder + "/again.gguf"), compute="f32")
            self.assertEqual(pathlib.Path(folder, "again.gguf").stat().st_size, size)
            np.testing.assert_array_equal(again.weight(name), rounded)
            np.testing.assert_array_equal(again(TALE), model(TALE))
            model.weights[name][0] = 3  # decoded again
            self.assertEqual(model.weight(name)[0, 0], 3)
            np.testing.assert_array_equal(model.weight(name)[1:], rounded[1:])

    def test_one_half_of_what_a_directory_joins(self):
        for which in ("W_gate", "W_in", "b_in"):
            model = vitrine.load(GOLDEN / "gguf" / "gpt_oss_mxfp4.gguf", compute="f32")
            name = f"blocks.1.mlp.experts.2.{which}"
            model.weights[name] *= 1.5  # f32 beside the other half's mxfp4
            self.assertFalse(np.array_equal(model.weight(name), vitrine.load(GOLDEN / "gguf" / "gpt_oss_mxfp4.gguf").weight(name)))
            ids = np.arange(3, 20)
            with tempfile.TemporaryDirectory() as folder:
                saved = vitrine.load(model.save(folder + "/saved", dtype="f32"), compute="f32")
                self.assert_close(saved(ids), model(ids), 1e-4, what=which)

    def test_bf16_rounds_to_nearest(self):
        model = vitrine.load()
        name = "blocks.2.mlp.W_out"
        before = model.weight(name)
        model.weights[name] += np.float32(0.003)
        exact = np.array(model.weight(name))
        bits = exact.view(np.uint32)
        expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        self.assertEqual(model.weights.encode(name), [name])
        np.testing.assert_array_equal(model.weight(name), expected)
        self.assertFalse(np.array_equal(before, expected))
        model.weights[name][0, 0] = np.inf
        with self.assert_says(vitrine.RunError, "does not hold"):
            model.weights.encode()

    def test_which_are_rounded(self):
        model = tales()
        names = ["blocks.2.mlp.W_out", "blocks.1.mlp.W_out"]
        for name in names:
            model.weights[name] *= 1.01
        exact = [np.array(model.weights[name]) for name in names]
        for wrong, words in (([names[0], "blocks.0.mlp.W_inn"], ('no parameter "blocks.0.mlp.W_inn"', "Did you mean")),
                             ([*names, names[0]], (f'names has "{names[0]}" twice',))):
            with self.assert_says(vitrine.InputError, *words):
                model.weights.encode(wrong)
        for name, value in zip(names, exact, strict=True):
            np.testing.assert_array_equal(model.weights[name], value)  # nothing was rounded
        self.assertEqual(model.weights.encode(["ln_final.w", names[1], "W_E"]), [names[1]])
        self.assertEqual(model.weights.encode(iter(names)), [names[0]])

        parts = ["blocks.1.attn.W_Q", "blocks.1.attn.W_V"]  # of one matrix
        with tempfile.TemporaryDirectory() as folder:
            stacked = vitrine.load(vitrine.load(golden_model("gpt_neox")).save(folder + "/bf16", dtype="bf16"))
            stacked.weights[parts[0]] *= 1.01
            self.assertEqual(stacked.weights.encode(parts), parts)
            self.assertEqual(stacked.weights.encode(parts), [])


class Merges(Case):
    def test_a_merge_in_memory_can_be_changed_not_copied(self):
        path = golden_model("llama")
        recipe = {"merge_method": "linear", "models": [{"model": path, "parameters": {"weight": 1.0}}], "dtype": "float32"}
        model = vitrine.merge(recipe)
        model.weights["blocks.0.mlp.W_in"][:] = 0
        self.assertFalse(model.W_in[0].any())
        for call in (model.copy, lambda: model.save("/nonexistent"), lambda: pickle.dumps(model)):
            with self.assertRaises(vitrine.UsageError):
                call()


if __name__ == "__main__":
    unittest.main()
