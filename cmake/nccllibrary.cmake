# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_nccllibrary(<out>) looks for NCCL 2.19 or newer and defines the imported target tessera::nccllibrary, which links tessera::cudatoolkit. <out>
# becomes empty, or says what is missing and what to install. Also part of the installed package.
#
# Which NCCL: that below NCCL_ROOT, else beside the CUDA Toolkit, else the system's.
include("${CMAKE_CURRENT_LIST_DIR}/cudatoolkit.cmake")

function(tessera_find_nccllibrary out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::nccllibrary)
    return()
  endif()
  tessera_find_cudatoolkit(missing)
  if(NOT TARGET tessera::cudatoolkit)
    set(${out} "${missing}" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit QUIET)  # for its folders, which the function above keeps to itself
  find_path(TESSERA_NCCL_INCLUDE_DIR nccl.h HINTS "${NCCL_ROOT}/include" "$ENV{NCCL_ROOT}/include" ${CUDAToolkit_INCLUDE_DIRS})
  find_library(TESSERA_NCCL_LIBRARY NAMES nccl libnccl.so.2
               HINTS "${NCCL_ROOT}/lib" "$ENV{NCCL_ROOT}/lib" "${CUDAToolkit_LIBRARY_DIR}" "${CUDAToolkit_LIBRARY_ROOT}/lib" "${CUDAToolkit_BIN_DIR}/../lib")
  mark_as_advanced(TESSERA_NCCL_INCLUDE_DIR TESSERA_NCCL_LIBRARY)
  if(NOT TESSERA_NCCL_INCLUDE_DIR OR NOT TESSERA_NCCL_LIBRARY)
    set(${out} "no NCCL was found: install it (Debian, from NVIDIA: apt-get install libnccl-dev), or say where it is with NCCL_ROOT" PARENT_SCOPE)
    return()
  endif()
  set(version "")
  foreach(part IN ITEMS MAJOR MINOR)
    file(STRINGS "${TESSERA_NCCL_INCLUDE_DIR}/nccl.h" line REGEX "^#define NCCL_${part} " LIMIT_COUNT 1)
    string(REGEX REPLACE ".* " "." number "${line}")
    string(APPEND version "${number}")
  endforeach()
  string(REGEX REPLACE "^\\." "" version "${version}")
  if(version VERSION_LESS 2.19)
    set(${out} "NCCL ${version} was found in ${TESSERA_NCCL_INCLUDE_DIR}: 2.19 is needed" PARENT_SCOPE)
    return()
  endif()

  add_library(tessera::nccllibrary INTERFACE IMPORTED)
  target_include_directories(tessera::nccllibrary SYSTEM INTERFACE "${TESSERA_NCCL_INCLUDE_DIR}")
  target_link_libraries(tessera::nccllibrary INTERFACE "${TESSERA_NCCL_LIBRARY}" tessera::cudatoolkit)
endfunction()
