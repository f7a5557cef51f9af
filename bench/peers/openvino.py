"""OpenVINO GenAI on the directory that a GGUF file was made of, converted with optimum-intel: 8-bit, 4-bit, bf16 or f32 weights."""
import json
import shutil
import statistics
import subprocess

from peer import python_with
from peers.models import directory_of, run

PROGRAM = r'''
import json, sys, numpy, openvino, openvino_genai as genai
path, precision, backend, prompt, decode, threads, repeat, sequences = *sys.argv[1:4], *map(int, sys.argv[4:])
properties = {"INFERENCE_NUM_THREADS": threads, "ATTENTION_BACKEND": backend}
if precision:
    properties["INFERENCE_PRECISION_HINT"] = precision
if backend == "PA":  # the prompt in one piece, and nothing kept from one repetition to the next
    properties["scheduler_config"] = scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching, scheduler.max_num_batched_tokens = False, 1 << 20
pipe = genai.LLMPipeline(path, "CPU", **properties)
vocabulary = json.load(open(path + "/config.json"))["vocab_size"]
ids = numpy.array([[(i * 7919 + 13 + s) % vocabulary for i in range(prompt)] for s in range(sequences)])
inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
config = genai.GenerationConfig(max_new_tokens=decode + 1, ignore_eos=True, do_sample=False)
out = {"prefill": [], "decode": []}
for round in range(repeat + 1):
    metrics = pipe.generate(inputs, config).perf_metrics
    first, all = metrics.get_ttft().mean / 1000, metrics.get_generate_duration().mean / 1000
    if round > 0:
        out["prefill"].append(sequences * prompt / first)
        out["decode"].append(sequences * decode / (all - first))
print(json.dumps(out))
'''
# type of the GGUF file: what optimum-cli is told, precision of the products (none: the plugin's own choice, bf16 where the processor
# has it). Embedding and head are 8-bit in both quantized forms.
TYPES = {
    "q8_0": (["--weight-format", "int8"], ""),
    "q4_0": (["--weight-format", "int4", "--sym", "--group-size", "32", "--ratio", "1.0"], ""),
    "bf16": (["--weight-format", "fp16"], "bf16"),
    "f32": (["--weight-format", "fp32"], "f32"),
}
# Paged attention, the default for one request after another, and the plain form; the faster counts for each kind of work.
BACKENDS = ("PA", "SDPA")


class OpenVINO:
    """Makes its virtual environment from PyPI if the folder has none. transformers 5.0 is the last that exports Gemma."""

    def __init__(self, folder, make_model):
        self.python = python_with(str(folder / "openvino"), "openvino-genai", "optimum-intel[openvino]", "transformers==5.0.*")
        self.convert = folder / "openvino" / "bin" / "optimum-cli"
        self.make_model = make_model

    def alone(self, file, prompt, decode, threads, repeat, depth=0, cache="f32"):
        """{work: [tokens per second of each repetition]}"""
        if depth:
            raise RuntimeError("not compared behind many positions")
        return self.best(file, prompt, decode, threads, repeat, 1), None

    def together(self, file, sequences, threads, repeat):
        return self.best(file, 16, 32, threads, repeat, sequences)["decode"]

    def best(self, file, prompt, decode, threads, repeat, sequences):
        directory, precision = self.converted(file)
        best = {}
        for backend in BACKENDS:
            words = [self.python, "-c", PROGRAM, directory, precision, backend, prompt, decode, threads, repeat, sequences]
            ran = subprocess.run([str(word) for word in words], capture_output=True, text=True)
            if ran.returncode != 0:
                raise RuntimeError(ran.stderr.strip()[-300:])
            for work, speeds in json.loads(ran.stdout.strip().splitlines()[-1]).items():
                if work not in best or statistics.median(speeds) > statistics.median(best[work]):
                    best[work] = speeds
        return best

    def converted(self, file):
        """OpenVINO's form of the model, made if it is not there, and the precision of its products."""
        model, dtype = file.stem.rsplit("-", 1)
        if dtype not in TYPES:
            raise RuntimeError(f"OpenVINO has no {dtype}")
        flags, precision = TYPES[dtype]
        out = file.parent / f"{model}-{dtype}.openvino"
        if not out.exists():
            source = directory_of(model, "f32" if dtype == "f32" else "bf16", file.parent, self.make_model)
            partial = out.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            try:
                run([self.convert, "export", "openvino", "-m", source, "--task", "text-generation-with-past", *flags,
                     "--disable-convert-tokenizer", partial])
            except subprocess.CalledProcessError as error:
                raise RuntimeError(f"optimum-intel does not convert {model} to {dtype}") from error
            partial.rename(out)
        return out, precision
