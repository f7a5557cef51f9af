"""Divergences between two heads' predictions and their gradients, by torch in float64: cases.json, divergence.safetensors.

The divergences are torch.nn.functional.kl_div; with "top", all tokens but the target's most likely are one event.
usage: make.py   (torch 2.15.0, CPU)
"""
import json, math, pathlib, torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
KINDS = ("forward_kl", "reverse_kl", "jensen_shannon")
CASES = []
for kind in KINDS:
    CASES += [
        {"kind": kind, "beta": 0.5, "temperature": 1.0, "vocab": 11, "cap": 0.0, "target_cap": 0.0, "bias": False, "top": 0},
        {"kind": kind, "beta": 0.3, "temperature": 2.5, "vocab": 11, "cap": 1.3, "target_cap": 2.0, "bias": True, "top": 0},
        {"kind": kind, "beta": 0.9, "temperature": 0.7, "vocab": 13, "cap": 3.0, "target_cap": 0.0, "bias": True, "top": 3},
        {"kind": kind, "beta": 0.2, "temperature": 2.0, "vocab": 11, "cap": 0.0, "target_cap": 1.5, "bias": True, "top": 11},
    ]
CASES += [  # more tokens than one chunk of the vocabulary has
    {"kind": "jensen_shannon", "beta": 0.6, "temperature": 2.0, "vocab": 4099, "cap": 2.0, "target_cap": 0.0, "bias": True, "top": 0},
    {"kind": "forward_kl", "beta": 0.5, "temperature": 1.5, "vocab": 4099, "cap": 0.0, "target_cap": 0.0, "bias": False, "top": 7},
]


def logprobs(x, w, b, cap, temperature):
    z = x @ w.T
    if b is not None:
        z = z + b
    if cap:
        z = cap * torch.tanh(z / cap)
    return torch.log_softmax(z / temperature, -1)


def kl(target, other):
    return torch.nn.functional.kl_div(other, target, reduction="sum", log_target=True)


def events(log_q, log_p, k):
    top = log_p.topk(k, -1).indices
    result = []
    for rows in (log_q, log_p):
        kept = [rows.gather(-1, top)]
        if k < rows.shape[-1]:
            others = torch.ones_like(rows, dtype=torch.bool).scatter(-1, top, False)
            kept.append(rows.masked_fill(~others, -math.inf).logsumexp(-1, keepdim=True))
        result.append(torch.cat(kept, -1))
    return result


tensors = {}
torch.manual_seed(3)
for n, case in enumerate(CASES):
    vocab, large = case["vocab"], case["vocab"] > 100
    rows, d, target_d = (3, 1, 1) if large else (7, 5, 4)
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    x, w, target_x, target_w = make(rows, d), make(vocab, d), make(rows, target_d), make(vocab, target_d)
    b, target_b = (make(vocab), make(vocab)) if case["bias"] else (None, None)
    labels = torch.zeros(rows, dtype=torch.int32)
    labels[1] = -100
    for name, t in (("x", x), ("w", w), ("b", b), ("target_x", target_x), ("target_w", target_w), ("target_b", target_b), ("labels", labels)):
        if t is not None:
            tensors[f"{n}/{name}"] = t.clone()
    learned = [t.requires_grad_() for t in (x, w, b) if t is not None]
    scored = labels != -100
    log_q = logprobs(x, w, b, case["cap"], case["temperature"])[scored]
    log_p = logprobs(target_x, target_w, target_b, case["target_cap"], case["temperature"])[scored]
    if case["top"]:
        log_q, log_p = events(log_q, log_p, case["top"])
    if case["kind"] == "forward_kl":
        loss = kl(log_p, log_q)
    elif case["kind"] == "reverse_kl":
        loss = kl(log_q, log_p)
    else:
        beta = case["beta"]
        log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1 - beta))
        loss = beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)
    loss = loss / scored.sum()
    loss.backward()
    case["loss"] = loss.item()
    for name, t in zip(("dx", "dw", "db"), learned):
        tensors[f"{n}/{name}"] = t.grad.clone()
save_file(tensors, HERE / "divergence.safetensors")
(HERE / "cases.json").write_text(json.dumps({"torch": torch.__version__, "cases": CASES}, indent=1) + "\n")
