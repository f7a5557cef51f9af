"""Writes circuit_tracer/layer_1.safetensors and circuit_tracer/clt: transcoders as circuit-tracer saves them, and what it computes.

    pip install circuit-tracer==0.5.0
    python tests/golden/sae/make_circuit_tracer.py
"""

import shutil
from pathlib import Path

import torch
from circuit_tracer.transcoder.activation_functions import JumpReLU
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder
from safetensors.torch import save_file

HERE = Path(__file__).parent / "circuit_tracer"
D, F, LAYERS, ROWS = 12, 20, 3, 5
CPU = {"dtype": torch.float32, "device": torch.device("cpu")}
shutil.rmtree(HERE, ignore_errors=True)
HERE.mkdir()


def fill(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
        module.activation_function.threshold.abs_()


torch.manual_seed(1)
single = SingleLayerTranscoder(D, F, JumpReLU(torch.zeros(F), 0.1), 1, skip_connection=True, **CPU)
fill(single)
single.to_safetensors(str(HERE / "layer_1.safetensors"))
(HERE / "config.yaml").write_text("model_name: tiny\nfeature_input_hook: mlp.hook_in\nfeature_output_hook: hook_mlp_out\n")
x = torch.randn(ROWS, D)
with torch.no_grad():
    save_file({"x": x, "features": single.encode(x), "y": single(x)}, HERE / "layer_1_run.safetensors")

clt = CrossLayerTranscoder(LAYERS, F, D, activation_function="jump_relu", lazy_decoder=False, **CPU)
fill(clt)
clt.to_safetensors(str(HERE / "clt"))
x = torch.randn(LAYERS, ROWS, D)
with torch.no_grad():
    features = clt.encode(x)
    save_file({"x": x, "features": features, "y": clt.decode(features)}, HERE / "clt_run.safetensors")
