#!/usr/bin/env python3
"""Kills merges at random moments, resumes them and compares the result bit for bit; then fills a disk.

usage: kill_merges.py --program build/release/vitrine [--kills 50] [--seed 1] [--folder DIR] [--megabytes 400]

A TIES merge of three random models of --megabytes each is run once undisturbed. Then `vitrine merge` starts, is killed (SIGKILL)
at a random moment of the time that the whole run takes, and goes on with --resume, which half of the times is killed in turn, up
to three times. Nothing that is not whole may have the final name after a kill, and the files must be those of the undisturbed run
in the end, with nothing left beside them.

The disk: a merge into a file system of a third of the result's size (tmpfs; needs root, else it is left out) must end with status
1 and a message that names the disk, leave nothing under the final name, and go on with --resume once there is room.

Exits with 1 if anything of this fails.
"""
import argparse, collections, hashlib, json, os, pathlib, random, shutil, signal, struct, subprocess, sys, tempfile, time

RECIPE = """models:
  - model: ./ft1
    parameters: {density: 0.5, weight: 0.6}
  - model: ./ft2
    parameters: {density: 0.3, weight: 0.4}
merge_method: ties
base_model: ./base
dtype: float32
"""


def make_model(folder, megabytes, seed):
    """Random bytes as bf16 of a Llama, with exponents that make numbers below 2: written piece by piece."""
    d, layers = 1024, max(1, min(8, megabytes // 40))
    vocabulary = max(64, int(megabytes * 1e6 / 2 - layers * (4 * d * d + 3 * d * 2816)) // (2 * d))
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=d, intermediate_size=2816, num_hidden_layers=layers, num_attention_heads=16,
                  num_key_value_heads=16, head_dim=64, vocab_size=vocabulary, max_position_embeddings=2048, rms_norm_eps=1e-6, hidden_act="silu",
                  tie_word_embeddings=False, dtype="bfloat16", rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    shapes = {"model.embed_tokens.weight": (vocabulary, d), "lm_head.weight": (vocabulary, d), "model.norm.weight": (d,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (d,), at + "post_attention_layernorm.weight": (d,),
                       **{at + f"self_attn.{p}_proj.weight": (d, d) for p in "qkvo"},
                       at + "mlp.gate_proj.weight": (2816, d), at + "mlp.up_proj.weight": (2816, d), at + "mlp.down_proj.weight": (d, 2816)})
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    r = random.Random(seed)
    block = bytearray(r.randbytes(1 << 22))
    block[1::2] = bytes(0x3C + (b & 3) + (b & 0x80) for b in block[1::2])  # sign, and exponents of 2^-7 to 2^1
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while offset:
            at = 2 * r.randrange(1 << 20)  # another piece each time, so that no two tensors are the same
            piece = (block[at:] + block[:at])[:offset]
            file.write(piece)
            offset -= len(piece)


def contents(folder):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir()) if f.is_file()}


def clear(folder, out):
    """Removes the result and whatever a stopped run left beside it."""
    for path in folder.iterdir():
        if path.name.startswith((out.name, "." + out.name)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


class Chains:
    def __init__(self, options, folder):
        self.options, self.folder, self.random = options, folder, random.Random(options.seed)
        self.out, self.wrong = folder / "merged", []

    def command(self, *more, out=None):
        return [self.options.program, "merge", "recipe.yml", out or self.out, "--out-shard-size", "100M", *more]

    def merge(self, *more, out=None):
        return subprocess.run(self.command(*more, out=out), cwd=self.folder, capture_output=True, text=True)

    def undisturbed(self):
        times = []
        for _ in range(2):
            clear(self.folder, self.out)
            begin = time.monotonic()
            ran = self.merge()
            times.append(time.monotonic() - begin)
            if ran.returncode != 0:
                sys.exit(f"the undisturbed merge ends with {ran.returncode}: {ran.stderr}")
        self.takes, self.whole = min(times), contents(self.out)
        self.bytes = sum(f.stat().st_size for f in self.out.iterdir())
        return self.takes

    def killed(self, *more):
        """Starts a merge and kills it at a random moment; True if there is no result yet."""
        process = subprocess.Popen(self.command(*more), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.random.uniform(0, 1.1 * self.takes))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode not in (0, -signal.SIGKILL):
            self.wrong.append(f"{' '.join(map(str, more)) or 'a first run'} ended with {process.returncode}")
        if self.out.exists() and contents(self.out) != self.whole:
            self.wrong.append(f"{self.out.name} was there after a kill and not that of an undisturbed run: {', '.join(sorted(os.listdir(self.out)))}")
        return not self.out.exists()  # a run killed between giving the name and its end has done its work

    def run(self):
        kills = chains = finished = 0
        while kills < self.options.kills:
            clear(self.folder, self.out)
            stopped = self.killed()
            kills += stopped
            for _ in range(self.random.choice([0, 0, 0, 1, 2, 3])):
                if stopped:
                    stopped = self.killed("--resume")
                    kills += stopped
            if stopped:
                ran = self.merge("--resume")
                if ran.returncode != 0:
                    self.wrong.append(f"--resume ended with {ran.returncode}: {' '.join(ran.stderr.split())[-300:]}")
                    continue
            else:
                finished += 1
            chains += 1
            seen = contents(self.out)
            if seen != self.whole:
                names = [n for n in sorted(seen.keys() | self.whole.keys()) if seen.get(n) != self.whole.get(n)]
                self.wrong.append(f"after kills and --resume other contents: {', '.join(names)}")
            left = [p.name for p in self.folder.iterdir() if p.name not in ("base", "ft1", "ft2", "recipe.yml", self.out.name)]
            if left:
                self.wrong.append(f"left behind beside the result: {', '.join(left)}")
                for name in left:
                    path = self.folder / name
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"{kills} kills in {chains} chains ({finished} ran to their end before their moment), {len(self.wrong)} failures")

    def full_disk(self):
        size = self.bytes
        disk = self.folder / "disk"
        disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size // 3}", "tmpfs", disk], capture_output=True).returncode != 0:
            print("full disk: left out, this user may not mount a tmpfs")
            return
        try:
            out = disk / "merged"
            ran = self.merge(out=out)
            said = " ".join(ran.stderr.split())
            print(f"full disk: status {ran.returncode}: {said[-300:]}")
            if ran.returncode != 1:
                self.wrong.append(f"full disk: status {ran.returncode}, not 1")
            if not any(word in said.lower() for word in ("disk", "space")):
                self.wrong.append("full disk: the message does not name the disk")
            if out.exists():
                self.wrong.append(f"full disk: {out.name} is there: {sorted(os.listdir(out))}")
            subprocess.run(["mount", "-o", f"remount,size={size * 2}", disk], check=True)
            ran = self.merge("--resume", out=out)
            if ran.returncode != 0:
                ran = self.merge(out=out)
                print(f"full disk: --resume has nothing to go on with; a new run ends with {ran.returncode}")
            if ran.returncode != 0 or contents(out) != self.whole:
                self.wrong.append(f"full disk: with room again, status {ran.returncode} and {'other contents' if out.exists() else 'no result'}: {ran.stderr.strip()[-200:]}")
        finally:
            subprocess.run(["umount", disk], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where models and results go (default: a temporary folder)")
    parser.add_argument("--megabytes", type=int, default=400, help="of each model")
    options = parser.parse_args()
    options.program = options.program.resolve()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        for i, name in enumerate(("base", "ft1", "ft2")):
            make_model(folder / name, options.megabytes, options.seed + i)
        (folder / "recipe.yml").write_text(RECIPE)
        chains = Chains(options, folder)
        print(f"undisturbed: {chains.undisturbed():.2f} s, {len(chains.whole)} files", flush=True)
        chains.run()
        chains.full_disk()
        for what, times in collections.Counter(chains.wrong).items():
            print(f"FAILED {what}" + (f" ({times} times)" if times > 1 else ""))
        sys.exit(1 if chains.wrong else 0)


if __name__ == "__main__":
    main()
