"""Tiny random RoFormers and the numbers that transformers computes with them.

usage: make.py [NAME ...]      (without names: everything)
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.24.0; float32, eager attention, CPU)

masked           both directions; the embedding is as wide as the stream
masked_narrow    both directions; an embedding of 10 before a stream of 20, rotated values, GELU's tanh form, eps 1e-3
causal           is_decoder; an embedding of 14 before a stream of 12, ReLU
causal_untied    is_decoder; rotated values, an output matrix and a bias of its own, one token type

<name>/config.json, model.safetensors   the model as a Hugging Face directory
<name>/golden.safetensors               for prompts 0 and 1 (5 and 14 tokens):
    <prompt>/ids, logits, hidden.<i>    hidden.i enters layer i; the last one leaves the last layer (RoFormerModel's last hidden state)
    0/hook/<name>                       what the hooks of that name show
    1/labels, loss, grad/<parameter>    the loss of prompt 1: of masked models at its own tokens, of causal ones of the next tokens
    distance, grad_distance             the largest distance of any of these numbers from a float64 run; of gradients as a share of
                                        the largest of each tensor
masked/vocab.txt, tokenizer_config.json  words for its ids, as BertTokenizer reads them
masked/fill.json                        for texts: ids, and at each [MASK] the position and the ten most likely [id, piece, probability]
"""
import json, pathlib, shutil, sys
import torch
from safetensors.torch import save_file
from transformers import BertTokenizer, RoFormerConfig, RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerModel
from transformers.models.roformer import modeling_roformer

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
LENGTHS = (5, 14)
WORDS = """[PAD] [UNK] [CLS] [SEP] [MASK] the a of and in is was king queen capital city france paris ##s ##ly man woman
old new long day night . , ? !""".split()
TEXTS = ["The [MASK] of France", "the old [MASK] was in [MASK], the capital city of France!"]
TINY = dict(vocab_size=31, hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=13, max_position_embeddings=40,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CASES = {
    "masked": (RoFormerForMaskedLM, RoFormerConfig(**TINY)),
    "masked_narrow": (RoFormerForMaskedLM, RoFormerConfig(**{**TINY, "hidden_size": 20, "num_attention_heads": 2, "intermediate_size": 11}, embedding_size=10,
                                                          rotary_value=True, hidden_act="gelu_new", layer_norm_eps=1e-3, type_vocab_size=3)),
    "causal": (RoFormerForCausalLM, RoFormerConfig(**{**TINY, "hidden_size": 12, "num_attention_heads": 3}, embedding_size=14, hidden_act="relu", is_decoder=True)),
    "causal_untied": (RoFormerForCausalLM, RoFormerConfig(**{**TINY, "hidden_size": 16, "num_attention_heads": 2}, rotary_value=True, is_decoder=True, tie_word_embeddings=False,
                                                          type_vocab_size=1)),
}


def randomize(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if "embed_positions" in name:
                continue
            std = 0.3 if p.dim() == 1 else 1.0 if "embeddings." in name else 1.5 / p.shape[1] ** 0.5
            p.copy_(torch.randn(p.shape, generator=g) * std + (1.0 if name.endswith("LayerNorm.weight") else 0.0))


class Hooks:
    """What a run's intermediates are, by the names of vitrine's hooks."""

    def __init__(self, model):
        self.values, self.handles, body, c = {}, [], model.roformer, model.config
        heads = lambda x: x.reshape(*x.shape[:-1], c.num_attention_heads, -1)

        def out(module, name, change=lambda x: x):
            self.handles.append(module.register_forward_hook(lambda m, args, y: self.values.__setitem__(name, change(y[0] if isinstance(y, tuple) else y)[0])))

        def into(module, name, change=lambda x: x):
            self.handles.append(module.register_forward_pre_hook(lambda m, args: self.values.__setitem__(name, change(args[0])[0])))

        out(body.embeddings.word_embeddings, "hook_embed")
        out(body.embeddings.token_type_embeddings, "hook_token_type_embed")
        out(body.embeddings.LayerNorm, "ln_embed.hook_normalized")
        if hasattr(body, "embeddings_project"):
            out(body.embeddings_project, "hook_full_embed")
        for i, layer in enumerate(body.encoder.layer):
            at, own = f"blocks.{i}.", layer.attention.self
            out(own.query, at + "attn.hook_q", heads)
            out(own.key, at + "attn.hook_k", heads)
            out(own.value, at + "attn.hook_v", heads)
            out(own, at + "attn.hook_z", heads)
            self.handles.append(own.register_forward_hook(lambda m, args, y, at=at: self.values.__setitem__(at + "attn.hook_pattern", y[1][0])))
            out(layer.attention.output.dense, at + "attn.hook_out")
            out(layer.attention.output.LayerNorm, at + "hook_resid_mid")
            out(layer.intermediate.dense, at + "mlp.hook_pre")
            into(layer.output.dense, at + "mlp.hook_post")
            out(layer.output.dense, at + "hook_mlp_out")
            out(layer.output.LayerNorm, at + "hook_resid_post")
            rotate = type(own).apply_rotary_position_embeddings  # a static method

            def rotated(*args, at=at):
                result = rotate(*args)
                for letter, x in zip("qkv", result):
                    self.values[at + "attn.hook_rot_" + letter] = x[0].transpose(0, 1)
                return result
            own.apply_rotary_position_embeddings = rotated
        out(model.cls.predictions.transform.dense, "mlm_head.hook_pre")
        into(model.cls.predictions.transform.LayerNorm, "mlm_head.hook_post")
        out(model.cls.predictions.transform.LayerNorm, "mlm_head.ln.hook_normalized")
        out(model.cls.predictions.decoder, "hook_logits")

    def take(self):
        for handle in self.handles:
            handle.remove()
        return {name: x.detach() for name, x in self.values.items()}


def loss_of(model, logits, labels):
    if model.config.is_decoder:
        logits, labels = logits[:-1], labels[1:]
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100)


def run(model, prompts, labels):
    """Every number of a run, in the model's own precision."""
    out, grads = {}, {}
    for i, ids in enumerate(prompts):
        hooks = Hooks(model) if i == 0 else None
        result = model(ids[None], output_hidden_states=True, use_cache=False)
        out[f"{i}/logits"] = result.logits[0]
        for n, hidden in enumerate(result.hidden_states):
            out[f"{i}/hidden.{n}"] = hidden[0]
        if hooks:
            out.update({f"0/hook/{name}": x for name, x in hooks.take().items()})
        else:
            loss = loss_of(model, result.logits[0], labels)
            own = model(ids[None], labels=labels[None], use_cache=False).loss
            assert torch.allclose(loss.float(), own.float(), atol=1e-5), (loss, own)  # the loss is the model's own
            model.zero_grad()
            loss.backward()
            out["loss"] = loss
            grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None and "embed_positions" not in n}
    return {n: x.detach().clone() for n, x in out.items()}, grads


def fill(model, folder):
    """The most likely tokens at the masks of TEXTS."""
    assert len(WORDS) == model.config.vocab_size
    (folder / "vocab.txt").write_text("".join(word + "\n" for word in WORDS))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}) + "\n")
    tokenizer = BertTokenizer.from_pretrained(folder)
    rows = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        p = torch.softmax(model(ids).logits[0].detach().double(), -1)
        masks = [i for i, token in enumerate(ids[0].tolist()) if token == tokenizer.mask_token_id]
        top = [[[i, WORDS[i], round(float(p[at, i]), 9)] for i in p[at].argsort(descending=True)[:10].tolist()] for at in masks]
        rows.append(dict(text=text, ids=ids[0].tolist(), masks=[dict(position=at, top=best) for at, best in zip(masks, top)]))
    (folder / "fill.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def make(name):
    kind, config = CASES[name]
    seed = 20500 + list(CASES).index(name)
    config._attn_implementation = "eager"
    model = kind(config).eval()
    randomize(model, seed)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    g = torch.Generator().manual_seed(seed + 1)
    prompts = [torch.randint(1, config.vocab_size, (n,), generator=g) for n in LENGTHS]  # no padding, whose embedding torch gives no gradient
    labels = torch.randint(0, config.vocab_size, (LENGTHS[1],), generator=g)
    labels[::3] = -100
    for i, ids in enumerate(prompts):  # the bare model's last state is the one that enters the head
        bare = RoFormerModel.from_pretrained(folder, attn_implementation="eager").eval()
        assert torch.equal(bare(ids[None], use_cache=False).last_hidden_state, model(ids[None], output_hidden_states=True, use_cache=False).hidden_states[-1])
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    out, grads = run(model, prompts, labels)
    wide = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    with torch.no_grad():  # the table of sines in float64, too
        table = wide.roformer.encoder.embed_positions
        half = table.weight.shape[1] // 2
        angles = torch.arange(table.weight.shape[0], dtype=torch.float64)[:, None] / 10000 ** (torch.arange(half, dtype=torch.float64) / half)
        table.weight.copy_(torch.cat([angles.sin(), angles.cos()], -1))
    exact, exact_grads = run(wide, prompts, labels)
    distance = max(float((out[n].double() - exact[n]).abs().max()) for n in out)
    share = {n: float((grads[n].double() - exact_grads[n]).abs().max() / exact_grads[n].abs().max()) for n in grads if exact_grads[n].abs().max() > 1e-9}
    golden = {n: x.float().contiguous() for n, x in out.items() if n != "0/hook/hook_logits"}
    golden.update({"grad/" + n: x.contiguous() for n, x in grads.items()})
    golden.update({f"{i}/ids": ids.int() for i, ids in enumerate(prompts)})
    golden.update({"1/labels": labels.int(), "distance": torch.tensor(distance), "grad_distance": torch.tensor(max(share.values()))})
    save_file({n: x.clone() for n, x in golden.items()}, folder / "golden.safetensors")
    if name == "masked":
        fill(model, folder)
    print(name, "distance %.1e" % distance, "gradients", max(share.items(), key=lambda of: of[1]),
          sum(f.stat().st_size for f in folder.iterdir()), "bytes; zero gradients:", sorted(set(grads) - set(share)))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name)
