# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_cblas(<out>) looks for a BLAS with a C interface and defines the imported target tessera::cblas: its library and the folder of its
# cblas.h. <out> becomes empty, or says what is missing and what to install. Also part of the installed package.
#
# Which BLAS: CMake's own variables (BLA_VENDOR=OpenBLAS, FLAME for BLIS, Intel10_64lp_seq for a sequential MKL; CMAKE_PREFIX_PATH).
function(tessera_find_cblas out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::cblas)
    return()
  endif()
  set(advice "install one (Debian: apt-get install libopenblas-dev), or say where it is with BLA_VENDOR and CMAKE_PREFIX_PATH")

  find_package(BLAS QUIET)
  if(NOT BLAS_FOUND)
    set(${out} "no BLAS was found: ${advice}" PARENT_SCOPE)
    return()
  endif()

  # Beside the library first: the header of another BLAS may differ in the size of its integers.
  set(beside "")
  foreach(library IN LISTS BLAS_LIBRARIES)
    get_filename_component(folder "${library}" DIRECTORY)
    list(APPEND beside "${folder}/../include")
  endforeach()
  if(DEFINED ENV{MKLROOT})
    list(APPEND beside "$ENV{MKLROOT}/include")
  endif()
  find_path(TESSERA_CBLAS_INCLUDE_DIR NAMES cblas.h mkl_cblas.h HINTS ${beside} PATH_SUFFIXES openblas blis mkl)
  mark_as_advanced(TESSERA_CBLAS_INCLUDE_DIR)
  if(NOT TESSERA_CBLAS_INCLUDE_DIR)
    set(${out} "${BLAS_LIBRARIES} has no cblas.h: ${advice}" PARENT_SCOPE)
    return()
  endif()

  # Some distributions keep the C interface in a library of its own.
  find_library(TESSERA_CBLAS_LIBRARY NAMES cblas)
  mark_as_advanced(TESSERA_CBLAS_LIBRARY)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_INCLUDES "${TESSERA_CBLAS_INCLUDE_DIR}")
  string(CONCAT source "#if __has_include(<cblas.h>)\n#include <cblas.h>\n#else\n#include <mkl_cblas.h>\n#endif\n"
         "int main() { float x = 1; cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, x, &x, 1, &x, 1, x, &x, 1); }\n")
  set(libraries BLAS::BLAS)
  set(CMAKE_REQUIRED_LIBRARIES ${libraries})
  check_cxx_source_compiles("${source}" TESSERA_CBLAS_IN_BLAS)
  if(NOT TESSERA_CBLAS_IN_BLAS AND TESSERA_CBLAS_LIBRARY)
    set(libraries "${TESSERA_CBLAS_LIBRARY}" BLAS::BLAS)
    set(CMAKE_REQUIRED_LIBRARIES ${libraries})
    check_cxx_source_compiles("${source}" TESSERA_CBLAS_OF_ITS_OWN)
  endif()
  if(NOT TESSERA_CBLAS_IN_BLAS AND NOT TESSERA_CBLAS_OF_ITS_OWN)
    set(${out} "${BLAS_LIBRARIES} has no C interface: ${advice}" PARENT_SCOPE)
    return()
  endif()

  add_library(tessera::cblas INTERFACE IMPORTED)
  target_include_directories(tessera::cblas INTERFACE "${TESSERA_CBLAS_INCLUDE_DIR}")
  target_link_libraries(tessera::cblas INTERFACE ${libraries})
endfunction()
