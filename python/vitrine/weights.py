"""The parameters of a model as arrays that mean what their names say, and its modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ._vitrine import Session
from .errors import InputError, ShapeError
from .factored_matrix import FactoredMatrix
from .results import Config

_LOOKED_UP = ("W_E", "W_pos", "W_E_per_layer")  # tables whose rows are looked up; every other matrix is multiplied with
_ROLE = re.compile(r"blocks\.(\d+)\.attn\.([Wb])_(Q|K|V|O)")


def norm_of(session: Session, name: str, x: Any) -> np.ndarray:
    """A norm of the model by its name, of the last axis."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    if x.ndim == 0:
        raise ShapeError(f"{name} takes an array [..., d_model]; got a number")
    return session.normalised(name, x.reshape(-1, x.shape[-1])).reshape(x.shape)


class Weights:
    """The part of a Model that shows its parameters.

    They are what the model computes with, in TransformerLens' orientation: y = x @ W + b. A Gemma's ln_final.w is the factor
    1 + w, whichever of the two its file holds; W_E[tokens] is hook_embed, with the family's scale; what load(adapter=) adds is
    in them. Nothing is folded or centred. Two numbers that RoPE turns together lie where the file has them (docs/python.md).
    """

    config: Config
    _session: Session

    @property
    def weight_names(self) -> list[str]:
        """Every parameter by our names, in the order of the forward pass: "W_E", "blocks.3.attn.W_Q", "ln_final.w"."""
        return self._session.weight_names

    def weight(self, name: str, *, raw: bool = False) -> np.ndarray:
        """One parameter as float32, read-only.

        W_E [vocab_size, d_model], W_pos [position, d_model], W_U [d_model, vocab_size] (also of a tied model); of a layer W_Q
        [head, d_model, head_dim], W_K and W_V [kv_head, d_model, head_dim], W_O [head, head_dim, d_model], b_Q [head, head_dim],
        b_K and b_V [kv_head, head_dim]; other matrices [in, out], other vectors as they are.
        raw: the numbers of the file, a matrix [out, in], only for weight_names.

        Seen where it lies, without a copy, if the file holds it as f32 and nothing is computed.
        Raises InputError for a name that the model lacks, with the nearest one.
        """
        if raw:
            return self._session.weight(name, True)
        gated = re.sub(r"\.attn\.([Wb])_Q$", r".attn.\1_QG", name)
        stored = gated if gated != name and gated in self.weight_names else name
        w = self._session.weight(stored, False)
        role = _ROLE.fullmatch(name)
        if role is not None:
            layer, kind, which = int(role[1]), role[2], role[3]
            heads = self._session.describe_layer(layer)["n_kv_heads"] if which in "KV" else self.config.n_heads
            if which == "O":
                return w.T.reshape(heads, -1, w.shape[0]) if kind == "W" else w
            w = w.reshape(heads, -1, *w.shape[1:])  # [head, head_dim, d_model] or [head, head_dim]
            if stored != name:  # each head's queries, then its gate
                w = w[:, : w.shape[1] // 2]
            return w.transpose(0, 2, 1) if kind == "W" else w
        return w if w.ndim == 1 or name in _LOOKED_UP else w.T

    # All layers ---------------------------------------------------------------------------------------------------------------

    def _layers(self, name: str, absent: Callable[[int], tuple[int, ...]] | None = None) -> np.ndarray:
        """One parameter of all layers, stacked. absent: the shape of the zeros of a layer without it; None: an error."""
        found = []
        for layer in range(self.config.n_layers):
            try:
                found.append(self.weight(f"blocks.{layer}.{name}"))
            except InputError:
                if absent is None or not self._could_have(layer, name):
                    raise self._lacking(name, layer) from None
                found.append(np.zeros(absent(layer), np.float32))
        if not found:
            raise InputError("the model has no layers")
        if len({w.shape for w in found}) != 1:
            sizes = ", ".join(str(list(w.shape)) for w in found[:3])
            raise InputError(f"{name} differs in size from layer to layer ({sizes}, …); take them one by one, as "
                             f'weight("blocks.0.{name}")')
        return np.stack(found)

    def _could_have(self, layer: int, name: str) -> bool:
        matrix = f"blocks.{layer}." + name.replace("b_", "W_")
        names = self.weight_names
        return matrix in names or matrix.replace("W_Q", "W_QG") in names

    def _lacking(self, name: str, layer: int) -> InputError:
        having = [n for n in self.weight_names if re.fullmatch(rf"blocks\.\d+\.{re.escape(name)}", n)]
        if not having:
            return InputError(f'no layer of this model has a parameter "{name}"; weight_names lists every one')
        return InputError(f"layer {layer} has no {name}, so there is no stack of all layers; take those that are there one by one, as "
                          f'weight("{having[0]}")')

    def _d_ff(self, layer: int) -> int:
        return int(self._session.describe_layer(layer)["d_ff"])

    @property
    def W_E(self) -> np.ndarray:
        """[vocab_size, d_model]: W_E[tokens] is hook_embed."""
        return self.weight("W_E")

    @property
    def W_U(self) -> np.ndarray:
        """[d_model, vocab_size]: x @ W_U + b_U are the logits before a cap, of x behind the final norm."""
        return self.weight("W_U")

    @property
    def W_pos(self) -> np.ndarray:
        """[position, d_model]. Raises InputError for a model without learned positions."""
        return self.weight("W_pos")

    @property
    def W_E_pos(self) -> np.ndarray:
        """[vocab_size + position, d_model]: the rows of W_E, then those of W_pos."""
        return np.concatenate([self.W_E, self.W_pos])

    @property
    def W_Q(self) -> np.ndarray:
        """[layer, head, d_model, head_dim]. This and the following are copies, stacked over layers."""
        return self._layers("attn.W_Q")

    @property
    def W_K(self) -> np.ndarray:
        """[layer, kv_head, d_model, head_dim]: key and value heads as the model has them, not repeated for their group."""
        return self._layers("attn.W_K")

    @property
    def W_V(self) -> np.ndarray:
        """[layer, kv_head, d_model, head_dim]"""
        return self._layers("attn.W_V")

    @property
    def W_O(self) -> np.ndarray:
        """[layer, head, head_dim, d_model]"""
        return self._layers("attn.W_O")

    @property
    def W_in(self) -> np.ndarray:
        """[layer, d_model, d_ff]; in gated models what the gate multiplies, beside W_gate."""
        return self._layers("mlp.W_in")

    @property
    def W_gate(self) -> np.ndarray:
        """[layer, d_model, d_ff]. Raises InputError for a model without gates."""
        return self._layers("mlp.W_gate")

    @property
    def W_out(self) -> np.ndarray:
        """[layer, d_ff, d_model]"""
        return self._layers("mlp.W_out")

    # Biases: zeros where the model has none.

    @property
    def b_Q(self) -> np.ndarray:
        """[layer, head, head_dim]. This and the following are zeros where the model has no bias."""
        return self._layers("attn.b_Q", lambda i: (self.config.n_heads, self._session.describe_layer(i)["head_dim"]))

    @property
    def b_K(self) -> np.ndarray:
        """[layer, kv_head, head_dim]"""
        return self._layers("attn.b_K", self._key_shape)

    @property
    def b_V(self) -> np.ndarray:
        """[layer, kv_head, head_dim]"""
        return self._layers("attn.b_V", self._key_shape)

    def _key_shape(self, layer: int) -> tuple[int, int]:
        facts = self._session.describe_layer(layer)
        return facts["n_kv_heads"], facts["head_dim"]

    @property
    def b_O(self) -> np.ndarray:
        """[layer, d_model]"""
        return self._layers("attn.b_O", lambda i: (self.config.d_model,))

    @property
    def b_in(self) -> np.ndarray:
        """[layer, d_ff]"""
        return self._layers("mlp.b_in", lambda i: (self._d_ff(i),))

    @property
    def b_gate(self) -> np.ndarray:
        """[layer, d_ff]. Raises InputError for a model without gates."""
        return self._layers("mlp.b_gate", lambda i: (self._d_ff(i),))

    @property
    def b_out(self) -> np.ndarray:
        """[layer, d_model]"""
        return self._layers("mlp.b_out", lambda i: (self.config.d_model,))

    @property
    def b_U(self) -> np.ndarray:
        """[vocab_size]"""
        try:
            return self.weight("b_U")
        except InputError:
            return np.zeros(self.config.vocab_size, np.float32)

    # Circuits -----------------------------------------------------------------------------------------------------------------

    def _by_query_head(self, w: np.ndarray) -> np.ndarray:
        """[layer, kv_head, …] with each key and value head repeated for the query heads that share it."""
        return np.repeat(w, self.config.n_heads // w.shape[1], axis=1)

    @property
    def QK(self) -> FactoredMatrix:
        """[layer, head, d_model, d_model]: W_Q W_Kᵀ of each query head, which scores a query's vector against a key's before the
        scale. Norms, biases, RoPE and norms of queries and keys are not in it; `vitrine circuits` folds them in.
        """
        return FactoredMatrix(self.W_Q, np.swapaxes(self._by_query_head(self.W_K), -1, -2))

    @property
    def OV(self) -> FactoredMatrix:
        """[layer, head, d_model, d_model]: W_V W_O of each query head, what it writes of the vector that it reads."""
        return FactoredMatrix(self._by_query_head(self.W_V), self.W_O)

    def accumulated_bias(self, layer: int | None = None, mlp_input: bool = False, include_mlp_biases: bool = True) -> np.ndarray:
        """[d_model]: the sum of the output biases b_O and b_out that the layers before `layer` (None: all) write into the stream;
        mlp_input: and the attention of that layer.
        """
        n = self.config.n_layers
        layer = n if layer is None or layer == -1 else layer
        if not 0 <= layer <= n or (mlp_input and layer == n):
            raise InputError(f"layer is {layer}; the model has {n} layers")
        total = np.zeros(self.config.d_model, np.float32)
        for i in range(layer + (1 if mlp_input else 0)):
            scale = np.float32(self._session.describe_layer(i)["residual_scale"])
            for name in ("attn.b_O", *(("mlp.b_out",) if include_mlp_biases and i < layer else ())):
                if f"blocks.{i}.{name}" in self._names:
                    total += self.weight(f"blocks.{i}.{name}") * scale
        return total

    # Modules ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._session.weight_names)

    @property
    def blocks(self) -> list[Module]:
        """The layers: blocks[3].attn.W_Q, blocks[3].ln1(x), blocks[3].mlp.b_in."""
        return [Module(self, f"blocks.{layer}.") for layer in range(self.config.n_layers)]

    @property
    def ln_final(self) -> Norm:
        """The norm before the head: ln_final(x) of any x [..., d_model], with the statistics of x; ln_final.w, ln_final.b.

        A residual stream's logits are unembed(ln_final(stream)).
        """
        return Norm(self, "ln_final")

    @property
    def unembed(self) -> Unembed:
        """The head: unembed(x) are the logits of x [..., d_model] behind the final norm; unembed.W_U, unembed.b_U."""
        return Unembed(self)

    @property
    def embed(self) -> Embed:
        """embed(tokens) is hook_embed, [..., d_model]; embed.W_E."""
        return Embed(self)


class Module:
    """A part of a model under its name: its parameters, norms and parts are attributes, spelled as in weight_names."""

    def __init__(self, model: Weights, prefix: str) -> None:
        self._model, self._prefix = model, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full, names = self._prefix + name, self._model._names
        if full in names or full.replace(".W_Q", ".W_QG") in names:
            return self._model.weight(full)
        if full + ".w" in names:
            return Norm(self._model, full)
        if any(n.startswith(full + ".") for n in names):
            return Module(self._model, full + ".")
        matrix = full.replace(".b_", ".W_")
        if name.startswith("b_") and (matrix in names or matrix.replace(".W_Q", ".W_QG") in names):
            return None  # as TransformerLens has it: this matrix has no bias
        raise AttributeError(f"{self._prefix[:-1]} has no {name!r}; it has {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        rest = (n[len(self._prefix):] for n in self._model._names if n.startswith(self._prefix))
        return sorted({n.split(".")[0] for n in rest})

    def __repr__(self) -> str:
        return f"<{self._prefix[:-1]}: {', '.join(dir(self))}>"


class Norm(Module):
    """A norm of the model. Its w is the factor, 1 + w of Gemma's files; b is there in LayerNorms."""

    def __init__(self, model: Weights, name: str) -> None:
        super().__init__(model, name + ".")

    def __call__(self, x: Any) -> np.ndarray:
        """x [..., d], each row normalised by its own statistics, then times w, plus b; x itself where the model has no final norm."""
        if self._prefix == "ln_final." and "ln_final.w" not in self._model._names:
            return np.array(x, dtype=np.float32)
        return norm_of(self._model._session, self._prefix[:-1], x)


class Unembed:
    """The head of a model."""

    def __init__(self, model: Weights) -> None:
        self._model = model

    @property
    def W_U(self) -> np.ndarray:
        """[d_model, vocab_size]"""
        return self._model.W_U

    @property
    def b_U(self) -> np.ndarray:
        """[vocab_size]"""
        return self._model.b_U

    def __call__(self, x: Any, *, softcap: bool = True) -> np.ndarray:
        """The logits [..., vocab_size] of x [..., d_model], which the final norm has normalised: those the model would give, after
        its cap; softcap=False: x @ W_U + b_U.
        """
        x = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim == 0:
            raise ShapeError("unembed takes an array [..., d_model]; got a number")
        logits = self._model._session.unembedded(x.reshape(-1, x.shape[-1]), softcap)
        return logits.reshape(*x.shape[:-1], -1)


class Embed:
    """The table of embeddings."""

    def __init__(self, model: Weights) -> None:
        self._model = model

    @property
    def W_E(self) -> np.ndarray:
        """[vocab_size, d_model]"""
        return self._model.W_E

    def __call__(self, tokens: Any) -> np.ndarray:
        """The rows of W_E for ids [...]: [..., d_model]."""
        ids = np.asarray(tokens)
        if ids.dtype.kind not in "iu":
            raise InputError(f"embed takes token ids; got {ids.dtype}")
        if ids.size and not (0 <= ids.min() and ids.max() < self._model.config.vocab_size):
            raise InputError(f"a token id is outside the vocabulary, 0 to {self._model.config.vocab_size - 1}")
        rows = self._model._session.table_rows(np.ascontiguousarray(ids.reshape(-1), dtype=np.int64), False)
        return rows.reshape(*ids.shape, -1)
