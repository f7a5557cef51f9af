#pragma once
// What the program asks of vitrine_mpi.so, which alone is linked to MPI: loaded when mpirun started `vitrine train`, so that
// nothing else pays for MPI's own start.
#include "train/comm.h"
#include "vitrine/version.h"

namespace vitrine {

inline constexpr const char* kMpiModule = "vitrine_mpi.so";
inline constexpr const char* kMpiModuleIs = "vitrine " VITRINE_VERSION;  // both must be of one build's version

/// extern "C" const char* vitrine_mpi_version(); returns kMpiModuleIs.
inline constexpr const char* kMpiModuleVersion = "vitrine_mpi_version";
using MpiModuleVersion = const char* (*)();
/// extern "C" vitrine::Comm* vitrine_mpi_join(); begins MPI; the caller owns the result, whose end ends MPI.
inline constexpr const char* kMpiModuleJoin = "vitrine_mpi_join";
using MpiModuleJoin = Comm* (*)();

}  // namespace vitrine
