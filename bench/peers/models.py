"""Models of published shapes with random weights, as GGUF files of every type that is compared."""
import pathlib
import subprocess
import sys

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"
MODELS = ("llama-15m", "gpt2", "smollm2-360m", "qwen3-0.6b", "gemma3-1b", "llama-3.2-1b", "qwen2.5-1.5b", "gemma2-2b", "gemma-2b",
          "qwen3-moe-small", "deepseek-small", "llama-1b-2l")


def file_of(model, dtype, folder, vitrine, make_model):
    """MODEL-TYPE.gguf in the folder, made if it is not there. Quantized files come from the bf16 directory, which is kept."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{model}-{dtype}.gguf"
    if out.exists():
        return out
    run([vitrine, "convert", directory_of(model, "bf16", folder, make_model), out, "--dtype", dtype])
    return out


def directory_of(model, dtype, folder, make_model):
    """The Hugging Face directory of a model's weights in bf16 or f32, made if it is not there."""
    directory = folder / (model if dtype == "bf16" else f"{model}.{dtype}")
    if not (directory / "config.json").exists():
        run([make_model, CONFIGS / f"{model}.json", directory, dtype])
    return directory


def run(command):
    print("+", " ".join(str(c) for c in command), file=sys.stderr, flush=True)
    subprocess.run([str(c) for c in command], check=True, stdout=sys.stderr)
