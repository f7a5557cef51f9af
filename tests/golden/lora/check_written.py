"""What vitrine learns and converts, opened by PEFT and transformers: the logits must be the same.

usage: check_written.py VITRINE_PROGRAM
needs: torch, transformers, peft, safetensors, numpy (run with torch 2.15.0, transformers 5.23.0, peft 0.21.2)

For gpt2_a, gemma2 and mixtral: learns an adapter for a few steps beside the model, then compares the logits of
    vitrine --adapter          with PeftModel.from_pretrained
    vitrine convert --adapter  with AutoModelForCausalLM.from_pretrained of what it wrote, in f32, bf16 and f16
and the bytes of every converted tensor with torch's own rounding of PEFT's merged weights.

Every adapter of this folder, and those of llama.cpp that PEFT can hold, are written again by vitrine convert --adapter-only: PEFT's logits
with what was written must be those of golden.safetensors. Exit code 1 if anything differs.
"""
import json, pathlib, subprocess, sys, tempfile
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
VITRINE = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
IDS = [5, 9, 17, 33, 8, 21, 40, 11, 60, 34, 7, 19]
failed = False


def run(*arguments):
    return subprocess.run([VITRINE, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def say(what, distance, allowed):
    global failed
    failed |= not distance <= allowed
    print(f"{'ok' if distance <= allowed else 'WRONG'}  {what}: {distance:.2g}, allowed {allowed:.2g}")


def open_base(name, path=None, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(path or MODELS / name / "model", dtype=dtype, attn_implementation="eager").eval()


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0].float()


def our_logits(folder, *arguments):
    out = folder / "trace.safetensors"
    run("trace", "--tokens", ",".join(map(str, IDS)), "--hooks", "hook_logits", "--compute", "f32", "--out", out, *arguments)
    return load_file(out)["hook_logits"]


def written_again(name, adapter):
    base_name = json.loads((HERE / name / "adapter/adapter_config.json").read_text())["base_model_name_or_path"]
    source = MODELS / base_name / "model"
    source = source if source.exists() else HERE.parent / "variants" / base_name
    gold = load_file(HERE / name / "golden.safetensors")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "adapter"
        run("convert", source, folder, "--adapter", adapter, "--adapter-only")
        base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
        model = PeftModel.from_pretrained(base.eval(), folder).eval()
        with torch.no_grad():
            logits = model(gold["ids"][:1].long(), use_cache=False).logits[0]
        say(f"{name}: PEFT with {adapter.name} that vitrine wrote again", (logits - gold["logits"]).abs().max().item(),
            1e-4 * gold["logits"].abs().max().item())


for golden in sorted(HERE.glob("*/losses.json")):
    written_again(golden.parent.name, golden.parent / "adapter")
for name in ("gemma2", "phi3", "glm4", "gpt_neox"):  # without rsLoRA, which the converter does not know
    written_again(name, HERE / name / "llama_cpp.gguf")

for name, targets in (("gpt2_a", "[c_attn, mlp.c_proj]"), ("gemma2", "all-linear"),
                      ("mixtral", "[q_proj, experts.gate_up_proj, mlp.experts.down_proj]")):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        text.write_text("the cat sat on the mat and the dog sat on the log. " * 80)
        run("data", text, "--tokenizer", MODELS / name / "model", "--out", folder / "data")
        (folder / "run.yaml").write_text(
            f"model: {MODELS / name / 'model'}\nlora: {{rank: 4, alpha: 8, targets: {targets}}}\n"
            f"data: {{train: {folder / 'data/train'}}}\nsequence_length: 16\nbatch: 4\nsteps: 5\n"
            f"optimizer: {{name: adamw, lr: 1e-2}}\nschedule: {{decay: constant}}\nout: {folder / 'run'}\n")
        run("train", folder / "run.yaml")
        adapter = folder / "run/last"
        ours = our_logits(folder, "--model", MODELS / name / "model", "--adapter", adapter)
        plain = logits_of(open_base(name))
        peft = PeftModel.from_pretrained(open_base(name), adapter).eval()
        theirs = logits_of(peft)
        say(f"{name}: PEFT with our adapter", (ours - theirs).abs().max().item(), 1e-4 * theirs.abs().max().item())
        say(f"{name}: the adapter matters", 1 / (theirs - plain).abs().max().item(), 1e3)
        merged = peft.merge_and_unload()
        weights = merged.state_dict()
        for dtype, torch_dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
            out = folder / dtype
            run("convert", MODELS / name / "model", out, "--dtype", dtype, "--adapter", adapter)
            again = open_base(name, out, torch_dtype)
            say(f"{name} {dtype}: opened by transformers as {again.dtype}", float(again.dtype != torch_dtype), 0)
            wide = open_base(name, out, torch.float32)
            say(f"{name} {dtype}: logits", (our_logits(folder, "--model", out) - logits_of(wide)).abs().max().item(),
                1e-4 * theirs.abs().max().item())
            stored = load_file(out / "model.safetensors")
            steps = 0
            for key, tensor in stored.items():
                if key not in weights:  # of one expert; transformers holds those of all in one tensor
                    continue
                want = weights[key].to(torch_dtype)
                assert tensor.dtype == torch_dtype and tensor.shape == want.shape, key
                # The sums before rounding differ in their last bits: few numbers fall on the other side of a border.
                steps += (tensor != want).float().mean().item() if dtype != "f32" else 0
                worst = ((tensor.float() - weights[key]).abs() / weights[key].abs().clamp(min=1e-3)).max().item()
                allowed = {"f32": 1e-4, "bf16": 2**-8, "f16": 2**-11}[dtype] * 1.01
                if worst > allowed:
                    say(f"{name} {dtype}: {key}", worst, allowed)
            say(f"{name} {dtype}: share of numbers rounded otherwise than by torch", steps / len(stored), 1e-3)
            config = json.loads((out / "config.json").read_text())
            named = config.get("dtype", config.get("torch_dtype"))
            say(f"{name} {dtype}: config.json says {named}", float(str(torch_dtype) != "torch." + named), 0)
sys.exit(failed)
