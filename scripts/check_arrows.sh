#!/usr/bin/env bash
# The folders of src/ depend on each other in one direction: an include may only point where a vitrine_folder(...) or
# vitrine_in_wing(...) line of its wing's CMakeLists.txt points, directly or through others; and no wing points at one after it.
# Public headers include the standard library and each other,
# and no type inside the library has the name of a public one: both would be vitrine::Name to the linker.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find src include -name '*.h' -o -name '*.cpp' -o -name '*.inc' | sort)

awk '
  FNR == 1 { split(FILENAME, part, "/") }
  # Pass 1: the arrows.
  FILENAME ~ /CMakeLists.txt$/ {
    if (match($0, /^[ \t]*vitrine_(folder|in_wing)\(/)) {
      line = substr($0, RLENGTH + 1); sub(/\).*/, "", line)
      n = split(line, word, " ")
      known[word[1]] = 1
      wing[word[1]] = part[2]
      for (i = 2; i <= n; ++i) arrow[word[1], word[i]] = 1
    }
    next
  }
  # The first source line: close the arrows over paths.
  !closed {
    closed = 1
    for (k in known) for (a in known) for (b in known) if (((a, k) in arrow) && ((k, b) in arrow)) arrow[a, b] = 1
    for (k in known) for (a in known) for (b in known) if (((a, k) in arrow) && ((k, b) in arrow)) arrow[a, b] = 1
    for (a in known) if ((a, a) in arrow) { printf "src/%s/CMakeLists.txt: %s points back at itself\n", wing[a], a; bad = 1 }
    rank["engine"] = 1; rank["lab"] = 2; rank["app"] = 3
    for (a in known) for (b in known) if (((a, b) in arrow) && rank[wing[a]] < rank[wing[b]]) {
      printf "src/%s/CMakeLists.txt: %s points at %s of %s\n", wing[a], a, b, wing[b]; bad = 1
    }
  }
  /^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quote, "\""); target = quote[2]
    if (part[1] == "include") {
      if (target !~ /^vitrine\//) { printf "%s:%d: a public header includes \"%s\"\n", FILENAME, FNR, target; bad = 1 }
      next
    }
    folder = part[3]; slash = index(target, "/"); to = slash ? substr(target, 1, slash - 1) : ""
    if (to in known && to != folder && !((folder, to) in arrow)) {
      printf "%s:%d: may not include \"%s\" (src/%s/CMakeLists.txt gives %s no arrow to %s)\n", FILENAME, FNR, target, wing[folder], folder, to
      bad = 1
    }
    ++seen
  }
  part[1] == "include" && /^[ \t]*#[ \t]*include[ \t]*<.*[\/.].*>/ { printf "%s:%d: a public header needs a library: %s\n", FILENAME, FNR, $0; bad = 1 }
  END {
    if (!seen) { print "check_arrows.sh: found no includes to check"; exit 1 }
    if (!bad) printf "folder arrows: %d includes checked\n", seen
    exit bad
  }
' src/{engine,lab,app}/CMakeLists.txt "${files[@]}"

# Inside src/app/picture: data includes neither the drawings nor the page, and the drawings not the page, which shows a still of one.
inside() {
  if grep -rnE "#include \"picture/($2)/" "src/app/picture/$1"; then
    echo "src/app/picture/$1 may not include these"
    exit 1
  fi
}
inside data 'svg|page'
inside svg page

clash=0
mapfile -t names < <(grep -hoE '^(struct|class) [A-Za-z]+' include/vitrine/*.h | awk '{ print $2 }' | sort -u)
for name in "${names[@]}"; do
  if grep -rnE "^(struct|class) $name\b[^;]*\{" src --include='*.h' --include='*.cpp' --exclude-dir=cli --exclude-dir=api; then
    echo "a public header already has the name $name"
    clash=1
  fi
done
exit $clash
