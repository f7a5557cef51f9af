"""The captured values of a run: by hook name, and as decompositions of the residual stream."""

from __future__ import annotations

import copy
import difflib
import operator
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, cast, overload

import numpy as np

from ._vitrine import hook_alias
from .arrays import ArrayLike, Floats, Ids
from .errors import InputError, ShapeError, UsageError
from .opened import OpenedModel
from .results import AttentionPatterns
from .weights import Norm, weight

Key = str | tuple[str, int] | tuple[str, int, str]
Places = int | slice | tuple[int, ...] | Sequence[int] | np.ndarray
Positions = Places | None
Reading = Callable[[Floats], Floats]  # a linear function of [..., d_model]


class ActivationCache(Mapping[str, Floats]):
    """Values by hook name, in the order of the run. Each begins with a batch axis, as in TransformerLens.

    A key is a name ("blocks.0.attn.hook_pattern"), a short name with a layer (("pattern", 0), or -1 for the last; "pattern.0"),
    with a part of the layer where several have it (("normalized", 0, "ln1")), or an alias ("embed").

    The methods that decompose the residual stream return a stack [component, batch, position, d_model]. pos_slice: an index,
    which removes the axis, a slice, a tuple of a slice's numbers (as in TransformerLens) or a list of positions; every prompt of a
    batch counts its own, so that -1 is the last token of each, as in positions=-1. layer: the input
    of that layer's attention (mlp_input: of its MLP); None or -1: the residual stream after the last layer. Every stack adds up
    to the residual stream there: norms after a sub-layer and a family's factors are applied as in the run. Raises KeyError naming
    a hook that was not captured.

    The values are those of the run. The weights that methods use (of norms, heads, neurons, biases and the output head) are the
    model's when they are called: of a cache from before a change of weights, what they compute does not add up. Run again, or
    take the cache from a model.copy() that stays as it is.
    """

    def __init__(
        self, values: dict[str, Floats], model: OpenedModel, has_batch_dim: bool = True, lengths: Sequence[int] | Ids | None = None,
        tokens: Sequence[Ids] | None = None,
    ) -> None:
        self._values = values
        self._of: OpenedModel | bytes | None = model  # bytes: pickled, and not opened yet
        self._n_layers, self._hook_names = model.config.n_layers, model._hook_names
        self.has_batch_dim = has_batch_dim
        self._lengths = None if lengths is None else np.array(lengths, np.int64)
        self._tokens = tokens

    @property
    def lengths(self) -> Ids:
        """The tokens of each row, int64 [batch]: NaN follows them. Raises UsageError for a cache that was made without them."""
        if self._lengths is None:
            raise UsageError("this cache was made without lengths=, so where its rows end is not known")
        return self._lengths

    @property
    def _model(self) -> OpenedModel:
        if isinstance(self._of, bytes):
            self._of = cast(OpenedModel, pickle.loads(self._of))
        if self._of is None:
            raise UsageError("this cache was pickled without its model, which was changed in memory or is in no file; its values are here, "
                             "and what is computed with weights is not")
        return self._of

    def __getstate__(self) -> dict[str, Any]:
        """The values, and how to open the model again, which happens when a method needs its weights."""
        try:
            model = self._of if self._of is None or isinstance(self._of, bytes) else pickle.dumps(self._of)
        except UsageError:  # there is no file
            model = None
        return {**self.__dict__, "_of": model}

    def __copy__(self) -> ActivationCache:
        """A cache of the same arrays and the same model; what one of them adds, the other lacks."""
        return self._with(dict(self._values))

    def __deepcopy__(self, memo: dict[int, Any]) -> ActivationCache:
        """A cache of its own arrays, of the same model: copying a run's values copies no weights."""
        return self._with(copy.deepcopy(self._values, memo))

    def _with(self, values: dict[str, Floats], **others: Any) -> ActivationCache:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _values=values, **others)
        return made

    def name_of(self, key: Key) -> str:
        """The full hook name of a key. Raises KeyError for a hook that is not in the cache, with those that are."""
        name = key if isinstance(key, str) else self._layer_name(*key)
        if name in self._values:
            return name
        found = hook_alias(name, self._hook_names)
        if found is not None and "*" in found:
            raise KeyError(f"{name!r} is in every layer; name one, as in cache[{name!r}, 0]")
        if found in self._values:
            return found
        raise KeyError(f"{found or name!r} was not kept by this run, which kept {self._kept()}{self._meant_by(name)}")

    def _layer_name(self, name: str, layer: int, part: str | None = None) -> str:
        if not -self._n_layers <= layer < self._n_layers:
            raise KeyError(f"layer {layer} of {name!r}: the model has {self._n_layers} layers, 0 to {self._n_layers - 1}")
        layer %= self._n_layers
        if part is not None:
            return f"blocks.{layer}.{part}.hook_{name}"
        return f"blocks.{layer}.hook_{name}" if f"blocks.{layer}.hook_{name}" in self._values else f"{name}.{layer}"

    def _meant_by(self, name: str) -> str:
        """The model's hook that a name may be a slip of, as a question; short names ("pattern.0") count."""
        short = [re.sub(r"blocks\.(\d+)\..*hook_(\w+)", r"\2.\1", hook) for hook in self._hook_names]
        near = difflib.get_close_matches(name, [*self._hook_names, *short], 1, 0.9)
        return f". Did you mean {near[0]!r}?" if near and near[0] != name else ""

    def _kept(self) -> str:
        names = list(self._values)
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "nothing"

    def __getitem__(self, key: Any) -> Floats:
        return self._values[self.name_of(key)]

    def __contains__(self, key: object) -> bool:
        try:
            self[key]
        except (KeyError, TypeError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ActivationCache({self._kept()})"

    def stack_activation(self, name: str) -> Floats:
        """One hook of all layers as [layer, batch, …]: stack_activation("pattern"). A copy."""
        if self._n_layers == 0:
            raise InputError("the model has no layers")
        return np.stack([self[name, layer] for layer in range(self._n_layers)])

    def attention(self, layer: int, row: int = 0) -> AttentionPatterns:
        """The patterns of a layer's heads for one prompt of the batch, with its tokens: a notebook draws them."""
        pattern = self["pattern", layer]
        pattern = pattern[row] if self.has_batch_dim else pattern
        if self._tokens is None:
            raise UsageError("this cache was made without tokens=, which name the rows and columns of a pattern")
        ids = self._tokens[row]
        if pattern.ndim != 3 or min(pattern.shape[1:]) < len(ids):
            raise InputError(f"the pattern is {list(pattern.shape)} for {len(ids)} tokens; capture all of its positions")
        return AttentionPatterns(layer % self._n_layers, pattern[:, : len(ids), : len(ids)], self._model._pieces(ids))

    def remove_batch_dim(self) -> ActivationCache:
        """The same values without their batch axis, which must be 1. Views of the same numbers."""
        if not self.has_batch_dim:
            return self
        for name, value in self._values.items():
            if value.shape[0] != 1:
                raise InputError(f"{name} has a batch of {value.shape[0]}; only a batch of 1 can be removed")
        return self._with({name: value[0] for name, value in self._values.items()}, has_batch_dim=False)

    def apply_slice_to_batch_dim(self, batch_slice: Positions) -> ActivationCache:
        """The values of some rows of the batch: an index removes the axis, a slice or a list keeps it. Views where possible."""
        if not self.has_batch_dim:
            raise InputError("this cache has no batch axis to slice")
        if batch_slice is None:
            return self
        which = _index(batch_slice)
        rows = {name: value[which] for name, value in self._values.items()}
        lengths = None if self._lengths is None else np.atleast_1d(self._lengths[which])
        tokens = None if self._tokens is None else [self._tokens[i] for i in np.atleast_1d(np.arange(len(self._tokens))[which])]
        return self._with(rows, has_batch_dim=not isinstance(which, int), _lengths=lengths, _tokens=tokens)

    def compute_head_results(self) -> None:
        """Adds attn.hook_result, what each head adds [batch, position, head, d_model], of every layer with attention that lacks it.

        n_heads times as large as other values. Computed from hook_z and W_O.
        """
        for i in range(self._n_layers):
            name = f"blocks.{i}.attn.hook_result"
            if self._model._facts(i)["attention"] and name not in self._values:
                self._values[name] = self._head_results(i, None)

    def get_neuron_results(
        self, layer: int, neuron_slice: Positions = None, pos_slice: Positions = None, project_output_onto: np.ndarray | None = None,
    ) -> Floats:
        """The output of each neuron of one layer's MLP, [batch, position, neuron, d_model], before a norm after the MLP.

        project_output_onto [d_model] or [d_model, n]: its output along those directions, which needs only that much memory.
        """
        if not 0 <= layer < self._n_layers or self._model._facts(layer)["experts"]:
            raise InputError(f"layer {layer} of this model has no MLP whose neurons are those of every token")
        post, W_out = self._at(self[f"blocks.{layer}.mlp.hook_post"], pos_slice), weight(self._model, f"blocks.{layer}.mlp.W_out")
        if neuron_slice is not None:
            which = np.atleast_1d(np.arange(W_out.shape[0])[_index(neuron_slice)])
            post, W_out = post[..., which], W_out[which]
        factor = np.float32(self._model._facts(layer)["mlp_scale"])
        onto = _directions(project_output_onto, self._model.config.d_model)
        result: Floats = post[..., None] * (W_out if onto is None else W_out @ onto) * factor
        return result[..., 0] if _is_vector(project_output_onto) else result

    # The residual stream --------------------------------------------------------------------------------------------------------

    @overload
    def accumulated_resid(
        self, layer: int | None = None, incl_mid: bool = False, apply_ln: bool = False, pos_slice: Positions = None,
        mlp_input: bool = False, *, return_labels: Literal[True],
    ) -> tuple[Floats, list[str]]: ...

    @overload
    def accumulated_resid(
        self, layer: int | None = None, incl_mid: bool = False, apply_ln: bool = False, pos_slice: Positions = None,
        mlp_input: bool = False, return_labels: Literal[False] = False,
    ) -> Floats: ...

    @overload
    def accumulated_resid(
        self, layer: int | None = None, incl_mid: bool = False, apply_ln: bool = False, pos_slice: Positions = None,
        mlp_input: bool = False, return_labels: bool = False,
    ) -> Any: ...

    def accumulated_resid(
        self, layer: int | None = None, incl_mid: bool = False, apply_ln: bool = False, pos_slice: Positions = None,
        mlp_input: bool = False, return_labels: bool = False,
    ) -> Any:
        """The residual stream before every layer up to `layer`, and after the last one: "0_pre", "1_pre", …, "final_post".

        incl_mid: also between attention and MLP, "0_mid". apply_ln: normalized by the norm at `layer`; after the last layer by
        ln_final with the statistics of each (the logit lens: model.unembed of it), before it with the scale of the run.
        """
        layer = self._layer(layer, mlp_input, is_sum=False)
        names: list[tuple[str, str]] = []
        for i in range(layer + 1):
            if i == self._n_layers:
                names.append(("final_post", f"blocks.{i - 1}.hook_resid_post"))
                continue
            names.append((f"{i}_pre", f"blocks.{i}.hook_resid_pre"))
            mid = f"blocks.{i}.hook_resid_mid" in self._model.hook_names  # not where attention and MLP are added together
            if mid and ((incl_mid and i < layer) or (mlp_input and i == layer)):
                names.append((f"{i}_mid", f"blocks.{i}.hook_resid_mid"))
        stack = np.stack([self._at(self[name], pos_slice) for _, name in names])
        if apply_ln and layer == self._n_layers:
            stack = Norm(self._model, "ln_final")(stack)
        elif apply_ln:
            stack = self.apply_ln_to_stack(stack, layer, mlp_input, pos_slice)
        return (stack, [label for label, _ in names]) if return_labels else stack

    @overload
    def decompose_resid(
        self, layer: int | None = None, mlp_input: bool = False, mode: Literal["all", "mlp", "attn"] = "all", apply_ln: bool = False,
        pos_slice: Positions = None, incl_embeds: bool = True, *, return_labels: Literal[True],
    ) -> tuple[Floats, list[str]]: ...

    @overload
    def decompose_resid(
        self, layer: int | None = None, mlp_input: bool = False, mode: Literal["all", "mlp", "attn"] = "all", apply_ln: bool = False,
        pos_slice: Positions = None, incl_embeds: bool = True, return_labels: Literal[False] = False,
    ) -> Floats: ...

    @overload
    def decompose_resid(
        self, layer: int | None = None, mlp_input: bool = False, mode: Literal["all", "mlp", "attn"] = "all", apply_ln: bool = False,
        pos_slice: Positions = None, incl_embeds: bool = True, return_labels: bool = False,
    ) -> Any: ...

    def decompose_resid(
        self, layer: int | None = None, mlp_input: bool = False, mode: Literal["all", "mlp", "attn"] = "all", apply_ln: bool = False,
        pos_slice: Positions = None, incl_embeds: bool = True, return_labels: bool = False,
    ) -> Any:
        """The outputs of the embedding and of every sub-layer: "embed", "pos_embed", "0_attn_out", "0_mlp_out", …"""
        if mode not in ("all", "mlp", "attn"):
            raise InputError(f"mode is {mode!r}; expected 'all', 'mlp' or 'attn'")
        layer = self._layer(layer, mlp_input)
        parts = self._embeds(layer, pos_slice) if incl_embeds else []
        for i in range(layer + (1 if mlp_input else 0)):
            if mode != "mlp":
                parts += self._written_by("attn_out", i, layer, pos_slice) + self._written_by("ssm_out", i, layer, pos_slice)
            if mode != "attn" and i < layer:
                parts += self._written_by("mlp_out", i, layer, pos_slice)
            if mode == "all" and i < layer:
                parts += self._per_layer(i, layer, pos_slice)
        return self._finished(parts, layer, mlp_input, apply_ln, pos_slice, return_labels)

    @overload
    def stack_head_results(
        self, layer: int | None = None, *, return_labels: Literal[True], incl_remainder: bool = False, pos_slice: Positions = None,
        apply_ln: bool = False,
    ) -> tuple[Floats, list[str]]: ...

    @overload
    def stack_head_results(
        self, layer: int | None = None, return_labels: Literal[False] = False, incl_remainder: bool = False, pos_slice: Positions = None,
        apply_ln: bool = False,
    ) -> Floats: ...

    @overload
    def stack_head_results(
        self, layer: int | None = None, return_labels: bool = False, incl_remainder: bool = False, pos_slice: Positions = None,
        apply_ln: bool = False,
    ) -> Any: ...

    def stack_head_results(
        self, layer: int | None = None, return_labels: bool = False, incl_remainder: bool = False, pos_slice: Positions = None,
        apply_ln: bool = False,
    ) -> Any:
        """The output of every head of the layers before `layer`: "L0H0", "L0H1", … A layer's heads and its b_O add up to its
        attn_out.

        Computed from hook_z and W_O. incl_remainder: and the rest of the residual stream, "remainder".
        """
        layer = self._layer(layer, False)
        parts = self._heads(layer, layer, pos_slice)
        if incl_remainder:
            parts.append(("remainder", self._rest(parts, layer, False, pos_slice)))
        return self._finished(parts, layer, False, apply_ln, pos_slice, return_labels)

    @overload
    def stack_neuron_results(
        self, layer: int | None = None, pos_slice: Positions = None, neuron_slice: Positions = None, *, return_labels: Literal[True],
        incl_remainder: bool = False, apply_ln: bool = False, project_output_onto: np.ndarray | None = None, mlp_input: bool = False,
    ) -> tuple[Floats, list[str]]: ...

    @overload
    def stack_neuron_results(
        self, layer: int | None = None, pos_slice: Positions = None, neuron_slice: Positions = None, return_labels: Literal[False] = False,
        incl_remainder: bool = False, apply_ln: bool = False, project_output_onto: np.ndarray | None = None, mlp_input: bool = False,
    ) -> Floats: ...

    @overload
    def stack_neuron_results(
        self, layer: int | None = None, pos_slice: Positions = None, neuron_slice: Positions = None, return_labels: bool = False,
        incl_remainder: bool = False, apply_ln: bool = False, project_output_onto: np.ndarray | None = None, mlp_input: bool = False,
    ) -> Any: ...

    def stack_neuron_results(
        self, layer: int | None = None, pos_slice: Positions = None, neuron_slice: Positions = None, return_labels: bool = False,
        incl_remainder: bool = False, apply_ln: bool = False, project_output_onto: np.ndarray | None = None, mlp_input: bool = False,
    ) -> Any:
        """The output of every neuron of the layers before `layer`: "L0N0", "L0N1", …

        This is d_ff times as large as a residual stream; project_output_onto [d_model] or [d_model, n] gives the output along
        those directions instead, and needs only that much memory.
        """
        layer = self._layer(layer, mlp_input)
        onto = _directions(project_output_onto, self._model.config.d_model)
        reading = self._reading(layer, mlp_input, pos_slice) if apply_ln and onto is not None else None
        parts = self._neurons(layer, pos_slice, neuron_slice, onto, reading)
        if incl_remainder:
            target = self._at(self[self._target(layer, mlp_input)], pos_slice)
            whole = target if onto is None else (reading(target) if reading is not None else target) @ onto
            parts.append(("remainder", whole - sum(value for _, value in parts)))
        return self._finished(parts, layer, mlp_input, apply_ln and onto is None, pos_slice, return_labels,
                              _is_vector(project_output_onto))

    @overload
    def get_full_resid_decomposition(
        self, layer: int | None = None, mlp_input: bool = False, expand_neurons: bool = True, apply_ln: bool = False,
        pos_slice: Positions = None, *, return_labels: Literal[True], project_output_onto: np.ndarray | None = None,
    ) -> tuple[Floats, list[str]]: ...

    @overload
    def get_full_resid_decomposition(
        self, layer: int | None = None, mlp_input: bool = False, expand_neurons: bool = True, apply_ln: bool = False,
        pos_slice: Positions = None, return_labels: Literal[False] = False, project_output_onto: np.ndarray | None = None,
    ) -> Floats: ...

    @overload
    def get_full_resid_decomposition(
        self, layer: int | None = None, mlp_input: bool = False, expand_neurons: bool = True, apply_ln: bool = False,
        pos_slice: Positions = None, return_labels: bool = False, project_output_onto: np.ndarray | None = None,
    ) -> Any: ...

    def get_full_resid_decomposition(
        self, layer: int | None = None, mlp_input: bool = False, expand_neurons: bool = True, apply_ln: bool = False,
        pos_slice: Positions = None, return_labels: bool = False, project_output_onto: np.ndarray | None = None,
    ) -> Any:
        """Every head, then every neuron (or every MLP, with its bias), "embed", "pos_embed" and "bias", the sum of the biases."""
        layer = self._layer(layer, mlp_input)
        onto = _directions(project_output_onto, self._model.config.d_model)
        reading = self._reading(layer, mlp_input, pos_slice) if apply_ln and onto is not None else None

        def small(parts: list[tuple[str, Floats]]) -> list[tuple[str, Floats]]:
            if onto is None:
                return parts
            return [(label, (reading(value) if reading is not None else value) @ onto) for label, value in parts]

        heads_to = layer + (1 if mlp_input else 0)
        parts = small(self._heads(heads_to, layer, pos_slice))
        if expand_neurons:
            parts += self._neurons(layer, pos_slice, None, onto, reading)
        else:
            for i in range(layer):
                parts += small(self._written_by("mlp_out", i, layer, pos_slice))
        for i in range(heads_to):
            parts += small(self._written_by("ssm_out", i, layer, pos_slice))
        for i in range(layer):
            parts += small(self._per_layer(i, layer, pos_slice))
        parts += small(self._embeds(layer, pos_slice))
        parts += small([("bias", self._biases(layer, heads_to, expand_neurons, pos_slice))])
        return self._finished(parts, layer, mlp_input, apply_ln and onto is None, pos_slice, return_labels,
                              _is_vector(project_output_onto))

    def apply_ln_to_stack(
        self, residual_stack: np.ndarray, layer: int | None = None, mlp_input: bool = False, pos_slice: Positions = None,
        batch_slice: Positions = None, has_batch_dim: bool = True, *, weight: bool = True,
    ) -> Floats:
        """A stack after the norm at `layer` with the scale of the run, so that the results add up to the input of the next
        matrix, without the norm's bias: (x - mean) / scale · w, the mean of LayerNorm only.

        weight: False omits w, as in TransformerLens: there w is folded into the next matrix.
        pos_slice, batch_slice: the positions and rows that residual_stack covers; it is not sliced by them.
        """
        layer = self._layer(layer, mlp_input, is_sum=False)
        stack = np.asarray(residual_stack, dtype=np.float32)
        read = self._reading(layer, mlp_input, pos_slice, batch_slice, weight)
        try:
            return read(stack)
        except ValueError as error:
            raise ShapeError(f"the stack {list(stack.shape)} does not fit the scales of the run; pos_slice and batch_slice say which "
                             "part of it a stack covers") from error

    def logit_attrs(
        self, residual_stack: np.ndarray, tokens: ArrayLike, incorrect_tokens: ArrayLike | None = None, pos_slice: Positions = None,
        batch_slice: Positions = None, has_batch_dim: bool = True,
    ) -> Floats:
        """What each component of a stack adds to the logits of tokens (minus those of incorrect_tokens), [component, batch,
        position]: W_U[:, token] · apply_ln_to_stack(component). Before the soft cap, and without the biases of norm and output
        head, which no component has.

        tokens  a text that is one token, an id, or ids [batch] or [batch, position]
        """
        directions = self._model.tokens_to_residual_directions(tokens)
        if incorrect_tokens is not None:
            others = self._model.tokens_to_residual_directions(incorrect_tokens)
            if others.shape != directions.shape:
                raise ShapeError(f"tokens are {list(directions.shape[:-1])} and incorrect_tokens {list(others.shape[:-1])}; expected "
                                 "the same shape")
            directions = directions - others
        stack = self.apply_ln_to_stack(residual_stack, None, False, pos_slice, batch_slice, has_batch_dim)
        if directions.ndim == 2 and stack.ndim == 4 and directions.shape[0] == stack.shape[1]:
            directions = directions[:, None]  # one for each prompt, at every position
        elif directions.ndim == 2 and stack.ndim == 4 and directions.shape[0] != 1:
            raise ShapeError(f"there are {directions.shape[0]} tokens for {stack.shape[1]} prompts; expected one token, one for each "
                             "prompt, or [batch, position]")
        try:
            result: Floats = (stack * directions).sum(-1)
        except ValueError as error:
            raise ShapeError(f"tokens {list(directions.shape[:-1])} do not fit a stack {list(stack.shape)}; expected one token, "
                             "[batch] or [batch, position]") from error
        return result

    # Parts ----------------------------------------------------------------------------------------------------------------------

    def _layer(self, layer: int | None, mlp_input: bool, is_sum: bool = True) -> int:
        layer = self._n_layers if layer is None or layer == -1 else layer
        if not 0 <= layer <= self._n_layers:
            raise InputError(f"layer is {layer}; the model has {self._n_layers} layers, and None means behind the last")
        if mlp_input and layer == self._n_layers:
            raise InputError("there is no MLP behind the last layer; mlp_input takes a layer of the model")
        if mlp_input and f"blocks.{layer}.hook_resid_mid" not in self._model.hook_names:
            raise InputError(f"the MLP of layer {layer} reads the stream that its attention reads; leave mlp_input out")
        for i in range(layer if is_sum else 0):
            if self._model._facts(i)["norms_after"]:
                raise InputError("this model normalizes the residual stream itself after every sub-layer, so the stream is not the sum of what was "
                                 "written into it; accumulated_resid and the hooks show it as it is")
        return layer

    def _at(self, value: Floats, pos_slice: Positions) -> Floats:
        """The positions of [batch, position, …] (or without batch), as each row counts its own; NaN where a row has none."""
        if pos_slice is None:
            return value
        positions = _index(pos_slice)
        if not self.has_batch_dim:
            return value[positions]
        ends = self._ends(value)
        if (ends == value.shape[1]).all():
            return value[:, positions]
        rows = [row[:end][positions] for row, end in zip(value, ends, strict=True)]
        if isinstance(positions, int):
            return np.stack(rows)
        most = max(map(len, rows))
        return np.stack([np.concatenate([row, np.full((most - len(row), *row.shape[1:]), np.nan, row.dtype)]) for row in rows])

    def _ends(self, value: Floats) -> Ids:
        """The positions that each row of [batch, position, …] has; those of a value that was sliced are before its NaN."""
        if self._lengths is None or len(self._lengths) != len(value) or (self._lengths == self._lengths[0]).all():
            return np.full(len(value), value.shape[1], np.int64)
        if value.shape[1] == self._lengths.max():
            return self._lengths
        ends: Ids = value.shape[1] - np.isnan(value[:, ::-1]).all(axis=tuple(range(2, value.ndim))).cumprod(axis=1).sum(axis=1)
        return ends

    def _factor(self, first: int, layer: int) -> np.float32:
        """What the layers from `first` on multiply the whole stream by, up to the input of `layer`."""
        return np.float32(np.prod([self._model._facts(i)["stream_scale"] for i in range(first, layer)]))

    def _part(self, name: str, i: int, layer: int, pos_slice: Positions) -> Floats:
        factor = self._factor(i, layer)
        value = self._at(self[name], pos_slice)
        return value if factor == 1 else value * factor

    def _embeds(self, layer: int, pos_slice: Positions) -> list[tuple[str, Floats]]:
        names = ["embed", *(["pos_embed"] if "hook_pos_embed" in self._model.hook_names else [])]
        return [(name, self._part("hook_" + name, 0, layer, pos_slice)) for name in names]

    def _written_by(self, what: str, i: int, layer: int, pos_slice: Positions) -> list[tuple[str, Floats]]:
        """What layer i adds by one of its sub-layers, which it may lack."""
        name = f"blocks.{i}.hook_{what}"
        return [(f"{i}_{what}", self._part(name, i, layer, pos_slice))] if name in self._model.hook_names else []

    def _per_layer(self, i: int, layer: int, pos_slice: Positions) -> list[tuple[str, Floats]]:
        if not self._model._facts(i)["per_layer"]:
            return []
        return [(f"{i}_per_layer_out", self._part(f"blocks.{i}.hook_per_layer_out", i, layer, pos_slice))]

    def _written(self, i: int, layer: int, norm: str, pos_slice: Positions, axes: int) -> Floats:
        """The factor between what a sub-layer's matrix gives and what is added to the stream: a norm with the scale of the run and
        the family's factors. [batch, position, 1 …, d_model or 1], `axes` of them before the last.
        """
        facts = self._model._facts(i)
        factor = np.float32(facts["residual_scale" if norm == "ln1_post" else "mlp_scale"]) * self._factor(i, layer)
        name = f"blocks.{i}.{norm}"
        if name + ".w" not in self._model._names:
            return np.full(1, factor, np.float32)
        scale = self._at(self[name + ".hook_scale"], pos_slice)
        through: Floats = weight(self._model, name + ".w") * factor / scale
        return through.reshape(*scale.shape[:-1], *([1] * axes), -1)

    def _heads(self, end: int, layer: int, pos_slice: Positions) -> list[tuple[str, Floats]]:
        parts = []
        for i in range(end):
            facts = self._model._facts(i)
            if not facts["attention"]:
                raise InputError(f"layer {i} has no attention, so it has no heads; decompose_resid takes its output whole")
            result = self._head_results(i, pos_slice) * self._written(i, layer, "ln1_post", pos_slice, 1)
            parts += [(f"L{i}H{h}", result[..., h, :]) for h in range(result.shape[-2])]
        return parts

    def _head_results(self, i: int, pos_slice: Positions) -> Floats:
        prefix = f"blocks.{i}.attn."
        if prefix + "hook_result" in self._values:
            return self._at(self[prefix + "hook_result"], pos_slice)
        z = self._at(self[prefix + ("hook_gated_z" if self._model._facts(i)["gated_heads"] else "hook_z")], pos_slice)
        results: Floats = np.einsum("...hi,hid->...hd", z, weight(self._model, prefix + "W_O"), optimize=True)
        return results

    def _neurons(
        self, layer: int, pos_slice: Positions, neuron_slice: Positions, onto: Floats | None, reading: Reading | None,
    ) -> list[tuple[str, Floats]]:
        parts = []
        for i in range(layer):
            if self._model._facts(i)["experts"]:
                raise InputError(f"the MLP of layer {i} is a mixture of experts; a neuron of one is no neuron of every token. "
                                 "expand_neurons=False takes it whole")
            post = self._at(self[f"blocks.{i}.mlp.hook_post"], pos_slice)
            W_out = weight(self._model, f"blocks.{i}.mlp.W_out")
            which = np.arange(W_out.shape[0])
            if neuron_slice is not None:
                which = np.atleast_1d(which[_index(neuron_slice)])
            factor = self._written(i, layer, "ln2_post", pos_slice, 0)
            for n in which:
                if onto is None:
                    value = post[..., n, None] * W_out[n] * factor
                else:
                    row = W_out[n] * factor  # [d_model], or one for each position behind a norm
                    value = post[..., n, None] * ((reading(row) if reading is not None else row) @ onto)
                parts.append((f"L{i}N{n}", value))
        return parts

    def _biases(self, layer: int, heads_to: int, mlps: bool, pos_slice: Positions) -> Floats:
        total = np.zeros_like(self._at(self["hook_embed"], pos_slice))
        for i in range(heads_to):
            for name, norm in (("attn.b_O", "ln1_post"), *((("mlp.b_out", "ln2_post"),) if mlps and i < layer else ())):
                if f"blocks.{i}.{name}" in self._model._names:
                    total += weight(self._model, f"blocks.{i}.{name}") * self._written(i, layer, norm, pos_slice, 0)
        return total

    def _target(self, layer: int, mlp_input: bool) -> str:
        if mlp_input:
            return f"blocks.{layer}.hook_resid_mid"
        return f"blocks.{layer}.hook_resid_pre" if layer < self._n_layers else f"blocks.{layer - 1}.hook_resid_post"

    def _rest(self, parts: list[tuple[str, Floats]], layer: int, mlp_input: bool, pos_slice: Positions) -> Floats:
        return self._at(self[self._target(layer, mlp_input)], pos_slice) - sum(value for _, value in parts)

    def _reading(self, layer: int, mlp_input: bool, pos_slice: Positions, batch_slice: Positions = None, weighted: bool = True) -> Reading:
        """The norm that reads the stream there, with its scale fixed: a linear function of [..., d_model]."""
        name = "ln_final" if layer == self._n_layers else f"blocks.{layer}.ln{2 if mlp_input else 1}"
        if name + ".w" not in self._model._names or (layer < self._n_layers and self._model._facts(layer)["norms_after"]):
            return lambda x: x
        scale = self._at(self[name + ".hook_scale"], pos_slice)
        if batch_slice is not None and self.has_batch_dim:
            scale = scale[_index(batch_slice)]
        w = weight(self._model, name + ".w") if weighted else np.float32(1)
        centered = not self._model._facts(min(layer, self._n_layers - 1))["rms"]
        return lambda x: (x - x.mean(-1, keepdims=True) if centered else x) / scale * w

    def _finished(self, parts: list[tuple[str, Floats]], layer: int, mlp_input: bool, apply_ln: bool, pos_slice: Positions,
                  return_labels: bool, one_direction: bool = False) -> Any:
        if parts:
            shape = np.broadcast_shapes(*(value.shape for _, value in parts))
            stack = np.stack([np.broadcast_to(value, shape) for _, value in parts])
        else:
            stack = np.zeros((0, *self._at(self["hook_embed"], pos_slice).shape), np.float32)
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, layer, mlp_input, pos_slice)
        if one_direction:
            stack = stack[..., 0]
        return (stack, [label for label, _ in parts]) if return_labels else stack


def _index(given: Places) -> int | slice | np.ndarray:
    """A NumPy index for one axis."""
    if isinstance(given, slice):
        return given
    if isinstance(given, tuple):
        return slice(*given)
    return operator.index(cast(SupportsIndex, given)) if np.ndim(given) == 0 else np.asarray(given)


def _is_vector(onto: np.ndarray | None) -> bool:
    return onto is not None and np.ndim(onto) == 1


def _directions(onto: np.ndarray | None, d_model: int) -> Floats | None:
    if onto is None:
        return None
    onto = np.asarray(onto, dtype=np.float32)
    if onto.ndim not in (1, 2) or onto.shape[0] != d_model:
        raise ShapeError(f"project_output_onto is {list(onto.shape)}; expected [{d_model}] or [{d_model}, n]")
    return onto[:, None] if onto.ndim == 1 else onto
