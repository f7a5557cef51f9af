"""A Llama whose matrices are of a different block type each, as llama-quantize mixes them, and what it must give.

usage: make_mixed.py
needs: what make.py needs

mixed.gguf           three layers of width 256, 64 tokens, no tokenizer. The blocks are random, with scales that give weights as models
                     have them: the package gguf decodes every type, but encodes few
mixed.safetensors    ids, logits, hidden.<i>: by a float32 run of the weights as the package gguf decodes them; distance: the largest
                     one from a float64 run; exact: its logits; tile_rms, tile_max: their error if operands are rounded to bf16;
                     int8_rms, int8_max: if activations are rounded to int8 per 32 values
"""
import json, pathlib

import gguf
import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from make import add_config, heads_of, run, to_bf16, to_int8, unpermute, with_rounded

HERE = pathlib.Path(__file__).parent
CONFIG = dict(model_type="llama", vocab_size=64, hidden_size=256, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              head_dim=64, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
# Where f16 scales lie, and how large they are for weights of about 0.06.
SCALES = dict(Q4_1=((0, 0.01), (2, -0.08)), Q5_0=((0, 0.006),), Q5_1=((0, 0.006), (2, -0.09)), Q2_K=((80, 0.007), (82, 0.01)), Q3_K=((108, 0.0015),), Q4_K=((0, 0.0004), (2, 0.003)),
              Q5_K=((0, 0.0002), (2, 0.003)), Q6_K=((208, 0.00004),), IQ4_NL=((0, 0.001),), IQ4_XS=((0, 0.00006),), TQ1_0=((52, 0.06),), TQ2_0=((64, 0.06),), Q4_0=((0, 0.012),), Q8_0=((0, 0.0008),), MXFP4=(),
              IQ2_XXS=((0, 0.0013),), IQ2_XS=((0, 0.0013),), IQ2_S=((0, 0.0013),), IQ3_XXS=((0, 0.0005),), IQ3_S=((0, 0.0005),), IQ1_S=((0, 0.009),), IQ1_M=())
TYPES = ["Q6_K", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "Q8_0", "Q4_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
         "IQ3_S", "IQ1_S", "IQ1_M", "Q4_K"]


def random_blocks(rows, columns, name, g):
    elements, size = GGML_QUANT_SIZES[Type[name]]
    blocks = g.integers(0, 256, (rows * columns // elements, size), np.uint8)
    for place, value in SCALES[name]:
        scale = (value * g.uniform(0.7, 1.3, len(blocks)) * (1 if len(SCALES[name]) > 1 else g.choice([-1, 1], len(blocks)))).astype(np.float16)
        blocks[:, place:place + 2] = scale.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = g.integers(120, 124, len(blocks))
    if name == "IQ1_M":  # four bits of the scale in each of four places
        bits = (0.009 * g.uniform(0.7, 1.3, len(blocks))).astype(np.float16).view(np.uint16)
        for n in range(4):
            blocks[:, 49 + 2 * n] = blocks[:, 49 + 2 * n] & 15 | ((bits >> (4 * n)) & 15).astype(np.uint8) << 4
    return blocks.reshape(rows, -1)


g = np.random.default_rng(11)
torch.manual_seed(11)
model = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG), attn_implementation="eager").float().eval()
writer = gguf.GGUFWriter(HERE / "mixed.gguf", "llama")
add_config(writer, CONFIG)
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG["num_hidden_layers"])
held, types = {}, iter(TYPES)
for name, w in sorted(model.state_dict().items()):
    new = names.get_name(name, try_suffixes=(".weight",))
    if w.ndim == 1:
        held[name] = 1 + 0.1 * torch.from_numpy(g.standard_normal(w.shape, np.float32))
        writer.add_tensor(new, held[name].numpy())
        continue
    kind = Type[next(types)]
    blocks = random_blocks(*w.shape, kind.name, g)
    writer.add_tensor(new, blocks, raw_dtype=kind)
    values = gguf.quants.dequantize(blocks, kind)
    print(f"{new:28} {kind.name:8} mean {values.mean():+.4f} deviation {values.std():.4f}")
    held[name] = torch.from_numpy(np.ascontiguousarray(unpermute(values, heads_of(name, CONFIG)) if heads_of(name, CONFIG) else values))
assert next(types, None) is None, "a type is in no matrix"
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

model.load_state_dict(held)
ids = torch.from_numpy(g.integers(0, 64, 20))
narrow = run(model, ids)
model = model.double()
wide = run(model, ids)
tile = with_rounded(model, ids, to_bf16, to_bf16, wide["logits"])
int8 = with_rounded(model, ids, to_int8, lambda w: w, wide["logits"])
distance = max(float((wide[k] - narrow[k].double()).abs().max()) for k in narrow)
save_file({k: v.contiguous().clone() for k, v in {**narrow, "ids": ids, "exact": wide["logits"], "distance": torch.tensor([distance]),
                                                  "tile_rms": tile[0], "tile_max": tile[1],
                                                  "int8_rms": int8[0], "int8_max": int8[1]}.items()}, HERE / "mixed.safetensors")
print("distance %.1e tile %.1e %.1e largest logit %.2f" % (distance, *tile, narrow["logits"].abs().max()))
