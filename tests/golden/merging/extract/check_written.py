"""Adapters that vitrine extracts, opened by PEFT on their base model: at full rank the logits must be those of the fine-tuned model.

usage: check_written.py VITRINE_PROGRAM
needs: torch, transformers, peft, safetensors (run with torch 2.15.0, transformers 5.24.0, peft 0.21.2)

Also: no tensor of the adapter may be unknown to PEFT, and none that PEFT expects may be missing. Exit code 1 if anything differs.
"""
import os, pathlib, subprocess, sys, tempfile, warnings
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
import torch
from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
warnings.simplefilter("ignore")
VITRINE = pathlib.Path(sys.argv[1]).resolve()
MERGING = pathlib.Path(__file__).resolve().parent.parent
IDS = [5, 9, 17, 3, 8, 21, 14, 11, 2]
SAVED = {"tiny_gpt2": "h.1.mlp.c_fc", "gpt2": "h.1.mlp.c_fc"}  # of the others: layers.1.mlp.up_proj
OPTIONS = [[], ["--embed-lora"], ["--no-distribute-scale"], ["--sv-epsilon", "1e-6"], ["--save-module", "SAVED"]]
failed = False


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0].float()


def open_model(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def check(name, base, tuned, options, allowed):
    global failed
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "adapter"
        subprocess.run([VITRINE, "extract-lora", "--model", tuned, "--base-model", base, "--out-path", folder, *options],
                       check=True, capture_output=True)
        config = PeftConfig.from_pretrained(folder)
        config.inference_mode = False  # as a fresh adapter, then its weights: so that PEFT tells what it misses
        model = get_peft_model(open_model(base), config).eval()
        result = set_peft_model_state_dict(model, load_peft_weights(folder))
        missing = [k for k in result.missing_keys if "lora_" in k or "modules_to_save" in k]
        distance = (logits_of(model) - logits_of(open_model(tuned))).abs().max().item()
    wrong = missing or result.unexpected_keys or not distance <= allowed
    failed |= bool(wrong)
    print("WRONG" if wrong else "ok   ", name, *options, f"logits differ by {distance:.2g};",
          f"missing {missing}, unexpected {result.unexpected_keys}")


for family in ("tiny_llama", "llama", "tiny_gpt2", "gpt2", "tiny_gemma2"):
    for options in OPTIONS:
        options = [SAVED.get(family, "layers.1.mlp.up_proj") if o == "SAVED" else o for o in options]
        check(family, MERGING / family / "base", MERGING / family / "ft2", options, 2e-5)

# Every family, all of its tensors changed: also models with biases in some matrices only, and tied ones.
for base in sorted((MERGING.parent / "models").glob("*/model")):
    if base.parent.name.startswith("classic"):  # transformers has no such model
        continue
    with tempfile.TemporaryDirectory() as tuned:
        model, g = open_model(base), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=g))
        model.save_pretrained(tuned)
        for options in ([], ["--embed-lora"]):
            check(base.parent.name, base, tuned, options, 1e-4)
sys.exit(failed)
