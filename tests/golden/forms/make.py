"""Numbers of models whose norms are switched off or moved, and whose sub-layers replace the stream instead of adding to it.

usage: make.py      (in this folder)
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.23.0; float64, eager attention, CPU)

The models are those of ../models, their sub-layers and norms the modules of transformers; only what joins them is changed here:
a sub-layer's module is wrapped so that the block, which adds what it gives to the stream, ends up with what the form asks for.
forms.safetensors: ids [T] and, for every model and form,
    <model>/<form>/logits [T, vocab_size]
    <model>/<form>/stream [n_layers]    norm of the gradient of the mean loss with respect to what enters each layer
    <model>/<form>/grad.<name>          the gradient of some parameters, by their names in the file
    <model>/<form>/grad_norm            of all parameters together
    <model>/<form>/distance             the largest distance of the logits of the same modules in float32
    <model>/<form>/scale                what all weights were multiplied by before
"""
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
IDS = [5, 3, 7, 9, 11, 40, 2, 60, 33, 8, 5, 3]
# form: (norms, residual); "" is the family's own place
FORMS = {"off": ("off", True), "pre": ("pre", True), "post": ("post", True), "off_replace": ("off", False), "own_replace": ("", False)}


# What all weights are multiplied by in the forms without norms, so that nothing overflows, saturates or dies away.
SCALES = {"off": {"gpt2_a": 0.6, "gemma": 0.35, "gemma2": 0.35, "llama": 0.6}, "off_replace": {"gpt2_a": 0.8, "gemma": 0.62, "gemma2": 0.8, "llama": 1.0}}


class Join(nn.Module):
    """What `inner` gives, changed so that stream + result is norm(stream + inner) or norm(inner)."""

    def __init__(self, inner, norm, residual, stream):
        super().__init__()
        self.inner, self.norm, self.residual, self.stream = inner, norm, residual, stream

    def forward(self, *args, **kwargs):
        given = self.inner(*args, **kwargs)
        update = given[0] if isinstance(given, tuple) else given
        stream = self.stream[0]
        total = self.norm(stream + update if self.residual else update)
        return (total - stream, *given[1:]) if isinstance(given, tuple) else total - stream


def change(block, names, norms, residual):
    """names: [(norm in front, sub-layer or the norm behind it)] of the two halves of the block."""
    for before, sub in names:
        norm, inner = getattr(block, before), getattr(block, sub)
        front = norm if norms in ("", "pre") else nn.Identity()
        second = sub.endswith("layernorm")
        stream = []
        front_with_memory = nn.Sequential(front)
        front_with_memory.register_forward_pre_hook(lambda module, args, stream=stream: stream.__setitem__(slice(None), [args[0]]))
        setattr(block, before, front_with_memory)
        setattr(block, sub, Join(nn.Identity() if second and norms else inner, norm if norms == "post" else nn.Identity(), residual, stream))


def changed(name, form, norms, residual, dtype):
    """The model, its parameters by their names in the file, what enters each layer (filled by a run)."""
    model = AutoModelForCausalLM.from_pretrained(f"../models/{name}/model", dtype=dtype, attn_implementation="eager").eval()
    parameters = dict(model.named_parameters())
    scale = SCALES[form][name] if norms == "off" else 1.0
    for p in parameters.values():
        p.data *= scale
    gpt2 = name.startswith("gpt2")
    halves = [("ln_1", "attn"), ("ln_2", "mlp")] if gpt2 else [("input_layernorm", "self_attn"), ("post_attention_layernorm", "mlp")]
    if name == "gemma2":
        halves = [("input_layernorm", "post_attention_layernorm"), ("pre_feedforward_layernorm", "post_feedforward_layernorm")]
    trunk = model.transformer if gpt2 else model.model
    blocks = trunk.h if gpt2 else trunk.layers
    entering = []
    for block in blocks:
        change(block, halves, norms, residual)
        block.register_forward_pre_hook(lambda module, args, entering=entering: (args[0].retain_grad(), entering.append(args[0]))[0])
    if norms == "off":
        setattr(trunk, "ln_f" if gpt2 else "norm", nn.Identity())
    return model, parameters, entering


tensors = {"ids": torch.tensor(IDS)}
for name in ("gpt2_a", "gemma", "gemma2", "llama"):
    for form, (norms, residual) in FORMS.items():
        if form == "pre" and name != "gemma2":
            continue
        model, parameters, entering = changed(name, form, norms, residual, torch.float64)
        ids = torch.tensor([IDS])
        logits = model(ids, use_cache=False).logits[0]
        torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:]).backward()
        at = f"{name}/{form}"
        rounded = changed(name, form, norms, residual, torch.float32)[0](ids, use_cache=False).logits[0]
        tensors[f"{at}/distance"] = (rounded.double() - logits).abs().max().reshape(1).detach().float()
        tensors[f"{at}/logits"] = logits.detach().float()
        tensors[f"{at}/stream"] = torch.stack([x.grad.norm() for x in entering]).float()
        tensors[f"{at}/scale"] = torch.tensor([SCALES[form][name] if norms == "off" else 1.0])
        used = {key: p.grad for key, p in parameters.items() if p.grad is not None}
        tensors[f"{at}/grad_norm"] = torch.sqrt(sum(g.square().sum() for g in used.values())).reshape(1).float()
        for key, g in used.items():
            if any(part in key for part in ("norm", "ln_", "h.0.attn.c_proj", "layers.0.self_attn.q", "layers.0.self_attn.o", "wpe")):
                tensors[f"{at}/grad.{key}"] = g.float().contiguous()
        print(at, float(tensors[f"{at}/distance"]), float(logits.detach().abs().max()), tensors[f"{at}/stream"].tolist(), float(tensors[f"{at}/grad_norm"]))
save_file(tensors, "forms.safetensors")
