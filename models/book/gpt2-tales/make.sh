#!/usr/bin/env bash
# Makes models/book/gpt2-tales once more: vocabulary, token data, training, weights in f16 and the story of the run.
#   models/book/gpt2-tales/make.sh BUILD_DIR FOLDER [STEPS]
# FOLDER is made. STEPS, such as 16, trains only so far (a trial of the script). What was interrupted goes on where it stopped
# when the command is given again. The model and story.json are then in FOLDER/gpt2-tales.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: models/book/gpt2-tales/make.sh BUILD_DIR FOLDER [STEPS]. The script begins with what it makes." >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
corpus="$here/../../corpus"
vitrine=$(cd "$1" && pwd)/vitrine
mkdir -p "$2"
cd "$2"
all=$(sed -n 's/^steps: //p' "$here/recipe.yaml")
last=${3:-$all}

[ -e tokenizer/tokenizer.json ] || "$vitrine" tokenizer train "$corpus/tales_train.txt.zst" --kind byte-bpe --vocab-size 2048 \
  --special '<|endoftext|>' --document '<|endoftext|>' --show-merges --json --out tokenizer > merges.json
[ -e tokens/valid/index.json ] || "$vitrine" data "$corpus/tales_train.txt.zst" --valid-files "$corpus/tales_valid.txt.zst" \
  --document '<|endoftext|>' --tokenizer tokenizer --out tokens

# A step at rate 0 leaves the weights as they were drawn: the checkpoint of step 0.
if [ ! -e run-0/last ]; then
  sed -e 's/^steps: .*/steps: 1/' -e 's/ lr: [^,]*/ lr: 0/' -e 's/^out: .*/out: run-0/' "$here/recipe.yaml" > stage.yaml
  "$vitrine" train stage.yaml --resume
fi
steps=()
for ((step = 1; step < last; step *= 2)); do steps+=("$step"); done
steps+=("$last")
for step in "${steps[@]}"; do
  [ ! -e "run/step-$step/model.safetensors" ] || continue
  sed -e "s/^steps: .*/steps: $step/" "$here/recipe.yaml" > stage.yaml
  "$vitrine" train stage.yaml --resume
done
# After a trial the model is that of fewer steps.
if [ ! gpt2-tales/model.safetensors -nt "run/step-$last/model.safetensors" ]; then
  rm -rf converted
  "$vitrine" convert "run/step-$last" converted --dtype f16
  mkdir -p gpt2-tales
  mv converted/* gpt2-tales/
  rmdir converted
fi
python3 "$here/story.py" "$vitrine" . gpt2-tales/story.json
