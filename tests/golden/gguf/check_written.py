"""What vitrine makes of GGUF files, opened by transformers, tokenizers and sentencepiece: logits and ids must be the same.

usage: check_written.py VITRINE_PROGRAM
needs: what make.py needs, and tokenizers (run with gguf 0.19.0, torch 2.15.0, transformers 5.23.0, tokenizers 0.23.3,
    sentencepiece 0.2.3)

For every file of this folder: the logits of AutoModelForCausalLM on what `vitrine convert` wrote, and on the checkpoint of a short
run of `vitrine train` that began with the file, against vitrine's own. For every way to cut words that the reader knows and for
three SentencePiece vocabularies: the ids of AutoTokenizer and of the library that the file belongs to, on odd texts, against
those of the GGUF file. AutoTokenizer runs a tokenizer.model by rules of its own, which are SentencePiece's for most texts: "▁" in
the text, and with a space put in front also spaces there and control tokens, are left out. Exit code 1 if anything differs.
"""
import json, pathlib, shutil, subprocess, sys, tempfile
import gguf
import sentencepiece
import tokenizers
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import make

torch.set_num_threads(1)
VITRINE = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
IDS = [5, 9, 17, 33, 8, 21, 40, 11, 60, 34, 7, 19]
PRE = ["gpt-2", "llama-bpe", "dbrx", "qwen2", "qwen35", "gpt-4o", "tekken", "falcon", "starcoder", "deepseek-coder", "deepseek-v3", "default"]
TEXTS = ["", " ", "a", " a", "a ", "  two  spaces   here", "\n", "\n\n x\t\ty \r\n", "I'll say it's 1234567 o'clock, isn't IT?", "naïve café \u00e9 e\u0301",
         "東京タワーとカタカナ 北京 서울", "Привет, мир! Ёлка", "😀👩‍👩‍👧‍👦 🇺🇳", "x" * 70, "=== !!! ``` $$$ <=> a+b^c~d|e", "\u00a0no-break\u2003wide", "\u0000\u0001\u007f", "don't you'RE WE'VE",
         "/path/to_file.txt?a=b&c=%20", "CamelCaseAndHTML5tags", "١٢٣ ⅷ ½ ²", "ﬁ ﬂ \ufeff", "\u200b\u200d", "▁under ▁▁ score", "<s> </s> [PAD] <0x0A>", "once upon a time there was a cat"]
failed = False


def run(*arguments):
    done = subprocess.run([VITRINE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"vitrine {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def say(good, what):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'WRONG'}  {what}")


def our_logits(folder, model):
    run("trace", "--tokens", ",".join(map(str, IDS)), "--hooks", "hook_logits", "--compute", "f32", "--out", folder / "trace.safetensors", "--model", model)
    return load_file(folder / "trace.safetensors")["hook_logits"]


def their_logits(directory):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


def compare(what, ours, theirs):
    beyond = float(((ours - theirs).abs() - 1e-4 * theirs.abs()).max())
    say(beyond <= 2e-5, f"{what}: logits within {beyond:.1e} + 1e-4 relative, allowed 2e-05")


def our_ids(folder, model, special):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    out = run("tokenize", "--jsonl", folder / "texts.jsonl", "--model", model, "--special", special)
    return [json.loads(line)["tokens"] for line in out.splitlines()]


def check_models(folder):
    (folder / "text.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 80)
    for path in sorted(HERE.glob("*.gguf")):
        name = path.stem
        run("convert", path, folder / name, "--dtype", "f32")
        compare(f"convert {name}", our_logits(folder, path), their_logits(folder / name))
        if name not in ("gpt2_a", "gemma2", "llama", "llama_q4_0"):
            continue
        run("data", folder / "text.txt", "--tokenizer", path, "--out", folder / f"data-{name}")
        (folder / "run.yaml").write_text(
            f"model: {path}\ndata: {{train: {folder / f'data-{name}/train'}}}\nsequence_length: 16\nbatch: 4\nsteps: 5\n"
            f"optimizer: {{name: adamw, lr: 1e-3}}\nschedule: {{decay: constant}}\nout: {folder / f'run-{name}'}\n")
        run("train", folder / "run.yaml")
        last = folder / f"run-{name}/last"
        compare(f"train from {name}", our_logits(folder, last), their_logits(last))
        moved = float((our_logits(folder, path) - our_logits(folder, last)).abs().max())
        say(moved > 1e-2, f"train from {name}: it learned, logits moved by {moved:.2g}")


def check_ids(folder, what, path):
    directory = folder / what
    run("convert", path, directory)
    parsed, typed = our_ids(folder, path, "parse"), our_ids(folder, path, "text")
    say(our_ids(folder, directory, "parse") == parsed and our_ids(folder, directory, "text") == typed, f"{what}: the directory's ids in vitrine are the file's")
    auto = AutoTokenizer.from_pretrained(directory)
    theirs = {"transformers": ([auto(t).input_ids for t in TEXTS], parsed)}
    odd = lambda t: False
    if (directory / "tokenizer.json").exists():
        fast = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        theirs["tokenizers"] = ([fast.encode(t).ids for t in TEXTS], parsed)
    else:
        sp = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        prefix = json.loads((directory / "tokenizer_config.json").read_text())["tokenizer_class"] == "LlamaTokenizer"
        odd = lambda t: "▁" in t or prefix and (t.startswith(" ") or "<s>" in t)
        bos = [sp.bos_id()] if json.loads((directory / "tokenizer_config.json").read_text())["add_bos_token"] else []
        theirs["sentencepiece"] = ([bos + sp.encode(t) for t in TEXTS], our_ids(folder, path, "text"))
    for who, (got, want) in theirs.items():
        wrong = [t for t, g, w in zip(TEXTS, got, want) if g != w and not (who == "transformers" and odd(t))]
        say(not wrong, f"{what}: ids of {who} on {len(TEXTS)} texts" + (f", other for {wrong!r}" if wrong else ""))


def check_tokenizers(folder):
    plain = gguf.GGUFWriter.add_tokenizer_pre
    for pre in PRE:
        gguf.GGUFWriter.add_tokenizer_pre = lambda self, _: plain(self, pre)
        make.write(folder / f"pre-{pre}.gguf", make.MODELS / "gpt2_a/model")
        check_ids(folder, f"{pre}-words", folder / f"pre-{pre}.gguf")
    gguf.GGUFWriter.add_tokenizer_pre = plain
    for name, model in (("spm", None), ("spm_prefix", "spm_llama.model"), ("spm_whole", HERE.parent / "tokenizers/gemma/tokenizer.model")):
        shutil.copytree(make.MODELS / "llama/model", folder / "source", dirs_exist_ok=True)
        if model:
            shutil.copy(HERE.parent / "tokenizers/variants" / model, folder / "source/tokenizer.model")
        make.write(folder / f"{name}.gguf", folder / "source")
        check_ids(folder, name, folder / f"{name}.gguf")


with tempfile.TemporaryDirectory() as temporary:
    check_models(pathlib.Path(temporary))
    check_tokenizers(pathlib.Path(temporary))
sys.exit(failed)
