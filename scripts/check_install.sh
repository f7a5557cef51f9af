#!/usr/bin/env bash
# Installs BUILD_DIR into a scratch folder, builds a client against it through find_package and through pkg-config, runs
# the installed program away from the source, and uninstalls again.
#   check_install.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
client=$(cd "$(dirname "$0")/../tests/project/client" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix="$scratch/prefix"

cmake --install "$build" --prefix "$prefix" > "$scratch/install.log"

cmake -S "$client" -B "$scratch/client" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release > "$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
cmake --build "$scratch/client" > "$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
echo "find_package: $("$scratch/client/client")"

libdir=$(dirname "$(find "$prefix" -name libvitrine.a)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046  # flags are words
"${CXX:-g++}" "$client/main.cpp" -o "$scratch/pkg_client" $(pkg-config --cflags --libs vitrine)
echo "pkg-config:   $("$scratch/pkg_client")"

echo "program:      $(cd / && "$prefix/bin/vitrine" --version | head -n 1)"
(cd / && "$prefix/bin/vitrine" predict "Once upon a time" --top 1 > /dev/null)

cmake -DBINARY="$build" -P "$(dirname "$0")/../cmake/uninstall.cmake" > /dev/null 2>&1
left=$(find "$prefix" -type f -o -type l | head)
[ -z "$left" ] || { echo "uninstall left: $left"; exit 1; }
echo "uninstall:    nothing left"
