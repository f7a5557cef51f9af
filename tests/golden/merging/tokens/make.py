"""What mergekit makes of models with different tokenizers: the tokenizer of the result, and each model's embedding in its order.

usage: make.py      (no network)
needs: mergekit 0.1.5 (made with transformers 5.24.0, tokenizers 0.23.3, torch 2.15.0)

models/<name>/     the tokenizer's files of each model, and embedding.json: its rows, multiples of 1/8
cases/<name>.json  recipe: the tokenizer's part of it, as mergekit reads it; models, base: which take part
                   vocabulary: token -> id of the result; added: its added tokens by id
                   aligned: each model's embedding as mergekit gives it to the merge method
                   ids: texts.json by the tokenizer that mergekit saves

mergekit takes new tokens in the order of a hash map, which differs from run to run. Here get_vocab() is in the order of the ids, and
models come in the order of the recipe.
"""
import json, os, pathlib, shutil, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from mergekit.common import ImmutableMap, ModelReference
from mergekit.tokenizer.build import build_tokenizer
from mergekit.tokenizer.config import TokenizerConfig
from mergekit.tokenizer.embed import PermutedVocabulary

HERE = pathlib.Path(__file__).parent
WIDTH = 3
STORY = ["the cat sat on the mat", "the dog and the cat ran on and on", "a hat on a mat", "the rat sat and the dog ran"]
CODE = ["int main() { return 0; }", "for (int i = 0; i < n; ++i) { sum += i; }", "return sum + n;", "int sum = 0;"]
TEXTS = ["the cat sat on the mat", "int the_cat = 0;", "<|im_start|>the dog<|im_end|>", "the <tool>  cat", "a<tool>b", "Ġthe Ġcat",
         "<s> the cat</s>", "▁the▁cat", "cat<|endoftext|>dog", "return <extra> sum", "<pad><unk>", "the <a b> cat", " the  rat ran ", "",
         "<mark>the<new>dog <new2>", "thecatsat"]

os_get_vocab = transformers.PreTrainedTokenizerFast.get_vocab
transformers.PreTrainedTokenizerFast.get_vocab = lambda self: dict(sorted(os_get_vocab(self).items(), key=lambda kv: kv[1]))


def byte_level(texts, size, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    # Not the whole alphabet: a small file, and characters that vanish.
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    return t


def metaspace(texts, size):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # Words are cut for the training only, as in the vocabularies of Llama.
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer, trained.pre_tokenizer = t.normalizer, pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    model = json.loads(trained.to_str())
    model.update({k: json.loads(t.to_str())[k] for k in ["normalizer", "pre_tokenizer", "decoder"]})
    model["model"]["fuse_unk"] = True
    t = Tokenizer.from_str(json.dumps(model))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def unigram():
    t = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("▁cat", -1.5), ("dog", -1.75), ("a", -3.0), ("t", -3.0),
                                  ("s", -3.0), ("h", -3.25), ("e", -3.25), ("▁do", -4.0), ("g", -4.5)], unk_id=0))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.add_special_tokens(["<mark>"])
    return t


def write_model(name, tokenizer, rows, config=None):
    folder = HERE / "models" / name
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(sum(name.encode()))
    embedding = torch.randint(-800, 800, (rows, WIDTH), generator=generator) / 8
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **(config or {})}, indent=1) + "\n")
        print(name, tokenizer.get_vocab_size(), "tokens,", rows, "rows")
    (folder / "embedding.json").write_text(json.dumps(embedding.tolist(), separators=(",", ":")) + "\n")


def entry(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **flags}


def write_models():
    gpt = byte_level(STORY, 48, ["<|endoftext|>"])
    n = gpt.get_vocab_size()
    write_model("gpt", gpt, n, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})
    chat = byte_level(STORY, 48, ["<|endoftext|>"])
    chat.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    chat.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False)])
    decoder = {str(chat.token_to_id(t)): entry(t) for t in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}
    decoder[str(chat.token_to_id("<tool>"))] = entry("<tool>", lstrip=True, rstrip=True, special=False)
    write_model("chat", chat, n + 13, {"eos_token": "<|im_end|>", "added_tokens_decoder": decoder})  # padded
    write_model("short", chat, n + 1, {"eos_token": "<|endoftext|>"})  # fewer rows than tokens
    code = byte_level(CODE + STORY[:2], 70, ["<|endoftext|>", "<extra>"])
    code.add_tokens([AddedToken("the", single_word=True), AddedToken("<|im_end|>", special=True, rstrip=True)])
    write_model("code", code, code.get_vocab_size(), {"pad_token": "<|endoftext|>"})
    cut = byte_level(CODE + STORY[:2], 70, ["<|endoftext|>", "<extra>"])
    cut = json.loads(cut.to_str())
    vocabulary = cut["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary["{"], vocabulary[last] = vocabulary[last], vocabulary["{"]
    assert any("{" in merge for merge in cut["model"]["merges"])
    write_model("cut", Tokenizer.from_str(json.dumps(cut)), vocabulary["{"])  # a character that merges need has no row
    llama = metaspace(STORY, 52)
    llama.add_tokens(["<a b>", AddedToken("<tool>", normalized=True)])
    write_model("llama", llama, llama.get_vocab_size() + 4, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
    write_model("unigram", unigram(), 14, {"unk_token": "<unk>"})
    write_model("bare", None, n)


def run(name, names, base, recipe, folders):
    config = TokenizerConfig.model_validate_json(json.dumps(recipe).replace('"@', f'"{folders}/'))
    references = {n: ModelReference.model_validate(f"{folders}/{n}") for n in names}
    embeddings = {references[n]: torch.tensor(json.loads((HERE / "models" / n / "embedding.json").read_text())) for n in names}
    base_model = references[base] if base else None
    info = build_tokenizer(base_model, list(references.values()), config.source, False, add_tokens=tuple((config.tokens or {}).keys()))
    task = PermutedVocabulary.model_construct(tokens=ImmutableMap(data=config.tokens) if config.tokens else None,
                                              pad_to_multiple_of=config.pad_to_multiple_of, base_model=base_model, vocabulary_axis=0)
    aligned = task.execute(tokenizer_info=info, tensors=embeddings)
    with tempfile.TemporaryDirectory() as saved:
        info.tokenizer.save_pretrained(saved)
        again = transformers.AutoTokenizer.from_pretrained(saved)
        ids = [again(text)["input_ids"] for text in TEXTS]
        added = {i: entry(t.content, lstrip=t.lstrip, rstrip=t.rstrip, normalized=t.normalized, single_word=t.single_word, special=t.special)
                 for i, t in sorted(info.tokenizer.added_tokens_decoder.items())}
        assert info.tokenizer.get_vocab().items() <= again.get_vocab().items()
    case = {"models": names, "base": base, "recipe": recipe, "vocabulary": info.tokenizer.get_vocab(), "added": added,
            "aligned": {n: aligned[references[n]].tolist() for n in names}, "ids": ids}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in case.items())
    (HERE / "cases" / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    print(name, len(case["vocabulary"]), "tokens")


CASES = {
    "union": (["gpt", "chat", "code"], "gpt", {"source": "union"}),
    "union_no_base": (["code", "chat", "gpt"], None, {"source": "union"}),
    "union_of_kinds": (["llama", "gpt", "unigram"], "llama", {"source": "union", "pad_to_multiple_of": 16}),
    "union_base_in_the_middle": (["gpt", "chat", "llama"], "chat", {"source": "union"}),
    "union_unigram_base": (["unigram", "llama", "gpt"], "unigram", {"source": "union"}),
    "union_short": (["short", "code"], "short", {"source": "union"}),
    "union_cut": (["gpt", "cut"], "cut", {"source": "union"}),
    "base": (["gpt", "chat", "code"], "gpt", {"source": "base"}),
    "base_padded": (["chat", "gpt"], "chat", {"source": "base"}),
    "base_short": (["short", "gpt"], "short", {"source": "base", "pad_to_multiple_of": 8}),
    "base_bare": (["gpt", "bare", "code"], "gpt", {"source": "union"}),
    "model": (["gpt", "chat", "code"], "gpt", {"source": "@chat"}),
    "rules": (["gpt", "chat", "code"], "gpt", {"source": "union", "pad_to_multiple_of": 32, "tokens": {
        "<tool>": {"source": "@chat", "force": True},
        "<new>": {"source": {"kind": "model_token", "model": "@code", "token": "return"}},
        "<|im_start|>": {"source": {"kind": "model_token", "model": "@gpt", "token_id": 7}},
        "<|im_end|>": {"source": {"kind": "zero"}},
        "<aa>": {"source": {"kind": "model_token", "model": "@gpt", "token": "<|endoftext|>"}, "force": True},
        "<|endoftext|>": {"source": "@code"},
        "<extra>": {"source": {"kind": "zero"}, "force": True}}}),
}


def main():
    for folder in ["models", "cases"]:
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir()
    (HERE / "texts.json").write_text(json.dumps(TEXTS, ensure_ascii=False, indent=0) + "\n")
    write_models()
    with tempfile.TemporaryDirectory() as folders:
        for source in (HERE / "models").iterdir():
            target = pathlib.Path(folders) / source.name
            shutil.copytree(source, target)
            rows = len(json.loads((source / "embedding.json").read_text()))
            (target / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": rows}))
        for name, (names, base, recipe) in CASES.items():
            if len(sys.argv) < 2 or name in sys.argv[1:]:
                run(name, names, base, recipe, folders)


main()
