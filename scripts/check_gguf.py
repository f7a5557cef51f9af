#!/usr/bin/env python3
"""Compares GGUF files written by vitrine with those of llama.cpp's converter, and runs both in llama.cpp.

usage: check_gguf.py --vitrine build/release/vitrine --llama-cpp SOURCES [--library build/bin/libllama.so] [MODEL_DIRECTORY ...]

Without directories: every golden model that the converter takes, the packed gpt-oss of tests/golden/variants, and models/tales9m. For
each, in f32, f16, bf16 and q8_0: every key of the converter's file is in ours with the same type and value, every tensor has the same
type, shape and bytes. With --library (libllama.so, built from the same sources) llama.cpp loads both and must give the same logits, and
texts the ids that vitrine gives them.

Needs torch, transformers, safetensors, sentencepiece, numpy. Not part of CI: llama.cpp is not built there.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/golden/gguf"))
import make_converted

# Of ours only: sizes that llama.cpp otherwise derives, and what it has no key for.
EXTRA = ("vocab_size", "attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.freq_base", "rope.dimension_count",
         "rope.freq_base_swa", "attention.sliding_window", "attention.sliding_window_pattern", "vitrine.query_pre_attn_scalar",
         "rope.scaling.yarn_attn_factor", "vitrine.rope.yarn_truncate",
         "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.padding_token_id")
# Known differences: a title made of the folder's name; a separator nobody adds; the published Gemma's end of a turn given to every
# Gemma; GPT-2's inner width taken as four times its width; pieces that are looked for first called normal ones.
KNOWN = ("general.name", "tokenizer.ggml.add_sep_token", "tokenizer.ggml.eot_token_id", "gpt2.feed_forward_length", "tokenizer.ggml.token_type",
         "tokenizer.ggml.unknown_token_id")
# Of a dense Granite 4, theirs only: Mamba layers and experts that are not there, and a list where one number says it.
HYBRID = ("granite.ssm.", "granite.expert_", "granite.attention.head_count_kv", "granite.rope.scaling.finetuned")


def compare(theirs, ours):
    (keys, tensors), (our_keys, our_tensors) = make_converted.read(theirs), make_converted.read(ours)
    wrong = []
    for name, value in keys.items():
        if our_keys.get(name) != value and name not in KNOWN and not name.startswith(HYBRID):
            wrong.append(f"key {name}: {value} there, {our_keys.get(name)} here")
    for name in our_keys.keys() - keys.keys():
        if not name.endswith(EXTRA):
            wrong.append(f"key {name}: only here, {our_keys[name]}")
    for name in sorted(tensors.keys() | our_tensors.keys()):
        if tensors.get(name) != our_tensors.get(name):
            wrong.append(f"tensor {name}: {tensors.get(name)} there, {our_tensors.get(name)} here")
    return wrong


class Llama:
    """Logits of a token list by libllama."""

    def __init__(self, library, sources):
        # The structures are long and change: a small program in C, compiled against the sources' own header, is safer.
        self.folder = tempfile.TemporaryDirectory()
        program = pathlib.Path(self.folder.name) / "logits"
        code = program.with_suffix(".c")
        code.write_text(r'''
#include <stdio.h>
#include <stdlib.h>
#include "llama.h"
static void quiet(enum ggml_log_level level, const char * text, void * data) { if (level >= GGML_LOG_LEVEL_WARN && getenv("LOUD")) fputs(text, stderr); (void)data; }
int main(int argc, char ** argv) {
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model_params mp = llama_model_default_params();
  struct llama_model * model = llama_model_load_from_file(argv[1], mp);
  if (!model) return 1;
  if (argc == 2) {  // the ids of standard input
    static char text[1 << 16];
    static llama_token ids[1 << 16];
    int size = (int) fread(text, 1, sizeof text, stdin);
    int n = llama_tokenize(llama_model_get_vocab(model), text, size, ids, 1 << 16, true, false);
    for (int i = 0; i < n; ++i) printf("%d ", ids[i]);
    return n < 0;
  }
  struct llama_context_params cp = llama_context_default_params();
  cp.n_ctx = 64; cp.n_threads = cp.n_threads_batch = 1; cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  cp.type_k = cp.type_v = GGML_TYPE_F32;
  struct llama_context * ctx = llama_init_from_model(model, cp);
  if (!ctx) return 1;
  int n = argc - 2;
  struct llama_batch batch = llama_batch_init(n, 0, 1);
  for (int i = 0; i < n; ++i) {
    batch.token[i] = atoi(argv[i + 2]); batch.pos[i] = i; batch.n_seq_id[i] = 1; batch.seq_id[i][0] = 0; batch.logits[i] = 1;
  }
  batch.n_tokens = n;
  if (llama_decode(ctx, batch)) return 1;
  int size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int i = 0; i < n; ++i) fwrite(llama_get_logits_ith(ctx, i), sizeof(float), size, stdout);
  return 0;
}
''')
        folder = pathlib.Path(library).parent
        subprocess.run(["cc", "-O1", "-o", program, code, f"-I{sources}/include", f"-I{sources}/ggml/include", f"-L{folder}", "-lllama", "-lggml",
                        "-lggml-base", "-lggml-cpu", f"-Wl,-rpath,{folder}"], check=True)
        self.program = program

    def logits(self, file, tokens):
        import numpy
        ran = subprocess.run([self.program, file, *map(str, tokens)], capture_output=True, env={**os.environ, "LOUD": "1"})
        if ran.returncode != 0:
            return f"llama.cpp does not run {file}: {ran.stderr.decode()[-400:]}"
        return numpy.frombuffer(ran.stdout, dtype=numpy.float32).reshape(len(tokens), -1)

    def ids(self, file, text):
        ran = subprocess.run([self.program, file], input=text.encode(), capture_output=True, check=True)
        return [int(id) for id in ran.stdout.split()]


TEXTS = ["Hello world! It's 1234567 o'clock, we've (re)read  3.14 e-mails\n\n  \tdef f(x):\n    return x**2 // 7\n", "Ünïcödé café 你好世界 😀 мир",
         "<start_of_turn>user\nhi<end_of_turn>", "   spaces  and\ttabs   ", "$5.00 100% <b>a&b</b> \"quoted\" --flag", "a"]


def compare_ids(llama, program, file, folder):
    """Texts whose ids by llama.cpp and by vitrine differ. What spells a control token stays text in both."""
    wrong = []
    for text in TEXTS:
        path = pathlib.Path(folder) / "text"
        path.write_text(text, newline="")
        ran = subprocess.run([program, "tokenize", "--file", path, "--special", "text", "--model", file, "--json"], capture_output=True, text=True)
        if ran.returncode != 0:
            return []  # no tokenizer
        ours, theirs = json.loads(ran.stdout)["tokens"], llama.ids(file, text)
        if ours != theirs:
            wrong.append(f"ids of {text!r}: llama.cpp {theirs}, vitrine {ours}")
    return wrong


def vitrine_logits(program, file, tokens, folder):
    from safetensors.numpy import load_file
    out = pathlib.Path(folder) / "trace.safetensors"
    subprocess.run([program, "trace", "--tokens", ",".join(map(str, tokens)), "--hooks", "hook_logits", "--model", file, "--compute", "f32",
                    "--out", out], check=True, capture_output=True)
    return load_file(out)["hook_logits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vitrine", default=str(ROOT / "build/release/vitrine"))
    parser.add_argument("--llama-cpp", required=True)
    parser.add_argument("--library")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    make_converted.use(options.llama_cpp)
    golden = sorted(d / "model" for d in (ROOT / "tests/golden/models").iterdir() if (d / "model").is_dir() and not d.name.startswith("classic"))
    llama = Llama(options.library, options.llama_cpp) if options.library else None
    failed = False
    for model in options.models or [*golden, ROOT / "tests/golden/variants/gpt_oss_mxfp4", ROOT / "models/tales9m"]:
        name = model.parent.name if model.name == "model" else model.name
        with tempfile.TemporaryDirectory() as folder:
            for kind in make_converted.TYPES:
                theirs, ours = pathlib.Path(folder) / f"theirs-{kind}.gguf", pathlib.Path(folder) / f"ours-{kind}.gguf"
                ran = subprocess.run([options.vitrine, "convert", model, ours, "--dtype", kind], capture_output=True, text=True)
                if ran.returncode != 0:
                    print(f"{name} {kind}: refused: {ran.stderr.strip()}")
                    continue
                make_converted.convert(model, theirs, kind)
                wrong = compare(theirs, ours)
                note = ""
                if llama is not None:
                    tokens = [token % json.loads((model / "config.json").read_text())["vocab_size"] for token in (2, 5, 17, 100, 33, 64, 7, 9)]
                    there, here = llama.logits(theirs, tokens), llama.logits(ours, tokens)
                    if isinstance(here, str):
                        wrong.append(here)
                    else:
                        wrong += compare_ids(llama, options.vitrine, ours, folder)
                        own = vitrine_logits(options.vitrine, ours, tokens, folder)
                        far = lambda a, b: float(abs(a - b).max())
                        note = f"; logits: from llama.cpp's file {'not run' if isinstance(there, str) else '%.1e' % far(there, here)}, from vitrine's {far(own, here):.1e} of {float(abs(own).max()):.1f}"
                        if not isinstance(there, str) and far(there, here) > 1e-5:
                            wrong.append(f"llama.cpp's logits differ by {far(there, here)}")
                failed = failed or bool(wrong)
                print(f"{name} {kind}: {'same' if not wrong else 'DIFFERENT'}{note}")
                for line in wrong[:20]:
                    print("   ", line)
    sys.exit(failed)


if __name__ == "__main__":
    main()
