"""Runs of a model through sparse autoencoders and transcoders, with the names of SAELens's HookedSAETransformer.

Inside saes() the autoencoders' hooks are hooks of the model, which every call takes by name, pattern or predicate:

    hook_sae_input      what is encoded, [batch, position, d_in]
    hook_sae_acts_pre   before the activation function, [batch, position, d_sae]
    hook_sae_acts_post  the features, [batch, position, d_sae]
    hook_sae_recons     what the features make, [batch, position, d_out]
    hook_sae_error      the value minus that, of the unchanged input; of the value's shape
    hook_sae_output     what flows on; of the value's shape

each under the hook where the autoencoder writes: "blocks.3.hook_resid_post.hook_sae_acts_post".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

from ._vitrine import Autoencoder
from .arrays import Floats
from .autoencoders import SparseAutoencoder
from .batches import Prompts
from .cache import ActivationCache
from .errors import InputError
from .hook_functions import Hook
from .hook_gradients import gradients
from .hook_requests import NamesFilter
from .hooking import Opened, hooks
from .opened import OpenedModel
from .running import ReturnType, call, run_with_cache

Saes = SparseAutoencoder | Sequence[SparseAutoencoder]


@contextmanager
def saes(model: Opened, saes: Saes, use_error_term: bool = True) -> Iterator[Opened]:
    """Inside this context, every run of this model by this thread goes through the autoencoders, each at its own hook, and their
    hooks are among the model's: "blocks.3.hook_resid_post.hook_sae_acts_post". What a function leaves there flows on. An autoencoder
    takes the place of one of an outer context that writes at the same hook.

    use_error_term  the reconstruction error is added, so that without changes a run gives the same result; False: the
                    reconstruction replaces the value (SAELens's default)

    Raises InputError for autoencoders that do not fit the model. Functions that add_hook() sets at their hooks end with the context.
    """
    before, added = model._of_thread.saes, [(sae._read, use_error_term) for sae in _listed(saes)]
    written = {name for sae, _ in added for name in _written(model, sae)}
    kept = [(sae, error) for sae, error in before if not written.intersection(_written(model, sae))]
    _set(model, [*kept, *added])
    try:
        yield model
    finally:
        _set(model, before)
        model._of_thread.added = [hook for hook in model._of_thread.added if _still_there(model, hook)]


_inside = saes  # where an argument has that name


def _set(model: OpenedModel, saes: Sequence[tuple[Autoencoder, bool]]) -> None:
    model._session.splice(saes)
    model._of_thread.saes = saes


def _listed(saes: Saes) -> list[SparseAutoencoder]:
    return [saes] if isinstance(saes, SparseAutoencoder) else list(saes)


def _written(model: OpenedModel, sae: Autoencoder) -> list[str]:
    return model._session.find_hooks(sae.hook_name_out) if sae.hook_name_out else []


def _still_there(model: OpenedModel, hook: Hook) -> bool:
    which = hook[0]
    if callable(which) or ".hook_sae_" not in which:
        return True
    try:
        return bool(model._session.find_hooks(which))
    except InputError:
        return False


def run_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, return_type: ReturnType = "logits", use_error_term: bool = True, **options: Any,
) -> Any:
    """The model's call inside saes()."""
    with _inside(model, saes, use_error_term):
        return call(model, prompt, return_type, **options)


def run_with_hooks_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, fwd_hooks: Iterable[Hook] = (), return_type: ReturnType = "logits",
    use_error_term: bool = True, **options: Any,
) -> Any:
    """run_with_hooks() inside saes()."""
    with _inside(model, saes, use_error_term), hooks(model, fwd_hooks):
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
    """run_with_cache() inside saes()."""
    with _inside(model, saes, use_error_term):
        return run_with_cache(model, prompt, names_filter, **options)


def gradients_with_saes(
    model: OpenedModel, prompt: Prompts, saes: Saes, names_filter: str | Sequence[str] | Callable[[str], bool] = (), *,
    use_error_term: bool = True, **options: Any,
) -> tuple[float, ActivationCache]:
    """gradients() inside saes(), with the gradient at every feature in addition to the requested ones: "<hook>.hook_sae_acts_post".
    A feature's gradient times its value is its contribution to the metric, to first order.

    The gradient reaches an autoencoder's input only through its active features: the error is a constant, as in SAELens. Raises
    UsageError for normalize_activations.
    """
    with _inside(model, saes, use_error_term):
        features = [f"{hook}.hook_sae_acts_post" for sae in _listed(saes) for hook in _written(model, sae._read)]
        if not callable(names_filter):
            asked = [names_filter] if isinstance(names_filter, str) else names_filter
            return gradients(model, prompt, [*asked, *features], **options)
        chosen = names_filter
        return gradients(model, prompt, lambda name: name in features or chosen(name), **options)

