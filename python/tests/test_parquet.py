"""Parquet files of data sets as JSON lines."""

import gzip
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import vitrine
from support import SOURCE, Case
from vitrine.parquet import from_parquet

PYARROW = importlib.util.find_spec("pyarrow") is not None


class Parquet(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, rows):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / name)

    def lines(self, files, **options):
        out = self.folder / "lines.jsonl"
        rows = from_parquet(files, out, **options)
        lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        self.assertEqual(len(lines), rows)
        return lines

    @unittest.skipUnless(PYARROW, "pyarrow is not installed")
    def test_shards_become_lines(self):
        chats = [{"conversations": [{"from": "human", "value": "Why?", "tool": None}, {"from": "gpt", "value": f"naïve {i}", "tool": "a"}],
                  "score": 0.5, "kept": i % 2 == 0, "nothing": None} for i in range(1500)]
        self.write("train-00000-of-00002.parquet", chats[:1200])
        self.write("train-00001-of-00002.parquet", chats[1200:])
        lines = self.lines(self.folder)
        self.assertEqual(len(lines), 1500)
        self.assertEqual(lines[1], {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "naïve 1", "tool": "a"}],
                                    "score": 0.5, "kept": False})
        self.assertEqual(lines[1499]["conversations"][1]["value"], "naïve 1499")
        self.assertEqual(self.lines(str(self.folder / "train-*.parquet")), lines)
        self.assertEqual(self.lines([self.folder / "train-00001-of-00002.parquet"], columns=["score"])[0], {"score": 0.5})
        compressed = self.folder / "lines.jsonl.gz"
        from_parquet(self.folder, compressed)
        self.assertEqual([json.loads(line) for line in gzip.decompress(compressed.read_bytes()).splitlines()], lines)
        template = SOURCE / "examples" / "plain-chat.jinja"
        made = vitrine.run("data", compressed, chat=True, template=template, out=self.folder / "tokens")
        self.assertEqual(made["train"]["documents"], 1500)
        self.write("test-00000-of-00001.parquet", chats[:1])
        with self.assert_says(vitrine.InputError, "more than one split: test, train", "train*.parquet"):
            self.lines(self.folder)

    @unittest.skipUnless(PYARROW, "pyarrow is not installed")
    def test_names_what_is_wrong(self):
        self.write("a.parquet", [{"text": "a", "image": b"\xff"}])
        with self.assert_says(vitrine.InputError, "a.parquet: column 'image' holds bytes", "--columns"):
            self.lines(self.folder / "a.parquet")
        self.assertFalse((self.folder / "lines.jsonl").exists())
        self.assertFalse((self.folder / "lines.jsonl.unfinished").exists())
        self.assertEqual(self.lines(self.folder / "a.parquet", columns=["text"]), [{"text": "a"}])
        with self.assert_says(vitrine.InputError, "has no column 'body'; its columns are text, image"):
            self.lines(self.folder / "a.parquet", columns=["body"])
        (self.folder / "b.parquet").write_bytes(b"PAR1 and nothing else")
        with self.assert_says(vitrine.FileError, "b.parquet: cannot be read as Parquet"):
            self.lines(self.folder / "b.parquet")

    def test_without_files_or_pyarrow(self):
        with self.assert_says(vitrine.MissingFileError, "nothing.parquet: does not exist"):
            self.lines("nothing.parquet")
        with self.assert_says(vitrine.InputError, "holds no .parquet files"):
            self.lines(self.folder)
        (self.folder / "a.parquet").write_bytes(b"PAR1")
        with unittest.mock.patch.dict(sys.modules, {"pyarrow": None}), self.assert_says(vitrine.RunError, "pip install pyarrow"):
            self.lines(self.folder)
        ended = subprocess.run([sys.executable, "-m", "vitrine.parquet", "nothing.parquet", "--out", str(self.folder / "x")],
                               stderr=subprocess.PIPE, text=True)
        self.assertEqual((ended.returncode, ended.stderr), (2, "vitrine.parquet: nothing.parquet: does not exist\n"))


if __name__ == "__main__":
    unittest.main()
