#!/usr/bin/env bash
# Makes docs/images/page.png, the README's picture of the page that `vitrine explain` writes.
#   make_readme_pictures.sh [PROGRAM]      (default: build/release/vitrine)
# Needs chromium and pngquant, both packages of Debian and Ubuntu.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/vitrine}
for tool in chromium pngquant; do
  command -v "$tool" > /dev/null || { echo "make_readme_pictures: $tool is missing; apt-get install $tool" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" explain "Once upon a time there was a king" --out "$work/page.html" > /dev/null
chromium --headless --no-sandbox --hide-scrollbars --force-color-profile=srgb --virtual-time-budget=5000 \
  --window-size=1280,690 --screenshot="$work/page.png" "file://$work/page.html" 2> /dev/null
mkdir -p docs/images
pngquant --force --strip --speed 1 64 --output docs/images/page.png "$work/page.png"
ls -l docs/images/page.png
