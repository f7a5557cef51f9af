"""Ten steps of TRL's DPOTrainer on the golden llama: dpo.json and dpo.safetensors (the attention of the second block and the last norm).

usage: make_dpo.py   (trl 1.16.0, torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)
"""
import json, pathlib, tempfile
import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "models" / "llama" / "model"
LR, BETA = 3e-4, 0.1
PAIRS = [
    {"prompt": "The fox saw", "chosen": " a crow in a tree.", "rejected": " nothing at all, and so it went home."},
    {"prompt": "Once upon a time", "chosen": " there was a lion.", "rejected": " a."},
    {"prompt": "Why", "chosen": "? Because it was so.", "rejected": "! 12 34"},
    {"prompt": "A long prompt about bees, bears and a pot of honey that", "chosen": " fell.", "rejected": " stood"},
]


class Recorded(DPOTrainer):
    losses = []

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss



tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
with tempfile.TemporaryDirectory() as out:
    trainer = Recorded(
        model=model,
        args=DPOConfig(out, beta=BETA, per_device_train_batch_size=len(PAIRS), max_steps=10, logging_steps=1, report_to="none",
                       max_grad_norm=1e9, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                       disable_dropout=True, precompute_ref_log_probs=True, max_length=None),
        train_dataset=Dataset.from_list(PAIRS),
        processing_class=tokenizer,
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
    )
    rows = [trainer.train_dataset[i] for i in range(len(PAIRS))]
    trainer.train()
history = [h for h in trainer.state.log_history if "loss" in h]
told = {
    "lr": LR, "beta": BETA, "pairs": PAIRS,
    "ids": [{k: row[k + "_ids"] for k in ("prompt", "chosen", "rejected")} for row in rows],
    "reference": [[row["ref_chosen_logps"], row["ref_rejected_logps"]] for row in rows],
    "losses": Recorded.losses,
    "reward_chosen": [h["rewards/chosen"] for h in history],
    "reward_rejected": [h["rewards/rejected"] for h in history],
    "reward_accuracy": [h["rewards/accuracies"] for h in history],
}
(HERE / "dpo.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
save_file({n: p.detach().clone().contiguous() for n, p in model.named_parameters() if ".layers.1.self_attn." in n or n == "model.norm.weight"},
          HERE / "dpo.safetensors")
