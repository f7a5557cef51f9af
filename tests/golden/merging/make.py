"""Merges of tiny random models made by mergekit, and configurations that it refuses.

usage: make.py [FAMILY ...]      (without names: everything; the folders are made anew)
needs: mergekit 0.1.5 and what it brings (made with torch 2.15.0, transformers 5.24.0, safetensors 0.8.0; CPU, one thread)

Every <family>/ holds
    <model>/                      inputs: a base, relatives of it at different distances, and forms of them (see FORMS)
    cases/<case>.yml              a configuration; model paths are relative to <family>/. A first line `# arguments: ...` holds
                                  options of the command line.
    expected/<case>/              what mergekit writes: config.json and weights, with an index where there are several shards
    refused/<case>.yml            a configuration that mergekit refuses; its first line is the reason that mergekit gave

Three things in expected/ are mergekit's own and need not be met: config.json of a recipe without a base model is that of any of its
models, so that its dtype may not be that of the tensors (mixed_types); a tied base makes a tied model, also of a merge that writes
an output (tied_base); and where dtype has 16 bits, inputs and every step are rounded (bfloat16_*, float16).

llama/ and gpt2/ are older (mergekit 0.1.5 as well): larger models, the most common configurations. tiny_llama/ has a case for
every method, parameter and form of configuration; tiny_gpt2/ and tiny_gemma2/ show what differs between families.

Sizes are odd and small: 9 components, so that every vector has a tail, and a vocabulary that is no multiple of anything.
"""
import os, pathlib, shutil, sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
HERE = pathlib.Path(__file__).resolve().parent
NOISE = [("ft1", 0.05, 1.0), ("ft2", 0.12, 0.5), ("ft3", 0.3, 0.25), ("near", 0.001, 1.0)]  # name, size, share of weights moved
SEED = 20270


def base_config(family):
    from transformers import Gemma2Config, GPT2Config, LlamaConfig
    if family == "tiny_llama":
        return LlamaConfig(vocab_size=25, hidden_size=9, intermediate_size=11, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=4,
                           max_position_embeddings=32, pad_token_id=0, bos_token_id=2, eos_token_id=1)
    if family == "tiny_gpt2":
        return GPT2Config(vocab_size=31, n_positions=13, n_embd=9, n_layer=2, n_head=3, bos_token_id=30, eos_token_id=30,
                          resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return Gemma2Config(vocab_size=37, hidden_size=9, intermediate_size=11, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=4,
                        query_pre_attn_scalar=5, sliding_window=8, max_position_embeddings=32)


def random_weights(parameters, seed, zero_centered_norms):
    """Weights of the size that trained ones have; norms are near one (near zero for Gemma, which adds the one itself)."""
    import torch
    g = torch.Generator().manual_seed(seed)
    for name, p in sorted(parameters):
        n = torch.randn(p.shape, generator=g)
        if p.dim() > 1:
            p.copy_(0.3 * n)
        elif name.endswith("weight"):
            p.copy_(0.1 * n + (0.0 if zero_centered_norms else 1.0))
        else:
            p.copy_(0.05 * n)


def make_models(folder, family):
    import copy, torch
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_config(base_config(family)).float()
    with torch.no_grad():
        random_weights(list(base.named_parameters()), SEED, family == "tiny_gemma2")
        base.save_pretrained(folder / "base")
        for i, (name, size, moved) in enumerate(NOISE):
            model, g = copy.deepcopy(base), torch.Generator().manual_seed(SEED + 100 + i)
            for _, p in sorted(model.named_parameters()):
                p.add_(size * torch.randn(p.shape, generator=g) * (torch.rand(p.shape, generator=g) < moved))
            model.save_pretrained(folder / name)
    for file in folder.glob("*/generation_config.json"):
        file.unlink()
    for name, form in FORMS[family].items():
        form(folder, name)


# Forms of the models above, each a folder of its own.
def read(folder):
    import json
    from safetensors.torch import load_file
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def write(folder, config, weights):
    import json
    from safetensors.torch import save_file
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def as_bf16(source):
    def make(folder, name):
        import torch
        config, weights = read(folder / source)
        write(folder / name, {**config, "dtype": "bfloat16"}, {k: v.to(torch.bfloat16) for k, v in weights.items()})
    return make


def without_head(source):
    """Tied: the embedding is the output as well, and the file has no output matrix."""
    def make(folder, name):
        config, weights = read(folder / source)
        write(folder / name, {**config, "tie_word_embeddings": True}, {k: v for k, v in weights.items() if k != "lm_head.weight"})
    return make


def without_prefix(source):
    """The names of OpenAI's own GPT-2 files, and the masks that these hold beside the weights."""
    def make(folder, name):
        import torch
        config, weights = read(folder / source)
        weights = {k.removeprefix("transformer."): v for k, v in weights.items()}
        for layer in range(config["n_layer"]):
            weights[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, config["n_positions"], config["n_positions"]))
        write(folder / name, config, weights)
    return make


def in_shards(source):
    def make(folder, name):
        from transformers import AutoModelForCausalLM
        AutoModelForCausalLM.from_pretrained(folder / source).save_pretrained(folder / name, max_shard_size="5KB")
        (folder / name / "generation_config.json").unlink(missing_ok=True)
    return make


def with_vocabulary(source, size):
    def make(folder, name):
        config, weights = read(folder / source)
        cut = {k: v[:size] if k in ("model.embed_tokens.weight", "lm_head.weight") else v for k, v in weights.items()}
        write(folder / name, {**config, "vocab_size": size}, cut)
    return make


FORMS = {
    "tiny_llama": {"base_bf16": as_bf16("base"), "ft1_bf16": as_bf16("ft1"), "ft2_bf16": as_bf16("ft2"), "tied": without_head("ft2"),
                   "tied_base": without_head("base"), "shards": in_shards("ft2"), "small_vocabulary": with_vocabulary("ft1", 19)},
    "tiny_gpt2": {"no_prefix": without_prefix("ft2")},
    "tiny_gemma2": {"ft1_bf16": as_bf16("ft1")},
}


def merge(folder, text, out, arguments=()):
    """Runs mergekit as `mergekit-yaml` would inside the folder; raises what it raises."""
    import torch, yaml
    from mergekit.config import MergeConfiguration
    from mergekit.io.tasks import LoaderCache
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions
    torch.set_num_threads(1)
    LoaderCache.loaders.clear()  # they are kept by their relative path
    options = dict(random_seed=1, quiet=True, write_model_card=False, copy_tokenizer=False)
    for key, value in zip(arguments[::2], arguments[1::2]):
        options[key.removeprefix("--").replace("-", "_")] = value
    before = os.getcwd()
    os.chdir(folder)
    try:
        run_merge(MergeConfiguration.model_validate(yaml.safe_load(text)), str(out), MergeOptions(**options))
    finally:
        os.chdir(before)


def arguments_of(text):
    first = text.splitlines()[0]
    return first.removeprefix("# arguments:").split() if first.startswith("# arguments:") else []


def main():
    if os.environ.get("PYTHONHASHSEED") != "0":  # without a base model the configuration is that of the first in a set of models
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path.insert(0, str(HERE))
    from cases import CASES, REFUSED
    for family in sys.argv[1:] or FORMS:
        folder = HERE / family
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("cases", "expected", "refused"):
            (folder / part).mkdir(parents=True)
        make_models(folder, family)
        for name, text in CASES[family].items():
            merge(folder, text, folder / "expected" / name, arguments_of(text))
            (folder / "cases" / f"{name}.yml").write_text(text)
        for name, text in REFUSED.get(family, {}).items():
            try:
                merge(folder, text, folder / "not_refused", arguments_of(text))
            except Exception as error:
                reason = " ".join(str(error).replace(str(folder) + "/", "").split())[:200]
                (folder / "refused" / f"{name}.yml").write_text(f"# {reason}\n{text}")
                shutil.rmtree(folder / "not_refused", ignore_errors=True)
            else:
                sys.exit(f"mergekit does not refuse {family}/{name}")
        print(f"{family}: {len(CASES[family])} merges, {len(REFUSED.get(family, {}))} refused")


if __name__ == "__main__":
    main()
