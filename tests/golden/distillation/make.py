"""One step of distillation and the averaging of weights, by transformers and torch in float64: distillation.json.

Student llama, teacher gemma2, anchor gpt2_a, all of tests/golden/models; the average is torch.optim.swa_utils.AveragedModel's.
usage: make.py   (in this folder)
"""
import json, math, torch, transformers
from torch.nn.functional import cross_entropy, kl_div
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(11)
LENGTHS = [20, 13]
IDS = [torch.randint(0, 512, (n + 1,)) for n in LENGTHS]
CASES = [
    {"divergence": "forward_kl", "beta": 0.5, "temperature": 2.0, "alpha": 0.3, "kl_weight": 0.0},
    {"divergence": "reverse_kl", "beta": 0.5, "temperature": 0.8, "alpha": 0.0, "kl_weight": 0.7},
    {"divergence": "jensen_shannon", "beta": 0.25, "temperature": 1.5, "alpha": 0.5, "kl_weight": 0.2},
]


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(f"../models/{name}/model", dtype=torch.float64, attn_implementation="eager").eval()


def logits(model):
    return torch.cat([model(ids[None, :-1]).logits[0] for ids in IDS])


def kl(target, other):  # mean over rows
    return kl_div(other, target, reduction="batchmean", log_target=True)


labels = torch.cat([ids[1:] for ids in IDS])
teacher, anchor = load("gemma2"), load("gpt2_a")
with torch.no_grad():
    t, a = logits(teacher), logits(anchor)
for case in CASES:
    student = load("llama")
    s = logits(student)
    log_q, log_p = torch.log_softmax(s / case["temperature"], -1), torch.log_softmax(t / case["temperature"], -1)
    if case["divergence"] == "forward_kl":
        d = kl(log_p, log_q)
    elif case["divergence"] == "reverse_kl":
        d = kl(log_q, log_p)
    else:
        beta = case["beta"]
        log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1 - beta))
        d = beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)
    ce, to_anchor = cross_entropy(s, labels), kl(torch.log_softmax(s, -1), torch.log_softmax(a, -1))
    loss = case["alpha"] * ce + (1 - case["alpha"]) * case["temperature"] ** 2 * d + case["kl_weight"] * to_anchor
    loss.backward()
    case |= {"loss": loss.item(), "ce": ce.item(), "kl": d.item(), "kl_to": to_anchor.item()}
    case["gradient_norms"] = {name: p.grad.norm().item() for name, p in student.named_parameters()}

weights = torch.nn.Linear(37, 1, bias=False, dtype=torch.float64)
average = AveragedModel(weights, multi_avg_fn=get_ema_multi_avg_fn(0.9))
ema = {"decay": 0.9, "weights": [], "averages": []}
for step in range(6):
    if step > 0:
        weights.weight.data = torch.randn(1, 37, dtype=torch.float64)
    average.update_parameters(weights)  # the first call copies
    ema["weights"].append(weights.weight[0].tolist())
    ema["averages"].append(average.module.weight[0].tolist())

result = {"torch": torch.__version__, "transformers": transformers.__version__, "sequences": [ids.tolist() for ids in IDS], "cases": CASES, "ema": ema}
with open("distillation.json", "w") as file:
    json.dump(result, file, indent=1)
    file.write("\n")
