"""Ten steps of TRL's DPOTrainer that go on with an adapter: dpo_adapter.json and dpo_adapter.safetensors (the adapter of the
second block's attention). The pairs are those of dpo.json, the adapter is ../lora/llama/adapter, and the reference is the model with
the adapter as it was.

usage: make_dpo_adapter.py   (trl 1.16.0, peft 0.21.2, torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)
"""
import json, pathlib, tempfile
import torch
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

HERE = pathlib.Path(__file__).parent
MODEL, ADAPTER = HERE.parent / "models" / "llama" / "model", HERE.parent / "lora" / "llama" / "adapter"
LR, BETA = 3e-3, 0.1
PAIRS = json.loads((HERE / "dpo.json").read_text())["pairs"]


class Recorded(DPOTrainer):
    losses = []

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss


torch.set_num_threads(1)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
model = PeftModel.from_pretrained(base, ADAPTER, is_trainable=True)
learned = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(learned, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
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
    "lr": LR, "beta": BETA,
    "reference": [[row["ref_chosen_logps"], row["ref_rejected_logps"]] for row in rows],
    "losses": Recorded.losses,
    "reward_chosen": [h["rewards/chosen"] for h in history],
    "reward_rejected": [h["rewards/rejected"] for h in history],
}
(HERE / "dpo_adapter.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
save_file({n.replace(".default", ""): p.detach().clone().contiguous() for n, p in model.named_parameters()
           if p.requires_grad and ".default." in n and ".layers.1.self_attn." in n}, HERE / "dpo_adapter.safetensors")
