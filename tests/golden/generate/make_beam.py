"""Beam searches by transformers' generate() over small tables: the scores of the next token depend on the two tokens before it.

Writes beam.json: tables of log-probabilities [V, V, V] (two tokens back, one back, next), and cases with the sequences and scores that
generate(num_beams=...) returns. Run with transformers 5.x: python make_beam.py
"""
import itertools, json, os
import numpy as np
import torch
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutput

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)
# topk leaves the order of equal scores open; here, as in a stable sort, the lower index comes first.
torch.topk = lambda x, k, dim=-1, **_: tuple(t.narrow(dim, 0, k) for t in torch.sort(x, dim=dim, descending=True, stable=True))


class Config(PretrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=8, **kw):
        super().__init__(**kw)
        self.vocab_size, self.num_hidden_layers = vocab_size, 0


class Table(PreTrainedModel, GenerationMixin):
    config_class = Config

    def __init__(self, config, table):
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.zeros(1))
        self.table = table

    def forward(self, input_ids=None, **_):
        before = torch.cat([input_ids[:, :1], input_ids[:, :-1]], 1)
        return CausalLMOutput(logits=self.table[before, input_ids])

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}


def run(table, prompt, beams, penalty, early, eos, n):
    model = Table(Config(vocab_size=table.shape[0]), torch.tensor(table)).eval()
    cfg = GenerationConfig(num_beams=beams, num_return_sequences=beams, length_penalty=penalty, early_stopping=early, eos_token_id=eos or None, pad_token_id=0,
                           max_new_tokens=n, do_sample=False, return_dict_in_generate=True, output_scores=True, use_cache=False)
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), generation_config=cfg)
    sequences = []
    for row, used in zip(out.sequences[:, len(prompt):].tolist(), (out.beam_indices >= 0).sum(1).tolist()):
        sequences.append(row[:used])
    return {"sequences": sequences, "scores": out.sequences_scores.tolist()}


rng = np.random.default_rng(7)
tables = {"sharp": rng.normal(0, 2, (8, 8, 8)), "soft": rng.normal(0, 0.7, (8, 8, 8)), "small": rng.normal(0, 1, (3, 3, 3)),
          "ties": np.round(rng.normal(0, 1, (6, 6, 6))), "uniform": np.zeros((5, 5, 5))}
# Greedy takes 1 (0.4) and then has only poor continuations; 2 (0.35) continues with certainty.
trap = np.log(np.full((4, 4, 4), 0.25))
trap[:, 0] = np.log([0.05, 0.45, 0.4, 0.1])
trap[:, 2] = np.log([0.01, 0.01, 0.01, 0.97])
tables["trap"] = trap
tables = {k: v.astype(np.float32) for k, v in tables.items()}
cases = []
settings = list(itertools.product([2, 3, 4], [0.6, 1.0, 2.0, -1.0, 0.0], [False, True, "never"], [[], [2], [1, 2]], [1, 5, 12]))
for offset, (name, table) in enumerate(tables.items()):
    for beams, penalty, early, eos, n in settings[offset::4]:
        prompt = [0] if name == "trap" else rng.integers(0, table.shape[0], 3).tolist()
        cases.append({"table": name, "prompt": prompt, "n_beams": beams, "length_penalty": penalty, "early_stopping": early, "eos": eos, "max_new_tokens": n,
                      **run(table, prompt, beams, penalty, early, eos, n)})
json.dump({"tables": {k: {"vocab_size": v.shape[0], "log_probs": torch.log_softmax(torch.tensor(v), -1).ravel().tolist()} for k, v in tables.items()}, "cases": cases}, open(HERE + "/beam.json", "w"))
print(len(cases), "cases")
