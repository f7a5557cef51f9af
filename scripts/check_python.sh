#!/usr/bin/env bash
# Installs the Python package with `pip install .` into a fresh environment, looks at what was installed, checks its types, runs its
# tests and the examples. Exit code 77, with a line that says what is missing, where it cannot run.
#   check_python.sh [BUILD_DIR]     default: build/python
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$source/build/python}"
build=$(cd "${1:-$source/build/python}" && pwd)
python=${PYTHON:-python3}

not_run() {
  echo "python package: not run ($1)" >&2
  exit 77
}
command -v "$python" > /dev/null || not_run "$python is not installed"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || not_run "$("$python" --version) is older than 3.10"
"$python" -c 'import venv, ensurepip' 2> /dev/null || not_run "no venv; Debian and Ubuntu: apt-get install python3-venv"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  not_run "no Python.h; Debian and Ubuntu: apt-get install python3-dev"

"$python" -m venv --clear "$build/venv"
installed="$build/venv/bin/python"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$installed" -m pip download -q --no-deps -d "$build/index" nanobind > "$build/index.log" 2>&1 ||
  not_run "the package index does not answer: $(tail -n 1 "$build/index.log")"

# What `pip install .` does, in its two steps: scripts/package.sh can take the wheel. The build folder is kept, so that what did not
# change is not built again; with a compiler cache, and named as CMake names the compiler by itself, what the release build has
# compiled is not either.
rm -rf "$build/wheel"
CXX=${CXX:-c++} "$installed" -m pip wheel -q --no-deps -w "$build/wheel" -C build-dir="$build" -C cmake.define.VITRINE_WERROR=ON "$source" \
  > "$build/install.log" 2>&1 || { tail -n 60 "$build/install.log"; exit 1; }
"$installed" -m pip install -q "$build"/wheel/vitrine-*.whl

cd "$build"  # away from the source, so that the installed package is what runs
"$installed" - "$source" << 'CHECK'
import importlib.metadata, pathlib, re, sys
source = pathlib.Path(sys.argv[1])
package = importlib.metadata.distribution("vitrine")
files = {str(f): f for f in package.files}
for wanted in ("vitrine/__init__.py", "vitrine/py.typed", "vitrine/_vitrine.pyi", "vitrine/models/tales9m/model.safetensors",
               "vitrine/vitrine"):
    assert wanted in files, f"the wheel lacks {wanted}"
for name in ("LICENSE", "THIRD_PARTY.md"):
    found = [f for path, f in files.items() if path.endswith(f".dist-info/licenses/{name}")]
    assert found and found[0].read_text() == (source / name).read_text(), f"the wheel lacks {name}"
assert package.metadata["License-Expression"] == "Apache-2.0", package.metadata["License-Expression"]
version = re.search(r"project\(vitrine VERSION ([0-9.]+)", (source / "CMakeLists.txt").read_text())[1]
import vitrine
assert package.version == vitrine.__version__ == version, (package.version, vitrine.__version__, version)
assert "site-packages" in vitrine.__file__, vitrine.__file__
stub = files["vitrine/_vitrine.pyi"].read_text()
for name in ("class Session", "class Tokenizer", "class TextStream", "def run(", "def weight("):
    assert name in stub, f"the type stub lacks {name}"
strangers = sorted({path.split("/")[0] for path in files if not path.startswith(("vitrine/", "vitrine-")) and not path.endswith("/bin/vitrine")})
assert not strangers, f"the wheel installs {strangers} beside the package"
print(f"installed: vitrine {version}, {len(files)} files, {sum(f.size or 0 for f in files.values()) / 1e6:.1f} MB")
CHECK

"$build/venv/bin/vitrine" predict "Once upon a time" --top 1 | grep -q there || { echo "the command vitrine does not predict" >&2; exit 1; }
# Types, of the package as installed. NumPy's version is part of them.
"$installed" -m pip install -q 'mypy==1.18.2' 'numpy==2.4.6; python_version >= "3.11"'
"$installed" -m mypy --config-file "$source/pyproject.toml"
# The documents' programs too, by mypy and by pyright, as strictly as both can.
"$installed" - "$source" "$build/programs" << 'WRITE'
import pathlib, re, shutil, sys
source, programs = map(pathlib.Path, sys.argv[1:])
shutil.rmtree(programs, ignore_errors=True)
programs.mkdir()
for page in [source / "README.md", *sorted(source.glob("docs/*.md"))]:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if blocks and page.stem not in ("http-api", "induction"):  # another package's; lines that go on from another program
        (programs / (page.stem.replace("-", "_") + ".py")).write_text("\n".join(blocks), encoding="utf-8")
shutil.copy(source / "python/tests/types_of_results.py", programs)
(programs / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
WRITE
"$installed" -m mypy --strict "$build"/programs/*.py
if command -v npm > /dev/null; then
  npm install --silent --no-save --prefix "$build/node" pyright@1.1.414 > "$build/npm.log" 2>&1 || { cat "$build/npm.log"; exit 1; }
  "$build/node/node_modules/.bin/pyright" --pythonpath "$installed" --project "$build/programs"
else
  echo "pyright: not run (no npm)" >&2
fi

"$installed" -W error -m unittest discover -s "$source/python/tests"
"$installed" "$source/examples/induction_head.py"
"$installed" "$source/examples/update_scales.py" --out "$build/update_scales.svg"
VITRINE="$build/venv/bin/vitrine" "$installed" "$source/scripts/run_notebook.py" "$source"/examples/notebooks/*.ipynb
"$installed" - "$build/update_scales.svg" << 'CHECK'
import sys, xml.etree.ElementTree
dots = [e for e in xml.etree.ElementTree.parse(sys.argv[1]).iter() if e.tag.endswith("circle")]
assert len(dots) == 2 * 8 + 2, f"the picture has {len(dots)} dots; expected two for each of 8 layers, and the legend's"
CHECK
echo "python package: all passed"
