"""Runs of a model through sparse autoencoders and transcoders, with the names of SAELens's HookedSAETransformer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import numpy as np

from .arrays import Bools, Floats
from .autoencoders import SparseAutoencoder
from .batches import Prompts
from .cache import ActivationCache
from .errors import InputError, UsageError
from .hook_functions import Hook, HookFunction, HookPoint, pair_of, replacement_of
from .hook_gradients import gradients
from .hook_requests import NamesFilter
from .hooking import Opened, hooks
from .opened import OpenedModel
from .running import ReturnType, call, run_with_cache

# In the order in which they are reached.
_HOOKS = ("hook_sae_input", "hook_sae_acts_pre", "hook_sae_acts_post", "hook_sae_recons", "hook_sae_error", "hook_sae_output")


class _Spliced:
    """One autoencoder in a run: functions at its hooks, what is kept of them, and how gradients flow back through it."""

    def __init__(self, sae: SparseAutoencoder, error: bool, functions: dict[str, list[HookFunction]], kept: dict[str, Floats],
                 wanted: Container[str]) -> None:
        if not sae.hook_name:
            raise InputError("this autoencoder's files do not say at which hook it reads; give load_sae(…, hook_name=…)")
        self._sae, self._error, self._functions, self._kept, self._wanted = sae, error, functions, kept, wanted
        self._input: Floats | None = None
        self._clean = self._acts = np.zeros(0, np.float32)
        self.acts_gradient = self._input_gradient = np.zeros(0, np.float32)  # of a run whose gradients are taken

    def hooks(self) -> list[Hook]:
        if self._sae.hook_name_out == self._sae.hook_name:
            return [(self._sae.hook_name, _Place(lambda value, hook: self._replaced(value, value, hook), self._through))]
        return [(self._sae.hook_name, _Place(self._remember, lambda gradient: gradient + self._input_gradient.reshape(gradient.shape))),
                (self._sae.hook_name_out, _Place(self._replaced_behind, self._behind))]

    def _remember(self, value: Floats, hook: HookPoint) -> None:
        self._input = value.copy()

    def _replaced_behind(self, value: Floats, hook: HookPoint) -> Floats:
        if self._input is None:
            raise InputError(f"the run reached {self._sae.hook_name_out} before {self._sae.hook_name}, where its transcoder reads")
        return self._replaced(self._input, value, hook)

    def _at(self, name: str, value: Floats, hook: HookPoint) -> Floats:
        full = f"{self._sae.hook_name_out}.{name}"
        for function in self._functions.get(full, ()):
            value = np.asarray(replacement_of(full, value, function(value, hook)), np.float32)
        if full in self._wanted:
            before = self._kept.get(full)
            self._kept[full] = value.copy() if before is None else np.concatenate([before, value], axis=1)
        return value

    def _replaced(self, x: Floats, value: Floats, hook: HookPoint) -> Floats:
        sae, shape = self._sae, value.shape
        x, value = x.reshape(*x.shape[:2], -1), value.reshape(*shape[:2], -1)
        there: Bools = ~np.all(np.isnan(x), axis=-1)  # behind the end of a shorter row of a batch there is nothing
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
        return full in self._functions or full in self._wanted

    def _back(self, gradient: Floats) -> Floats:
        """The gradient at what it reads. The error is a constant, as in SAELens, and so is a feature that a function changed."""
        sae = self._sae
        if sae.cfg["normalize_activations"] != "none":
            raise UsageError("gradients through an autoencoder that normalizes its input (normalize_activations) are not computed")
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
        result: Floats = back.astype(np.float32)
        return result

    def _through(self, gradient: Floats) -> Floats:
        return self._back(gradient).reshape(gradient.shape)

    def _behind(self, gradient: Floats) -> Floats:
        self._input_gradient = self._back(gradient)
        return np.zeros_like(gradient)  # what the model computed there is replaced; the error is a constant


def _where(there: Bools, function: Callable[..., Floats], *values: Floats) -> Floats:
    """The function at the existing positions, [batch, position]; NaN at the others."""
    if there.all():
        return function(*values)
    found = function(*(value[there] for value in values))
    made = np.full((*there.shape, found.shape[-1]), np.nan, np.float32)
    made[there] = found
    return made


class _Place:
    """A hook function with its derivative (hook_backward.py)."""

    def __init__(self, forward: HookFunction, backward: Callable[[Floats], Floats]) -> None:
        self.forward, self._backward = forward, backward

    def backward(self, gradient: Floats, hook: HookPoint) -> Floats:
        return self._backward(gradient)


Saes = SparseAutoencoder | Sequence[SparseAutoencoder]


def _listed(saes: Saes) -> list[SparseAutoencoder]:
    return [saes] if isinstance(saes, SparseAutoencoder) else list(saes)


@contextmanager
def saes(model: Opened, saes: Saes, use_error_term: bool = True) -> Iterator[Opened]:
    """Inside this context, every run of this model by this thread goes through the autoencoders, each at its own hook.

    use_error_term  the reconstruction error is added, so that without changes a run gives the same result; False: the
                    reconstruction replaces the value (SAELens's default)
    """
    with _spliced(model, saes, use_error_term):
        yield model


@contextmanager
def _spliced(
    model: OpenedModel, saes: Saes, error: bool, fwd_hooks: Iterable[Hook] = (), kept: dict[str, Floats] | None = None,
    wanted: Container[str] = (),
) -> Iterator[list[_Spliced]]:
    several = _listed(saes)
    names = sae_hook_names(several)
    functions: dict[str, list[HookFunction]] = {}
    others: list[Hook] = []
    for which, function in map(pair_of, fwd_hooks):
        chosen = [name for name in names if which(name)] if callable(which) else [name for name in names if name == which]
        for name in chosen:
            if not callable(function):
                raise InputError(f"the hook of {name!r} is {function!r}; expected a function of (value, hook)")
            functions.setdefault(name, []).append(function)
        if callable(which) or not chosen:
            if isinstance(which, str) and ".hook_sae_" in which:
                raise InputError(f"{which!r} is no hook of these autoencoders; they have {', '.join(names)}")
            others.append((which, function))
    made = [_Spliced(sae, error, functions, {} if kept is None else kept, wanted) for sae in several]
    with hooks(model, [*others, *(hook for one in made for hook in one.hooks())]):
        yield made


def run_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, return_type: ReturnType = "logits", use_error_term: bool = True, **options: Any,
) -> Any:
    """The model's call through autoencoders; see saes()."""
    with _spliced(model, saes, use_error_term):
        return call(model, prompt, return_type, **options)


def run_with_hooks_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, fwd_hooks: Iterable[Hook] = (), return_type: ReturnType = "logits",
    use_error_term: bool = True, **options: Any,
) -> Any:
    """The same with functions at hooks, those of the autoencoders too: "blocks.3.hook_resid_post.hook_sae_acts_post" is
    [batch, position, d_sae]; hook_sae_input, hook_sae_recons, hook_sae_error and hook_sae_output can be changed as well, and
    hook_sae_acts_pre can only be read.
    """
    with _spliced(model, saes, use_error_term, fwd_hooks):
        return call(model, prompt, return_type, **options)


@overload
def run_with_cache_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, names_filter: NamesFilter = None, use_error_term: bool = True, *,
    return_type: Literal["logits"] = "logits", **options: Any,
) -> tuple[Floats, ActivationCache]: ...


@overload
def run_with_cache_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, names_filter: NamesFilter = None, use_error_term: bool = True, **options: Any,
) -> tuple[Any, ActivationCache]: ...


def run_with_cache_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, names_filter: NamesFilter = None,
    use_error_term: bool = True, **options: Any,
) -> tuple[Any, ActivationCache]:
    """run_with_cache() through autoencoders. The cache has their hooks too: all of them, or those that names_filter matches."""
    several = _listed(saes)
    names = sae_hook_names(several)
    remove = options.pop("remove_batch_dim", False)
    others: NamesFilter = names_filter
    if names_filter is None:
        wanted = set(names)
    elif callable(names_filter):
        wanted = {name for name in names if names_filter(name)}
    else:
        given = [names_filter] if isinstance(names_filter, str) else list(names_filter)
        wanted, others = {name for name in given if name in names}, [name for name in given if name not in names]
    kept: dict[str, Floats] = {}
    asked = others if others != [] else [sae.hook_name_out for sae in several]  # where the autoencoders are: the run ends there
    with _spliced(model, several, use_error_term, (), kept, wanted):
        logits, cache = run_with_cache(model, prompt, asked, **options)
    values = {} if others == [] else dict(cache)
    made = ActivationCache({**values, **kept}, model, lengths=cache._lengths, tokens=cache._tokens)
    return logits, made.remove_batch_dim() if remove else made


def gradients_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, names_filter: str | Sequence[str] | Callable[[str], bool] = (), *,
    metric: Callable[..., Any] | None = None, fwd_hooks: Iterable[Hook] = (), use_error_term: bool = True, **options: Any,
) -> tuple[float, ActivationCache]:
    """gradients() of one prompt through autoencoders, with the gradient at every feature in addition to the requested ones:
    "<hook>.hook_sae_acts_post". A feature's gradient times its value is its contribution to the metric, to first order.

    The gradient reaches an autoencoder's input only through its active features: the error is a constant, as in SAELens, and
    so is a feature that a function of fwd_hooks has changed. Raises UsageError for normalize_activations.
    """
    several = _listed(saes)
    if len(model._batch(prompt)) != 1:
        raise InputError("gradients through autoencoders take one prompt at a time")
    asked = [names_filter] if isinstance(names_filter, str) else names_filter
    with _spliced(model, several, use_error_term, fwd_hooks) as made:
        wanted = asked if callable(asked) else [*asked, *(sae.hook_name_out for sae in several)]
        value, found = gradients(model, prompt, wanted, metric=metric, **options)
    values = dict(found) if callable(asked) or asked else {}
    return value, ActivationCache(
        {**values, **{f"{sae.hook_name_out}.hook_sae_acts_post": one.acts_gradient for sae, one in zip(several, made)}}, model)


def sae_hook_names(saes: Sequence[SparseAutoencoder]) -> list[str]:
    """Every hook of the autoencoders in a run."""
    return [f"{sae.hook_name_out}.{name}" for sae in saes for name in _HOOKS]
