"""Bits per byte of Hugging Face directories on the held-out tales, computed by transformers and sentencepiece alone.

usage: python models/training/check.py DIRECTORY...   (transformers 5.23.0, torch 2.15.0, sentencepiece 0.2.3; zstd on the path)

Every document is BOS, its pieces, EOS; documents follow one another and are read in windows of 256 tokens, each token but BOS
predicted once from what its window has before it. So models with other vocabularies can be compared: the sum of -log2 p over all
tokens, divided by the bytes of the text.
"""
import math
import pathlib
import subprocess
import sys

import sentencepiece
import torch
from transformers import AutoModelForCausalLM

WINDOW, BATCH = 256, 16
CORPUS = pathlib.Path(__file__).parent.parent / "corpus" / "tales_valid.txt.zst"


def batches(ids):
    """Windows and the token after each: rows of equal length, the short one at the end alone."""
    whole = (len(ids) - 1) // WINDOW
    rows = torch.stack([ids[i * WINDOW : (i + 1) * WINDOW + 1] for i in range(whole)])
    yield from rows.split(BATCH)
    if whole * WINDOW + 1 < len(ids):
        yield ids[None, whole * WINDOW :]


@torch.no_grad()
def bits_per_byte(directory, text):
    pieces = sentencepiece.SentencePieceProcessor(f"{directory}/tokenizer.model")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids = []
    for document in text.split("<|endoftext|>"):
        if document := document.strip("\n"):
            ids += [pieces.bos_id(), *pieces.encode(document), pieces.eos_id()]
    ids = torch.tensor(ids)
    nats = scored = 0
    for x in batches(ids):
        logp = model(x[:, :-1]).logits.log_softmax(-1)
        of_labels = logp.gather(2, x[:, 1:, None])[..., 0]
        wanted = x[:, 1:] != pieces.bos_id()
        nats -= of_labels[wanted].double().sum().item()
        scored += int(wanted.sum())
    size = len(text.replace("<|endoftext|>", "").encode())
    return nats / math.log(2) / size, nats / scored, scored, size


def main():
    text = subprocess.run(["zstd", "-dcq", CORPUS], check=True, capture_output=True).stdout.decode()
    for directory in sys.argv[1:]:
        bits, nats, scored, size = bits_per_byte(directory, text)
        print(f"{directory}: {bits:.4f} bits a byte ({nats:.4f} nats a token, {scored:,} tokens, {size:,} bytes)")


main()
