#!/usr/bin/env python3
"""Vocabularies: vitrine beside Hugging Face's tokenizers and sentencepiece, on one machine in one run.

usage: compare_tokenizer_training.py PROGRAM TEXT [--sizes 8000,32000] [--rounds 3] [--threads N]

Each trainer builds its vocabulary in a process of its own, taking turns; printed are the medians of the seconds (reading the text
included, starting Python not), the peak memory of the process, and whether the vocabularies are equal: byte-bpe piece by piece and
merge by merge with tokenizers, sentencepiece-bpe piece by piece and by the ids of the first megabyte with sentencepiece. Exit
code 1 if one differs. PROGRAM is build/release/vitrine; the Python that runs this needs tokenizers and sentencepiece.
"""
import argparse, concurrent.futures, json, os, statistics, subprocess, sys, tempfile

HF = r'''
import sys, time, json, resource
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
text, size, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
start = time.perf_counter()
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
MODE
seconds = time.perf_counter() - start
t.save(out + "/tokenizer.json")
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
'''
# As one text the vocabulary is ours; as a file, which it reads line by line, it is at its fastest.
HF_TEXT = HF.replace("MODE", 't.train_from_iterator([open(text, newline="").read()], trainer)')
HF_FILE = HF.replace("MODE", "t.train([text], trainer)")
SENTENCEPIECE = r'''
import sys, time, json, resource, sentencepiece
text, size, out, threads = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
start = time.perf_counter()
sentencepiece.SentencePieceTrainer.train(
    input=text, model_prefix=out + "/sp", model_type="bpe", vocab_size=size, byte_fallback=True, normalization_rule_name="identity",
    remove_extra_whitespaces=False, add_dummy_prefix=False, max_sentence_length=1 << 20, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
    pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>", num_threads=threads, minloglevel=2)
print(json.dumps([time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
'''


def run_python(code, *words):
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_vitrine(program, text, size, kind, out, threads):
    command = [program, "tokenizer", "train", text, "--vocab-size", str(size), "--kind", kind, "--out", out, "--overwrite", "--json",
               "--threads", str(threads)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    answer = json.loads(child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return [answer["seconds"], usage.ru_maxrss / 1024]


def byte_bpe_equal(ours, theirs):
    a, b = (json.load(open(path + "/tokenizer.json"))["model"] for path in (ours, theirs))
    merges = lambda m: [x if isinstance(x, list) else x.split(" ") for x in m["merges"]]
    return a["vocab"] == b["vocab"] and merges(a) == merges(b), merges(a)[0]


def sentencepiece_equal(ours, theirs, program, text):
    import sentencepiece
    from tokenizers import Tokenizer
    a, b = (sentencepiece.SentencePieceProcessor(model_file=path) for path in (ours + "/tokenizer.model", theirs + "/sp.model"))
    same = [a.id_to_piece(i) for i in range(a.get_piece_size())] == [b.id_to_piece(i) for i in range(b.get_piece_size())]
    first = open(text, newline="", encoding="utf-8", errors="replace").read(1 << 20)
    with tempfile.NamedTemporaryFile("w", newline="", suffix=".txt") as f:
        f.write(first)
        f.flush()
        answer = subprocess.run([program, "tokenize", "--json", "--no-special", "--file", f.name, "--model", ours + "/tokenizer.model"],
                                check=True, capture_output=True, text=True)
    ids = b.encode(first)
    hf = Tokenizer.from_file(ours + "/tokenizer.json").encode(first, add_special_tokens=False).ids
    return same and ids == a.encode(first) == hf == json.loads(answer.stdout)["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text")
    parser.add_argument("--sizes", default="8000,32000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    o = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(o.threads)
    equal = True
    megabytes = os.path.getsize(o.text) / 1e6
    print(f"{o.text}: {megabytes:.1f} MB, {o.threads} threads, {o.rounds} rounds")
    print(f"{'pieces':>7}  {'trainer':<28}  {'seconds':>8}  {'MB/s':>7}  {'peak MB':>7}")
    for size in map(int, o.sizes.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            folder = lambda name: os.makedirs(os.path.join(scratch, name), exist_ok=True) or os.path.join(scratch, name)
            trainers = {
                "vitrine byte-bpe": lambda: run_vitrine(o.program, o.text, size, "byte-bpe", folder("bytes"), o.threads),
                "tokenizers, one text": lambda: run_python(HF_TEXT, o.text, size, folder("hf")),
                "tokenizers, file": lambda: run_python(HF_FILE, o.text, size, folder("hf_file")),
                "vitrine sentencepiece-bpe": lambda: run_vitrine(o.program, o.text, size, "sentencepiece-bpe", folder("pieces"), o.threads),
                "sentencepiece": lambda: run_python(SENTENCEPIECE, o.text, size, folder("sp"), o.threads),
            }
            results = {name: [] for name in trainers}
            for round_number in range(o.rounds):
                names = list(trainers)
                for name in names if round_number % 2 == 0 else reversed(names):
                    results[name].append(trainers[name]())
            seconds = {name: statistics.median(r[0] for r in rows) for name, rows in results.items()}
            for name, rows in results.items():
                print(f"{size:>7}  {name:<28}  {seconds[name]:>8.3f}  {megabytes / seconds[name]:>7.1f}  {max(r[1] for r in rows):>7.0f}")
            fastest = min(v for name, v in seconds.items() if not name.startswith("vitrine"))
            with concurrent.futures.ProcessPoolExecutor(1) as apart:  # a child's peak memory is never below its parent's
                same_bytes, first = apart.submit(byte_bpe_equal, folder("bytes"), folder("hf")).result()
                same_pieces = apart.submit(sentencepiece_equal, folder("pieces"), folder("sp"), o.program, o.text).result()
            equal = equal and same_bytes and same_pieces
            print(f"         the fastest other takes {fastest / seconds['vitrine byte-bpe']:.1f} times as long as byte-bpe, "
                  f"{fastest / seconds['vitrine sentencepiece-bpe']:.1f} times as long as sentencepiece-bpe")
            print(f"         byte-bpe {'equals' if same_bytes else 'DIFFERS FROM'} tokenizers, sentencepiece-bpe "
                  f"{'equals' if same_pieces else 'DIFFERS FROM'} sentencepiece; the first merge is {' + '.join(first)}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
