"""Merging models by mergekit's recipes; docs/merge.md explains them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, overload

from ._vitrine import MergeRequest
from .documents import Document
from .errors import InputError, UsageError
from .model import Model
from .whole_numbers import INT64, within

Recipe = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]


@overload
def merge(
    config: Recipe, out: None = None, *, resume: bool = False, force: bool = False, random_seed: int = 0,
    out_shard_size: int | str = "5B", allow_missing: bool = False, allow_nan: bool = False, allow_crimes: bool = False,
    threads: int = 0,
) -> Model: ...


@overload
def merge(
    config: Recipe, out: str | os.PathLike[str], *, resume: bool = False, force: bool = False, random_seed: int = 0,
    out_shard_size: int | str = "5B", allow_missing: bool = False, allow_nan: bool = False, allow_crimes: bool = False,
    threads: int = 0,
) -> str: ...


def merge(
    config: Recipe, out: str | os.PathLike[str] | None = None, *, resume: bool = False, force: bool = False, random_seed: int = 0,
    out_shard_size: int | str = "5B", allow_missing: bool = False, allow_nan: bool = False, allow_crimes: bool = False, threads: int = 0,
) -> Model | str:
    """Merges models. With `out` it writes a Hugging Face directory and returns its path; without, the result is a Model in memory.

    config        the path of a recipe; or the recipe itself, as YAML (text of more than one line) or as a dict. Several merges
                  in one recipe are a list of dicts. Paths of models are relative to the working directory
    out           the directory to write. It gets its name when it is complete
    resume        continue a stopped merge to `out`; does nothing if one of this recipe has finished
    force         replace `out`, the directory of a model, and remove everything in it
    random_seed   seed of methods that prune at random
    out_shard_size  maximum bytes of a weight file: a number, or "5B", "500M", "100k"; 0 is one file
    allow_missing   merge a tensor that some models lack from the others
    allow_nan     allow NaN and infinities
    allow_crimes  merge models of different families, by the names of their tensors
    threads       0: as many as this process has cores. Results do not depend on it

    Raises InputError for a recipe, FileError for a model, UsageError for tensors that do not fit, RunError for NaN and the disk.
    """
    request = _request(config, resume=resume, force=force, random_seed=random_seed, out_shard_size=out_shard_size,
                       allow_missing=allow_missing, allow_nan=allow_nan, allow_crimes=allow_crimes, threads=threads)
    if out is not None:
        request.to_directory(os.fsencode(out))
        return os.fspath(out)
    if resume or force:
        raise UsageError("resume and force concern a directory; name it as out")
    with tempfile.TemporaryDirectory(prefix="vitrine-merge-") as scratch:
        return Model(request.to_memory(os.fsencode(scratch)))


def merge_plan(
    config: Recipe, *, out_shard_size: int | str = "5B", allow_missing: bool = False, allow_crimes: bool = False, threads: int = 0,
) -> dict[str, Any]:
    """What merge() would do, without reading a weight: the document of `vitrine merge --dry-run --json`.

    "tensors" is a list of dicts with name, shape, dtype, layer, base, copied, sources and parameters; a parameter is a number, or
    one for each source (None for the base). "problems" lists why the merge would be refused; merge() raises UsageError for them.
    """
    request = _request(config, resume=False, force=False, random_seed=0, out_shard_size=out_shard_size,
                       allow_missing=allow_missing, allow_nan=False, allow_crimes=allow_crimes, threads=threads)
    return Document(json.loads(request.plan()))


def _request(config: Recipe, *, random_seed: int, out_shard_size: int | str, threads: int, **flags: bool) -> MergeRequest:
    path, text = _recipe(config)
    size, named = (0, out_shard_size) if isinstance(out_shard_size, str) else (out_shard_size, None)
    return MergeRequest(
        path=path,
        text=text,
        random_seed=within("random_seed", random_seed, 0, 2**64 - 1),
        shard_bytes=within("out_shard_size", size, 0, INT64),
        shard_size=named,
        threads=within("threads", threads, 0, 1024),
        **flags,
    )


def _recipe(config: Recipe) -> tuple[bytes, str]:
    """The path of a recipe or its text; the other is empty."""
    if isinstance(config, Mapping):
        return b"", _yaml(config)
    if isinstance(config, Sequence) and not isinstance(config, (str, bytes)) and config:
        return b"", "---\n".join(_yaml(document) for document in config)
    if isinstance(config, (str, os.PathLike)):
        if isinstance(config, str) and ("\n" in config or config.lstrip().startswith("{")):
            return b"", config
        if not os.fspath(config):
            raise InputError("the path of the recipe is empty; give a path, YAML or a dict")
        return os.fsencode(config), ""
    raise TypeError(f"a recipe is a path, YAML, a dict or a list of dicts; got {type(config).__name__}")


def _yaml(document: Mapping[str, Any]) -> str:
    """The dict as YAML; JSON is YAML."""
    try:
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    except ValueError as error:
        raise InputError(f"the recipe cannot be written down: {error}") from error


def _plain(value: object) -> object:
    """What JSON lacks: paths, NumPy's numbers and arrays, other mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a recipe holds dicts, lists, text, numbers and flags; got {type(value).__name__}")
