"""Texts of one batch with LoRA adapters of their own, and one text with two adapters, run by PEFT in float64.

usage: make_mixed.py
needs: torch, transformers, peft, safetensors (made with torch 2.15.0, transformers 5.24.0, peft 0.21.2)

mixed/ has, for the golden model llama with the adapter ../llama/adapter as "first":
    second/               another adapter, as PEFT saves it, A and B random
    golden.safetensors    ids [3, T]; mixed/<i> [T, V]: logits of sequence i where the batch runs with adapter_names first, none and
                          second; both [T, V]: of sequence 0 with 0.5 times the first and -1.5 times the second
"""
import pathlib
import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
T = 20
torch.manual_seed(11)
base = AutoModelForCausalLM.from_pretrained(HERE.parent / "models/llama/model", dtype=torch.float32, attn_implementation="eager").eval()
model = PeftModel.from_pretrained(base, HERE / "llama/adapter", adapter_name="first")
model.add_adapter("second", LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"]))
model.peft_config["second"].base_model_name_or_path = "llama"
for key, value in model.named_parameters():
    if "lora_B.second" in key:
        torch.nn.init.normal_(value, std=0.1)
folder = HERE / "mixed"
model.save_pretrained(folder, selected_adapters=["second"])
(folder / "README.md").unlink(missing_ok=True)

model = model.double().eval()
ids = torch.randint(3, model.config.vocab_size - 3, (3, T))
out = {"ids": ids.int()}
with torch.no_grad():
    z = model(ids, use_cache=False, adapter_names=["first", "__base__", "second"]).logits
    out.update({f"mixed/{i}": z[i].float().contiguous() for i in range(3)})
    model.base_model.set_adapter(["first", "second"])
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            for name, scale in (("first", 0.5), ("second", -1.5)):
                if name in layer.scaling:
                    layer.scaling[name] *= scale
    out["both"] = model(ids[:1], use_cache=False).logits[0].float().contiguous()
save_file(out, folder / "golden.safetensors")
