# Writes OUT with the commit of SOURCE as a macro; "unknown" outside a git checkout. Runs at every build, and touches
# the file only when its content changes, so that a new commit recompiles one file.
set(commit "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE}" -c "safe.directory=${SOURCE}" describe --always --abbrev=12 --dirty=-modified --exclude=*
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND answer)
    set(commit "${answer}")
  endif()
endif()
set(text "#define VITRINE_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS "${OUT}")
  file(READ "${OUT}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${OUT}" "${text}")
endif()
