"""The recipe of examples/induction: its configuration trains, and its analysis finds the heads of models that have some."""

import contextlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import vitrine
from support import SOURCE, Case, tales

FOLDER = SOURCE / "examples" / "induction"


def find():
    spec = importlib.util.spec_from_file_location("find", FOLDER / "find.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Induction(Case):
    def test_the_recipe_makes_and_finds_an_induction_head(self):
        """Data, a shorter training, and the analysis of what it makes."""
        with (tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()),
              contextlib.redirect_stdout(io.StringIO()) as said):
            text = pathlib.Path(folder) / "repeats.txt"
            subprocess.run([sys.executable, str(FOLDER / "make_data.py"), str(text)], check=True)
            lines = text.read_text(encoding="ascii").splitlines()
            self.assertEqual(len(lines), 12000)
            for line in lines[:100]:
                period = next(n for n in range(8, 25) if line[n:] == line[:-n])
                self.assertEqual(len(line), 128, period)
            vitrine.run("data", text, document="\\n", valid=0.02, tokenizer="characters", out=f"{folder}/repeats")
            config = (FOLDER / "train.yaml").read_text(encoding="utf-8")
            config = config.replace("steps: 1000", "steps: 600").replace("eval_every: 250", "eval_every: 600")
            for name in ("repeats", "induction-model"):
                config = config.replace(f" {name}", f" {folder}/{name}")
            vitrine.train(config)
            path = os.path.join(folder, "induction-model", "last")
            with mock.patch.object(sys, "argv", ["find.py", path]):
                find().main()
            self.finds(vitrine.load(path, compute="f32"))
        self.assertIn("L1H", said.getvalue())
        self.assertIn("is the induction head", said.getvalue())

    def finds(self, model):
        demo = find()
        self.assertEqual((model.cfg.n_layers, model.cfg.d_ff), (2, 1))
        repeated, other = demo.prompts(model)
        loss = demo.second_half(model, repeated)
        self.assertLess(loss, 0.6)
        self.assertGreater(demo.second_half(model, other), 3.2)  # ln 26 = 3.26: nothing is known
        self.assertAlmostEqual(demo.without_mlps(model, repeated), loss, delta=0.2)
        before, induction = demo.head_scores(model, repeated)
        self.assertGreater(before[0].max(), 0.25)
        self.assertGreater(induction[1].max(), 0.35)
        self.assertLess(induction[0].max(), 0.1)
        self.assertGreater(demo.ablations(model, repeated)[1].max(), 2 * loss)
        paths = demo.paths(model, repeated, other, 1)
        self.assertGreater(paths[before[0].argmax()].max(), 0.1)

    def test_the_analysis(self):
        demo, model = find(), tales()
        repeated, other = demo.prompts(model, 4, 12)
        self.assertEqual(repeated.shape, (4, 24))
        np.testing.assert_array_equal(repeated[:, 12:], repeated[:, :12])
        np.testing.assert_array_equal(other[:, 12:], repeated[:, 12:])
        self.assertFalse(np.array_equal(other[:, :12], repeated[:, :12]))
        before, induction = demo.head_scores(model, repeated)
        _, cache = model.run_with_cache(repeated[:1], "pattern", return_type=None)
        self.assertEqual(before.shape, (8, 4))
        self.assertGreater(induction.max(), 0.12)  # a head that looks everywhere alike: 0.055
        one, _ = demo.head_scores(model, repeated[:1])
        self.assert_close(one[2, 1], np.mean([cache["pattern", 2][0, 1, q, q - 1] for q in range(1, 24)]), 1e-6)
        loss = demo.second_half(model, repeated)
        self.assertLess(loss, demo.second_half(model, other))
        layer, head = np.unravel_index(induction.argmax(), induction.shape)
        self.assertGreater(demo.ablations(model, repeated[:2])[layer, head], demo.second_half(model, repeated[:2]))
        self.assertGreater(demo.copying(model, layer, head), 0)


if __name__ == "__main__":
    unittest.main()
