# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# One translation unit a header that holds nothing but its include. Two of each would show missing `inline`s; the consumers link those.

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/include/tessera/*.hpp")
set(units)
foreach(header IN LISTS headers)
  string(REPLACE "/" "." unit "${header}")
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/header_check/${unit}.cpp")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "#include <${header}>  // alone\n")
  list(APPEND units "${unit}")
endforeach()

if(units)
  add_library(tessera_header_check OBJECT ${units})
  target_link_libraries(tessera_header_check PRIVATE tessera::files tessera_dev)
  # Nothing runs: compile as fast as possible.
  target_compile_options(tessera_header_check PRIVATE -O0 -g0)
else()
  add_custom_target(tessera_header_check)
endif()
