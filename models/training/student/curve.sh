#!/usr/bin/env bash
# The two students of compare.sh for seed 1, evaluated ten times on the way: writes curve.json beside this file, which the program
# has compiled in for the picture "distillation". A few minutes on two cores.
#   models/training/student/curve.sh BUILD_DIR FOLDER
# FOLDER is made, or is one in which models/training/train.sh or compare.sh has worked, whose token data is then used.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$(cd "$here/../../tales9m" && pwd)
corpus="$here/../../corpus"
vitrine=$(cd "$1" && pwd)/vitrine
mkdir -p "$2"
cd "$2"
[ -e tokens/valid/index.json ] || "$vitrine" data "$corpus/tales_train.txt.zst" --valid-files "$corpus/tales_valid.txt.zst" \
  --document '<|endoftext|>' --tokenizer "$model" --out tokens
for way in train distill; do
  out="curve-$way"
  sed "s|MODEL|$model|; s|SEED|1|; s|OUT|$out|; s|eval_every: 120|eval_every: 12\neval_batches: 16|" "$here/student.yaml" > "$out.yaml"
  [ "$way" = train ] || sed "s|MODEL|$model|" "$here/distill.yaml" >> "$out.yaml"
  "$vitrine" "$way" "$out.yaml" --resume > "$out.log" 2>&1
done
python3 "$here/curve.py" curve-train/metrics.jsonl curve-distill/metrics.jsonl > "$here/curve.json"
