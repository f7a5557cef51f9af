#!/usr/bin/env bash
# Makes the tuned lens of the shipped model once more (docs/tuned-lens.md).
#   models/training/lens.sh BUILD_DIR FILE [STEPS]
# On two cores of 2.3 to 2.6 GHz with AVX-512 it takes some minutes. STEPS, such as 4, learns less (a trial of the script).
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: models/training/lens.sh BUILD_DIR FILE [STEPS]. The script begins with what it makes." >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
"$1/vitrine" lens train "$here/../corpus/tales_train.txt.zst" --model "$here/../tales9m" --document '<|endoftext|>' \
  --max-tokens 300000 --steps "${3:-120}" --batch 8 --context 128 --held-out 16 --lr 0.002 --seed 1 --type f16 --out "$2"
