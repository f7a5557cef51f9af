#!/usr/bin/env python3
"""The first steps with a model's inside, as in TransformerLens's notebook "Main Demo".

usage: main_demo.py [MODEL]

Losses, a head switched off, patching by a hook function of one's own, induction on repeated tokens, what heads copy, and text that is
written while a head is off.
"""
import argparse
import functools

import numpy as np

import vitrine


def switch_off(value, hook, head):
    """A hook function: one head's z, keys, queries or values, [batch, position, head, head_dim], become zero."""
    value[:, :, head] = 0


def loss_without_values(model, tokens, layer, head):
    """The loss of a prompt where one head's values are zero."""
    off = functools.partial(switch_off, head=head)
    return model.run_with_hooks(tokens, return_type="loss", fwd_hooks=[(vitrine.get_act_name("v", layer), off)])


def losses_with_a_hook_that_stays(model, tokens, layer, head):
    """The loss while a hook function stays set, and after it was removed."""
    model.add_hook(vitrine.get_act_name("z", layer), functools.partial(switch_off, head=head))
    try:
        during = model(tokens, return_type="loss")
    finally:
        model.reset_hooks()
    return during, model(tokens, return_type="loss")


def patched_stream(model, clean, corrupted, right, wrong):
    """[layer, position]: the difference of two logits when the residual stream there is the clean run's."""
    _, cache = model.run_with_cache(clean)

    def put_clean(resid, hook, position):  # [batch, position, d_model]
        resid[:, position] = cache[hook.name][:, position]

    difference = np.zeros((model.cfg.n_layers, clean.shape[1]))
    for layer, position in np.ndindex(difference.shape):
        patch = (vitrine.get_act_name("resid_pre", layer), functools.partial(put_clean, position=position))
        logits = model.run_with_hooks(corrupted, fwd_hooks=[patch])
        difference[layer, position] = logits[0, -1, right] - logits[0, -1, wrong]
    return difference


def repeated_losses(model, tokens):
    """[position - 1]: the loss of each token, as the mean over the prompts. Tokens that come again should be cheap."""
    return model(tokens, return_type="loss", loss_per_token=True).mean(0)


def induction_scores(model, tokens, length):
    """[layer, head]: attention to what followed the same token `length` tokens earlier, collected by a hook function."""
    scores = np.zeros((model.cfg.n_layers, model.cfg.n_heads))

    def keep(pattern, hook):  # [batch, head, query, key]
        scores[hook.layer()] = pattern.diagonal(1 - length, -2, -1).mean((0, -1))

    model.run_with_hooks(tokens, return_type=None, fwd_hooks=[(lambda name: name.endswith("pattern"), keep)])
    return scores


def similarity_of_positions(model):
    """[position, position]: cosines of the learned position embeddings."""
    unit = model.W_pos / np.linalg.norm(model.W_pos, axis=-1, keepdims=True)
    return unit @ unit.T


def copying_scores(model):
    """[layer, head]: 1 where all eigenvalues of the circuit from tokens to logits are positive, so that a head copies; -1: none is."""
    eigenvalues = (model.W_E @ model.OV @ model.W_U).eigenvalues
    return eigenvalues.sum(-1).real / np.abs(eigenvalues).sum(-1)


def neuron(model, tokens, layer, index):
    """[position]: what one neuron of an MLP has for each token."""
    _, cache = model.run_with_cache(tokens, f"post.{layer}", return_type=None, remove_batch_dim=True)
    return cache["post", layer][:, index]


def written_without(model, tokens, layer, head, count):
    """The next tokens, greedily, while a head is switched off."""
    off = functools.partial(switch_off, head=head)
    return model.generate(tokens[0], count, ignore_eos=True, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", off)]).tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    text = "Once upon a time there was a little girl who lived in a village near the forest"
    tokens = model.to_tokens(text)
    print(f"loss of {text!r}: {model(text, return_type='loss'):.3f}")
    without = np.array([[loss_without_values(model, tokens, layer, head) for head in range(model.cfg.n_kv_heads)]
                        for layer in range(model.cfg.n_layers)])
    layer, head = np.unravel_index(without.argmax(), without.shape)
    print(f"with the values of L{layer}H{head} at zero, the most it costs: {without[layer, head]:.3f}")

    rng = np.random.default_rng(0)
    once = rng.integers(10, model.cfg.d_vocab, (4, 25))
    repeated = np.concatenate([np.full((4, 1), tokens[0, 0]), once, once], axis=1)
    losses = repeated_losses(model, repeated)
    print(f"random tokens: loss {losses[:25].mean():.2f} the first time, {losses[25:].mean():.2f} the second")
    scores = induction_scores(model, repeated, 25)
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    print(f"the head that attends most to what followed the same token: L{layer}H{head}, {scores[layer, head]:.0%} of its attention")
    copying = copying_scores(model)
    print(f"its copying score is {copying[layer, head]:.2f}; of all heads between {copying.min():.2f} and {copying.max():.2f}")
    print("while it is off, the story goes on:", repr(model.to_string(written_without(model, tokens, layer, head, 12))))


if __name__ == "__main__":
    main()
