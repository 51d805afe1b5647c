# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# One translation unit a header that holds nothing but its include. Two of each would show missing `inline`s; the consumers link those.
# A header of an optional back end is checked where its target is. A .cuh compiles without CUDA too, for the stand-in that runs kernels on the host.
# nvcc, where there is one, reads CUDA's umbrella and, alone, what it sees otherwise than the host's compiler does. It also compiles one unit of all
# headers of the host that need no Eigen and no optional back end: what it passes on to the host's compiler may be wrong where the source is not.

include("${CMAKE_CURRENT_LIST_DIR}/optional_headers.cmake")
set(targets tessera::files tessera_dev)

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/include/tessera/*.hpp"
     "${PROJECT_SOURCE_DIR}/include/tessera/*.cuh")
set(units)
set(cuda_units)
set(host_includes)
foreach(header IN LISTS headers)
  list(FIND tessera_optional_headers "${header}" position)
  if(NOT position EQUAL -1)
    math(EXPR position "${position} + 1")
    list(GET tessera_optional_headers ${position} target)
    if(NOT TARGET ${target})
      continue()
    endif()
    list(APPEND targets ${target})
  endif()
  string(REPLACE "/" "." unit "${header}")
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/header_check/${unit}.cpp")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "#include <${header}>  // alone\n")
  list(APPEND units "${unit}")
  if(header MATCHES "\\.hpp$" AND position EQUAL -1 AND NOT header MATCHES "tessera/nn/gemm_eigen\\.hpp|tessera/tessera")
    string(APPEND host_includes "#include <${header}>\n")
  endif()
  if(header MATCHES "\\.cuh$")
    file(STRINGS "${PROJECT_SOURCE_DIR}/include/${header}" for_nvcc REGEX "__CUDACC__|# *include <(cuda|cub|thrust)" LIMIT_COUNT 1)
    if(NOT for_nvcc AND NOT header STREQUAL "tessera/tessera.cuh")
      continue()
    endif()
    string(REGEX REPLACE "\\.cpp$" ".cu" unit "${unit}")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "#include <${header}>  // alone\n")
    list(APPEND cuda_units "${unit}")
  endif()
endforeach()

if(units)
  add_library(tessera_header_check OBJECT ${units})
  target_link_libraries(tessera_header_check PRIVATE ${targets})
  # Nothing runs. Unoptimised objects take as long as reading the source alone, and a compiler cache knows them again.
  target_compile_options(tessera_header_check PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-O0;-g0>")
else()
  add_custom_target(tessera_header_check)
endif()

if(cuda_units AND TARGET tessera::cuda AND CMAKE_CUDA_COMPILER)
  add_library(tessera_cuda_header_check OBJECT ${cuda_units})
  target_link_libraries(tessera_cuda_header_check PRIVATE tessera::cuda $<TARGET_NAME_IF_EXISTS:tessera::nccl> tessera_dev)
  # nvcc reads all of it on the way to PTX, in a third of the time that an object takes.
  set_target_properties(tessera_cuda_header_check PROPERTIES CUDA_PTX_COMPILATION ON)
  add_dependencies(tessera_header_check tessera_cuda_header_check)
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/header_check/host_headers.cu")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${host_includes}")
  add_library(tessera_nvcc_header_check OBJECT "${unit}")
  target_link_libraries(tessera_nvcc_header_check PRIVATE tessera::cuda tessera::files tessera_dev)
  target_compile_options(tessera_nvcc_header_check PRIVATE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-O0>")
  add_dependencies(tessera_header_check tessera_nvcc_header_check)
endif()
