"""What terminals and notebooks show of results: short, well-formed, with what is in them; chat templates."""

import contextlib
import copy
import io
import json
import os
import pathlib
import pickle
import re
import sys
import tempfile
import types
import unittest
import xml.etree.ElementTree
from unittest import mock

import numpy as np

import vitrine
from support import GOLDEN, SOURCE, Case, golden_model, tales
from vitrine import curves
from vitrine.documents import Document
from vitrine.program import program_path

PROMPT = "The old king had a son"


class Notebooks(Case):
    def run_cells(self, name, **environment):
        """The code cells of a notebook in examples/notebooks, in order; what they print."""
        folder = SOURCE / "examples" / "notebooks"
        cells = json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        names, said, before = {}, io.StringIO(), os.getcwd()
        os.chdir(folder)
        try:
            with mock.patch.dict(os.environ, {"VITRINE": str(program_path()), **environment}), contextlib.redirect_stdout(said):
                for cell in cells:
                    if cell["cell_type"] == "code":
                        exec("".join(cell["source"]), names)
        finally:
            os.chdir(before)
        return said.getvalue()

    def test_the_next_word_of_another_gemma_2(self):
        said = self.run_cells("next-word", MODEL=golden_model("gemma2"))  # its configuration is one of transformers 5
        self.assertIn("4 layers of 4 heads", said)
        self.assertEqual(said.count("agrees"), 2)

    def test_the_next_word_of_another_family(self):
        with self.assert_says(AssertionError, "gpt2_a", "is a gpt2", "Gemma 2"):
            self.run_cells("next-word", MODEL=golden_model("gpt2_a"))

    def test_the_command_says_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(pathlib.Path(golden_model("gemma2"), "config.json").read_text())
            with self.assert_says(RuntimeError, "vitrine trace", folder):
                self.run_cells("next-word", MODEL=folder)


class Shown(Case):
    def well_formed(self, text):
        """The text as a tree: all that notebooks are given is XML, too."""
        return xml.etree.ElementTree.fromstring(f"<all>{text}</all>")

    def words(self, tree):
        return [" ".join(element.itertext()) for element in tree.iter() if element.tag.split("}")[-1] in ("text", "td", "th", "span", "div", "caption")]

    @classmethod
    def setUpClass(cls):
        cls.model = tales()

    def test_predictions(self):
        found = self.model.predict(PROMPT, top=3, all_positions=True)
        self.assertIsInstance(found, list)
        self.assertEqual(found.pieces, self.model.to_str_tokens(PROMPT))
        words = self.words(self.well_formed(found._repr_html_()))
        for one, piece in zip(found, found.pieces, strict=True):
            self.assertIn(piece, words)
            for token in one.top:
                self.assertIn(f"{token.piece} {token.prob:.1%}", words)
        (last,) = self.model.predict(PROMPT, top=1)
        self.assertEqual(last, self.model.predict(PROMPT, top=3, all_positions=True)[-1]._replace(top=last.top))
        bare = vitrine.load(golden_model("qwen3"))  # no tokenizer
        self.assertEqual(bare.predict([5, 6]).pieces, [""])
        self.well_formed(bare.predict([5, 6])._repr_html_())

    def test_the_style_of_a_picture_is_its_own(self):
        """Some programs put SVG into the page, where its style would apply to the drawings of other cells."""
        style = re.search(r"<style>(.*?)</style>", self.model.picture("logit-lens", PROMPT).svg, re.DOTALL)[1]
        selectors = [one for rule in re.findall(r"([^{}]+)\{[^{}]*\}", style) for one in rule.split(",")]
        self.assertGreater(len(selectors), 50)
        for selector in selectors:
            self.assertRegex(selector, r"^\.vitrine\b")

    def test_losses(self):
        found = self.model.token_losses(PROMPT)
        self.assertEqual(found.tokens, self.model.to_tokens(PROMPT)[0].tolist())
        self.assert_close(found.losses, self.model(PROMPT, "loss", loss_per_token=True)[0], 1e-6)
        tree = self.well_formed(found._repr_html_())
        spans = [element for element in tree.iter("span")]
        self.assertEqual(len(spans), len(found.pieces))
        self.assertEqual("".join(span.text for span in spans[1:]).strip(), PROMPT)
        strength = [float(re.search(r",([\d.]+)\)$", span.get("style").split(";")[0])[1]) for span in spans[1:]]
        self.assertEqual(np.argmax(strength), np.argmax(found.losses))
        self.assertIn(f"{found.losses[2]:.3f} nats", spans[3].get("title"))

    def test_attribution(self):
        for found in (self.model.attribute(PROMPT, " who", " and", steps=8), self.model.attribute(PROMPT, steps=0)):
            self.assertEqual(found.tokens, self.model.to_tokens(PROMPT)[0].tolist())
            tree = self.well_formed(found._repr_html_())
            spans, methods = list(tree.iter("span")), [found.saliency, found.gradient_input]
            methods += [] if found.integrated is None else [found.integrated]
            self.assertEqual(len(spans), len(methods) * len(found.pieces))
            for method, values in enumerate(methods):
                shown = spans[method * len(values) : (method + 1) * len(values)]
                self.assertEqual([span.get("title").split(": ")[1] for span in shown], [f"{value:.4g}" for value in values])
                strength = [float(re.search(r",([\d.]+)\)$", span.get("style").split(";")[0])[1]) for span in shown]
                self.assertEqual(np.argmax(strength), np.argmax(np.abs(values)))
            words = " ".join(tree.itertext())
            self.assertIn(f"{found.explained}: {found.value:.3f}", words)
            self.assertEqual("sum" in words, found.integrated is not None)
        who, other = (self.model.to_single_str_token(self.model.to_single_token(text)) for text in (" who", " and"))
        self.assertEqual(self.model.attribute(PROMPT, " who", " and", steps=0).explained,
                         f"log-probability of {who!r} minus that of {other!r}")
        bare = vitrine.load(golden_model("qwen3")).attribute([5, 6], 7, steps=0)  # no tokenizer
        self.assertEqual((bare.pieces, bare.explained), (["", ""], "log-probability of token 7"))
        self.assertEqual([span.text for span in self.well_formed(bare._repr_html_()).iter("span")][:2], ["5 ", "6 "])

    def test_attention(self):
        _, cache = self.model.run_with_cache([PROMPT, "Once upon a time there was a"])
        found = cache.attention(2)
        n = len(self.model.to_tokens(PROMPT)[0])
        self.assertEqual(found.pattern.shape, (4, n, n))
        self.assert_close(found.pattern, self.model.run_with_cache(PROMPT)[1]["pattern", 2][0], 1e-5)
        self.assertEqual(cache.attention(-1, row=1).pieces, self.model.to_str_tokens("Once upon a time there was a"))
        tree = self.well_formed(found._repr_html_())
        titles = {" ".join(t.itertext()) for t in tree.iter() if t.tag.endswith("title")}
        pieces = [piece for piece in found.pieces]
        head, query, key = np.unravel_index(found.pattern.argmax(), found.pattern.shape)
        self.assertIn(f"{pieces[query]}, {pieces[key]}: {found.pattern[head, query, key]:.3g}", titles)
        self.assertLess(len(repr(found)), 100)
        single = self.model.run_with_cache(PROMPT, remove_batch_dim=True)[1]
        self.assert_close(single.attention(2).pattern, found.pattern, 1e-5)
        self.assertEqual(cache.apply_slice_to_batch_dim([1]).attention(0).pieces, cache.attention(0, 1).pieces)
        with self.assert_says(vitrine.InputError, "capture all of its positions"):
            self.model.run_with_cache(PROMPT, "pattern", positions=-1)[1].attention(0)
        with self.assertRaises(KeyError):
            self.model.run_with_cache(PROMPT, "resid_post")[1].attention(0)
        with self.assert_says(vitrine.UsageError, "without tokens="):
            vitrine.ActivationCache(dict(cache), self.model).attention(0)

    def test_circuits_and_comparison(self):
        found = self.model.circuits()
        self.assertLess(len(repr(found)), 300)
        self.assertEqual((len(found["heads"]), set(found)), (32, {"heads", "composition"}))
        words = self.words(self.well_formed(found._repr_html_()))
        best = max(found["composition"], key=lambda c: max(c["q"], c["k"], c["v"]))
        self.assertIn(f"L{best['from_layer']}H{best['from_head']} → L{best['to_layer']}H{best['to_head']}", words)
        self.assertIn(f"{max(best['q'], best['k'], best['v']):.3f}", words)
        few = self.model.circuits(1, 2, composition=False)
        self.well_formed(few._repr_html_())
        self.assertEqual(json.loads(json.dumps({"copying": few["heads"][0]["copying"]})), {"copying": few["heads"][0]["copying"]})
        self.assertEqual(type(pickle.loads(pickle.dumps(few))), type(few))
        changed = self.model.copy()
        changed.weights["blocks.3.attn.W_O"][1] = 0
        compared = self.model.compare(changed, PROMPT)
        words = self.words(self.well_formed(compared._repr_html_()))
        self.assertIn("layer 3", words)
        self.assertLess(len(repr(compared)), 1200)

    def test_short_texts(self):
        small = {"a": 1, "b": [1, 2], "c": "text"}
        self.assertEqual(repr(Document(small)), repr(small))
        self.assertEqual(dict(Document(small)), small)
        for value in ({"rows": list(range(100000))}, {"array": np.zeros((500, 500))}, {"text": "x" * 10**6}, {"deep": {"a": [[0] * 5000] * 3}}):
            self.assertLess(len(repr(Document(value))), 300)
        self.assertIn("<float64 [500, 500]>", repr(Document({"array": np.zeros((500, 500))})))
        for value in (self.model.weights, self.model.weights["W_E"], self.model.run_with_cache(PROMPT)[1], self.model.blocks[0]):
            self.assertLess(len(repr(value)), 1200)

    def test_hostile_pieces(self):
        bad = '<script>alert("x")</script>&\x00\x1b\ud800]]>'
        losses = vitrine.TokenLosses([bad, bad], [1, 2], np.array([1.0]))
        predictions = vitrine.Predictions([vitrine.Prediction(0, [vitrine.NextToken(1, bad, -0.5)])], [bad])
        patterns = vitrine.AttentionPatterns(0, np.eye(2, dtype=np.float32)[None], [bad, bad])
        for one in (losses, predictions, patterns):
            text = one._repr_html_()
            self.assertNotIn("<script", text)
            self.well_formed(text)
        empty = vitrine.AttentionPatterns(0, np.zeros((2, 1, 1), np.float32), ["a"])
        self.well_formed(empty._repr_html_())
        self.well_formed(vitrine.TokenLosses(["a"], [1], np.zeros(0))._repr_html_())
        self.well_formed(vitrine.TokenLosses(["a", "b"], [1, 2], np.array([np.nan]))._repr_html_())

    def test_pictures(self):
        found = self.model.picture("attention", PROMPT, layer=1, head=0)
        self.assertIn("attention", found["pictures"])
        self.assertLess(len(repr(found)), 300)
        tree = xml.etree.ElementTree.fromstring(found._repr_svg_())
        self.assertTrue(tree.tag.endswith("svg"))
        self.assertIs(found.svg, found.svg)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "picture.svg"
            self.assertIsNone(self.model.picture("attention", PROMPT, layer=1, head=0, out=path))
            self.assertEqual(path.read_text(encoding="utf-8"), found.svg)
        again = pickle.loads(pickle.dumps(found))
        self.assertEqual((again.svg, dict(again)), (found.svg, dict(found)))
        self.assertEqual(copy.copy(found), dict(found))

    def test_graphs(self):
        d, random = self.model.cfg.d_model, np.random.default_rng(0)
        transcoders = [vitrine.SparseAutoencoder.from_arrays(
            {"architecture": "transcoder", "d_in": d, "d_out": d, "d_sae": 16,
             "metadata": {"hook_name": f"blocks.{layer}.ln2.hook_normalized", "hook_name_out": f"blocks.{layer}.hook_mlp_out"}},
            W_enc=random.normal(size=(d, 16)) / d**0.5, W_dec=random.normal(size=(16, d)) / d, b_enc=np.full(16, -0.5), b_dec=np.zeros(d))
            for layer in range(self.model.cfg.n_layers)]
        graph = self.model.attribution_graph("The old king", transcoders, max_features=40)
        pruned = graph.prune()
        tree = self.well_formed(pruned._repr_html_())
        shown = [element for element in tree.iter() if element.tag.endswith("circle")]
        self.assertEqual(len(shown), len(pruned.document["nodes"]))
        lines = [element for element in tree.iter() if element.tag.endswith("line")]
        self.assertEqual(len(lines), min(400, len(pruned.document["links"])))
        self.assertEqual(graph._repr_html_(), pruned._repr_html_())
        self.assertLess(len(repr(pruned)) + len(repr(graph)), 300)


class Training(Case):
    def lines(self, folder, steps, tail=""):
        text = "".join(json.dumps({"step": step, "tokens": step * 64, "loss": 4 / (1 + step), **({"val_loss": 3.0} if step % 2 == 0 else {})}) + "\n"
                       for step in range(1, steps + 1))
        (pathlib.Path(folder) / "metrics.jsonl").write_text(text + tail, encoding="utf-8")

    def test_curves_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            run = vitrine.TrainingCurves(folder)
            self.assertIn("no step yet", repr(run))
            self.assertIn(f"{folder}: no step yet", run._repr_html_())
            absent = vitrine.TrainingCurves(folder + "/absent")
            for shown in (repr(absent), absent._repr_html_()):
                self.assertIn("absent: the folder does not exist yet", shown)
            self.assertIn("nothing yet", run._repr_html_())
            self.lines(folder, 3, '{"step": 4, "lo')
            self.assertEqual([line["step"] for line in run.metrics], [1, 2, 3])
            self.assertEqual((run["loss"][-1], run["val_loss"], run["lr"]), ((3, 1.0), [(2, 3.0)], []))
            self.assertIn("step 3, loss 1, val_loss 3", repr(run))
            before = run._repr_html_()
            xml.etree.ElementTree.fromstring(before)
            self.lines(folder, 30)
            after = run._repr_html_()
            points = [len(re.search(r'points="([^"]*)"', text)[1].split()) for text in (before, after)]
            self.assertEqual(points, [3, 30])

    def test_a_file_is_read_once_however_it_is_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            run = vitrine.TrainingCurves(folder)
            for steps in (3, 30):
                self.lines(folder, steps)
                with mock.patch.object(pathlib.Path, "read_text", autospec=True, side_effect=pathlib.Path.read_text) as read:
                    run._repr_html_()
                    self.assertIn(f"step {steps}", repr(run))
                    run.metrics.clear()  # a list of the caller's own
                    self.assertEqual(len(run["loss"]), steps)
                self.assertEqual(read.call_count, 1)

    def test_the_folder_of_a_configuration(self):
        for config, expected in (
            ({"out": pathlib.Path("a/b")}, "a/b"), ({}, None), ("steps: 3\nout: runs/x   # here\n", "runs/x"),
            ('steps: 3\nout: "a b"\n', "a b"), ("steps: 3\nout: 'c'\n", "c"), ("steps: 3\nouter: 4\n", None), ("missing.yaml", None),
            (str(SOURCE / "examples" / "fables.yaml"), "fables-model"),
        ):
            self.assertEqual(curves.folder_of(config), expected, config)

    def test_they_grow_in_a_notebook(self):
        shown = []

        class Handle:
            def update(self, what):
                shown.append(what._repr_html_())

        def display(what, display_id):
            shown.append(what._repr_html_())
            return Handle()

        notebook, inside = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        inside.display = display
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, {"IPython": notebook, "IPython.display": inside}):
            live = curves.LiveCurves(folder)
            live.update()
            self.assertEqual(len(shown), 1)
            for steps in (2, 5):
                self.lines(folder, steps)
                live.update()
                live.update()  # nothing new
            self.assertEqual(len(shown), 3)
            counts = [len(re.search(r'points="([^"]*)"', text)[1].split()) for text in shown[1:]]
            self.assertEqual(counts, [2, 5])
            curves.LiveCurves(None).update()
            shown.clear()
            data, run = f"{folder}/tokens", f"{folder}/run"
            vitrine.run("data", SOURCE / "examples" / "fables.txt", tokenizer="characters", out=data)
            vitrine.train({"model": {"config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 100}},
                           "data": {"train": data + "/train"}, "sequence_length": 16, "batch": 4, "steps": 6,
                           "optimizer": {"name": "adamw", "lr": 1e-3}, "out": run})
            self.assertEqual(len(re.search(r'points="([^"]*)"', shown[-1])[1].split()), 6)
            self.assertGreaterEqual(len(shown), 2)
        shown.clear()
        terminal = types.ModuleType("IPython")
        terminal.get_ipython = lambda: object()
        with mock.patch.dict(sys.modules, {"IPython": terminal}):
            curves.LiveCurves("anywhere").update()
        self.assertEqual(shown, [])


class Chats(Case):
    def test_as_transformers(self):
        for case in json.loads((GOLDEN / "python" / "chat.json").read_text(encoding="utf-8")):
            model = vitrine.load(golden_model(case["model"]))
            template = (GOLDEN / "jinja" / "templates" / case["template"]).read_text(encoding="utf-8")
            arguments = {**case["arguments"], "chat_template": template}
            self.assertEqual(model.apply_chat_template(**arguments, tokenize=False), case["text"], case["template"])
            # Exactly one BOS, as in `vitrine chat`; transformers has one only where the template writes it.
            expected = case["ids"] if case["ids"][0] == model.tokenizer.bos else [model.tokenizer.bos, *case["ids"]]
            self.assertEqual(model.apply_chat_template(**arguments), expected, case["template"])
            talk = arguments.pop("conversation")
            self.assertEqual(model.apply_chat_template([talk, talk], **arguments), [expected] * 2)

    def test_what_is_wrong(self):
        model = tales()
        talk = [{"role": "user", "content": "Hello"}]
        with self.assert_says(vitrine.InputError, "chat template"):
            model.apply_chat_template(talk)
        template = "{{ messages[0].content }}"
        self.assertEqual(model.apply_chat_template(talk, chat_template=template, tokenize=False), "Hello")
        generated = model.generate(model.apply_chat_template(talk, chat_template=template), 3)
        self.assertIsInstance(generated, vitrine.Generation)
        for error, words, call in (
            (vitrine.InputError, "a list of messages", lambda: model.apply_chat_template("Hello", chat_template=template)),
            (vitrine.InputError, "a list of messages", lambda: model.apply_chat_template(talk[0], chat_template=template)),
            (vitrine.InputError, "chat_template", lambda: model.apply_chat_template(talk, chat_template="{% if %}")),
            (vitrine.InputError, "no roles", lambda: model.apply_chat_template(talk, chat_template="{{ raise_exception('no roles') }}")),
            (vitrine.InputError, "no word for", lambda: model.apply_chat_template(talk, chat_template=template, thing=object())),
            (vitrine.InputError, "surrogate", lambda: model.apply_chat_template([{"role": "user", "content": "\ud800"}], chat_template=template)),
            (vitrine.UsageError, "continue_final_message", lambda: model.apply_chat_template(talk, chat_template=template, continue_final_message=True)),
        ):
            with self.assert_says(error, words):
                call()


if __name__ == "__main__":
    unittest.main()
