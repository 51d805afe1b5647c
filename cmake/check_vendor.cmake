# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -D WORK=<folder to use> -D GENERATOR=<name> -P check_vendor.cmake
# The headers that `bootstrap.sh vendor` unpacks are enough to build an example when no package can be found.

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
foreach(package IN ITEMS Eigen3 nlohmann_json doctest CLI11)
  list(APPEND hidden "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
endforeach()
run(${CMAKE_COMMAND} -S "${ROOT}" -B "${WORK}/build" -G "${GENERATOR}" "-DTESSERA_VENDOR_DIR=${WORK}/vendor" -DTESSERA_BUILD_CHECKS=OFF ${hidden})
run(${CMAKE_COMMAND} --build "${WORK}/build" --target compose tessera_test_main)
run("${WORK}/build/examples/compose")
