"""WordPiece vocabularies as vocab.txt, with what transformers' BertTokenizer (Hugging Face's tokenizers) makes of them.

usage: make.py            (transformers 5.24.0, tokenizers 0.23.3)
reads ../variants/strings.json; writes per case <case>/vocab.txt, tokenizer_config.json (not for "plain") and expected.json:
  rows of [index into strings, ids with special tokens, decoded, decoded without special tokens]
plain    vocab.txt alone: lower case, accents stripped, ideographs spaced
cased    do_lower_case, tokenize_chinese_chars false; strip_accents true; lines end in CR LF; special tokens of other names
"""
import json, pathlib
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

HERE = pathlib.Path(__file__).parent
strings = json.loads((HERE.parent / "variants/strings.json").read_text())
CASES = {
    "plain": (dict(), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "\n"),
    "cased": (dict(do_lower_case=False, tokenize_chinese_chars=False, strip_accents=True, pad_token="<pad>", unk_token="<unk>", cls_token="<cls>", sep_token="<sep>",
                   mask_token="<mask>", tokenizer_class="BertTokenizer"), ["<mask>", "<pad>", "<unk>", "<cls>", "<sep>"], "\r\n"),
}
for name, (config, special, end) in CASES.items():
    lower = config.get("do_lower_case", True)
    t = Tokenizer(models.WordPiece(unk_token=special[1] if name == "plain" else "<unk>"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=config.get("strip_accents"), handle_chinese_chars=config.get("tokenize_chinese_chars", True))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(strings, trainers.WordPieceTrainer(vocab_size=330, special_tokens=special, show_progress=False, limit_alphabet=150))
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    pieces = [piece for piece, _ in sorted(t.get_vocab().items(), key=lambda item: item[1])]
    assert all(p and p == p.strip("\r\n") for p in pieces)
    (folder / "vocab.txt").write_bytes("".join(p + end for p in pieces).encode())
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    reference = BertTokenizer.from_pretrained(folder)
    rows = []
    for i, text in enumerate(strings):
        ids = reference(text)["input_ids"]
        rows.append([i, ids, reference.decode(ids, clean_up_tokenization_spaces=False), reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)])
    (folder / "expected.json").write_text("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows) + "\n]\n")
    print(name, len(pieces), reference.mask_token_id, reference.convert_ids_to_tokens(rows[5][1]))
