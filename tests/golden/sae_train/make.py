"""Steps of SAELens's own trainer from a start that is given: losses of each step and the parameters after the last.

Needs sae-lens (6.54.12 was used) and torch. Writes <case>.safetensors with, for a batch of B rows of D numbers and F features:
  x [10, B, D], which come again after ten steps; target [10, B, O] of a transcoder; start.<parameter>, end.<parameter> (W_enc [D, F],
  W_dec [F, O], b_enc, b_dec, threshold, b_gate, r_mag, b_mag, W_skip, topk_threshold as SAELens has them),
  losses [steps, 3] (reconstruction, sparsity, auxiliary), inner [steps] (reconstructions of matryoshka's inner levels), l0 [steps],
  dead [steps]; the options in the metadata.
tests/lab/sae/trainer_test.cpp reads them. W_enc is not the transpose of W_dec here, and biases are not 0, so that each counts.

SAELens runs transcoders and has no trainer for them. Here its training classes read x and are compared with the target; the rest is theirs.
"""

import dataclasses
import json
import os
import sys

import torch
from safetensors.torch import save_file
from sae_lens import (BatchTopKTrainingSAEConfig, GatedTrainingSAEConfig, JumpReLUTrainingSAEConfig, MatryoshkaBatchTopKTrainingSAEConfig,
                      StandardTrainingSAEConfig, TopKTrainingSAEConfig)
from sae_lens.config import LoggingConfig, SAETrainerConfig
from sae_lens.saes.sae import TrainingSAE
from sae_lens.training.sae_trainer import SAETrainer

HERE = os.path.dirname(os.path.abspath(__file__))
BATCHES, B, D, O, F = 10, 48, 12, 10, 40
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
    "batchtopk": (BatchTopKTrainingSAEConfig(k=3, aux_loss_coefficient=0.5, topk_threshold_lr=0.1, **COMMON),
                  {"architecture": "batchtopk", "k": 3, "aux_coefficient": 0.5, "dead_window": 1, "threshold_lr": 0.1}),
    # levels that do not begin where tasks of features do
    "matryoshka": (MatryoshkaBatchTopKTrainingSAEConfig(k=4, aux_loss_coefficient=0.5, matryoshka_widths=[5, 19, F], **COMMON),
                   {"architecture": "batchtopk", "k": 4, "aux_coefficient": 0.5, "dead_window": 1, "widths": [5, 19]}),
    "transcoder_standard": (StandardTrainingSAEConfig(l1_coefficient=0.1, apply_b_dec_to_input=False, **COMMON),
                            {"architecture": "standard", "sparsity_coefficient": 0.1, "d_out": O, "steps": 100, "lr": 0.003}),
    "transcoder_jumprelu": (JumpReLUTrainingSAEConfig(jumprelu_sparsity_loss_mode="tanh", l0_coefficient=0.1, jumprelu_init_threshold=0.05,
                                                      jumprelu_bandwidth=0.2, apply_b_dec_to_input=False, **COMMON),
                            {"architecture": "jumprelu", "sparsity": "tanh", "sparsity_coefficient": 0.1, "threshold": 0.05,
                             "bandwidth": 0.2, "d_out": O, "skip": True, "steps": 100, "lr": 0.003}),
    "transcoder_batchtopk": (BatchTopKTrainingSAEConfig(k=4, aux_loss_coefficient=0.5, apply_b_dec_to_input=False, **COMMON),
                             {"architecture": "batchtopk", "k": 4, "aux_coefficient": 0.5, "dead_window": 2, "d_out": O, "skip": True}),
    "transcoder_matryoshka": (MatryoshkaBatchTopKTrainingSAEConfig(k=4, matryoshka_widths=[16, F], apply_b_dec_to_input=False, **COMMON),
                              {"architecture": "batchtopk", "k": 4, "widths": [16], "d_out": O, "skip": True}),
}


def transcoder(base):
    """A training class of SAELens that reads the first D numbers of a row and is compared with the other O."""

    class Transcoder(base):
        def initialize_weights(self):
            super().initialize_weights()
            self.W_dec = torch.nn.Parameter(0.1 * torch.nn.functional.normalize(torch.randn(F, O), dim=1))
            self.b_dec = torch.nn.Parameter(torch.zeros(O))
            self.W_skip = torch.nn.Parameter(torch.zeros(O, D))

        def training_forward_pass(self, step_input):
            self.read, target = step_input.sae_in.split([D, O], dim=-1)
            return super().training_forward_pass(dataclasses.replace(step_input, sae_in=target))

        def encode_with_hidden_pre(self, _):
            return super().encode_with_hidden_pre(self.read)

        def process_sae_in(self, x):
            return x

        def skipped(self):
            return self.read @ self.W_skip.T if self.W_skip.requires_grad else 0

        def decode(self, feature_acts):
            return super().decode(feature_acts) + self.skipped()

        def _iterable_decode(self, feature_acts, include_outer_loss=False):
            for width, decoded in super()._iterable_decode(feature_acts, include_outer_loss):
                yield width, decoded + self.skipped()

    return Transcoder


def make(name, config, options):
    torch.manual_seed(sum(map(ord, name)))
    directions = torch.randn(30, D)
    x = (torch.rand(BATCHES, B, 30) < 0.12).float() * torch.rand(BATCHES, B, 30) @ directions + 0.3
    data = x
    kind = TrainingSAE.get_sae_class_for_architecture(config.architecture())
    if "d_out" in options:
        target = torch.tanh(x @ torch.randn(D, 20) / 2) @ torch.randn(20, O) / 2 - 0.2
        data, kind = torch.cat([x, target], dim=-1), transcoder(kind)
    sae = kind(config)
    if "d_out" in options:
        sae.W_skip.requires_grad_(options.get("skip", False))
    with torch.no_grad():
        sae.W_enc += 0.05 * torch.randn(D, F)
        sae.W_dec *= 0.5 + torch.rand(F, 1)
        for bias in ("b_enc", "b_gate", "b_mag", "r_mag"):
            if hasattr(sae, bias):
                getattr(sae, bias).add_(0.05 * torch.randn(F))
        sae.b_dec += 0.1 * torch.randn(len(sae.b_dec))
        if options.get("skip"):
            sae.W_skip += 0.1 * torch.randn(O, D)
    options = {"lr": 0.01, "lr_warm_up": 3, "lr_decay": 4, "steps": BATCHES, "features": F, "dead_window": 1000, **options}
    steps = options["steps"]
    trainer = SAETrainer(
        cfg=SAETrainerConfig(total_training_samples=steps * B, train_batch_size_samples=B, lr=options["lr"], lr_end=options["lr"],
                             lr_warm_up_steps=options["lr_warm_up"], lr_decay_steps=options["lr_decay"],
                             dead_feature_window=options["dead_window"], logger=LoggingConfig(log_to_wandb=False)),
        sae=sae, data_provider=iter(data))
    tensors = {"x": x.contiguous()}
    if "d_out" in options:
        tensors["target"] = target.contiguous()
    tensors.update({f"start.{key}": value.detach().clone().contiguous() for key, value in sae.state_dict().items()})
    losses, inner, l0, dead = [], [], [], []
    for step in range(steps):
        dead.append(float(trainer.dead_neurons.sum()))
        out = trainer.step(data[step % BATCHES])
        trainer.n_training_steps += 1
        found = {key: float(value) for key, value in out.losses.items()}
        losses.append([found["mse_loss"], found.get("l0_loss", found.get("l1_loss", 0.0)),
                       found.get("auxiliary_reconstruction_loss", 0.0)])
        inner.append(sum(value for key, value in found.items() if key.startswith("inner_mse_loss")))
        l0.append(float((out.feature_acts != 0).float().sum(-1).mean()))
    tensors.update({f"end.{key}": value.detach().clone().contiguous() for key, value in sae.state_dict().items()})
    if "widths" in options:
        tensors["inner"] = torch.tensor(inner)
    tensors["losses"], tensors["l0"], tensors["dead"] = torch.tensor(losses), torch.tensor(l0), torch.tensor(dead)
    save_file(tensors, os.path.join(HERE, f"{name}.safetensors"), metadata={"options": json.dumps(options)})
    print(name, losses[0], losses[-1], "l0", l0[0], l0[-1], "dead", dead)


for case, (made, learning) in CASES.items():
    if len(sys.argv) < 2 or case in sys.argv[1:]:  # names of cases; none: all
        make(case, made, learning)
