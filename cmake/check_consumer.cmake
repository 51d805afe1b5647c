# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source> -D BUILD=<its build folder> -D GENERATOR= -D VENDOR_DIR= -D EIGEN_INSTALLED=
#       -D WAY= -D FILES= [-D SMALL=] [-D BLAS=] [-D DNNL=] [-D PARQUET= -D ARROW_DIR=] [-D CUDA= -D CUDA_COMPILER= -D CUDA_ARCHITECTURES=] -D COMPILER=
#       -P check_consumer.cmake
# Builds tests/consumer in a temporary folder, where no file of ours is in reach by accident, and runs it. The folder stays if that fails.
# With SMALL, its programs are short: the ways in differ by CMake alone, so the umbrellas are compiled for one way only.
# With CUDA, it is the program with tessera::cuda that is built, and run where there is a GPU.

if(WAY STREQUAL "find_package" AND NOT EIGEN_INSTALLED)
  message("SKIPPED: an installed Tessera needs an installed Eigen")
  return()
endif()
if(CUDA AND NOT CUDA_COMPILER)
  message("SKIPPED: this build has no CUDA compiler")
  return()
endif()

set(temporary "$ENV{TMPDIR}")
if(temporary STREQUAL "")
  set(temporary /tmp)
endif()
string(RANDOM LENGTH 10 suffix)
set(work "${temporary}/tessera consumer ${suffix}")  # paths with spaces have to work
file(MAKE_DIRECTORY "${work}")
file(COPY "${ROOT}/tests/consumer" DESTINATION "${work}")

function(step)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${work}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message("${output}")
    message(FATAL_ERROR "failed in ${work}: ${command}")
  endif()
endfunction()

set(arguments "-DWAY=${WAY}" "-DSMALL=${SMALL}" "-DFILES=${FILES}" "-DBLAS=${BLAS}" "-DDNNL=${DNNL}" "-DPARQUET=${PARQUET}" "-DCMAKE_CXX_COMPILER=${COMPILER}")
if(WAY STREQUAL "find_package")
  step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${work}/prefix")
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${work}/prefix")
else()
  list(APPEND arguments "-DSOURCE=${ROOT}" "-DFETCHCONTENT_SOURCE_DIR_TESSERA=${ROOT}" -DFETCHCONTENT_FULLY_DISCONNECTED=ON
       "-DTESSERA_VENDOR_DIR=${VENDOR_DIR}")
endif()
if(BLAS)
  list(APPEND arguments -DTESSERA_BLAS=ON)
endif()
if(DNNL)
  list(APPEND arguments -DTESSERA_DNNL=ON)
endif()
if(PARQUET)
  list(APPEND arguments -DTESSERA_PARQUET=ON "-DTESSERA_ARROW_DIR=${ARROW_DIR}")
endif()
find_program(ccache ccache)
if(ccache)
  set(ENV{CCACHE_BASEDIR} "${work}")
  set(ENV{CCACHE_NOHASHDIR} 1)
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${ccache}")
  set(ENV{CMAKE_CUDA_COMPILER_LAUNCHER} "${ccache}")
endif()
set(program consumer)
if(CUDA)
  set(program consumer_cuda)
  list(APPEND arguments -DCUDA=ON "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}" "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}")
endif()
if(NOT FILES)
  # tessera::tessera alone must not need nlohmann-json.
  list(APPEND arguments -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
endif()
step(${CMAKE_COMMAND} -G "${GENERATOR}" -S consumer -B build ${arguments} --no-warn-unused-cli)
if(WAY STREQUAL "find_package")
  execute_process(COMMAND ${CMAKE_COMMAND} -G "${GENERATOR}" -S consumer -B refused ${arguments} -DCOMPONENT=nonesuch WORKING_DIRECTORY "${work}"
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
  if(status EQUAL 0 OR NOT output MATCHES "no component nonesuch")
    message(FATAL_ERROR "a component that does not exist is not refused by its name:\n${output}")
  endif()
endif()
step(${CMAKE_COMMAND} --build build --target ${program})
execute_process(COMMAND build/${program} WORKING_DIRECTORY "${work}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(CUDA AND status EQUAL 77)
  message("compiled and linked, but not run: there is no GPU")
elseif(NOT status EQUAL 0)
  message(FATAL_ERROR "failed in ${work} (${status}): build/${program}\n${output}")
endif()
file(REMOVE_RECURSE "${work}")
