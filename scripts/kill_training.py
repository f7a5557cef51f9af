#!/usr/bin/env python3
"""Kills every kind of training at random moments, resumes it and compares what it has written bit for bit.

usage: kill_training.py --program build/release/vitrine [--kills 50] [--seed 1] [--only grpo,sae-topk] [--folder DIR]

Each kind of run is done once undisturbed, on a model of 70,000 parameters that is trained here. Then it starts, is killed (SIGKILL, with
everything that it has started) at a random moment of the time that the whole run takes, and goes on with --resume, which may be killed in
turn, until one ends. The kills are shared out evenly. Weights, state, metrics and files' names must be those of the undisturbed run.

Rewards that hang, die, print rubbish or NaN: the run must end with a message and status 1, and go on to the same bits with a command that
works.

Exits with 1 if anything of this fails.
"""
import argparse, collections, csv, hashlib, json, os, pathlib, random, shutil, signal, subprocess, sys, tempfile, time

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
REWARD = f"{sys.executable} {EXAMPLES}/brackets.py reward"
TIMES = ("tokens_per_s", "peak_share", "saved")  # what no run repeats: times, and when the thread that saves was done


def base(model="start/last", data="text/train", **more):
    return dict({"model": model, "data": data if isinstance(data, dict) else {"train": data}, "sequence_length": 24, "batch": 16, "steps": 96, "optimizer": {"lr": 1e-3},
                 "checkpoint": {"every": 7, "keep": 3}, "sample_every": 8, "sample_tokens": 8, "sample_prompts": ["(["]}, **more)


def grpo(**more):
    return dict(base(data="prompts/train", steps=12, batch=32), grpo=dict({"reward": REWARD, "group": 4, "max_tokens": 6}, **more))


PAIRS = dict(data="pairs/train", optimizer={"lr": 1e-3, "weight_decay": 0})
LORA = {"rank": 4, "targets": ["q_proj", "v_proj", "down_proj"]}
TRAIN = {
    "adamw-bf16": base(compute="bf16", ema=0.9, optimizer={"lr": 1e-3, "moments": "bf16"}, recompute=True, average={"last": 2}),
    "muon-cycles": base(optimizer={"name": "muon", "lr": 1e-3, "lr_groups": {"*embed*": 0}}, schedule={"cycles": 2, "warmup_ratio": 0.1}),
    "soap": base(optimizer={"name": "soap", "lr": 1e-3, "frequency": 5}),
    "validated": base(data={"train": "text/train", "validation": "text/valid"}, eval_every=3, early_stopping={"patience": 4}),
    "lora": base(lora=LORA),
    "dora": base(lora=dict(LORA, dora=True, dropout=0.1)),
    "completions": base(data="answers/train"),
    "dpo": base(**PAIRS, dpo={"beta": 0.1}),
    "ipo-lora": base(**PAIRS, dpo={"beta": 0.1, "loss_type": "ipo"}, lora=LORA),
    "cpo": base(**PAIRS, cpo={"beta": 0.1}),
    "simpo": base(**PAIRS, cpo={"beta": 2, "loss_type": "simpo"}),
    "orpo": base(**PAIRS, orpo={"beta": 0.1}),
    "kto": base(data="labels/train", optimizer={"lr": 1e-3, "weight_decay": 0}, kto={"beta": 0.1}, average={"last": 2}),
    "reward-model": base(**PAIRS, reward_model={}, sample_every=None, sample_prompts=None, sample_tokens=None, memory="64 MiB"),
    "reward-model-lora": base(**PAIRS, reward_model={"center_rewards_coefficient": 0.01}, lora=LORA, sample_every=None, sample_prompts=None, sample_tokens=None),
    "grpo": grpo(),
    "grpo-reference": grpo(beta=0.05),
    "grpo-lora": dict(grpo(beta=0.05), lora=LORA),
    "distill": base(model="start/step-20", distill={"teacher": "start/last"}),
}
SAE = {
    "sae-topk": ["--hook", "blocks.0.hook_resid_post", "--k", "8"],
    "sae-matryoshka": ["--hook", "blocks.0.hook_resid_post", "--architecture", "batchtopk", "--k", "8", "--widths", "32,64"],
    "sae-jumprelu": ["--hook", "blocks.0.hook_resid_post", "--architecture", "jumprelu"],
    "sae-gated": ["--hook", "blocks.0.hook_resid_post", "--architecture", "gated"],
    "sae-standard": ["--hook", "blocks.0.hook_resid_post", "--architecture", "standard"],
    "transcoder": ["--hook", "blocks.1.ln2.hook_normalized", "--transcoder", "blocks.1.hook_mlp_out", "--architecture", "jumprelu", "--skip"],
    "cross-layer": ["--hook", "blocks.*.ln2.hook_normalized", "--transcoder", "blocks.*.hook_mlp_out", "--cross-layer", "--architecture", "jumprelu"],
}


def without_times(text):
    head = text.split("\n", 1)[0].split(",")
    if "tokens_per_s" in head:  # of a sweep
        keep = [i for i, name in enumerate(head) if name not in TIMES]
        return "\n".join(",".join(str(row[i]) for i in keep) for row in csv.reader(text.splitlines()))
    lines = []
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            return text
        lines.append(json.dumps({k: v for k, v in values.items() if k not in TIMES}) if isinstance(values, dict) else line)
    return "\n".join(lines)


def contents(folder):
    """What each file under the folder holds, but for times and for the folder's own name."""
    all_ = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            all_[name] = os.readlink(path)
        elif path.is_file():
            data = path.read_bytes()
            if path.suffix in (".jsonl", ".json", ".yaml", ".csv"):
                data = without_times(data.decode().replace(folder.name, "OUT")).encode()
            all_[name] = hashlib.sha256(data).hexdigest()
    return all_


class Kinds:
    def __init__(self, options, folder):
        self.options, self.folder, self.random, self.wrong = options, folder, random.Random(options.seed), []
        self.kills = 0

    def run(self, *words):
        ran = subprocess.run([self.options.program, *words], cwd=self.folder, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"vitrine {' '.join(map(str, words))[:200]} ends with {ran.returncode}: {' '.join(ran.stderr.split())[-400:]}")

    def prepare(self):
        folder, example = self.folder, [sys.executable, EXAMPLES / "brackets.py"]
        prompts = subprocess.run([*example, "prompts"], capture_output=True, text=True, check=True).stdout.splitlines()[:256]
        lines = [json.loads(line) for line in prompts]
        (folder / "text.txt").write_text("".join(f"{one['prompt']}{one['answer']}.\n" for _ in range(8) for one in lines))
        (folder / "prompts.jsonl").write_text("\n".join(prompts))
        (folder / "answers.jsonl").write_text("\n".join(json.dumps({"prompt": one["prompt"], "completion": one["answer"] + "."}) for one in lines))
        (folder / "pairs.jsonl").write_text("\n".join(json.dumps({"prompt": one["prompt"], "chosen": one["answer"] + ".", "rejected": one["answer"][::-1] + "(."}) for one in lines))
        shutil.copy(folder / "pairs.jsonl", folder / "labels.jsonl")
        self.run("data", "text.txt", "--document", "\\n", "--tokenizer", "characters", "--valid", "0.1", "--out", "text")
        config = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=16, max_position_embeddings=32, eos_token_id=2)
        self.write("start", dict(model={"config": config, "tokenizer": "text"}, data={"train": "text/train"}, sequence_length=24, batch=16, steps=40, checkpoint={"every": 20, "keep": 5},
                                 optimizer={"lr": 3e-3}))
        self.run("train", "start.json")
        for name, form in (("prompts", "--prompts"), ("answers", "--chat"), ("pairs", "--preferences"), ("labels", "--unpaired-preferences")):
            self.run("data", f"{name}.jsonl", form, "--tokenizer", "start/last", "--out", name)
        self.run("collect", "--model", "start/last", "text.txt", "--document", "\\n", "--hooks", "blocks.*.hook_resid_post", "--hooks", "blocks.*.ln2.hook_normalized",
                 "--hooks", "blocks.*.hook_mlp_out", "--context", "24", "--out", "values")

    def write(self, name, config):
        (self.folder / f"{name}.json").write_text(json.dumps(dict(config, out=name)))

    def command(self, kind, out):
        if kind == "sweep":
            self.write(out, base(steps=24))
            (self.folder / "sweep.yaml").write_text("product: {optimizer.lr: [1e-3, 2e-3], ema: [null, 0.9]}\n")
            return ["train", f"{out}.json", "--sweep", "sweep.yaml"]
        if kind in TRAIN:
            self.write(out, TRAIN[kind])
            return ["distill" if kind == "distill" else "train", f"{out}.json"]
        if kind == "collect":
            return ["collect", "--model", "start/last", "text.txt", "--document", "\\n", "--hooks", "blocks.*.hook_resid_post", "--shard-mb", "1", "--context", "24", "--out", out]
        return ["sae", "train", "values", *SAE[kind], "--features", "96", "--batch", "512", "--steps", "400", "--save-every", "20", "--dead-window", "20", "--out", out]

    def killed(self, words, takes):
        """Kills a run and what it has started at a random moment. True if it was still running."""
        process = subprocess.Popen([self.options.program, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            said = process.communicate(timeout=self.random.uniform(0, takes))[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        if process.returncode != 0:
            raise RuntimeError(f"ended with {process.returncode}: {' '.join(said.split())[-300:]}")
        return False

    def same(self, kind, what):
        whole, seen = contents(self.folder / "whole-run"), contents(self.folder / "killed-run")
        whole, seen = ({k.replace("whole-run", "OUT"): v for k, v in one.items()} for one in (whole, seen))
        names = [n for n in sorted(seen.keys() | whole.keys()) if seen.get(n) != whole.get(n)]
        if names and self.options.folder:
            shutil.copytree(self.folder, pathlib.Path(self.options.folder) / f"failed-{kind}-{len(self.wrong)}", symlinks=True)
        if names:
            self.wrong.append(f"{kind}: {what}: other contents: {', '.join(names[:6])}")

    def clear(self, *names):
        for name in names:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def chain(self, kind, kills):
        self.clear("whole-run", "killed-run")
        begin = time.monotonic()
        self.run(*self.command(kind, "whole-run"))
        takes = time.monotonic() - begin
        words, done = self.command(kind, "killed-run"), 0
        while done < kills:
            # Now and then from nothing, where nothing is there to resume; most of the time from what the kills before have left.
            if not self.killed([*words, "--resume"] if (self.folder / "killed-run").exists() else words, takes):
                self.same(kind, f"after {done} kills")
                self.clear("killed-run")
                continue
            done += 1
        self.run(*words, *(["--resume"] if (self.folder / "killed-run").exists() else []))
        self.same(kind, f"after {done} kills")
        self.kills += done
        print(f"{kind:16} {takes:5.2f} s, {done} kills", flush=True)

    def rewards(self):
        """Commands that fail at the third step."""
        (self.folder / "reward.sh").write_text('n=$(cat calls 2>/dev/null || echo 0); echo $((n + 1)) > calls\nif [ "$n" -ge 2 ]; then eval "$1"; else exec ' + REWARD + "; fi\n")
        self.clear("whole-run")
        config = dict(grpo(reward_timeout=2), checkpoint={"every": 7, "keep": 2})
        self.write("whole-run", config)
        self.run("train", "whole-run.json")
        for what, bad in dict(hangs="sleep 1000", dies="kill -9 $$", ends="exit 0", fails="exit 3", rubbish="yes rubbish | head -40", nan="yes nan | head -32", null="yes null | head -32",
                              much="yes 0.5 | head -100000", one="echo 1", silent="exec >&-; cat > /dev/null", deaf="exec <&-; yes 0.5 | head -31").items():
            self.clear("killed-run")
            (self.folder / "calls").unlink(missing_ok=True)
            self.write("killed-run", dict(config, grpo=dict(config["grpo"], reward=f"sh reward.sh '{bad}'")))
            ran = subprocess.run([self.options.program, "train", "killed-run.json"], cwd=self.folder, capture_output=True, text=True, timeout=600)
            said = " ".join(ran.stderr.split())
            print(f"reward {what}: status {ran.returncode}: {said[-160:]}", flush=True)
            if ran.returncode != 1 or "reward" not in said:
                self.wrong.append(f"a reward that {what}: status {ran.returncode}: {said[-200:]}")
                continue
            self.write("killed-run", config)
            try:
                self.run("train", "killed-run.json", "--resume")
                self.same(f"a reward that {what}", "with one that works")
            except RuntimeError as error:
                self.wrong.append(f"a reward that {what}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=50, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="kinds of runs, with commas between them; default: all")
    parser.add_argument("--folder", help="where everything goes (default: a temporary folder)")
    options = parser.parse_args()
    options.program = options.program.resolve()
    kinds = [*TRAIN, "sweep", *SAE, "collect"]
    if options.only:
        kinds = options.only.split(",")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        all_ = Kinds(options, pathlib.Path(folder))
        all_.prepare()
        for i, kind in enumerate(kinds):
            if kind == "rewards":
                continue
            try:
                all_.chain(kind, options.kills * (i + 1) // len(kinds) - options.kills * i // len(kinds))
            except RuntimeError as error:
                all_.wrong.append(f"{kind}: {error}")
        if not options.only or "rewards" in kinds:
            all_.rewards()
        print(f"{all_.kills} kills, {len(all_.wrong)} failures")
        for what, times in collections.Counter(all_.wrong).items():
            print(f"FAILED {what}" + (f" ({times} times)" if times > 1 else ""))
        sys.exit(1 if all_.wrong else 0)


if __name__ == "__main__":
    main()
