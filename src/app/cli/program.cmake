# The program: build/<preset>/vitrine, with the shipped model beside it and its manual written by itself.
get_target_property(sources vitrine_cli SOURCES)
if(VITRINE_ENGINE_ONLY)
  set(engine_files app bench bench_plan chat commands completion describe detokenize generate_options heat_map limits lora_option manual options
    other_names output predict progress session stop_signals text_table tokenize tokenizer_train version without/commands)
  list(TRANSFORM engine_files PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
  list(TRANSFORM engine_files APPEND .cpp)
  set(sources ${engine_files})
else()
  list(FILTER sources EXCLUDE REGEX "/cli/without/")
endif()
set_property(TARGET vitrine_cli PROPERTY SOURCES ${sources})
add_dependencies(vitrine_cli vitrine_commit)
add_executable(vitrine_program ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
target_link_libraries(vitrine_program PRIVATE vitrine_cli)
set_target_properties(vitrine_program PROPERTIES OUTPUT_NAME vitrine RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
add_custom_command(TARGET vitrine_program POST_BUILD  # other_names.h: under this name it is `vitrine merge`
  COMMAND ${CMAKE_COMMAND} -E create_symlink vitrine ${PROJECT_BINARY_DIR}/mergekit-yaml VERBATIM)
if(TARGET vitrine_mpi)
  add_dependencies(vitrine_program vitrine_mpi)  # it loads that module under mpirun
endif()
if(NOT EXISTS ${PROJECT_BINARY_DIR}/models)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models ${PROJECT_BINARY_DIR}/models SYMBOLIC)
endif()

set(manual ${PROJECT_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${manual})
add_custom_command(OUTPUT ${manual}/vitrine.1 ${manual}/vitrine.bash ${manual}/_vitrine ${manual}/vitrine.fish
  COMMAND vitrine_program manual > ${manual}/vitrine.1
  COMMAND vitrine_program completion bash > ${manual}/vitrine.bash
  COMMAND vitrine_program completion zsh > ${manual}/_vitrine
  COMMAND vitrine_program completion fish > ${manual}/vitrine.fish
  DEPENDS vitrine_program COMMENT "Writing the manual page and the shell completions" VERBATIM)
add_custom_target(vitrine_manual ALL DEPENDS ${manual}/vitrine.1)
