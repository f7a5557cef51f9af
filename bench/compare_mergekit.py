#!/usr/bin/env python3
"""vitrine beside mergekit: linear and slerp of two models and ties of three, in one run, as fresh processes.

usage: compare_mergekit.py --program build/release/vitrine [--mergekit VENV/bin/mergekit-yaml] [--folder DIR] [--rounds 3]
                           [--models gpt2,llama] [--recipes linear,slerp,ties]

The models are of the shape of GPT-2 124M in f32 (0.5 GB each) and of a Llama of 0.52 billion parameters in bf16 (1.0 GB each), with
random weights; they are made in --folder if they are not there (4.7 GB in all; results of up to 1 GB come and go). Each round runs
everybody in turn, with what earlier runs wrote flushed to the disk first and the inputs in the page cache. Printed are medians of

    wall       from the start of the process to its end, imports included
    anonymous  the most RssAnon seen while it ran, which leaves mapped files out, and VmHWM, which counts them
    bytes/s    bytes of the weight files read and written, by wall
    cp         the same for `cp` of one input file to the same disk, and for `cp` and `sync` of that file

Without --mergekit a virtual environment is made with mergekit from PyPI in --venv. mergekit runs with its defaults.
"""
import argparse, json, os, pathlib, shutil, statistics, struct, subprocess, sys, threading, time

from peer import python_with

GPT2 = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12,
            activation_function="gelu_new", layer_norm_epsilon=1e-5, bos_token_id=50256, eos_token_id=50256, tie_word_embeddings=True, dtype="float32")
LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=32000, hidden_size=1280, intermediate_size=3456, num_hidden_layers=22,
             num_attention_heads=20, num_key_value_heads=20, head_dim=64, max_position_embeddings=2048, rms_norm_eps=1e-5, hidden_act="silu",
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, rope_parameters=dict(rope_type="default", rope_theta=10000.0), dtype="bfloat16")
RECIPES = {
    "linear": dict(models=[("ft1", "weight: 0.3"), ("ft2", "weight: 0.9")], method="linear", more=""),
    "slerp": dict(models=[("ft1", ""), ("ft2", "")], method="slerp", more="base_model: {folder}/ft1\nparameters: {{t: 0.35}}\n"),
    "ties": dict(models=[("ft1", "weight: 1.0, density: 0.5"), ("ft2", "weight: 0.6, density: 0.4")], method="ties", more="base_model: {folder}/base\n"),
}


def gpt2_shapes(c):
    d = c["n_embd"]
    yield from {"wte.weight": (c["vocab_size"], d), "wpe.weight": (c["n_positions"], d), "ln_f.weight": (d,), "ln_f.bias": (d,)}.items()
    for i in range(c["n_layer"]):
        for part, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            yield f"h.{i}.{part}.weight", (rows, columns)
            yield f"h.{i}.{part}.bias", (columns,)
        for norm in ("ln_1", "ln_2"):
            yield f"h.{i}.{norm}.weight", (d,)
            yield f"h.{i}.{norm}.bias", (d,)


def llama_shapes(c):
    d, f = c["hidden_size"], c["intermediate_size"]
    yield from {"model.embed_tokens.weight": (c["vocab_size"], d), "lm_head.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}.items()
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (d,)
        for part, shape in {**{f"self_attn.{p}_proj": (d, d) for p in "qkvo"}, "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}.items():
            yield f"{at}{part}.weight", shape


def make_models(folder, config, shapes):
    """base, and ft1 and ft2 near it: the same random numbers and a little noise, written tensor by tensor."""
    import numpy as np
    wide = config["dtype"] == "float32"
    for number, name in enumerate(("base", "ft1", "ft2")):
        out = folder / name
        if (out / "config.json").exists():
            continue
        out.mkdir(parents=True, exist_ok=True)
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        for tensor, shape in shapes:
            size = (4 if wide else 2) * int(np.prod(shape))
            header[tensor] = {"dtype": "F32" if wide else "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(out / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for i, (_, shape) in enumerate(shapes):
                for begin in range(0, int(np.prod(shape)), 1 << 22):
                    n = min(1 << 22, int(np.prod(shape)) - begin)
                    x = np.random.default_rng([7, i, begin]).standard_normal(n, np.float32) * np.float32(0.05)
                    if number:
                        x += np.random.default_rng([7 + number, i, begin]).standard_normal(n, np.float32) * np.float32(0.01)
                    file.write((x if wide else (x.view(np.uint32) + 0x8000 >> 16).astype(np.uint16)).tobytes())
        (out / "config.json").write_text(json.dumps(config, indent=1))  # last: what is there is whole


def measured(command, **more):
    """(seconds, the most anonymous memory, the most memory) of a process, in bytes."""
    os.sync()
    most = [0, 0]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)

    def watch():
        while process.returncode is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            for line in status.splitlines():
                for i, field in enumerate(("RssAnon:", "VmHWM:")):
                    if line.startswith(field):
                        most[i] = max(most[i], int(line.split()[1]) * 1024)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    said = process.communicate()[1]
    took = time.perf_counter() - begin
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{said.decode()[-2000:]}")
    return took, *most


def weights(folder):
    return sum(f.stat().st_size for f in folder.glob("*.safetensors"))


class Contest:
    def __init__(self, options, folder):
        self.options, self.folder, self.out = options, folder, folder / "out"
        self.input = folder / "ft1" / "model.safetensors"

    def recipe(self, name):
        what = RECIPES[name]
        path = self.folder / f"{name}.yml"
        path.write_text("models:\n" + "".join(f"  - model: {self.folder}/{m}\n" + (f"    parameters: {{{p}}}\n" if p else "") for m, p in what["models"])
                        + f"merge_method: {what['method']}\n" + what["more"].format(folder=self.folder) + "dtype: " + ("float32" if "gpt2" in self.folder.name else "bfloat16") + "\n")
        read = [m for m, _ in what["models"]] + (["base"] if "/base" in what["more"] else [])
        return path, sum(weights(self.folder / m) for m in read)

    def merge(self, program, path):
        shutil.rmtree(self.out, ignore_errors=True)
        seen = measured([*program, path, self.out], env={**os.environ, "HF_HUB_OFFLINE": "1"})
        written = weights(self.out)
        shutil.rmtree(self.out)
        return *seen, written

    def copy(self, sync):
        self.out.mkdir(exist_ok=True)
        to = self.out / "copy"
        took = measured(["sh", "-c", f"cp '{self.input}' '{to}'" + (f" && sync '{to}'" if sync else "")])[0]
        shutil.rmtree(self.out)
        return 2 * self.input.stat().st_size / took

    def run(self, name):
        path, read = self.recipe(name)
        for model in ("base", "ft1", "ft2"):
            subprocess.run(["cat", self.folder / model / "model.safetensors"], stdout=subprocess.DEVNULL, check=True)
        who = {"vitrine": lambda: self.merge([self.options.program, "merge"], path), "mergekit": lambda: self.merge([self.options.mergekit], path),
               "cp": lambda: self.copy(False), "cp and sync": lambda: self.copy(True)}
        seen = {w: [] for w in who}
        for r in range(self.options.rounds):
            for w in list(who) if r % 2 == 0 else list(reversed(who)):
                seen[w].append(who[w]())
        middle = lambda w, i: statistics.median(row[i] for row in seen[w])
        moved = read + seen["vitrine"][0][3]
        if seen["vitrine"][0][3] // 2**20 != seen["mergekit"][0][3] // 2**20:
            print(f"  {name}: vitrine wrote {seen['vitrine'][0][3]} bytes, mergekit {seen['mergekit'][0][3]}")
        copies = {w: statistics.median(seen[w]) for w in ("cp", "cp and sync")}
        rate = moved / middle("vitrine", 0)
        print(f"  {name:7} reads {read / 1e9:.2f} GB, writes {seen['vitrine'][0][3] / 1e9:.2f} GB")
        for w in ("vitrine", "mergekit"):
            print(f"          {w:9}{middle(w, 0):8.2f} s  [{min(r[0] for r in seen[w]):.2f} to {max(r[0] for r in seen[w]):.2f}]   {moved / middle(w, 0) / 1e9:6.2f} GB/s   "
                  f"anonymous {middle(w, 1) / 1e6:8.1f} MB, with mapped files {middle(w, 2) / 1e6:8.1f} MB")
        print(f"          mergekit / vitrine: {middle('mergekit', 0) / middle('vitrine', 0):.1f} in time, {middle('mergekit', 1) / max(middle('vitrine', 1), 1):.1f} in anonymous memory")
        print("          " + ", ".join(f"{w} {v / 1e9:.2f} GB/s: vitrine at {100 * rate / v:.0f} %" for w, v in copies.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--mergekit", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/merge_models"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="gpt2,llama")
    parser.add_argument("--recipes", default="linear,slerp,ties")
    parser.add_argument("--venv", default="build/mergekit")
    options = parser.parse_args()
    options.program = options.program.resolve()
    if options.mergekit is None:
        options.mergekit = pathlib.Path(python_with(options.venv, "mergekit==0.1.5")).parent / "mergekit-yaml"
    try:
        import numpy  # noqa: F401
    except ImportError:  # mergekit's environment has it
        python = str(options.mergekit.parent / "python")
        os.execv(python, [python, *sys.argv])
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds, medians")
    for name in options.models.split(","):
        config, shapes = (GPT2, gpt2_shapes) if name == "gpt2" else (LLAMA, llama_shapes)
        folder = (options.folder / name).resolve()
        make_models(folder, config, list(shapes(config)))
        print(f"{name}, {config['dtype']}: {weights(folder / 'ft1') / 1e9:.2f} GB each")
        contest = Contest(options, folder)
        for recipe in options.recipes.split(","):
            contest.run(recipe)


if __name__ == "__main__":
    main()
