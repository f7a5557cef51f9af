#!/usr/bin/env bash
# Tries what scripts/package.sh made in a fresh minimal system without a compiler, of the same release of Debian or Ubuntu as this
# one: unpacks the archive and moves it, installs the wheel where there is one, and asks the shipped model for a prediction each
# time. Needs root, debootstrap and its mirror (or VITRINE_MIRROR), for the wheel also PyPI; without them it says "not run" and exits
# 77, which counts as open, not as passed.
#   check_package.sh [DIST_DIR]     default: build/dist
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
dist=${1:-$source/build/dist}
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

not_run() {
  echo "check_package: not run: $1" >&2
  exit 77
}
[ "$(id -u)" = 0 ] || not_run "only root can make and enter another system"
command -v debootstrap > /dev/null || not_run "no debootstrap; Debian and Ubuntu: apt-get install debootstrap"
unshare --mount true 2> /dev/null || not_run "this machine lets nobody make a mount namespace"
archive=$(find "$dist" -name 'vitrine-*-linux-x86_64.tar.gz' | sort -V | tail -n 1)
wheel=$(find "$dist" -name 'vitrine-*manylinux*.whl' | sort -V | tail -n 1)
[ -n "$archive" ] || { echo "check_package: $dist holds no archive; make it with scripts/package.sh" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
root="$scratch/root"
mkdir "$root"
include=()
if [ -n "$wheel" ]; then
  include=(--include=python3-venv)
  # The wheel with what it depends on.
  python3 -m venv "$scratch/venv" || not_run "no venv; Debian and Ubuntu: apt-get install python3-venv"
  "$scratch/venv/bin/pip" download -q -d "$scratch/wheels" "$wheel" || not_run "the package index does not answer"
fi
debootstrap --variant=minbase "${include[@]}" "$release" "$root" ${VITRINE_MIRROR:+"$VITRINE_MIRROR"} > "$scratch/debootstrap.log" 2>&1 ||
  not_run "debootstrap fails: $(tail -n 1 "$scratch/debootstrap.log")"

# Runs a shell script in the new system. The mounts end with it.
# shellcheck disable=SC2016  # what it gets is for the shell in there
inside() {
  unshare --mount --propagation private bash -euc 'mount --rbind /proc "$1/proc" && exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 sh -euc "$2"' inside "$root" "$1"
}
# shellcheck disable=SC2016
inside 'for tool in cc gcc g++ clang; do if command -v "$tool"; then echo "this system has a compiler" >&2; exit 1; fi; done'

predicts() {  # what the program in the file printed
  if grep -q there "$1" && [ "$(wc -l < "$1")" -eq 3 ]; then return; fi
  echo "check_package: not the three predictions that were expected:" >&2
  cat "$1" >&2
  exit 1
}

tar -C "$root/opt" -xzf "$archive"
inside 'mv /opt/vitrine-* /srv/moved && ln -s /srv/moved/bin/vitrine /usr/bin/vitrine && cd / && vitrine --version >&2 && vitrine predict "Once upon a time" --top 3' > "$scratch/archive.out"
predicts "$scratch/archive.out"
inside 'if ldd /srv/moved/bin/vitrine | grep "=>" | grep -Ev "=> /(srv/moved/|.*/lib(c|m)\.so)"; then echo "these libraries are not in the archive" >&2; exit 1; fi'
cat "$scratch/archive.out"
echo "$(basename "$archive"): works in a minimal $release"

[ -n "$wheel" ] || exit 0
mv "$scratch/wheels" "$root/srv/wheels"
inside 'rm -r /srv/moved /usr/bin/vitrine && python3 -m venv /srv/venv && /srv/venv/bin/pip install -q --no-index --find-links /srv/wheels vitrine'
inside 'cd / && /srv/venv/bin/vitrine predict "Once upon a time" --top 3' > "$scratch/wheel.out"
diff "$scratch/archive.out" "$scratch/wheel.out"
inside "cd / && /srv/venv/bin/python -W error -c 'import vitrine; print(vitrine.load())'"
echo "$(basename "$wheel"): works in a minimal $release"
