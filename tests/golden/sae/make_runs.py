"""Writes runs/<architecture>: an autoencoder of SAELens in tests/golden/models/gpt2_a (transformers) at the stream that enters layer 1,
with the error kept and held, as HookedSAETransformer does: the logits of a run in which feature 3 is set to 2, and the gradients of a
logit difference at the stream that enters layer 0 and at the features of the unchanged run.

    pip install sae-lens==6.54.12 transformers
    python tests/golden/sae/make_runs.py
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from sae_lens import SAE
from transformers import GPT2LMHeadModel

HERE = Path(__file__).parent
IDS, ANSWER, OTHER = [5, 17, 3, 101, 42, 8, 77], 7, 11
model = GPT2LMHeadModel.from_pretrained(HERE.parent / "models" / "gpt2_a" / "model", attn_implementation="eager").eval()


def run(sae, change):
    """Logits at the last position, the stream that enters layer 0, the features."""
    seen = {}

    def enters(module, inputs):
        seen["stream"] = inputs[0].detach().requires_grad_(True)
        return (seen["stream"], *inputs[1:])

    def through(module, inputs):
        x = inputs[0]
        acts = sae.encode(x)
        with torch.no_grad():
            error = x - sae.decode(sae.encode(x))
        if change:
            acts = acts.clone()
            acts[..., 3] = 2
        acts.retain_grad()
        seen["acts"] = acts
        return (sae.decode(acts) + error, *inputs[1:])

    handles = [model.transformer.h[0].register_forward_pre_hook(enters), model.transformer.h[1].register_forward_pre_hook(through)]
    logits = model(torch.tensor([IDS])).logits[0, -1]
    for handle in handles:
        handle.remove()
    return logits, seen["stream"], seen["acts"]


for number, (architecture, more) in enumerate({"standard": {}, "gated": {}, "topk": {"k": 6}, "jumprelu": {}}.items()):
    torch.manual_seed(50 + number)
    sae = SAE.from_dict({"architecture": architecture, "d_in": 48, "d_sae": 20, "dtype": "float32", "device": "cpu",
                         "metadata": {"hook_name": "blocks.1.hook_resid_pre"}, **more})
    with torch.no_grad():
        for key, parameter in sae.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        if architecture == "jumprelu":
            sae.threshold.abs_()
    folder = HERE / "runs" / architecture
    shutil.rmtree(folder, ignore_errors=True)
    sae.save_model(folder)
    changed, _, _ = run(sae, True)
    logits, stream, acts = run(sae, False)
    (logits[ANSWER] - logits[OTHER]).backward()
    save_file({"changed": changed.detach(), "stream_gradient": stream.grad[0], "acts_gradient": acts.grad[0], "acts": acts.detach()[0]},
              folder / "run.safetensors")
