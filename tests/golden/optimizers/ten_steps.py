"""Ten steps on a golden model: the matrices of the blocks by one optimizer, the rest by torch.optim.AdamW."""
import json, pathlib
import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
LR, BETAS, DECAY = 1e-2, (0.9, 0.95), 0.1


def load(name):
    """The model, and the prompt that its training steps learn."""
    folder = HERE.parent / "models" / name
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager").eval()
    return model, json.loads((folder / "golden" / "prompts.json").read_text())["train"]


def ten_steps(name, of_matrices):
    """of_matrices: makes the optimizer of a list of matrices. The loss before each step, and the weights afterwards."""
    torch.manual_seed(0)
    model, prompt = load(name)
    ids, labels = torch.tensor(prompt["input_ids"]), torch.tensor(prompt["labels"])
    matrices = [(n, p) for n, p in model.named_parameters() if p.ndim == 2 and (".layers." in n or ".h." in n)]
    named = {n for n, _ in matrices}
    rest = [(n, p) for n, p in model.named_parameters() if n not in named]
    optimizer = of_matrices([p for _, p in matrices])
    adamw = torch.optim.AdamW([{"params": [p for _, p in rest if p.ndim == 2], "weight_decay": DECAY},
                               {"params": [p for _, p in rest if p.ndim != 2], "weight_decay": 0.0}],
                              lr=LR / 4, betas=BETAS, eps=1e-8, foreach=False)
    losses = []
    for _ in range(10):
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        optimizer.step(), adamw.step()
    return losses, {n: p.detach().clone() for n, p in model.named_parameters()}
