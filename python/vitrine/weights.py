"""The parameters of a model as arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ._vitrine import Session
from .results import Config


class Weights:
    """The part of a Model that shows its parameters."""

    config: Config
    _session: Session

    @property
    def weight_names(self) -> list[str]:
        """Every parameter by our names, in the order of the forward pass: "W_E", "blocks.3.attn.W_Q", "ln_final.w"."""
        return self._session.weight_names

    def weight(self, name: str) -> np.ndarray:
        """One parameter as float32, read-only: a matrix [out, in], or a vector. Seen where it lies if the file holds f32."""
        return self._session.weight(name)

    def _layers(self, name: str, shape: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.stack([shape(self.weight(f"blocks.{layer}.{name}")) for layer in range(self.config.n_layers)])

    def _by_head(self, name: str, heads: int) -> np.ndarray:
        # [head · width, d_model] to [head, d_model, width]
        return self._layers(name, lambda w: w.reshape(heads, -1, w.shape[1]).transpose(0, 2, 1))

    @property
    def W_E(self) -> np.ndarray:
        """[vocab_size, d_model]"""
        return self.weight("W_E")

    @property
    def W_U(self) -> np.ndarray:
        """[d_model, vocab_size]; a view of W_E where the two are tied."""
        return self.weight("W_E" if self.config.tied else "W_U").T

    @property
    def W_pos(self) -> np.ndarray:
        """[position, d_model]. Raises InputError for a model without learned positions."""
        return self.weight("W_pos")

    @property
    def W_Q(self) -> np.ndarray:
        """[layer, head, d_model, head_dim]. This and the following are copies, stacked over layers."""
        return self._by_head("attn.W_Q", self.config.n_heads)

    @property
    def W_K(self) -> np.ndarray:
        """[layer, kv_head, d_model, head_dim]: key and value heads as the model has them, not repeated for their group."""
        return self._by_head("attn.W_K", self.config.n_kv_heads)

    @property
    def W_V(self) -> np.ndarray:
        """[layer, kv_head, d_model, head_dim]"""
        return self._by_head("attn.W_V", self.config.n_kv_heads)

    @property
    def W_O(self) -> np.ndarray:
        """[layer, head, head_dim, d_model]"""
        return self._layers("attn.W_O", lambda w: w.T.reshape(self.config.n_heads, -1, w.shape[0]))

    @property
    def W_in(self) -> np.ndarray:
        """[layer, d_model, d_ff]; in gated models what the gate multiplies, beside W_gate."""
        return self._layers("mlp.W_in", np.transpose)

    @property
    def W_gate(self) -> np.ndarray:
        """[layer, d_model, d_ff]. Raises InputError for a model without gates."""
        return self._layers("mlp.W_gate", np.transpose)

    @property
    def W_out(self) -> np.ndarray:
        """[layer, d_ff, d_model]"""
        return self._layers("mlp.W_out", np.transpose)
