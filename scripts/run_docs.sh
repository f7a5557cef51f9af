#!/usr/bin/env bash
# Runs the commands of Markdown files as a reader would, from the top of the repository.
#   run_docs.sh BUILD_DIR FILE.md...
# Every block fenced as ```sh runs in a scratch folder where build/release is BUILD_DIR; files that it writes stay there
# and the next block of the same file sees them. It must exit with 0. A block fenced as ```sh exit=2 must exit with 2. A
# block fenced as ```sh skip="why" is not run. A block fenced as ```output must equal what the block before it wrote to
# standard output, where a line ... stands for any lines.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build_dir=$(cd "$1" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ran=0 skipped=0 failed=0

fail() {
  echo "FAILED $1"
  failed=$((failed + 1))
}

# matches EXPECTED ACTUAL: line by line, "..." standing for any number of lines.
matches() {
  awk -v expected="$1" '
    BEGIN { while ((getline line < expected) > 0) want[++n] = line }
    { have[++m] = $0 }
    END {
      i = 1
      for (j = 1; j <= n; ++j) {
        if (want[j] == "...") { any = 1; continue }
        if (any) { while (i <= m && have[i] != want[j]) ++i; any = 0 }
        if (i > m || have[i] != want[j]) { printf "expected: %s\nfound:    %s\n", want[j], (i > m) ? "(nothing more)" : have[i]; exit 1 }
        ++i
      }
      if (!any && i <= m) { printf "found more: %s\n", have[i]; exit 1 }
    }' "$2"
}

for file in "$@"; do
  name=$(realpath --relative-to="$source_dir" "$file")
  work="$scratch/work" blocks="$scratch/blocks"
  rm -rf "$work" "$blocks"
  mkdir -p "$work/build" "$blocks"
  ln -s "$build_dir" "$work/build/release"
  for entry in models tests examples scripts CMakeLists.txt; do [ ! -e "$source_dir/$entry" ] || ln -s "$source_dir/$entry" "$work/$entry"; done
  # Blocks become NNN.head (line number and fence), NNN.body.
  awk -v out="$blocks" '
    /^```/ && !inside { inside = 1; wanted = /^```(sh|output)([ \t]|$)/; if (wanted) { base = sprintf("%s/%03d", out, ++n); print FNR, $0 > (base ".head"); printf "" > (base ".body") } next }
    /^```[ \t]*$/ && inside { inside = 0; if (wanted) { close(base ".head"); close(base ".body") } next }
    inside && wanted { print > (base ".body") }' "$file"
  for head in "$blocks"/*.head; do
    [ -e "$head" ] || continue
    read -r line fence < "$head"
    body="${head%.head}.body"
    case "$fence" in
      '```output'*)
        matches "$body" "$scratch/stdout" || fail "$name:$line: the output differs"
        continue ;;
      *skip=*)
        skipped=$((skipped + 1))
        echo "skipped $name:$line ${fence#*skip=}"
        continue ;;
    esac
    expected=0
    [[ "$fence" =~ exit=([0-9]+) ]] && expected=${BASH_REMATCH[1]}
    status=0
    (cd "$work" && bash -euo pipefail "$body") > "$scratch/stdout" 2> "$scratch/stderr" < /dev/null || status=$?
    ran=$((ran + 1))
    if [ "$status" -ne "$expected" ]; then
      fail "$name:$line: exit $status, expected $expected"
      sed 's/^/  | /' "$body"
      tail -n 20 "$scratch/stdout" "$scratch/stderr"
    fi
  done
done
echo "$ran blocks run, $skipped skipped, $failed failures"
[ "$ran" -gt 0 ] && [ "$failed" -eq 0 ]
