"""The parameters of a model as arrays, and its modules.

They are the weights that the model uses, in TransformerLens's orientation: y = x @ W + b. A Gemma's ln_final.w is the factor 1 +
w, whichever of the two is in its file; W_E[tokens] is hook_embed, with the family's scale; the adapter of load(adapter=) is
included. Nothing is folded or centered. Two numbers that RoPE rotates together are in the file's order (docs/python.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .arrays import ArrayLike, Floats
from .errors import InputError, ShapeError
from .factored_matrix import FactoredMatrix
from .opened import OpenedModel

_LOOKED_UP = ("W_E", "W_pos", "W_E_per_layer")  # tables whose rows are looked up; every other matrix is multiplied with
_ROLE = re.compile(r"blocks\.(\d+)\.attn\.([Wb])_(Q|K|V|O)")


def weight(model: OpenedModel, name: str, *, raw: bool = False) -> Floats:
    """One parameter as float32, read-only.

    W_E [vocab_size, d_model], W_pos [position, d_model], W_U [d_model, vocab_size] (also of a tied model); of a layer W_Q
    [head, d_model, head_dim], W_K and W_V [kv_head, d_model, head_dim], W_O [head, head_dim, d_model], b_Q [head, head_dim],
    b_K and b_V [kv_head, head_dim]; other matrices [in, out], other vectors unchanged.
    raw: the numbers of the file, a matrix [out, in], only for weight_names.

    A view without a copy, if it is f32 in the file and no conversion is needed.
    Raises InputError for a name that the model lacks, with the nearest one.
    """
    if raw:
        return model._session.weight(name, True)
    return _oriented(model, name, model._session.weight(_stored_name(model, name), False))


def form(model: OpenedModel, name: str) -> Floats:
    """An array of weight()'s shape that has no numbers of its own. Raises InputError as weight() does."""
    return _oriented(model, name, np.broadcast_to(np.float32(0), model._session.weight_shape(_stored_name(model, name))))


@contextmanager
def reading(model: OpenedModel, name: str) -> Iterator[Floats]:
    """The array of weight(), without a copy of what was changed in memory, to be read until the context ends. Nobody changes weights
    meanwhile; this thread reads no other parameter of the model."""
    read = model._session.read(_stored_name(model, name))
    numbers = read.begin()
    try:
        yield _oriented(model, name, numbers)
    finally:
        read.end()


@contextmanager
def writing(model: OpenedModel, name: str) -> Iterator[Floats]:
    """The array of weight(), to be written until the context ends. No run takes place meanwhile, and no other thread reads weights."""
    edit = model._session.edit(_stored_name(model, name))
    numbers = edit.begin()
    try:
        yield _oriented(model, name, numbers)
    except BaseException:
        edit.end(False)
        raise
    edit.end(True)


def _stored_name(model: OpenedModel, name: str) -> str:
    gated = re.sub(r"\.attn\.([Wb])_Q$", r".attn.\1_QG", name)
    return gated if gated in model._names else name


def _oriented(model: OpenedModel, name: str, w: Floats) -> Floats:
    """A stored matrix [out, in] or vector as weight() shows it: a view."""
    role = _ROLE.fullmatch(name)
    if role is None:
        return w if w.ndim == 1 or name in _LOOKED_UP else w.T
    layer, kind, which = int(role[1]), role[2], role[3]
    heads = model._facts(layer)["n_kv_heads"] if which in "KV" else model.config.n_heads
    if which == "O":
        return w.T.reshape(heads, -1, w.shape[0]) if kind == "W" else w
    w = w.reshape(heads, -1, *w.shape[1:])  # [head, head_dim, d_model] or [head, head_dim]
    if _stored_name(model, name) != name:  # each head's queries, then its gate
        w = w[:, : w.shape[1] // 2]
    return w.transpose(0, 2, 1) if kind == "W" else w


def unwritable(array: Floats) -> Floats:
    """The array, which nobody can write: what would be written would not reach the model."""
    array.setflags(write=False)
    return array


def of_layers(model: OpenedModel, name: str) -> Floats:
    """One parameter of all layers, stacked: "attn.W_Q". A bias of a matrix without one is zeros. Read-only."""
    found = []
    for layer in range(model.config.n_layers):
        try:
            found.append(weight(model, f"blocks.{layer}.{name}"))
        except InputError:
            if ".b_" not in name or not _has(model, f"blocks.{layer}." + name.replace("b_", "W_")):
                raise _lacking(model, name, layer) from None
            found.append(np.zeros(_bias_shapes(model, layer)[name], np.float32))
    if not found:
        raise InputError("the model has no layers")
    if len({w.shape for w in found}) != 1:
        sizes = ", ".join(str(list(w.shape)) for w in found[:3])
        raise InputError(f"{name} differs in size from layer to layer ({sizes}, …); take them one by one, as "
                         f'weight("blocks.0.{name}")')
    return unwritable(np.stack(found))


def _bias_shapes(model: OpenedModel, layer: int) -> dict[str, tuple[int, ...]]:
    facts, d_model = model._facts(layer), (model.config.d_model,)
    key, d_ff = (facts["n_kv_heads"], facts["head_dim"]), (facts["d_ff"],)
    return {"attn.b_Q": (model.config.n_heads, facts["head_dim"]), "attn.b_K": key, "attn.b_V": key, "attn.b_O": d_model,
            "mlp.b_in": d_ff, "mlp.b_gate": d_ff, "mlp.b_out": d_model}


def _has(model: OpenedModel, name: str) -> bool:
    stacked = re.sub(r"\.([Wb])_[QKV]$", r".\1_QKV", name)
    return any(stored in model._names for stored in (name, name.replace(".W_Q", ".W_QG"), stacked))


def _lacking(model: OpenedModel, name: str, layer: int) -> InputError:
    having = [n for n in model.weight_names if re.fullmatch(rf"blocks\.\d+\.{re.escape(name)}", n)]
    if not having:
        return InputError(f'no layer of this model has a parameter "{name}"; weight_names lists every one')
    return InputError(f"layer {layer} has no {name}, so there is no stack of all layers; take those that are there one by one, as "
                      f'weight("{having[0]}")')


def output_bias(model: OpenedModel) -> Floats:
    """b_U [vocab_size]; zeros where the model has none."""
    try:
        return weight(model, "b_U")
    except InputError:
        return unwritable(np.zeros(model.config.vocab_size, np.float32))


def _by_query_head(model: OpenedModel, w: Floats) -> Floats:
    """[layer, kv_head, …] with each key and value head repeated for the query heads that share it."""
    return unwritable(np.repeat(w, model.config.n_heads // w.shape[1], axis=1))


def qk_of(model: OpenedModel, W_Q: Floats, W_K: Floats) -> FactoredMatrix:
    """[layer, head, d_model, d_model]: W_Q W_Kᵀ of [layer, head, d_model, head_dim] and [layer, kv_head, d_model, head_dim]."""
    return FactoredMatrix(W_Q, np.swapaxes(_by_query_head(model, W_K), -1, -2))


def ov_of(model: OpenedModel, W_V: Floats, W_O: Floats) -> FactoredMatrix:
    """[layer, head, d_model, d_model]: W_V W_O of [layer, kv_head, d_model, head_dim] and [layer, head, head_dim, d_model]."""
    return FactoredMatrix(_by_query_head(model, W_V), W_O)


def accumulated_bias(
    model: OpenedModel, layer: int | None = None, mlp_input: bool = False, include_mlp_biases: bool = True,
) -> Floats:
    """[d_model]: the sum of the output biases b_O and b_out that the layers before `layer` (None: all) write into the residual
    stream; mlp_input: and the attention of that layer.
    """
    n = model.config.n_layers
    layer = n if layer is None or layer == -1 else layer
    if not 0 <= layer <= n or (mlp_input and layer == n):
        raise InputError(f"layer is {layer}; the model has {n} layers")
    if mlp_input and f"blocks.{layer}.hook_resid_mid" not in model.hook_names:
        raise InputError(f"the MLP of layer {layer} reads the stream that its attention reads; leave mlp_input out")
    total = np.zeros(model.config.d_model, np.float32)
    for i in range(layer + (1 if mlp_input else 0)):
        facts = model._facts(i)
        for name in ("attn.b_O", *(("mlp.b_out",) if include_mlp_biases and i < layer else ())):
            if f"blocks.{i}.{name}" in model._names:
                total += weight(model, f"blocks.{i}.{name}") * np.float32(facts["residual_scale" if name == "attn.b_O" else "mlp_scale"])
    return total


class Module:
    """A part of a model under its name: its parameters, norms and parts are attributes, spelled as in weight_names."""

    def __init__(self, model: OpenedModel, prefix: str) -> None:
        self._model, self._prefix = model, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full, names = self._prefix + name, self._model._names
        if _has(self._model, full):
            return weight(self._model, full)
        if full + ".w" in names:
            return Norm(self._model, full)
        if any(n.startswith(full + ".") for n in names):
            return Module(self._model, full + ".")
        if name.startswith("b_") and _has(self._model, full.replace(".b_", ".W_")):
            return None  # as TransformerLens has it: this matrix has no bias
        raise AttributeError(f"{self._prefix[:-1]} has no {name!r}; it has {', '.join(dir(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f'{self._prefix}{name} is written as model.weights["{self._prefix}{name}"][...] = value')
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        rest = (n[len(self._prefix):] for n in self._model._names if n.startswith(self._prefix))
        return sorted({n.split(".")[0] for n in rest})

    def __repr__(self) -> str:
        return f"<{self._prefix[:-1]}: {', '.join(dir(self))}>"


class Norm(Module):
    """A norm of the model. Its w is the factor, 1 + w of Gemma's files; LayerNorms also have b."""

    def __init__(self, model: OpenedModel, name: str) -> None:
        super().__init__(model, name + ".")

    def __call__(self, x: ArrayLike) -> Floats:
        """x [..., d], each row normalized by its own statistics, then times w, plus b; x itself where the model has no final norm."""
        if self._prefix == "ln_final." and "ln_final.w" not in self._model._names:
            return np.array(x, dtype=np.float32)
        rows, name = np.ascontiguousarray(x, dtype=np.float32), self._prefix[:-1]
        if rows.ndim == 0:
            raise ShapeError(f"{name} takes an array [..., d_model]; got a number")
        return self._model._session.normalized(name, rows.reshape(-1, rows.shape[-1])).reshape(rows.shape)


class Unembed:
    """The output head of a model."""

    def __init__(self, model: OpenedModel) -> None:
        self._model = model

    @property
    def W_U(self) -> Floats:
        """[d_model, vocab_size]"""
        return weight(self._model, "W_U")

    @property
    def b_U(self) -> Floats:
        """[vocab_size]"""
        return output_bias(self._model)

    def __call__(self, x: ArrayLike, *, softcap: bool = True) -> Floats:
        """The logits [..., vocab_size] of x [..., d_model], which the final norm has normalized: the model's logits, after its
        soft cap; softcap=False: x @ W_U + b_U.
        """
        rows = np.ascontiguousarray(x, dtype=np.float32)
        if rows.ndim == 0:
            raise ShapeError("unembed takes an array [..., d_model]; got a number")
        logits = self._model._session.unembedded(rows.reshape(-1, rows.shape[-1]), softcap)
        return logits.reshape(*rows.shape[:-1], -1)


class Embed:
    """The table of embeddings."""

    def __init__(self, model: OpenedModel) -> None:
        self._model = model

    @property
    def W_E(self) -> Floats:
        """[vocab_size, d_model]"""
        return weight(self._model, "W_E")

    def __call__(self, tokens: ArrayLike) -> Floats:
        """The rows of W_E for ids [...], behind the norm that BLOOM has there: [..., d_model]."""
        ids = np.asarray(tokens)
        if ids.dtype.kind not in "iu":
            raise InputError(f"embed takes token ids; got {ids.dtype}")
        if ids.size and not (0 <= ids.min() and ids.max() < self._model.config.vocab_size):
            raise InputError(f"a token id is outside the vocabulary, 0 to {self._model.config.vocab_size - 1}")
        rows = self._model._session.table_rows(np.ascontiguousarray(ids.reshape(-1), dtype=np.int64), False)
        rows = rows.reshape(*ids.shape, -1)
        return Norm(self._model, "ln_embed")(rows) if "ln_embed.w" in self._model._names else rows
