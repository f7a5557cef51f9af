"""What llama.cpp's converter writes for the golden models: every key, and of every tensor its type, shape and checksum.

usage: make_converted.py LLAMA_CPP [MODEL ...]   (a source tree of llama.cpp; made with the one in llama-cpp-python 0.3.36)
       Without names: everything; with names only these are made anew, files as well as models.
needs: torch, transformers, safetensors, numpy, sentencepiece, and llama.cpp's own gguf-py

converted.json   model -> {"keys": {name: [type, value]}, "tensors": {"f32": {name: [type, shape, crc32]}, "f16": …}}
                 A list's value is the CRC-32 of its elements, each as the file holds it. Models without tokenizer have none.
gpt_oss.gguf, granite4_dense.gguf, granite4_hybrid.gguf, granite4_experts.gguf, nemotron_h_moe.gguf, gpt_oss_mxfp4.gguf   whole files, of
                 ../models/gpt_oss and granite4, ../variants/granite4_hybrid, granite4_experts and nemotron_h_moe (f32) and ../variants/gpt_oss_mxfp4 (bf16; experts in MXFP4)
"""
import json, logging, pathlib, struct, sys, tempfile, zlib

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
FILES = {"granite4_dense": (MODELS / "granite4/model", "f32"), "granite4_hybrid": (HERE.parent / "variants/granite4_hybrid", "f32"), "granite4_experts": (HERE.parent / "variants/granite4_experts", "f32"), "nemotron_h_moe": (HERE.parent / "variants/nemotron_h_moe", "f32"), "gpt_oss": (MODELS / "gpt_oss/model", "f32"), "gpt_oss_mxfp4": (HERE.parent / "variants/gpt_oss_mxfp4", "bf16")}
TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}


def use(llama_cpp):
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(pathlib.Path(llama_cpp) / "gguf-py"), str(llama_cpp)]
    logging.disable(logging.WARNING)


def convert(folder, out, kind):
    """Runs the converter on a Hugging Face directory, without a vocabulary where it has none."""
    import gguf, torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    import convert_hf_to_gguf  # registers the families
    hparams = ModelBase.load_hparams(folder, False)
    name = get_model_architecture(hparams, ModelType.TEXT)
    model_class = get_model_class({"PhimoeForCausalLM": "PhiMoEForCausalLM"}.get(name, name))  # as published files call it
    if hparams["model_type"] == "granitemoehybrid":  # as in published configurations: other names than transformers 5 writes, one size
        hparams["layer_types"] = [{"full_attention": "attention", "linear_attention": "mamba"}.get(kind_of_layer, kind_of_layer) for kind_of_layer in hparams["layer_types"]]
        if not hparams["num_local_experts"]:
            hparams["intermediate_size"] = hparams["shared_intermediate_size"]
    if hparams["model_type"] == "nemotron_h":  # heads of fewer than 64 components
        hparams["mamba_d_head"] = hparams["mamba_head_dim"]
    if hparams["model_type"] == "nemotron_h" and not {"moe", "E"} & set(hparams.get("layers_block_type") or hparams["hybrid_override_pattern"]):
        # As in published configurations: no word of experts, and a pattern, since only there the converter knows an MLP.
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
        for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"):
            hparams.pop(key)
        hparams["hybrid_override_pattern"] = "".join(letters[kind_of_layer] for kind_of_layer in hparams["layers_block_type"])
    ModelBase.no_mtp = True  # golden models have no layers that predict further tokens
    with torch.inference_mode():
        model = model_class(folder, gguf.LlamaFileType[TYPES[kind]], out, eager=False, hparams=hparams)
        if "n_positions" in hparams:  # as configurations of GPT-2 had it when the converter was written
            model.hparams.setdefault("n_ctx", hparams["n_positions"])
        if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
            model.set_vocab = model._set_vocab_none
            # Gemma's converter cuts the embedding to a vocabulary's size, which it looks for in the folder.
            model.dir_model = pathlib.Path(tempfile.mkdtemp(dir=out.parent))
            (model.dir_model / "tokenizer.json").write_text(json.dumps({"model": {"vocab": dict.fromkeys(map(str, range(hparams.get("vocab_size", 0))))}, "added_tokens": []}))
        model.get_vocab_base_pre = lambda tokenizer: "gpt-2"  # it knows published vocabularies by a hash; the golden one is GPT-2's kind
        model.write()


def value_of(field):
    import gguf
    if field.types[0] != gguf.GGUFValueType.ARRAY:
        return [field.types[0].name, field.contents()]
    crc = 0
    for item in field.contents():
        crc = zlib.crc32(item.encode() if isinstance(item, str) else struct.pack("<f" if field.types[1].name == "FLOAT32" else "<i", item), crc)
    return [f"{field.types[1].name}[{len(field.data)}]", crc]


def read(path):
    import gguf
    reader = gguf.GGUFReader(path)
    keys = {name: value_of(field) for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {t.name: [t.tensor_type.name, [int(n) for n in reversed(t.shape)], zlib.crc32(t.data.tobytes())] for t in reader.tensors}
    return keys, tensors


def main():
    use(sys.argv[1])
    chosen, out = sys.argv[2:], HERE / "converted.json"
    for name, (folder, kind) in FILES.items():
        if not chosen or name in chosen:
            convert(folder, HERE / f"{name}.gguf", kind)
    made = json.loads(out.read_text()) if chosen else {}
    for folder in sorted(MODELS.iterdir()):
        if not (folder / "model").is_dir() or folder.name.startswith("classic") or (chosen and folder.name not in chosen):
            continue
        made[folder.name] = {"keys": {}, "tensors": {}}
        for kind in TYPES:
            with tempfile.TemporaryDirectory() as temporary:
                path = pathlib.Path(temporary) / "out.gguf"
                convert(folder / "model", path, kind)
                keys, made[folder.name]["tensors"][kind] = read(path)
                made[folder.name]["keys"] = made[folder.name]["keys"] or keys
    made = dict(sorted(made.items()))
    lines = (f'{json.dumps(name)}: {json.dumps(value)}' for name, value in made.items())
    (HERE / "converted.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
