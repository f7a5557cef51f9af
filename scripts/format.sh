#!/usr/bin/env bash
# Formats every C++ file; with --check only says which files would change.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-19 || true)
[ -n "$formatter" ] || { echo "clang-format-19 is missing. Debian and Ubuntu: apt-get install clang-format-19" >&2; exit 2; }
mapfile -t files < <(find src include tests bench examples python -name '*.cpp' -o -name '*.h' 2>/dev/null | sort)
if [ "${1:-}" = --check ]; then
  "$formatter" --dry-run -Werror "${files[@]}"
else
  "$formatter" -i "${files[@]}"
fi
