#!/usr/bin/env bash
# A student that learns from the shipped model beside the same student that learns from the text alone: the same tokens in
# the same order, the same fresh weights, three seeds. Prints the table of models/training/README.md.
#   models/training/student/compare.sh BUILD_DIR FOLDER
# FOLDER is made, or is one in which models/training/train.sh has worked, whose token data is then used. 5 minutes on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$(cd "$here/../../tales9m" && pwd)
corpus="$here/../../corpus"
vitrine=$(cd "$1" && pwd)/vitrine
mkdir -p "$2"
cd "$2"
[ -e tokens/valid/index.json ] || "$vitrine" data "$corpus/tales_train.txt.zst" --valid-files "$corpus/tales_valid.txt.zst" \
  --document '<|endoftext|>' --tokenizer "$model" --out tokens

# The loss on the validation data at the end of a run.
last_loss() { grep -o '"val_loss":[0-9.]*' "$1/metrics.jsonl" | tail -n 1 | cut -d : -f 2; }

echo "| seed | from the text alone | from the teacher |"
echo "| --- | --- | --- |"
for seed in 1 2 3; do
  for way in train distill; do
    out="student-$way-$seed"
    sed "s|MODEL|$model|; s|SEED|$seed|; s|OUT|$out|" "$here/student.yaml" > "$out.yaml"
    [ "$way" = train ] || sed "s|MODEL|$model|" "$here/distill.yaml" >> "$out.yaml"
    "$vitrine" "$way" "$out.yaml" --resume > "$out.log" 2>&1
  done
  echo "| $seed | $(last_loss "student-train-$seed") | $(last_loss "student-distill-$seed") |"
done
