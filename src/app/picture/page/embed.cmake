# The text of the families' definitions, the texts of the chapters and the built bundles of the pages (that of `explain`,
# and those of `serve`), as arrays inside the library: the walk-through quotes the very lines that were compiled, and a user needs
# neither the source tree nor Node.
set(embedded ${PROJECT_BINARY_DIR}/generated/picture/embedded.cpp)
file(GLOB embedded_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engine/model/*.cpp
  ${CMAKE_CURRENT_LIST_DIR}/chapters/*.jinja
  ${CMAKE_CURRENT_LIST_DIR}/chapters/*/*.jinja ${PROJECT_SOURCE_DIR}/web/dist/page.js
  ${PROJECT_SOURCE_DIR}/web/dist/page.css ${PROJECT_SOURCE_DIR}/web/dist/chat.html ${PROJECT_SOURCE_DIR}/web/dist/explain.html)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUT=${embedded} -D ROOT=${PROJECT_SOURCE_DIR} "-DFILES=${embedded_files}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  DEPENDS ${embedded_files} ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  COMMENT "Embedding the definitions and the page" VERBATIM)
target_sources(vitrine_picture PRIVATE ${embedded})

# The engine of live pages, which web/engine/build.sh makes.
set(engine ${PROJECT_SOURCE_DIR}/web/dist/engine.wasm.gz)
if(EXISTS ${engine} AND CMAKE_SYSTEM_NAME STREQUAL "Linux")  # in the assembler's words for ELF
  set_source_files_properties(picture/page/embedded_engine.cpp PROPERTIES COMPILE_DEFINITIONS "VITRINE_ENGINE=\"${engine}\""
    OBJECT_DEPENDS ${engine} SKIP_UNITY_BUILD_INCLUSION ON)
endif()
