#!/usr/bin/env python3
"""Holds every family to llama.cpp: files of its converter and of llama-quantize run here, and ours run there.

usage: check_families.py --llama-cpp SOURCES --llama DIR [--vitrine build/release/vitrine] [--types q8_0,q4_0,q4_k_m,iq4_xs] [FAMILY or DIRECTORY …]

SOURCES is a source tree of llama.cpp with convert_hf_to_gguf.py; DIR has llama-quantize and libllama.so built from it. For each folder
of tests/golden/models that the converter takes, and models/tales9m (or those named):

  file       the converter's f32 file of the golden directory gives the logits that the directory gives, and the same greedy text; so
             does llama.cpp
  TYPE       a wider model of the same configuration with random weights, since golden ones are too narrow for blocks (of other
             directories the model itself), quantized by llama-quantize: the file opens, and its greedy text is that of llama.cpp
  our TYPE   the same of the file that `vitrine convert` makes of the directory

"Equal" compares both programs in f32 (llama.cpp runs the file that llama-quantize widens). "within rounding": with llama.cpp's own
arithmetic, which rounds activations to 8 bits, a token differs where its logit is as close to the first one's as that rounding is large.
Prints a table and what differs; exits with 1 if anything does. Needs torch, transformers, numpy and a C compiler. Not part of CI.
"""
import argparse, json, os, pathlib, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/golden/gguf"), str(ROOT / "scripts")]
os.environ["TQDM_DISABLE"] = "1"
import make_converted
from check_gguf import Llama, vitrine_logits

PROMPT, NEW = (2, 5, 17, 40, 33, 24, 7, 9), 24  # in every vocabulary
TOLERANCE, GELU_TOLERANCE = 1e-4, 2e-3  # between two programs in f32, of the largest logit; llama.cpp looks GELU up in a table of f16



def without_scaling_ramp(config):
    """YaRN with the usual ramp: llama.cpp reads no other."""
    by_kind = config["rope_parameters"]
    for rope in [by_kind] if "rope_type" in by_kind else by_kind.values():
        if rope["rope_type"] == "yarn":
            rope.update(beta_fast=32.0, beta_slow=1.0)
    return {}


def with_long_context(config):
    """llama.cpp makes contexts of at least 256 positions, and takes LongRoPE's factors by that; it has no windows here."""
    config["rope_parameters"]["original_max_position_embeddings"] = 256
    return {"sliding_window": None, "original_max_position_embeddings": 256, "max_position_embeddings": 512}


# What golden configurations ask for and llama.cpp or its converter does not do, by model_type, and what is checked instead.
WITHOUT = {
    "gemma2": lambda config: {"query_pre_attn_scalar": config["head_dim"]},  # follows from the number of layers there
    "gemma3_text": lambda config: {"query_pre_attn_scalar": config["head_dim"]},
    # as published files have it; the converter takes the width of the MLP from intermediate_size
    "gpt_oss": without_scaling_ramp,
    "granitemoehybrid": lambda config: {"layer_types": ["attention"] * config["num_hidden_layers"], "mamba_d_head": config["hidden_size"],
                                        "intermediate_size": config["shared_intermediate_size"]},
    "mistral": lambda config: {"sliding_window": None},
    "mixtral": lambda config: {"sliding_window": None},
    "olmo3": without_scaling_ramp,
    "phi3": with_long_context,
}
NO_FORM = {"gpt2_b": "GPT-2 with an inner width of its own and another activation has no GGUF form"}


def widen(config):
    """The same configuration at sizes that blocks of 256 fit. Everything that follows from a width follows."""
    def scale(holder, key, to):
        if holder.get(key) is not None:
            holder[key] = to
    heads = config.get("num_attention_heads") or config.get("n_head")
    head = config.get("head_dim") or (config.get("hidden_size") or config.get("n_embd")) // heads
    scale(config, "hidden_size", 256)
    scale(config, "n_embd", 256)
    for key in ("intermediate_size", "moe_intermediate_size", "shared_intermediate_size", "n_inner", "shared_expert_intermediate_size"):
        scale(config, key, 512 if key != "moe_intermediate_size" else 256)
    scale(config, "head_dim", 64)
    config.update({key: 4 for key in ("num_attention_heads", "n_head") if key in config})
    scale(config, "num_key_value_heads", 2)
    rope = config.get("rope_parameters") or {}
    for key in ("long_factor", "short_factor"):
        if key in rope:
            n = int(64 * rope.get("partial_rotary_factor", 1)) // 2
            rope[key] = [1 + (rope[key][-1] - 1) * i / n for i in range(n)]
    return config


def copy(model, out, config, weights):
    """The golden model in a folder of its own, with another configuration."""
    config.update(WITHOUT.get(config["model_type"], lambda config: {})(config))
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config, indent=1))
    for file in model.iterdir():
        if file.name != "config.json" and (weights or not file.name.startswith("model.safetensors")):
            shutil.copy(file, out / file.name)
    return config


def make_wide(model, out):
    """A random model in a folder of its own, with the tokenizer of the golden one."""
    import torch, transformers
    config = copy(model, out, widen(json.loads((model / "config.json").read_text())), False)
    torch.manual_seed(1)
    made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(out), torch_dtype=torch.float32)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.dim() > 1:
                p.normal_(std=1.0 / p.shape[-1] ** 0.5)
            elif "norm" in name or "ln" in name:
                p.add_(0.1 * torch.randn_like(p))
            else:
                p.normal_(std=0.1)
    made.save_pretrained(out)
    (out / "config.json").write_text(json.dumps(config, indent=1))


def use(llama_cpp):
    """Files without tokenizer say how many tokens there are; some of the converter's do not."""
    make_converted.use(llama_cpp)
    from conversion import TextModel
    none = TextModel._set_vocab_none

    def with_size(self):
        none(self)
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])
    TextModel._set_vocab_none = with_size


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


class Check:
    def __init__(self, options):
        self.o = options
        self.llama = Llama(str(options.llama / "libllama.so"), options.llama_cpp)

    def allowed(self, model):
        text = (model / "config.json").read_text()
        return GELU_TOLERANCE if "gelu" in text else TOLERANCE

    def greedy(self, file, compute):
        text = run([self.o.vitrine, "generate", "--tokens", ",".join(map(str, PROMPT)), "--model", file, "--max-tokens", NEW, "--ignore-eos", "--compute", compute,
                    "--json"])
        return json.loads(text)["tokens"]

    def logits(self, file, tokens):
        found = self.llama.logits(file, tokens)
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def quantize(self, source, kind, folder, name):
        out = folder / name
        run([self.o.llama / "llama-quantize", "--allow-requantize", source, out, kind.upper()])
        return out

    def compare_file(self, model, folder):
        """The golden directory, and the converter's file of it."""
        file = folder / "theirs.gguf"
        make_converted.convert(model, file, "f32")
        tokens = self.greedy(model, "f32")
        if self.greedy(file, "f32") != tokens:
            return "greedy text differs from the directory's"
        row = [*PROMPT, *tokens]
        own, made = (vitrine_logits(self.o.vitrine, one, row, folder) for one in (model, file))
        if abs(own - made).max() > 2e-5 + 1e-4 * abs(own).max():
            return f"logits differ by {abs(own - made).max():.1e} of {abs(own).max():.1f}"
        there = self.logits(file, row)
        if abs(there - own).max() > self.allowed(model) * max(1, abs(own).max()):
            return f"llama.cpp's logits differ by {abs(there - own).max():.1e} of {abs(own).max():.1f}"
        return self.follows(there, tokens, 2 * abs(there - own).max())

    @staticmethod
    def follows(logits, tokens, allowed=0.0):
        """"" if each token is the most likely behind those before it, as far as `allowed` decides."""
        at = len(PROMPT) - 1
        for i, token in enumerate(tokens):
            row = logits[at + i]
            if row.max() - row[token] > allowed:
                return f"token {i} is {token} here and {row.argmax()} there, by {row.max() - row[token]:.1e}"
        return ""

    def compare_quantized(self, file, model, folder):
        """Greedy text of a quantized file in both programs: in f32, and with llama.cpp's rounding of activations."""
        wide = self.quantize(file, "f32", folder, "widened.gguf")
        tokens = self.greedy(file, "f32")
        row = [*PROMPT, *tokens]
        exact, rounded = self.logits(wide, row), self.logits(file, row)
        own = vitrine_logits(self.o.vitrine, file, row, folder)
        if abs(own - exact).max() > self.allowed(model) * max(1, abs(own).max()):
            return f"logits differ by {abs(own - exact).max():.1e} of {abs(own).max():.1f}"
        wrong = self.follows(exact, tokens, 2 * abs(own - exact).max())
        if wrong:
            return wrong
        if not self.follows(rounded, tokens):
            return ""
        return self.follows(rounded, tokens, 2 * float(abs(rounded - exact).max())) or "within rounding"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vitrine", default=str(ROOT / "build/release/vitrine"))
    parser.add_argument("--llama-cpp", required=True, type=pathlib.Path)
    parser.add_argument("--llama", required=True, type=pathlib.Path)
    parser.add_argument("--types", default="q8_0,q4_0,q4_k_m,iq4_xs")
    parser.add_argument("families", nargs="*", help="of tests/golden/models, or directories of models")
    o = parser.parse_args()
    use(o.llama_cpp)
    check, types = Check(o), o.types.split(",")
    columns = ["file", *types, *("our " + kind for kind in types)]
    print(f"{'family':14}" + "".join(f"{column:17}" for column in columns))
    wrong = []

    def cell(family, column, what):
        try:
            found = what()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found not in ("", "within rounding"):
            wrong.append(f"{family}, {column}: {found}")
        print(f"{(found if found == 'within rounding' else 'DIFFERS') if found else 'equal':17}", end="", flush=True)

    all_models = [*sorted((ROOT / "tests/golden/models").iterdir()), ROOT / "models/tales9m"]
    named = {golden.name: golden for golden in all_models}
    for golden in [named.get(name) or pathlib.Path(name) for name in o.families] or all_models:
        is_golden = (golden / "model").is_dir()
        model = golden / "model" if is_golden else golden
        if not (model / "config.json").exists() or golden.name.startswith("classic"):
            continue
        if golden.name in NO_FORM:
            print(f"{golden.name:14}{NO_FORM[golden.name]}")
            continue
        print(f"{golden.name:14}", end="", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            copy(model, scratch / "golden", json.loads((model / "config.json").read_text()), True)
            cell(golden.name, "file", lambda: check.compare_file(scratch / "golden", scratch))
            original = scratch / "wide.gguf"
            try:
                if is_golden:
                    make_wide(model, scratch / "wide")
                else:
                    (scratch / "wide").symlink_to(scratch / "golden")
                make_converted.convert(scratch / "wide", original, "f32")
            except Exception as error:
                wrong.append(f"{golden.name}: no wider model: {type(error).__name__}: {error}")
                print()
                continue
            for kind in types:
                cell(golden.name, kind, lambda: check.compare_quantized(check.quantize(original, kind, scratch, f"{kind}.gguf"), scratch / "wide", scratch))
            for kind in types:
                def ours():
                    file = scratch / f"our-{kind}.gguf"
                    run([o.vitrine, "convert", scratch / "wide", file, "--dtype", kind])
                    return check.compare_quantized(file, scratch / "wide", scratch)
                cell(golden.name, "our " + kind, ours)
        print()
    for line in wrong:
        print("  " + line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
