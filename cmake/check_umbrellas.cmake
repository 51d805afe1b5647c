# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -P check_umbrellas.cmake
# Every public header stands in tessera.hpp, or in tessera_files.hpp, which includes tessera.hpp; but for those of optional back ends, of which those that
# need tessera::parquet stand in tessera_parquet.hpp. Every .cuh stands in tessera.cuh, but for those of optional back ends. Headers of synth/ stand in none, as
# check_layers.cmake sees to.

include("${CMAKE_CURRENT_LIST_DIR}/optional_headers.cmake")

file(READ "${ROOT}/include/tessera/tessera.hpp" umbrellas)
file(READ "${ROOT}/include/tessera/tessera_files.hpp" files)
string(APPEND umbrellas "${files}")
file(GLOB_RECURSE headers RELATIVE "${ROOT}/include" "${ROOT}/include/tessera/*/*.hpp")
list(FILTER headers EXCLUDE REGEX "^tessera/synth/")
foreach(header IN LISTS headers)
  string(FIND "${umbrellas}" "#include <${header}>" position)
  if(header IN_LIST tessera_optional_headers)
    if(NOT position EQUAL -1)
      message(SEND_ERROR "${header} is in an umbrella, but needs what a consumer may not have")
    endif()
  elseif(position EQUAL -1)
    message(SEND_ERROR "${header} is in no umbrella")
  endif()
endforeach()

file(READ "${ROOT}/include/tessera/tessera_parquet.hpp" umbrella)
list(LENGTH tessera_optional_headers count)
math(EXPR last "${count} - 1")
foreach(i RANGE 0 ${last} 2)
  math(EXPR next "${i} + 1")
  list(GET tessera_optional_headers ${i} header)
  list(GET tessera_optional_headers ${next} target)
  string(FIND "${umbrella}" "#include <${header}>" position)
  if(target STREQUAL "tessera::parquet" AND header MATCHES "^tessera/.+/" AND NOT header MATCHES "^tessera/synth/" AND position EQUAL -1)
    message(SEND_ERROR "${header} is not in tessera_parquet.hpp")
  endif()
endforeach()

file(GLOB_RECURSE headers RELATIVE "${ROOT}/include" "${ROOT}/include/tessera/*/*.cuh")
set(umbrella "")
if(EXISTS "${ROOT}/include/tessera/tessera.cuh")
  file(READ "${ROOT}/include/tessera/tessera.cuh" umbrella)
endif()
foreach(header IN LISTS headers)
  string(FIND "${umbrella}" "#include <${header}>" position)
  if(header IN_LIST tessera_optional_headers)
    if(NOT position EQUAL -1)
      message(SEND_ERROR "${header} is in tessera.cuh, but needs what a consumer may not have")
    endif()
  elseif(position EQUAL -1)
    message(SEND_ERROR "${header} is not in tessera.cuh")
  endif()
endforeach()
