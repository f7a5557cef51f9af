"""Hook functions that keep what they see, for runs that are made in other ways than run_with_cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from .hook_requests import NamesFilter, requests_of
from .hooks import Hook, HookPoint, names_of


class CachingHooks:
    """The part of a Model that makes such functions."""

    def get_caching_hooks(
        self, names_filter: NamesFilter = None, incl_bwd: bool = False,
    ) -> tuple[dict[str, np.ndarray], list[Hook], list[Hook]]:
        """(values, fwd_hooks, bwd_hooks): the functions put into the dict what passes the hooks, by name. For hooks(), generate() and
        gradients(). names_filter: as in run_with_cache, without slices. incl_bwd: also gradients, under the name with "_grad" behind.

        >>> values, forward, backward = model.get_caching_hooks("resid_post", incl_bwd=True)         # doctest: +SKIP
        >>> model.gradients(tokens, "hook_embed", metric=f, fwd_hooks=forward, bwd_hooks=backward)   # doctest: +SKIP
        """
        model: Any = self
        values: dict[str, np.ndarray] = {}

        def keep(value: np.ndarray, hook: HookPoint) -> None:
            values[hook.name] = value.copy()

        def keep_gradient(gradient: np.ndarray, hook: HookPoint) -> None:
            values[hook.name + "_grad"] = gradient.copy()

        session = model._session
        names = list(dict.fromkeys(name for request in requests_of(session, names_filter) for name in names_of(session, request)))
        return values, [(name, keep) for name in names], [(name, keep_gradient) for name in names if incl_bwd]

    def add_caching_hooks(self, names_filter: NamesFilter = None) -> dict[str, np.ndarray]:
        """The same with functions that stay until reset_hooks(): the dict holds the values of the last run."""
        model: Any = self
        values, forward, _ = self.get_caching_hooks(names_filter)
        for name, function in forward:
            model.add_hook(name, function)
        return values
