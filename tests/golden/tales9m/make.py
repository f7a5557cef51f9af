"""What the shipped model must give, from transformers in float32 (eager attention) on its bf16 weights.

usage: python tests/golden/tales9m/make.py, from the repository's root   (transformers 5.23.0, torch 2.15.0, sentencepiece 0.2.3)

golden.json, for each text: ids with BOS, pieces, mean next-token loss, the ten most likely next tokens, 80 greedy tokens and the
smallest margin between first and second on the way. forward.safetensors: logits and hidden states of each text, and the attention
of the first.
"""
import json
import pathlib

import sentencepiece
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent.parent.parent / "models" / "tales9m"
TEXTS = [
    "Once upon a time",
    "The old king had three sons, and the youngest",
    '"Who are you?" asked the little girl.\n\n"I am',
    "In the middle of the forest there stood a house, and in the house lived",
    "12 geese, 7 swans and 1 wolf: how many",
]
GREEDY = 80


def greedy(model, ids):
    margin = float("inf")
    row = ids.clone()
    for _ in range(GREEDY):
        best = model(row).logits[0, -1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        row = torch.cat([row, best.indices[:1].view(1, 1)], 1)
    return row[0, ids.shape[1] :].tolist(), margin


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    pieces = sentencepiece.SentencePieceProcessor(str(MODEL / "tokenizer.model"))
    rows, tensors = [], {}
    for number, text in enumerate(TEXTS):
        ids = torch.tensor([[pieces.bos_id()] + pieces.encode(text)])
        out = model(ids, output_hidden_states=True, output_attentions=True)
        logp = out.logits[0].log_softmax(-1)
        top = logp[-1].topk(10)
        tensors[f"{number}/logits"] = out.logits[0]
        tensors |= {f"{number}/hidden.{i}": hidden[0] for i, hidden in enumerate(out.hidden_states)}
        if number == 0:
            tensors |= {f"{number}/attn.{i}": pattern[0] for i, pattern in enumerate(out.attentions)}
        new, margin = greedy(model, ids)
        rows.append(
            {
                "text": text,
                "ids": ids[0].tolist(),
                "pieces": [pieces.id_to_piece(i) for i in ids[0].tolist()],
                "mean_nll_of_tokens_1..": -float(logp[:-1].gather(1, ids[0, 1:, None]).mean()),
                "top10_next": [[int(i), pieces.id_to_piece(int(i)), float(v.exp())] for v, i in zip(top.values, top.indices)],
                "greedy_new_ids": new,
                "greedy_text": pieces.decode(new),
                "smallest_margin": margin,
            }
        )
        print(f"{text!r}: {rows[-1]['greedy_text']!r}, smallest margin {margin:.4f}")
    save_file({name: t.contiguous() for name, t in tensors.items()}, HERE / "forward.safetensors")
    (HERE / "golden.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


main()
