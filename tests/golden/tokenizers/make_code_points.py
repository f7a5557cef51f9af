"""Writes code_points.json: what Hugging Face's tokenizers makes of every code point, in every class that tokenizer files use.

usage: make_code_points.py OUT        (tokenizers 0.23.3; takes some minutes)
Each case holds a component as tokenizer.json has it, the text that stands before and after each code point, and for each 4,096 code
points (without surrogates; unless "everywhere", in planes 0 to 3 and 14 alone) the CRC-32 of the result, equal ones counted: [crc, times, crc, times, ...]. The result of a normalizer
is its text, with 0 for one that is left as it was; that of a pre-tokenizer is the ends of its pieces in bytes, as "3,4,9,".
"""
import json
import pathlib
import sys
import zlib
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
source = (ROOT / "scripts/make_unicode_tables.py").read_text()
tables = {}
for name in ("CATEGORIES", "PROPERTIES", "SCRIPTS"):  # the lists alone
    begin = source.index(f"\n{name} = ")
    exec(source[begin:source.index(".split()\n", begin) + 9], tables)

BLOCK = 4096
FIRSTS = range(0, 0x110000, BLOCK)
ASSIGNED = [first for first in FIRSTS if first < 0x40000 or first >> 16 == 14]  # planes with more than private use


def replace(regex):
    return {"type": "Replace", "pattern": {"Regex": regex}, "content": ""}


def case(name, component, before="", after="\u0378", kind="normalizer", everywhere=False):
    CASES.append({"name": name, kind: component, "before": before, "after": after, "everywhere": everywhere})


def coded(kind, names, spelled):
    """Sets of which each name is in another selection, so that few of them tell all apart."""
    for bit in range(len(names).bit_length()):
        chosen = "".join(spelled.format(name) for i, name in enumerate(names, 1) if i >> bit & 1)
        case(f"{kind} {bit}", replace(f"[{chosen}]+"))


CASES = []
for form in ("NFC", "NFD", "NFKC", "NFKD"):  # marks of high and low classes around each code point show its own
    case(form, {"type": form}, "q\u0323", "\u0334\u0315", everywhere=form == "NFKC")
for name in ("Lowercase", "StripAccents", "Nmt"):
    case(name, {"type": name})
bert = {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
for key in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"):
    case("bert " + key, {**bert, key: True})
# What stands between the code points is in no class that is asked for: U+0378 has no meaning.
for regex in (r"\w", r"[\w]", r"\d", r"[\d]", r"\s", r"\h", r"\p{N}", r"\p{Punct}", r"\p{Alnum}", r"\p{Uppercase_Letter}", r"[^\W\d_]",
              r"[\P{Ll}&&\p{L}]", r"[[:^space:]&&[:word:]]"):
    case(regex, replace(regex + "+"))
case(r"\p{L}", replace(r"\p{L}+"), everywhere=True)
for regex, outside in ((r"\W", "a"), (r"\D", "1"), (r"[^\d]", "1"), (r"\S", " "), (r"\P{L}", "a"), (r"[^\s\p{L}\p{N}]", "a"), (r"\p{^Lu}", "A"),
                       ("[[:^alpha:]]", "a"), ("[[:^graph:]]", "a"), ("[^[:punct:]]", "!"), (".", "\n")):
    case(regex, replace(f"{regex}+"), after=outside)
case(r"\b", replace(r"\b."), after=" ")
coded("posix", "alpha alnum word punct upper lower space blank graph print digit xdigit cntrl".split(), "[:{}:]")
coded("category", [c for c in tables["CATEGORIES"] if len(c) == 2 and c not in ("Cn", "LC")], r"\p{{{}}}")
case(r"\p{Cn}", replace(r"\p{Cn}+"), after="a")
coded("script", tables["SCRIPTS"], r"\p{{{}}}")
for name in ("Alphabetic", "Uppercase", "Lowercase", "Emoji", "Ideographic"):
    case(rf"\p{{{name}}}", replace(rf"\p{{{name}}}+"))
coded("property", tables["PROPERTIES"], r"\p{{{}}}")
for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
    case(name, {"type": name}, "a", "0.", "pre_tokenizer", everywhere=name == "Whitespace")
case("Punctuation", {"type": "Punctuation", "behavior": "Isolated"}, "a", "0.", "pre_tokenizer")
case("Digits", {"type": "Digits", "individual_digits": True}, "a", ".", "pre_tokenizer")
case("ByteLevel", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}, "a", "0.", "pre_tokenizer")


def results_of(case):
    kind = "normalizer" if "normalizer" in case else "pre_tokenizer"
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                                               "post_processor": None, "decoder": None,
                                               "model": {"type": "BPE", "vocab": {}, "merges": []}, kind: case[kind]}))
    for first in FIRSTS if case["everywhere"] else ASSIGNED:
        block = [c for c in range(first, first + BLOCK) if not 0xD800 <= c < 0xE000]
        text = "".join(case["before"] + chr(c) + case["after"] for c in block)
        if kind == "normalizer":
            result = tokenizer.normalizer.normalize_str(text)
            yield 0 if result == text else zlib.crc32(result.encode())
        else:
            at = [0]
            for character in text:
                at.append(at[-1] + len(character.encode()))
            yield zlib.crc32("".join(f"{at[end]}," for _, (_, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)).encode())


for case in CASES:
    case["results"] = []
    for crc in results_of(case):
        if case["results"] and case["results"][-2] == crc:
            case["results"][-1] += 1
        else:
            case["results"] += [crc, 1]
with open(sys.argv[1], "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in CASES) + "\n]\n")
