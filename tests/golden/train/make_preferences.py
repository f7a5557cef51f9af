"""Ten steps of TRL's DPOTrainer with other losses than sigmoid, of its CPOTrainer (with SimPO) and ORPOTrainer on the golden llama:
preferences.json.

usage: make_preferences.py   (trl 1.16.0, torch 2.15.0, transformers 5.24.0; float32, CPU)
"""
import json, pathlib, tempfile
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "models" / "llama" / "model"
LR = 3e-4
PAIRS = json.loads((HERE / "dpo.json").read_text())["pairs"]
# The section and its keys as a configuration of `vitrine train` has them, and the trainer's arguments.
RUNS = [
    ("dpo: {loss_type: hinge, beta: 0.1}", DPOTrainer, DPOConfig, {"loss_type": ["hinge"], "beta": 0.1}),
    ("dpo: {loss_type: ipo, beta: 0.1}", DPOTrainer, DPOConfig, {"loss_type": ["ipo"], "beta": 0.1}),
    ("cpo: {beta: 0.1}", CPOTrainer, CPOConfig, {"beta": 0.1}),
    ("cpo: {loss_type: hinge, beta: 0.2, cpo_alpha: 0.5}", CPOTrainer, CPOConfig, {"loss_type": "hinge", "beta": 0.2, "cpo_alpha": 0.5}),
    ("cpo: {loss_type: ipo, beta: 0.1, cpo_alpha: 0}", CPOTrainer, CPOConfig, {"loss_type": "ipo", "beta": 0.1, "cpo_alpha": 0.0}),
    ("cpo: {loss_type: simpo, beta: 2, simpo_gamma: 0.7, cpo_alpha: 0}", CPOTrainer, CPOConfig,
     {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.7, "cpo_alpha": 0.0}),
    ("orpo: {beta: 0.3}", ORPOTrainer, ORPOConfig, {"beta": 0.3}),
]


def run(section, trainer_class, config_class, arguments):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
    losses = []

    class Recorded(trainer_class):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss

    if trainer_class is DPOTrainer:
        arguments = arguments | {"precompute_ref_log_probs": True, "max_length": None}
    with tempfile.TemporaryDirectory() as out:
        trainer = Recorded(
            model=model,
            args=config_class(out, per_device_train_batch_size=len(PAIRS), max_steps=10, logging_steps=1, report_to="none",
                              max_grad_norm=1e9, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                              disable_dropout=True, **arguments),
            train_dataset=Dataset.from_list(PAIRS),
            processing_class=tokenizer,
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
        )
        rows = [trainer.train_dataset[i] for i in range(len(PAIRS))]
        trainer.train()
    if "chosen_labels" in rows[0]:  # of the pair i, the ids of both sequences and the first of the answer's
        ids = [[row["chosen_input_ids"], row["rejected_input_ids"]] for row in rows]
    else:
        ids = [[row["prompt_ids"] + row["chosen_ids"], row["prompt_ids"] + row["rejected_ids"]] for row in rows]
    history = [h for h in trainer.state.log_history if "loss" in h]
    return {"section": section, "ids": ids, "losses": losses,
            "reward_chosen": [float(h["rewards/chosen"]) for h in history],
            "reward_rejected": [float(h["rewards/rejected"]) for h in history]}


told = {"lr": LR, "runs": [run(*one) for one in RUNS]}
(HERE / "preferences.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
