"""The programs that the manual shows run, and print what they should."""

import contextlib
import doctest
import io
import json
import re
import tempfile
import unittest

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, tales


class Documentation(Case):
    def test_the_page_about_python(self):
        page = (SOURCE / "docs" / "python.md").read_text(encoding="utf-8")
        program, as_in_nnsight, changes, commands = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            exec(program, names)
        (gold, *_) = json.loads((GOLDEN / "tales9m" / "golden.json").read_text(encoding="utf-8"))
        _, piece, prob = gold["top10_next"][0]
        self.assertIn(f"{prob:.2%}  {piece}", said.getvalue())
        self.assertEqual(said.getvalue().count(gold["greedy_text"][:30]), 2)
        self.assertEqual(names["logits"].shape, (1, len(gold["ids"]), 6144))
        before = names["model"]("Once upon a time")
        exec(as_in_nnsight, names)
        self.assertFalse(np.allclose(names["logits"], before))
        self.assertEqual(list(names["cache"]), ["blocks.7.hook_resid_post"])
        exec(changes, names)
        self.assertFalse(np.allclose(names["logits"], before))
        self.assertTrue(np.array_equal(names["model"]("Once upon a time"), before))
        exec(commands.replace("fables.txt", str(SOURCE / "examples" / "fables.txt")), names)
        self.assertGreater(names["found"]["perplexity"], 1)

    def test_the_page_about_transformer_lens(self):
        page = (SOURCE / "docs" / "from-transformerlens.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, names)
        self.assert_close(names["lens"][-1], names["logits"][0, -1], 1e-4)
        self.assert_close(names["attribution"].sum(), (lambda z, u: z @ (u[:, names["answer"]] - u[:, names["other"]]))(
            names["cache"]["ln_final.hook_normalized"][0, -1], names["model"].W_U), 1e-3)
        self.assert_close(names["again"], names["model"](names["tokens"]), 1e-6)
        self.assert_close(names["last"][0, 0], names["logits"][0, -1], 0.1)  # bf16 weights, few rows: another kernel
        self.assertEqual(names["effect"].shape, (8, names["corrupted"].shape[1]))
        self.assertFalse(np.array_equal(names["without"], names["again"]))
        self.assertTrue(np.isfinite(names["final"]).all())
        self.assertEqual(np.isfinite(names["losses"]).sum(), names["both"].lengths.sum() - 2)
        self.assertEqual([len(made.tokens) for made in names["continued"]], [5, 5])
        for call in set(re.findall(r"\b(?:cache\.)?(accumulated_resid|decompose_resid|stack_\w+|get_full_resid_decomposition|"
                                   r"apply_ln_to_stack|logit_attrs|remove_batch_dim)\b", page)):
            self.assertTrue(hasattr(vitrine.ActivationCache, call), call)

    def test_the_recipes(self):
        page = (SOURCE / "docs" / "recipes.md").read_text(encoding="utf-8")
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
        self.assert_close(names["lens"][-1], names["model"]("The king went home to")[0, -1], 1e-4)
        self.assert_close(names["of_parts"].sum(), names["difference"], 1e-3)
        self.assertEqual(names["accuracy"][0], 0.5)  # the last word is the same for all
        self.assertGreater(min(names["accuracy"][4:]), 0.9)
        his, her = names["his"], names["her"]
        self.assertGreater(names["before"][his], names["before"][her])
        self.assertGreater(names["after"][her], names["after"][his])
        self.assertIn("final_post  ▁his", said.getvalue())
        less, king, boy = names["his_less_her"], "The king went home to", "The boy went home to"
        self.assertLess(less(names["edited"], king), 0)
        self.assertLess(abs(less(names["edited"], boy) - less(names["model"], boy)), 0.3)
        self.assertLess(names["along"], 1e-4)
        self.assertLess(less(names["ablated"], king), 0.5 * less(names["model"], king))
        loss = {which: names[which](names["text"], "loss") for which in ("model", "pruned")}
        self.assertLess(loss["model"], loss["pruned"])
        self.assertLess(loss["pruned"], loss["model"] + 0.5)

    def test_the_lines_about_induction(self):
        page = (SOURCE / "docs" / "induction.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        names = {"np": np, "model": tales(), "tokens": np.tile(np.arange(300, 312), 2)[None]}
        exec(program, names)
        self.assertGreater(names["induction"].max(), 0.1)
        self.assertGreater(names["loss"], names["model"](names["tokens"], "loss"))
        self.assertEqual(names["before"].shape, (8, 4))

    def test_the_table_of_transformer_lens(self):
        page = (SOURCE / "docs" / "transformerlens-table.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (`.*?) \| (.*) \|$", page.split("## Options of generate")[0], re.MULTILINE)
        self.assertGreater(len(rows), 160)
        for there, here in rows:
            named = re.findall(r"`((?:Model|ActivationCache|FactoredMatrix|KeyValueCache|HookPoint|Config|patching|vitrine)\.\w+)`", here)
            self.assertTrue(named or here.startswith("no: "), f"{there}: neither a name nor a reason")
            for name in named:
                owner, attribute = name.split(".")
                holder = vitrine if owner == "vitrine" else getattr(vitrine, owner)
                declared = owner == "HookPoint" and attribute == "ctx" or attribute in getattr(holder, "__dataclass_fields__", {})
                self.assertTrue(declared or hasattr(holder, attribute), f"{there}: {name}")

    def test_the_page_about_autoencoders(self):
        page = (SOURCE / "docs" / "sparse-autoencoders.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        names = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            exec(program.replace('"my-autoencoder"', repr(folder + "/made")), names)
            self.assertEqual(vitrine.load_sae(folder + "/made").k, 2)
        self.assert_close(names["same"], names["logits"], 1e-3)
        self.assertGreater(names["steered"][0, -1, names["cat"]], names["logits"][0, -1, names["cat"]] + 1)
        self.assertEqual(names["told"].shape, (6,))
        self.assert_close(names["back"] + names["error"], names["cache"]["blocks.6.hook_resid_post"], 1e-3)

    def test_the_page_about_attribution_graphs(self):
        page = (SOURCE / "docs" / "attribution-graphs.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        names = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            exec(program.replace('"graph.json"', repr(folder + "/graph.json")), names)
            with open(folder + "/graph.json", encoding="utf-8") as file:
                document = json.load(file)
        graph, pruned = names["graph"], names["pruned"]
        self.assertEqual(len(document["links"]), len(pruned.edges))
        self.assertEqual(document["metadata"]["prompt_tokens"][-1].strip(), "a")
        self.assertEqual(graph.effects.shape, (len(graph.selected_features) + len(graph.logit_tokens), len(graph.nodes)))
        self.assertLessEqual(len(graph.selected_features), 500)
        self.assertLess(pruned.node_mask.sum(), len(graph.nodes))

    def test_the_page_about_gradients(self):
        page = (SOURCE / "docs" / "gradients.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, names)
        told, along = names["told"], names["along"]
        self.assertAlmostEqual(float(along.effects["blocks.4.hook_resid_pre"].sum()), along.clean - along.corrupted, delta=1e-2)
        self.assertEqual(names["table"].shape, names["exact"].shape)
        self.assertGreater(np.corrcoef(names["table"].ravel(), names["exact"].ravel())[0, 1], 0.6)
        self.assertGreater(told.clean - told.corrupted, 1)
        self.assertEqual(names["heads"].shape, (1, 7, names["model"].config.n_heads))
        self.assertEqual(names["features"].shape, (4 * names["model"].config.d_model,))
        for name in set(re.findall(r"\bmetrics\.(\w+)\(", page)):
            self.assertIn(name, vitrine.metrics.__all__)

    def test_the_docstring(self):
        found = doctest.testmod(vitrine)
        self.assertEqual(found.failed, 0)
        self.assertGreaterEqual(found.attempted, 5)

    def test_every_public_name_is_there_and_explained(self):
        for name in vitrine.__all__:
            self.assertTrue(name == "__version__" or getattr(vitrine, name).__doc__, name)
        for kind in (vitrine.Model, *vitrine.Model.__mro__[1:-1], vitrine.ActivationCache, vitrine.FactoredMatrix, vitrine.KeyValueCache):
            for name, value in vars(kind).items():
                if not name.startswith("_"):
                    self.assertTrue(value.__doc__, f"{kind.__name__}.{name}")
        for module in (vitrine.head_detector, vitrine.metrics, vitrine.patching):
            for name in module.__all__:
                self.assertTrue(getattr(module, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
