"""Writes variants/: small tokenizer.json files that exercise each component, with what Hugging Face's tokenizers makes of
them. Vocabularies are trained here on the test strings themselves.

usage: make_variants.py STRINGS_JSON OUT_DIR        (tokenizers 0.23.3, sentencepiece 0.2.3)
writes OUT_DIR/strings.json and per variant OUT_DIR/<name>.json (the tokenizer) and OUT_DIR/<name>.expected.json:
  rows of {i: index into strings, ids, special: ids with special tokens where they differ, text: ids with special tokens
  read as text where they differ, offsets: byte ranges, decoded, skipped: decoded without special tokens}
and for SentencePiece OUT_DIR/<name>.model and its .expected.json without offsets.
"""
import io, json, os, sys, random
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
         r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
         r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
KIMI = r"""[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+$|\s*[\r\n]|\s+(?!\S)|\s"""
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = [f"<0x{i:02X}>" for i in range(256)]

strings = [s for s in json.load(open(sys.argv[1])) if isinstance(s, str)]
out = sys.argv[2]
os.makedirs(out, exist_ok=True)
rng = random.Random(7)
extra = ["<s>", "a<s>b", " <s> x", "<s><s>", "x </s>", "[MASK]", "a [MASK]  b", "my<tok>your", "my <tok> your", "<tok>s", "s<tok>", "ABC<TOK>x",
         "İstanbul IŞIK ẞ ǅ", "ﬁ ﬂ Å Å é é 각 가", "Ａｂｃ ①②③ ㎏ ½", "ক্ো ো", "\u180e x\u180ey", "a\u0085b\u00a0c\u2028d", "x_y_z 1_000", "e\u0301\u0323 \u0323\u0301e",
         "<|im_start|>user\nhi<|im_end|>", "don’t CAN'T We'LL", "▁ ▁▁a▁", "a ▁b", "\u200d\u200c\ufeff", "tab\tsep\x0bx\x0cy\x1cz", "ⅣⅤ ٣٤ ४५", "𝒳𝓎 𐐷 🇩🇪 👨‍👩‍👧", "hello.world,foo!bar?baz",
         "{\"a\": [1, 2.5e-3, null]}\r\n", "  leading", "trailing  ", "\n\n  x\n \n", "日本語とEnglish混在123テスト", "ÀÉÎ õü ñ Ç", "αβγ ΔΕΖ ς Σ", "ab" * 40, " " * 40 + "x", "x" + "\n" * 33, "İ", "\x00\x01a", "5<0x41>6<0x0A>"]
for _ in range(25):
    extra.append("".join(rng.choice("abcdeE '’.,;!?\n\r\t  019_-<>|é▁漢字क्ि😀\u0301ﬁß²½\u00a0") for _ in range(rng.randint(1, 40))))
chosen = [s for s in strings if len(s) < 400][::3] + extra
json.dump(chosen, open(f"{out}/strings.json", "w"), ensure_ascii=False, indent=0)


def byte_offsets(text, pairs):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [[at[a], at[b]] for a, b in pairs]


def write(name, t, offsets=True):
    t.save(f"{out}/{name}.json", pretty=False)
    write_expected(name, t, offsets)


# Where ours differ on purpose: inserted characters stand for no bytes, composed and replaced ones for all of their parts.
NO_OFFSETS = {"added_prepend", "llama2_like", "mistral_like", "qwen2_like", "wordpiece"} | {"normalizer_" + n for n in
              ["bert", "nfc", "nfd", "nfkc", "nfkd", "prepend", "replace", "strip_accents"]}


def write_expected(name, t, offsets=True):
    offsets = offsets and name not in NO_OFFSETS
    t = Tokenizer.from_file(f"{out}/{name}.json")
    rows = []
    for i, s in enumerate(chosen):
        try:
            plain = t.encode(s, add_special_tokens=False)
        except Exception as e:
            rows.append({"i": i, "error": str(e)})
            continue
        row = {"i": i, "ids": plain.ids, "decoded": t.decode(plain.ids, skip_special_tokens=False)}
        full = t.encode(s).ids
        if full != plain.ids:
            row["special"] = full
        skipped = t.decode(full, skip_special_tokens=True)
        if skipped != row["decoded"]:
            row["skipped"] = skipped
        t.encode_special_tokens = True
        as_text = t.encode(s, add_special_tokens=False).ids
        t.encode_special_tokens = False
        if as_text != plain.ids:
            row["text"] = as_text
        if offsets:
            row["offsets"] = byte_offsets(s, plain.offsets)
        rows.append(row)
    with open(f"{out}/{name}.expected.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows) + "\n]\n")
    print(name, t.get_vocab_size(), len(rows))


def train(pre=None, norm=None, size=400, special=(), alphabet=(), kind=models.BPE, trainer=trainers.BpeTrainer, model=None, trainer_args=None, **kw):
    t = Tokenizer(kind(**kw) if model is None else model)
    if norm is not None:
        t.normalizer = norm
    if pre is not None:
        t.pre_tokenizer = pre
    args = dict(vocab_size=size, special_tokens=list(special), show_progress=False)
    if trainer is trainers.BpeTrainer:
        args["initial_alphabet"] = list(alphabet)
    args.update(trainer_args or {})
    t.train_from_iterator(strings, trainer(**args))
    return t


def byte_bpe(pattern, size=500, special=("<|endoftext|>",), **kw):
    patterns = pattern if isinstance(pattern, list) else [pattern]
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = train(pre, size=size, special=special, alphabet=BYTES, **kw)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def edit(name, change):
    j = json.load(open(f"{out}/{name}.json"))
    change(j)
    json.dump(j, open(f"{out}/{name}.json", "w"), ensure_ascii=False)


# --- byte-level families -------------------------------------------------------------------------------------------
t = train(pre_tokenizers.ByteLevel(add_prefix_space=True), size=450, special=["<s>", "</s>", "<mask>"], alphabet=BYTES)
t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
t.decoder, t.post_processor = decoders.ByteLevel(), processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False, add_prefix_space=True)
write("byte_prefix_space", t, offsets=False)

t = byte_bpe(LLAMA3, special=["<|begin_of_text|>", "<|end_of_text|>", "<s>"])
t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|> $B", [("<|begin_of_text|>", 0)])])
write("llama3_like", t)
edit("llama3_like", lambda j: j["model"].update(ignore_merges=True))  # as the family's file
write_expected("llama3_like", t)

t = byte_bpe(QWEN2, special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
t.normalizer = normalizers.NFC()
t.add_tokens([AddedToken("<tok>", normalized=False), AddedToken("my", single_word=True)])
write("qwen2_like", t)

write("o200k_like", byte_bpe(O200K, special=["<|endoftext|>"]))
write("kimi_like", byte_bpe(KIMI))
write("deepseek3_like", byte_bpe(DEEPSEEK3, special=["<s>", "</s>"]))
t = train(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(False),
                                   pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), size=450, special=[">>TITLE<<", "<s>"], alphabet=BYTES)
t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=True)
write("falcon_like", t, offsets=False)
t = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), size=450, alphabet=BYTES)
t.decoder = decoders.ByteLevel()
write("starcoder_like", t)
t = train(None, norm=normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]), size=420, alphabet=BYTES)
t.decoder = decoders.ByteLevel()
write("byte_normalizer", t, offsets=False)

# --- byte-fallback families ----------------------------------------------------------------------------------------
def fallback_bpe(norm, pre=None, size=700, **kw):
    return train(pre, norm=norm, size=size, special=["<unk>", "<s>", "</s>"] + FALLBACK, unk_token="<unk>", byte_fallback=True, fuse_unk=True,
                 trainer_args=dict(limit_alphabet=60), **kw)

def strip_fallback_specials(j):  # the byte pieces are ordinary vocabulary, as in converted files
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]

def save_fallback(name, t, offsets=True):
    t.save(f"{out}/{name}.json", pretty=False)
    edit(name, strip_fallback_specials)
    write_expected(name, t, offsets)

bos = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
llama_decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
t = fallback_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
t.decoder, t.post_processor = llama_decoder, bos
save_fallback("llama2_like", t)
t = fallback_bpe(None, pre_tokenizers.Metaspace("▁", "first", split=False))
t.decoder, t.post_processor = llama_decoder, bos
save_fallback("mistral_like", t)
t = fallback_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"))
t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
t.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1", [("<s>", 1), ("</s>", 2)])
save_fallback("gemma_like", t)
t = train(None, norm=normalizers.Replace(" ", "▁"), size=300, special=["<unk>"] + FALLBACK[:200], unk_token="<unk>", byte_fallback=True, fuse_unk=False, trainer_args=dict(limit_alphabet=50))
save_fallback("half_fallback", t, offsets=False)

# --- BPE options ---------------------------------------------------------------------------------------------------
t = train(pre_tokenizers.BertPreTokenizer(), norm=normalizers.Lowercase(), size=350, special=["<unk>"], unk_token="<unk>", end_of_word_suffix="</w>",
          trainer_args=dict(end_of_word_suffix="</w>", limit_alphabet=80))
t.decoder = decoders.BPEDecoder("</w>")
write("suffix", t)
t = train(pre_tokenizers.Whitespace(), size=350, special=["<unk>"], unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True,
          trainer_args=dict(continuing_subword_prefix="##", limit_alphabet=80))
t.decoder = decoders.WordPiece("##", cleanup=False)
write("continuing_prefix", t)
t = train(pre_tokenizers.WhitespaceSplit(), size=300, special=[], trainer_args=dict(limit_alphabet=60))
write("no_unknown_no_decoder", t, offsets=False)
t = train(pre_tokenizers.Whitespace(), size=300, special=["[UNK]"], unk_token="[UNK]", trainer_args=dict(limit_alphabet=60))
t.save(f"{out}/unknown_apart.json", pretty=False)
edit("unknown_apart", lambda j: j["model"].update(fuse_unk=False))
write_expected("unknown_apart", t)

# --- normalizers, pre-tokenizers -----------------------------------------------------------------------------------
N, P = normalizers, pre_tokenizers
chars = sorted({c for s in chosen for c in s} | set("▁"))
def char_level(norm=None, pre=None, special=(), added=()):
    """Every character is a token, so that what normalizer and pre-tokenizer do shows in ids and cuts."""
    vocab = {"<unk>": 0}
    for c in chars + ["i", "̇"]:
        vocab.setdefault(c, len(vocab))
    t = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    if norm is not None:
        t.normalizer = norm
    if pre is not None:
        t.pre_tokenizer = pre
    t.add_special_tokens(list(special))
    t.add_tokens(list(added))
    t.decoder = decoders.Fuse()
    return t

def words(norm=None, pre=None, **kw):
    """A word-level vocabulary of the pieces that the pre-tokenizer makes: cuts show as different words."""
    seen = {"<unk>": 0}
    for s in chosen:
        n = norm.normalize_str(s) if norm is not None else s
        for piece, _ in pre.pre_tokenize_str(n):
            seen.setdefault(piece, len(seen))
    t = Tokenizer(models.WordLevel(vocab=seen, unk_token="<unk>"))
    if norm is not None:
        t.normalizer = norm
    t.pre_tokenizer = pre
    return t

for name, norm in {"nfc": N.NFC(), "nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD(), "lowercase": N.Lowercase(), "strip": N.Strip(), "strip_left": N.Strip(True, False),
                   "strip_right": N.Strip(False, True), "strip_accents": N.Sequence([N.NFD(), N.StripAccents()]), "prepend": N.Prepend("_"), "nmt": N.Nmt(),
                   "bert": N.BertNormalizer(True, True, None, True), "bert_cased": N.BertNormalizer(True, False, True, False),
                   "replace": N.Sequence([N.Replace(Regex(r"\s{2,}|[0-9]+"), "#"), N.Replace("ab", "c")])}.items():
    write("normalizer_" + name, char_level(norm), offsets=name not in ("bert_cased",))

behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
for b in behaviors:
    write("split_" + b, words(pre=P.Sequence([P.Split(Regex(r"\s|\d"), b), P.Split("-", b)])))
    write("split_invert_" + b, words(pre=P.Split(Regex(r"\w+|[^\w\s]"), b, invert=True)))
    write("punctuation_" + b, words(pre=P.Punctuation(b)))
for name, pre in {"metaspace_always": P.Metaspace("▁", "always"), "metaspace_never": P.Metaspace("_", "never"), "metaspace_first": P.Metaspace("▁", "first"),
                  "metaspace_whole": P.Metaspace("▁", "always", split=False), "digits": P.Digits(False), "digits_apart": P.Digits(True), "whitespace": P.Whitespace(),
                  "whitespace_split": P.WhitespaceSplit(), "bert": P.BertPreTokenizer(), "delimiter": P.CharDelimiterSplit("e"), "fixed": P.FixedLength(3),
                  "regex_lines": P.Split(Regex(r"^\s+|\s+$|\h+|.(?=\n)"), "isolated"), "regex_sets": P.Split(Regex(r"[\W&&[^\s]]+|[[a-m]\d]{2}+|[^\S\n]{,2}x|\p{Letter}\b"), "isolated")}.items():
    t = words(pre=pre)
    if name.startswith("metaspace"):
        t.decoder = decoders.Metaspace("_" if name.endswith("never") else "▁", name.split("_")[1] if name != "metaspace_whole" else "always")
        t.add_special_tokens(["<s>"])
    write("words_" + name, t)

# --- added tokens --------------------------------------------------------------------------------------------------
t = char_level(N.Lowercase(), P.Metaspace("▁", "first"), special=["<s>", AddedToken("[MASK]", lstrip=True, rstrip=True)],
               added=[AddedToken("TOK", normalized=True), AddedToken("<tok>", single_word=True, normalized=False), AddedToken("my", lstrip=True, normalized=True), AddedToken("World", rstrip=True, normalized=False)])
write("added_tokens", t, offsets=False)
t = char_level(N.Prepend("▁"), special=["<s>", "</s>"], added=[AddedToken("ab", single_word=True), "abab", "tail"])
write("added_prepend", t)

# --- other models --------------------------------------------------------------------------------------------------
t = train(P.BertPreTokenizer(), norm=N.BertNormalizer(), size=500, special=["[UNK]", "[CLS]", "[SEP]"], kind=models.WordPiece, trainer=trainers.WordPieceTrainer, unk_token="[UNK]",
          trainer_args=dict(limit_alphabet=100))
t.decoder, t.post_processor = decoders.WordPiece(), processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
write("wordpiece", t)
t = train(P.Metaspace(), norm=N.NFKC(), size=900, special=["<unk>", "<s>", "</s>"], model=models.Unigram(), trainer=trainers.UnigramTrainer, trainer_args=dict(unk_token="<unk>"))
t.decoder = decoders.Metaspace()
write("unigram", t, offsets=False)

# --- SentencePiece files -------------------------------------------------------------------------------------------
def write_spm(name, **kw):
    buf = io.BytesIO()
    args = dict(vocab_size=1300, model_type="bpe", byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", minloglevel=2, num_threads=1, max_sentence_length=100000)
    args.update(kw)
    spm.SentencePieceTrainer.train(sentence_iterator=iter([s.replace("\n", " ") for s in strings if s.strip()]), model_writer=buf, **args)
    data = buf.getvalue()
    m = pb.ModelProto(); m.ParseFromString(data); m.trainer_spec.ClearField("input"); data = m.SerializeToString()
    save_spm(name, data)

def save_spm(name, data):
    open(f"{out}/{name}.model", "wb").write(data)
    sp = spm.SentencePieceProcessor(model_proto=data)
    rows = []
    for i, s in enumerate(chosen):
        ids = sp.encode(s)
        rows.append({"i": i, "ids": ids, "decoded": sp.decode(ids)})
    for h in ["ff", "61ff62", "e282", "c3a9c3", "f0808080", "20ff20ff", "c080eda080"]:
        ids = sp.encode(bytes.fromhex(h))
        rows.append({"hex": h, "ids": ids, "decoded": sp.decode(ids)})
    for k in range(40):  # decoding of ids that no text gives: bytes in any order, control pieces, unknown
        ids = [rng.choice([rng.randrange(sp.get_piece_size()), rng.randrange(min(300, sp.get_piece_size()))]) for _ in range(rng.randint(1, 8))]
        rows.append({"decode": ids, "decoded": sp.decode(ids)})
    with open(f"{out}/{name}.expected.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows) + "\n]\n")
    print(name, sp.get_piece_size(), len(rows))

write_spm("spm_llama", add_dummy_prefix=True, remove_extra_whitespaces=False)
write_spm("spm_default", normalization_rule_name="nmt_nfkc")
write_spm("spm_nfkc_cf", normalization_rule_name="nfkc_cf", byte_fallback=False, user_defined_symbols=["<sep>", "foo", "▁▁", "my"], control_symbols=["<ctl>"])
write_spm("spm_suffix", treat_whitespace_as_suffix=True, byte_fallback=False)
write_spm("spm_no_escape", add_dummy_prefix=False, remove_extra_whitespaces=True, user_defined_symbols=["\n", "\t", "  "])
write_spm("spm_unigram", model_type="unigram", vocab_size=1400, user_defined_symbols=["<sep>", "foo", "abab"])
write_spm("spm_unigram_plain", model_type="unigram", byte_fallback=False, normalization_rule_name="nmt_nfkc", vocab_size=1100)
m = pb.ModelProto(); m.ParseFromString(open(f"{out}/spm_llama.model", "rb").read())
for k, p in enumerate(m.pieces):
    if p.type == 1 and len(p.piece) in (2, 3) and k % 3 == 0:
        p.type = 5  # unused: merged through, then taken apart
save_spm("spm_unused", m.SerializeToString())
