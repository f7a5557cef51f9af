from pathlib import Path
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.gnu import PkgConfigDeps


class Vitrine(ConanFile):
    name = "vitrine"
    description = "A transformer language-model system that shows its inside"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "compiler", "build_type", "arch"
    requires = "cli11/2.4.2", "eigen/3.4.0", "fmt/10.2.1", "highway/1.2.0", "libcurl/8.10.1", "nlohmann_json/3.11.3", "openssl/3.3.2", "pcre2/10.44", "utf8proc/2.9.0", "yaml-cpp/0.7.0", "zlib/1.3.1", "zstd/1.5.5"
    exports = "CMakeLists.txt"
    exports_sources = "CMakeLists.txt", "CMakePresets.json", "cmake/*", "src/*", "include/*", "models/*", "*.md", "LICENSE"

    def set_version(self):  # the version stands in CMakeLists.txt only
        text = Path(self.recipe_folder, "CMakeLists.txt").read_text()
        self.version = re.search(r"project\(vitrine VERSION ([0-9.]+)", text).group(1)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()  # libcurl, libcrypto, pcre2, utf8proc, yaml-cpp, zlib and zstd are found through pkg-config
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["VITRINE_TESTS"] = False
        toolchain.cache_variables["VITRINE_BENCH"] = False
        toolchain.cache_variables["VITRINE_MPI"] = "OFF"  # of the program; the package is the library
        toolchain.cache_variables["VITRINE_SERVE"] = "OFF"  # the same
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # our own vitrineConfig.cmake
        self.cpp_info.builddirs.append("lib/cmake/vitrine")
        self.cpp_info.libs = ["vitrine"]
