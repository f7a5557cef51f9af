# Writes one_step.json: one step of plain gradient descent on -log p(target | prompt), by transformers and torch in float64.
# Run in this folder.
import json

import torch
import transformers

PROMPT, TARGET, LR = [5, 3, 7, 9, 11], [12, 2], 0.05

result = {"torch": torch.__version__, "transformers": transformers.__version__, "prompt": PROMPT, "target": TARGET, "lr": LR, "models": {}}
for name in ("gpt2_a", "gemma2", "qwen2"):
    model = transformers.AutoModelForCausalLM.from_pretrained(f"../models/{name}/model", dtype=torch.float64, attn_implementation="eager").eval()
    ids = torch.tensor([PROMPT + TARGET])

    def logprobs():
        logits = model(ids).logits[0, len(PROMPT) - 1 : -1]
        return torch.log_softmax(logits, -1)

    before = logprobs()
    picked = before[range(len(TARGET)), TARGET]
    (-picked.mean()).backward()
    norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt().item()
    layers = {}
    for key, p in model.named_parameters():
        parts = key.split(".")
        index = next((x for x in parts if x.isdigit()), None)
        if index is not None:
            layers[index] = layers.get(index, 0.0) + p.grad.square().sum().item()
    with torch.no_grad():
        for p in model.parameters():
            p -= LR * p.grad
        after = logprobs()
    result["models"][name] = {
        "target_before": picked.tolist(),
        "target_after": after[range(len(TARGET)), TARGET].tolist(),
        "top_before": torch.topk(before[0], 5).indices.tolist(),
        "top_after": torch.topk(after[0], 5).indices.tolist(),
        "gradient_norm": norm,
        "layers": {k: v ** 0.5 for k, v in layers.items()},
    }
json.dump(result, open("one_step.json", "w"), indent=1)
