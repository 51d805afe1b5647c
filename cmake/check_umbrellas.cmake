# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -P check_umbrellas.cmake
# Every public header stands in tessera.hpp, or in tessera_files.hpp, which includes tessera.hpp.

file(READ "${ROOT}/include/tessera/tessera.hpp" umbrellas)
file(READ "${ROOT}/include/tessera/tessera_files.hpp" files)
string(APPEND umbrellas "${files}")
file(GLOB_RECURSE headers RELATIVE "${ROOT}/include" "${ROOT}/include/tessera/*/*.hpp")
foreach(header IN LISTS headers)
  if(NOT umbrellas MATCHES "#include <${header}>")
    message(SEND_ERROR "${header} is in no umbrella")
  endif()
endforeach()
