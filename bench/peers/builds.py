"""Builds of the other programs, each from its source package on PyPI, for this very machine."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

# package: the folder of the C++ project in its archive, what configures it beyond the common flags
SOURCES = {
    "llama.cpp": ("llama-cpp-python", "vendor/llama.cpp", ["-DLLAMA_BUILD_TOOLS=ON", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_MTMD=OFF"]),
    # Attention for f16 and q8_0 caches alone: that for every pair of types takes longer to compile than all the rest.
    "ik_llama.cpp": ("ik-llama-cpp-python", "vendor/ik_llama.cpp", ["-DLLAMA_BUILD_EXAMPLES=ON", "-DGGML_IQK_FA_ALL_QUANTS=OFF"]),
}
COMMON = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
# The instructions that a build may use, by vitrine's name of the target (VITRINE_TARGET); none: all that this machine has.
TARGETS = {
    None: ["-DGGML_NATIVE=ON"],
    "avx2": ["-DGGML_NATIVE=OFF", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON",
             "-DGGML_AVX_VNNI=OFF", "-DGGML_AVX512=OFF"],
}
PROGRAMS = ["llama-bench", "llama-batched-bench", "llama-quantize"]


def run(command, **more):
    print("+", " ".join(str(c) for c in command), file=sys.stderr, flush=True)
    subprocess.run([str(c) for c in command], check=True, stdout=sys.stderr, **more)


def source_of(package, folder):
    """The unpacked source package, fetched once."""
    unpacked = sorted(folder.glob(package.replace("-", "_") + "-*/"))
    if unpacked:
        return unpacked[-1]
    run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d", folder, package])
    archive = sorted(folder.glob(package.replace("-", "_") + "-*.tar.gz"))[-1]
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    archive.unlink()
    return sorted(folder.glob(package.replace("-", "_") + "-*/"))[-1]


def compiler_flags():
    """clang where there is AMX: what GCC 12 makes of llama.cpp's tile code does not run."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        has_tiles = "amx_tile" in info.read()
    if not has_tiles:
        return []
    for version in ("-19", "-18", "-17", "-16", ""):
        if shutil.which(f"clang{version}"):
            return [f"-DCMAKE_C_COMPILER=clang{version}", f"-DCMAKE_CXX_COMPILER=clang++{version}"]
    return []


def mend(source):
    """What ik_llama.cpp's source package lacks: the script that writes the file of its build number."""
    script = source / "common/cmake/build-info-gen-cpp.cmake"
    if (source / "common/build-info.cpp.in").exists() and not script.exists():
        script.parent.mkdir(exist_ok=True)
        script.write_text('file(WRITE ${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp "int LLAMA_BUILD_NUMBER = 0;\n'
                          'char const * LLAMA_COMMIT = \\"\\";\nchar const * LLAMA_COMPILER = \\"\\";\nchar const * LLAMA_BUILD_TARGET = \\"\\";\n")\n')


def programs_of(name, folder, target=None):
    """The folder of a peer's programs, built for `target`; builds them if they are not there."""
    folder = pathlib.Path(folder)
    build = folder / (f"{name}-{target}" if target else name)
    programs = build / "bin"
    if all((programs / p).exists() for p in PROGRAMS):
        return programs
    package, inside, more = SOURCES[name]
    source = source_of(package, folder) / inside
    mend(source)
    run(["cmake", "-S", source, "-B", build, "-G", "Ninja", *COMMON, *TARGETS[target], *more, *compiler_flags()])
    run(["ninja", "-C", build, f"-j{os.cpu_count()}", *PROGRAMS])
    return programs
