#!/usr/bin/env bash
# Makes a web site for any static host: the book (vitrine book), and the documents beside it as docs/.
#   make_site.sh OUTDIR [--program PROGRAM] [-- ARGUMENTS OF vitrine book]
# PROGRAM: default build/release/vitrine. The documents need python3 with venv; MkDocs and its theme come from PyPI.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
mkdocs_material=9.8.2
usage() {
  echo "usage: make_site.sh OUTDIR [--program PROGRAM] [-- ARGUMENTS OF vitrine book]" >&2
  exit 2
}
case ${1:--} in -*) usage ;; esac
out=$1
shift
program=$source/build/release/vitrine
if [ "${1:-}" = --program ]; then
  program=${2:?--program needs a path}
  shift 2
fi
[ "${1:-}" != -- ] || shift
mkdir -p "$out"
out=$(realpath "$out")
# MkDocs empties the folder that it writes.
if [ -n "$(ls -A "$out/docs" 2>/dev/null)" ] && [ ! -e "$out/docs/sitemap.xml" ]; then
  echo "make_site.sh: $out/docs holds files that are no site of these documents, and they would be deleted; give another OUTDIR" >&2
  exit 2
fi
venv=$source/build/site-venv-$mkdocs_material
[ -x "$venv/bin/mkdocs" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "mkdocs-material==$mkdocs_material"; }
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --quiet --config-file "$source/packaging/site/mkdocs.yml" --site-dir "$out/docs"
"$program" book --out "$out" --documents docs/quickstart/index.html "$@"
