"""Writes hooked/<name>.safetensors: every hook of an autoencoder in tests/golden/models/gpt2_a, from SAELens's HookedSAETransformer,
for two prompts that run together, with the error kept: its values, the gradients of a logit difference at the last position, and the
logits of runs that functions at its hooks change. The autoencoders are those of runs/, a transcoder and one of the heads' z, which are
written beside.

    pip install sae-lens==6.54.12 transformer-lens==2.18.0 transformers
    python tests/golden/sae/make_hooked.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from sae_lens import SAE, HookedSAETransformer
from transformer_lens import HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
from transformers import GPT2LMHeadModel

HERE = Path(__file__).parent
IDS, ANSWER, OTHER = torch.tensor([[5, 17, 3, 101, 42, 8, 77], [9, 4, 250, 31, 6, 60, 12]]), 7, 11

hf = GPT2LMHeadModel.from_pretrained(HERE.parent / "models" / "gpt2_a" / "model", attn_implementation="eager").eval()
c = hf.config
cfg = HookedTransformerConfig(model_name="gpt2_a", n_layers=c.n_layer, d_model=c.n_embd, n_heads=c.n_head, d_head=c.n_embd // c.n_head,
                              d_mlp=4 * c.n_embd, n_ctx=c.n_positions, d_vocab=c.vocab_size, eps=c.layer_norm_epsilon, act_fn="gelu_new",
                              normalization_type="LN", attention_dir="causal", dtype=torch.float32, device="cpu")
model = HookedSAETransformer(cfg)
model.load_and_process_state_dict(convert_gpt2_weights(hf, cfg), fold_ln=False, center_writing_weights=False, center_unembed=False,
                                  fold_value_biases=False)
with torch.no_grad():
    assert (model(IDS).log_softmax(-1) - hf(IDS).logits.log_softmax(-1)).abs().max() < 1e-4


def new_sae(seed, name, metadata, **config):
    torch.manual_seed(seed)
    sae = SAE.from_dict({"d_sae": 20, "dtype": "float32", "device": "cpu", "metadata": metadata, **config})
    with torch.no_grad():
        for key, parameter in sae.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    sae.save_model(HERE / "hooked" / name)
    return sae


def difference(logits):
    return (logits[:, -1, ANSWER] - logits[:, -1, OTHER]).sum()


saes = {name: SAE.load_from_disk(str(HERE / "runs" / name)) for name in ("standard", "gated", "topk", "jumprelu")}
saes["transcoder"] = new_sae(60, "transcoder", {"hook_name": "blocks.1.mlp.hook_in", "hook_name_out": "blocks.1.hook_mlp_out"},
                             architecture="transcoder", d_in=48, d_out=48, apply_b_dec_to_input=False)
saes["heads"] = new_sae(61, "heads", {"hook_name": "blocks.1.attn.hook_z"}, architecture="standard", d_in=48,
                        reshape_activations="hook_z")

for name, sae in saes.items():
    place = sae.cfg.metadata.hook_name_out or sae.cfg.metadata.hook_name
    result = {}
    with model.saes(sae, use_error_term=True):
        inside = lambda hook: hook.startswith(place + ".hook_sae_")
        logits, cache = model.run_with_cache(IDS, names_filter=inside)
        assert len(cache) == 6, list(cache)
        result |= {f"value.{hook}": value for hook, value in cache.items()}
        result["logits"] = logits[:, -1]

        gradients = {}
        def keep(gradient, hook):
            gradients[f"gradient.{hook.name}"] = gradient.detach().clone()
        names = [hook for hook in cache if not hook.endswith("hook_sae_error")]  # which is a constant
        with model.hooks(bwd_hooks=[(hook, keep) for hook in [*names, "blocks.0.hook_resid_pre"]]):
            difference(model(IDS)).backward()
        assert len(gradients) == 6, list(gradients)
        result |= gradients

        def put(acts, hook):
            acts[..., 3] = 2
            return acts
        changes = {"hook_sae_acts_post": put, "hook_sae_acts_pre": lambda pre, hook: pre + 0.5,
                   "hook_sae_recons": lambda recons, hook: recons * 0.5, "hook_sae_error": lambda error, hook: error * 0,
                   "hook_sae_input": lambda x, hook: x * 1.5, "hook_sae_output": lambda y, hook: y * 0.8}
        with torch.no_grad():
            for hook, function in changes.items():
                result[f"changed.{hook}"] = model.run_with_hooks(IDS, fwd_hooks=[(f"{place}.{hook}", function)])[:, -1]
    with model.saes(sae, use_error_term=False), torch.no_grad():
        result["without_error"] = model(IDS)[:, -1]
    (HERE / "hooked").mkdir(exist_ok=True)
    save_file({key: value.detach().contiguous() for key, value in result.items()}, HERE / "hooked" / f"{name}.safetensors")
