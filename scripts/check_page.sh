#!/usr/bin/env bash
# The pages of `vitrine explain` and `vitrine serve`: their committed bundles are what their source and lock file give, and they
# pass their tests in a real browser. With a program, the pages that `explain` makes of the shipped model and of one model of each
# kind are tested too, the commands that they offer are run, and the page of `serve` talks to a server. The working tree stays as it is: everything is written to web/out, which git ignores.
#   check_page.sh [PROGRAM]
# Needs Node 20.19 or later and npm; without them it says "not run" and exits 77, which counts as open, not as passed. Chromium
# (its headless shell) is installed by apt where it is missing and this may be done.
set -euo pipefail
program=${1:+$(cd "$(dirname "$1")" && pwd)/$(basename "$1")}
cd "$(dirname "$0")/../web"

not_run() {
  echo "check_page: not run: $1" >&2
  exit 77
}

if ! command -v node > /dev/null || ! command -v npm > /dev/null; then
  not_run "Node and npm are not installed; the page needs Node 20.19 or later"
fi
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
  not_run "Node $(node --version) is older than 20.19"
# The headless shell is preferred: the same engine, and it opens a page in half the time. Any other Chromium works too.
find_browser() {
  local name
  browser=${VITRINE_CHROMIUM:-}
  for name in "$@"; do browser=${browser:-$(command -v "$name" || true)}; done
}
find_browser chromium-headless-shell
if [ -z "$browser" ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  apt-get install -y --no-install-recommends chromium-headless-shell > /dev/null 2>&1 || true
  find_browser chromium-headless-shell chromium chromium-browser google-chrome
  if [ -z "$browser" ]; then apt-get install -y --no-install-recommends chromium > /dev/null || not_run "apt-get cannot install chromium"; fi
fi
find_browser chromium-headless-shell chromium chromium-browser google-chrome
[ -n "$browser" ] || not_run "no Chromium; install it or set VITRINE_CHROMIUM"
export VITRINE_CHROMIUM=$browser

npm ci --no-audit --no-fund || not_run "npm cannot fetch the packages of web/package-lock.json"
npm run check
# The bundle is built beside the committed one, so that nothing in the working tree changes.
mkdir -p out
npx vite build --outDir out/dist
npx vite build --outDir out/dist --mode chat
npx vite build --outDir out/dist --mode served
diff -r -x engine.wasm dist out/dist > /dev/null || { echo "check_page: web/dist is not what its source gives; run 'npm run build' in web/ and commit web/dist" >&2; exit 1; }

if [ -n "$program" ]; then
  golden=$PWD/../tests/golden/models
  page() {
    local name=$1
    shift
    "$program" explain "$@" --out "out/$name.html"
    VITRINE_PAGES=${VITRINE_PAGES:+$VITRINE_PAGES:}$PWD/out/$name.html
  }
  page tales 'Once upon a time there was a little girl who'
  # Raw ids need no tokenizer: a page without pieces.
  page tales-ids --tokens 2,300,301,302,303
  # One token: no head has a flatness.
  page tales-one --tokens 2
  page gpt2 'The quick brown fox' --model "$golden/gpt2_a/model"
  page gemma2 'The quick brown fox jumps over it' --model "$golden/gemma2/model"
  page llama 'The quick brown fox' --model "$golden/llama/model"
  page mixtral "The quick brown fox" --model "$golden/mixtral/model"
  page classic --tokens 5,3,7,9,11,2,8 --model "$golden/classic_post/model"
  # 2,000 tokens, which is more than the shipped model was trained for: its rotary positions go on.
  rm -rf out/long-context
  mkdir out/long-context
  cp ../models/tales9m/* out/long-context/
  sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 4096/' out/long-context/config.json
  page tales-long --tokens "2$(for ((i = 0; i < 1999; ++i)); do echo -n ",$((260 + i * 7919 % 3800))"; done)" --model out/long-context
  export VITRINE_PAGES VITRINE_PROGRAM=$program
fi
# As many files at a time as there are cores, the longest first. A file that fails is run once more by itself; what fails twice counts.
run_file() {
  local log
  log=out/log/$(basename "$1" .mjs)
  node --test "$1" > "$log" 2>&1 || echo "$1" >> out/log/failed
  flock out/log cat "$log"
}
export -f run_file
rm -rf out/log
mkdir -p out/log
longest=(test/{states,real,page,live,program,chat}.test.mjs)
{ printf '%s\n' "${longest[@]}" && printf '%s\n' test/*.test.mjs | grep -vxF "$(printf '%s\n' "${longest[@]}")"; } |
  xargs -P "$(nproc)" -I FILE bash -c 'run_file FILE'
[ ! -e out/log/failed ] || while read -r file; do
  echo "-- once more: $file"
  node --test "$file" < /dev/null
done < out/log/failed
