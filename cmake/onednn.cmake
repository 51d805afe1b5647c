# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_onednn(<out>) looks for oneDNN 2 or 3 and defines the imported target tessera::onednn: its library, the folder of its headers, and the
# library of dlsym. <out> becomes empty, or says what is missing and what to install. Also part of the installed package.
#
# Which oneDNN: the target DNNL::dnnl where the project has one already (its own find_package(dnnl), or a oneDNN built beside), else CMAKE_PREFIX_PATH.
# oneDNN's own package is not asked: one built with OpenCL demands OpenCL's development files, which no product needs.
function(tessera_find_onednn out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::onednn)
    return()
  endif()
  if(TARGET DNNL::dnnl)
    add_library(tessera::onednn INTERFACE IMPORTED)
    target_link_libraries(tessera::onednn INTERFACE DNNL::dnnl ${CMAKE_DL_LIBS})
    return()
  endif()
  set(advice "install it (Debian: apt-get install libdnnl-dev), or say where it is with CMAKE_PREFIX_PATH")

  find_path(TESSERA_ONEDNN_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.hpp)
  find_library(TESSERA_ONEDNN_LIBRARY NAMES dnnl)
  mark_as_advanced(TESSERA_ONEDNN_INCLUDE_DIR TESSERA_ONEDNN_LIBRARY)
  if(NOT TESSERA_ONEDNN_INCLUDE_DIR OR NOT TESSERA_ONEDNN_LIBRARY)
    set(${out} "no oneDNN was found: ${advice}" PARENT_SCOPE)
    return()
  endif()

  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_INCLUDES "${TESSERA_ONEDNN_INCLUDE_DIR}")
  set(CMAKE_REQUIRED_LIBRARIES "${TESSERA_ONEDNN_LIBRARY}" ${CMAKE_DL_LIBS})
  check_cxx_source_compiles("#include <oneapi/dnnl/dnnl.h>
    int main() { float x = 1; return dnnl_sgemm('N', 'N', 1, 1, 1, x, &x, 1, &x, 1, x, &x, 1); }" TESSERA_ONEDNN_LINKS)
  if(NOT TESSERA_ONEDNN_LINKS)
    set(${out} "a program with ${TESSERA_ONEDNN_LIBRARY} does not link: ${advice}" PARENT_SCOPE)
    return()
  endif()

  add_library(tessera::onednn INTERFACE IMPORTED)
  target_include_directories(tessera::onednn INTERFACE "${TESSERA_ONEDNN_INCLUDE_DIR}")
  target_link_libraries(tessera::onednn INTERFACE "${TESSERA_ONEDNN_LIBRARY}" ${CMAKE_DL_LIBS})
endfunction()
