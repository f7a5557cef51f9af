#!/usr/bin/env python3
"""Text to ids: vitrine beside fastokens, Hugging Face's tokenizers, tiktoken and sentencepiece, on one machine in one run.

usage: compare_tokenizers.py PROGRAM MODEL TEXT [--rounds 7] [--threads 1,2] [--peers fastokens,tokenizers,tiktoken,sentencepiece]
                             [--venv DIR]

Each run is a process of its own, so every call is cold: the tokenizer has just been loaded (not counted) and gets the whole text in one
call. They take turns; printed are the median and the best MB/s, and vitrine's part of each peer's by the medians. Peers use one thread.
Exit code 1 if the ids of one differ from vitrine's. PROGRAM is build/release/bench/bench_tokenizer; MODEL is a folder with a
tokenizer.json, or with vocab.json and merges.txt of GPT-2; tiktoken needs those two, sentencepiece a tokenizer.model. Peers run in a
virtual environment that this script makes (from PyPI) if the one named is not there.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile

from peer import python_with

PEER = r'''
import sys, time, json, numpy
name, model, path, out = sys.argv[1:5]
text = open(path, encoding="utf-8", newline="").read()
if name == "tokenizers":
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(model)
    encode = lambda: t.encode(text, add_special_tokens=False)
    ids_of = lambda result: result.ids
elif name == "fastokens":
    from fastokens import Tokenizer
    t = Tokenizer.from_file(model)
    encode = lambda: t.encode_batch_flat([text])
    ids_of = lambda result: numpy.frombuffer(result[0], numpy.uint32)
elif name == "tiktoken":
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    folder = model.rsplit("/", 1)[0]
    ranks = data_gym_to_mergeable_bpe_ranks(folder + "/merges.txt", folder + "/vocab.json")
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    t = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    encode = lambda: t.encode_to_numpy(text, allowed_special="all")
    ids_of = lambda result: result
elif name == "sentencepiece":
    import sentencepiece
    t = sentencepiece.SentencePieceProcessor(model_file=model.rsplit("/", 1)[0] + "/tokenizer.model")
    encode = lambda: t.encode(text)
    ids_of = lambda result: result
start = time.perf_counter()
result = encode()
seconds = time.perf_counter() - start
ids = numpy.asarray(ids_of(result), dtype=numpy.int32)
ids.tofile(out)
print(json.dumps({"seconds": seconds, "ids": len(ids)}))
'''


FROM_TWO_FILES = r'''
import sys
from tokenizers import Tokenizer, AddedToken, decoders, models, pre_tokenizers
folder = sys.argv[1]
t = Tokenizer(models.BPE.from_file(folder + "/vocab.json", folder + "/merges.txt"))
t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
t.save(folder + "/tokenizer.json")
'''
NEEDS = {"tiktoken": "merges.txt", "sentencepiece": "tokenizer.model"}  # the others: tokenizer.json


def tokenizer_json(model, folder, python):
    """The path of the model's tokenizer.json, beside GPT-2's two files where it is written from those."""
    path = os.path.join(model, "tokenizer.json")
    if os.path.exists(path) or not os.path.exists(os.path.join(model, "merges.txt")):
        return path
    for name in ("vocab.json", "merges.txt"):
        os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(folder, name))
    subprocess.run([python, "-c", FROM_TWO_FILES, folder], check=True)
    return os.path.join(folder, "tokenizer.json")


def run(command):
    environment = dict(os.environ, RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("program", "model", "text"):
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default="fastokens,tokenizers,tiktoken,sentencepiece")
    parser.add_argument("--venv", default="build/tokenizers")
    o = parser.parse_args()
    python = python_with(o.venv, "fastokens", "tokenizers", "tiktoken", "sentencepiece", "numpy")
    megabytes = os.path.getsize(o.text) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        model = tokenizer_json(o.model, folder, python)
        peers = [p for p in o.peers.split(",") if p and os.path.exists(os.path.join(os.path.dirname(model), NEEDS.get(p, "tokenizer.json")))]
        runs = {}
        for threads in o.threads.split(","):
            name = "vitrine" + ("" if threads == "1" else f", {threads} threads")
            runs[name] = lambda out, threads=threads: run([o.program, model, o.text, threads, out])
        for peer in peers:
            runs[peer] = lambda out, peer=peer: run([python, "-c", PEER, peer, model, o.text, out])
        seconds, ids = {name: [] for name in runs}, {}
        for _ in range(o.rounds):
            for name, call in runs.items():
                seconds[name].append(call(os.path.join(folder, "ids"))["seconds"])
                with open(os.path.join(folder, "ids"), "rb") as f:
                    ids[name] = f.read()
    ours = statistics.median(seconds["vitrine"])
    wrong = [name for name in runs if ids[name] != ids["vitrine"]]
    print(f"{megabytes:.1f} MB, {len(ids['vitrine']) // 4} ids, {o.rounds} rounds")
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"{name:22} {megabytes / median:8.1f} MB/s (best {megabytes / min(taken):8.1f}), vitrine {median / ours:6.2f}x"
              f"{', IDS DIFFER' if name in wrong else ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
