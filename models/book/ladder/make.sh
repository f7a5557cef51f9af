#!/usr/bin/env bash
# Trains the ladder of the book's fifth chapter: a model of attention alone, and what each further part changes.
#   models/book/ladder/make.sh BUILD_DIR FOLDER            the logs that ship here: about a minute a run on one core
#   models/book/ladder/make.sh BUILD_DIR FOLDER --short    a few steps of each run on the repository's fables
# FOLDER is made. Runs that are finished stay; what was interrupted goes on where it stopped. FOLDER/logs then holds the metrics
# of each run without rates of this machine, and FOLDER/ladder.json the summary that the pages read (summary.py). To ship them:
#   cp FOLDER/logs/*.jsonl.gz FOLDER/ladder.json models/book/ladder/
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: models/book/ladder/make.sh BUILD_DIR FOLDER [--short]. The script begins with what it makes." >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
vitrine=$(cd "$1" && pwd)/vitrine
short=${3:-}
mkdir -p "$2"
cd "$2"

if [ "$short" = --short ]; then
  steps=4 eval=2 layers=2 deep=3
  text="$here/../../../examples/fables.txt" between='\n\n\n' held=(--valid 0.2)
else
  steps=1000 eval=100 layers=20 deep=60
  text="$here/../../corpus/tales_train.txt.zst" between='<|endoftext|>' held=(--valid-files "$here/../../corpus/tales_valid.txt.zst")
fi
[ -e tokenizer/tokenizer.json ] || "$vitrine" tokenizer train "$text" --vocab-size 1024 --special '<|endoftext|>' --document "$between" --out tokenizer
[ -e tokens/train/index.json ] || "$vitrine" data "$text" "${held[@]}" --document "$between" --tokenizer tokenizer --out tokens

# A run of RECIPE with these lines of `model:`; its samples are kept beside it. One that diverges ends with an error, as it should.
rung() { # RECIPE RUN PARTS STEPS LAYERS [STD]
  [ ! -e "$2/done" ] || return 0
  sed -e "s/@PARTS@/$3/" -e "s/@STEPS@/$4/" -e "s/@EVAL@/$eval/" -e "s/@WARMUP@/$((eval / 2))/" -e "s/@LAYERS@/$5/" -e "s/@STD@/${6:-}/" -e "s/@RUN@/$2/" \
    "$here/$1" > "$2.yaml"
  local resume=
  [ ! -e "$2" ] || resume=--resume
  "$vitrine" train "$2.yaml" $resume > "$2.txt" 2>&1 || { [ "$2" = exploding ] && grep -q "not finite\|NaN" "$2.txt"; } || {
    cat "$2.txt" >&2
    exit 1
  }
  touch "$2/done"
}
rung ladder.yaml attention 'norms: off\n  residual: off\n  mlp: off' "$steps" "$layers"
rung ladder.yaml residual 'norms: off\n  mlp: off' "$steps" "$layers"
rung ladder.yaml norm 'mlp: off' "$steps" "$layers"
rung ladder.yaml mlp 'mlp: on' "$steps" "$layers"
rung ladder.yaml no-affine 'affine: off' "$steps" "$layers"
rung ladder.yaml no-positions 'positions: off' "$steps" "$layers"
rung ladder.yaml no-mask 'mask: off' "$steps" "$layers"
rung deep.yaml vanishing 'norms: off\n  residual: off' "$deep" 1 0.17
rung deep.yaml exploding 'norms: off' "$deep" 1 0.4
rung deep.yaml healthy 'norms: pre' "$deep" 1 0.02
python3 "$here/summary.py" . logs ladder.json
