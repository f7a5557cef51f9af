# generated/vitrine/version.h (public, from project(VERSION)) and generated/commit.h (at every build, from git).
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PROJECT_BINARY_DIR}/generated/vitrine/version.h @ONLY)
add_custom_target(vitrine_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${PROJECT_BINARY_DIR}/generated/commit.h
    -P ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/commit.h
  COMMENT "Reading the commit" VERBATIM)
