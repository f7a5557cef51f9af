"""Runs carried to experiment trackers, with the real libraries where they are installed."""

import glob
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import vitrine
from support import Case
from vitrine.track import track

MLFLOW = importlib.util.find_spec("mlflow") is not None
WANDB = importlib.util.find_spec("wandb") is not None

CONFIG = "model: {config: {model_type: gpt2}}\noptimizer: {lr: 0.001, betas: [0.9, 0.95]}\nsteps: 4\n"


def line(step, **more):
    return json.dumps({"step": step, "tokens": 10 * step, "loss": 2.0 - 0.1 * step, "peak_share": None, **more}) + "\n"


def records(data):
    """The records of a .wandb file: a header of 7 bytes, then a log in LevelDB's format."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


class Track(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run 'a'"
        self.run_folder.mkdir()
        (self.run_folder / "config.yaml").write_text(CONFIG)
        self.metrics = self.run_folder / "metrics.jsonl"
        self.metrics.write_text(line(0, val_loss=3.0) + line(1, layer_grad_norm={"blocks.0": 0.5, "end": 0.25}) + line(2) + '{"step": 3, "lo')

    def go_on(self):
        self.metrics.write_text(self.metrics.read_text().removesuffix('{"step": 3, "lo') + line(3) + line(4, val_loss=1.5, samples=["a"]))

    @unittest.skipUnless(MLFLOW, "mlflow is not installed")
    def test_mlflow_has_every_number_once(self):
        from mlflow.tracking import MlflowClient

        store = self.folder / "mlflow.db"
        self.assertEqual(track(self.run_folder, "mlflow", out=store), 3)
        self.assertEqual(track(self.run_folder, "mlflow", out=store), 0)
        self.go_on()
        self.assertEqual(track(self.run_folder, "mlflow", out=store), 2)
        client = MlflowClient(f"sqlite:///{store}")
        runs = client.search_runs([client.get_experiment_by_name("vitrine").experiment_id])
        self.assertEqual(len(runs), 1)
        run = runs[0]
        self.assertEqual(run.info.run_name, "run 'a'")
        self.assertEqual(run.info.status, "FINISHED")
        self.assertEqual(run.data.params["optimizer.lr"], "0.001")
        self.assertEqual(run.data.params["model.config.model_type"], "gpt2")
        history = {name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
                   for name in ("loss", "val_loss", "layer_grad_norm/blocks.0")}
        self.assertEqual(history["loss"], [(step, 2.0 - 0.1 * step) for step in range(5)])
        self.assertEqual(history["val_loss"], [(0, 3.0), (4, 1.5)])
        self.assertEqual(history["layer_grad_norm/blocks.0"], [(1, 0.5)])

    @unittest.skipUnless(WANDB, "wandb is not installed")
    def test_wandb_has_every_number_once(self):
        from wandb.proto import wandb_internal_pb2

        self.assertEqual(track(self.run_folder, "wandb", out=self.folder), 3)
        self.assertEqual(track(self.run_folder, "wandb", out=self.folder), 0)
        self.go_on()
        self.assertEqual(track(self.run_folder, "wandb", out=self.folder), 2)
        seen, ids = [], set()
        for path in sorted(glob.glob(str(self.folder / "wandb" / "offline-run-*" / "run-*.wandb")), key=os.path.getmtime):
            for data in records(pathlib.Path(path).read_bytes()):
                record = wandb_internal_pb2.Record()
                record.ParseFromString(data)
                if record.WhichOneof("record_type") == "run":
                    ids.add(record.run.run_id)
                if record.WhichOneof("record_type") == "history":
                    item = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                    seen.append((item["_step"], item.get("loss")))
        self.assertEqual(len(ids), 1)
        self.assertEqual(seen, [(step, 2.0 - 0.1 * step) for step in range(5)])

    def test_errors_say_what_to_do(self):
        with self.assert_says(vitrine.UsageError, "expected mlflow or wandb"):
            track(self.run_folder, "neptune")
        for tracker in ("mlflow", "wandb"):
            with unittest.mock.patch.dict(sys.modules, {tracker: None, "mlflow.entities": None}):
                with self.assert_says(vitrine.RunError, f"{tracker} is not installed", f"vitrine[{tracker}]"):
                    track(self.run_folder, tracker, out=self.folder)
        said = subprocess.run([sys.executable, "-m", "vitrine.track", "--help"], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0)
        self.assertIn("--to {mlflow,wandb}", said.stdout)

    @unittest.skipUnless(MLFLOW, "mlflow is not installed")
    def test_folders_without_a_run_are_named(self):
        with self.assert_says(vitrine.InputError, "metrics.jsonl: does not exist", "its key `out`"):
            track(self.folder, "mlflow", out=self.folder / "mlflow.db")
        self.metrics.write_text("[]\n")
        with self.assert_says(vitrine.InputError, "metrics.jsonl:1: is not a line of metrics"):
            track(self.run_folder, "mlflow", out=self.folder / "mlflow.db")


if __name__ == "__main__":
    unittest.main()
