"""lm-evaluation-harness's local-completions against a running server, item by item against `vitrine eval choices`.

  pip install 'lm_eval[api]' transformers
  vitrine serve --exact --port 8080
  python bench/clients/lm_eval_client.py build/release/vitrine http://127.0.0.1:8080/v1/completions

Nothing is downloaded: the items are the jsonl files of tests/golden/evaluate in the harness's own tasks, and 50 that are made of
the sentences of examples/fables.txt: which second half belongs to the first. `add_bos_token=True` with the model's tokenizer is
what the harness needs to put BOS in front of its ids, as it does when it runs a model itself; its remote tokenizer leaves BOS out.
"""
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

logging.disable(logging.WARNING)
program = sys.argv[1] if len(sys.argv) > 1 else "build/release/vitrine"
url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8080/v1/completions"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/tales9m"
TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"
YAML = {"hellaswag": "hellaswag/hellaswag.yaml", "arc": "arc/arc_easy.yaml", "piqa": "piqa/piqa.yaml", "winogrande": "winogrande/default.yaml"}
ITEMS = 50
ROUNDING = 2**-19  # of a token: a step of 32-bit floats from 16 to 32; logits and the log of their softmax's sum are below that


def halves():
    """Items of three choices: how a sentence goes on."""
    text = (ROOT / "examples/fables.txt").read_text()
    sentences = [s.split() for s in re.split(r"(?<=[.!?])\s+", text)]
    sentences = [s for s in sentences if 10 <= len(s) <= 40][:ITEMS]
    ends = [" ".join(s[len(s) // 2:]) for s in sentences]
    for i, sentence in enumerate(sentences):
        choices = [ends[(i + k) % len(ends)] for k in range(3)]
        gold = i % 3
        choices[0], choices[gold] = choices[gold], choices[0]
        yield {"context": " ".join(sentence[:len(sentence) // 2]), "choices": choices, "gold": gold}


def general_task(file):
    return ConfigurableTask(config={
        "task": "general", "dataset_path": "json", "dataset_kwargs": {"data_files": {"validation": str(file)}}, "validation_split": "validation",
        "test_split": "validation", "output_type": "multiple_choice", "doc_to_text": "{{context}}", "doc_to_target": "gold",
        "doc_to_choice": "{{choices}}", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]})


def harness_task(name, file):
    config = load_yaml(TASKS / YAML[name], resolve_func=True)
    for key in ("dataset_name", "training_split", "test_split", "include", "tag"):
        config.pop(key, None)
    config.update(dataset_path="json", validation_split="validation", test_split="validation", dataset_kwargs={"data_files": {"validation": str(file)}})
    return ConfigurableTask(config=config)


def pairs_of(sample):
    """(context, continuation) of each choice."""
    arguments = sample["arguments"]
    arguments = list(arguments.values()) if isinstance(arguments, dict) else arguments
    return [tuple(a.values()) if isinstance(a, dict) else tuple(a) for a in arguments]


def compare(name, task, file):
    """The largest difference of two log-likelihoods of a choice per token, the choices, the items, and the accuracy."""
    result = lm_eval.simple_evaluate(
        model="local-completions", tasks=[task], log_samples=True, bootstrap_iters=0,
        model_args={"base_url": url, "tokenizer": str(MODEL), "tokenizer_backend": "huggingface", "add_bos_token": True, "max_length": 1024,
                    "num_concurrent": 8})
    samples = sorted(next(iter(result["samples"].values())), key=lambda s: s["doc_id"])
    command = [program, "eval", "choices", "--exact", "--json", "--model", str(MODEL), "--file", str(file)]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if len(samples) != len(ours["items"]):
        raise SystemExit(f"{name}: {len(samples)} items of the harness, {len(ours['items'])} of vitrine eval choices")
    largest, choices = 0.0, 0
    for number, (sample, item) in enumerate(zip(samples, ours["items"], strict=True)):
        for pair, answer, choice in zip(pairs_of(sample), sample["filtered_resps"], item["choices"], strict=True):
            logprob, greedy = float(answer[0]), bool(answer[1])
            if pair != (choice["context"], choice["continuation"]):
                raise SystemExit(f"{name}, item {number}: {pair} of the harness, {choice['context']!r}, {choice['continuation']!r} of vitrine")
            if greedy != choice["greedy"]:
                raise SystemExit(f"{name}, item {number}: greedy is {greedy} in the harness, {choice['greedy']} in vitrine")
            largest, choices = max(largest, abs(logprob - choice["logprob"]) / choice["tokens"]), choices + 1
    scores = {key.removesuffix(",none"): value for key, value in next(iter(result["results"].values())).items()}
    for theirs, mine in (("acc", "accuracy"), ("acc_norm", "accuracy_norm")):
        if theirs in scores and abs(scores[theirs] - ours[mine]) > 1e-12:
            raise SystemExit(f"{name}: {theirs} is {scores[theirs]}, {mine} is {ours[mine]}")
    return largest, choices, len(samples), scores["acc"]


with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder) / "general.jsonl"
    made.write_text("".join(json.dumps(item) + "\n" for item in halves()))
    tasks = {"general": (general_task(made), made)}
    for name in YAML:
        file = ROOT / f"tests/golden/evaluate/{name}.jsonl"
        tasks[name] = (harness_task(name, file), file)
    for name, (task, file) in tasks.items():
        largest, choices, items, accuracy = compare(name, task, file)
        print(f"{name}: {items} items, {choices} choices, accuracy {accuracy:.4f}; log-likelihoods differ by {largest:.1e} per token at most")
        if largest > ROUNDING:
            raise SystemExit(f"{name}: log-likelihoods differ")
print(f"lm_eval {lm_eval.__version__}: equal to vitrine eval choices, item by item")
