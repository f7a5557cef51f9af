"""The load-balancing loss of mixtures of experts and its gradient, by transformers' load_balancing_loss_func.

usage: make.py
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.24.0)

router_loss.json: five steps of training with it, see the end
balance.safetensors: logits.<i> [7, 5] of three layers in float64, loss [1] for two experts a row, grad.<i> its gradient
"""
import pathlib
import torch
from safetensors.torch import save_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

g = torch.Generator().manual_seed(1)
logits = [torch.randn(7, 5, generator=g, dtype=torch.float64).requires_grad_() for _ in range(3)]
loss = load_balancing_loss_func(tuple(logits), 5, 2)
loss.backward()
tensors = {"loss": loss.detach().reshape(1).float(), **{f"logits.{i}": x.detach().float() for i, x in enumerate(logits)}, **{f"grad.{i}": x.grad.float() for i, x in enumerate(logits)}}
save_file(tensors, pathlib.Path(__file__).parent / "balance.safetensors")
print("loss", float(loss))

# router_loss.json: losses before each of five AdamW steps of the golden model mixtral with the load-balancing loss in its loss
import json
from transformers import AutoModelForCausalLM
MIXTRAL = pathlib.Path(__file__).parent.parent / "models/mixtral"
COEFFICIENT, ADAMW = 0.5, dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
model = AutoModelForCausalLM.from_pretrained(MIXTRAL / "model", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
                                             output_router_logits=True, router_aux_loss_coef=COEFFICIENT).train()
model.router_aux_loss_coef = COEFFICIENT
prompt = json.loads((MIXTRAL / "golden/prompts.json").read_text())["train"]
batch = {k: torch.tensor(prompt[k]) for k in ("input_ids", "attention_mask", "position_ids", "labels")}
optimizer, losses, aux = torch.optim.AdamW(model.parameters(), **ADAMW), [], []
for _ in range(5):
    optimizer.zero_grad()
    out = model(**batch, use_cache=False)
    out.loss.backward()
    losses.append(float(out.loss.detach()))
    aux.append(float(out.aux_loss.detach()))
    optimizer.step()
(pathlib.Path(__file__).parent / "router_loss.json").write_text(json.dumps({"coefficient": COEFFICIENT, "losses_before_each_step": losses, "of_these_balance": aux}, indent=1) + "\n")
print(losses, aux)
