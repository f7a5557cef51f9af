# The kernels: dispatch and reference for every CPU, and one object per instruction set this processor family has,
# each compiled with its own flags. No contraction: a sum's bits must not depend on which template copy computed it.
# Always optimized: a debug build would leave Highway's inline functions as weak symbols with this set's instructions.
# Less so under sanitizers, where -O3 takes GCC ten minutes; and without the checks of every pointer that
# keep the tiles' sums out of registers: the address sanitizer looks where pointers are used.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reference/*.cpp)
add_library(vitrine_kernels STATIC ${kernel_sources})
target_link_libraries(vitrine_kernels PUBLIC vitrine_flags vitrine_base PRIVATE hwy::hwy)

set(kernel_optimize -O3)
if(VITRINE_SANITIZE)
  set(kernel_optimize -O1)
  if(VITRINE_SANITIZE MATCHES undefined)
    list(APPEND kernel_optimize -fno-sanitize=null,alignment,object-size,pointer-overflow)
  endif()
endif()
function(vitrine_kernel_target folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${folder}/*.cpp)
  target_sources(vitrine_kernels PRIVATE ${sources})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${kernel_optimize};-ffp-contract=off;-fno-exceptions;${ARGN}")
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mpclmul -maes)  # the last two: Highway's own condition for AVX2
  target_compile_definitions(vitrine_kernels PUBLIC VITRINE_X86)
  vitrine_kernel_target(avx2 ${avx2})
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mavx512vnni)
  vitrine_kernel_target(avx512 ${avx512})
  vitrine_kernel_target(avx512_bf16 ${avx512} -mavx512bf16)
  vitrine_kernel_target(amx ${avx512} -mavx512bf16 -mamx-tile -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  target_compile_definitions(vitrine_kernels PUBLIC VITRINE_ARM)
  vitrine_kernel_target(neon)
  vitrine_kernel_target(neon_dot -march=armv8.2-a+dotprod)
  vitrine_kernel_target(neon_i8mm -march=armv8.2-a+dotprod+i8mm)
  vitrine_kernel_target(neon_bf16 -march=armv8.2-a+dotprod+i8mm+bf16)
endif()

# For the test that looks at what the objects export.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/kernels_objects.h CONTENT
"#pragma once
inline constexpr char kKernelObjects[] = \"$<TARGET_OBJECTS:vitrine_kernels>\";
inline constexpr char kNm[] = \"${CMAKE_NM}\";
")
