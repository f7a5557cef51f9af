"""A model's parameters, changed in memory, and the changed model as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .arrays import ArrayLike, Floats
from .errors import UsageError
from .opened import OpenedModel
from .weights import form, reading, weight, writing

Read = TypeVar("Read")
_WRITE_THE_FIRST = (np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask)


class EditableWeight(NDArrayOperatorsMixin):
    """A parameter of a model, or a part of one, that reads and writes like an array: slices, masks, in-place arithmetic, `out=` of
    NumPy's functions.

    It always shows what the model computes with now; np.array(w) is a copy of that. The first write copies the parameter, as f32,
    into memory of this model alone; the file, and other models of it, stay as they are. A write waits for runs of the model and for
    readers in other threads, and they for it. Made by Model.weights.
    """

    def __init__(self, model: OpenedModel, name: str, path: tuple[Any, ...] = ()) -> None:
        self._model, self._name, self._path = model, name, path
        self._form()  # InputError for an unknown name, IndexError for an index outside

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array."""
        return self._form().shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of numbers."""
        return self._form().size

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """float32, whatever the file holds."""
        return np.dtype(np.float32)

    @property
    def T(self) -> EditableWeight:
        """The same with its axes in reverse order; writing to it writes to this."""
        return EditableWeight(self._model, self._name, (*self._path, "T"))

    def fill(self, value: float) -> None:
        """Sets every number."""
        self[...] = value

    def copy(self) -> Floats:
        """An array of the numbers as they are now."""
        return self._read(np.copy)

    def __len__(self) -> int:
        return len(self._form())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        """A part that can be written, for indices and slices; a copy for masks and lists, as of an array; a number for one place."""
        if all(_is_basic(one) for one in (index if isinstance(index, tuple) else (index,))) and isinstance(self._form()[index], np.ndarray):
            return EditableWeight(self._model, self._name, (*self._path, index))
        return self._read(lambda array: array[index].copy())

    def __setitem__(self, index: Any, value: Any) -> None:
        given = _arrays(value)
        with writing(self._model, self._name) as whole:
            _along(whole, self._path)[index] = given

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the numbers of a parameter are copied; np.asarray(w) does that")
        return self._read(lambda array: np.array(array, dtype=dtype))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "at":  # the only one that writes what it reads
            return self._apply(lambda first, *rest: ufunc.at(first, *rest), inputs[0], *map(_array, inputs[1:]))
        function = getattr(ufunc, method)
        targets = options.pop("out", ())
        given = [one if len(targets) == 1 and one is targets[0] else _array(one) for one in inputs]  # w *= 2 needs no copy of w
        if not any(isinstance(one, EditableWeight) for one in targets):
            return function(*given, **options, **({"out": targets} if targets else {}))
        if len(targets) == 1:
            self._apply(lambda out: function(*(out if one is targets[0] else one for one in given), out=(out,), **options), targets[0])
            return targets[0]
        for target, result in zip(targets, function(*given, **options), strict=True):
            if target is not None:
                target[...] = result
        return targets

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        out = options.get("out")
        if isinstance(out, EditableWeight):
            given, rest = _arrays(args), _arrays({key: value for key, value in options.items() if key != "out"})
            self._apply(lambda array: function(*given, out=array, **rest), out)
            return out
        if function in _WRITE_THE_FIRST and isinstance(args[0], EditableWeight):
            others, rest = _arrays(args[1:]), _arrays(options)
            return self._apply(lambda array: function(array, *others, **rest), args[0])
        return function(*_arrays(args), **_arrays(options))

    def __repr__(self) -> str:
        part = "".join(".T" if step == "T" else f"[{_spelled(step)}]" for step in self._path)
        return f"<{self._name}{part} {list(self.shape)} of {self._model.config.name}, can be written>"

    def _form(self) -> Floats:
        """An array of its shape that has no numbers of its own."""
        part: Floats = _along(form(self._model, self._name), self._path)
        return part

    def _read(self, function: Callable[[Floats], Read]) -> Read:
        """What a function makes of the numbers, which are copied by it."""
        with reading(self._model, self._name) as whole:
            return function(_along(whole, self._path))

    def _values(self) -> Floats:
        """The numbers as they are now; a copy only where weight() makes one, or of a part."""
        if not self._path:
            return weight(self._model, self._name)
        return self._read(np.copy)

    @staticmethod
    def _apply(function: Any, target: EditableWeight, *rest: Any) -> Any:
        if not isinstance(target, EditableWeight):
            return function(target, *rest)
        with writing(target._model, target._name) as whole:
            return function(_along(whole, target._path), *rest)


class Weights(Mapping[str, EditableWeight]):
    """The parameters of a model by the names in weight_names, in TransformerLens's orientation, to be changed in memory:

        model.weights["blocks.3.attn.W_Q"][2] = 0          # [head, d_model, head_dim]
        model.weights["blocks.3.mlp.W_out"] += update
        model.weights["W_E"][np.abs(model.W_E) < 0.01] = 0

    Everything that the model does from then on uses the new numbers: runs, generation, circuits, gradients, save(). The embedding of
    a model with tied embeddings is its output matrix, too. A matrix beside which an adapter stands is written with the adapter in
    it.
    """

    def __init__(self, model: OpenedModel) -> None:
        self._model = model

    def __getitem__(self, name: str) -> EditableWeight:
        return EditableWeight(self._model, name)

    def __setitem__(self, name: str, value: ArrayLike | EditableWeight) -> None:
        weight = EditableWeight(self._model, name)
        if not (isinstance(value, EditableWeight) and (value._model, value._name, value._path) == (self._model, name, ())):
            weight[...] = value  # weights[name] *= 2 ends with what it has written

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.weight_names)

    def __len__(self) -> int:
        return len(self._model.weight_names)

    def __repr__(self) -> str:
        return f"<{len(self)} parameters of {self._model.config.name}, can be written>"

    def encode(self, names: str | Iterable[str] | None = None) -> list[str]:
        """Rounds matrices that were changed to the type that they have in the file (bf16, Q4_K, …), in which the model then
        computes with them; None: all of them. Vectors stay f32. The result are the names of those that were rounded.

        Raises InputError for a name that is unknown or given twice, before anything is rounded, and for a type that vitrine does not
        write; RunError for a number that the type cannot hold.
        """
        chosen = [names] if isinstance(names, str) else None if names is None else list(names)
        return self._model._session.encode_weights(chosen)


def save(model: OpenedModel, out: str | os.PathLike[str], *, dtype: str | None = None) -> str:
    """Writes the model as it is now, with changed weights and its adapter in them: a Hugging Face directory, or a GGUF file if `out`
    ends in ".gguf". The result is its path.

    dtype  "f32", "bf16", "f16"; of a GGUF file also "q8_0", "q4_k_m" and the others of `vitrine convert`. None: the type that most
           weights have in the file (bf16 for those in blocks); of a model from a GGUF file that stays one, each matrix's own, which
           is f32 for those that were changed unless weights.encode() rounded them

    Raises InputError for what is there already and for an unknown type, RunError for NaN and the disk.
    """
    if model._opened is None:
        raise UsageError("a merge in memory has no tokenizer files; merge it with out=, load that, change and save it")
    model._session.save(os.fsencode(out), dtype or "")
    return os.fspath(out)


def _along(array: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        array = array.T if isinstance(step, str) else array[step]
    return array


def _is_basic(index: object) -> bool:
    if index is None or index is Ellipsis or isinstance(index, slice):
        return True
    return isinstance(index, SupportsIndex) and not isinstance(index, bool | np.bool_ | np.ndarray)


def _spelled(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_spelled, index))
    if isinstance(index, slice):
        return ":".join("" if one is None else str(one) for one in (index.start, index.stop, index.step)[: 2 if index.step is None else 3])
    return "..." if index is Ellipsis else str(index)


def _array(value: Any) -> Any:
    return value._values() if isinstance(value, EditableWeight) else value


def _arrays(values: Any) -> Any:
    """The same with arrays for parameters, also within lists: np.concatenate([w, w])."""
    if isinstance(values, dict):
        return {key: _arrays(value) for key, value in values.items()}
    if isinstance(values, list | tuple) and type(values) in (list, tuple):
        return type(values)(map(_arrays, values))
    return _array(values)
