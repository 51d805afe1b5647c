# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -P list_unproven.cmake
# The kernels and CUB calls that no recorded run on a GPU covers: the opening line of each ends with `// unproven`. Prints them as `path: name`, then
# how many they are. README.md tells that number, and check_readme.cmake compares.

get_filename_component(ROOT "${ROOT}" ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/include/*.hpp" "${ROOT}/include/*.cuh")
set(text "")
set(count 0)
foreach(header IN LISTS headers)
  file(STRINGS "${ROOT}/${header}" lines REGEX "// unproven")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "(struct|class) +([^ {]+).*{ *// unproven$")
      message(FATAL_ERROR "${header}: `// unproven` ends the opening line of a struct, and not this one: ${line}")
    endif()
    string(APPEND text "${header}: ${CMAKE_MATCH_2}\n")
    math(EXPR count "${count} + 1")
  endforeach()
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${text}${count} unproven")
