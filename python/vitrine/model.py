"""An opened model: predict, generate, inspect, intervene. Each of these is a function of an OpenedModel in a separate module;
Model lists them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import (
    analysis, attribution_graphs, autoencoder_runs, chatting, collecting, editing, generating, hook_gradients, hooking, program, prompts, running, structure,
    weights,
)
from ._vitrine import Session
from .arrays import Floats
from .editing import Weights
from .errors import UsageError
from .factored_matrix import FactoredMatrix
from .opened import OpenedModel
from .weights import Embed, Module, Norm, Unembed
from .whole_numbers import within


def load(
    model: str | os.PathLike[str] | None = None, *, adapter: str | os.PathLike[str] | None = None,
    compute: Literal["auto", "f32"] = "auto", threads: int = 0, exact: bool = False,
    cache_type_k: Literal["f32", "f16", "q8_0", "q4_0"] = "f32", cache_type_v: Literal["f32", "f16", "q8_0", "q4_0"] = "f32",
) -> Model:
    """Opens a model. Files are mapped, not read, and never altered; Model.weights changes weights in memory.

    model    a Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache; None: the shipped model
    adapter  the folder of a LoRA adapter in PEFT's format, to run with the model; its files are not changed
    compute  "auto": 16-bit and quantized weights multiply operands rounded to match; "f32": everything is widened to f32
    threads  0: as many as this process has cores. Results do not depend on it
    exact    always use the same kernels: results are bit-identical for any batch, chunks and cache state
    cache_type_k, cache_type_v
             the types of cached keys and values: smaller types take less memory and are faster, but are rounded

    Raises MissingFileError, FileError naming file and field, InputError for an option.
    """
    if compute not in ("auto", "f32"):
        raise UsageError(f"compute is {compute!r}; expected 'auto' or 'f32'")
    name = model if model is not None else Path(__file__).parent / "models" / "tales9m"
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
    opened._opened = {"model": program.where_it_lies(model), "adapter": program.where_it_lies(adapter), "compute": compute,
                      "threads": threads, "exact": exact, "cache_type_k": cache_type_k, "cache_type_v": cache_type_v}
    return opened


def _load_again(arguments: dict[str, Any]) -> Model:
    return load(**arguments)


class Model(OpenedModel):
    """A model with its tokenizer, made by load(). One run at a time: other threads wait. Runs release the interpreter's lock.

    A prompt is a text, token ids that are used unchanged, [position] or [batch, position], or a list of texts or lists of ids,
    which may differ in length. The prompts of a batch run together and never see each other: there is no padding in the model, so
    padding cannot change a result. Values have a batch axis first; after the end of a shorter prompt they are NaN. lengths()
    returns the lengths.
    """

    def __repr__(self) -> str:
        c = self.config
        return f"<vitrine.Model {c.name}: {c.family}, {c.n_layers} layers, {c.parameters:,} parameters>"

    def copy(self) -> Model:
        """Another model of the same files, with the weights as they are now and without hook functions. What is changed in one of
        them is not changed in the other.

        Both map the same files, whose memory they share. The copy has memory of its own for weights that were changed (4 bytes for
        each number, or as encode() left them), for weights that are converted when a file is opened, and for its runs and tokenizer.
        """
        if self._opened is None:
            raise UsageError("a merge in memory cannot be copied; merge it with out= and load that")
        other = load(**self._opened)
        other._session.copy_edits(self._session)
        return other

    def __copy__(self) -> Model:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Model:
        return self.copy()

    def __reduce__(self) -> tuple[object, ...]:
        if self._opened is None or self._session.edited:
            raise UsageError("a model in memory alone, or with weights that were changed there, cannot be pickled; save it as files")
        return _load_again, (self._opened,)

    # Runs
    __call__ = running.call
    run_with_cache = running.run_with_cache
    run_with_hooks = running.run_with_hooks
    predict = running.predict
    token_losses = running.token_losses
    attribute = running.attribute
    kv_cache = running.kv_cache
    generate = generating.generate
    stream = generating.stream
    beams = generating.beams
    get_token_position = prompts.get_token_position
    test_prompt = prompts.test_prompt
    loss_fn = prompts.loss_fn
    apply_chat_template = chatting.apply_chat_template

    # Hooks
    hooks = hooking.hooks
    add_hook = hooking.add_hook
    reset_hooks = hooking.reset_hooks
    get_caching_hooks = hooking.get_caching_hooks
    add_caching_hooks = hooking.add_caching_hooks
    set_use_split_qkv_input = hooking.set_use_split_qkv_input
    set_use_attn_in = hooking.set_use_attn_in
    set_use_hook_mlp_in = hooking.set_use_hook_mlp_in

    # Gradients
    gradients = hook_gradients.gradients
    attribution_patching = hook_gradients.attribution_patching
    integrated_gradients = hook_gradients.integrated_gradients

    # Autoencoders and transcoders
    saes = autoencoder_runs.saes
    run_with_saes = autoencoder_runs.run_with_saes
    run_with_hooks_with_saes = autoencoder_runs.run_with_hooks_with_saes
    run_with_cache_with_saes = autoencoder_runs.run_with_cache_with_saes
    gradients_with_saes = autoencoder_runs.gradients_with_saes
    attribution_graph = attribution_graphs.attribution_graph

    # The model as a whole
    circuits = analysis.circuits
    compare = analysis.compare
    intervene = analysis.intervene
    collect = collecting.collect
    picture = program.picture
    explain = program.explain
    eval_perplexity = program.eval_perplexity
    eval_choices = program.eval_choices
    eval_compare = program.eval_compare

    # Layers
    block_hooks = structure.block_hooks
    block_submodules = structure.block_submodules
    blocks_with = structure.blocks_with
    layer_types = structure.layer_types
    stack_params_for = structure.stack_params_for
    QK_for_attn_layers = structure.QK_for_attn_layers
    OV_for_attn_layers = structure.OV_for_attn_layers
    composition_layer_indices = structure.composition_layer_indices
    all_composition_scores = structure.all_composition_scores

    @property
    def all_head_labels(self) -> list[str]:
        """ "L0H0", "L0H1", …: every head of every layer, also of layers without attention, as TransformerLens has it."""
        return structure.head_labels(self, range(self.config.n_layers))

    @property
    def attn_head_labels(self) -> list[str]:
        """The same for the layers that have attention."""
        return structure.head_labels(self, self.composition_layer_indices())

    # Weights (weights.py describes their orientation)
    weight = weights.weight
    save = editing.save
    accumulated_bias = weights.accumulated_bias

    @property
    def W_E(self) -> Floats:
        """[vocab_size, d_model]: W_E[tokens] is hook_embed."""
        return weights.weight(self, "W_E")

    @property
    def W_U(self) -> Floats:
        """[d_model, vocab_size]: x @ W_U + b_U are the logits before the soft cap, for x after the final norm."""
        return weights.weight(self, "W_U")

    @property
    def W_pos(self) -> Floats:
        """[position, d_model]. Raises InputError for a model without learned positions."""
        return weights.weight(self, "W_pos")

    @property
    def W_E_pos(self) -> Floats:
        """[vocab_size + position, d_model]: the rows of W_E, then those of W_pos."""
        return weights.unwritable(np.concatenate([self.W_E, self.W_pos]))

    @property
    def W_Q(self) -> Floats:
        """[layer, head, d_model, head_dim]. This and the following are copies, stacked over layers, and read-only; `weights` are
        written."""
        return weights.of_layers(self, "attn.W_Q")

    @property
    def W_K(self) -> Floats:
        """[layer, kv_head, d_model, head_dim]: key and value heads as the model has them, not repeated for their group."""
        return weights.of_layers(self, "attn.W_K")

    @property
    def W_V(self) -> Floats:
        """[layer, kv_head, d_model, head_dim]"""
        return weights.of_layers(self, "attn.W_V")

    @property
    def W_O(self) -> Floats:
        """[layer, head, head_dim, d_model]"""
        return weights.of_layers(self, "attn.W_O")

    @property
    def W_in(self) -> Floats:
        """[layer, d_model, d_ff]; in gated models the matrix whose output the gate multiplies, with W_gate."""
        return weights.of_layers(self, "mlp.W_in")

    @property
    def W_gate(self) -> Floats:
        """[layer, d_model, d_ff]. Raises InputError for a model without gates."""
        return weights.of_layers(self, "mlp.W_gate")

    @property
    def W_out(self) -> Floats:
        """[layer, d_ff, d_model]"""
        return weights.of_layers(self, "mlp.W_out")

    # Biases: zeros where the model has none.

    @property
    def b_Q(self) -> Floats:
        """[layer, head, head_dim]. This and the following are zeros where the model has no bias."""
        return weights.of_layers(self, "attn.b_Q")

    @property
    def b_K(self) -> Floats:
        """[layer, kv_head, head_dim]"""
        return weights.of_layers(self, "attn.b_K")

    @property
    def b_V(self) -> Floats:
        """[layer, kv_head, head_dim]"""
        return weights.of_layers(self, "attn.b_V")

    @property
    def b_O(self) -> Floats:
        """[layer, d_model]"""
        return weights.of_layers(self, "attn.b_O")

    @property
    def b_in(self) -> Floats:
        """[layer, d_ff]"""
        return weights.of_layers(self, "mlp.b_in")

    @property
    def b_gate(self) -> Floats:
        """[layer, d_ff]. Raises InputError for a model without gates."""
        return weights.of_layers(self, "mlp.b_gate")

    @property
    def b_out(self) -> Floats:
        """[layer, d_model]"""
        return weights.of_layers(self, "mlp.b_out")

    @property
    def b_U(self) -> Floats:
        """[vocab_size]"""
        return weights.output_bias(self)

    @property
    def QK(self) -> FactoredMatrix:
        """[layer, head, d_model, d_model]: W_Q W_Kᵀ of each query head, which scores a query's vector against a key's before the
        scale. Norms, biases, RoPE and norms of queries and keys are not in it; `vitrine circuits` folds them in.
        """
        return weights.qk_of(self, self.W_Q, self.W_K)

    @property
    def OV(self) -> FactoredMatrix:
        """[layer, head, d_model, d_model]: W_V W_O of each query head, from its input to its output."""
        return weights.ov_of(self, self.W_V, self.W_O)

    @property
    def blocks(self) -> list[Module]:
        """The layers: blocks[3].attn.W_Q, blocks[3].ln1(x), blocks[3].mlp.b_in."""
        return [Module(self, f"blocks.{layer}.") for layer in range(self.config.n_layers)]

    @property
    def ln_final(self) -> Norm:
        """The norm before the output head: ln_final(x) of any x [..., d_model], with the statistics of x; ln_final.w, ln_final.b.

        A residual stream's logits are unembed(ln_final(stream)).
        """
        return Norm(self, "ln_final")

    @property
    def unembed(self) -> Unembed:
        """The output head: unembed(x) are the logits of x [..., d_model] after the final norm; unembed.W_U, unembed.b_U."""
        return Unembed(self)

    @property
    def embed(self) -> Embed:
        """embed(tokens) is hook_embed, [..., d_model]; embed.W_E."""
        return Embed(self)

    @property
    def weights(self) -> Weights:
        """The parameters by name, which can be changed in memory: model.weights["blocks.3.attn.W_Q"][2] = 0."""
        return Weights(self)
