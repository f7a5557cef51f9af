"""The return types of a model's methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from .arrays import Doubles, Floats
from .drawing import Cell, colored_tokens, escaped, grids, table


class NextToken(NamedTuple):
    """A token that may come next."""

    token: int
    piece: str  # as the vocabulary spells it; "" without a tokenizer
    logprob: float  # natural logarithm of its probability, under the model's unmodified logits

    @property
    def prob(self) -> float:
        return float(np.exp(self.logprob))


class Prediction(NamedTuple):
    """What the model expects after one position."""

    position: int
    top: list[NextToken]  # most likely first


class Predictions(list[Prediction]):
    """What the model expects after each of several positions; pieces: what is at these positions. A notebook shows a table."""

    def __init__(self, predictions: Iterable[Prediction], pieces: Sequence[str]) -> None:
        super().__init__(predictions)
        self.pieces = list(pieces)

    def _repr_html_(self) -> str:
        most = min(max((len(one.top) for one in self), default=0), 10)
        rows: list[list[Cell | str]] = [[str(one.position), piece, *(Cell(f"{token.piece} {token.prob:.1%}", 0.8 * token.prob) for token in one.top[:most])]
                for one, piece in zip(self, self.pieces, strict=True)]
        return table(["position", "token", *(f"{i + 1}." for i in range(most))], rows)


class TokenLosses(NamedTuple):
    """What each token of a prompt cost the model. A notebook shows the text, the more expensive tokens in stronger color."""

    pieces: list[str]  # all of them; "" without a tokenizer
    tokens: list[int]
    losses: Doubles  # [position - 1], in nats: of each token but the first, given those before it

    def _repr_html_(self) -> str:
        most = max(float(self.losses.max(initial=0)), 1e-9)
        costs = [math.nan, *self.losses.tolist()]
        notes = [f"token {token}" + ("" if math.isnan(cost) else f": {cost:.3f} nats, probability {math.exp(-cost):.2%}")
                 for token, cost in zip(self.tokens, costs, strict=True)]
        mean = f"mean {self.losses.mean():.3f} nats" if len(self.losses) else "one token, which has no loss"
        return colored_tokens(self.pieces, [-cost / most for cost in costs], notes) + f"<div>{mean}, at most {most:.2f}</div>"


class AttentionPatterns(NamedTuple):
    """Where the heads of a layer look. A notebook shows a grid for each head: rows are queries, columns keys."""

    layer: int
    pattern: Floats  # [head, query, key]
    pieces: list[str]  # of the prompt's tokens

    def _repr_html_(self) -> str:
        return grids(self.pattern, [f"L{self.layer}H{head}" for head in range(len(self.pattern))], self.pieces, self.pieces, largest=1.0)

    def __repr__(self) -> str:
        return f"<patterns of layer {self.layer}: {len(self.pattern)} heads, {len(self.pieces)} tokens>"


class Generation(NamedTuple):
    """Generated text."""

    text: str  # without the prompt and without the end token; "" without a tokenizer
    tokens: list[int]  # the new ones, with the end token that was taken
    logprobs: list[float]  # one for each new token, from the unmodified logits
    finish_reason: str  # "stop": end token or stop string; "length": max_tokens, or the context is full


class Generations(list[Generation]):
    """Generated texts, one for each prompt: a list of them, and of each of their parts."""

    @property
    def text(self) -> list[str]:
        """The text of each."""
        return [one.text for one in self]

    @property
    def tokens(self) -> list[list[int]]:
        """The new tokens of each."""
        return [one.tokens for one in self]

    @property
    def logprobs(self) -> list[list[float]]:
        """The log-probabilities of each."""
        return [one.logprobs for one in self]

    @property
    def finish_reason(self) -> list[str]:
        """Why each ended."""
        return [one.finish_reason for one in self]


class Hypothesis(NamedTuple):
    """A continuation that beam search found."""

    text: str
    tokens: list[int]
    score: float  # sum of log-probabilities / (number of tokens)^length_penalty


class Attribution(NamedTuple):
    """Which tokens of a prompt a prediction depends on; f is the explained log-probability. A notebook shows the prompt in the colors
    of each method.
    """

    token: int  # whose log-probability it is
    value: float  # f of the prompt
    baseline_value: float  # f of the baseline; 0 without integrated gradients
    saliency: Doubles  # [position]: the length of df/de_t, e_t the embedding there
    gradient_input: Doubles  # [position]: df/de_t · e_t
    integrated: Doubles | None  # [position]: integrated gradients; they sum to value - baseline_value + gap
    gap: float  # the error of the integral
    tokens: list[int]  # of the prompt
    pieces: list[str]  # of the prompt's tokens; "" without a tokenizer
    explained: str  # what f is: "log-probability of '▁son' minus that of '▁daughter'"

    def _repr_html_(self) -> str:
        labels = [piece or f"{token} " for token, piece in zip(self.tokens, self.pieces, strict=True)]
        parts = [f"<div>{escaped(self.explained)}: {self.value:.3f}</div>"]
        for name, values in (("saliency", self.saliency), ("gradient x input", self.gradient_input), ("integrated gradients", self.integrated)):
            if values is None:
                continue
            most = max(float(np.abs(values).max(initial=0)), 1e-30)
            sums = f", sum {values.sum():.3f}: {self.value:.3f} - {self.baseline_value:.3f} of the baseline, error {self.gap:.1e}"
            parts.append(f"<div>{name}, at most {most:.3g}{sums if values is self.integrated else ''}</div>")
            parts.append(colored_tokens(labels, (values / most).tolist(), [f"{name}: {value:.4g}" for value in values]))
        return "".join(parts)


class Effects(NamedTuple):
    """How much a metric would change if values of a clean run were patched into a corrupted one, estimated from gradients."""

    clean: float  # the metric of the clean run
    corrupted: float  # the metric of the corrupted run
    effects: dict[str, Floats]  # by hook name, in the order of the run


class LayerFacts(TypedDict):
    """The parts of one layer, for computations with its weights."""

    n_kv_heads: int
    head_dim: int
    d_ff: int
    keys_of: int  # the layer whose keys it reads; -1: its own
    attention: bool
    gated_heads: bool
    rms: bool  # its norms are RMSNorm; else LayerNorm
    norm_eps: float
    experts: bool
    norms_after: bool  # they normalize the residual stream itself, after each sub-layer
    residual_scale: float  # of what attention adds
    mlp_scale: float  # of what the MLP adds
    stream_scale: float  # of the whole residual stream, by this layer
    per_layer: bool  # it adds a per-layer embedding


@dataclass(frozen=True)
class Config:
    """A model's sizes. d_head, d_mlp, d_vocab, n_ctx and device are as in TransformerLens."""

    name: str
    family: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab_size: int
    context_length: int  # positions; 0: any number
    tied: bool  # the embedding is the output matrix
    parameters: int  # every number of every tensor once
    kernels: str  # chosen for this machine
    threads: int
    act_fn: str  # of the MLP, or of its gate, as config.json calls it: "gelu_pytorch_tanh", "silu"

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def d_head(self) -> int:
        return self.head_dim

    @property
    def d_mlp(self) -> int:
        return self.d_ff

    @property
    def d_vocab(self) -> int:
        return self.vocab_size

    @property
    def n_ctx(self) -> int:
        return self.context_length
