#!/usr/bin/env bash
# docs/command-line.md is what the program says of itself. With --write it is brought up to date.
#   check_command_line_page.sh BUILD_DIR [--write]
set -euo pipefail
program=$(cd "$1" && pwd)/vitrine
page=$(cd "$(dirname "$0")/.." && pwd)/docs/command-line.md
if [ "${2:-}" = --write ]; then
  "$program" manual --format markdown > "$page"
  exit
fi
"$program" manual --format markdown | diff -u "$page" - || { echo "Run: scripts/check_command_line_page.sh $1 --write" >&2; exit 1; }
