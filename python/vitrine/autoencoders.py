"""Sparse autoencoders and transcoders: features of each token. autoencoder_runs.py runs models through them."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ._vitrine import Autoencoder, hook_alias, make_autoencoder, read_autoencoder, registered_autoencoder
from .arrays import ArrayLike, Floats, Ids
from .collecting import Activations
from .errors import InputError, ShapeError, UsageError
from .hook_requests import has_heads
from .program import plain, run


def load_sae(
    path: str | os.PathLike[str], sae_id: str | None = None, *, hook_name: str | None = None, hook_name_out: str | None = None,
    registry: str | os.PathLike[str] | None = None,
) -> SparseAutoencoder:
    """Reads an autoencoder or transcoder: SAELens's directory (cfg.json, sae_weights.safetensors) or Gemma Scope's (params.npz, or
    config.json and params.safetensors). hook_name and hook_name_out replace the hooks that the files give for its input and
    output.

    path      a directory, or OWNER/NAME:FOLDER, which `vitrine pull` downloaded; with sae_id a release, as in SAELens:
              load_sae("gpt2-small-res-jb", "blocks.8.hook_resid_pre"), or a repository, OWNER/NAME
    registry  the file with the releases; None: the pretrained_saes.yaml of the installed package sae_lens

    An autoencoder that its release trained on a residual stream without its mean (center_writing_weights) subtracts the mean.
    Raises FileError naming file, key or tensor, and for one that is not downloaded yet, with its name for `vitrine pull`;
    InputError naming the nearest release or sae_id.
    """
    centered = False
    if sae_id is not None and "/" in os.fspath(path):
        path = f"{os.fspath(path)}:{sae_id}"
    elif sae_id is not None:
        path, centered = registered_autoencoder(os.fsencode(_registry() if registry is None else registry), os.fspath(path), sae_id)
    return SparseAutoencoder(read_autoencoder(os.fsencode(path), hook_name, hook_name_out, centered))


def _registry() -> Path:
    """The registry of the installed SAELens, which is not imported."""
    found = importlib.util.find_spec("sae_lens")
    if found is None or not found.submodule_search_locations:
        raise UsageError("SAELens's registry of releases is in its package, which is not installed: `pip install sae-lens`, give "
                         "registry=, a pretrained_saes.yaml, or name the repository and the folder: load_sae(\"OWNER/NAME\", \"FOLDER\")")
    return Path(found.submodule_search_locations[0]) / "pretrained_saes.yaml"


def train_sae(
    activations: Activations | str | os.PathLike[str], out: str | os.PathLike[str], *, features: int, **options: Any,
) -> SparseAutoencoder:
    """Trains an autoencoder on the output of Model.collect() or `vitrine collect`, as `vitrine sae train` does (docs/collect.md),
    and returns it. out: the folder to create, which SAELens can load as well. options: those of the command, such as
    architecture="jumprelu", k=, steps=, batch=, lr=, hook=, seed=, resume=True.

    Raises InputError and RunError with the command's message.
    """
    run("sae train", activations.path if isinstance(activations, Activations) else activations, out=out, features=features, **options)
    return load_sae(out)


class Settings(dict[str, Any]):
    """SAELens's configuration, whose keys are attributes as well: cfg.d_sae, cfg.metadata.hook_name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no {name}; it has {', '.join(self)}") from None


class SparseAutoencoder:
    """Made by load_sae(). Values are float32; arrays may have any axes before the last one.

    architecture  SAELens's name: "standard", "gated", "topk", "abstopk", "jumprelu", "transcoder", "jumprelu_transcoder", …
    W_enc [d_in, d_sae], W_dec [d_sae, d_out], b_enc, b_dec, threshold, r_mag, b_mag, b_gate, W_skip [d_out, d_in]: read-only
    arrays, None where the architecture lacks them
    """

    W_enc: Floats
    W_dec: Floats

    def __init__(self, read: Autoencoder) -> None:
        self._read = read
        self.architecture: str = read.architecture
        self.d_in: int = read.d_in
        self.d_sae: int = read.d_sae
        self.d_out: int = read.d_out
        self.k: int | None = read.k or None
        self.hook_name: str = read.hook_name
        self.hook_name_out: str = read.hook_name_out
        self.cfg: Settings = json.loads(read.config, object_hook=Settings)

    @classmethod
    def from_arrays(cls, cfg: dict[str, Any], **arrays: ArrayLike) -> SparseAutoencoder:
        """An autoencoder from given weights. cfg: SAELens's keys, such as {"architecture": "topk", "d_in": 256, "d_sae": 2048,
        "k": 32, "metadata": {"hook_name": "blocks.3.hook_resid_post"}}; arrays: W_enc=, W_dec=, b_enc=, b_dec= and so on.
        """
        made = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}
        return cls(make_autoencoder(json.dumps(cfg, default=plain), made))

    def __repr__(self) -> str:
        return f"<vitrine.SparseAutoencoder {self.architecture}: {self.d_in} to {self.d_sae} features, {self.hook_name or 'no hook'}>"

    def __getattr__(self, name: str) -> Floats | None:
        if name in ("W_enc", "W_dec", "b_enc", "b_dec", "threshold", "r_mag", "b_mag", "b_gate", "W_skip"):
            return self._read.parameter(name)
        raise AttributeError(f"SparseAutoencoder has no {name}")

    def _rows(self, x: ArrayLike, width: int, name: str) -> tuple[Floats, tuple[int, ...]]:
        given = np.asarray(x)
        if given.dtype.kind not in "biuf":
            raise InputError(f"got an array of {given.dtype}; expected real numbers")
        values = given.astype(np.float32, copy=False)
        shape = values.shape
        if len(shape) >= 2 and shape[-1] != width and shape[-1] * shape[-2] == width and self._reads_heads():
            shape = (*shape[:-2], width)
        if not shape or shape[-1] != width:
            raise ShapeError(f"got an array {list(values.shape)}; expected {name}, {width}, as its last size")
        return np.ascontiguousarray(values.reshape(-1, width)), shape[:-1]

    def _reads_heads(self) -> bool:
        return any(has_heads(hook_alias(name) or name) for name in (self.hook_name, self.hook_name_out))

    def encode(self, x: ArrayLike) -> Floats:
        """Features [..., d_sae] of x [..., d_in], most of them 0. Heads [..., head, head_dim] are flattened if the hook has them.
        """
        rows, axes = self._rows(x, self.d_in, "d_in")
        return self._read.encode(rows).reshape(*axes, self.d_sae)

    def encode_sparse(self, x: ArrayLike) -> tuple[Ids, Ids, Floats]:
        """The same as (begin, feature, value): row r of x has the entries begin[r] to begin[r + 1]."""
        begin, index, value = self._read.encode_sparse(self._rows(x, self.d_in, "d_in")[0])
        return np.array(begin, np.int64), np.array(index, np.int64), np.array(value, np.float32)

    def pre_activations(self, x: ArrayLike) -> Floats:
        """The values before encode()'s activation function, [..., d_sae]: SAELens's hook_sae_acts_pre."""
        rows, axes = self._rows(x, self.d_in, "d_in")
        return self._read.pre_activations(rows).reshape(*axes, self.d_sae)

    def decode(self, features: ArrayLike, x: ArrayLike | None = None) -> Floats:
        """The output for features [..., d_sae], [..., d_out]. x: their input, which an autoencoder with
        normalize_activations, and a transcoder with W_skip, need.
        """
        rows, axes = self._rows(features, self.d_sae, "d_sae")
        given = None if x is None else self._rows(x, self.d_in, "d_in")[0]
        return self._read.decode(rows, given).reshape(*axes, self.d_out)

    def __call__(self, x: ArrayLike) -> Floats:
        """The reconstruction of x, [..., d_out]."""
        return self.decode(self.encode(x), x)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes cfg.json and sae_weights.safetensors, which SAELens can read."""
        self._read.save(os.fsencode(directory))
