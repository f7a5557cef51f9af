#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 to a prediction: installs what is missing through apt, builds, and asks the
# shipped model what comes next. Run it again at any time; it does only what is still to be done.
set -euo pipefail
cd "$(dirname "$0")/.."

needed=(g++ cmake ninja-build pkg-config nlohmann-json3-dev libcli11-dev libeigen3-dev libcurl4-openssl-dev libfmt-dev libhwy-dev libopenmpi-dev openmpi-bin libpcre2-dev libssl-dev libutf8proc-dev libyaml-cpp-dev libzstd-dev zlib1g-dev libgtest-dev openssl python3)

say() { printf '== %s\n' "$*"; }

is_installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

if command -v apt-get >/dev/null; then
  missing=()
  for package in "${needed[@]}"; do is_installed "$package" || missing+=("$package"); done
  # Boost's headers, for `vitrine serve` alone. The packages of its versions exclude each other, so one that is installed stays.
  if [ ! -e /usr/include/boost/version.hpp ]; then
    boost=libboost-dev
    ! apt-cache show libboost1.81-dev >/dev/null 2>&1 || boost=libboost1.81-dev  # Debian 12's libboost-dev is too old
    missing+=("$boost")
  fi
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
      command -v sudo >/dev/null || { echo "Neither root nor sudo. Ask an administrator for: apt-get install ${missing[*]}" >&2; exit 1; }
      as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}" >/dev/null
  fi
else
  say "no apt-get here; the build needs these Debian packages under your system's names: ${needed[*]}; and Boost's headers for vitrine serve"
fi

say "building (build/release)"
cmake --preset release >/dev/null
cmake --build --preset release --target vitrine_program vitrine_manual -- -j "$(nproc)"

say "asking the shipped model"
build/release/vitrine predict "In the middle of the forest there stood a house, and in the house lived"
