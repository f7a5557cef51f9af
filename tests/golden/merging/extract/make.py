"""Adapters that mergekit-extract-lora makes of the tiny models beside this folder.

usage: make.py      (the folder expected/ is made anew)
needs: mergekit 0.1.5 and what it brings (made with torch 2.15.0, transformers 5.24.0, safetensors 0.8.0; CPU, one thread)

    cases.json           by name: the fine-tuned model, its base (folders of ../) and the options
    expected/<case>/     adapter_config.json and adapter_model.safetensors as mergekit writes them

Two things in expected/ are mergekit's own and need not be met: target_modules are last parts of names, also where only some of
the modules of that name are adapted; and the factors of a matrix are unique up to sign and, among equal singular values, rotation,
so that only their product is to be compared.
"""
import json, os, pathlib, shutil

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
HERE = pathlib.Path(__file__).resolve().parent
CASES = {
    "rank3": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "3"]),
    "all_ranks": ("tiny_llama/ft2", "tiny_llama/base", []),
    "scale_in_a": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "2", "--no-distribute-scale"]),
    "embeddings": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "4", "--embed-lora"]),
    # mergekit 0.1.5 stops at --save-module if anything else is to be saved whole.
    "saved": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "2", "--embed-lora", "--skip-undecomposable", "--save-module", "q_proj", "--save-module", "model.layers.1.mlp.up_proj"]),
    "chosen": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "2", "--include-regex", "mlp|o_proj$", "--exclude-regex", r"layers\.1\.", "-e", "embed_tokens|lm_head"]),
    "epsilon": ("tiny_llama/ft2", "tiny_llama/base", ["--sv-epsilon", "0.12"]),
    "skipped": ("tiny_llama/ft1", "tiny_llama/base", ["--max-rank", "2", "--skip-undecomposable"]),
    "bf16": ("tiny_llama/ft1_bf16", "tiny_llama/base_bf16", ["--max-rank", "3"]),
    "same": ("tiny_llama/base", "tiny_llama/base", ["--max-rank", "3"]),
    "small_vocabulary": ("tiny_llama/small_vocabulary", "tiny_llama/base", ["--max-rank", "2", "--embed-lora"]),
    "tied": ("tiny_gemma2/ft1", "tiny_gemma2/base", ["--max-rank", "3"]),
    "tied_embeddings": ("tiny_gemma2/ft1", "tiny_gemma2/base", ["--max-rank", "3", "--embed-lora"]),
}


def main():
    import torch
    from mergekit.io.tasks import LoaderCache
    from mergekit.scripts.extract_lora import main as extract
    torch.set_num_threads(1)
    os.chdir(HERE.parent)
    shutil.rmtree(HERE / "expected", ignore_errors=True)
    for name, (model, base, options) in CASES.items():
        LoaderCache.loaders.clear()  # they are kept by their relative path; one with two parts and no dot would be looked up on the hub
        out = HERE / "expected" / name
        extract(["--model", "./" + model, "--base-model", "./" + base, "--out-path", str(out), "--quiet", *options], standalone_mode=False)
        (out / "README.md").unlink()
        print(name, *sorted(p.name for p in out.iterdir()))
    (HERE / "cases.json").write_text(json.dumps({k: {"model": m, "base": b, "options": o} for k, (m, b, o) in CASES.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
