"""Activations on disk: the rows of a run by itself, through the mapped reader; a call that was cut off goes on."""

import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest

import numpy as np

import vitrine
from support import SOURCE, Case, tales

TEXTS = ["Once upon a time there was a king", "The old woman", "In the middle of the forest there stood a house, and in it"]


class Collecting(Case):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_rows_are_those_of_a_run(self):
        model = tales()
        hooks = ["blocks.2.hook_resid_post", "blocks.0.attn.hook_q"]
        for type in ("f32", "f16", "bf16"):
            found = model.collect(hooks, self.folder / type, texts=TEXTS, type=type, shard_mb=1)
            self.assertEqual(found.hooks, ["blocks.0.attn.hook_q", "blocks.2.hook_resid_post"])
            tokens, positions = found.tokens(), found.positions()
            begins = np.flatnonzero(positions == 0)
            self.assertEqual(len(begins), 3)
            for begin, end, text in zip(begins, [*begins[1:], len(found)], TEXTS):
                np.testing.assert_array_equal(tokens[begin:end], model.to_tokens(text)[0])
                _, cache = model.run_with_cache(text, names_filter=hooks)
                for hook in hooks:
                    scale = {"f32": 1e-4, "f16": 2e-3, "bf16": 1e-2}[type]
                    self.assert_close(found.rows(hook, slice(begin, end)), cache[hook][0], 2e-5 if type == "f32" else scale, scale)
            everything = found[hooks[0]]
            np.testing.assert_array_equal(found.rows(hooks[0], [5, 0, -1]), everything[[5, 0, -1]])

    def test_which_tokens(self):
        found = tales().collect("resid_post.1", self.folder / "a", texts=TEXTS)
        hook, everything, positions = "blocks.1.hook_resid_post", found["resid_post.1"], found.positions()
        np.testing.assert_array_equal(found.rows(hook, positions > 2), everything[positions > 2])
        np.testing.assert_array_equal(found.rows("resid_post.1", np.int64(3)), everything[3:4])
        np.testing.assert_array_equal(found.rows(hook, []), everything[:0])
        with self.assert_says(vitrine.ShapeError, "expected one for each of"):
            found.rows(hook, [True, False])
        with self.assert_says(vitrine.InputError, "expected whole numbers, a slice, or bools"):
            found.rows(hook, [0.5])
        with self.assert_says(vitrine.InputError, "holds no values of 'resid_post.2'"):
            found.rows("resid_post.2", [0])

    def test_an_alias_that_depends_on_the_model_is_refused(self):
        found = tales().collect("blocks.1.hook_mlp_out", self.folder / "a", texts=TEXTS)  # another value than mlp.out.hook_out in a Gemma 2
        self.assertEqual(found.shards("mlp_out.1")[0].shape[1:], (256,))
        with self.assert_says(vitrine.InputError, "holds no values of 'blocks.1.mlp.out.hook_out'"):
            found["blocks.1.mlp.out.hook_out"]

    def test_a_damaged_shard_is_an_error_that_names_it(self):
        found = tales().collect("resid_post.1", self.folder / "a", texts=TEXTS)
        shard = found.path / found.manifest["shards"][0]["file"]
        content = shard.read_bytes()
        for before, after in ((b'"shape":[', b'"shape":]'), (b'"I32"', b'"I99"'), (b'"data_offsets"', b'"data_0ffsets"')):
            self.assertIn(before, content)
            shard.write_bytes(content.replace(before, after))
            with self.assert_says(vitrine.FileError, shard.name):
                vitrine.Activations(found.path)
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        header["tokens"]["shape"] = []
        text = json.dumps(header).encode()
        shard.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
        with self.assert_says(vitrine.FileError, shard.name):
            vitrine.Activations(found.path)

    def test_ids_files_and_limits(self):
        model = tales()
        ids = [model.to_tokens(text)[0][1:] for text in TEXTS]
        found = model.collect("resid_post.1", self.folder / "ids", texts=iter(ids), context=6, max_tokens=20)
        self.assertEqual(len(found), 20)
        self.assertEqual(found.positions().max(), 5)
        lines = self.folder / "texts.jsonl"
        lines.write_text("".join(json.dumps({"story": text}) + "\n" for text in TEXTS))
        seen = []
        other = model.collect("resid_post.1", self.folder / "files", files=lines, key="story", context=6, max_tokens=20,
                              progress=lambda tokens, per_second: seen.append(tokens))
        np.testing.assert_array_equal(other.tokens(), found.tokens())
        np.testing.assert_array_equal(other["blocks.1.hook_resid_post"], found["blocks.1.hook_resid_post"])
        self.assertEqual(seen[-1], 20)

    def test_goes_on_behind_whole_shards(self):
        model = tales()
        text = " ".join(TEXTS) * 60
        whole = model.collect("blocks.*.hook_resid_post", self.folder / "whole", texts=[text] * 4, shard_mb=1)
        self.assertGreater(len(whole.manifest["shards"]), 3)

        def cut_off(tokens, _):
            if tokens > len(whole) // 2:
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            model.collect("blocks.*.hook_resid_post", self.folder / "part", texts=[text] * 4, shard_mb=1, progress=cut_off)
        self.assertFalse(vitrine.Activations(self.folder / "part").manifest["complete"])
        model.collect("blocks.*.hook_resid_post", self.folder / "part", texts=[text] * 4, shard_mb=1, resume=True)
        for path in (self.folder / "whole").iterdir():
            self.assertEqual((self.folder / "part" / path.name).read_bytes(), path.read_bytes(), path.name)

    def test_the_page_about_collecting(self):
        page = (SOURCE / "docs" / "collect.md").read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        for name in ("python-stream", "python-autoencoder"):
            program = program.replace(f'"{name}"', repr(str(self.folder / name)))
        names, said = {}, io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(program, names)
        self.assertIn(f"({len(names['found'])}, 256)", said.getvalue())
        self.assertEqual(names["same"].manifest, names["found"].manifest)

    def test_says_what_is_wrong(self):
        model = tales()
        with self.assert_says(vitrine.UsageError, "one of them"):
            model.collect("resid_post.1", self.folder / "a")
        with self.assert_says(vitrine.UsageError, "texts is one text"):
            model.collect("resid_post.1", self.folder / "a", texts="text")
        with self.assert_says(vitrine.UsageError, "type is \"f64\""):
            model.collect("resid_post.1", self.folder / "a", texts=TEXTS, type="f64")
        with self.assert_says(vitrine.InputError, "a row for each token"):
            model.collect("pattern.1", self.folder / "a", texts=TEXTS)
        with self.assert_says(vitrine.MissingFileError, "manifest.json"):
            vitrine.Activations(self.folder / "nothing")
        found = model.collect("resid_post.1", self.folder / "a", texts=TEXTS)
        with self.assert_says(vitrine.InputError, "holds no values of 'blocks.2"):
            found["blocks.2.hook_resid_post"]
        with self.assert_says(vitrine.InputError, "exists and holds something"):
            model.collect("resid_post.1", self.folder / "a", texts=TEXTS)
        shard = self.folder / "a" / "activations-00000.safetensors"
        shard.write_bytes(shard.read_bytes()[:900])
        with self.assert_says(vitrine.FileError, "truncated"):
            vitrine.Activations(self.folder / "a")


if __name__ == "__main__":
    unittest.main()
