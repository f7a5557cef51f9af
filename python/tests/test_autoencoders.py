"""Autoencoders against SAELens's numbers (tests/golden/sae), and in runs."""

import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import vitrine
from support import GOLDEN, Case, golden_model

SAES = GOLDEN / "sae"


def read_floats(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The f32 tensors of a safetensors file."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    return {name: np.frombuffer(content[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]], np.float32).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def random_sae(model: vitrine.Model, hook: str, d_sae: int = 24, **more) -> vitrine.SparseAutoencoder:
    rng, d = np.random.default_rng(0), model.cfg.d_model
    return vitrine.SparseAutoencoder.from_arrays(
        {"architecture": "standard", "d_in": d, "d_sae": d_sae, "metadata": {"hook_name": hook}, **more},
        W_enc=rng.standard_normal((d, d_sae)) / d**0.5, W_dec=rng.standard_normal((d_sae, d)) / d_sae**0.5,
        b_enc=rng.standard_normal(d_sae) * 0.1, b_dec=rng.standard_normal(d) * 0.1)


class Autoencoders(Case):
    def test_values_are_those_of_saelens(self):
        folders = sorted(path.parent for path in SAES.rglob("values.safetensors"))
        self.assertEqual(len(folders), 15)
        for folder in folders:
            with self.subTest(folder.name):
                sae, gold = vitrine.load_sae(folder), read_floats(folder / "values.safetensors")
                self.assert_close(sae.encode(gold["x"]), gold["features"], 2e-6, 1e-5)
                self.assert_close(sae(gold["x"]), gold["y"], 2e-6, 1e-5)
                begin, index, value = sae.encode_sparse(gold["x"])
                self.assertEqual(begin[-1], len(index))
                dense = np.zeros((len(begin) - 1, sae.d_sae), np.float32)
                dense[np.repeat(np.arange(len(dense)), np.diff(begin)), index] = value
                np.testing.assert_array_equal(dense, sae.encode(gold["x"]))
                self.assertEqual(sae.W_dec.shape, (sae.d_sae, sae.d_out))
                with tempfile.TemporaryDirectory() as copy:
                    sae.save(copy)
                    np.testing.assert_array_equal(vitrine.load_sae(copy).encode(gold["x"]), sae.encode(gold["x"]))

    def test_names_of_saelens(self):
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(os.environ, {"HF_HUB_CACHE": scratch}):
            package = pathlib.Path(scratch) / "site" / "sae_lens"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("raise ImportError('the package is not imported')")
            overrides = {"model_from_pretrained_kwargs": {"center_writing_weights": True}}
            releases = {"small-res": {"repo_id": "ada/saes", "model": "gpt2", "conversion_func": None,
                                      "saes": [{"id": f"blocks.{i}.hook_resid_pre", "path": f"layer_{i}", "l0": 1.0} for i in range(3)]}}
            releases["small-res-centered"] = {**releases["small-res"], "config_overrides": overrides}
            releases["small-other"] = {**releases["small-res"], "conversion_func": "llama_scope"}
            registry = package / "pretrained_saes.yaml"
            registry.write_text(json.dumps(releases))  # JSON is YAML
            with mock.patch.object(sys, "path", [str(package.parent), *sys.path]):
                with self.assert_says(vitrine.FileError, "vitrine pull ada/saes:layer_1`"):
                    vitrine.load_sae("small-res", "blocks.1.hook_resid_pre")
                cached = pathlib.Path(scratch) / "models--ada--saes"
                (cached / "refs").mkdir(parents=True)
                (cached / "refs" / "main").write_text("abc")
                shutil.copytree(SAES / "standard", cached / "snapshots" / "abc" / "layer_1")
                x = read_floats(SAES / "standard" / "values.safetensors")["x"]
                sae = vitrine.load_sae("small-res", "blocks.1.hook_resid_pre", hook_name="blocks.0.hook_resid_pre")
                np.testing.assert_array_equal(sae.encode(x), vitrine.load_sae(SAES / "standard").encode(x))
                self.assertEqual(sae.hook_name, "blocks.0.hook_resid_pre")
                centered = vitrine.load_sae("small-res-centered", "blocks.1.hook_resid_pre")
                self.assert_close(centered.encode(x), sae.encode(x - x.mean(-1, keepdims=True)), 1e-5)
                for words, arguments in ((('"smal-res"', 'the nearest name is "small-res"'), ("smal-res", "blocks.1.hook_resid_pre")),
                                         (('no id "blocks.7.', 'nearest is "blocks.'), ("small-res", "blocks.7.hook_resid_pre")),
                                         (("llama_scope", "save_model(FOLDER)"), ("small-other", "blocks.1.hook_resid_pre"))):
                    with self.assert_says(vitrine.InputError, *words):
                        vitrine.load_sae(*arguments)
            self.assertEqual(vitrine.load_sae("ada/saes", "layer_1").d_sae, sae.d_sae)
            self.assertEqual(vitrine.load_sae("small-res", "blocks.1.hook_resid_pre", registry=registry).d_sae, sae.d_sae)

    def test_an_autoencoder_of_centered_weights(self):
        """Its features on our residual stream are those on TransformerLens's with center_writing_weights."""
        gold = np.load(GOLDEN / "python" / "transformer_lens_cells_gpt2_a.npz")
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        hook = "blocks.1.hook_resid_pre"
        plain, theirs = random_sae(model, hook), gold["centered/resid_pre"]
        resid = model.run_with_cache(gold["clean"], hook)[1][hook]
        self.assertGreater(np.abs(plain.encode(resid) - plain.encode(theirs)).max(), 1e-3)
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(os.environ, {"HF_HUB_CACHE": scratch}):
            cached = pathlib.Path(scratch) / "models--ada--saes"
            plain.save(cached / "snapshots" / "abc" / "layer_1")
            registry = pathlib.Path(scratch) / "saes.yaml"
            registry.write_text("res: {repo_id: ada/saes, config_overrides: {model_from_pretrained_kwargs: {center_writing_weights: true}}, "
                                "saes: [{id: one, path: layer_1}]}\n")
            sae = vitrine.load_sae("res", "one", registry=registry)
        self.assert_close(sae.encode(resid), plain.encode(theirs), 1e-4)
        self.assert_close(sae(resid), plain(theirs), 1e-4)

    @unittest.skipUnless(importlib.util.find_spec("sae_lens"), "sae_lens is not installed")
    def test_the_registry_of_saelens(self):
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(os.environ, {"HF_HUB_CACHE": scratch}):
            for release, sae_id, name in (
                ("gpt2-small-res-jb", "blocks.8.hook_resid_pre", "jbloom/GPT2-Small-SAEs-Reformatted:blocks.8.hook_resid_pre"),
                ("gemma-scope-2b-pt-res", "layer_20/width_16k/average_l0_71",
                 "google/gemma-scope-2b-pt-res:layer_20/width_16k/average_l0_71"),
            ):
                with self.assert_says(vitrine.FileError, f"vitrine pull {name}`"):
                    vitrine.load_sae(release, sae_id)
            with self.assert_says(vitrine.InputError, 'the nearest name is "gpt2-small-res-jb"'):
                vitrine.load_sae("gpt2-smal-res-jb", "blocks.8.hook_resid_pre")
            with self.assert_says(vitrine.InputError, 'the nearest is "blocks.1'):
                vitrine.load_sae("gpt2-small-res-jb", "blocks.12.hook_resid_pre")

    def test_saelens_is_not_there(self):
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            with self.assert_says(vitrine.UsageError, "pip install sae-lens", "registry="):
                vitrine.load_sae("small-res", "blocks.0.hook_resid_pre")

    def test_a_run_through_it(self):
        model = vitrine.load(golden_model("gpt2_a"))
        hook = "blocks.1.hook_resid_pre"
        sae, ids = random_sae(model, hook), [5, 33, 7, 20, 11]
        logits, cache = model.run_with_cache(ids)
        through, kept = model.run_with_cache_with_saes(ids, saes=sae)
        self.assert_close(through, logits, 1e-5)
        acts = kept[f"{hook}.hook_sae_acts_post"]
        np.testing.assert_array_equal(acts, sae.encode(cache[hook]))
        self.assert_close(kept[f"{hook}.hook_sae_error"], cache[hook] - sae(cache[hook]), 1e-5)
        self.assert_close(kept[f"{hook}.hook_sae_recons"] + kept[f"{hook}.hook_sae_error"], cache[hook], 1e-5)
        with model.saes(sae, use_error_term=False):
            bare = model(ids)
        expected = model.run_with_hooks(ids, fwd_hooks=[(hook, lambda value, hook: sae(value))])
        self.assert_close(bare, expected, 1e-6)

        def ablate(acts, hook):
            acts[:, :, 3] = 0

        ablated = model.run_with_hooks_with_saes(ids, saes=sae, fwd_hooks=[(f"{hook}.hook_sae_acts_post", ablate)])
        without = model.run_with_hooks(
            ids, fwd_hooks=[(hook, lambda value, hook: value - sae.encode(value)[..., 3:4] * sae.W_dec[3])])
        self.assert_close(ablated, without, 2e-5)
        self.assertFalse(np.allclose(ablated, logits))
        _, only = model.run_with_cache_with_saes(ids, saes=[sae], names_filter=f"{hook}.hook_sae_acts_post", return_type=None)
        self.assertEqual(list(only), [f"{hook}.hook_sae_acts_post"])

    def test_heads_and_transcoders(self):
        model = vitrine.load(golden_model("gpt2_a"))
        ids = [5, 33, 7, 20, 11]
        _, cache = model.run_with_cache(ids)
        z = cache["z", 0]
        sae = vitrine.SparseAutoencoder.from_arrays(
            {"architecture": "standard", "d_in": z[0, 0].size, "d_sae": 8, "metadata": {"hook_name": "blocks.0.attn.hook_z"}},
            W_enc=np.eye(z[0, 0].size)[:, :8], W_dec=np.eye(z[0, 0].size)[:8], b_enc=np.zeros(8), b_dec=np.zeros(z[0, 0].size))
        self.assert_close(sae.encode(z), np.maximum(z.reshape(1, 5, -1)[..., :8], 0), 1e-6)
        self.assert_close(model.run_with_saes(ids, sae), model(ids), 1e-5)
        d = model.cfg.d_model
        rng = np.random.default_rng(1)
        transcoder = vitrine.SparseAutoencoder.from_arrays(
            {"architecture": "transcoder", "d_in": d, "d_sae": 16, "d_out": d,
             "metadata": {"hook_name": "blocks.0.ln2.hook_normalized", "hook_name_out": "blocks.0.hook_mlp_out"}},
            W_enc=rng.standard_normal((d, 16)), W_dec=rng.standard_normal((16, d)), b_enc=np.zeros(16), b_dec=np.zeros(d))
        self.assert_close(model.run_with_saes(ids, transcoder), model(ids), 1e-5)
        replaced = model.run_with_saes(ids, transcoder, use_error_term=False)
        made = transcoder(cache["blocks.0.ln2.hook_normalized"])
        expected = model.run_with_hooks(ids, fwd_hooks=[("blocks.0.hook_mlp_out", lambda value, hook: made)])
        self.assert_close(replaced, expected, 1e-5)

    def test_runs_and_gradients_are_those_of_saelens_and_torch(self):
        model, ids = vitrine.load(golden_model("gpt2_a"), compute="f32"), [5, 17, 3, 101, 42, 8, 77]
        metric = vitrine.metrics.logit_difference(7, 11)
        at = "blocks.1.hook_resid_pre.hook_sae_acts_post"

        def change(acts, hook):
            acts[..., 3] = 2

        for folder in sorted((SAES / "runs").iterdir()):
            with self.subTest(folder.name):
                sae, gold = vitrine.load_sae(folder), read_floats(folder / "run.safetensors")
                _, cache = model.run_with_cache_with_saes(ids, sae, at)
                self.assert_close(cache[at][0], gold["acts"], 1e-5, 1e-5)
                changed = model.run_with_hooks_with_saes(ids, sae, [(at, change)])
                self.assert_close(changed[0, -1], gold["changed"], 1e-5, 1e-5)
                _, found = model.gradients_with_saes(ids, sae, "blocks.0.hook_resid_pre", metric=metric)
                stream = found["blocks.0.hook_resid_pre"]
                for ours, expected in ((stream[0], gold["stream_gradient"]), (found[at][0], gold["acts_gradient"])):
                    self.assert_close(ours, expected, 1e-5 * np.abs(expected).max(), 0)

    def test_gradients_through_it(self):
        model, ids = vitrine.load(golden_model("gpt2_a"), compute="f32"), [5, 33, 7, 20, 11]
        metric = vitrine.metrics.logit_difference(3, 8)
        d, rng = model.cfg.d_model, np.random.default_rng(2)
        inside = random_sae(model, "blocks.1.hook_resid_pre")
        behind = vitrine.SparseAutoencoder.from_arrays(
            {"architecture": "skip_transcoder", "d_in": d, "d_sae": 16, "d_out": d,
             "metadata": {"hook_name": "blocks.0.ln2.hook_normalized", "hook_name_out": "blocks.0.hook_mlp_out"}},
            W_enc=rng.standard_normal((d, 16)), W_dec=rng.standard_normal((16, d)) / 4, b_enc=np.zeros(16), b_dec=np.zeros(d),
            W_skip=rng.standard_normal((d, d)) / d)
        for sae in (inside, behind):
            with self.subTest(sae.architecture):
                place = "blocks.0.hook_resid_pre"
                value, found = model.gradients_with_saes(ids, sae, place, metric=metric)
                self.assertAlmostEqual(value, metric.value(model(ids)), delta=1e-4)
                at = f"{sae.hook_name_out}.hook_sae_acts_post"
                _, cache = model.run_with_cache_with_saes(ids, sae, [at, f"{sae.hook_name_out}.hook_sae_error", place])
                error, acts = cache[f"{sae.hook_name_out}.hook_sae_error"], cache[at]

                # What one feature's gradient says, against changing that feature.
                where = np.unravel_index(np.abs(found[at]).argmax(), acts.shape)

                def run(step, where=where, at=at):
                    def change(values, hook):
                        values[where] += step
                    return metric.value(model.run_with_hooks_with_saes(ids, sae, [(at, change)]))
                self.assertAlmostEqual((run(1e-2) - run(-1e-2)) / 2e-2, found[at][where], delta=2e-3 * (1 + abs(found[at][where])))

                # What flows into the stream before it, with the error held, along a random direction.
                direction = rng.standard_normal(cache[place].shape).astype(np.float32)

                def moved(step):
                    def shift(values, hook):
                        return values + step * direction
                    hooks = [(place, shift), (f"{sae.hook_name_out}.hook_sae_error", lambda values, hook: error)]
                    return metric.value(model.run_with_hooks_with_saes(ids, sae, hooks))
                slope = (moved(2e-3) - moved(-2e-3)) / 4e-3
                self.assertAlmostEqual(slope, (found[place] * direction).sum(), delta=2e-2 * (1 + abs(slope)))
        with self.assert_says(vitrine.UsageError, "normalize_activations"):
            model.gradients_with_saes(ids, random_sae(model, "blocks.1.hook_resid_pre", normalize_activations="layer_norm"), metric=metric)

    def test_heads_are_joined_only_where_a_hook_has_them(self):
        model = vitrine.load(golden_model("gpt2_a"))
        d, x = model.cfg.d_model, np.ones((3, 2, model.cfg.d_model // 2), np.float32)
        self.assertEqual(random_sae(model, "blocks.1.attn.hook_z").encode(x).shape, (3, 24))
        self.assertEqual(random_sae(model, "z.1").encode(x).shape, (3, 24))
        for hook in ("blocks.1.hook_resid_pre", "resid_post.0"):
            with self.assert_says(vitrine.ShapeError, f"expected d_in, {d}"):
                random_sae(model, hook).encode(x)

    def test_features_that_no_memory_holds_are_refused(self):
        sae = random_sae(vitrine.load(golden_model("gpt2_a")), "resid_post.0", d_sae=1 << 17)
        rows = np.broadcast_to(np.ones(sae.d_in, np.float32), (1 << 19, sae.d_in))
        with self.assert_says(vitrine.InputError, "All features of 524288 rows would take", "encode_sparse()"):
            sae.encode(rows)

    def test_what_overflows_is_an_error(self):
        sae = random_sae(vitrine.load(golden_model("gpt2_a")), "resid_post.0", architecture="topk", k=12)
        x = np.where(np.arange(sae.d_in) % 2, 3e38, -3e38)
        with self.assert_says(vitrine.RunError, "makes NaN or infinity of row 1"):
            sae.encode(np.stack([np.ones(sae.d_in), x]))

    def test_rows_of_different_length(self):
        model = vitrine.load(golden_model("gpt2_a"), compute="f32")
        sae, rows = random_sae(model, "blocks.1.hook_resid_pre"), [[5, 33, 7, 20, 11], [9, 4, 1]]
        acts = "blocks.1.hook_resid_pre.hook_sae_acts_post"

        def switch_off(value, hook):
            value[..., 3:9] = 0

        for error in (True, False):
            both, cache = model.run_with_cache_with_saes(rows, saes=sae, use_error_term=error)
            changed = model.run_with_hooks_with_saes(rows, saes=sae, use_error_term=error, fwd_hooks=[(acts, switch_off)])
            np.testing.assert_array_equal(cache.lengths, [5, 3])
            for i, row in enumerate(rows):
                one, kept = model.run_with_cache_with_saes(row, saes=sae, use_error_term=error)
                self.assert_close(both[i, : len(row)], one[0], 2e-5)
                self.assert_close(cache[acts][i, : len(row)], kept[acts][0], 1e-5)
                self.assert_close(changed[i, : len(row)],
                                  model.run_with_hooks_with_saes(row, saes=sae, use_error_term=error, fwd_hooks=[(acts, switch_off)])[0], 2e-5)
            self.assertTrue(np.isnan(cache[acts][1, 3:]).all() and np.isnan(both[1, 3:]).all())
        many = model.generate(rows, 3)
        with model.saes(sae):
            self.assertEqual([one.tokens for one in model.generate(rows, 3)], [one.tokens for one in many])

    def test_no_rows_and_numbers_of_numpy(self):
        for name in ("topk", "jumprelu_skip_transcoder", "gated"):
            sae = vitrine.load_sae(SAES / name)
            empty = np.zeros((0, sae.d_in), np.float32)
            for found, width in ((sae.encode(empty), sae.d_sae), (sae.pre_activations(empty), sae.d_sae), (sae(empty), sae.d_out)):
                self.assertEqual(found.shape, (0, width), name)
        sae = vitrine.load_sae(SAES / "topk")
        weights = {name: getattr(sae, name) for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
        same = vitrine.SparseAutoencoder.from_arrays({**sae.cfg, "k": np.int64(sae.k)}, **weights)
        x = np.random.default_rng(0).standard_normal((4, sae.d_in))
        np.testing.assert_array_equal(same.encode(x), sae.encode(x))
        self.assertEqual((same.cfg.d_sae, same.cfg["k"], same.cfg.metadata.hook_name), (sae.d_sae, sae.k, sae.hook_name))
        with self.assertRaisesRegex(AttributeError, "the configuration has no width; it has .*d_sae"):
            same.cfg.width
        with self.assert_says(vitrine.InputError, 'the configuration: lacks "d_sae"') as told:
            vitrine.SparseAutoencoder.from_arrays({"architecture": "topk", "k": 2, "d_in": 4}, **weights)
        self.assertNotIsInstance(told.exception, vitrine.FileError)
        for wrong in (x * 1j, np.full(x.shape, "1")):
            with self.assert_says(vitrine.InputError, "expected real numbers"):
                sae.encode(wrong)

    def test_training_from_python(self):
        model = vitrine.load()
        with tempfile.TemporaryDirectory() as folder:
            found = model.collect("resid_post.2", f"{folder}/a", texts=["Once upon a time there was a king", "The old woman"] * 5)
            sae = vitrine.train_sae(found, f"{folder}/sae", features=40, k=3, steps=30, batch=32, lr=0.01)
            self.assertEqual((sae.architecture, sae.d_sae, sae.k, sae.hook_name), ("topk", 40, 3, "blocks.2.hook_resid_post"))
            x = found["resid_post.2"][found.positions() > 0]
            self.assertLess(((sae(x) - x) ** 2).sum(), 0.7 * ((x - x.mean(0)) ** 2).sum())
            with self.assert_says(vitrine.InputError, "k is 50; expected 1 to the number of features, 40"):
                vitrine.train_sae(f"{folder}/a", f"{folder}/other", features=40, k=50)

    def test_what_is_refused(self):
        model = vitrine.load(golden_model("gpt2_a"))
        sae = random_sae(model, "blocks.1.hook_resid_pre")
        with self.assert_says(vitrine.FileError, "the file or directory does not exist"):
            vitrine.load_sae("/absent")
        with self.assert_says(vitrine.ShapeError, "d_in", str(model.cfg.d_model)):
            sae.encode(np.zeros((2, 3)))
        with self.assert_says(vitrine.ShapeError, "W_enc is [2, 3]"):
            vitrine.SparseAutoencoder.from_arrays(sae.cfg, W_enc=np.zeros((2, 3)))
        with self.assert_says(vitrine.InputError, "Its autoencoders have blocks.1.hook_resid_pre.hook_sae_input, "):
            model.run_with_hooks_with_saes([1, 2], saes=sae, fwd_hooks=[("blocks.1.hook_resid_pre.hook_sae_x", print)])
        with self.assert_says(vitrine.UsageError, "call decode(features, x)"):
            vitrine.load_sae(SAES / "standard_layer_norm").decode(np.zeros((1, 40)))


HOOKED = {"standard": "runs", "gated": "runs", "topk": "runs", "jumprelu": "runs", "transcoder": "hooked", "heads": "hooked"}
PROMPTS, ANSWER, OTHER = [[5, 17, 3, 101, 42, 8, 77], [9, 4, 250, 31, 6, 60, 12]], 7, 11


class InsideSaes(Case):
    """Every call knows the hooks of the autoencoders; values are those of SAELens's HookedSAETransformer."""

    @classmethod
    def setUpClass(cls):
        cls.model = vitrine.load(golden_model("gpt2_a"), compute="f32")

    def hooked(self, name):
        sae = vitrine.load_sae(SAES / HOOKED[name] / name)
        (place,) = self.model._session.find_hooks(sae.hook_name_out)
        return sae, place, read_floats(SAES / "hooked" / f"{name}.safetensors")

    def test_values_changes_and_gradients_are_those_of_saelens(self):
        metric = vitrine.metrics.logit_difference(ANSWER, OTHER)

        def put(acts, hook):
            acts[..., 3] = 2
        changes = {"hook_sae_input": lambda x, hook: x * 1.5, "hook_sae_acts_pre": lambda pre, hook: pre + 0.5,
                   "hook_sae_acts_post": put, "hook_sae_recons": lambda recons, hook: recons * 0.5,
                   "hook_sae_error": lambda error, hook: error * 0, "hook_sae_output": lambda y, hook: y * 0.8}
        for name in HOOKED:
            with self.subTest(name):
                sae, place, gold = self.hooked(name)
                with self.model.saes(sae):
                    names = [hook for hook in self.model.hook_names if ".hook_sae_" in hook]
                    self.assertEqual(names, [f"{place}.{hook}" for hook in changes])
                    logits, cache = self.model.run_with_cache(PROMPTS, f"{place}.hook_sae_*")
                    self.assertEqual(list(cache), names)
                    for hook, value in cache.items():
                        self.assert_close(value, gold[f"value.{hook}"], what=hook)
                    self.assert_close(logits[:, -1], gold["logits"])
                    for hook, function in changes.items():
                        changed = self.model.run_with_hooks(PROMPTS, [(f"{place}.{hook}", function)])
                        self.assert_close(changed[:, -1], gold[f"changed.{hook}"], what=hook)
                    _, slope = self.model.gradients(
                        PROMPTS, lambda hook: ".hook_sae_" in hook or hook == "blocks.0.hook_resid_pre", metric=lambda z: self.both(metric, z))
                    for hook in [*names, "blocks.0.hook_resid_pre"]:
                        if not hook.endswith("hook_sae_error"):  # in SAELens no gradient gets there
                            self.assert_close(slope[hook], gold[f"gradient.{hook}"], what=hook)
                with self.model.saes(sae, use_error_term=False):
                    self.assert_close(self.model(PROMPTS)[:, -1], gold["without_error"])
                self.assertFalse(any(".hook_sae_" in hook for hook in self.model.hook_names))

    def both(self, metric, logits):
        value, derivative = metric(logits)  # of the mean over prompts
        return value * len(PROMPTS), derivative * np.float32(len(PROMPTS))

    def test_functions_that_stay_generated_text_and_collected_features(self):
        sae, place, _ = self.hooked("standard")
        at, model, ids = f"{place}.hook_sae_acts_post", self.model, PROMPTS[0]

        def put(acts, hook):
            acts[..., 3] += 30
        with model.saes(sae):
            expected = model.run_with_hooks(ids, [(at, put)])
            model.add_hook(at, put)
            self.assert_close(model(ids), expected)
            kept, forward, _ = model.get_caching_hooks(at)
            made = model.generate(ids, 4, fwd_hooks=forward)
            self.assertEqual(kept[at].shape, (1, 1, sae.d_sae))  # of the last step
            model.reset_hooks()
            self.assertEqual(model.generate(ids, 4, fwd_hooks=[(at, put)]).tokens, made.tokens)
            rows = ids + made.tokens
            steered = model.run_with_hooks(rows, [(at, put)])
            self.assertEqual(steered[0, len(ids) - 1 : -1].argmax(-1).tolist(), made.tokens)
            self.assertEqual([one.tokens for one in model.generate(PROMPTS, 4)], [model.generate(row, 4).tokens for row in PROMPTS])
            _, cache = model.run_with_cache(ids, at, positions=-1)
            self.assertEqual(cache[at].shape, (1, 1, sae.d_sae))
            with tempfile.TemporaryDirectory() as folder:
                found = model.collect([at, place], f"{folder}/a", texts=[ids, PROMPTS[1]])
                _, cache = model.run_with_cache(PROMPTS, [at, place])
                self.assert_close(found[at], cache[at].reshape(-1, sae.d_sae), 1e-5)
                self.assert_close(sae.encode(found[place]), found[at], 1e-4)
            model.add_hook(at, put)
        self.assert_close(model(ids), self.model(ids))  # they ended with it
        with self.assert_says(vitrine.InputError, "runs without autoencoders"):
            model.run_with_hooks(ids, [(at, put)])

    def test_rows_of_different_length_have_their_own_gradients(self):
        sae, place, _ = self.hooked("topk")
        rows, metric = [PROMPTS[0], PROMPTS[1][:4]], vitrine.metrics.logit_difference(ANSWER, OTHER)
        asked = [f"{place}.hook_sae_acts_post", f"{place}.hook_sae_error", "blocks.0.hook_resid_pre"]
        with self.model.saes(sae):
            _, both = self.model.gradients(rows, asked, metric=metric)
            for i, row in enumerate(rows):
                _, one = self.model.gradients(row, asked, metric=metric)
                for hook in asked:
                    self.assert_close(both[hook][i, : len(row)] * 2, one[hook][0], 1e-5)
                    self.assertTrue(np.isnan(both[hook][i, len(row):]).all())

            # A constant that is added lets the gradient through, one that is put does not.
            def put(acts, hook):
                acts[..., :] = 1

            def add(acts, hook):
                acts += 1
            _, plain = self.model.gradients(PROMPTS[0], asked, metric=metric, fwd_hooks=[(asked[0], add)])
            _, none = self.model.gradients(PROMPTS[0], asked, metric=metric, fwd_hooks=[(asked[0], put)])
            self.assertGreater(np.abs(plain["blocks.0.hook_resid_pre"]).max(), 0)
            self.assertGreater(np.abs(none[asked[0]]).max(), 0)
            self.assert_close(none["blocks.0.hook_resid_pre"], np.zeros_like(none["blocks.0.hook_resid_pre"]))
            seen = []
            self.model.gradients(PROMPTS[0], asked, metric=metric, bwd_hooks=[(asked[0], lambda gradient, hook: seen.append(gradient.copy()))])
            self.assertEqual(seen[0].shape, (1, 7, sae.d_sae))

    def test_effects_of_features_add_up(self):
        sae, place, _ = self.hooked("standard")
        at, metric = f"{place}.hook_sae_acts_post", vitrine.metrics.logit_difference(ANSWER, OTHER)
        with self.model.saes(sae):
            found = self.model.integrated_gradients(PROMPTS[0], PROMPTS[1], metric, at, steps=32, per="value")
            first = self.model.attribution_patching(PROMPTS[0], PROMPTS[1], metric, at, per="value")
            _, cache = self.model.run_with_cache(PROMPTS[0], at)

            def patch(acts, hook):
                return cache[at]
            patched = metric.value(self.model.run_with_hooks(PROMPTS[1], [(at, patch)]))
            whole = patched - metric.value(self.model(PROMPTS[1]))
            self.assertAlmostEqual(found.effects[at].sum(), whole, delta=1e-3 * (1 + abs(whole)))
            self.assertEqual(first.effects[at].shape, (1, 7, sae.d_sae))

    def test_a_recipe_names_features(self):
        sae, place, gold = self.hooked("standard")
        at = f"{place}.hook_sae_acts_post"
        recipe = {"prompt": {"tokens": PROMPTS[0]}, "interventions": [{"hook": at, "features": ["3=2"]}]}
        with self.model.saes(sae):
            inside = self.model.intervene(recipe)
            with self.assert_says(vitrine.InputError, "there is no feature 20", "features 0 to 19"):
                self.model.intervene({**recipe, "interventions": [{"hook": at, "features": ["20=2"]}]})
        for found in (inside, self.model.intervene({"saes": [str(SAES / "runs" / "standard")], **recipe})):
            best = found["after"][0]["top"][0]
            expected = gold["changed.hook_sae_acts_post"][0].astype(np.float64)
            self.assertEqual(best["token"], int(expected.argmax()))
            self.assertAlmostEqual(best["logprob"], (expected - np.log(np.exp(expected).sum()))[best["token"]], delta=1e-4)

    def test_autoencoders_inside_autoencoders(self):
        sae, place, _ = self.hooked("standard")
        other, _, _ = self.hooked("jumprelu")
        transcoder, behind, _ = self.hooked("transcoder")
        at, ids = f"{place}.hook_sae_acts_post", PROMPTS[0]
        with self.model.saes(sae):
            _, outer = self.model.run_with_cache(ids, at)
            with self.model.saes([other, transcoder]):
                _, cache = self.model.run_with_cache(ids, [at, f"{behind}.hook_sae_acts_post"])
                self.assertFalse(np.allclose(cache[at], outer[at]))
                self.assert_close(cache[at], self.model.run_with_cache_with_saes(ids, other, at)[1][at])
            _, again = self.model.run_with_cache(ids, at)
            np.testing.assert_array_equal(again[at], outer[at])
            with self.assert_says(vitrine.UsageError, "runs without autoencoders"):
                self.model.eval_perplexity("absent.txt")
        with self.assert_says(vitrine.InputError, "two autoencoders stand at blocks.1.hook_resid_pre"), self.model.saes([sae, other]):
            pass
        self.assertEqual(self.model._of_thread.saes, ())


if __name__ == "__main__":
    unittest.main()
