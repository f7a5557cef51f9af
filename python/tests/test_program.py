"""Commands of the program from Python: their results, their errors, and how they end."""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import vitrine
from support import SOURCE, Case, golden_model

FABLES = str(SOURCE / "examples" / "fables.txt")
PROGRAM = os.path.join(os.path.dirname(vitrine.__file__), "vitrine")


def on_the_command_line(*arguments):
    return json.loads(subprocess.run([PROGRAM, *arguments, "--json"], stdout=subprocess.PIPE, check=True).stdout)


class Program(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = vitrine.load()

    def test_pictures_are_those_of_the_command_line(self):
        found = self.model.picture("attention", "The king and the queen", layer=1, head=0)
        self.assertEqual(found, on_the_command_line("picture", "attention", "The king and the queen", "--layer=1", "--head=0"))
        self.assertEqual(found["pictures"].keys(), {"attention"})
        ids = self.model.to_tokens("The king")
        self.assertEqual([token["id"] for token in self.model.picture("update-scale", ids)["tokens"]], ids[0].tolist())
        self.assertIn("--help", str(self.model.picture("tokens", "--help")["prompt"]))  # a text, not an option
        cosine = self.model.picture("embedding-cosine", words=["king", "queen"])
        self.assertIn("embedding-cosine", cosine["pictures"])
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "heads.svg"
            self.assertIsNone(self.model.picture("attention", "The king", out=out))
            self.assertIn("<svg", out.read_text(encoding="utf-8"))
            page = pathlib.Path(folder) / "walk.html"
            self.model.explain("The king", page, gradients=False)
            self.assertIn("<html", page.read_text(encoding="utf-8"))

    def test_evaluation_is_that_of_the_command_line(self):
        options = ["eval", "perplexity", f"--file={FABLES}", "--context=256", "--stride=128"]
        ours, theirs = self.model.eval_perplexity(FABLES, context=256, stride=128), on_the_command_line(*options)
        self.assertEqual(ours["perplexity"], theirs["perplexity"])
        questions = str(SOURCE / "examples" / "questions.jsonl")
        self.assertEqual(self.model.eval_choices(questions, limit=2)["count"], 2)
        small = vitrine.load(golden_model("llama"), compute="f32")
        text = str(SOURCE / "LICENSE")
        found = small.eval_compare(SOURCE / "tests/golden/gguf/llama_q8_0.gguf", text, context=32, stride=16)
        self.assertEqual(found["b"]["dtypes"], ["q8_0"])

    def test_errors_are_those_of_the_package(self):
        with self.assert_says(vitrine.InputError, "layer 99", "0 to 7"):
            self.model.picture("attention", "The king", layer=99)
        with self.assert_says(vitrine.InputError, "did you mean file=?") as said:
            self.model.eval_perplexity(FABLES, fiel=1)
        self.assertNotIn("--fiel", str(said.exception))
        self.assertFalse(str(said.exception).startswith("vitrine"))
        with self.assert_says(vitrine.InputError, "/nowhere.yaml"):
            vitrine.train("/nowhere.yaml")
        with self.assert_says(vitrine.InputError, "the configuration", "stepps"):
            vitrine.train({"stepps": 3})
        with self.assert_says(vitrine.InputError, "no word for"):
            vitrine.train({"steps": object()})
        with self.assert_says(vitrine.InputError, "zero byte"):
            vitrine.run("tokenize", "a\0b")
        with self.assert_says(vitrine.InputError, "no command"):
            vitrine.run("trian")
        with self.model.hooks([("resid_pre.0", print)]), self.assert_says(vitrine.UsageError, "without hook functions"):
            self.model.eval_perplexity(FABLES)
        made = vitrine.merge({"merge_method": "linear", "models": [
            {"model": golden_model("llama"), "parameters": {"weight": 1.0}}]})
        with self.assert_says(vitrine.UsageError, "in memory alone"):
            made.eval_perplexity(FABLES)

    def test_training(self):
        with tempfile.TemporaryDirectory() as folder:
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                vitrine.run("data", FABLES, tokenizer="characters", out=f"{folder}/tokens")
                config = {"model": {"config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16,
                                               "vocab_size": 100}},
                          "data": {"train": f"{folder}/tokens/train"}, "sequence_length": 16, "batch": 4, "steps": np.int64(3),
                          "optimizer": {"name": "adamw", "lr": 1e-3}, "out": pathlib.Path(folder) / "run"}
                done = vitrine.train(config)
            self.assertIn("parameters", said.getvalue())
            self.assertTrue(os.path.exists(f"{folder}/run/last/model.safetensors"))
            self.assertEqual(vitrine.load(f"{folder}/run/last").cfg.d_model, 16)
            self.assertIsInstance(done, dict)
            again = {**config, "steps": 5}
            with contextlib.redirect_stderr(io.StringIO()):
                vitrine.train(json.dumps(again, default=str, indent=1), resume=True)  # YAML of several lines
            steps = [json.loads(line)["step"] for line in pathlib.Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
            self.assertEqual(steps[-1], 5)
            self.interrupted(folder, {**config, "steps": 10**6, "out": f"{folder}/long"})

    def test_rewards_from_a_function(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [{"prompt": "The fox saw", "wanted": "e"}, {"prompt": "Once upon a time", "wanted": "e"}]
            prompts = pathlib.Path(folder) / "lines.jsonl"
            prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
            config = {"model": golden_model("llama"), "data": {"train": f"{folder}/prompts/train"}, "sequence_length": 40, "batch": 8,
                      "steps": 3, "optimizer": {"lr": 3e-3}, "out": f"{folder}/run", "grpo": {"group": 4, "max_tokens": 8}}
            calls = []

            def reward(prompts, completions, finish_reason, wanted):
                calls.append(len(completions))
                self.assertEqual({len(prompts), len(finish_reason), len(wanted)}, {8})
                return np.array([text.count(letter) for text, letter in zip(completions, wanted)])

            def failing(completions, **_):
                raise KeyError("no such answer")

            with contextlib.redirect_stderr(io.StringIO()):
                vitrine.run("data", prompts, prompts=True, tokenizer=golden_model("llama"), out=f"{folder}/prompts")
                vitrine.train(config, reward=reward)
                self.assertEqual(calls, [8, 8, 8])
                vitrine.train(config, reward=reward, resume=True, set={"steps": 4})
                self.assertEqual(calls, [8] * 4)
                with self.assert_says(vitrine.RunError, "KeyError: 'no such answer'") as said:
                    vitrine.train(config, reward=failing, resume=True, set={"steps": 5})
                self.assertIsInstance(said.exception.__cause__, KeyError)
                with self.assert_says(vitrine.RunError, "returned 1 numbers for 8 answers"):
                    vitrine.train(config, reward=lambda **_: [1.0], resume=True, set={"steps": 5})
                with self.assert_says(vitrine.RunError, "printed \"NaN\" for line 1"):
                    vitrine.train(config, reward=lambda **_: [float("nan")] * 8, resume=True, set={"steps": 5})

    def interrupted(self, folder, config):
        """Ctrl-C saves a checkpoint, ends the program and is raised here."""
        # Where the tests run in the background, the shell has Ctrl-C ignored, also for what they start.
        code = ("import vitrine, json, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                f"vitrine.train(json.loads({json.dumps(json.dumps(config, default=int))}))")
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, encoding="utf-8")
        metrics = pathlib.Path(folder) / "long" / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        try:
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
        self.assertIn("KeyboardInterrupt", said)
        self.assertTrue((pathlib.Path(folder) / "long" / "last" / "model.safetensors").exists(), said)


if __name__ == "__main__":
    unittest.main()
