# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -D WORK=<folder to use> -D GENERATOR=<name> -D VENDOR_DIR=<as the build> -P check_vendor.cmake
# What `bootstrap.sh vendor` unpacks is enough to build an example and a benchmark, and to run them, when no package can be found.

if(VENDOR_DIR)
  message("SKIPPED: this build itself is made of what was vendored")
  return()
endif()
find_program(dpkg_deb dpkg-deb)
if(NOT dpkg_deb)
  message("SKIPPED: vendoring unpacks Debian packages, and dpkg-deb is not here")
  return()
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}\nfailed (${status}):\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
run(sh "${ROOT}/cmake/bootstrap.sh" vendor "${WORK}/vendor")
set(hidden "")
foreach(package IN ITEMS Eigen3 nlohmann_json doctest CLI11 benchmark Arrow)
  list(APPEND hidden "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
endforeach()
run(${CMAKE_COMMAND} -S "${ROOT}" -B "${WORK}/build" -G "${GENERATOR}" "-DTESSERA_VENDOR_DIR=${WORK}/vendor" -DTESSERA_BUILD_CHECKS=OFF
    -DTESSERA_BUILD_BENCH=ON -DTESSERA_CUDA=OFF -DTESSERA_PARQUET=AUTO -DCMAKE_EXPORT_COMPILE_COMMANDS=ON ${hidden})
if(EXISTS "${WORK}/vendor/arrow")  # which needs pip, and what pip downloads
  file(STRINGS "${WORK}/build/compile_commands.json" commands REGEX "/vendor/arrow/pyarrow/include")
  if(NOT commands)
    message(FATAL_ERROR "nothing is compiled with the vendored Apache Arrow")
  endif()
endif()
run(${CMAKE_COMMAND} --build "${WORK}/build" --target compose tessera_test_main core_unique_bench)
run("${WORK}/build/examples/compose")
set(ENV{TESSERA_BENCH_SMOKE} 1)
run("${WORK}/build/bench/core_unique_bench" --benchmark_min_time=0.001)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${WORK}/build/bench/core_unique_bench" RESOLVED_DEPENDENCIES_VAR libraries
     UNRESOLVED_DEPENDENCIES_VAR unresolved)
list(FILTER libraries INCLUDE REGEX "/vendor/benchmark/")
if(NOT libraries)
  message(FATAL_ERROR "core_unique_bench was linked with a benchmark library that is not the vendored one")
endif()
