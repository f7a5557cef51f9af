"""Sparse autoencoders and transcoders beside a model: features per token, and runs in which they are changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ._vitrine import Autoencoder, hook_alias, make_autoencoder, read_autoencoder
from .cache import ActivationCache
from .collecting import Activations
from .errors import InputError, ShapeError, UsageError
from .hook_requests import has_heads
from .hooks import pair_of, replacement_of
from .program import plain, run

if TYPE_CHECKING:
    from .hooks import Hook, HookFunction

# In the order in which they are reached.
_HOOKS = ("hook_sae_input", "hook_sae_acts_pre", "hook_sae_acts_post", "hook_sae_recons", "hook_sae_error", "hook_sae_output")


def load_sae(
    path: str | os.PathLike[str], *, hook_name: str | None = None, hook_name_out: str | None = None,
) -> SparseAutoencoder:
    """Reads an autoencoder or transcoder: SAELens's directory (cfg.json, sae_weights.safetensors) or Gemma Scope's (params.npz, or
    config.json and params.safetensors). hook_name and hook_name_out replace what the files say of where it reads and writes.

    Raises FileError naming file, key or tensor.
    """
    return SparseAutoencoder(read_autoencoder(os.fsencode(path), hook_name, hook_name_out))


def train_sae(
    activations: Activations | str | os.PathLike[str], out: str | os.PathLike[str], *, features: int, **options: Any,
) -> SparseAutoencoder:
    """Learns an autoencoder from what Model.collect() or `vitrine collect` wrote, as `vitrine sae train` does (docs/collect.md), and
    gives it. out: the folder to make, which SAELens loads as well. options: those of the command, such as architecture="jumprelu", k=,
    steps=, batch=, lr=, hook=, seed=, resume=True.

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
    """Made by load_sae(). Values are float32; arrays may have any axes in front of the last one.

    architecture  SAELens's word: "standard", "gated", "topk", "abstopk", "jumprelu", "transcoder", "jumprelu_transcoder", …
    W_enc [d_in, d_sae], W_dec [d_sae, d_out], b_enc, b_dec, threshold, r_mag, b_mag, b_gate, W_skip [d_out, d_in]: read-only
    arrays, None where the architecture lacks them
    """

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
    def from_arrays(cls, cfg: dict[str, Any], **arrays: Any) -> SparseAutoencoder:
        """An autoencoder from weights of any origin. cfg: SAELens's keys, such as {"architecture": "topk", "d_in": 256, "d_sae": 2048,
        "k": 32, "metadata": {"hook_name": "blocks.3.hook_resid_post"}}; arrays: W_enc=, W_dec=, b_enc=, b_dec= and so on.
        """
        made = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}
        return cls(make_autoencoder(json.dumps(cfg, default=plain), made))

    def __repr__(self) -> str:
        return f"<vitrine.SparseAutoencoder {self.architecture}: {self.d_in} to {self.d_sae} features, {self.hook_name or 'no hook'}>"

    def __getattr__(self, name: str) -> Any:
        if name in ("W_enc", "W_dec", "b_enc", "b_dec", "threshold", "r_mag", "b_mag", "b_gate", "W_skip"):
            return self._read.parameter(name)
        raise AttributeError(f"SparseAutoencoder has no {name}")

    def _rows(self, x: Any, width: int, name: str) -> tuple[np.ndarray, tuple[int, ...]]:
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

    def encode(self, x: Any) -> np.ndarray:
        """Features [..., d_sae] of x [..., d_in], most of them 0. Heads [..., head, head_dim] are joined, where the
        hook has them.
        """
        rows, axes = self._rows(x, self.d_in, "d_in")
        return self._read.encode(rows).reshape(*axes, self.d_sae)

    def encode_sparse(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same as (begin, feature, value): row r of x has the entries begin[r] to begin[r + 1]."""
        begin, index, value = self._read.encode_sparse(self._rows(x, self.d_in, "d_in")[0])
        return np.array(begin, np.int64), np.array(index, np.int64), np.array(value, np.float32)

    def pre_activations(self, x: Any) -> np.ndarray:
        """What encode() applies its activation to, [..., d_sae]: SAELens's hook_sae_acts_pre."""
        rows, axes = self._rows(x, self.d_in, "d_in")
        return self._read.pre_activations(rows).reshape(*axes, self.d_sae)

    def decode(self, features: Any, x: Any = None) -> np.ndarray:
        """What features [..., d_sae] stand for, [..., d_out]. x: the input they are of, which an autoencoder with
        normalize_activations, and a transcoder with W_skip, need.
        """
        rows, axes = self._rows(features, self.d_sae, "d_sae")
        given = None if x is None else self._rows(x, self.d_in, "d_in")[0]
        return self._read.decode(rows, given).reshape(*axes, self.d_out)

    def __call__(self, x: Any) -> np.ndarray:
        """The reconstruction of x, [..., d_out]."""
        return self.decode(self.encode(x), x)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes cfg.json and sae_weights.safetensors, which SAELens reads."""
        self._read.save(os.fsencode(directory))


class _Spliced:
    """One autoencoder in a run: functions at its hooks, what is kept of them, and how gradients flow back through it."""

    def __init__(self, sae: SparseAutoencoder, error: bool, functions: dict[str, list[HookFunction]], kept: dict[str, np.ndarray],
                 wanted: Callable[[str], bool]) -> None:
        if not sae.hook_name:
            raise InputError("this autoencoder's files do not say at which hook it reads; give load_sae(…, hook_name=…)")
        self._sae, self._error, self._functions, self._kept, self._wanted = sae, error, functions, kept, wanted
        self._input: np.ndarray | None = None
        self._clean = self._acts = np.zeros(0, np.float32)
        self.acts_gradient = self._input_gradient = np.zeros(0, np.float32)  # of a run whose gradients are taken

    def hooks(self) -> list[Hook]:
        if self._sae.hook_name_out == self._sae.hook_name:
            return [(self._sae.hook_name, _Place(lambda value, hook: self._replaced(value, value, hook), self._through))]
        return [(self._sae.hook_name, _Place(self._remember, lambda gradient: gradient + self._input_gradient.reshape(gradient.shape))),
                (self._sae.hook_name_out, _Place(self._replaced_behind, self._behind))]

    def _remember(self, value: np.ndarray, hook: Any) -> None:
        self._input = value.copy()

    def _replaced_behind(self, value: np.ndarray, hook: Any) -> np.ndarray:
        if self._input is None:
            raise InputError(f"the run reached {self._sae.hook_name_out} before {self._sae.hook_name}, where its transcoder reads")
        return self._replaced(self._input, value, hook)

    def _at(self, name: str, value: np.ndarray, hook: Any) -> np.ndarray:
        full = f"{self._sae.hook_name_out}.{name}"
        for function in self._functions.get(full, ()):
            value = np.asarray(replacement_of(full, value, function(value, hook)), np.float32)
        if self._wanted(full):
            before = self._kept.get(full)
            self._kept[full] = value.copy() if before is None else np.concatenate([before, value], axis=1)
        return value

    def _replaced(self, x: np.ndarray, value: np.ndarray, hook: Any) -> np.ndarray:
        sae, shape = self._sae, value.shape
        x, value = x.reshape(*x.shape[:2], -1), value.reshape(*shape[:2], -1)
        there = ~np.isnan(x).all(axis=-1)  # behind the end of a shorter row of a batch there is nothing
        clean = _where(there, sae.encode, x)
        given = self._at("hook_sae_input", x.copy(), hook)
        if self._needs("hook_sae_acts_pre"):
            self._at("hook_sae_acts_pre", _where(there, sae.pre_activations, given), hook)
        self._clean = clean if np.array_equal(given, x, equal_nan=True) else _where(there, sae.encode, given)
        self._acts = self._at("hook_sae_acts_post", self._clean.copy(), hook)
        made = self._at("hook_sae_recons", _where(there, sae.decode, self._acts, given), hook)
        if self._error:
            made = made + self._at("hook_sae_error", value - _where(there, sae.decode, clean, x), hook)
        return self._at("hook_sae_output", made, hook).reshape(shape)

    def _needs(self, name: str) -> bool:
        full = f"{self._sae.hook_name_out}.{name}"
        return full in self._functions or self._wanted(full)

    def _back(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient at what it reads. The error is a constant, as in SAELens, and so is a feature that a function changed."""
        sae = self._sae
        if sae.cfg["normalize_activations"] != "none":
            raise UsageError("gradients through an autoencoder that normalises its input (normalize_activations) are not computed")
        for name in ("hook_sae_input", "hook_sae_recons", "hook_sae_error", "hook_sae_output"):
            if f"{sae.hook_name_out}.{name}" in self._functions:
                raise UsageError(f"gradients do not flow back through a function at {name}; set it at hook_sae_acts_post")
        rows = gradient.reshape(*gradient.shape[:2], -1)
        slope = rows @ sae.W_dec.T  # of each feature by its value, for a direction of any length
        norms = np.linalg.norm(sae.W_dec, axis=1) if sae.cfg.get("rescale_acts_by_decoder_norm") else np.ones(1, np.float32)
        self.acts_gradient = slope / np.maximum(norms, 1e-30)
        through = slope * ((self._clean != 0) & (self._acts == self._clean))
        if sae.r_mag is not None:
            through = through * np.exp(sae.r_mag)
        back = through @ sae.W_enc.T
        if sae.W_skip is not None:
            back = back + rows @ sae.W_skip
        result: np.ndarray = back.astype(np.float32)
        return result

    def _through(self, gradient: np.ndarray) -> np.ndarray:
        return self._back(gradient).reshape(gradient.shape)

    def _behind(self, gradient: np.ndarray) -> np.ndarray:
        self._input_gradient = self._back(gradient)
        return np.zeros_like(gradient)  # what the model computed there is replaced; the error is a constant


def _where(there: np.ndarray, function: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
    """The function of the rows that are there, [batch, position]; NaN in the others."""
    if there.all():
        return function(*values)
    found = function(*(value[there] for value in values))
    made = np.full((*there.shape, found.shape[-1]), np.nan, np.float32)
    made[there] = found
    return made


class _Place:
    """A hook function with its derivative (hook_backward.py)."""

    def __init__(self, forward: HookFunction, backward: Callable[[np.ndarray], np.ndarray]) -> None:
        self.forward, self._backward = forward, backward

    def __call__(self, value: np.ndarray, hook: Any) -> Any:
        return self.forward(value, hook)

    def backward(self, gradient: np.ndarray, hook: Any) -> np.ndarray:
        return self._backward(gradient)


def _nothing(name: str) -> bool:
    return False


class Saes:
    """The part of a Model that runs with autoencoders, with the names of SAELens's HookedSAETransformer."""

    @contextmanager
    def saes(self, saes: SparseAutoencoder | Sequence[SparseAutoencoder], use_error_term: bool = True) -> Iterator[Any]:
        """While it lasts, every run of this model by this thread goes through the autoencoders, each at its own hook.

        use_error_term  what an autoencoder does not explain is added, so that without changes a run gives what it gave; False: the
                        reconstruction takes the value's place (SAELens's default)
        """
        with self._spliced(saes, use_error_term, (), {}, _nothing):
            yield self

    @contextmanager
    def _spliced(
        self, saes: SparseAutoencoder | Sequence[SparseAutoencoder], error: bool, fwd_hooks: Iterable[Hook],
        kept: dict[str, np.ndarray], wanted: Callable[[str], bool],
    ) -> Iterator[list[_Spliced]]:
        several = [saes] if isinstance(saes, SparseAutoencoder) else list(saes)
        names = sae_hook_names(several)
        functions: dict[str, list[HookFunction]] = {}
        others: list[Hook] = []
        for which, function in map(pair_of, fwd_hooks):
            chosen = [name for name in names if which(name)] if callable(which) else [name for name in names if name == which]
            for name in chosen:
                functions.setdefault(name, []).append(function)
            if callable(which) or not chosen:
                if isinstance(which, str) and ".hook_sae_" in which:
                    raise InputError(f"{which!r} is no hook of these autoencoders; they have {', '.join(names)}")
                others.append((which, function))
        made = [_Spliced(sae, error, functions, kept, wanted) for sae in several]
        with self.hooks([*others, *(hook for one in made for hook in one.hooks())]):  # type: ignore[attr-defined]
            yield made

    def run_with_saes(self, prompt: Any, saes: SparseAutoencoder | Sequence[SparseAutoencoder], return_type: Any = "logits",
                      use_error_term: bool = True, **options: Any) -> Any:
        """The model's call through autoencoders; see saes()."""
        with self.saes(saes, use_error_term) as model:
            return model(prompt, return_type, **options)

    def run_with_hooks_with_saes(
        self, prompt: Any, saes: SparseAutoencoder | Sequence[SparseAutoencoder], fwd_hooks: Iterable[Hook] = (),
        return_type: Any = "logits", use_error_term: bool = True, **options: Any,
    ) -> Any:
        """The same with functions at hooks, those of the autoencoders too: "blocks.3.hook_resid_post.hook_sae_acts_post" is
        [batch, position, d_sae]; hook_sae_input, hook_sae_recons, hook_sae_error and hook_sae_output flow on as well, and
        hook_sae_acts_pre is only shown.
        """
        model: Any = self
        with self._spliced(saes, use_error_term, fwd_hooks, {}, _nothing):
            return model(prompt, return_type, **options)

    def run_with_cache_with_saes(
        self, prompt: Any, saes: SparseAutoencoder | Sequence[SparseAutoencoder], names_filter: Any = None,
        use_error_term: bool = True, **options: Any,
    ) -> tuple[np.ndarray | None, ActivationCache]:
        """run_with_cache() through autoencoders. The cache has their hooks too: all of them, or those that names_filter names."""
        several = [saes] if isinstance(saes, SparseAutoencoder) else list(saes)
        names = sae_hook_names(several)
        remove = options.pop("remove_batch_dim", False)
        if names_filter is None:
            wanted, others = set(names), None
        elif callable(names_filter):
            wanted, others = {name for name in names if names_filter(name)}, names_filter
        else:
            given = [names_filter] if isinstance(names_filter, str) else list(names_filter)
            wanted, others = {name for name in given if name in names}, [name for name in given if name not in names]
        kept: dict[str, np.ndarray] = {}
        asked = others if others != [] else [sae.hook_name_out for sae in several]  # where the autoencoders are: the run ends there
        model: Any = self
        with self._spliced(several, use_error_term, (), kept, wanted.__contains__):
            logits, cache = model.run_with_cache(prompt, asked, **options)
        values = {} if others == [] else dict(cache)
        made = ActivationCache({**values, **kept}, model, lengths=cache.lengths)
        return logits, made.remove_batch_dim() if remove else made

    def gradients_with_saes(
        self, prompt: Any, saes: SparseAutoencoder | Sequence[SparseAutoencoder], names_filter: Any = (), *, metric: Any = None,
        fwd_hooks: Iterable[Hook] = (), use_error_term: bool = True, **options: Any,
    ) -> tuple[float, ActivationCache]:
        """gradients() of one prompt through autoencoders, with the gradient at every feature beside those that are asked for:
        "<hook>.hook_sae_acts_post". Times its value, a feature's gradient is what it adds to the metric, to first order.

        The gradient reaches what an autoencoder reads through its active features alone: the error is a constant, as in SAELens, and
        so is a feature that a function of fwd_hooks has changed. Raises UsageError for normalize_activations.
        """
        model: Any = self
        several = [saes] if isinstance(saes, SparseAutoencoder) else list(saes)
        if len(model._batch(prompt)) != 1:
            raise InputError("gradients through autoencoders take one prompt at a time")
        asked = [names_filter] if isinstance(names_filter, str) else names_filter
        with self._spliced(several, use_error_term, fwd_hooks, {}, _nothing) as made:
            wanted = asked if callable(asked) else [*asked, *(sae.hook_name_out for sae in several)]
            value, found = model.gradients(prompt, wanted, metric=metric, **options)
        values = dict(found) if callable(asked) or asked else {}
        return value, ActivationCache(
            {**values, **{f"{sae.hook_name_out}.hook_sae_acts_post": one.acts_gradient for sae, one in zip(several, made)}}, model)


def sae_hook_names(saes: Sequence[SparseAutoencoder]) -> list[str]:
    """Every hook of the autoencoders in a run."""
    return [f"{sae.hook_name_out}.{name}" for sae in saes for name in _HOOKS]
