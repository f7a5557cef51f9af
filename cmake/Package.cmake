# The library vitrine::vitrine, made of the objects of every folder but cli, hub, serve, http and grammar (downloads and serving
# are the program's, and llguidance is linked to it and to the Python module), and everything that installs it: CMake package, pkg-config
# file, uninstall target, Debian packages.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(folders GLOBAL PROPERTY VITRINE_FOLDERS)
list(REMOVE_ITEM folders vitrine_cli vitrine_hub vitrine_serve vitrine_telemetry vitrine_http vitrine_grammar)
add_library(vitrine STATIC)
add_library(vitrine::vitrine ALIAS vitrine)
foreach(folder IN LISTS folders)
  target_sources(vitrine PRIVATE $<TARGET_OBJECTS:${folder}>)
  # A folder may compile some of its files with flags of their own, in object libraries it lists as sources.
  get_target_property(sources ${folder} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "TARGET_OBJECTS:")
      target_sources(vitrine PRIVATE ${source})
    endif()
  endforeach()
endforeach()
set_target_properties(vitrine PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME vitrine)
target_compile_features(vitrine PUBLIC cxx_std_20)
target_include_directories(vitrine INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(vitrine PRIVATE Threads::Threads fmt::fmt hwy::hwy PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::YAML_CPP
  PkgConfig::ZLIB PkgConfig::ZSTD)
if(VITRINE_SANITIZE)
  target_link_options(vitrine INTERFACE -fsanitize=${VITRINE_SANITIZE})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vitrine)
install(TARGETS vitrine EXPORT vitrineTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT vitrineTargets NAMESPACE vitrine:: DESTINATION ${package_dir} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vitrine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/generated/vitrine/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vitrine COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/vitrineConfig.cmake.in ${PROJECT_BINARY_DIR}/package/vitrineConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/vitrineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH VITRINE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/vitrine.pc.in ${PROJECT_BINARY_DIR}/package/vitrine.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/vitrineConfig.cmake ${PROJECT_BINARY_DIR}/package/vitrineConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/package/vitrine.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# The program, the model it uses when none is named, its manual page and shell completions.
install(TARGETS vitrine_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/mergekit-yaml DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)  # a link to vitrine
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tales9m DESTINATION ${CMAKE_INSTALL_DATADIR}/vitrine/models COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/vitrine COMPONENT program
  PATTERN cpp EXCLUDE PATTERN transformer_lens EXCLUDE PATTERN "*.py" EXCLUDE)  # what the book runs
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/book/gpt2-tales DESTINATION ${CMAKE_INSTALL_DATADIR}/vitrine/models/book COMPONENT program
  PATTERN "*.sh" EXCLUDE PATTERN "*.py" EXCLUDE PATTERN recipe.yaml EXCLUDE PATTERN metrics.jsonl.gz EXCLUDE PATTERN story.json EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/manual/vitrine.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/manual/vitrine.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME vitrine COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/manual/_vitrine DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/manual/vitrine.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
if(VITRINE_CAN_SERVE)  # where systemd looks under the prefix of the package
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/vitrine.service DESTINATION lib/systemd/system COMPONENT program)
endif()
set(components program dev)
if(TARGET vitrine_mpi)  # where comm.cpp looks for it
  list(APPEND components mpi)
  install(TARGETS vitrine_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/vitrine COMPONENT mpi)
endif()
foreach(component IN LISTS components)
  set(doc_program vitrine)
  set(doc_mpi vitrine-mpi)
  set(doc_dev libvitrine-dev)
  install(FILES ${PROJECT_SOURCE_DIR}/THIRD_PARTY.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${doc_${component}} COMPONENT ${component})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${doc_${component}} RENAME copyright COMPONENT ${component})
endforeach()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DBINARY=${PROJECT_BINARY_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake VERBATIM)

# cpack -G DEB: vitrine (the program), libvitrine-dev (the library) and vitrine-mpi (training by mpirun).
set(CPACK_PACKAGE_VENDOR "The vitrine authors")
set(CPACK_PACKAGE_CONTACT "The vitrine authors <maintainers@users.noreply.a-seed-2bf48eb4.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME vitrine)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
# Loaded by `vitrine pull` (src/app/hub/libraries.h), and OpenSSL by `vitrine serve` with a certificate.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libcurl4t64 | libcurl4, libssl3t64 | libssl3, ca-certificates")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "The vitrine program
 Runs decoder-only transformer language models from Hugging Face directories and
 GGUF files and shows every intermediate by name. A small model is included.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME vitrine-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "vitrine (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_COMPONENT_MPI_DESCRIPTION "Training on several processes and machines
 What `vitrine train` loads when mpirun started it.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libvitrine-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libfmt-dev, libhwy-dev, libpcre2-dev, libutf8proc-dev, libyaml-cpp-dev, libzstd-dev, zlib1g-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "The vitrine library: headers, static archive, CMake package and pkg-config file")
include(CPack)
