#!/usr/bin/env python3
"""Attribution graphs of circuit-tracer through random transcoders, for models of tests/golden/models.

    pip install circuit-tracer==0.5.0        # brings torch, transformer-lens 3.2.1, transformers 4.57.3
    python tests/golden/attribution_graphs/make.py

For each case a folder:
  transcoders/   the set in circuit-tracer's files (bf16), with its config.yaml
  graph.safetensors  tokens, active (layer, position, feature) and values of all features, selected, logit_tokens, probabilities,
                 adjacency (rows of features and logits alone; the others are zeros), n_layers, node_influence, replacement_score,
                 completeness_score, and "at <thresholds>: …": nodes and edges kept (places in the matrix), cumulative
  graph.json     what its viewer opens, of the first thresholds (of two cases)
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformer_lens.pretrained.weight_conversions as conversions
import yaml
from circuit_tracer import attribute
from circuit_tracer.graph import compute_graph_scores, compute_node_influence, prune_graph
from circuit_tracer.replacement_model.replacement_model_transformerlens import TransformerLensReplacementModel
from circuit_tracer.transcoder.activation_functions import JumpReLU
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder, TranscoderSet
from circuit_tracer.utils.create_graph_files import create_graph_files
from safetensors.numpy import save_file
from transformer_lens import HookedTransformerConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
CPU = {"dtype": torch.float32, "device": torch.device("cpu")}
SHIFT = -1.0  # of b_enc: few features are active


def config_of(name, hf):
    c = hf.config
    common = dict(model_name=name, tokenizer_name=str(MODELS / name / "model"), n_layers=c.num_hidden_layers, d_model=c.hidden_size,
                  n_heads=c.num_attention_heads, d_vocab=c.vocab_size, dtype=torch.float32, device="cpu", attention_dir="causal")
    if name == "gpt2_a":
        return HookedTransformerConfig(**common, d_head=c.n_embd // c.n_head, d_mlp=4 * c.n_embd, n_ctx=c.n_positions, eps=c.layer_norm_epsilon,
                                       act_fn="gelu_new", normalization_type="LN", original_architecture="GPT2LMHeadModel")
    common |= dict(d_head=c.head_dim, d_mlp=c.intermediate_size, n_ctx=c.max_position_embeddings, n_key_value_heads=c.num_key_value_heads,
                   normalization_type="RMS", positional_embedding_type="rotary", rotary_base=10000, rotary_dim=c.head_dim,
                   rotary_adjacent_pairs=False, final_rms=True, gated_mlp=True, eps=c.rms_norm_eps)
    if name == "llama":
        return HookedTransformerConfig(**common, act_fn="silu", original_architecture="LlamaForCausalLM")
    return HookedTransformerConfig(
        **common, act_fn="gelu_pytorch_tanh", original_architecture="Gemma2ForCausalLM", use_attn_scale=True,
        attn_scale=c.query_pre_attn_scalar**0.5, use_local_attn=True, window_size=c.sliding_window,
        attn_types=["local" if t == "sliding_attention" else "global" for t in c.layer_types],
        attn_scores_soft_cap=c.attn_logit_softcapping, output_logits_soft_cap=c.final_logit_softcapping,
        use_normalization_before_and_after=True)


CONVERT = {"gpt2_a": conversions.convert_gpt2_weights, "llama": conversions.convert_llama_weights,
           "gemma2": conversions.convert_gemma_weights}


def replacement_model(name, transcoders):
    hf = AutoModelForCausalLM.from_pretrained(MODELS / name / "model", dtype=torch.float32, attn_implementation="eager").eval()
    cfg = config_of(name, hf)
    model = TransformerLensReplacementModel(cfg, tokenizer=AutoTokenizer.from_pretrained(MODELS / name / "model"))
    model.load_and_process_state_dict(CONVERT[name](hf, cfg), fold_ln=False, center_writing_weights=False, center_unembed=False,
                                      fold_value_biases=False)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        off = (model(ids).log_softmax(-1) - hf(ids).logits.log_softmax(-1)).abs().max().item()
    assert off < 2e-4, f"{name}: TransformerLens's logits are {off} off those of transformers"
    model._configure_replacement_model(transcoders)
    return model


def stored(tensor, scale=1.0):
    """Random numbers that bf16 holds."""
    return (torch.randn_like(tensor) * scale).bfloat16().float()


def layer_transcoders(layers, d, f, jump, skip, hook_in, hook_out):
    made = {}
    for layer in range(layers):
        one = SingleLayerTranscoder(d, f, JumpReLU(torch.zeros(f), 0.1) if jump else torch.nn.functional.relu, layer, skip_connection=skip, **CPU)
        with torch.no_grad():
            one.W_enc.copy_(stored(one.W_enc, d**-0.5))
            one.W_dec.copy_(stored(one.W_dec, 0.3))
            one.b_enc.copy_((stored(one.b_enc, 0.3) + SHIFT).bfloat16().float())
            one.b_dec.copy_(stored(one.b_dec, 0.1))
            if jump:
                one.activation_function.threshold.copy_(stored(one.b_enc, 0.5).abs())
            if skip:
                one.W_skip.copy_(stored(one.W_skip, 0.5 * d**-0.5))
        made[layer] = one
    return TranscoderSet(made, hook_in, hook_out, scan="tiny/transcoders")


def cross_layer(layers, d, f):
    clt = CrossLayerTranscoder(layers, f, d, activation_function="jump_relu", lazy_decoder=False, scan="tiny/clt", **CPU)
    with torch.no_grad():
        clt.W_enc.copy_(stored(clt.W_enc, d**-0.5))
        for w in clt.W_dec:
            w.copy_(stored(w, 0.3))
        clt.b_enc.copy_((stored(clt.b_enc, 0.3) + SHIFT).bfloat16().float())
        clt.b_dec.copy_(stored(clt.b_dec, 0.1))
        clt.activation_function.threshold.copy_(stored(clt.activation_function.threshold, 0.3).abs())
    return clt


def save(transcoders, folder):
    folder.mkdir(parents=True)
    with torch.no_grad():
        transcoders.to(torch.bfloat16).to_safetensors(str(folder))
        transcoders.to(torch.float32)
    cross = isinstance(transcoders, CrossLayerTranscoder)
    (folder / "config.yaml").write_text(yaml.safe_dump({
        "model_name": "tiny", "model_kind": "cross_layer_transcoder" if cross else "transcoder_set", "scan": transcoders.scan,
        "feature_input_hook": transcoders.feature_input_hook, "feature_output_hook": transcoders.feature_output_hook}, sort_keys=False))


def write(case, name, transcoders, ids, thresholds=((0.8, 0.98), (0.98, 0.9)), document=True, **options):
    folder = HERE / case
    shutil.rmtree(folder, ignore_errors=True)
    save(transcoders, folder / "transcoders")
    model = replacement_model(name, transcoders)
    graph = attribute(torch.tensor(ids), model, **options)
    assert len(graph.input_tokens) == len(ids), "a token was put in front"
    logits = len(graph.logit_targets)
    features = len(graph.selected_features)
    n = len(graph.adjacency_matrix)
    rows = torch.cat([torch.arange(features), torch.arange(n - logits, n)])
    weights = torch.zeros(n)
    weights[-logits:] = graph.logit_probabilities
    scores = compute_graph_scores(graph)
    saved = {"tokens": np.array(ids), "active": graph.active_features.numpy(), "values": graph.activation_values.detach().numpy(),
             "selected": graph.selected_features.numpy(), "logit_tokens": graph.logit_token_ids.numpy(),
             "probabilities": graph.logit_probabilities.detach().numpy(), "adjacency": graph.adjacency_matrix[rows].numpy(),
             "n_layers": np.array(model.cfg.n_layers), "node_influence": compute_node_influence(graph.adjacency_matrix, weights).detach().numpy(),
             "scores": np.array(scores)}
    for nodes, edges in thresholds:
        kept = prune_graph(graph, nodes, edges)
        saved |= {f"at {nodes} {edges}: nodes": kept.node_mask.nonzero()[:, 0].numpy(),
                  f"at {nodes} {edges}: edges": kept.edge_mask.nonzero().numpy(),
                  f"at {nodes} {edges}: cumulative": kept.cumulative_scores.detach().numpy()}
    save_file({key: np.ascontiguousarray(value, np.float32) for key, value in saved.items()}, folder / "graph.safetensors")
    print(f"{case}: {features} of {len(graph.active_features)} features, {n} nodes, {logits} logits, scores {scores}", file=sys.stderr)
    if not document:
        return
    with tempfile.TemporaryDirectory() as out:
        create_graph_files(graph, "tiny", out, node_threshold=thresholds[0][0], edge_threshold=thresholds[0][1])
        read = json.loads((pathlib.Path(out) / "tiny.json").read_text())
    (folder / "graph.json").write_text(json.dumps(read, separators=(",", ":"), ensure_ascii=False))


if __name__ == "__main__":
    torch.manual_seed(5)
    IDS = [2, 267, 283, 451, 273, 280, 322]  # its first token is special to the models' tokenizers
    write("gemma2", "gemma2", layer_transcoders(4, 48, 24, True, False, "ln2.hook_normalized", "hook_mlp_out"), [*IDS, 17, 301])
    write("llama_skip", "llama", layer_transcoders(3, 64, 24, False, True, "mlp.hook_in", "mlp.hook_out"), IDS, document=False)
    write("gpt2_cross_layer", "gpt2_a", cross_layer(3, 48, 12), [511, 257, 273, 78, 263, 270, 312])
    # A limit on features, which are taken by influence while the graph grows.
    write("gemma2_limited", "gemma2", layer_transcoders(4, 48, 12, True, False, "hook_resid_mid", "hook_mlp_out"), IDS, max_feature_nodes=22, batch_size=3, update_interval=2,
          document=False)
