"""Ten steps of TRL's GRPOTrainer and RLOOTrainer on the golden llama with given completions and rewards: grpo.json.

usage: make_grpo.py   (trl 1.16.0, torch 2.15.0, transformers 5.24.0; float32, CPU)
"""
import json, pathlib, random, tempfile
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "models" / "llama" / "model"
LR, GROUP, MAX_TOKENS, STEPS = 3e-4, 4, 12, 10
PROMPTS = ["The fox saw", "Once upon a time there was a"]
tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token

# Of each call a group of completions for each prompt; some end, others are cut.
draw = random.Random(7)
CALLS = []
for call in range(STEPS):
    completions, rewards = [], []
    for i in range(GROUP * len(PROMPTS)):
        length = draw.randint(2, MAX_TOKENS)
        ids = [draw.choice([x for x in range(3, 90) if x != tokenizer.eos_token_id]) for _ in range(length)]
        if length < MAX_TOKENS:
            ids[-1] = tokenizer.eos_token_id
        completions.append(ids)
        rewards.append(draw.choice([0.0, 0.25, 1.0, 2.0]))
    CALLS.append({"completions": completions, "rewards": rewards})

# The section's keys as a configuration of `vitrine train` has them, and the trainer's arguments.
RUNS = [
    ("loss_type: grpo", GRPOTrainer, GRPOConfig, {"loss_type": "grpo"}),
    ("loss_type: grpo, beta: 0.05, temperature: 0.8", GRPOTrainer, GRPOConfig, {"loss_type": "grpo", "beta": 0.05, "temperature": 0.8}),
    ("loss_type: grpo, iterations: 2, epsilon: 0.15, epsilon_high: 0.2", GRPOTrainer, GRPOConfig,
     {"loss_type": "grpo", "num_iterations": 2, "epsilon": 0.15, "epsilon_high": 0.2}),
    ("loss_type: dapo, scale_rewards: batch", GRPOTrainer, GRPOConfig, {"loss_type": "dapo", "scale_rewards": "batch"}),
    ("loss_type: dr_grpo", GRPOTrainer, GRPOConfig, {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    ("loss_type: grpo, drop_cut: true", GRPOTrainer, GRPOConfig, {"loss_type": "grpo", "mask_truncated_completions": True}),
    ("loss_type: rloo", RLOOTrainer, RLOOConfig, {"beta": 0.0}),
    ("loss_type: rloo, beta: 0.05, iterations: 2, epsilon: 0.6", RLOOTrainer, RLOOConfig,
     {"beta": 0.05, "num_iterations": 2, "epsilon": 0.6}),
]


def run(section, trainer_class, config_class, arguments):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=False)
    losses, prompts, calls = [], [], [0]

    class Given(trainer_class):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            prompts.append(prompt_ids)
            calls[0] += 1
            completions = [list(ids) for ids in CALLS[calls[0] - 1]["completions"]]
            return (completions, None) if trainer_class is GRPOTrainer else completions

        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append(loss.item())
            return loss

    def reward(completions, completion_ids, **kwargs):
        return list(CALLS[calls[0] - 1]["rewards"])

    if trainer_class is GRPOTrainer:
        arguments = {"beta": 0.0} | arguments
    with tempfile.TemporaryDirectory() as out:
        trainer = Given(
            model=model,
            reward_funcs=reward,
            args=config_class(out, per_device_train_batch_size=GROUP * len(PROMPTS), num_generations=GROUP, max_steps=STEPS,
                              max_completion_length=MAX_TOKENS, steps_per_generation=1, logging_steps=1, report_to="none",
                              max_grad_norm=1e9, save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                              disable_dropout=True, shuffle_dataset=False, **arguments),
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
            processing_class=tokenizer,
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
        )
        trainer.train()
    history = [h for h in trainer.state.log_history if "loss" in h]
    assert all(p == prompts[0] for p in prompts)
    told = {"section": section, "prompts": prompts[0], "losses": losses, "norm": model.model.norm.weight.tolist()}
    for ours, theirs in (("grad_norm", "grad_norm"), ("kl", "kl"), ("clipped", "clip_ratio/region_mean"), ("entropy", "entropy")):
        if all(theirs in h for h in history):
            told[ours] = [float(h[theirs]) for h in history]
    return told


told = {"lr": LR, "group": GROUP, "max_tokens": MAX_TOKENS, "calls": CALLS, "runs": [run(*one) for one in RUNS]}
(HERE / "grpo.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
