#!/usr/bin/env bash
# Installs BUILD_DIR into a scratch folder, builds a client against it through find_package and through pkg-config, runs
# the installed program away from the source, and uninstalls again.
#   check_install.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
client="$source/tests/project/client"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix="$scratch/prefix"

cmake --install "$build" --prefix "$prefix" > "$scratch/install.log"

cmake -S "$client" -B "$scratch/client" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release > "$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
cmake --build "$scratch/client" > "$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
model="$prefix/share/vitrine/models/tales9m"
(cd / && "$scratch/client/client" "$model") > "$scratch/client.out"
echo "find_package: $(tail -n 1 "$scratch/client.out")"
# The manual's page shows this client and what it prints.
block() { awk -v fence="\`\`\`$1" '$0 == fence && !seen { inside = seen = 1; next } $0 == "```" { inside = 0 } inside' "$source/docs/library.md"; }
diff <(block cpp) "$client/main.cpp" || { echo "docs/library.md shows another client"; exit 1; }
# Digits may differ in the last place between kernels.
diff <(block text | sed 's/[0-9]*\.[0-9]*//g') <(sed 's/[0-9]*\.[0-9]*//g' "$scratch/client.out") || { echo "docs/library.md shows other output"; exit 1; }

libdir=$(dirname "$(find "$prefix" -name libvitrine.a)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046  # flags are words
"${CXX:-g++}" "$client/main.cpp" -o "$scratch/pkg_client" $(pkg-config --cflags --libs vitrine)
echo "pkg-config:   $("$scratch/pkg_client" "$model" | tail -n 1)"

echo "program:      $(cd / && "$prefix/bin/vitrine" --version | head -n 1)"
(cd / && "$prefix/bin/vitrine" predict "Once upon a time" --top 1 > /dev/null)

cmake -DBINARY="$build" -P "$source/cmake/uninstall.cmake" > /dev/null 2>&1
left=$(find "$prefix" -type f -o -type l | head)
[ -z "$left" ] || { echo "uninstall left: $left"; exit 1; }
echo "uninstall:    nothing left"
