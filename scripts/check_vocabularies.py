#!/usr/bin/env python3
"""Splits texts with published vocabularies as llama.cpp does, id for id.

usage: check_vocabularies.py --llama-cpp SOURCES --library build/bin/libllama.so [--vitrine build/release/vitrine] [--strings 1000] [FILE.gguf …]

Without files: every models/ggml-vocab-*.gguf of llama.cpp's sources. For each, the texts of its .inp file, whose ids stand in its .out
file, and --strings made ones (words of many scripts, numbers, code, spaces, emoji, spelled control tokens; a fixed seed) are split by
`vitrine tokenize` and by libllama, with and without what is put around a text. Prints a table; exits with 1 if an id differs. Files
that vitrine refuses are listed with its reason. Needs a C compiler. Not part of CI.
"""
import argparse, json, pathlib, random, struct, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = r'''
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "llama.h"
static void quiet(enum ggml_log_level level, const char * text, void * data) { (void)level; (void)text; (void)data; }
int main(int argc, char ** argv) {  // FILE ADD_SPECIAL: texts of standard input, each behind its length; a line of ids for each
  (void)argc;
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model_params mp = llama_model_default_params();
  mp.vocab_only = true;
  struct llama_model * model = llama_model_load_from_file(argv[1], mp);
  if (!model) return 1;
  static char text[1 << 20];
  static llama_token ids[1 << 20];
  uint32_t size;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    if (size > sizeof text || fread(text, 1, size, stdin) != size) return 1;
    int n = llama_tokenize(llama_model_get_vocab(model), text, (int) size, ids, 1 << 20, atoi(argv[2]), false);
    if (n < 0) return 1;
    for (int i = 0; i < n; ++i) printf("%d ", ids[i]);
    printf("\n");
  }
  return 0;
}
'''
WORDS = """the of and Hello world I'm you'll WE'VE don't naïve café Straße Übung façade ñandú Łódź Ελλάδα Καλημέρα Москва привет мир
שלום עולם مرحبا بالعالم हिन्दी नमस्ते বাংলা ไทย สวัสดี 你好 世界 中文分词 日本語 カタカナ ひらがな 한국어 안녕하세요 ខ្មែរ አማርኛ
😀 👩‍👩‍👧 🇩🇪 🏳️‍🌈 ™ © ½ ² ① Ⅳ ㎏ ﬁ ﷽ e\u0301 \u00a0 \u200b \u200d \u2028 \u3000 \ufeff \u00ad ﾊﾝｶｸ Ａｂ ⅷ ᾳ ǅ İ ı ſ
0 1 12 123 1234 12345 3.14159 1,000,000 0x1F 1e-9 2026-11-26 ٣٤ ४५ def return x**2 // != <= >= -> :: {} [] () <a> </b> &amp; #include $5 100% @user
C++ f(x) "quoted" 'single' `code` --flag snake_case camelCase ALLCAPS iPhone15 <s> </s> <unk> <|endoftext|> <|im_start|> [INST] <bos> <pad> <eos>
\\n \\t ... !!! ??? --- === *** ___ ~~~ ¿Qué? ¡Sí! — – … “x” ‘y’ «z» 。 、 ！ ？ （） ・""".split()
GAPS = [" ", " ", " ", " ", "", "", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\t\t", "        ", "\n\n\n", "\u00a0", "."]


def made(count):
    r = random.Random(1)
    texts = ["", " ", "\n", "a"]
    while len(texts) < count:
        text = "".join(word + r.choice(GAPS) for word in r.choices(WORDS, k=r.randrange(1, 12)))
        if r.random() < 0.2:
            text += "".join(chr(r.choice((r.randrange(32, 127), r.randrange(160, 0x2fff), r.randrange(0x3000, 0xd7ff), r.randrange(0x10000, 0x1ffff)))) for _ in range(r.randrange(1, 9)))
        texts.append(r.choice(GAPS[:8]) + text if r.random() < 0.3 else text)
    return texts


def given(file):
    """The texts of a vocabulary's own test and their ids."""
    texts, ids = file.with_name(file.name + ".inp"), file.with_name(file.name + ".out")
    if not texts.exists() or not ids.exists():
        return [], []
    return texts.read_bytes().decode().split("\n__ggml_vocab_test__\n")[:-1], [[int(id) for id in line.split()] for line in ids.read_text().splitlines()]


def build(folder, options):
    library = pathlib.Path(options.library).parent
    code, program = folder / "ids.c", folder / "ids"
    code.write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", program, code, f"-I{options.llama_cpp}/include", f"-I{options.llama_cpp}/ggml/include", f"-L{library}", "-lllama", "-lggml", "-lggml-base",
                    "-lggml-cpu", f"-Wl,-rpath,{library}"], check=True)
    return program


def theirs(program, file, texts, special):
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    ran = subprocess.run([program, file, str(int(special))], input=data, capture_output=True)
    return [[int(id) for id in line.split()] for line in ran.stdout.decode().splitlines()] if ran.returncode == 0 else None


def ours(vitrine, file, texts, special, folder):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    ran = subprocess.run([vitrine, "tokenize", "--jsonl", path, "--special", "text", *([] if special else ["--no-special"]), "--model", file], capture_output=True, text=True)
    if ran.returncode != 0:
        return ran.stderr.strip()
    return [json.loads(line)["tokens"] for line in ran.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vitrine", default=str(ROOT / "build/release/vitrine"))
    parser.add_argument("--llama-cpp", required=True, type=pathlib.Path)
    parser.add_argument("--library", required=True)
    parser.add_argument("--strings", type=int, default=1000)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    o = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = build(folder, o)
        print(f"{'vocabulary':36}{'its own test':14}{'made':14}{'with special':14}")
        for file in o.files or sorted((o.llama_cpp / "models").glob("ggml-vocab-*.gguf")):
            texts, ids = given(file)
            strings = made(o.strings)
            cells, notes = [], []
            for which, special in ((texts, False), (strings, False), (strings, True)):
                want = theirs(program, file, which, special)
                got = ours(o.vitrine, file, which, special, folder) if which else []
                if isinstance(got, str):
                    cells.append("refused")
                    notes = [got]
                    continue
                if want is None:
                    cells.append("not by llama.cpp")
                    continue
                differ = [i for i in range(len(which)) if got[i] != want[i] or (which is texts and got[i] != ids[i])]
                cells.append(f"{len(which) - len(differ)}/{len(which)}" if which else "none")
                notes += [f"{which[i]!r}: {want[i]} there, {got[i]} here" for i in differ[:3]]
                failed = failed or bool(differ)
            print(f"{file.stem:36}" + "".join(f"{cell:14}" for cell in cells), flush=True)
            for note in notes:
                print("    " + note[:600])
    sys.exit(failed)


if __name__ == "__main__":
    main()
