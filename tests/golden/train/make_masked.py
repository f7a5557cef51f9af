"""Ten steps of transformers' RoFormerForMaskedLM on tokens that its collator hid: masked.json and masked.safetensors (the weights after them).

usage: make_masked.py   (torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)

masked.json: lr, for each step the ids that the model reads [4, 14] and the labels (-100: not scored), and the loss before it.
The table of sines, which transformers keeps among the parameters, is not trained.
"""
import json, pathlib
import torch
from safetensors.torch import save_file
from transformers import BertTokenizer, DataCollatorForLanguageModeling, RoFormerForMaskedLM

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "roformer" / "masked"
LR, STEPS = 1e-3, 10

torch.manual_seed(41)
torch.set_num_threads(1)
tokenizer = BertTokenizer.from_pretrained(MODEL)
collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
texts = torch.randint(5, len(tokenizer), (4, 14))  # no special tokens
steps = []
while len(steps) < STEPS:
    hidden = collator([{"input_ids": ids} for ids in texts.tolist()])
    if not (hidden["input_ids"] == tokenizer.pad_token_id).any():  # torch gives the embedding of padding no gradient
        steps.append(hidden)

model = RoFormerForMaskedLM.from_pretrained(MODEL, attn_implementation="eager").train()
learned = {n: p for n, p in model.named_parameters() if "embed_positions" not in n}
optimizer = torch.optim.AdamW(learned.values(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
losses = []
for hidden in steps:
    optimizer.zero_grad()
    loss = model(hidden["input_ids"], labels=hidden["labels"]).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
told = {"lr": LR, "steps": [{"ids": hidden["input_ids"].tolist(), "labels": hidden["labels"].tolist()} for hidden in steps], "losses": losses}
(HERE / "masked.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
save_file({n: p.detach().clone().contiguous() for n, p in learned.items()}, HERE / "masked.safetensors")
