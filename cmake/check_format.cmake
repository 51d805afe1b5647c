# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -P check_format.cmake
# Other versions of clang-format lay out the same style differently, so only 14 can say that a file is wrong.

set(wanted 14)
find_program(clang_format NAMES clang-format-${wanted} clang-format)
if(NOT clang_format)
  message("SKIPPED: clang-format ${wanted} is not installed")
  return()
endif()
execute_process(COMMAND "${clang_format}" --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT version MATCHES "version ${wanted}\\.")
  message("SKIPPED: clang-format ${wanted} is needed, this is: ${version}")
  return()
endif()

set(files)
foreach(folder IN ITEMS include compiled tests bench examples)
  file(GLOB_RECURSE found "${ROOT}/${folder}/*.hpp" "${ROOT}/${folder}/*.ipp" "${ROOT}/${folder}/*.cuh" "${ROOT}/${folder}/*.cpp" "${ROOT}/${folder}/*.cu")
  list(APPEND files ${found})
endforeach()
if(files)
  execute_process(COMMAND "${clang_format}" --dry-run -Werror ${files} WORKING_DIRECTORY "${ROOT}" RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "run: clang-format -i on the files named above")
  endif()
endif()
list(LENGTH files count)
message(STATUS "${count} files are formatted")
