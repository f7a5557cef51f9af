#!/usr/bin/env python3
"""Writes src/engine/tokenizer/unicode_tables.h and regex_tables.h: what Hugging Face's tokenizers makes of every code point, asked of
the library itself, since its parts go by different versions of Unicode.

usage: make_unicode_tables.py          (tokenizers 0.23.3, unicodedata2 18.0.0, PCRE2 10.40 to 10.44: their tables are Unicode 14 or 15)
"""
import ctypes
import ctypes.util
import pathlib
import unicodedata2 as newest
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).parent.parent / "src/engine/tokenizer"
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn L M N P S Z C LC").split()
PROPERTIES = ("Alphabetic Uppercase Lowercase White_Space Emoji Extended_Pictographic Emoji_Presentation Emoji_Modifier "
              "Emoji_Modifier_Base Emoji_Component Ideographic ID_Start ID_Continue XID_Start XID_Continue Cased "
              "Case_Ignorable Math Dash Diacritic Extender Grapheme_Extend Default_Ignorable_Code_Point Hex_Digit "
              "Unified_Ideograph Variation_Selector Quotation_Mark Sentence_Terminal Terminal_Punctuation").split()
SCRIPTS = ("Common Inherited Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Devanagari Hangul Thai Adlam Ahom "
           "Anatolian_Hieroglyphs Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille "
           "Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Coptic Cuneiform "
           "Cypriot Cypro_Minoan Deseret Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay "
           "Georgian Glagolitic Gothic Grantha Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Hanifi_Rohingya Hanunoo Hatran "
           "Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kawi Kayah_Li Kharoshthi "
           "Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian "
           "Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui "
           "Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari "
           "New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic "
           "Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya "
           "Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada "
           "Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog "
           "Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Tibetan Tifinagh Tirhuta Todhri Toto "
           "Tulu_Tigalari Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square").split()
# What PCRE2 has that comes next to Oniguruma's classes.
POSIX = {"alpha": r"\p{Alphabetic}", "alnum": r"\p{Alphabetic}\p{Nd}", "word": r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}",
         "punct": r"\p{P}\p{S}", "upper": r"\p{Uppercase}", "lower": r"\p{Lowercase}", "blank": r"\p{Zs}\t",
         "graph": r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}", "print": r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs}",
         "digit": r"\p{Nd}"}


def oniguruma(expression):
    kept = set(map(ord, normalizers.Replace(Regex(expression + "+"), "").normalize_str(TEXT)))
    return {c for c in ALL if c not in kept}


class Pcre2:
    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.lib.pcre2_compile_8.restype = pointer
        self.lib.pcre2_compile_8.argtypes = [ctypes.c_char_p, size, ctypes.c_uint32, pointer, pointer, pointer]
        self.lib.pcre2_jit_compile_8.argtypes = [pointer, ctypes.c_uint32]
        self.lib.pcre2_substitute_8.argtypes = [pointer, ctypes.c_char_p, size, size, ctypes.c_uint32, pointer, pointer, ctypes.c_char_p,
                                                size, ctypes.c_char_p, pointer]
        self.text = TEXT.encode()
        self.out = ctypes.create_string_buffer(len(self.text) + 1)

    def members(self, items):
        error, at, size = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t(len(self.out))
        pattern = f"[{items}]++".encode()
        utf, ucp, everywhere, jit = 0x80000, 0x20000, 0x100, 1
        code = self.lib.pcre2_compile_8(pattern, len(pattern), utf | ucp, ctypes.byref(error), ctypes.byref(at), None)
        if not code:
            return None
        self.lib.pcre2_jit_compile_8(code, jit)
        done = self.lib.pcre2_substitute_8(code, self.text, len(self.text), 0, everywhere, None, None, b"", 0, self.out, ctypes.byref(size))
        assert done >= 0, (items, done)
        kept = set(map(ord, self.out.raw[:size.value].decode()))
        return {c for c in ALL if c not in kept}


def ranges(members):
    out = []
    for c in sorted(members):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def items(members):
    return "".join(f"\\x{{{a:x}}}" if a == b else f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges(members))


def literal(text):
    parts = [text[i:i + 110] for i in range(0, len(text), 110)] or [""]
    return " ".join(f'R"({p})"' for p in parts)


def write_regex_tables():
    pcre2 = Pcre2()
    changes = []
    for kind, names in (("", CATEGORIES), ("", PROPERTIES), ("sc:", SCRIPTS)):
        for name in names:
            theirs = oniguruma(rf"\p{{{name}}}")
            known = {"LC": r"\p{Lu}\p{Ll}\p{Lt}"}.get(name, rf"\p{{{kind}{name}}}")
            ours = pcre2.members(known)
            added, removed = theirs - (ours or set()), (ours or set()) - theirs
            if added or removed:
                base = "" if ours is None else known
                changes.append((name.lower().replace("_", ""), base, items(added), items(removed)))
    posix = []
    for name, base in POSIX.items():
        theirs, ours = oniguruma(f"[[:{name}:]]"), pcre2.members(base)
        assert not ours - theirs, (name, ranges(ours - theirs))
        posix.append((name, base + items(theirs - ours)))
    assigned = oniguruma(r"\P{Cn}")
    later = {c for c in ALL if newest.category(chr(c)) != "Cn" and c not in assigned}
    with open(FOLDER / "regex_tables.h", "w") as f:
        f.write(f'''#pragma once
// Where Oniguruma's classes of characters, as tokenizers has them (Unicode 16), differ from PCRE2's, whose version of Unicode
// is the system's. Written by scripts/make_unicode_tables.py.
#include <string_view>
#include <utility>

namespace vitrine {{

// clang-format off
struct PropertyChange {{
  std::string_view name;     // of \\p{{name}} in lower case, without _
  std::string_view base;     // what PCRE2 calls it; empty: it may not know it
  std::string_view added;    // code points that an older PCRE2 does not count, as items of a set
  std::string_view removed;  // those that it counts and Oniguruma does not
}};
inline constexpr PropertyChange kPropertyChanges[] = {{
''')
        for name, base, added, removed in sorted(changes):
            f.write(f'    {{"{name}", R"({base})",\n     {literal(added)},\n     {literal(removed)}}},\n')
        f.write('''};

// The classes [:name:] as items of a set.
inline constexpr std::pair<std::string_view, std::string_view> kPosixClasses[] = {
''')
        for name, text in posix:
            f.write(f'    {{"{name}",\n     {literal(text)}}},\n')
        f.write(f'''}};

// What Unicode 17 and 18 assigned: nothing for Oniguruma.
inline constexpr std::string_view kAssignedLater =
    {literal(items(later))};
// clang-format on

}}  // namespace vitrine
''')
    print("regex_tables.h", len(changes), "properties")


def each(function):
    return {c: function(chr(c)) for c in ALL}


def members(function):
    return {c for c in ALL if function(chr(c))}


def not_normalized():
    """What later versions of Unicode decompose, compose or reorder, and tokenizers leaves alone."""
    forms = {name: getattr(normalizers, name)().normalize_str for name in ("NFC", "NFD", "NFKC", "NFKD")}
    out = set()
    for name, form in forms.items():
        out |= {c for c in ALL if form(chr(c)) != newest.normalize(name, chr(c))}
    for c in ALL:
        order = newest.combining(chr(c))
        if order:
            low = "a" + chr(c) + "\u0334" if order > 1 else "a\u0315" + chr(c)
            if forms["NFD"](low) != newest.normalize("NFD", low):
                out.add(c)
        parts = newest.normalize("NFD", chr(c))
        if len(parts) > 1 and newest.normalize("NFC", chr(c)) == chr(c) and forms["NFC"](parts) != chr(c):
            out |= {c, ord(parts[0])}  # a new letter's first part is as new as itself
    return out


def lower_case():
    """Runs (first, last, distance) of what Unicode 16 and 17 gave a lower case, or changed."""
    lower = each(normalizers.Lowercase().normalize_str)
    import unicodedata
    assert unicodedata.unidata_version == "14.0.0", "run it with Python 3.11, whose Unicode is 14"
    out = []
    for c in ALL:
        if c == 0x130 or lower[c] == unicodedata.normalize("NFC", chr(c)).lower() or lower[c] == chr(c).lower():
            continue
        distance = ord(lower[c]) - c
        if out and out[-1][1] == c - 1 and out[-1][2] == distance:
            out[-1][1] = c
        else:
            out.append([c, c, distance])
    return out


def write_unicode_tables():
    split = pre_tokenizers.Whitespace().pre_tokenize_str
    punctuation = pre_tokenizers.Punctuation("isolated").pre_tokenize_str
    digits = pre_tokenizers.Digits(True).pre_tokenize_str
    clean = normalizers.BertNormalizer(True, False, False, False).normalize_str
    accents = normalizers.BertNormalizer(False, False, True, False).normalize_str
    nfd = normalizers.NFD().normalize_str
    classes = {
        "letter": (oniguruma(r"\p{L}"), r"\p{L} of Oniguruma"),
        "number": (oniguruma(r"\p{N}"), r"\p{N} of Oniguruma"),
        "numeric": (members(lambda c: len(digits("a" + c + "a")) == 3), "Rust's char::is_numeric"),
        "word": (members(lambda c: len(split("a" + c + "a")) == 1), r"\w of Rust's regex"),
        "punctuation": (members(lambda c: len(punctuation("a" + c + "a")) == 3), "punctuation of BertPreTokenizer and Punctuation"),
        "accent": (members(lambda c: normalizers.StripAccents().normalize_str(c) == ""), "what StripAccents removes"),
        "bert_accent": (members(lambda c: nfd(c) == c and accents(c) == ""), "what BertNormalizer takes for an accent"),
        "bert_control": (members(lambda c: clean("a" + c + "a") == "aa"), "what BertNormalizer removes from a text"),
    }
    names = list(classes)
    flags = [0] * 0x110000
    for bit, name in enumerate(names):
        for c in classes[name][0]:
            flags[c] |= 1 << bit
    runs = [(c, flags[c]) for c in range(0x110000) if c == 0 or flags[c] != flags[c - 1]]
    with open(FOLDER / "unicode_tables.h", "w") as f:
        f.write('''#pragma once
// What tokenizers takes each code point for. Written by scripts/make_unicode_tables.py.
#include <cstdint>

namespace vitrine {

// clang-format off
enum CharacterFlag : uint8_t {
''')
        for bit, name in enumerate(names):
            f.write(f"  k{name.title().replace('_', '')} = {1 << bit},  // {classes[name][1]}\n")
        f.write('''};

struct CharacterRun {
  uint32_t first : 24, flags : 8;  // for all code points up to the next run's
};
inline constexpr CharacterRun kCharacterRuns[] = {
''')
        row = "   "
        for first, flag in runs:
            item = f" {{{first:#x}, {flag}}},"
            if len(row) + len(item) > 128:
                f.write(row + "\n")
                row = "   "
            row += item
        f.write(row + "\n};\n\n")
        f.write('''struct CharacterRange {
  uint32_t first, last;
};
// Characters that the normal forms leave alone, since they came after the Unicode of tokenizers' tables.
inline constexpr CharacterRange kNotNormalized[] = {
''')
        row = "   "
        for a, b in ranges(not_normalized()):
            item = f" {{{a:#x}, {b:#x}}},"
            if len(row) + len(item) > 128:
                f.write(row + "\n")
                row = "   "
            row += item
        f.write(row + "\n};\n\n")
        f.write('''struct LowerCaseRun {
  uint32_t first, last;
  int32_t distance;  // to the lower case
};
// Lower cases that came with Unicode 15 to 17.
inline constexpr LowerCaseRun kLaterLowerCase[] = {
''')
        for a, b, d in lower_case():
            f.write(f"    {{{a:#x}, {b:#x}, {d}}},\n")
        f.write("};\n// clang-format on\n\n}  // namespace vitrine\n")
    print("unicode_tables.h", len(runs), "runs")


write_regex_tables()
write_unicode_tables()
