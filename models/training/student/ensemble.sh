#!/usr/bin/env bash
# The two students of curve.sh asked together and merged, on the fables of examples/fables.txt: what the two ways to combine models
# give for models that learned apart. A minute on two cores.
#   models/training/student/ensemble.sh BUILD_DIR FOLDER        FOLDER: that of curve.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vitrine=$(cd "$1" && pwd)/vitrine
fables="$here/../../../examples/fables.txt"
cd "$2"
cat > merge.yaml <<'RECIPE'
merge_method: linear
parameters: {weight: 0.5}
models:
- model: curve-train/best
- model: curve-distill/best
RECIPE
"$vitrine" merge merge.yaml merged --force
"$vitrine" eval perplexity --file "$fables" --context 256 --model curve-train/best --ensemble curve-distill/best --against merged
