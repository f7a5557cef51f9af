#!/usr/bin/env python3
"""Vocabularies trained by Hugging Face's tokenizers and by sentencepiece on the texts beside this script.

usage: make.py            writes runs.txt, pieces.txt and expected.json; versions are in the latter
shakespeare.txt: the first 40,000 bytes of tinyshakespeare. world.txt: sentences of the Universal Declaration of Human Rights
and of programs in many scripts, one a line, as in tokenizers/gpt2.jsonl. runs.txt: short words of few letters and long runs
of one letter, in which one string can be merged in several ways. pieces.txt: words and rare characters between spelled pieces.
"""
import io, json, os, random
import sentencepiece, tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def write_runs():
    rng = random.Random(7)
    words = []
    for _ in range(900):
        kind = rng.random()
        if kind < 0.5:
            words.append("".join(rng.choice("aab") for _ in range(rng.randint(1, 9))))
        elif kind < 0.8:
            words.append(rng.choice("a-.x") * rng.randint(1, 40))
        else:
            words.append(rng.choice(["x" + "a" * rng.randint(1, 12), "a" * rng.randint(1, 12) + "b", "don't", "12 345", "  \t "]))
        words.append(rng.choice([" ", " ", " ", "  ", "\n", "\n\n", "   \n"]))
    open("runs.txt", "w").write("".join(words))


def write_pieces():
    rng = random.Random(8)
    words = []
    for i in range(900):
        words.append(rng.choice(["the", "thing", "other", "height", "<x>", "<x><x>", "a<x>b", "<0x41>", "<unk>", "<turn>", "\x1f", "t\x1fh"]))
        if i % 9 == 0:
            words[-1] += chr(0x3B1 + int(24 * rng.random() ** 3))
        words.append(rng.choice([" ", " ", "\n"]))
    open("pieces.txt", "w").write("".join(words))


def byte_bpe(case):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=case["vocab_size"], min_frequency=case.get("min_frequency", 0), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=case.get("special", []))
    t.train_from_iterator([open(case["text"], newline="").read()], trainer)
    model = json.loads(t.to_str())["model"]
    merges = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    assert [model["vocab"][p] for p in pieces] == list(range(len(pieces)))
    return {"pieces": pieces, "merges": [" ".join(m) for m in merges]}


def sentencepiece_bpe(case):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=case["text"], model_writer=out, model_type="bpe", vocab_size=case["vocab_size"], hard_vocab_limit=False,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
        normalization_rule_name="identity", remove_extra_whitespaces=False, max_sentence_length=1000000, minloglevel=2,
        character_coverage=case.get("character_coverage", 0.9995), byte_fallback=case.get("byte_fallback", True),
        split_digits=case.get("split_digits", False), add_dummy_prefix=case.get("dummy_prefix", False),
        allow_whitespace_only_pieces=case.get("whitespace_pieces", False), control_symbols=case.get("special", []),
        user_defined_symbols=case.get("user_defined", []))
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    n = sp.get_piece_size()
    return {"pieces": [sp.id_to_piece(i) for i in range(n)], "scores": [sp.get_score(i) for i in range(n)]}


BYTE = [
    {"text": "shakespeare.txt", "vocab_size": 400},
    {"text": "shakespeare.txt", "vocab_size": 2000, "special": ["<|endoftext|>", "<pad>"], "min_frequency": 2},
    {"text": "shakespeare.txt", "vocab_size": 600, "special": ["the", "!", "a b"]},
    {"text": "shakespeare.txt", "vocab_size": 100000, "min_frequency": 9},
    {"text": "world.txt", "vocab_size": 1500},
    {"text": "runs.txt", "vocab_size": 330},
    {"text": "runs.txt", "vocab_size": 2000},
    # Merges that spell a token that was there before, whose pairs may have been too rare until then:
    {"text": "shakespeare.txt", "vocab_size": 1500, "special": ["the", "an", "he", "ing", "er", "ou", "our", "st", "ll", "ve"]},
    {"text": "runs.txt", "vocab_size": 500, "special": ["aa", "b", "aab", "xx", "a-", "ba"]},
]
SENTENCEPIECE = [
    {"text": "shakespeare.txt", "vocab_size": 700},
    {"text": "shakespeare.txt", "vocab_size": 1500, "dummy_prefix": True, "byte_fallback": False, "character_coverage": 1.0},
    {"text": "shakespeare.txt", "vocab_size": 900, "special": ["<turn>", "First"], "user_defined": ["\n", "king", "▁the"]},
    {"text": "world.txt", "vocab_size": 1500, "character_coverage": 0.98},
    {"text": "world.txt", "vocab_size": 2500, "character_coverage": 1.0, "split_digits": True, "dummy_prefix": True},
    {"text": "runs.txt", "vocab_size": 400},
    {"text": "runs.txt", "vocab_size": 330, "whitespace_pieces": True},
    {"text": "pieces.txt", "vocab_size": 285, "special": ["<turn>"], "user_defined": ["<x>"], "character_coverage": 0.98},
    {"text": "pieces.txt", "vocab_size": 295, "special": ["<turn>"], "user_defined": ["<x>"], "character_coverage": 0.995},
    {"text": "pieces.txt", "vocab_size": 60, "special": ["<turn>"], "user_defined": ["<x>", "th"], "byte_fallback": False},
    {"text": "shakespeare.txt", "vocab_size": 700, "user_defined": ["e", "th", "▁a"], "character_coverage": 0.985},
]

write_runs()
write_pieces()
cases = [{"kind": "byte-bpe"} | c | byte_bpe(c) for c in BYTE] + [{"kind": "sentencepiece-bpe"} | c | sentencepiece_bpe(c) for c in SENTENCEPIECE]
with open("expected.json", "w") as f:
    f.write(json.dumps({"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__}, indent=0)[:-2])
    f.write(',\n"cases": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")
