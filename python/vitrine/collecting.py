"""Activations of a corpus: written by Model.collect (or `vitrine collect`), read by Activations."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._vitrine import hook_alias
from .arrays import Floats, Ids
from .batches import Prompt
from .errors import FileError, InputError, MissingFileError, ShapeError, UsageError
from .opened import OpenedModel
from .whole_numbers import INT64, within

_FORMAT = "vitrine activations 1"
Tokens = np.ndarray[tuple[Any, ...], np.dtype[np.int32]]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def collect(
    model: OpenedModel, hooks: str | Sequence[str], out: str | os.PathLike[str], *, texts: Iterable[Prompt] | None = None,
    files: Paths | None = None, context: int | None = None, max_tokens: int | None = None, type: str = "f32", shard_mb: int = 256,
    resume: bool = False, prepend_bos: bool = True, document: str = "", key: str = "text",
    progress: Callable[[int, float], None] | None = None,
) -> Activations:
    """Runs a corpus and writes the values at hooks of every token as shards, which are returned, mapped (docs/collect.md).

    hooks        names, in which * matches any characters, or aliases such as "resid_post.3"
    out          the folder to create; if it exists, it must be empty
    texts        an iterable of documents: texts, or rows of ids, which are used unchanged. Read as needed
    files        or text files and JSON lines, also as .gz or .zst; `document` separates documents of plain text, and JSON lines
                 have them under `key`
    context      maximum tokens of a context; None: 256, or the model's context length. No context contains two documents
    max_tokens   stop after this many tokens; None: at the end
    type         type of the values on disk: f32, f16 or bf16
    shard_mb     maximum MiB of a shard
    resume       continue an interrupted call with the same arguments after its last complete shard
    prepend_bos  every context begins with BOS, if the tokenizer adds it to texts
    progress     called with the number of collected tokens and the tokens per second

    Raises InputError for a hook without one value per token, an `out` that is not empty, a folder to resume that was made from
    another text, model or arguments, and no text; RunError for NaN, a full disk, and a number out of f16's range.
    """
    model._without_hooks("collect")
    if (texts is None) == (files is None):
        raise UsageError("collect takes texts or files: one of them")
    if isinstance(texts, str):
        raise UsageError("texts is one text; give a list of texts, or files=")
    model._session.collect(
        hooks=[hooks] if isinstance(hooks, str) else list(hooks),
        out=os.fsencode(out),
        files=None if files is None else [os.fsencode(one) for one in _listed(files)],
        next=None if texts is None else _next_of(model, iter(texts)),
        separator=document,
        key=key,
        context=0 if context is None else within("context", context, 1, INT64),
        max_tokens=0 if max_tokens is None else within("max_tokens", max_tokens, 1, INT64),
        type=type,
        shard_bytes=within("shard_mb", shard_mb, 1, 1 << 20) << 20,
        resume=resume,
        prepend_bos=prepend_bos,
        progress=progress,
    )
    return Activations(out)


def _listed(files: Paths) -> list[str | os.PathLike[str]]:
    return [files] if isinstance(files, str | os.PathLike) else list(files)


def _next_of(model: OpenedModel, documents: Iterator[Prompt]) -> Callable[[], Ids | None]:
    def following() -> Ids | None:
        for document in documents:
            if isinstance(document, str):
                ids = np.array(model.tokenizer.encode(document, add_special=False), dtype=np.int64)
            else:
                ids = model._one(document)
            return ids
        return None

    return following


class Activations:
    """Collected activations, memory-mapped: values of a hook are read on access.

    manifest         how they were made: model, hooks, type, context, tokens, shards
    hooks            their names
    len(a)           tokens
    a.tokens()       ids of all tokens, int32; a.positions(): within their contexts, 0 where one begins
    a.shards(hook)   one array [tokens, ...] for each shard, as stored on the disk; bf16 as its bits, uint16
    a.rows(hook, i)  the values of some tokens as float32: i is a slice, an array of numbers, or one of bools for every token
    a[hook]          the values of all tokens as float32 [tokens, ...]

    A hook can be given by its name or by an alias that means the same in every model: "resid_post.3".
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)
        manifest = self.path / "manifest.json"
        if not manifest.exists():
            raise MissingFileError(f"{self.path}: holds no manifest.json, so these are no collected activations; model.collect() "
                                   "makes them")
        try:
            self.manifest: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
            self._shapes = {str(hook["name"]): tuple(map(operator.index, hook["shape"])) for hook in self.manifest["hooks"]}
            self._type = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[self.manifest["type"]]
            shards = [(self._path_of(i, shard["file"]), operator.index(shard["tokens"])) for i, shard in enumerate(self.manifest["shards"])]
            if self.manifest["format"] != _FORMAT:
                raise ValueError(f"the format {self.manifest['format']!r}")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileError(f"{manifest}: {error!r} is no manifest of activations") from error
        self.hooks = list(self._shapes)
        self._files = [self._mapped(path, tokens) for path, tokens in shards]
        self._ends = np.cumsum([tokens for _, tokens in shards], dtype=np.int64)

    def _path_of(self, number: int, name: str) -> Path:
        if name != f"activations-{number:05}.safetensors":
            raise ValueError(f"the shard {name!r}")
        return self.path / name

    def _mapped(self, path: Path, tokens: int) -> dict[str, np.ndarray]:
        if not path.is_file():
            raise MissingFileError(f"{path}: is missing, and the manifest lists it")
        if path.stat().st_size == 0:
            raise FileError(f"{path}: is empty")
        whole = np.memmap(path, dtype=np.uint8, mode="r")
        types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32}
        header_bytes = int(whole[:8].view(np.uint64)[0]) if whole.size >= 8 else whole.size
        if header_bytes + 8 > whole.size:
            raise FileError(f"{path}: is cut off within its header")
        arrays = {}
        try:
            for name, tensor in json.loads(bytes(whole[8:8 + header_bytes])).items():
                if name == "__metadata__":
                    continue
                begin, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
                shape, type = tensor["shape"], types[tensor["dtype"]]
                if not 8 + header_bytes <= begin <= end <= whole.size or shape[0] != tokens:
                    raise FileError(f"{path}: is truncated, or does not contain what the manifest says of {name}")
                arrays[name] = whole[begin:end].view(type).reshape(shape)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}: {error!r} is no header of activations") from error
        for name, shape in {"tokens": (), "positions": (), **self._shapes}.items():
            if name not in arrays:
                raise FileError(f"{path}: holds no {name}, which the manifest names")
            if arrays[name].shape[1:] != shape or arrays[name].dtype != (self._type if name in self._shapes else np.int32):
                raise FileError(f"{path}: {name} is {arrays[name].dtype} {list(arrays[name].shape)}, not as the manifest says")
        return arrays

    def __repr__(self) -> str:
        return f"<vitrine.Activations {self.path}: {len(self):,} tokens at {', '.join(self.hooks)}>"

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def tokens(self) -> Tokens:
        return self._joined("tokens")

    def positions(self) -> Tokens:
        return self._joined("positions")

    def shards(self, hook: str) -> list[np.ndarray]:
        name = self._name(hook)
        return [file[name] for file in self._files]

    def rows(self, hook: str, which: slice | Sequence[int] | np.ndarray) -> Floats:
        name = self._name(hook)
        places = np.arange(len(self))[which] if isinstance(which, slice) else self._places(which)
        if places.size and (places.min() < -len(self) or places.max() >= len(self)):
            raise InputError(f"there are {len(self):,} tokens, 0 to {len(self) - 1}; asked for {places.min()} to {places.max()}")
        places = places % max(len(self), 1)
        found = np.empty((places.size, *self._shapes[name]), np.float32)
        of = np.searchsorted(self._ends, places, side="right")
        for number in np.unique(of):
            begin = self._ends[number - 1] if number > 0 else 0
            found[of == number] = _as_f32(self._files[number][name][places[of == number] - begin], self.manifest["type"])
        return found

    def __getitem__(self, hook: str) -> Floats:
        return self.rows(hook, slice(None))

    def _joined(self, name: str) -> Tokens:
        return np.concatenate([file[name] for file in self._files]) if self._files else np.empty(0, np.int32)

    def _name(self, hook: str) -> str:
        name = hook if hook in self.hooks else hook_alias(hook)
        if name not in self.hooks:
            raise InputError(f"{self.path} holds no values of {hook!r}, but of {', '.join(self.hooks)}")
        return name

    def _places(self, which: Sequence[int] | np.ndarray) -> Ids:
        given = np.asarray(which)
        if given.dtype == bool:
            if given.shape != (len(self),):
                raise ShapeError(f"the bools that choose tokens are {list(given.shape)}; expected one for each of {len(self):,} tokens")
            return np.flatnonzero(given)
        if given.ndim > 1 or (given.size and given.dtype.kind not in "iu"):
            raise InputError(f"tokens are chosen by {given.dtype} {list(given.shape)}; expected whole numbers, a slice, or bools")
        return np.atleast_1d(given).astype(np.int64)


def _as_f32(values: np.ndarray, type: str) -> Floats:
    if type == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)
