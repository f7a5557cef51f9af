#!/usr/bin/env bash
# The page of `vitrine explain`: its committed bundle is what its source and lock file give, and it passes its tests in a real
# browser. With a program, pages of the shipped model are tested too.
#   check_page.sh [PROGRAM]
# Needs Node 20.19 or later and npm; without them it says "not run" and exits 77, which counts as open, not as passed. Chromium
# is installed by apt where it is missing and this may be done.
set -euo pipefail
program=${1:+$(cd "$(dirname "$1")" && pwd)/$(basename "$1")}
cd "$(dirname "$0")/../web"

not_run() {
  echo "check_page: not run: $1" >&2
  exit 77
}

command -v node > /dev/null && command -v npm > /dev/null || not_run "Node and npm are not installed; the page needs Node 20.19 or later"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
  not_run "Node $(node --version) is older than 20.19"
browser=${VITRINE_CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do browser=${browser:-$(command -v "$name" || true)}; done
if [ -z "$browser" ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || not_run "no Chromium; install it or set VITRINE_CHROMIUM"
  apt-get install -y --no-install-recommends chromium > /dev/null || not_run "apt-get cannot install chromium"
  browser=$(command -v chromium)
fi
export VITRINE_CHROMIUM=$browser

npm ci --no-audit --no-fund
npm run build
git diff --exit-code -- dist || { echo "check_page: web/dist is not what its source gives; commit what 'npm run build' writes" >&2; exit 1; }
[ -z "$(git status --porcelain -- dist)" ] || { echo "check_page: web/dist holds files that are not committed" >&2; exit 1; }

if [ -n "$program" ]; then
  mkdir -p out
  "$program" explain 'Once upon a time there was a little girl who' --out out/explained.html
  # Raw ids need no tokenizer: a page without pieces, on the same model.
  "$program" explain --tokens 2,300,301,302,303 --out out/explained-ids.html
  export VITRINE_PAGES=$PWD/out/explained.html:$PWD/out/explained-ids.html
fi
npm test
