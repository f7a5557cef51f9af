"""Writes fables.json: examples/fables.txt as sentencepiece reads it with the shipped model's vocabulary, document by document
(BOS, ids, EOS), and as rows of characters after nanoGPT's rule, sorted(set(text)).

usage: make.py   (sentencepiece 0.2.3)
"""
import json, os
import sentencepiece

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "..", "..", "..")
text = open(os.path.join(root, "examples", "fables.txt"), encoding="utf-8").read()
sp = sentencepiece.SentencePieceProcessor(os.path.join(root, "models", "tales9m", "tokenizer.model"))
documents = [[sp.bos_id()] + sp.encode(document.strip("\n")) + [sp.eos_id()] for document in text.split("\n\n\n")]
numbers = {c: i for i, c in enumerate(sorted(set(text)))}
with open(os.path.join(here, "fables.json"), "w") as f:
    json.dump({"documents": documents, "characters": len(numbers), "text": [numbers[c] for c in text[:400]]}, f)
    f.write("\n")
