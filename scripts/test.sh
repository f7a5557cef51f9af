#!/usr/bin/env bash
# Builds what scripts/setup.sh left out, the tests among it, and runs them all. Arguments go to ctest, such as -R tokenizer.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release -- -j "$(nproc)"
ctest --preset release -j "$(nproc)" "$@"
