"""An opened model, the argument of Model's functions: its sizes, prompts as ids, and the functions that are set at hooks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, SupportsIndex, cast, overload

import numpy as np

from ._vitrine import Autoencoder, Session, Tokenizer
from .arrays import ArrayLike, Floats, Ids, RowsOfIds
from .batches import Batch, OnePrompt, Prompt, Prompts, SeveralPrompts, batch_of
from .errors import InputError, UsageError
from .hook_functions import Hook
from .results import Config, LayerFacts
from .whole_numbers import within


class _OfThread(threading.local):
    hooks: Sequence[Hook] = ()  # of the hooks() that last
    added: Sequence[Hook] = ()  # by add_hook()
    saes: Sequence[tuple[Autoencoder, bool]] = ()  # of the saes() that last, with whether their errors are kept


class OpenedModel:
    """The argument of every function of Model."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opened: dict[str, Any] | None = None  # load()'s arguments; None: of a model that is in no file
        self._of_thread = _OfThread()
        self._input_hooks_on: set[str] = set()
        self.config = Config(**session.describe())

    @property
    def cfg(self) -> Config:
        """TransformerLens's name for config."""
        return self.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises InputError if the model has none."""
        return self._session.tokenizer

    @property
    def hook_names(self) -> list[str]:
        """Every hook, in the order of the run."""
        return list(self._hook_names)

    @property
    def _hook_names(self) -> list[str]:
        return self._session.hook_names

    @property
    def weight_names(self) -> list[str]:
        """Every parameter by our names, in the order of the forward pass: "W_E", "blocks.3.attn.W_Q", "ln_final.w"."""
        return self._session.weight_names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._session.weight_names)

    def _facts(self, layer: int) -> LayerFacts:
        return cast(LayerFacts, self._session.describe_layer(layer))

    @property
    def _hooks(self) -> list[Hook]:
        return [*self._of_thread.added, *self._of_thread.hooks]

    def _without_hooks(self, what: str) -> None:
        if self._hooks:
            raise UsageError(f"{what} runs without hook functions")

    # Tokens -------------------------------------------------------------------------------------------------------------------

    def to_tokens(self, text: str | Sequence[str], prepend_bos: bool | None = None) -> RowsOfIds:
        """The ids of a text as int64 [1, position], of texts of one length in tokens [batch, position]; prepend_bos None: as in
        the tokenizer's file. Raises InputError for texts of different length: there is no padding, and every call accepts a list
        of texts.
        """
        if not isinstance(text, str):
            if not isinstance(text, Sequence) or any(not isinstance(one, str) for one in text):
                raise InputError(f"to_tokens takes a text or a list of texts; got {text!r}")
            return cast(RowsOfIds, Batch([self.to_tokens(one, prepend_bos)[0] for one in text], listed=True).array())
        if not prepend_bos:
            return np.array([self._session.prompt_ids(text, prepend_bos is None)], dtype=np.int64)
        bos = self.tokenizer.bos
        if bos is None:
            raise InputError("this tokenizer has no BOS token")
        return np.array([[bos, *self.tokenizer.encode(text, add_special=False)]], dtype=np.int64)

    @overload
    def to_string(self, tokens: OnePrompt) -> str: ...
    @overload
    def to_string(self, tokens: SeveralPrompts) -> list[str]: ...
    @overload
    def to_string(self, tokens: Prompts) -> Any: ...
    def to_string(self, tokens: Prompts) -> Any:
        """The text of ids [position]; of ids [batch, position] and of a list of rows a list, also of one row."""
        batch = self._batch(tokens)
        texts = [self.tokenizer.decode(row) for row in batch.rows]
        return texts if batch.listed else texts[0]

    @overload
    def to_str_tokens(self, prompt: str | Sequence[int] | np.ndarray, prepend_bos: bool | None = None) -> list[str]: ...
    @overload
    def to_str_tokens(self, prompt: list[str] | tuple[str, ...] | Sequence[Sequence[int]], prepend_bos: bool | None = None) -> list[list[str]]: ...
    @overload
    def to_str_tokens(self, prompt: Prompts, prepend_bos: bool | None = None) -> Any: ...
    def to_str_tokens(self, prompt: Prompts, prepend_bos: bool | None = None) -> Any:
        """The pieces of a text or of one row of ids ([position] or [1, position]), as the vocabulary spells them; a list of such
        lists for a list of texts or of rows.
        """
        if not isinstance(prompt, str) and isinstance(prompt, Sequence) and any(not isinstance(one, SupportsIndex) for one in prompt):
            return [self.to_str_tokens(one, prepend_bos) for one in cast(Sequence[Prompt], prompt)]
        return self.tokenizer.pieces(self._ids(prompt, prepend_bos))

    def _pieces(self, ids: Ids) -> list[str]:
        """Of each id; "" for those without a piece, and without a tokenizer."""
        return [self._session.piece(int(token)) for token in ids]

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token: " the". Raises InputError with the pieces if it is several tokens."""
        return self.tokenizer.single_token(text)

    def to_single_str_token(self, token: int) -> str:
        """The piece of an id, as the vocabulary spells it."""
        return self.tokenizer.pieces([self._in_vocabulary("a token", token)])[0]

    def tokens_to_residual_directions(self, tokens: ArrayLike) -> Floats:
        """The columns of W_U for a text that is one token, an id, or ids [...]: [..., d_model]. The product of one with the
        output of the final norm is that token's logit, before the soft cap and the output head's bias.
        """
        ids = np.asarray(self.to_single_token(tokens) if isinstance(tokens, str) else tokens)
        if ids.dtype.kind not in "iu":
            raise InputError(f"tokens are a text or whole numbers; got {ids.dtype}")
        rows = self._session.table_rows(np.ascontiguousarray(ids.reshape(-1), dtype=np.int64), True)
        return rows.reshape(*ids.shape, -1)

    def lengths(self, prompt: Prompts) -> Ids:
        """The number of tokens of every prompt of a batch, int64 [batch]: where its values end."""
        return np.array(self._batch(prompt).lengths, dtype=np.int64)

    def _batch(self, prompt: Prompts, prepend_bos: bool | None = None) -> Batch:
        return batch_of(prompt, lambda text: self.to_tokens(text, prepend_bos)[0])

    def _rows(self, prompt: Prompts) -> Ids:
        return self._batch(prompt).array()

    def _one(self, prompt: Prompts) -> Ids:
        batch = self._batch(prompt)
        if len(batch) != 1:
            raise InputError(f"got a batch of {len(batch)} prompts; this takes one at a time")
        return batch.rows[0]

    def _ids(self, prompt: Prompts, prepend_bos: bool | None) -> Ids:
        return self.to_tokens(prompt, prepend_bos)[0] if isinstance(prompt, str) else self._one(prompt)

    def _token(self, token: int | str) -> int:
        return self.tokenizer.single_token(token) if isinstance(token, str) else self._in_vocabulary("a token", token)

    def _in_vocabulary(self, what: str, token: SupportsIndex) -> int:
        return within(what, token, 0, self.config.vocab_size - 1)
