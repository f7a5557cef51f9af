"""Activations per second of `vitrine sae train` and of SAELens's trainer on the same activations, in turn.

    python bench/compare_sae_training.py build/release/vitrine ACTIVATIONS [--features 2048] [--k 32] [--batch 4096] [--steps 10]

ACTIVATIONS is a folder of `vitrine collect` with one hook. Needs sae-lens and torch. Each trains from its own start; every architecture
has the options that both call their defaults. CPU seconds are given too: on a busy machine they say more than the clock.
"""

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from sae_lens import JumpReLUTrainingSAEConfig, StandardTrainingSAEConfig, TopKTrainingSAEConfig
from sae_lens.config import LoggingConfig, SAETrainerConfig
from sae_lens.saes.sae import TrainingSAE
from sae_lens.training.sae_trainer import SAETrainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("activations", type=Path)
parser.add_argument("--features", type=int, default=2048)
parser.add_argument("--k", type=int, default=32)
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--architectures", default="topk,jumprelu,standard")
parser.add_argument("--json", action="store_true", help="print one JSON object last: activations per second by architecture")
o = parser.parse_args()
torch.set_num_threads(o.threads)


def cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def ours(architecture):
    with tempfile.TemporaryDirectory() as folder:
        before = cpu(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [o.program, "sae", "train", o.activations, "--out", folder + "/sae", "--architecture", architecture, "--features",
             str(o.features), "--k", str(o.k), "--batch", str(o.batch), "--steps", str(o.steps), "--threads", str(o.threads), "--json"],
            check=True, capture_output=True)
        return json.loads(done.stdout)["activations_per_s"], (cpu(resource.RUSAGE_CHILDREN) - before) / o.steps


def theirs(architecture):
    manifest = json.loads((o.activations / "manifest.json").read_text())
    hook = manifest["hooks"][0]["name"]
    rows = torch.cat([load_file(o.activations / shard["file"])[hook].float() for shard in manifest["shards"]])
    rows = rows * (rows.shape[1] ** 0.5 / rows.norm(dim=-1).mean())
    common = {"d_in": rows.shape[1], "d_sae": o.features}
    config = {"topk": lambda: TopKTrainingSAEConfig(k=o.k, **common), "jumprelu": lambda: JumpReLUTrainingSAEConfig(**common),
              "standard": lambda: StandardTrainingSAEConfig(**common)}[architecture]()
    sae = TrainingSAE.get_sae_class_for_architecture(architecture)(config)
    trainer = SAETrainer(
        cfg=SAETrainerConfig(total_training_samples=o.batch * o.steps, train_batch_size_samples=o.batch, lr=3e-4, lr_end=3e-4,
                             logger=LoggingConfig(log_to_wandb=False)),
        sae=sae, data_provider=iter([]))
    trainer.step(rows[torch.randint(len(rows), (o.batch,))])  # memory and threads are ready
    begin, before = time.perf_counter(), cpu(resource.RUSAGE_SELF)
    for _ in range(o.steps):
        trainer.step(rows[torch.randint(len(rows), (o.batch,))])
    return o.batch * o.steps / (time.perf_counter() - begin), (cpu(resource.RUSAGE_SELF) - before) / o.steps


found = {}
for architecture in o.architectures.split(","):
    (speed, seconds), (their_speed, their_seconds) = ours(architecture), theirs(architecture)
    print(f"{architecture:9}  vitrine {speed:9,.0f} activations/s, {seconds:.3f} CPU s a step   SAELens {their_speed:9,.0f}, "
          f"{their_seconds:.3f}   {speed / their_speed:.1f} times, {their_seconds / seconds:.1f} of CPU time", flush=True)
    found[architecture] = {"vitrine": speed, "peer": their_speed}
if o.json:
    print(json.dumps(found))
