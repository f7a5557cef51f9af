"""Merges: directories and models in memory, held to mergekit's golden merges."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import tempfile
import unittest

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model

MERGING = GOLDEN / "merging"
LLAMA = MERGING / "tiny_llama"
PROMPT = [2, 7, 3, 11, 5]


def recipe(method, *names, base=None, dtype="float32", parameters=None, weight=None, folder=LLAMA, **others):
    """A dict as mergekit's YAML has it; model paths are absolute."""
    models = [{"model": str(folder / name)} for name in names]
    for model, own in zip(models, weight or []):
        model["parameters"] = {"weight": own}
    made = {"merge_method": method, "models": models, "dtype": dtype, **others}
    if base:
        made["base_model"] = str(folder / base)
    if parameters:
        made["parameters"] = parameters
    return made


@contextlib.contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class MergeCase(Case):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def assert_same_model(self, ours, other, prompt=PROMPT):
        self.assertEqual(ours.weight_names, other.weight_names)
        for name in ours.weight_names:
            np.testing.assert_array_equal(ours.weight(name), other.weight(name), name)
        np.testing.assert_array_equal(ours(prompt), other(prompt))


class Golden(MergeCase):
    def test_directories_are_mergekits(self):
        for family, case in (("tiny_llama", "slerp"), ("tiny_llama", "ties"), ("tiny_llama", "stack_of_five"),
                             ("tiny_gpt2", "linear"), ("tiny_gemma2", "task_arithmetic"), ("llama", "slerp_gradient")):
            with self.subTest(family=family, case=case), inside(MERGING / family):
                out = self.scratch / f"{family}-{case}"
                self.assertEqual(vitrine.merge(f"cases/{case}.yml", out), str(out))
                ours, gold = vitrine.load(out), vitrine.load(f"expected/{case}")
                self.assertEqual(ours.weight_names, gold.weight_names)
                for name in gold.weight_names:
                    expected = gold.weight(name)
                    self.assert_close(ours.weight(name), expected, max(1e-6 * np.abs(expected).max(), 1e-30), 0, name)
                self.assert_same_model(vitrine.merge(pathlib.Path(f"cases/{case}.yml")), ours)

    def test_the_example(self):
        with inside(SOURCE):
            model = vitrine.merge("examples/merge-slerp.yml")
        self.assertEqual((model.cfg.family, model.cfg.n_layers), ("llama", 3))


class InMemory(MergeCase):
    def setUp(self):
        super().setUp()
        self.linear = recipe("linear", "ft1", "ft2", weight=[0.25, 0.75])
        self.model = vitrine.merge(self.linear)

    def test_weights(self):
        a, b = vitrine.load(LLAMA / "ft1"), vitrine.load(LLAMA / "ft2")
        for name in self.model.weight_names:
            self.assert_close(self.model.weight(name), 0.25 * a.weight(name) + 0.75 * b.weight(name), 1e-7, 1e-6, name)

    def test_it_runs_and_can_be_looked_into(self):
        vitrine.merge(self.linear, self.scratch / "written")
        written = vitrine.load(self.scratch / "written")
        self.assert_same_model(self.model, written)
        logits, cache = self.model.run_with_cache(PROMPT)
        self.assertEqual(cache["pattern", 2].shape, (1, 3, 5, 5))
        np.testing.assert_array_equal(cache["blocks.1.hook_resid_post"], written.run_with_cache(PROMPT)[1]["blocks.1.hook_resid_post"])

        def switch_off(z, hook):
            z[:, :, 1] = 0

        changed = self.model.run_with_hooks(PROMPT, fwd_hooks=[("blocks.0.attn.hook_z", switch_off)])
        self.assertGreater(np.abs(changed - logits).max(), 1e-3)
        self.assert_close(self.model(PROMPT), logits)  # without hooks attention is fused: the last bits may differ
        loss, gradients = self.model.gradients(PROMPT, "resid_post")
        self.assertTrue(np.isfinite(loss))
        self.assertEqual(gradients["blocks.2.hook_resid_post"].shape, (1, 5, 9))
        self.assertEqual(len(self.model.generate(PROMPT, 4, ignore_eos=True).tokens), 4)

    def test_the_forms_of_a_recipe(self):
        text = "merge_method: linear\ndtype: float32\nmodels:\n" + "".join(
            f"- {{model: {LLAMA / name}, parameters: {{weight: {weight}}}}}\n" for name, weight in (("ft1", 0.25), ("ft2", 0.75)))
        file = self.scratch / "recipe.yml"
        file.write_text(text, encoding="utf-8")
        one_line = json.dumps(self.linear)
        numbers = recipe("linear", "ft1", "ft2", weight=[np.float64(0.25), np.float32(0.75)])
        numbers["models"][0]["model"] = LLAMA / "ft1"  # a path
        for config in (text, file, str(file), one_line, numbers):
            self.assert_same_model(vitrine.merge(config), self.model)

    def test_it_outlives_what_it_was_made_of(self):
        shutil.copytree(LLAMA / "ft1", self.scratch / "ft1")
        model = vitrine.merge(recipe("passthrough", "ft1", folder=self.scratch))
        shutil.rmtree(self.scratch / "ft1")
        self.assert_same_model(model, vitrine.load(LLAMA / "ft1"))

    def test_the_tokenizer_is_the_results(self):
        base = golden_model("llama")
        merged = {"merge_method": "linear", "models": [{"model": base, "parameters": {"weight": 1}}], "base_model": base,
                  "tokenizer": {"source": "base", "tokens": {"<|über|>": {"source": {"kind": "zero"}}}}}
        model, before = vitrine.merge(merged), vitrine.load(base)
        id = model.tokenizer.find("<|über|>")
        self.assertIsNone(before.tokenizer.find("<|über|>"))
        self.assertEqual(model.tokenizer.encode("a<|über|>", add_special=False)[-1], id)
        self.assertEqual(np.abs(model.W_E[id]).max(), 0)
        self.assertEqual(model.to_tokens("once upon").tolist(), before.to_tokens("once upon").tolist())
        self.assertEqual(vitrine.load(vitrine.merge(merged, self.scratch / "out")).tokenizer.find("<|über|>"), id)

    def test_random_masks_depend_on_the_seed_alone(self):
        dare = recipe("dare_ties", "ft1", "ft2", base="base", weight=[0.5, 0.5], parameters={"density": 0.5})
        first = vitrine.merge(dare, threads=1)
        self.assert_same_model(vitrine.merge(dare, threads=3), first)
        other = vitrine.merge(dare, random_seed=2**64 - 1)
        self.assertTrue(any((other.weight(n) != first.weight(n)).any() for n in first.weight_names))

    def test_several_merges(self):
        first = recipe("linear", "ft1", "ft2", weight=[1, 1], name="mean")
        second = recipe("task_arithmetic", "ft3", base="base", weight=[0.5])
        second["models"].append({"model": "mean", "parameters": {"weight": 0.25}})
        model = vitrine.merge([second, first])
        weight = {n: vitrine.load(LLAMA / n).W_in for n in ("base", "ft1", "ft2", "ft3")}
        mean = (weight["ft1"] + weight["ft2"]) / 2
        expected = weight["base"] + 0.5 * (weight["ft3"] - weight["base"]) + 0.25 * (mean - weight["base"])
        self.assert_close(model.W_in, expected, 1e-6)
        out = self.scratch / "out"
        vitrine.merge([second, first], out)
        self.assert_same_model(vitrine.load(out), model)
        self.assertTrue((self.scratch / "out.parts" / "mean" / "config.json").exists())
        vitrine.merge([second, first], out, force=True)
        vitrine.merge([second, first], out, resume=True)  # nothing is left to do
        first["models"][0]["parameters"]["weight"] = 3  # another recipe: the mean that is there is not taken for it
        with self.assert_says(vitrine.InputError, "out is there already"):
            vitrine.merge([second, first], out, resume=True)
        shutil.rmtree(out)
        with self.assert_says(vitrine.InputError, "out.parts/mean is there already"):
            vitrine.merge([second, first], out)
        for wrong, words in (([first, {**first, "name": "other"}], 'every merge has a "name"'), ([second, first, first], 'a second merge is called "mean"'),
                             ([second, second], 'a second merge without "name"')):
            with self.assert_says(vitrine.UsageError, words):
                vitrine.merge(wrong)


class Directories(MergeCase):
    def test_shards_and_what_stands_beside(self):
        linear = recipe("linear", "ft1", "ft2", weight=[1, 1])
        whole = vitrine.load(vitrine.merge(linear, self.scratch / "whole"))
        for size, name in ((1500, "bytes"), ("2k", "text")):
            out = self.scratch / name
            vitrine.merge(linear, out, out_shard_size=size)
            index = json.loads((out / "model.safetensors.index.json").read_text())
            self.assertGreater(len(set(index["weight_map"].values())), 1)
            self.assert_same_model(vitrine.load(out), whole)
        self.assertIn(str(LLAMA / "ft1"), (self.scratch / "whole" / "mergekit_config.yml").read_text())
        front = '---\nbase_model:\n- "ft1"\n- "ft2"\nlibrary_name: transformers'
        self.assertTrue((self.scratch / "whole" / "README.md").read_text().startswith(front))

    def test_a_directory_that_is_there(self):
        linear = recipe("linear", "ft1", "ft2", weight=[1, 1])
        out = self.scratch / "out"
        vitrine.merge(linear, out)
        with self.assert_says(vitrine.InputError, "is there already", "force"):
            vitrine.merge(linear, out)
        self.assertEqual(vitrine.merge(linear, out, resume=True), str(out))  # it is whole
        with self.assert_says(vitrine.InputError, "is there already"):
            vitrine.merge(recipe("linear", "ft1", "ft2", weight=[0, 1]), out, resume=True)
        vitrine.merge(recipe("linear", "ft1", "ft2", weight=[0, 1]), str(out), force=True)
        self.assert_same_model(vitrine.load(out), vitrine.load(LLAMA / "ft2"))

    def test_interrupted_and_resumed(self):
        tales = str(SOURCE / "models" / "tales9m")
        stack = {"merge_method": "passthrough", "dtype": "float32",
                 "slices": [{"sources": [{"model": tales, "layer_range": [0, 8]}]} for _ in range(8)]}
        out = self.scratch / "stack"

        def stop(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, stop)
        try:
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                vitrine.merge(stack, out)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertFalse(out.exists())
        self.assertTrue((self.scratch / ".merging-stack" / "journal").exists())
        vitrine.merge(stack, out, resume=True)
        self.assertEqual([p.name for p in self.scratch.iterdir()], ["stack"])
        resumed = vitrine.load(out)
        self.assertEqual(resumed.cfg.n_layers, 64)
        shipped = vitrine.load(tales)
        for copy in range(8):
            np.testing.assert_array_equal(resumed.weight(f"blocks.{8 * copy + 3}.mlp.W_in"), shipped.weight("blocks.3.mlp.W_in"))


class Plans(MergeCase):
    def test_a_plan(self):
        plan = vitrine.merge_plan(recipe("ties", "ft1", "ft2", base="base", weight=[0.7, 0.3], parameters={"density": [0, 1]}))
        self.assertEqual((plan["method"], plan["problems"], len(plan["inputs"])), ("ties", [], 3))
        (tensor,) = [t for t in plan["tensors"] if t["name"] == "model.layers.1.mlp.up_proj.weight"]
        self.assertEqual((tensor["shape"], tensor["dtype"], tensor["layer"], tensor["copied"]), ([11, 9], "f32", 1, False))
        self.assertEqual(tensor["base"], str(LLAMA / "base"))
        self.assertEqual([s["tensor"] for s in tensor["sources"]], [tensor["name"]] * 3)
        self.assertEqual(tensor["parameters"]["weight"], [0.7, 0.3, None])  # the base model comes last
        self.assertEqual(tensor["parameters"]["density"], [0.5, 0.5, None])
        self.assertEqual(tensor["parameters"]["normalize"], 1)
        self.assertEqual(plan["bytes_written"], sum(4 * int(np.prod(t["shape"])) for t in plan["tensors"]))

    def test_problems(self):
        wrong = recipe("linear", "ft1", "small_vocabulary", weight=[1, 1])
        problems = vitrine.merge_plan(wrong)["problems"]
        self.assertEqual(len(problems), 2)
        self.assertIn("model.embed_tokens.weight", problems[1])
        with self.assert_says(vitrine.UsageError, *problems):
            vitrine.merge(wrong)
        with self.assert_says(vitrine.UsageError, "2 merges", "one at a time"):
            vitrine.merge_plan([recipe("linear", "ft1"), recipe("linear", "ft1")])
        noted = vitrine.merge_plan(recipe("linear", "ft1", "ft2", weight=[1, 1], parameters={"densty": 1}))["notes"]
        self.assertIn('"densty" has no effect', noted[0])


class Errors(MergeCase):
    def test_recipes(self):
        with self.assert_says(vitrine.MissingFileError, "nowhere.yml"):
            vitrine.merge("nowhere.yml")
        file = self.scratch / "bad.yml"
        file.write_text("merge_method: linear\nmodel: []\n", encoding="utf-8")
        with self.assert_says(vitrine.FileError, "bad.yml:2", '"model"') as said:
            vitrine.merge(file)
        self.assertNotIsInstance(said.exception, FileNotFoundError)
        with self.assert_says(vitrine.InputError, "the recipe:2", '"model"') as said:
            vitrine.merge(file.read_text())
        self.assertNotIsInstance(said.exception, OSError)
        with self.assert_says(vitrine.UsageError, "the recipe:2", "tiess", "did you mean ties"):
            vitrine.merge(recipe("tiess", "ft1", base="base"))
        with self.assert_says(vitrine.UsageError, "slerp", "needs a base model"):
            vitrine.merge(recipe("slerp", "ft1", "ft2", parameters={"t": 0.5}))
        with self.assert_says(vitrine.MissingFileError, "tiny_llama/ft9"):
            vitrine.merge(recipe("linear", "ft9", weight=[1]))
        with self.assert_says(vitrine.InputError, "cannot be written down"):
            vitrine.merge(recipe("linear", "ft1", weight=[float("nan")]))
        with self.assert_says(vitrine.InputError, "path of the recipe is empty"):
            vitrine.merge("")
        for wrong in (None, 3, b"recipe.yml", [], {"models": {1, 2}}):
            with self.assertRaises(TypeError):
                vitrine.merge(wrong)

    def test_options(self):
        linear = recipe("linear", "ft1", "ft2", weight=[1, 1])
        for options, words in (({"resume": True}, "name it as out"), ({"force": True}, "name it as out"),
                               ({"out_shard_size": "5X"}, "out_shard_size is 5X"), ({"out_shard_size": -1}, "out_shard_size is -1"),
                               ({"random_seed": -1}, "random_seed is -1"), ({"threads": -1}, "threads is -1")):
            with self.assert_says(vitrine.UsageError, words):
                vitrine.merge(linear, **options)

    def test_models(self):
        crimes = {"merge_method": "linear", "models": [{"model": str(MERGING / f / "ft1"), "parameters": {"weight": 1}}
                                                       for f in ("tiny_llama", "tiny_gpt2")]}
        with self.assert_says(vitrine.UsageError, "llama", "gpt2", "allow_crimes=True"):
            vitrine.merge(crimes)
        huge = recipe("linear", "ft1", "ft2", weight=[1e38, 1e38], parameters={"normalize": False})
        with self.assert_says(vitrine.RunError, "of the result is", "use allow_nan=True"):
            vitrine.merge(recipe("linear", "ft1", "ft2", weight=[1e39, 1], parameters={"normalize": False}))
        with self.assert_says(vitrine.RunError, "beyond what f16 holds"):
            vitrine.merge({**huge, "dtype": "float16"}, self.scratch / "out")
        self.assertEqual(list(self.scratch.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
