"""Ten steps of SAELens's own trainer from a start that is given: losses of each step and the parameters behind the last.

Needs sae-lens (6.54.12 was used) and torch. Writes <case>.safetensors with, for a batch of B rows of D numbers and F features:
  x [steps, B, D], start.<parameter>, end.<parameter> (W_enc [D, F], W_dec [F, D], b_enc, b_dec, threshold, b_gate, r_mag, b_mag as SAELens has them),
  losses [steps, 3] (reconstruction, sparsity, auxiliary), l0 [steps], dead [steps]; the options in the metadata.
tests/sae/trainer_test.cpp reads them. W_enc is not the transpose of W_dec here, and biases are not 0, so that each counts.
"""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from sae_lens import GatedTrainingSAEConfig, JumpReLUTrainingSAEConfig, StandardTrainingSAEConfig, TopKTrainingSAEConfig
from sae_lens.config import LoggingConfig, SAETrainerConfig
from sae_lens.saes.sae import TrainingSAE
from sae_lens.training.sae_trainer import SAETrainer

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, B, D, F = 10, 48, 12, 40
COMMON = {"d_in": D, "d_sae": F, "normalize_activations": "none", "decoder_init_norm": 0.1}

CASES = {
    # features die within the run, so the auxiliary loss takes part
    "topk": (TopKTrainingSAEConfig(k=3, aux_loss_coefficient=0.5, **COMMON),
             {"architecture": "topk", "k": 3, "aux_coefficient": 0.5, "dead_window": 1}),
    "jumprelu_step": (JumpReLUTrainingSAEConfig(jumprelu_sparsity_loss_mode="step", l0_coefficient=0.3, l0_warm_up_steps=4,
                                                jumprelu_init_threshold=0.05, jumprelu_bandwidth=0.2, **COMMON),
                      {"architecture": "jumprelu", "sparsity": "step", "sparsity_coefficient": 0.3, "sparsity_warm_up": 4,
                       "threshold": 0.05, "bandwidth": 0.2}),
    "jumprelu_tanh": (JumpReLUTrainingSAEConfig(jumprelu_sparsity_loss_mode="tanh", l0_coefficient=0.2, jumprelu_tanh_scale=3.0,
                                                jumprelu_ste_to_input=True, jumprelu_init_threshold=0.05, jumprelu_bandwidth=0.2,
                                                **COMMON),
                      {"architecture": "jumprelu", "sparsity": "tanh", "sparsity_coefficient": 0.2, "tanh_scale": 3.0,
                       "ste_to_input": True, "threshold": 0.05, "bandwidth": 0.2}),
    # few features are active
    "jumprelu_sparse": (JumpReLUTrainingSAEConfig(jumprelu_sparsity_loss_mode="tanh", l0_coefficient=0.2, jumprelu_init_threshold=0.35,
                                                  jumprelu_bandwidth=0.1, **COMMON),
                        {"architecture": "jumprelu", "sparsity": "tanh", "sparsity_coefficient": 0.2, "threshold": 0.35,
                         "bandwidth": 0.1}),
    "standard": (StandardTrainingSAEConfig(l1_coefficient=0.4, l1_warm_up_steps=3, **COMMON),
                 {"architecture": "standard", "sparsity_coefficient": 0.4, "sparsity_warm_up": 3}),
    "gated": (GatedTrainingSAEConfig(l1_coefficient=0.4, l1_warm_up_steps=3, **COMMON),
              {"architecture": "gated", "sparsity_coefficient": 0.4, "sparsity_warm_up": 3}),
}


def make(name, config, options):
    torch.manual_seed(sum(map(ord, name)))
    directions = torch.randn(30, D)
    x = (torch.rand(STEPS, B, 30) < 0.12).float() * torch.rand(STEPS, B, 30) @ directions + 0.3
    sae = TrainingSAE.get_sae_class_for_architecture(config.architecture())(config)
    with torch.no_grad():
        sae.W_enc += 0.05 * torch.randn(D, F)
        sae.W_dec *= 0.5 + torch.rand(F, 1)
        for bias in ("b_enc", "b_gate", "b_mag", "r_mag"):
            if hasattr(sae, bias):
                getattr(sae, bias).add_(0.05 * torch.randn(F))
        sae.b_dec += 0.1 * torch.randn(D)
    options = {"lr": 0.01, "lr_warm_up": 3, "lr_decay": 4, "steps": STEPS, "features": F, "dead_window": 1000, **options}
    trainer = SAETrainer(
        cfg=SAETrainerConfig(total_training_samples=STEPS * B, train_batch_size_samples=B, lr=options["lr"], lr_end=options["lr"],
                             lr_warm_up_steps=options["lr_warm_up"], lr_decay_steps=options["lr_decay"],
                             dead_feature_window=options["dead_window"], logger=LoggingConfig(log_to_wandb=False)),
        sae=sae, data_provider=iter(x))
    tensors = {"x": x.contiguous()}
    tensors.update({f"start.{key}": value.detach().clone().contiguous() for key, value in sae.state_dict().items()})
    losses, l0, dead = [], [], []
    for batch in x:
        dead.append(float(trainer.dead_neurons.sum()))
        out = trainer.step(batch)
        trainer.n_training_steps += 1
        found = {key: float(value) for key, value in out.losses.items()}
        losses.append([found["mse_loss"], found.get("l0_loss", found.get("l1_loss", 0.0)),
                       found.get("auxiliary_reconstruction_loss", 0.0)])
        l0.append(float((out.feature_acts != 0).float().sum(-1).mean()))
    tensors.update({f"end.{key}": value.detach().clone().contiguous() for key, value in sae.state_dict().items()})
    tensors["losses"], tensors["l0"], tensors["dead"] = torch.tensor(losses), torch.tensor(l0), torch.tensor(dead)
    save_file(tensors, os.path.join(HERE, f"{name}.safetensors"), metadata={"options": json.dumps(options)})
    print(name, losses[0], losses[-1], "l0", l0[0], l0[-1], "dead", dead)


for case, (made, learning) in CASES.items():
    if len(sys.argv) < 2 or case in sys.argv[1:]:  # names of cases; none: all
        make(case, made, learning)
