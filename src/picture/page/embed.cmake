# The text of the families' definitions and the built bundles of the pages (that of `explain`, and that of `serve`), as arrays
# inside the library: the walk-through quotes the very lines that were compiled, and a user needs neither the source tree nor Node.
set(embedded ${PROJECT_BINARY_DIR}/generated/picture/embedded.cpp)
file(GLOB embedded_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/model/*.cpp ${PROJECT_SOURCE_DIR}/web/dist/page.js
  ${PROJECT_SOURCE_DIR}/web/dist/page.css ${PROJECT_SOURCE_DIR}/web/dist/chat.html)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUT=${embedded} -D ROOT=${PROJECT_SOURCE_DIR} "-DFILES=${embedded_files}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  DEPENDS ${embedded_files} ${CMAKE_CURRENT_LIST_DIR}/write_embedded.cmake
  COMMENT "Embedding the definitions and the page" VERBATIM)
target_sources(vitrine_picture PRIVATE ${embedded})
