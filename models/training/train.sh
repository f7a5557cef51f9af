#!/usr/bin/env bash
# Makes the model that ships once more: vocabulary, token data, training, rounding to bf16.
#   models/training/train.sh BUILD_DIR FOLDER
# FOLDER is made; it takes 360 MB. On two cores of 2.3 GHz with AVX-512 it takes 90 minutes. What was interrupted goes on
# where it stopped when the command is given again. The model is then in FOLDER/tales9m.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
corpus="$here/../corpus"
vitrine=$(cd "$1" && pwd)/vitrine
mkdir -p "$2"
cd "$2"
between='<|endoftext|>'

[ -e tokenizer/tokenizer.json ] || "$vitrine" tokenizer train "$corpus/tales_train.txt.zst" --kind sentencepiece-bpe \
  --vocab-size 6144 --user-defined '\n' --user-defined '\n\n' --split-digits --document "$between" --out tokenizer
[ -e tokens/valid/index.json ] || "$vitrine" data "$corpus/tales_train.txt.zst" --valid-files "$corpus/tales_valid.txt.zst" \
  --document "$between" --tokenizer tokenizer --out tokens
"$vitrine" train "$here/tales9m.yaml" --resume
[ -e "run/step-$(sed -n 's/^steps: //p' "$here/tales9m.yaml")" ] || exit 1  # it was interrupted and has saved what it learned so far
rm -rf tales9m
"$vitrine" convert run/last tales9m --dtype bf16
