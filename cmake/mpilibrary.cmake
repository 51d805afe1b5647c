# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_mpilibrary(<out>) looks for an MPI library of version 3 or later and defines the imported target tessera::mpilibrary. <out> becomes empty, or
# says what is missing and what to install. Also part of the installed package.
#
# Which MPI: that of CMake's FindMPI, which the variables MPI_HOME and MPI_CXX_COMPILER direct.
function(tessera_find_mpilibrary out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::mpilibrary)
    return()
  endif()
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    set(${out} "no MPI was found: install one (Debian: apt-get install openmpi-bin libopenmpi-dev), or say where it is with MPI_HOME" PARENT_SCOPE)
    return()
  endif()
  if(MPI_CXX_VERSION AND MPI_CXX_VERSION VERSION_LESS 3.0)
    set(${out} "MPI ${MPI_CXX_VERSION} was found: 3.0 is needed" PARENT_SCOPE)
    return()
  endif()
  # Found for the project's own folder alone, which is why this target is made here.
  add_library(tessera::mpilibrary INTERFACE IMPORTED)
  target_include_directories(tessera::mpilibrary SYSTEM INTERFACE ${MPI_CXX_INCLUDE_DIRS})
  target_link_libraries(tessera::mpilibrary INTERFACE ${MPI_CXX_LIBRARIES})
  # Without the bindings for C++ that MPI once had.
  target_compile_definitions(tessera::mpilibrary INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endfunction()
