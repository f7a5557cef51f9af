#!/usr/bin/env bash
# Unpacks the libraries that vitrine needs for 64-bit Arm from the archives of this Debian, for the preset aarch64. The
# packages of this system stay as they are: apt works in the given folder. Run it again at any time; a complete folder is kept. Without
# the archives it says "not run" and exits 77.
#   arm_sysroot.sh [FOLDER]     default: build/aarch64-sysroot
# VITRINE_ARM_ARCHIVE: a line as in sources.list, of another archive; Ubuntu has one of its own for Arm.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:-build/aarch64-sysroot}
mkdir -p "$root"
root=$(cd "$root" && pwd)
needed=(libc6-dev libcli11-dev libcurl4-openssl-dev libeigen3-dev libfmt-dev libgtest-dev libhwy-dev libpcre2-dev libssl-dev libstdc++6 libutf8proc-dev
  libyaml-cpp-dev libzstd-dev nlohmann-json3-dev zlib1g-dev)
if [ "$(cat "$root/complete" 2> /dev/null)" = "${needed[*]}" ]; then exit 0; fi

rm -rf --one-file-system "${root:?}"
apt="$root/apt"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$root/usr/lib"
ln -s usr/lib "$root/lib"  # some packages still name the old place
: > "$apt/status"
# Debian's archives hold every architecture; Ubuntu's do not, and its arm64 archive has to be named.
if [ -n "${VITRINE_ARM_ARCHIVE:-}" ]; then
  echo "$VITRINE_ARM_ARCHIVE" > "$apt/sources.list"
else
  # shellcheck disable=SC2016  # apt fills these in
  apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u > "$apt/sources.list"
fi
not_run() {
  echo "arm_sysroot: not run: $1" >&2
  exit 77
}
[ -s "$apt/sources.list" ] || not_run "no archive of Debian is known here. Name one of 64-bit Arm as in sources.list:
  VITRINE_ARM_ARCHIVE='deb URL SUITE COMPONENT'; or give the preset a sysroot of your own: cmake --preset aarch64 -DCMAKE_SYSROOT=FOLDER"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o Dir::State="$apt/state" -o Dir::State::status="$apt/status"
  -o Dir::Cache="$apt/cache" -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Debug::NoLocking=1)
apt-get "${options[@]}" -o APT::Update::Error-Mode=any update || not_run "the archives of 64-bit Arm do not answer"
apt-get "${options[@]}" install -y --no-install-recommends --download-only "${needed[@]}" > /dev/null || not_run "a package does not come"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink --no-same-owner
done
rm -rf --one-file-system "$apt"
echo "${needed[*]}" > "$root/complete"
