# The text of the families' definitions, the texts of the chapters with what they show from other folders, and the built bundles of
# the pages (that of `explain`, and those of `serve`), as arrays inside the library: the walk-through quotes the very lines that were
# compiled, and a user needs neither the source tree nor Node.
set(embedded ${PROJECT_BINARY_DIR}/generated/picture/embedded.cpp)
include(${CMAKE_CURRENT_LIST_DIR}/embedded_data.cmake)
list(APPEND embedded_data src/app/picture/page/book/*.jinja web/dist/page.js web/dist/page.css web/dist/chat.html web/dist/explain.html)
list(TRANSFORM embedded_data PREPEND ${PROJECT_SOURCE_DIR}/)
file(GLOB embedded_files CONFIGURE_DEPENDS ${embedded_data})
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUT=${embedded} -D ROOT=${PROJECT_SOURCE_DIR} "-DFILES=${embedded_files}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  DEPENDS ${embedded_files} ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  COMMENT "Embedding the definitions and the page" VERBATIM)
target_sources(vitrine_picture PRIVATE ${embedded})

# The engine of live pages, which web/engine/build.sh makes.
set(module ${PROJECT_SOURCE_DIR}/web/dist/engine.wasm)
if(EXISTS ${module} AND CMAKE_SYSTEM_NAME STREQUAL "Linux")  # in the assembler's words for ELF
  set(engine ${PROJECT_BINARY_DIR}/generated/picture/engine.wasm.gz)
  add_custom_command(OUTPUT ${engine} COMMAND sh -c "gzip -9 -n -c '${module}' > '${engine}'" DEPENDS ${module}
    COMMENT "Compressing the engine of live pages" VERBATIM)
  target_sources(vitrine_picture PRIVATE ${engine})
  set_source_files_properties(picture/page/embedded_engine.cpp PROPERTIES COMPILE_DEFINITIONS "VITRINE_ENGINE=\"${engine}\""
    OBJECT_DEPENDS ${engine} SKIP_UNITY_BUILD_INCLUSION ON)
endif()
