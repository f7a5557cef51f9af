"""PyTorch with transformers' models, on the directory that a GGUF file was made of: f32 or bf16."""
import json
import subprocess

from peer import python_with
from peers.models import directory_of

PROGRAM = r'''
import json, sys, time, torch
from transformers import AutoModelForCausalLM
path, dtype, prompt, decode, threads, repeat, sequences = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
ids = torch.tensor([[(i * 7919 + 13 + s) % model.config.vocab_size for i in range(prompt)] for s in range(sequences)])
out = {"prefill": [], "decode": []}
with torch.inference_mode():
    model(ids[:, :5], logits_to_keep=1)
    for _ in range(repeat):
        at = time.perf_counter()
        o = model(ids, use_cache=True, logits_to_keep=1)
        out["prefill"].append(sequences * prompt / (time.perf_counter() - at))
        past, token = o.past_key_values, o.logits[:, -1:].argmax(-1)
        at = time.perf_counter()
        for _ in range(decode):
            o = model(token, past_key_values=past, use_cache=True)
            token = o.logits[:, -1:].argmax(-1)
        out["decode"].append(sequences * decode / (time.perf_counter() - at))
print(json.dumps(out))
'''
TYPES = {"f32": "float32", "bf16": "bfloat16"}


class PyTorch:
    """Makes its virtual environment from PyPI if the folder has none."""

    def __init__(self, folder, make_model):
        self.python = python_with(str(folder / "pytorch"), "torch", "transformers", "safetensors", "numpy")
        self.make_model = make_model

    def alone(self, file, prompt, decode, threads, repeat, depth=0, cache="f32"):
        """{work: [tokens per second of each repetition]}"""
        if depth:
            raise RuntimeError("not compared behind many positions")
        return self.run(file, prompt, decode, threads, repeat, 1), None

    def together(self, file, sequences, threads, repeat):
        return self.run(file, 16, 32, threads, repeat, sequences)["decode"]

    def run(self, file, prompt, decode, threads, repeat, sequences):
        model, dtype = file.stem.rsplit("-", 1)
        if dtype not in TYPES:
            raise RuntimeError(f"PyTorch has no {dtype}")
        directory = directory_of(model, dtype, file.parent, self.make_model)
        command = [self.python, "-c", PROGRAM, directory, TYPES[dtype], prompt, decode, threads, repeat, sequences]
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr.strip()[-300:])
        return json.loads(ran.stdout.strip().splitlines()[-1])
