"""What transformers makes of every rotary setting of every family: frequencies and the factor of cosines and sines.

usage: make.py [OUT]        OUT: cases.json beside this file
needs: torch, transformers (made with torch 2.15.0, transformers 5.24.0)

cases.json is a list. Each case takes the config.json of tests/golden/models/MODEL without its rotary settings, puts in the keys of
`set`, and has either `rope`, for each type of layer and number of tokens what the family's own rotary embedding holds after that
many tokens, or `refused`, a part of the message with which vitrine stops although transformers goes on. Cases at which
transformers stops are left out.
"""
import importlib, json, pathlib, sys
import torch
from transformers import CONFIG_MAPPING
from transformers.utils import logging

logging.set_verbosity_error()
HERE = pathlib.Path(__file__).resolve().parent
CONTEXT, ORIGINAL = 256, 64
ROTARY = ("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor",
          "original_max_position_embeddings")
FLAT = ("gemma", "gemma2", "glm4", "gpt_oss", "granite", "granite4", "lfm2", "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3",
        "qwen3_5", "qwen3_moe", "smollm3")
BY_LAYER = ("gemma3", "gemma4", "olmo3")
PARTIAL = ("glm4", "phi3", "qwen3_5")  # a part of each head may rotate
DETAILED = ("glm4", "gpt_oss", "llama", "mixtral", "phi3", "qwen3_5", *BY_LAYER)  # the others differ from llama in what silence means

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": ORIGINAL}


def without(settings, key):
    return {k: v for k, v in settings.items() if k != key}


def longrope(pairs):
    return {"rope_type": "longrope", "short_factor": [1.0 + 0.25 * i for i in range(pairs)],
            "long_factor": [2.0 + 0.5 * i for i in range(pairs)], "original_max_position_embeddings": ORIGINAL}


def scalings(pairs):
    """Every type, with each of its keys said, silent and null."""
    long = longrope(pairs)
    return {
        "default": {"rope_type": "default"}, "default_theta": {"rope_type": "default", "rope_theta": 700.0},
        "linear": {"rope_type": "linear", "factor": 4.0}, "dynamic": {"rope_type": "dynamic", "factor": 4.0},
        "dynamic_theta": {"rope_type": "dynamic", "factor": 1.1, "rope_theta": 700.0},
        "llama3": LLAMA3, "llama3_silent": without(LLAMA3, "original_max_position_embeddings"),
        "yarn": YARN, "yarn_silent": without(YARN, "original_max_position_embeddings"), "yarn_null_factor": YARN | {"factor": None},
        "yarn_nulls": YARN | {"beta_fast": None, "beta_slow": None, "attention_factor": None, "mscale": None},
        "yarn_betas": YARN | {"beta_fast": 8.0, "beta_slow": 2.0}, "yarn_attention": YARN | {"attention_factor": 1.25},
        "yarn_mscale": YARN | {"mscale": 0.7}, "yarn_both_mscales": YARN | {"mscale": 0.7, "mscale_all_dim": 1.1},
        "yarn_zero_mscale": YARN | {"mscale": 0.0, "mscale_all_dim": 1.0},
        "yarn_attention_and_mscales": YARN | {"attention_factor": 1.25, "mscale": 0.7, "mscale_all_dim": 1.1},
        "yarn_truncate": YARN | {"truncate": True}, "yarn_no_truncate": YARN | {"truncate": False},
        "yarn_null_truncate": YARN | {"truncate": None},
        "longrope": long, "longrope_factor": long | {"factor": 8.0}, "longrope_attention": long | {"attention_factor": 1.5},
        "longrope_silent": without(long, "original_max_position_embeddings"),
        "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        "proportional_factor": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0},
        "proportional_silent": {"rope_type": "proportional"}}


def flat_cases(pairs):
    yield "silent", {}
    yield "nulls", {"rope_scaling": None, "rope_parameters": None}
    yield "empty", {"rope_parameters": {}}
    yield "theta", {"rope_theta": 5000.0}
    yield "old_names", {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    yield "two_thetas", {"rope_theta": 5000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}
    yield "top_share", {"partial_rotary_factor": 0.5}
    yield "top_share_one", {"partial_rotary_factor": 1.0}
    yield "top_share_null", {"partial_rotary_factor": None}
    yield "top_share_yarn", {"partial_rotary_factor": 0.5, "rope_parameters": YARN}
    yield "share", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}
    yield "two_shares", {"partial_rotary_factor": 1.0, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}
    yield "top_share_proportional", {"partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "proportional"}}
    for name, settings in scalings(pairs).items():
        yield name, {"rope_parameters": settings}
        yield name + "_scaling", {"rope_theta": 5000.0, "rope_scaling": settings}
    for name in ("yarn", "llama3", "longrope", "yarn_silent", "default"):
        yield name + "_top_original", {"original_max_position_embeddings": 32, "rope_parameters": scalings(pairs)[name]}
    for older in ("su", "yarn"):
        yield "longrope_as_" + older, {"rope_scaling": longrope(pairs) | {"rope_type": older}}
        yield "longrope_as_old_" + older, {"rope_scaling": without(longrope(pairs), "rope_type") | {"type": older}}


def layer_cases(pairs):
    full, sliding = "full_attention", "sliding_attention"
    plain = {"rope_type": "default"}
    yield "silent", {}
    yield "nulls", {"rope_scaling": None, "rope_parameters": None}
    yield "theta", {"rope_theta": 5000.0}
    yield "local_theta", {"rope_local_base_freq": 300.0}
    yield "thetas", {"rope_parameters": {full: plain | {"rope_theta": 700.0}, sliding: plain | {"rope_theta": 70.0}}}
    yield "top_theta", {"rope_theta": 5000.0, "rope_parameters": {full: plain, sliding: plain}}
    yield "three_thetas", {"rope_theta": 5000.0, "rope_parameters": {full: plain | {"rope_theta": 700.0}, sliding: plain}}
    yield "without_sliding", {"rope_parameters": {full: plain | {"rope_theta": 700.0}}}
    for name, settings in scalings(pairs[0]).items():
        yield name, {"rope_parameters": {full: {"rope_theta": 700.0} | settings, sliding: plain | {"rope_theta": 70.0}}}
        yield name + "_scaling", {"rope_scaling": settings}
        yield name + "_old_scaling", {"rope_scaling": without(settings, "rope_type") | {"type": settings["rope_type"]}}
    for name, settings in scalings(pairs[1]).items():
        yield name + "_sliding", {"rope_parameters": {full: plain | {"rope_theta": 700.0}, sliding: {"rope_theta": 70.0} | settings}}
    for truncate in (True, False, None):
        yield f"yarn_top_truncate_{json.dumps(truncate)}", {"rope_parameters": {
            full: YARN | {"rope_theta": 700.0}, sliding: plain | {"rope_theta": 70.0}, "truncate": truncate}}
    yield "yarn_two_truncates", {"rope_parameters": {
        full: YARN | {"rope_theta": 700.0, "truncate": False}, sliding: plain | {"rope_theta": 70.0}, "truncate": False}}


def refusal(model, name, keys):
    """Where vitrine stops on purpose: what the settings say is not what transformers computes."""
    parameters = keys.get("rope_parameters") or {}
    objects = [keys.get("rope_scaling") or {}, parameters, *(v for v in parameters.values() if isinstance(v, dict))]
    if model in BY_LAYER:
        if any("type" in o for o in objects):
            return "is an older name of rope_type, which transformers does not read here"
        beside = parameters.get("truncate", True) or False  # null is false
        if any(o.get("truncate") not in (None, beside) for o in (objects[0], *objects[2:])):
            return "transformers does not read it for a type of layer"
    elif model not in PARTIAL:
        types = {o.get("rope_type", o.get("type")) for o in objects}
        if "proportional" not in types and any(o.get("partial_rotary_factor") not in (None, 1.0) for o in (keys, *objects)):
            return "partial_rotary_factor\" is 0.5; is not supported"
    if model == "olmo3" and "rope_theta" in keys and "rope_parameters" not in keys:
        return "is not the 500000 of the layers with a window"
    if model == "gemma4" and ("rope_theta" in keys or "rope_scaling" in keys and keys["rope_scaling"] is not None):
        return "sets \"rope_"
    if "rope_local_base_freq" in keys and model != "gemma3":
        return "rope_local_base_freq"
    return None


def embedding(config):
    module = importlib.import_module(config.__class__.__module__.replace("configuration_", "modeling_"))
    [kind] = [c for n, c in vars(module).items() if n.endswith("RotaryEmbedding") and "Vision" not in n and "Audio" not in n]
    return kind(config)


def head_dim(config, layer_type):
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[layer_type]
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def frequencies(settings, by_layer):
    """[{layer_type, tokens, inv_freq, attention_factor}]. Raises what transformers raises."""
    rows = []
    for tokens in (1, ORIGINAL + 1, CONTEXT):  # a model here runs no more
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(json.loads(json.dumps(settings)))
        rope = embedding(config)
        for kind in ("full_attention", "sliding_attention") if by_layer else (None,):
            x, positions = torch.zeros(1, tokens, 1), torch.arange(tokens)[None]
            cos, _ = rope(x, positions, kind) if by_layer else rope(x, positions)
            prefix = f"{kind}_" if by_layer else ""
            inv_freq = [float(f"{f:.9g}") for f in getattr(rope, prefix + "inv_freq").tolist()]
            scale = getattr(rope, prefix + "attention_scaling")
            row = {"layer_type": kind or "any", "tokens": tokens, "attention_factor": scale, "inv_freq": inv_freq}
            if 2 * len(inv_freq) != head_dim(config, kind) and settings["model_type"] not in ("glm4", "phi3", "qwen3_5_text"):
                raise ValueError("cosines of another width than the heads")
            assert abs(cos[..., 0, 0].flatten()[0].item() - scale) < 1e-6
            if not any(without(r, "tokens") == without(row, "tokens") for r in rows):
                rows.append(row)
    return rows


def cases(stopped=print):
    for model in (*FLAT, *BY_LAYER):
        base = json.loads((HERE.parent / "models" / model / "model/config.json").read_text())
        base = {k: v for k, v in base.items() if k not in (*ROTARY, "time_step_limit")} | {"max_position_embeddings": CONTEXT}
        pairs = lambda kind: head_dim(CONFIG_MAPPING[base["model_type"]].from_dict(dict(base)), kind) // 2
        by_layer = model in BY_LAYER
        made = layer_cases((pairs("full_attention"), pairs("sliding_attention"))) if by_layer else flat_cases(pairs(None))
        for name, keys in made:
            if model not in DETAILED and "_" in name:
                continue
            case = {"model": model, "name": name, "set": keys}
            try:
                rope = frequencies(base | keys, by_layer)
            except Exception as error:
                stopped(f"{model} {name}: transformers stops: {str(error)[:100]}")
                continue
            refused = refusal(model, name, keys)
            yield case | ({"refused": refused} if refused else {"rope": rope})


if __name__ == "__main__":
    lines = [json.dumps(case) for case in cases()]
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "cases.json"
    out.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{out}: {len(lines)} cases")
