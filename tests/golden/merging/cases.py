"""The configurations of make.py: CASES that mergekit merges and REFUSED ones, by family and name."""
import yaml


def text(arguments="", **config):
    head = f"# arguments: {arguments}\n" if arguments else ""
    return head + yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=120)


def models(*entries, **parameters):
    """models("ft1", "ft2", weight=[0.3, 0.7]): a list gives each model its own value, other values are for all of them."""
    out = []
    for i, name in enumerate(entries):
        own = {k: v[i] for k, v in parameters.items() if v[i] is not None}
        out.append({"model": f"./{name}", **({"parameters": own} if own else {})})
    return out


def source(model, first, end, **parameters):
    return {"model": f"./{model}", "layer_range": [first, end], **({"parameters": parameters} if parameters else {})}


def tasks(method, *names, weight=(0.7, 0.5, -0.3), dtype="float32", base="base", each=None, **parameters):
    """A merge of task vectors."""
    n = len(names)
    own = {"weight": list(weight[:n]), **(each or {})}
    return text(models=models(*names, **own), merge_method=method, base_model=f"./{base}",
                **({"parameters": parameters} if parameters else {}), dtype=dtype)


def plain(method, *names, base=None, dtype="float32", **parameters):
    return text(models=models(*names), merge_method=method, **({"base_model": f"./{base}"} if base else {}),
                **({"parameters": parameters} if parameters else {}), **({"dtype": dtype} if dtype else {}))


def weighted(method, names, weight, base=None, dtype="float32", **parameters):
    return text(models=models(*names, weight=weight), merge_method=method, **({"base_model": f"./{base}"} if base else {}),
                **({"parameters": parameters} if parameters else {}), **({"dtype": dtype} if dtype else {}))


ALL = ("ft1", "ft2", "ft3")
GRADIENT = [0, 1, 0.25]
FILTERS = [{"filter": "self_attn", "value": GRADIENT}, {"filter": "mlp", "value": [1, 0.2]}, {"value": 0.4}]

METHODS = {  # with the names of every family; the rest of tiny_llama needs its own
    "linear": weighted("linear", ALL, [1.5, 0.25, -0.5]),
    "slerp": plain("slerp", "ft1", "ft3", base="ft1", t=0.3),
    "nuslerp": weighted("nuslerp", ["ft1", "ft3"], [0.4, 1.1]),
    "multislerp": weighted("multislerp", ALL, [0.5, 0.3, 0.9]),
    "karcher": plain("karcher", *ALL),
    "task_arithmetic": tasks("task_arithmetic", *ALL),
    "ties": tasks("ties", *ALL, each={"density": [0.5, 0.7, 0.1]}),
    "dare_ties": tasks("dare_ties", "ft1", "ft3"),
    "della_linear": tasks("della_linear", "ft1", "ft3"),
    "breadcrumbs": tasks("breadcrumbs", *ALL, each={"density": [0.9, 0.6, 0.5], "gamma": [0.03, 0.1, 0.2]}),
    "sce": plain("sce", *ALL, base="base", select_topk=0.4),
    "model_stock": plain("model_stock", *ALL, base="base"),
    "nearswap": plain("nearswap", "base", "ft2", base="base", t=0.05),
    "arcee_fusion": plain("arcee_fusion", "base", "ft1", base="base"),
    "passthrough": text(models=models("ft2", scale=[0.5]), merge_method="passthrough", dtype="float32"),
    "ram": plain("ram", *ALL, base="base"),
    "ramplus_tl": plain("ramplus_tl", *ALL, base="base"),
}

PARAMETERS = {  # every other parameter and branch of the methods
    "linear_gradient": weighted("linear", ["ft1", "ft3"], [FILTERS, 0.5]),
    "slerp_near": plain("slerp", "base", "near", base="base", t=0.7),
    "slerp_base_second": plain("slerp", "ft1", "ft2", base="ft2", t=FILTERS),
    "nuslerp_row_wise": weighted("nuslerp", ["ft1", "ft3"], [0.4, 1.1], nuslerp_flatten=False, nuslerp_row_wise=True),
    "nuslerp_last_dimension": weighted("nuslerp", ["ft1", "ft3"], [0.4, 1.1], nuslerp_flatten=False),
    "nuslerp_base": weighted("nuslerp", ["ft1", "ft3"], [0.4, 1.1], base="base"),
    "nuslerp_base_row_wise": weighted("nuslerp", ["ft1", "ft2"], [0.4, 1.1], base="base", nuslerp_flatten=False, nuslerp_row_wise=True),
    "nuslerp_zero_sum": weighted("nuslerp", ["ft1", "ft3"], [0.5, -0.5]),
    "multislerp_base": weighted("multislerp", ALL, [0.5, 0.3, 0.9], base="base"),
    "multislerp_unnormalized": weighted("multislerp", ["ft1", "ft3"], [0.5, 0.9], normalize_weights=False, eps=0.001),
    "karcher_one_step": plain("karcher", "ft1", "ft3", max_iter=1, tol=1e-9),
    "task_arithmetic_normalized": tasks("task_arithmetic", *ALL, normalize=True, **{"lambda": 0.6}),
    "task_arithmetic_zero_sum": tasks("task_arithmetic", "ft1", "ft2", weight=(0.5, -0.5), normalize=True),
    "ties_unnormalized": tasks("ties", *ALL, each={"density": [0.33, FILTERS, 2.0]}, normalize=False, rescale=True),
    "ties_int8": tasks("ties", *ALL, each={"density": [0.5, 0.0, 0.001]}, int8_mask=True, **{"lambda": 1.7}),
    "ties_negative": tasks("ties", *ALL, weight=(-0.5, 0.5, 0.0), each={"density": [0.5, 0.5, 0.5]}),
    "dare_linear": tasks("dare_linear", *ALL, each={"density": [1.0, 1, 0]}, normalize=True),
    "della": tasks("della", *ALL, each={"density": [1.0, 1.0, 0.0], "epsilon": [0.1, None, 0.3]}),
    "breadcrumbs_gamma_zero": tasks("breadcrumbs", "ft1", "ft2", each={"density": [0.6, 0.3], "gamma": [0, 0]}),
    "breadcrumbs_gamma_large": tasks("breadcrumbs", "ft1", "ft2", each={"density": [0.6, 0.9], "gamma": [0.5, 0.95]}),
    "breadcrumbs_ties": tasks("breadcrumbs_ties", *ALL, each={"density": [0.9, 0.6, 0.5], "gamma": [0.03, None, 0.2]}, rescale=True, normalize=True),
    "sce_all": plain("sce", *ALL, base="base", int8_mask=True),
    "sce_none": plain("sce", *ALL, base="base", select_topk=0.001),
    "sce_one_source": plain("sce", "ft1", base="base"),
    "model_stock_filter_wise": plain("model_stock", *ALL, base="base", filter_wise=True),
    "model_stock_two": plain("model_stock", "ft1", "base", "ft2", base="base"),
    "nearswap_gradient": plain("nearswap", "ft3", base="base", t=[0, 0.2]),
    "ram_epsilon": plain("ram", *ALL, base="base", epsilon=0.05),
    "ramplus_tl_parameters": plain("ramplus_tl", *ALL, base="base", epsilon=0.02, r=0.5, alpha=0.9),
}

FORMS = {  # of configurations and inputs
    # The more specific setting counts: source, output slice, module, whole file. A setting without a filter that fits is none.
    "precedence_slices": text(
        slices=[{"sources": [source("ft1", 0, 2, weight=[{"filter": "q_proj", "value": 2.0}]), source("ft3", 1, 3)], "parameters": {"weight": [{"filter": "mlp", "value": [0.2, 0.6]}]}},
                {"sources": [source("ft2", 2, 3, weight=0.25), source("ft3", 0, 1)], "parameters": {"normalize": False}}],
        merge_method="linear", parameters={"weight": [0.7, 0.9], "normalize": True}, dtype="float32"),
    "precedence_modules": text(
        modules={"default": {"slices": [{"sources": [source("ft1", 0, 3, density=0.5), source("base", 0, 3), source("ft2", 0, 3)], "parameters": {"weight": 0.5}}],
                             "parameters": {"density": [{"filter": "norm", "value": 1}, {"filter": "*", "value": 0.8}], "weight": 9, "lambda": 0.5}}},
        merge_method="ties", base_model="./base", parameters={"density": 0.1, "lambda": 3, "normalize": False}, dtype="float32"),
    "precedence_models": text(models=models("ft1", "ft2", weight=[[{"filter": "layers.1.", "value": 3}, {"filter": "embed", "value": 0}], None]),
                              merge_method="linear", parameters={"weight": [{"filter": "lm_head", "value": 5}, {"value": 1}]}, dtype="float32"),
    "modules_models": text(modules={"default": {"models": models("ft1", "ft2", weight=[0.5, None]), "parameters": {"weight": 0.25}}}, merge_method="linear", dtype="float32"),
    # t is 1 for the only layer of a slice, and 0 outside the layers, for the output as well.
    "gradient_of_one_layer": text(slices=[{"sources": [source("ft1", i, i + 1), source("ft2", i, i + 1)]} for i in range(3)], merge_method="slerp",
                                  base_model="./ft1", parameters={"t": [0.1, 0.5, 0.9]}, dtype="float32"),
    "gradient_of_flags": tasks("ties", "ft1", "ft3", each={"density": [0.5, 0.5]}, normalize=[True, False, True, False]),
    "slice_bases": text(slices=[{"sources": [source("ft1", 0, 2), source("base", 0, 2)], "base_model": "./base"}, {"sources": [source("ft1", 1, 3), source("ft2", 1, 3)]}],
                        merge_method="slerp", base_model="./ft2", parameters={"t": 0.25}, dtype="float32"),
    "stack_of_five": text(slices=[{"sources": [source("ft1", 0, 2)]}, {"sources": [source("ft2", 0, 3, scale=[{"filter": "o_proj", "value": 0}, {"filter": "norm", "value": [1, 2]}])]}],
                          merge_method="passthrough", dtype="float32"),
    "base_among_models": tasks("task_arithmetic", "base", "ft1", weight=(4, 0.5)),
    "one_model": weighted("linear", ["ft1"], [3]),
    "numbers_as_words": weighted("linear", ["ft1", "ft2"], ["3e-1", "0.7"], normalize="no"),
    "out_dtype": text(models=models("ft1", "ft2"), merge_method="slerp", base_model="./ft1", parameters={"t": 0.4}, dtype="float32", out_dtype="bfloat16"),
    "float16": weighted("linear", ["ft1", "ft2"], [0.4, 0.6], dtype="float16"),
    "bfloat16_from_float32": tasks("task_arithmetic", "ft1", "ft2", dtype="bfloat16"),
    "bfloat16_linear": weighted("linear", ["ft1_bf16", "ft2_bf16"], [0.4, 0.6], dtype=None),
    "bfloat16_slerp": plain("slerp", "ft1_bf16", "ft2_bf16", base="ft1_bf16", t=0.4, dtype=None),
    "bfloat16_ties_in_float32": text(models=models("ft1_bf16", "ft2_bf16", weight=[0.4, 0.6], density=[0.5, 0.5]), merge_method="ties", base_model="./base",  # no ties
                                     dtype="float32", out_dtype="bfloat16"),
    "bfloat16_tasks": text(models=models("ft1_bf16", "ft2_bf16", weight=[0.4, 0.6]), merge_method="task_arithmetic", base_model="./base_bf16"),
    "bfloat16_passthrough": plain("passthrough", "ft1_bf16", dtype=None),
    "mixed_types": weighted("linear", ["ft1_bf16", "ft2"], [0.4, 0.6], dtype=None),
    "tied_all": weighted("linear", ["tied", "tied_base"], [0.4, 0.6]),
    "tied_and_not": tasks("task_arithmetic", "ft1", "tied"),
    "tied_base": tasks("task_arithmetic", "ft1", "ft3", base="tied_base"),
    "shards_in": weighted("linear", ["shards", "ft1"], [0.4, 0.6]),
    "shards_out": "# arguments: --out-shard-size 2500\n" + weighted("linear", ["ft1", "ft2"], [0.4, 0.6]),
    "shards_out_slices": text("--out-shard-size 2000", slices=[{"sources": [source("ft2", 1, 3)]}, {"sources": [source("ft1", 0, 2)]}], merge_method="passthrough", dtype="float32"),
    "shards_of_one_tensor": "# arguments: --out-shard-size 1000\n" + tasks("ties", "ft1", "ft2", each={"density": [0.5, 0.5]}),
}

PICKED = ("linear", "slerp", "task_arithmetic", "ties", "sce", "model_stock", "arcee_fusion", "nuslerp")
CASES = {
    "tiny_llama": {**METHODS, **PARAMETERS, **FORMS},
    "tiny_gpt2": {**{k: METHODS[k] for k in PICKED},
                  "no_prefix": weighted("linear", ["no_prefix", "ft1"], [0.4, 0.6]),
                  "no_prefix_alone": plain("passthrough", "no_prefix"),
                  "filters": weighted("linear", ["ft1", "ft3"], [[{"filter": "attn", "value": [0, 1]}, {"filter": "wte", "value": 0.1}, {"value": 0.5}], 0.5]),
                  "stack": text(slices=[{"sources": [source("ft1", 0, 2)]}, {"sources": [source("ft2", 1, 2)]}], merge_method="passthrough", dtype="float32")},
    "tiny_gemma2": {**{k: METHODS[k] for k in PICKED},
                    "out_dtype": text(models=models("ft1", "ft2"), merge_method="slerp", base_model="./ft1", parameters={"t": 0.4}, dtype="float32", out_dtype="bfloat16"),
                    "filters": weighted("linear", ["ft1", "ft3"], [[{"filter": "feedforward", "value": [0, 1]}, {"filter": "norm", "value": 0.1}, {"value": 0.5}], 0.5]),
                    # As many layers as before: mergekit ends with an error of transformers when it writes a config.json that lists its layer types.
                    "stack": text(slices=[{"sources": [source("ft1", 1, 2)]}, {"sources": [source("ft1_bf16", 0, 1)]}], merge_method="passthrough", dtype="float32")},
}

REFUSED = {"tiny_llama": {
    "unknown_method": plain("average", "ft1", "ft2"),
    "models_and_slices": text(models=models("ft1"), slices=[{"sources": [source("ft1", 0, 3)]}], merge_method="passthrough"),
    "nothing": text(merge_method="linear"),
    "no_method": text(models=models("ft1")),
    "module_with_both": text(modules={"default": {"models": models("ft1"), "slices": [{"sources": [source("ft1", 0, 3)]}]}}, merge_method="passthrough"),
    "unknown_module": text(modules={"vision": {"models": models("ft1")}}, merge_method="passthrough"),
    "both_tokenizers": text(models=models("ft1"), merge_method="passthrough", tokenizer_source="base", tokenizer={"source": "base"}),
    "linear_without_weight": plain("linear", "ft1", "ft2"),
    "weight_of_no_filter": weighted("linear", ["ft1", "ft2"], [[{"filter": "mlp", "value": 1}], 1]),
    "weight_is_a_word": weighted("linear", ["ft1", "ft2"], ["much", 1]),
    "flag_is_a_number": weighted("linear", ["ft1", "ft2"], [1, 1], normalize=2),
    "whole_is_a_fraction": plain("karcher", "ft1", "ft2", max_iter=2.5),
    "slerp_without_base": plain("slerp", "ft1", "ft2", t=0.5),
    "slerp_of_three": plain("slerp", *ALL, base="ft1", t=0.5),
    "slerp_without_t": plain("slerp", "ft1", "ft2", base="ft1"),
    "nuslerp_of_three": weighted("nuslerp", ALL, [1, 1, 1]),
    "ties_without_base": weighted("ties", ["ft1", "ft2"], [1, 1]),
    "model_stock_of_one": plain("model_stock", "ft1", base="base"),
    "nearswap_of_three": plain("nearswap", "ft1", "ft2", base="base", t=0.1),
    "arcee_fusion_of_three": plain("arcee_fusion", "ft1", "ft2", base="base"),
    "passthrough_of_two": plain("passthrough", "ft1", "ft2"),
    "passthrough_with_base": plain("passthrough", "ft1", base="base"),
    "multislerp_base_alone": weighted("multislerp", ["base"], [1], base="base"),
    "model_twice": weighted("linear", ["ft1", "ft1"], [1, 1]),
    "base_not_in_slice": text(slices=[{"sources": [source("ft1", 0, 3), source("ft2", 0, 3)]}], merge_method="slerp", base_model="./base", parameters={"t": 0.5}),
    "layers_that_differ": text(slices=[{"sources": [source("ft1", 0, 3, weight=1), source("ft2", 0, 2, weight=1)]}], merge_method="linear"),
    "layer_beyond_the_end": text(slices=[{"sources": [source("ft1", 2, 4)]}], merge_method="passthrough"),
    "layers_without_end": text(slices=[{"sources": [{"model": "./ft1", "layer_range": [0]}]}], merge_method="passthrough"),
    "della_epsilon": tasks("della", "ft1", "ft2", each={"density": [0.9, 0.5], "epsilon": [0.2, 0.1]}),
    "missing_model": plain("passthrough", "ft9"),
    "other_vocabulary": weighted("linear", ["ft1", "small_vocabulary"], [1, 1]),
    "other_architecture": text(models=[{"model": "./ft1"}, {"model": "../tiny_gpt2/ft1"}], merge_method="linear", parameters={"weight": 1}),
    "unknown_dtype": plain("passthrough", "ft1", dtype="float20"),
}}
