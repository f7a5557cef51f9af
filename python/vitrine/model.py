"""An opened model: predict, generate, look inside, change what happens there."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, Literal, SupportsIndex

import numpy as np

from ._vitrine import HookCalls, Past, Session, Tokenizer
from .analysis import Analysis
from .attribution_graphs import Graphs
from .autoencoders import Saes
from .batches import Batch, Prompt, Prompts, batch_of
from .cache import ActivationCache
from .caching_hooks import CachingHooks
from .collecting import Collecting
from .gradients import Gradients
from .input_hooks import input_hooks, input_names
from .errors import InputError, ShapeError, UsageError
from .generating import Generating
from .hook_requests import NamesFilter, Slice, apart_from_logits, requests_of, sliced
from .hooks import Hook, HookFunction, HookSet, names_of
from .program import Program, where_it_lies
from .prompts import PromptCalls
from .results import Attribution, Config, NextToken, Prediction
from .structure import Structure
from .weights import Weights
from .whole_numbers import INT64, within


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    adapter: str | os.PathLike[str] | None = None,
    compute: Literal["auto", "f32"] = "auto",
    threads: int = 0,
    exact: bool = False,
    cache_type_k: Literal["f32", "f16", "q8_0", "q4_0"] = "f32",
    cache_type_v: Literal["f32", "f16", "q8_0", "q4_0"] = "f32",
) -> Model:
    """Opens a model. Files are mapped, not read, and weights are never altered.

    model    a Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache; None: the model that ships
    adapter  the folder of a LoRA adapter in the form of PEFT, which the model runs with; its files stay as they are
    compute  "auto": 16-bit and quantised weights multiply operands rounded to match; "f32": everything is widened to f32
    threads  0: as many as this process has cores. No result depends on it
    exact    one kernel class, so that batch, chunks and cache state change no bit
    cache_type_k, cache_type_v
             the types of cached keys and values: narrower ones take less memory and are read faster, and round

    Raises MissingFileError, FileError naming file and field, InputError for an option.
    """
    if compute not in ("auto", "f32"):
        raise UsageError(f"compute is {compute!r}; expected 'auto' or 'f32'")
    name = model if model is not None else str(resources.files(__package__) / "models" / "tales9m")
    beside = None if adapter is None else os.fsencode(adapter)
    session = Session(
        os.fsencode(name),
        adapter=beside,
        threads=within("threads", threads, 0, 1024),
        f32=compute == "f32",
        exact=exact,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
    )
    opened = Model(session)
    opened._opened = {"model": where_it_lies(model), "adapter": where_it_lies(adapter), "compute": compute,
                      "threads": threads or None, "exact": exact}
    return opened


class Model(Weights, Structure, PromptCalls, CachingHooks, Generating, Analysis, Gradients, Collecting, Saes, Graphs, Program):
    """A model with its tokenizer, made by load(). One run at a time: other threads wait. Runs release the interpreter's lock.

    A prompt is a text, token ids that go in as they are, [position] or [batch, position], or a list of texts and of rows of ids,
    which may differ in length. Rows of a batch run together and never see each other: there is no padding in the model, so none can
    change a number. Values have a batch axis in front; behind the end of a shorter row they are NaN. lengths() tells the ends.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hooks_of_thread = threading.local()
        self._input_hooks_on: set[str] = set()
        self.config = Config(**session.describe())

    def __repr__(self) -> str:
        c = self.config
        return f"<vitrine.Model {c.name}: {c.family}, {c.n_layers} layers, {c.parameters:,} parameters>"

    @property
    def _hooks(self) -> list[Hook]:
        return [*getattr(self._hooks_of_thread, "added", []), *getattr(self._hooks_of_thread, "hooks", [])]

    @property
    def cfg(self) -> Config:
        """TransformerLens' word for config."""
        return self.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises InputError if the model has none."""
        return self._session.tokenizer

    @property
    def hook_names(self) -> list[str]:
        """Every hook, in the order of the run."""
        return self._session.hook_names

    # Tokens -------------------------------------------------------------------------------------------------------------------

    def to_tokens(self, text: str | Sequence[str], prepend_bos: bool | None = None) -> np.ndarray:
        """The ids of a text as int64 [1, position], of texts of one length in tokens [batch, position]; prepend_bos None: as the
        tokenizer's file says. Raises InputError for texts of different length: there is no padding, and every call takes a list of them.
        """
        if not isinstance(text, str):
            if not isinstance(text, Sequence) or any(not isinstance(one, str) for one in text):
                raise InputError(f"to_tokens takes a text or a list of texts; got {text!r}")
            return Batch([self.to_tokens(one, prepend_bos)[0] for one in text]).array()
        if not prepend_bos:
            return np.array([self._session.prompt_ids(text, prepend_bos is None)], dtype=np.int64)
        bos = self.tokenizer.bos
        if bos is None:
            raise InputError("this tokenizer has no BOS token")
        return np.array([[bos, *self.tokenizer.encode(text, add_special=False)]], dtype=np.int64)

    def to_string(self, tokens: Prompts) -> Any:
        """The text of one row of ids; of several a list."""
        batch = self._batch(tokens)
        texts = [self.tokenizer.decode(row) for row in batch.rows]
        return texts if batch.listed else texts[0]

    def to_str_tokens(self, prompt: Prompts, prepend_bos: bool | None = None) -> Any:
        """The pieces of a text or of one row of ids, as the vocabulary spells them; of several texts a list of such lists."""
        if not isinstance(prompt, str) and isinstance(prompt, Sequence) and any(not isinstance(one, SupportsIndex) for one in prompt):
            return [self.to_str_tokens(one, prepend_bos) for one in prompt]
        ids = self.to_tokens(prompt, prepend_bos)[0] if isinstance(prompt, str) else self._one(prompt)
        return self.tokenizer.pieces(ids)

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token: " the". Raises InputError with the pieces of one that is more."""
        return self.tokenizer.single_token(text)

    def to_single_str_token(self, token: int) -> str:
        """The piece of an id, as the vocabulary spells it."""
        return self.tokenizer.pieces([self._in_vocabulary("a token", token)])[0]

    def tokens_to_residual_directions(self, tokens: Any) -> np.ndarray:
        """The columns of W_U for a text that is one token, an id, or ids [...]: [..., d_model]. The product of one with a row that the
        final norm has read is that token's logit, before a cap and the head's bias.
        """
        ids = np.asarray(self.to_single_token(tokens) if isinstance(tokens, str) else tokens)
        if ids.dtype.kind not in "iu":
            raise InputError(f"tokens are a text or whole numbers; got {ids.dtype}")
        rows = self._session.table_rows(np.ascontiguousarray(ids.reshape(-1), dtype=np.int64), True)
        return rows.reshape(*ids.shape, -1)

    def lengths(self, prompt: Prompts) -> np.ndarray:
        """The tokens of every row of a prompt, int64 [batch]: where values of a batch end."""
        return np.array(self._batch(prompt).lengths, dtype=np.int64)

    def _batch(self, prompt: Prompts) -> Batch:
        return batch_of(prompt, lambda text: self.to_tokens(text)[0])

    def _rows(self, prompt: Prompts) -> np.ndarray:
        return self._batch(prompt).array()

    def _one(self, prompt: Prompt) -> np.ndarray:
        batch = self._batch(prompt)
        if len(batch) != 1:
            raise InputError(f"got a batch of {len(batch)} prompts; this takes one at a time")
        return batch.rows[0]

    # Running ------------------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        prompt: Prompts,
        return_type: Literal["logits", "loss", "both"] | None = "logits",
        *,
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        tokens: Prompts | None = None,
        past_kv_cache: KeyValueCache | None = None,
    ) -> Any:
        """The logits after every position, float32 [batch, position, vocab_size], after the model's cap if it has one.

        "loss": the mean cross-entropy in nats of each token given those before it, a scalar over all rows; with loss_per_token all of
        them, [batch, position - 1]. It is scored in pieces of the head: no table of logits is made. "both": (logits, loss). None:
        nothing, for what hook functions see; the run ends behind the last of them.
        start_at_layer  prompt is the residual stream that enters this layer, [batch, position, d_model], and the layers before it do
                        not run. tokens: the ids it belongs to, which a loss, rows of different length and models with per-layer
                        embeddings need
        stop_at_layer   the residual stream that enters this layer (n_layers: behind the last) is the result, and no more runs
        past_kv_cache   from kv_cache(): the tokens follow those it holds, and are in it afterwards
        """
        _check_return_type(return_type)
        stream = None
        if start_at_layer is not None:
            stream, start_at_layer = self._stream(prompt), self._a_layer("start_at_layer", start_at_layer, self.config.n_layers - 1)
            ended = np.isnan(stream[:, -1]).all(axis=-1)
            if tokens is None and ended.any() and not ended.all():
                raise UsageError("a run of rows of different length that starts at a layer needs tokens=")
            batch = self._batch(np.zeros(stream.shape[:2], np.int64) if tokens is None else tokens)
            if (len(batch), batch.longest) != stream.shape[:2]:
                raise ShapeError(f"tokens are {[len(batch), batch.longest]} and the stream is {list(stream.shape)}; expected a row for "
                                 "every token")
            if tokens is None and (return_type in ("loss", "both") or self._session.describe_layer(0)["per_layer"]):
                raise UsageError("a run that starts at a layer needs tokens= for a loss, and in models with per-layer embeddings")
        elif tokens is not None:
            raise UsageError("tokens= goes with start_at_layer=; the tokens of a usual run are the prompt")
        else:
            batch = self._batch(prompt)
        options: dict[str, Any] = {"start": start_at_layer or 0, "stream": stream, "past": past_kv_cache}
        if stop_at_layer is not None:
            layer = self._a_layer("stop_at_layer", stop_at_layer, self.config.n_layers)
            if layer == (start_at_layer or 0) and stream is not None:
                return stream
            name = "blocks.0.hook_resid_pre" if layer == 0 else f"blocks.{layer - 1}.hook_resid_post"
            return self._run(batch, [name], **options)[0][name]
        scored = return_type in ("loss", "both") and _can_be_scored(batch)
        values, losses = self._run(batch, ["hook_logits"] if return_type in ("logits", "both") else [], losses=scored, **options)
        if not scored:
            return values["hook_logits"] if return_type else None
        loss = _loss(batch, losses, loss_per_token)
        return loss if return_type == "loss" else (values["hook_logits"], loss)

    def _stream(self, given: Any) -> np.ndarray:
        stream = np.ascontiguousarray(given, dtype=np.float32)
        if stream.ndim == 2:
            stream = stream[None]
        if stream.ndim != 3 or stream.shape[2] != self.config.d_model or stream.shape[1] == 0:
            raise ShapeError(f"the residual stream is {list(stream.shape)}; expected [batch, position, {self.config.d_model}]")
        return stream

    def _a_layer(self, what: str, layer: SupportsIndex, last: int) -> int:
        number = operator.index(layer)
        return within(what, number + self.config.n_layers if number < 0 else number, 0, last)

    def kv_cache(self) -> KeyValueCache:
        """An empty cache of keys and values, for past_kv_cache of the model's call."""
        return KeyValueCache(self)

    def run_with_cache(
        self,
        prompt: Prompts,
        names_filter: NamesFilter = None,
        *,
        heads: Slice = None,
        positions: Slice = None,
        return_type: Literal["logits", "loss", "both"] | None = "logits",
        loss_per_token: bool = False,
        remove_batch_dim: bool = False,
        allow_nan: bool = False,
    ) -> tuple[Any, ActivationCache]:
        """Runs the prompt and keeps values by hook name: (logits, cache). They are not copied on their way to NumPy.

        names_filter  a hook name, a pattern in which * stands for any run of characters, an alias ("resid_post", "pattern.3"),
                      each with slices if wanted ("blocks.*.attn.hook_pattern[heads=0:2,positions=-1]"), a list of these, or a
                      function of the name. None: every hook but attn.hook_result, which is n_heads times as large as the others
        heads, positions  slices for all of them: an index, or a slice without a step. What has no heads stays whole
        return_type   as in the model's call; None: no logits, and the run ends behind the last hook that is asked for
        allow_nan     NaN and infinity are shown instead of an error

        Raises InputError for a request that fits no hook, with the nearest names, and for more than memory holds, before running;
        RunError naming the hook and the position where NaN or infinity begins.
        """
        _check_return_type(return_type)
        if callable(names_filter):
            inputs = [name for name in input_names(self) if names_filter(name)]  # which stay whole: no slices
            asked = names_of(self._session, names_filter, bool(inputs))
        else:
            asked = requests_of(self._session, names_filter)
            inputs = [name for request in asked for name in input_hooks(self, request)]
            asked = [request for request in asked if not input_hooks(self, request)]
        requests = sliced(self._session, asked, heads, positions) if asked or not inputs else []
        batch = self._batch(prompt)
        result: Any = None
        if return_type in (None, "loss"):
            scored = return_type == "loss"
            values, losses = self._run(batch, [*requests, *inputs], allow_nan=allow_nan, losses=scored and _can_be_scored(batch))
            result = _loss(batch, losses, loss_per_token) if scored else None
        else:  # a run holds a hook once: all of the logits, of which the cache gets what was asked for
            of_length = {length: apart_from_logits(self._session, requests, length) for length in set(batch.lengths)}
            others = next(iter(of_length.values()))[0] if of_length else []
            scored = return_type == "both" and _can_be_scored(batch)
            values, losses = self._run(batch, [*others, *inputs, "hook_logits"], allow_nan=allow_nan, losses=scored)
            logits = values.pop("hook_logits")
            result = (logits, _loss(batch, losses, loss_per_token)) if scored else logits
            slices = [cut for cut in (of_length[length][1] for length in batch.lengths) if cut is not None]
            if slices:  # of every row, or of none
                whole = all(cut == slice(0, length) for cut, length in zip(slices, batch.lengths, strict=True))
                values["hook_logits"] = logits if whole else _cut(logits, slices)
        cache = ActivationCache(values, self, lengths=batch.lengths)
        return result, cache.remove_batch_dim() if remove_batch_dim else cache

    @contextmanager
    def hooks(self, fwd_hooks: Iterable[Hook]) -> Iterator[Model]:
        """While it lasts, every run of this model by this thread calls function(value, hook) at each hook that its name fits.

        fwd_hooks  (name, pattern, alias or predicate; function). value is float32, with the batch axis, of all rows of a batch in one
                   call; what the function leaves in it, or returns instead, flows on. It is the function's to keep. hook.name,
                   hook.layer(), hook.position. Behind the end of a shorter row value is NaN, and what is put there is dropped
        A long prompt in predict and generate is several steps, and so is each new token: a function sees the rows of one step.
        """
        before = getattr(self._hooks_of_thread, "hooks", [])
        added = list(fwd_hooks)
        HookSet(self, added)  # raises for names that fit nothing
        self._hooks_of_thread.hooks = before + added
        try:
            yield self
        finally:
            self._hooks_of_thread.hooks = before

    def add_hook(self, name: str | Callable[[str], bool], hook: HookFunction, *, prepend: bool = False) -> None:
        """Sets a function at hooks until reset_hooks(), for every run of this model by this thread. See hooks()."""
        HookSet(self, [(name, hook)])
        added = getattr(self._hooks_of_thread, "added", [])
        self._hooks_of_thread.added = [(name, hook), *added] if prepend else [*added, (name, hook)]

    def reset_hooks(self) -> None:
        """Takes away what add_hook() of this thread has set."""
        self._hooks_of_thread.added = []

    def set_use_split_qkv_input(self, on: bool) -> None:
        """Whether functions that choose hooks by name see hook_q_input, hook_k_input and hook_v_input, which names always find."""
        self._switch(on, {"q_input", "k_input", "v_input"})

    def set_use_attn_in(self, on: bool) -> None:
        """The same of hook_attn_in."""
        self._switch(on, {"attn_in"})

    def set_use_hook_mlp_in(self, on: bool) -> None:
        """The same of hook_mlp_in."""
        self._switch(on, {"mlp_in"})

    def _switch(self, on: bool, kinds: set[str]) -> None:
        self._input_hooks_on = self._input_hooks_on | kinds if on else self._input_hooks_on - kinds

    def run_with_hooks(
        self, prompt: Prompts, fwd_hooks: Iterable[Hook] = (), return_type: Literal["logits", "loss", "both"] | None = "logits",
        **options: Any,
    ) -> Any:
        """The model's call, with functions at hooks; see hooks()."""
        with self.hooks(fwd_hooks):
            return self(prompt, return_type, **options)

    def _calls(self) -> HookCalls:
        return HookSet(self, self._hooks).calls()

    def _run(
        self, batch: Batch, requests: list[str], *, allow_nan: bool = False, losses: bool = False, start: int = 0,
        stream: np.ndarray | None = None, past: KeyValueCache | None = None,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values by hook name, and the losses of all rows' tokens but the first of each, one behind the other."""
        inputs = [name for request in requests for name in input_hooks(self, request)]
        requests = [request for request in requests if not input_hooks(self, request)]
        kept: dict[str, np.ndarray] = {}
        keep = [(name, lambda value, hook: kept.__setitem__(hook.name, value.copy())) for name in inputs]
        calls = HookSet(self, [*self._hooks, *keep]).calls()
        values, scores = self._session.run(
            batch.ids, batch.lengths, requests, calls, allow_nan=allow_nan, losses=losses, start_layer=start,
            stream=None if stream is None else batch.joined(stream), past=None if past is None else past._past)
        return {**values, **kept}, scores

    def predict(self, prompt: Prompt, top: int = 10, *, all_positions: bool = False) -> list[Prediction]:
        """What the model expects after the prompt, or after each of its tokens: the top likeliest tokens."""
        found = self._session.predict(self._one(prompt), within("top", top, 1, INT64), all_positions, self._calls())
        return [Prediction(position, [NextToken(*token) for token in likeliest]) for position, likeliest in found]

    # Attribution --------------------------------------------------------------------------------------------------------------

    def attribute(
        self,
        prompt: Prompts,
        token: int | str | None = None,
        against: int | str | None = None,
        *,
        baseline: Literal["mean", "zero"] = "mean",
        steps: int = 64,
    ) -> Any:
        """An Attribution, of several prompts a list of them: which tokens the log-probability of `token` after the prompt comes from.
        Saliency, gradient times input, and integrated gradients over `steps` points (0: none).

        token     an id, or a text that is one token; None: the likeliest
        against   another one, whose log-probability is subtracted: why this and not that
        baseline  where the integral starts: every embedding the vocabulary's mean, or zero
        """
        self._without_hooks("attribution")
        if baseline not in ("mean", "zero"):
            raise UsageError(f"baseline is {baseline!r}; expected 'mean' or 'zero'")
        batch = self._batch(prompt)
        if batch.listed:
            return [self.attribute(row, token, against, baseline=baseline, steps=steps) for row in batch.rows]
        found = self._session.attribute(batch.rows[0], self._token(token), self._token(against),
                                        baseline == "zero", within("steps", steps, 0, INT64))
        for name in ("saliency", "gradient_input", "integrated"):
            found[name] = np.array(found[name])
        return Attribution(**{**found, "integrated": found["integrated"] if steps else None})

    def _without_hooks(self, what: str) -> None:
        if self._hooks:
            raise UsageError(f"{what} runs without hook functions")

    def _token(self, token: int | str | None) -> int | None:
        if isinstance(token, str):
            return self.tokenizer.single_token(token)
        return None if token is None else self._in_vocabulary("a token", token)

    def _in_vocabulary(self, what: str, token: SupportsIndex) -> int:
        return within(what, token, 0, self.config.vocab_size - 1)


class KeyValueCache:
    """Keys and values of the tokens that ran with past_kv_cache, of one prompt. Made by Model.kv_cache()."""

    def __init__(self, model: Model) -> None:
        self._past: Past = model._session.past()

    def __len__(self) -> int:
        return self._past.length

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens. Raises UsageError if a layer with a window or a state no longer can."""
        self._past.truncate(within("length", length, 0, len(self)))

    def __repr__(self) -> str:
        return f"<KeyValueCache of {len(self)} tokens>"


def _check_return_type(return_type: str | None) -> None:
    if return_type not in ("logits", "loss", "both", None):
        raise UsageError(f"return_type is {return_type!r}; expected 'logits', 'loss', 'both' or None")


def _can_be_scored(batch: Batch) -> bool:
    if min(batch.lengths, default=0) < 2:
        raise InputError("a loss takes a prompt of two tokens or more: each is scored given those before it")
    return True


def _loss(batch: Batch, losses: np.ndarray, per_token: bool) -> Any:
    exact = losses.astype(np.float64)
    return batch.padded(exact, shorter=1) if per_token else exact.mean()


def _cut(logits: np.ndarray, slices: list[slice]) -> np.ndarray:
    """Positions of each row, its own: [batch, as many as the row with most has, vocab_size]; NaN behind a row's end."""
    most = max(cut.stop - cut.start for cut in slices)
    if all(cut == slices[0] for cut in slices):
        return logits[:, slices[0]]
    made = np.full((len(logits), most, logits.shape[2]), np.nan, np.float32)
    for row, whole, cut in zip(made, logits, slices, strict=True):
        row[: cut.stop - cut.start] = whole[cut]
    return made
