"""Ten steps of TRL's KTOTrainer on the golden llama: kto.json, and the weights after the first run: kto.safetensors (the attention of
the second block and the last norm).

usage: make_kto.py   (trl 1.16.0, torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)
"""
import json, pathlib, tempfile
import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "models" / "llama" / "model"
LR = 3e-4
EXAMPLES = [
    {"prompt": "The fox saw", "completion": " a crow in a tree.", "label": True},
    {"prompt": "Once upon a time", "completion": " a.", "label": False},
    {"prompt": "Why", "completion": "? Because it was so.", "label": True},
    {"prompt": "A long prompt about bees, bears and a pot of honey that", "completion": " stood", "label": False},
    {"prompt": "The king", "completion": " had three sons.", "label": True},
    {"prompt": "Why", "completion": " not, said the bee.", "label": True},
]
# The section as a configuration of `vitrine train` has it, the examples of a step, and the trainer's arguments.
RUNS = [
    ("kto: {beta: 0.1}", 6, {"beta": 0.1}),
    ("kto: {beta: 0.3, desirable_weight: 1.5, undesirable_weight: 0.75}", 2,
     {"beta": 0.3, "desirable_weight": 1.5, "undesirable_weight": 0.75}),
    ("kto: {loss_type: apo_zero_unpaired, beta: 0.2}", 6, {"loss_type": "apo_zero_unpaired", "beta": 0.2}),
]


def run(section, batch, arguments):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
    losses = []

    class Recorded(KTOTrainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss

    with tempfile.TemporaryDirectory() as out:
        trainer = Recorded(
            model=model,
            args=KTOConfig(out, per_device_train_batch_size=batch, max_steps=10, logging_steps=1, report_to="none",
                           max_grad_norm=1e9, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                           disable_dropout=True, precompute_ref_log_probs=True, max_length=None,
                           train_sampling_strategy="sequential", **arguments),
            train_dataset=Dataset.from_list(EXAMPLES),
            processing_class=tokenizer,
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
        )
        rows = [trainer.train_dataset[i] for i in range(len(EXAMPLES))]
        trainer.train()
    history = [h for h in trainer.state.log_history if "loss" in h]
    told = {"section": section, "batch": batch, "losses": losses,
            "ids": [[row["prompt_ids"], row["completion_ids"], row.get("KL_completion_ids", [])] for row in rows],
            "reference": [[row["ref_logps"], row["ref_KL_logps"]] if "ref_KL_logps" in row else [row["ref_logps"]] for row in rows]}
    for ours, theirs in (("kl", "kl"), ("reward_chosen", "rewards/chosen"), ("reward_rejected", "rewards/rejected"),
                         ("reward_margin", "rewards/margins")):
        told[ours] = [h.get(theirs) for h in history]  # null: the step has no example of that label
    return told, model


told = []
for i, one in enumerate(RUNS):
    result, model = run(*one)
    told.append(result)
    if i == 0:
        save_file({n: p.detach().clone().contiguous() for n, p in model.named_parameters()
                   if ".layers.1.self_attn." in n or n == "model.norm.weight"}, HERE / "kto.safetensors")
(HERE / "kto.json").write_text(json.dumps({"lr": LR, "examples": EXAMPLES, "runs": told}, separators=(",", ":")) + "\n")
