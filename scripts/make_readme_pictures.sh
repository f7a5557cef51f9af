#!/usr/bin/env bash
# Makes docs/images/opening.svg, the README's moving picture: the drawing on the start page of the book.
#   make_readme_pictures.sh [PROGRAM]      PROGRAM: default build/release/vitrine
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-build/release/vitrine}" book --pages next-word --out "$work"
cp "$work/opening.svg" docs/images/opening.svg
ls -l docs/images/opening.svg
