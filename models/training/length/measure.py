"""How the shipped model reads texts that are longer than those of its training: writes length.json beside this file.

    python3 models/training/length/measure.py build/release/vitrine

Whole tales of the held-out corpus are read from their beginning, with the context raised to 4096; and again in windows in which at most 511
tokens stand in front. Mean loss of the tokens by their place in the tale, 256 places to a point. Needs only Python and zstdcat; a minute.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent.parent
TRAINED, CONTEXT, STEP, TALES, LONGEST = 512, 4096, 256, 24, 3072


def losses(vitrine, model, tales, context, stride):
    out = subprocess.run([vitrine, "eval", "perplexity", "--file", tales, "--jsonl", "--model", model, "--context", str(context),
                          "--stride", str(stride), "--per-token", "--json"], check=True, capture_output=True, text=True).stdout
    return [text["logprobs"] for text in json.loads(out)["per_token"]]


def main():
    vitrine = str(pathlib.Path(sys.argv[1]).resolve())
    corpus = subprocess.run(["zstdcat", MODELS / "corpus/tales_valid.txt.zst"], check=True, capture_output=True, text=True).stdout
    tales = [tale.strip() for tale in corpus.split("<|endoftext|>")]
    tales = [tale for tale in tales if len(tale) > 4.2 * LONGEST][:TALES]  # 3.8 bytes a token
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / "tales.jsonl"
        file.write_text("".join(json.dumps({"text": tale}) + "\n" for tale in tales))
        model = folder / "model"
        shutil.copytree(MODELS / "tales9m", model)
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = CONTEXT
        (model / "config.json").write_text(json.dumps(config))
        whole = losses(vitrine, model, file, CONTEXT, CONTEXT // 2)
        short = losses(vitrine, model, file, TRAINED, TRAINED // 2)
    places, counts, means = [], [], {"whole": [], "short": []}
    for first in range(0, LONGEST, STEP):
        sums, count = {"whole": 0.0, "short": 0.0}, 0
        for a, b in zip(whole, short):
            for x, y in list(zip(a, b))[first:first + STEP]:
                if x is None or y is None:
                    continue
                sums["whole"] -= x
                sums["short"] -= y
                count += 1
        places.append(first + STEP // 2)
        counts.append(count)
        for key in means:
            means[key].append(round(sums[key] / count, 4))
    document = {"trained": TRAINED, "within": TRAINED - 1, "places": places, "counts": counts, **means,
                "recipe": "models/training/length/measure.py"}
    assert all(math.isfinite(x) for x in means["whole"] + means["short"])
    (HERE / "length.json").write_text(json.dumps(document) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
