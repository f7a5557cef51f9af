#!/usr/bin/env python3
"""vitrine beside TransformerLens: a GPT-2's run with its intermediates kept (run_with_cache), in one run.

usage: compare_transformer_lens.py BENCH_CAPTURE VITRINE MODEL_DIRECTORY [--tokens 128] [--rounds 3] [--venv DIR] [--ours FILE]

MODEL_DIRECTORY holds a Hugging Face GPT-2 (f32 or bf16); --ours names another file of the same model for our side's timing, such
as a Q8_0 GGUF. Both keep the same hooks, those that version 2 keeps by default. TransformerLens always runs in f32. Values are compared first, hook
by hook; then each side is timed in turn, and medians, their ratio and the ratio of the peak memories are printed.
TransformerLens runs in a virtual environment that this script makes (from PyPI) if the one named is not there.
"""
import argparse, json, os, statistics, subprocess, tempfile

from peer import last_json, python_with

PEER = r'''
import sys, json, time, os, resource
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, importlib.metadata
from transformers import AutoModelForCausalLM
path, tokens, repeat, threads, check = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(threads)
hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
c = hf.config
before_weight = True  # what a norm's hook_normalized shows
try:  # 4 and later: hooks around the Hugging Face model
    from transformer_lens.model_bridge import TransformerBridge
    model = TransformerBridge.boot_transformers(path, hf_model=hf, dtype=torch.float32)
    model.enable_compatibility_mode(no_processing=True)
except ImportError:  # before: its own model
    before_weight = False
    import transformer_lens as tl
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
    cfg = tl.HookedTransformerConfig(n_layers=c.n_layer, d_model=c.n_embd, n_ctx=c.n_positions, d_head=c.n_embd // c.n_head,
        n_heads=c.n_head, d_mlp=c.n_inner or 4 * c.n_embd, d_vocab=c.vocab_size, act_fn="gelu_new", normalization_type="LN",
        eps=c.layer_norm_epsilon, original_architecture="GPT2LMHeadModel", dtype=torch.float32, device="cpu", default_prepend_bos=False)
    model = tl.HookedTransformer(cfg)
    model.load_state_dict(convert_gpt2_weights(hf, cfg), strict=False)
    model.eval()
    del hf
layer = {"hook_resid_pre", "ln1.hook_scale", "ln1.hook_normalized", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_attn_scores",
    "attn.hook_pattern", "attn.hook_z", "hook_attn_out", "hook_resid_mid", "ln2.hook_scale", "ln2.hook_normalized", "mlp.hook_pre",
    "mlp.hook_post", "hook_mlp_out", "hook_resid_post"}
wanted = {"hook_embed", "hook_pos_embed", "ln_final.hook_scale", "ln_final.hook_normalized"}
keep = lambda name: name in wanted or (name.startswith("blocks.") and name.split(".", 2)[2] in layer)
ids = torch.tensor([[(i * 7919 + 13) % c.vocab_size for i in range(tokens)]])
took = []
with torch.inference_mode():
    for r in range(repeat + 1):
        t = time.perf_counter()
        logits, cache = model.run_with_cache(ids, names_filter=keep)
        if r: took.append((time.perf_counter() - t) * 1000)
    if check != "-":
        from safetensors.torch import load_file
        ours, worst = load_file(check), ("", 0.0)
        compared = [n for n in ours if keep(n)]
        for name, x in [(n, cache[n]) for n in compared] + [("hook_logits", logits)]:
            x, y = x[0], ours[name + '_pre' if before_weight and name.endswith('hook_normalized') else name]
            finite = torch.isfinite(y) & torch.isfinite(x) & (x > -1e4)
            d = ((x - y)[finite].abs() / (2e-5 + 1e-4 * x[finite].abs())).max().item()
            if d > worst[1]: worst = (name, d)
        print(json.dumps({"compared": len(compared) + 1, "worst": worst[0], "of_tolerance": worst[1]}))
        sys.exit()
took.sort()
print(json.dumps({"ms": took[len(took) // 2], "least_ms": took[0], "kept": len(cache) + 1,
    "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    "version": importlib.metadata.version("transformer-lens"), "torch": torch.__version__}))
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_capture")
    parser.add_argument("vitrine")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5, help="measurements within a round")
    parser.add_argument("--ours", help="the file our side is timed on, if not MODEL_DIRECTORY")
    parser.add_argument("--venv", default="build/transformer_lens")
    parser.add_argument("--json", action="store_true", help="print one JSON object last: medians in ms")
    a = parser.parse_args()
    python = python_with(a.venv, "transformer-lens", "safetensors")
    threads = len(os.sched_getaffinity(0))
    peer = lambda check: last_json([python, "-c", PEER, a.model, str(a.tokens), str(a.repeat), str(threads), check])
    with tempfile.TemporaryDirectory() as folder:
        vocab = json.load(open(os.path.join(a.model, "config.json")))["vocab_size"]
        ids = ",".join(str((i * 7919 + 13) % vocab) for i in range(a.tokens))
        out = os.path.join(folder, "trace.safetensors")
        subprocess.run([a.vitrine, "trace", "--model", a.model, "--tokens", ids, "--hooks", "*", "--compute", "f32", "--out", out],
                       check=True, stdout=subprocess.DEVNULL)
        same = peer(out)
    print(f"{a.model}: {same['compared']} tensors compared, the farthest ({same['worst']}) at {same['of_tolerance']:.2f} of 2e-5 + 1e-4 relative")
    run = {"vitrine": lambda: last_json([a.bench_capture, a.ours or a.model, "--tokens", str(a.tokens), "--repeat", str(a.repeat)]), "peer": lambda: peer("-")}
    seen = {"vitrine": [], "peer": []}
    for r in range(a.rounds):
        for who in (("vitrine", "peer") if r % 2 == 0 else ("peer", "vitrine")):
            seen[who].append(run[who]())
    ours, lens = seen["vitrine"], seen["peer"]
    ms = {who: statistics.median(r["ms"] for r in rows) for who, rows in seen.items()}
    print(f"  transformer-lens {lens[0]['version']}, torch {lens[0]['torch']}, kernels {ours[0]['kernels']}, {threads} threads, "
          f"{a.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"  {a.tokens} tokens, kept {ours[0]['kept']} and {lens[0]['kept']}: vitrine {ms['vitrine']:.1f} ms, TransformerLens {ms['peer']:.1f} ms, "
          f"ratio {ms['peer'] / ms['vitrine']:.2f}")
    print(f"  peak memory {ours[0]['peak_gb']:.3f} and {lens[0]['peak_gb']:.3f} GB: {100 * ours[0]['peak_gb'] / lens[0]['peak_gb']:.0f} %")
    if a.json:
        print(json.dumps({"vitrine": ms["vitrine"], "peer": ms["peer"]}))


if __name__ == "__main__":
    main()
