"""weight_edits.npz: logits of golden models after their weights were changed in memory, by torch.

usage: make_weight_edits.py
needs: numpy, torch, transformers (made with torch 2.15.0, transformers 5.24.0, numpy 2.4.6; float32, eager attention, CPU)

For each model in MODELS: `<model>.ids` [T], and `<model>.<edit>` [3, vocab], of the last three positions, for each of EDITS, each on a fresh copy of the model:
    head       W_Q of layer 1, head 1: zeros
    prune      of W_in of layer 0: numbers whose absolute value is below 0.05 become 0; all of W_out of that layer times 0.5
    rank_one   W_out of layer 1 += outer(key, value)
    projection  the unit vector `direction` is projected out of everything that writes to the residual stream: embeddings (of a tied
               model its output matrix is the same), positions, W_O and W_out of every layer
    norms      the factor of the first norm of layer 0 times 1.25 (of Gemma that is 1 + w); number 3 of the last norm's factor 0
    all        all of these, one after the other
The vectors are `<model>.key` [d_ff], `.value` and `.direction` [d_model], from numpy.random.default_rng(48).
"""
import pathlib
import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = ("gpt2_a", "llama", "gemma", "gpt_neox", "bloom")
EDITS = ("head", "prune", "rank_one", "projection", "norms")


class Places:
    """What each edit changes, as views: matrices [in, out], heads [head, head_dim, d_model] of the query's outputs."""

    def __init__(self, model, name):
        c = model.config
        heads = c.num_attention_heads
        if name == "gpt2_a":
            body = model.transformer
            d = c.n_embd
            self.embeddings = [body.wte.weight, body.wpe.weight]
            self.query = [b.attn.c_attn.weight[:, :d].T.unflatten(0, (heads, -1)) for b in body.h]
            self.out = [b.attn.c_proj.weight for b in body.h]
            self.up, self.down = [b.mlp.c_fc.weight for b in body.h], [b.mlp.c_proj.weight for b in body.h]
            self.first_norm, self.last_norm = body.h[0].ln_1.weight, body.ln_f.weight
        elif name in ("llama", "gemma"):
            body = model.model
            self.embeddings = [body.embed_tokens.weight]
            self.query = [b.self_attn.q_proj.weight.unflatten(0, (heads, -1)) for b in body.layers]
            self.out = [b.self_attn.o_proj.weight.T for b in body.layers]
            self.up, self.down = [b.mlp.up_proj.weight.T for b in body.layers], [b.mlp.down_proj.weight.T for b in body.layers]
            self.first_norm, self.last_norm = body.layers[0].input_layernorm.weight, body.norm.weight
        else:
            body = model.gpt_neox if name == "gpt_neox" else model.transformer
            layers = body.layers if name == "gpt_neox" else body.h
            attention = [b.attention if name == "gpt_neox" else b.self_attention for b in layers]
            self.embeddings = [body.embed_in.weight if name == "gpt_neox" else body.word_embeddings.weight]
            self.query = [a.query_key_value.weight.unflatten(0, (heads, 3, -1))[:, 0] for a in attention]
            self.out = [a.dense.weight.T for a in attention]
            self.up, self.down = [b.mlp.dense_h_to_4h.weight.T for b in layers], [b.mlp.dense_4h_to_h.weight.T for b in layers]
            self.first_norm = layers[0].input_layernorm.weight
            self.last_norm = (body.final_layer_norm if name == "gpt_neox" else body.ln_f).weight
        self.offset = 1 if name == "gemma" else 0  # of a norm's factor over what is stored


@torch.no_grad()
def edit(p, name, key, value, direction):
    if name == "head":
        p.query[1][1].zero_()
    elif name == "prune":
        p.up[0][p.up[0].abs() < 0.05] = 0
        p.down[0].mul_(0.5)
    elif name == "rank_one":
        p.down[1].add_(torch.outer(key, value))
    elif name == "projection":
        for matrix in (*p.embeddings, *p.out, *p.down):
            matrix.sub_(torch.outer(matrix @ direction, direction))
    elif name == "norms":
        p.first_norm.copy_((p.first_norm + p.offset) * 1.25 - p.offset)
        p.last_norm[3] = -p.offset


def main():
    print("torch", torch.__version__, "transformers", transformers.__version__, "numpy", np.__version__)
    torch.set_num_threads(1)
    found = {}
    for name in MODELS:
        path = HERE.parent / "models" / name / "model"

        def fresh():
            return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()

        model = fresh()
        places = Places(model, name)
        random = np.random.default_rng(48)
        d_ff, d_model = places.down[1].shape
        vectors = {"key": random.normal(size=d_ff) / d_ff**0.5, "value": random.normal(size=d_model), "direction": random.normal(size=d_model)}
        vectors["direction"] /= np.linalg.norm(vectors["direction"])
        vectors = {key: one.astype(np.float32) for key, one in vectors.items()}
        ids = random.integers(3, model.config.vocab_size, 10)
        found |= {f"{name}.{key}": one for key, one in vectors.items()} | {f"{name}.ids": ids}
        given = [torch.from_numpy(vectors[key]) for key in ("key", "value", "direction")]
        plain = logits(model, ids)
        for one in EDITS:
            model = fresh()
            edit(Places(model, name), one, *given)
            found[f"{name}.{one}"] = logits(model, ids)
            assert np.abs(found[f"{name}.{one}"] - plain).max() > 1e-2, (name, one)
        model = fresh()
        for one in EDITS:
            edit(Places(model, name), one, *given)
        found[f"{name}.all"] = logits(model, ids)
    np.savez_compressed(HERE / "weight_edits.npz", **found)


def logits(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None]).logits[0, -3:].numpy()


if __name__ == "__main__":
    main()
