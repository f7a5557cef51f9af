#!/usr/bin/env python3
"""Holds vitrine to transformers on random models and on changed configurations of every family.

usage: random_models.py sizes|changes COUNT [--seed N] [--vitrine build/release/vitrine] [FAMILY …]

sizes    COUNT models with random sizes, windows, rotary settings and flags of a family (a folder of tests/golden/models, in turn), with
         random weights: logits of a random prompt, ours in f32 and transformers' in f32 and f64. A model fails whose logits are further
         from f64 than 1e-4 of the largest one, unless transformers' own f32 is as far.
changes  COUNT changes of one or two keys of a golden model's config.json (another value, null, left out, a key that transformers'
         configuration has and the file lacks), its weights as they are. Where both programs run the model, logits agree as above; a
         configuration that one of them refuses is no failure, and neither is one whose weights transformers would make anew.

Prints each failure with what is needed to make it again, and a last line of counts; exits with 1 if there are failures.
Needs torch, transformers and safetensors. Not part of CI.
"""
import argparse, functools, json, logging, os, pathlib, random, shutil, subprocess, sys, tempfile, warnings

os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
warnings.filterwarnings("ignore")
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

logging.disable(logging.CRITICAL)
hf_logging.set_verbosity(50)
hf_logging.disable_progress_bar()
torch.set_num_threads(1)
ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/models"


def families():
    """Those that transformers has."""
    return sorted(p.parent.parent.name for p in GOLDEN.glob("*/model/config.json") if not p.parent.parent.name.startswith("classic"))


def ours(program, folder, ids, out):
    """Logits [T, vocab_size], or the message of a refusal."""
    run = subprocess.run([program, "trace", "--model", folder, "--tokens", ",".join(map(str, ids)), "--hooks", "hook_logits", "--out", out, "--compute", "f32", "--threads", "1"],
                         capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip()
    return next(x for name, x in load_file(out).items() if name.endswith("hook_logits")).double().reshape(len(ids), -1)


def theirs(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double()


def distance(a, b):
    return float((a - b).abs().max()) / max(float(b.abs().max()), 1e-30) if a.shape == b.shape else float("inf")


def loaded(folder, dtype):
    """The model, or None where transformers makes weights anew or leaves some out."""
    how = dict(dtype=dtype, attn_implementation="eager", output_loading_info=True)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager", **how)
    except TypeError:
        model, info = AutoModelForCausalLM.from_pretrained(folder, **how)
    if any(info.get(kind) for kind in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs")):
        return None
    return model.eval()


def verdict(program, folder, rng, scratch):
    """"agrees", "refused", "theirs refuses" or what differs."""
    try:
        exact = loaded(folder, torch.float64)
        if exact is None:
            return "theirs refuses"
        ids = [rng.randrange(3, min(exact.config.get_text_config().vocab_size, 40)) for _ in range(rng.randrange(2, 24))]
        want = theirs(exact, ids)
    except Exception:  # whatever it says: there is nothing to compare with
        return "theirs refuses"
    if not torch.isfinite(want).all():
        return "theirs refuses"
    got = ours(program, folder, ids, f"{scratch}/logits.safetensors")
    if isinstance(got, str):
        return "refused: " + got
    far = distance(got, want)
    if far <= 1e-4:
        return "agrees"
    own = distance(theirs(loaded(folder, torch.float32), ids), want)
    return "agrees" if far <= 2 * own else f"logits differ by {far:.1e} of the largest (transformers' own f32 {own:.1e}), ids {ids}"


def set_random_sizes(c, rng):
    """Changes a configuration so that its model can be made, as far as that is known; transformers decides."""
    def pick(key, *values):
        if key in c and c[key] is not None:
            c[key] = rng.choice(values)
    heads = next((k for k in ("num_attention_heads", "n_head", "num_heads") if k in c), None)
    n = rng.choice([1, 2, 3, 4, 6])
    head_dim = rng.choice([4, 6, 8, 10, 16])
    c[heads] = n
    if c.get("num_key_value_heads") is not None:
        c["num_key_value_heads"] = rng.choice([g for g in range(1, n + 1) if n % g == 0])
    width = next(k for k in ("hidden_size", "n_embd") if k in c)
    c[width] = n * head_dim
    if c.get("head_dim") is not None:
        c["head_dim"] = rng.choice([4, 8, 12])
    if "word_embed_proj_dim" in c:
        c["word_embed_proj_dim"] = c[width]
    if c.get("rotary_dim") is not None:
        c["rotary_dim"] = rng.choice([d for d in (2, 4, 6, 8) if d <= head_dim])
    for key in ("intermediate_size", "ffn_dim", "n_inner", "intermediate_size_mlp", "moe_intermediate_size", "shared_intermediate_size"):
        pick(key, 8, 13, 24, 31, 40)
    pick("sliding_window", 1, 2, 5, 9, 30)
    pick("window_size", 1, 2, 5, 9, 30)
    pick("attention_chunk_size", 1, 2, 5, 9, 30)
    pick("floor_scale", 1, 3, 7)
    pick("interleave_moe_layer_step", 1, 2, 3)
    if "no_rope_layers" in c and rng.random() < 0.5:  # what follows from others is left out, or each is chosen
        c["no_rope_layers"] = [rng.randrange(2) for _ in c["no_rope_layers"]]
    if "attention_chunk_size" in c:
        for key in ("layer_types", "moe_layers"):
            if rng.random() < 0.7:
                c.pop(key, None)
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        pick(key, 1e-6, 1e-5, 1e-3)
    for key in ("attention_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qkv_bias", "use_qk_norm", "attn_temperature_tuning", "tie_word_embeddings", "norm_topk_prob", "use_parallel_residual", "bias", "parallel_attn",
                "new_decoder_architecture", "multi_query", "alibi", "apply_residual_connection_post_layernorm"):
        if key in c and rng.random() < 0.4:
            c[key] = not c[key]
    for key in ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "routed_scaling_factor"):
        pick(key, 0.3, 1.0, 2.5)
    pick("final_logit_softcapping", 2.0, 30.0)
    pick("attn_logit_softcapping", 1.0, 50.0)
    pick("query_pre_attn_scalar", 3, 8, 144)
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if c.get(key) is not None and rng.random() < 0.3:
            c[key] = rng.choice(["relu", "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu2", "quick_gelu", "tanh"])
            if key == "hidden_activation" and "hidden_act" in c:
                c["hidden_act"] = c[key]
    experts = next((k for k in ("num_experts", "num_local_experts", "n_routed_experts") if c.get(k)), None)
    if experts:
        c[experts] = rng.choice([2, 3, 4, 8])
        pick("num_experts_per_tok", *[k for k in (1, 2, 3) if k <= c[experts]])
        pick("top_k_experts", *[k for k in (1, 2, 3) if k <= c[experts]])
    set_random_mixer(c, rng)
    rope = c.get("rope_parameters")
    for one in [rope] if isinstance(rope, dict) and "rope_type" in rope else rope.values() if isinstance(rope, dict) else []:
        if isinstance(one, dict) and one.get("rope_type") != "longrope":
            one["rope_theta"] = rng.choice([10.0, 500.0, 1e4, 1e6])
            if one.get("partial_rotary_factor") is not None:
                one["partial_rotary_factor"] = rng.choice([0.25, 0.5, 1.0])
            if one.get("rope_type") == "default" and rng.random() < 0.3 and c.get("max_position_embeddings"):
                one.update(rng.choice([dict(rope_type="linear", factor=3.0), dict(rope_type="dynamic", factor=2.0),
                                       dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=c["max_position_embeddings"] // 4),
                                       dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)]))
    return c


def set_random_mixer(c, rng):
    """Sizes of Mamba 2's mixer beside or among other layers."""
    heads, width, groups, state, taps = rng.choice([2, 4, 6]), rng.choice([3, 4, 8]), rng.choice([1, 2]), rng.choice([3, 5, 8]), rng.choice([2, 3, 4])
    flags, factor = (), lambda: rng.choice([1.0, 0.3, 0.7, 1.6])
    if isinstance(c.get("time_step_limit"), list):  # its infinity is an object in the file
        c["time_step_limit"] = rng.choice([[0.0, float("inf")], [0.1, 0.8]])
    if "mamba_d_ssm" in c:
        c.update(mamba_n_heads=heads, mamba_d_head=width, mamba_n_groups=groups, mamba_d_ssm=heads * width, mamba_d_state=state, mamba_d_conv=taps)
        flags = ("mamba_rms_norm", "mamba_norm_before_gate", "mamba_conv_bias", "mamba_proj_bias", "projectors_bias")
        for key in [k for k in c if k.endswith("_multiplier")]:
            c[key] = factor()
        for key in [k for k in c if k.endswith("_multipliers")]:
            c[key] = [factor() for _ in c[key]]
    if "mamba_num_heads" in c:
        c.update(mamba_num_heads=heads, mamba_head_dim=width, n_groups=groups, ssm_state_size=state, conv_kernel=taps, time_step_min=rng.choice([0.001, 0.1, 0.5]), moe_latent_size=rng.choice([None, 5, 12]),
                 moe_shared_expert_intermediate_size=rng.choice([6, 11]), n_routed_experts=rng.choice([4, 8]), n_group=rng.choice([1, 2]),
                 layers_block_type=[rng.choice(["linear_attention", "full_attention", "mlp", "moe"]) for _ in range(rng.choice([1, 3, 5]))])
        c["topk_group"] = rng.randint(1, c["n_group"])
        flags = ("use_conv_bias",)
    for key in flags:
        if rng.random() < 0.4:
            c[key] = not c[key]


def random_weights(model, rng):
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            norm = "norm" in name or "ln_" in name
            x = torch.randn(p.shape, generator=g)
            p.copy_(1 + 0.3 * x if norm and p.dim() == 1 and name.endswith("weight") else x * (0.3 if p.dim() == 1 else 1.2 / max(p.shape[-1], 1) ** 0.5))


def try_sizes(name, rng, scratch, program):
    folder = f"{scratch}/model"
    shutil.rmtree(folder, ignore_errors=True)
    config = set_random_sizes(json.loads((GOLDEN / name / "model/config.json").read_text()), rng)
    try:
        made = AutoConfig.for_model(**config)
        model = AutoModelForCausalLM.from_config(made, attn_implementation="eager")
        random_weights(model, rng)
        model.save_pretrained(folder)
    except Exception:
        return "theirs refuses", config
    return verdict(program, folder, rng, scratch), config


def other_value(key, value, rng):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([0, 1, 2, value + 1, max(value - 1, 0), 2 * value, None])
    if isinstance(value, float):
        return rng.choice([0.0, 1.0, value * 2, value / 2, value + 0.25, None])
    if isinstance(value, str):
        return rng.choice(["gelu", "relu", "silu", "default", "linear", "yarn", "none", "learned_absolute", "absolute", None])
    if isinstance(value, list) and value:
        return rng.choice([value[::-1], value[:-1], [value[0]] * len(value), [value[-1]] * len(value), None])
    if isinstance(value, dict) and value:
        inner = dict(value)
        k = rng.choice(sorted(inner))
        inner[k] = other_value(k, inner[k], rng)
        return inner
    return rng.choice([0, 1, 2, 0.5, True, False, 4, 8])


@functools.cache
def silent_settings(name):
    """What transformers' configuration of a golden model has besides what the file says."""
    source = GOLDEN / name / "model"
    said = json.loads((source / "config.json").read_text())
    return {k: v for k, v in AutoConfig.from_pretrained(source).to_dict().items() if k not in said}


def try_changes(name, rng, scratch, program):
    folder = pathlib.Path(scratch) / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    source = GOLDEN / name / "model"
    config = json.loads((source / "config.json").read_text())
    for file in source.glob("*.safetensors*"):
        os.symlink(file, folder / file.name)
    besides = silent_settings(name)
    changed = {}
    for _ in range(rng.choice([1, 1, 1, 2])):
        pool = besides if rng.random() < 0.4 and besides else config
        key = rng.choice(sorted(k for k in pool if k not in ("model_type", "architectures", "dtype", "transformers_version", "auto_map")))
        if pool is config and rng.random() < 0.15:
            changed[key] = "left out"
            config.pop(key)
        else:
            changed[key] = config[key] = other_value(key, pool[key], rng)
        if not config:
            break
    (folder / "config.json").write_text(json.dumps(config))
    return verdict(program, str(folder), rng, scratch), changed


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("what", choices=["sizes", "changes"])
    arguments.add_argument("count", type=int)
    arguments.add_argument("family", nargs="*")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--vitrine", default=str(ROOT / "build/release/vitrine"))
    a = arguments.parse_intermixed_args()
    names, counts, failures = a.family or families(), {}, 0
    refusals = set()
    with tempfile.TemporaryDirectory() as scratch:
        for i in range(a.count):
            name, rng = names[i % len(names)], random.Random(a.seed * 1000003 + i)
            said, of = (try_sizes if a.what == "sizes" else try_changes)(name, rng, scratch, a.vitrine)
            kind = said.split(":")[0] if said.startswith(("refused", "agrees", "theirs")) else "differs"
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "refused" and a.what == "sizes":
                refusals.add((name, said[-120:]))
            if kind == "differs":
                failures += 1
                print(f"{name}, number {i}: {said}\n  {json.dumps(of)}", flush=True)
    for name, said in sorted(refusals):
        print(f"refused: {name}: {said}")
    print(f"{a.what}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
