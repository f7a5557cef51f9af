#!/usr/bin/env python3
"""Time of an attribution graph beside circuit-tracer's, of one random model and one set of random transcoders.

    pip install circuit-tracer==0.5.0
    python bench/compare_attribution_graphs.py make FOLDER      # model, transcoders
    python bench/compare_attribution_graphs.py ours FOLDER [--vitrine build/release/vitrine] [--rounds 3]
    python bench/compare_attribution_graphs.py theirs FOLDER [--rounds 3] [--batch 64]

A model of Gemma 2's shape (8 layers, d_model 512) and transcoders with 4096 features a layer; 32 tokens. Each prints the seconds of
a whole graph, transcoders and model in memory (ours: the command's time, less that of a graph with one feature, which reads the same
files), CPU seconds, which say more on a busy machine, and the number of features.
"""

import argparse
import importlib.util
import pathlib
import resource
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, WIDTH, FEATURES, TOKENS = 8, 512, 4096, 32
IDS = [2] + [(i * 7919 + 13) % 500 + 5 for i in range(TOKENS - 1)]


def cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def goldens():
    spec = importlib.util.spec_from_file_location("graph_goldens", HERE.parent / "tests" / "golden" / "attribution_graphs" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(folder):
    import torch
    from transformers import AutoTokenizer, Gemma2Config, Gemma2ForCausalLM
    torch.manual_seed(1)
    small = HERE.parent / "tests" / "golden" / "models" / "gemma2" / "model"
    config = Gemma2Config.from_pretrained(small)
    config.update(dict(hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=LAYERS, num_attention_heads=8, num_key_value_heads=4,
                       head_dim=64, query_pre_attn_scalar=64, layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2)))
    Gemma2ForCausalLM(config).float().save_pretrained(folder / "gemma2" / "model")
    AutoTokenizer.from_pretrained(small).save_pretrained(folder / "gemma2" / "model")
    made = goldens()
    made.SHIFT = -2.6
    made.save(made.layer_transcoders(LAYERS, WIDTH, FEATURES, True, False, "ln2.hook_normalized", "hook_mlp_out"), folder / "transcoders")


def ours(folder, vitrine, rounds):
    def run(*more):
        begin, used = time.perf_counter(), cpu(resource.RUSAGE_CHILDREN)
        done = subprocess.run([vitrine, "graph", "--model", folder / "gemma2" / "model", "--transcoders", folder / "transcoders", "--tokens",
                               ",".join(map(str, IDS)), "--top", "0", *more], check=True, capture_output=True, text=True)
        return time.perf_counter() - begin, cpu(resource.RUSAGE_CHILDREN) - used, done.stdout
    few = [run("--max-features", "1") for _ in range(rounds)]
    whole = [run("--max-features", "1000000") for _ in range(rounds)]
    print(whole[0][2].splitlines()[0])
    for i, what in enumerate(("s", "CPU s")):
        rest = min(one[i] for one in few)
        print(f"vitrine: {statistics.median(one[i] for one in whole) - rest:.2f} {what}, and {rest:.2f} {what} for files and nodes")


def theirs(folder, rounds, batch):
    import torch
    from circuit_tracer import attribute
    from circuit_tracer.graph import prune_graph
    from circuit_tracer.transcoder.single_layer_transcoder import load_transcoder_set
    torch.set_num_threads(2)
    made = goldens()
    made.MODELS = folder
    transcoders = load_transcoder_set({i: str(folder / "transcoders" / f"layer_{i}.safetensors") for i in range(LAYERS)}, "random", "ln2.hook_normalized",
                                      "hook_mlp_out", dtype=torch.float32, device=torch.device("cpu"), lazy_encoder=False, lazy_decoder=False)
    model = made.replacement_model("gemma2", transcoders)
    times = []
    for _ in range(rounds):
        begin, used = time.perf_counter(), cpu(resource.RUSAGE_SELF)
        graph = attribute(torch.tensor(IDS), model, batch_size=batch)
        prune_graph(graph)
        times.append((time.perf_counter() - begin, cpu(resource.RUSAGE_SELF) - used))
    print(f"{len(graph.selected_features)} features")
    print(f"circuit-tracer: {statistics.median(t for t, _ in times):.2f} s, {statistics.median(t for _, t in times):.2f} CPU s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "ours", "theirs"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--vitrine", default="build/release/vitrine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    o = parser.parse_args()
    folder = o.folder.resolve()
    if o.what == "make":
        make(folder)
    elif o.what == "ours":
        ours(folder, o.vitrine, o.rounds)
    else:
        theirs(folder, o.rounds, o.batch)


if __name__ == "__main__":
    main()
