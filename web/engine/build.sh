#!/usr/bin/env bash
# Builds the engine of live pages, web/dist/engine.wasm, which `vitrine explain --live` puts into its pages.
#   build.sh [OUT]      OUT: where the module goes; default: web/dist/engine.wasm
# Needs CMake, Ninja, Python 3 with venv, apt-get with Debian's or Ubuntu's sources, and the headers that scripts/setup.sh
# installs. The compiler is Zig's clang from PyPI, of the version below; nobody needs it to build vitrine.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-web/dist/engine.wasm}
build=$PWD/build/wasm
zig_version=0.17.1
mkdir -p "$build/sources" "$build/headers"

# The compiler, the C library and the sources of the C++ library.
[ -x "$build/venv/bin/python" ] || python3 -m venv "$build/venv"
"$build/venv/bin/pip" install --quiet --disable-pip-version-check "ziglang==$zig_version"
zig=$("$build/venv/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')
for tool in cc c++ ar ranlib; do
  target=()
  [[ $tool == c* ]] && target=(-target wasm32-wasi)
  printf '#!/bin/sh\nexec %q %s %s "$@"\n' "$zig/zig" "$tool" "${target[*]}" > "$build/$tool"
  chmod +x "$build/$tool"
done

# The sources of what the system has as libraries of its own machine, without touching its list of sources.
cd "$build/sources"
if [ ! -e .complete ]; then
  mkdir -p lists/partial archives/partial
  # shellcheck disable=SC2016  # apt-get's own variables
  apt-get indextargets --format '$(ORIGIN) deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -nE 's/^(Debian|Ubuntu) (deb-src [^ ]+ [a-z]+ .*)/\2/p' | sort -u > sources.list  # the release itself, without updates
  apt=(apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists"
    -o Dir::Cache="$PWD" -o APT::Sandbox::User=)
  "${apt[@]}" update
  "${apt[@]}" source --download-only pcre2 utf8proc yaml-cpp
  for package in pcre2 utf8proc yaml-cpp; do
    mkdir -p "$package"
    tar -xf "$package"_*.orig.tar.* --strip-components=1 -C "$package"
  done
  touch .complete
fi
for header in nlohmann fmt hwy eigen3; do ln -sfn "/usr/include/$header" "$build/headers/$header"; done

cd "$build/../.."
rm -rf "$build/module"  # the module is committed: no object in it may be older than a header that it includes
cmake -S web/engine -B "$build/module" -G Ninja -Wno-dev -DCMAKE_SYSTEM_NAME=Generic -DCMAKE_SYSTEM_PROCESSOR=wasm32 \
  -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DCMAKE_C_COMPILER="$build/cc" -DCMAKE_CXX_COMPILER="$build/c++" \
  -DCMAKE_AR="$build/ar" -DCMAKE_RANLIB="$build/ranlib" -DVITRINE_ZIG="$zig" -DVITRINE_SOURCES="$build/sources" \
  -DVITRINE_HEADERS="$build/headers" > "$build/configure.log"
cmake --build "$build/module"
cp "$build/module/engine.wasm" "$out.part"
mv "$out.part" "$out"
ls -l "$out"
