#!/usr/bin/env bash
# Writes the pages of the C++ interface, from the comments of the public headers, to build/api/html/index.html.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v doxygen > /dev/null || { echo "api_page.sh: doxygen is missing. Debian and Ubuntu: apt-get install doxygen" >&2; exit 2; }
mkdir -p build/api
version=$(sed -n 's/^project(vitrine VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
{ cat Doxyfile; echo "PROJECT_NUMBER = $version"; } | doxygen -
echo "build/api/html/index.html"
