"""Tuned lenses of golden models: their logits, their KL, and ten steps of training, in float64.

usage: make.py
needs: torch, transformers, safetensors, tuned-lens (made with torch 2.15.0, transformers 5.24.0, tuned-lens 0.2.0)

gpt2_a and llama go through the package's TunedLens. It does not take gemma2, whose lens is written out here.

<model>.safetensors, a lens with random numbers (L layers, D d_model): 0.weight [D, D], 0.bias [D], 1.weight, …: layer_translators.state_dict()
<model>_numbers.safetensors: ids [T]; logits [L, T, vocabulary]; kl [L, T] = KL(model || lens)
train.safetensors, of gpt2_a: each step's ids [10, sequences, T]; kl [10, L] before each step, mean over its tokens; the lens after them
"""
import pathlib
import torch, transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from tuned_lens.nn.lenses import TunedLens

HERE = pathlib.Path(__file__).parent
STEPS, LR = 10, 1e-2


def opened(name):
    path = HERE.parent / "models" / name / "model"
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval().requires_grad_(False)


class Gemma2Lens(torch.nn.Module):
    """h + A h + b, the final norm, the head and its soft cap."""
    def __init__(self, model):
        super().__init__()
        c = model.config
        self.norm, self.head, self.cap = model.model.norm, model.lm_head, c.final_logit_softcapping
        self.layer_translators = torch.nn.ModuleList([torch.nn.Linear(c.hidden_size, c.hidden_size, dtype=torch.float64) for _ in range(c.num_hidden_layers)])

    def forward(self, h, layer):
        z = self.head(self.norm(h + self.layer_translators[layer](h)))
        return self.cap * torch.tanh(z / self.cap)


def lens_of(name, model):
    return Gemma2Lens(model) if name == "gemma2" else TunedLens.from_model(model)


def all_kl(model, lens, ids):
    """KL(model || lens) of every layer and token: [L, T]."""
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
    target = out.logits.log_softmax(-1)
    logits = torch.stack([lens(h, layer) for layer, h in enumerate(out.hidden_states[:-1])])
    return logits, (target.exp() * (target - logits.log_softmax(-1))).sum(-1)


def random_lens(name):
    torch.manual_seed(sum(map(ord, name)))
    model = opened(name)
    lens = lens_of(name, model)
    for p in lens.layer_translators.parameters():
        p.data = torch.randn_like(p.data) * 0.05
        p.data = p.data.float().double()  # as the file holds it
    ids = torch.randint(3, model.config.vocab_size - 3, (1, 9))
    with torch.no_grad():
        logits, kl = all_kl(model, lens, ids)
    save_file({n: p.float().contiguous() for n, p in lens.layer_translators.state_dict().items()}, HERE / f"{name}.safetensors")
    save_file({"ids": ids[0], "logits": logits[:, 0].float().contiguous(), "kl": kl[:, 0].float().contiguous()}, HERE / f"{name}_numbers.safetensors")


def train(name):
    torch.manual_seed(7)
    model = opened(name)
    lens = lens_of(name, model)  # zeros
    optimizer = torch.optim.AdamW(lens.layer_translators.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    ids = torch.randint(3, model.config.vocab_size - 3, (STEPS, 3, 14))
    before = []
    for step in range(STEPS):
        optimizer.zero_grad()
        kl = all_kl(model, lens, ids[step])[1].mean((1, 2))
        kl.sum().backward()  # each translator learns from its own alone
        optimizer.step()
        before.append(kl.detach())
    numbers = {"ids": ids, "kl": torch.stack(before).float()}
    numbers.update({n: p.float().contiguous() for n, p in lens.layer_translators.state_dict().items()})
    save_file(numbers, HERE / "train.safetensors", metadata={"lr": str(LR)})


if __name__ == "__main__":
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for name in ("gpt2_a", "llama", "gemma2"):
        random_lens(name)
    train("gpt2_a")
