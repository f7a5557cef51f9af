"""Reward models: rewards of transformers' …ForSequenceClassification for the golden models of every family that has one, and ten steps of
TRL's RewardTrainer on the golden llama: reward.json, and the weights after the first run: reward.safetensors (the score, the attention
of the second block and the last norm).

usage: make_reward.py   (trl 1.16.0, torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)
"""
import json, math, pathlib, tempfile
import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSES
from trl import RewardConfig, RewardTrainer

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
LR = 3e-4
PAIRS = json.loads((HERE / "dpo.json").read_text())["pairs"]
SEQUENCES = [[5, 9, 17, 3, 28, 11], [7, 2, 40], [33, 12, 8, 8, 21, 4, 19, 30, 6]]


def open_model(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        model.score.weight.copy_(torch.tensor([[math.sin(i + 1) / 8 for i in range(model.score.weight.shape[1])]]))
    return model.eval()


def families():
    told, seen = [], {}
    for folder in sorted(MODELS.iterdir()):
        if not (folder / "model" / "config.json").exists():
            continue
        kind = json.loads((folder / "model" / "config.json").read_text())["model_type"]
        seen[kind] = CLASSES.get(kind, "")
        if kind not in CLASSES or kind == "roformer":
            continue
        model = open_model(folder / "model")
        with torch.no_grad():
            rewards = [model(torch.tensor([ids])).logits[0, 0].item() for ids in SEQUENCES]
        told.append({"model": folder.name, "architecture": type(model).__name__, "rewards": rewards})
        with tempfile.TemporaryDirectory() as out:  # the names in a file that transformers writes
            model.save_pretrained(out)
            assert "id2label" in json.loads(pathlib.Path(out, "config.json").read_text()), folder
    return told, seen


def run(arguments):
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "llama" / "model")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = open_model(MODELS / "llama" / "model")
    losses = []

    class Recorded(RewardTrainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
            return loss

    with tempfile.TemporaryDirectory() as out:
        trainer = Recorded(
            model=model,
            args=RewardConfig(out, per_device_train_batch_size=len(PAIRS), max_steps=10, logging_steps=1, report_to="none",
                              max_grad_norm=1e9, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                              disable_dropout=True, max_length=None, optim="adamw_torch", learning_rate=LR, adam_beta2=0.95,
                              adam_epsilon=1e-6,  # with less, rounding of gradients near 0 becomes whole steps
                              lr_scheduler_type="constant", weight_decay=0.0, **arguments),
            train_dataset=Dataset.from_list(PAIRS),
            processing_class=tokenizer,
        )
        rows = [trainer.train_dataset[i] for i in range(len(PAIRS))]
        trainer.train()
    history = [h for h in trainer.state.log_history if "loss" in h]
    told = {"losses": losses, "ids": [[row["chosen_ids"], row["rejected_ids"]] for row in rows]}
    for key in ("accuracy", "margin", "mean_reward"):
        told[key] = [float(h[key]) for h in history]
    return told, trainer.model


told, seen = families()
steps, model = run({})
save_file({n: p.detach().clone().contiguous() for n, p in model.named_parameters()
           if ".layers.1.self_attn." in n or n in ("model.norm.weight", "score.weight")}, HERE / "reward.safetensors")
centered, _ = run({"center_rewards_coefficient": 0.05})
(HERE / "reward.json").write_text(json.dumps(
    {"lr": LR, "sequences": SEQUENCES, "families": told, "classes": seen, "steps": steps, "centered": centered}, separators=(",", ":")) + "\n")
