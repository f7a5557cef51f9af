#include "train/comm.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "train/mpi/module.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

// What launchers tell the processes they start: Open MPI's, MPICH's and Intel's (hydra, and Slurm's PMI-2), Slurm's PMIx.
constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
constexpr const char* kPmix = "PMIX_RANK";

struct Launched {
  std::string by;     // the variable that says so; empty: by no launcher
  int64_t ranks = 0;  // 0: it does not say
};

Launched launched() {
  for (const char* name : kSizes)
    if (const char* text = std::getenv(name)) return {name, std::strtoll(text, nullptr, 10)};
  if (std::getenv(kPmix) == nullptr) return {};
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})  // PMIx itself does not say how many
    if (const char* text = std::getenv(name)) return {kPmix, std::strtoll(text, nullptr, 10)};
  return {kPmix, 0};
}

// Beside the program (a build folder), or in the library folder of where it is installed.
std::vector<std::string> places() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return {(program.parent_path() / kMpiModule).string(),
          (program.parent_path() / VITRINE_MODULE_FOLDER / kMpiModule).lexically_normal().string()};
}

}  // namespace

std::unique_ptr<Comm> join_ranks() {
  const Launched launcher = launched();
  if (launcher.by.empty() || launcher.ranks == 1) return std::make_unique<Comm>();
  const std::string started = "an MPI launcher started this process" +
                              (launcher.ranks > 0 ? " as one of " + std::to_string(launcher.ranks) : std::string()) + " (" +
                              launcher.by + " is set)";
  std::string looked;
  for (const std::string& path : places()) {
    looked += (looked.empty() ? "" : " and ") + path;
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    // Global, since MPI loads parts of its own that look for its symbols. Never closed: MPI ends with the process.
    void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) throw InputError(started + ", and " + std::string(::dlerror()) + ". Is Open MPI installed?");
    const auto version = reinterpret_cast<MpiModuleVersion>(::dlsym(module, kMpiModuleVersion));
    const auto join = reinterpret_cast<MpiModuleJoin>(::dlsym(module, kMpiModuleJoin));
    if (version == nullptr || join == nullptr || version() != std::string_view(kMpiModuleIs))
      throw InputError(path + ": belongs to " + (version != nullptr ? version() : "something else") + "; expected " +
                       kMpiModuleIs + ". Build or install the program and its MPI module together");
    std::unique_ptr<Comm> comm(join());
    if (launcher.ranks > 0 && comm->size() != launcher.ranks)
      throw InputError(started + ", and the MPI library that " + path + " uses sees " + std::to_string(comm->size()) +
                       ". Start it with the mpirun of the MPI that vitrine was built with");
    return comm;
  }
  throw InputError(started + ", and this vitrine has no MPI support: there is no " + looked +
                   ". Install the package vitrine-mpi, or build with Open MPI (Debian: libopenmpi-dev) and -DVITRINE_MPI=ON; or "
                   "start `vitrine train` without mpirun");
}

int cores_of_rank(const Comm& comm) {
  const int usable = usable_cores();
  if (comm.on_this_machine() == 1) return usable;
  // Launchers often bind each rank to cores of its own; what the machine has is then more than what this rank may use.
  cpu_set_t mine;
  const bool quota = ::sched_getaffinity(0, sizeof mine, &mine) == 0 && usable < CPU_COUNT(&mine);
  const auto machine = quota ? usable : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::clamp(machine / comm.on_this_machine(), 1, usable);
}

}  // namespace vitrine
