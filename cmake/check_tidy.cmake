# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -D WORK=<scratch folder> -D SYSTEM_INCLUDES=<list> -P check_tidy.cmake
# clang-tidy, with the checks of .clang-tidy, over all headers that an umbrella reaches on the host, and those of synth/. Other versions find other things.

set(wanted 14)
find_program(clang_tidy NAMES clang-tidy-${wanted} clang-tidy)
if(NOT clang_tidy)
  message("SKIPPED: clang-tidy ${wanted} is not installed")
  return()
endif()
execute_process(COMMAND "${clang_tidy}" --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT version MATCHES "version ${wanted}\\.")
  message("SKIPPED: clang-tidy ${wanted} is needed, this is: ${version}")
  return()
endif()

set(flags -std=c++20 -I "${ROOT}/include")
foreach(folder IN LISTS SYSTEM_INCLUDES)
  list(APPEND flags -isystem "${folder}")
endforeach()
include("${CMAKE_CURRENT_LIST_DIR}/optional_headers.cmake")
file(GLOB headers RELATIVE "${ROOT}/include" "${ROOT}/include/tessera/synth/*.hpp")
list(REMOVE_ITEM headers ${tessera_optional_headers})
set(text "#include <tessera/tessera_files.hpp>\n")
foreach(header IN LISTS headers)
  string(APPEND text "#include <${header}>\n")
endforeach()
file(WRITE "${WORK}/headers.cpp" "${text}")
execute_process(COMMAND "${clang_tidy}" "--config-file=${ROOT}/.clang-tidy" --quiet "${WORK}/headers.cpp" -- ${flags} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "clang-tidy asks for changes, named above")
endif()
message(STATUS "clang-tidy finds nothing")
