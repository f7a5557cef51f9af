"""Log-likelihoods of lm-evaluation-harness and perplexities by several definitions, of the shipped model in float32.

usage: make.py
needs: torch, transformers, lm-eval (made with torch 2.15.0, transformers 5.24.0, lm-eval 0.4.13)

The items and the text beside this script are our own; the harness reads them through its own task definitions.

choices.json   by file: "task", "metrics" (accuracies and their standard errors as the harness prints them) and "items", each
               [context, continuation, log-likelihood, is greedy] for every choice
               "preprocess": texts and what hellaswag's preprocess() makes of them
               "general" has no task of the harness: its loglikelihood() is asked for context and " " + choice
perplexity.json
    harness        loglikelihood_rolling of text.txt with windows of 128 tokens: "loglikelihood" and the number of "tokens"
    llama.cpp      windows as in llama.cpp's tools/perplexity (n_ctx 128), logits by transformers: "nll", "error", "tokens"
    transformers   windows as in the perplexity page of its documentation (128, stride 48), the same
    logprobs       of every token of text.txt's first 100 tokens given BOS and those before
"""
import json
import pathlib

import lm_eval
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.hellaswag.utils import preprocess

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[2] / "models" / "tales9m"
TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"
YAML = {"hellaswag": "hellaswag/hellaswag.yaml", "arc": "arc/arc_easy.yaml", "piqa": "piqa/piqa.yaml",
        "winogrande": "winogrande/default.yaml"}
CONTEXT, STRIDE = 128, 48
TRICKY = ["", "   ", "[a][b] c", "x [title] y [title]", " [title]", "[[a] b] c", "[open", "a [b\nc] d [e] f", "a ] b [ c", "a    b     c",
          "\u00a0\u2003nbsp \u3000", "[\n[x]\n]", "no brackets", "tab\t[step]\tend ", "[title] start", "é [ü] ö  [ß]", "[]", "[ [title] ]"]


def task_of(name):
    config = load_yaml(TASKS / YAML[name], resolve_func=True)
    for key in ("dataset_name", "training_split", "test_split", "include", "tag"):
        config.pop(key, None)
    config.update(dataset_path="json", validation_split="validation", test_split="validation",
                  dataset_kwargs={"data_files": {"validation": str(HERE / f"{name}.jsonl")}})
    return ConfigurableTask(config=config)


def request(kind, arguments):
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def run_task(lm, name):
    task = task_of(name)
    result = lm_eval.evaluate(lm=lm, task_dict={name: task}, log_samples=True, bootstrap_iters=1)
    metrics = {key.removesuffix(",none"): value for key, value in result["results"][name].items() if key.endswith(",none")}
    items = []
    for sample in sorted(result["samples"][name], key=lambda s: s["doc_id"]):
        pairs = sample["arguments"]
        pairs = list(pairs.values()) if isinstance(pairs, dict) else pairs
        pairs = [list(p.values()) if isinstance(p, dict) else list(p) for p in pairs]
        items.append([[p[0], p[1], float(r[0]), bool(r[1])] for p, r in zip(pairs, sample["filtered_resps"], strict=True)])
    return {"task": name, "metrics": metrics, "items": items}


def run_general(lm):
    items = []
    for line in (HERE / "general.jsonl").read_text().splitlines():
        item = json.loads(line)
        context = item.get("context", item.get("query"))
        pairs = [(context, " " + choice) for choice in item["choices"]]
        scores = lm.loglikelihood([request("loglikelihood", pair) for pair in pairs])
        items.append([[c, k, float(s), bool(g)] for (c, k), (s, g) in zip(pairs, scores, strict=True)])
    return {"task": "general", "metrics": {}, "items": items}


def token_logprobs(lm, ids):
    """[T - 1]: of ids[1:], each given those before."""
    with torch.no_grad():
        logits = lm.model(torch.tensor([ids])).logits[0].double()
    return torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def summary(nll):
    nll = torch.tensor(nll, dtype=torch.float64)
    return {"nll": nll.mean().item(), "error": (nll.std(correction=1) / len(nll) ** 0.5).item(), "tokens": len(nll)}


def llama_cpp(lm, ids, bos):
    nll = []
    first = CONTEXT // 2
    for start in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        chunk = ids[start:start + CONTEXT]
        nll += (-token_logprobs(lm, [bos] + chunk[1:])[first:]).tolist()
    return summary(nll)


def transformers_windows(lm, ids):
    nll, scored = [], 0
    for begin in range(0, len(ids), STRIDE):
        end = min(begin + CONTEXT, len(ids))
        wanted = end - scored
        nll += (-token_logprobs(lm, ids[begin:end])[-min(wanted, end - begin - 1):]).tolist()
        scored = end
        if end == len(ids):
            break
    return summary(nll)


def main():
    lm = HFLM(pretrained=str(MODEL), dtype="float32", device="cpu", batch_size=1)
    choices = {name: run_task(lm, name) for name in YAML}
    choices["general"] = run_general(lm)
    choices["preprocess"] = [[text, preprocess(text)] for text in TRICKY]
    (HERE / "choices.json").write_text(json.dumps(choices, indent=1, ensure_ascii=False) + "\n")

    text = (HERE / "text.txt").read_text()
    ids, bos = lm.tok_encode(text), lm.tokenizer.bos_token_id
    short = HFLM(pretrained=str(MODEL), dtype="float32", device="cpu", batch_size=1, max_length=CONTEXT)
    perplexity = {
        "context": CONTEXT, "stride": STRIDE, "bytes": len(text.encode()),
        "harness": {"loglikelihood": short.loglikelihood_rolling([request("loglikelihood_rolling", (text,))])[0],
                    "tokens": len(ids)},
        "llama.cpp": llama_cpp(lm, ids, bos), "transformers": transformers_windows(lm, ids),
        "logprobs": token_logprobs(lm, ids[:101]).tolist()}
    (HERE / "perplexity.json").write_text(json.dumps(perplexity, indent=1) + "\n")


main()
