# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# The checks of the source tree, as tests labelled `checks`.

function(tessera_check name)
  add_test(NAME "checks/${name}" COMMAND ${ARGN})
  set_tests_properties("checks/${name}" PROPERTIES LABELS checks SKIP_REGULAR_EXPRESSION "SKIPPED:")
endfunction()

tessera_check(layers ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake")
tessera_check(layers_selftest ${CMAKE_COMMAND} -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/layers_selftest"
              -P "${PROJECT_SOURCE_DIR}/cmake/check_layers_selftest.cmake")
tessera_check(umbrellas ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_umbrellas.cmake")
tessera_check(umbrellas_selftest ${CMAKE_COMMAND} -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/umbrellas_selftest"
              -P "${PROJECT_SOURCE_DIR}/cmake/check_umbrellas_selftest.cmake")
tessera_check(format ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_format.cmake")
tessera_check(tidy ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/tidy"
              -D "SYSTEM_INCLUDES=$<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>"
              -P "${PROJECT_SOURCE_DIR}/cmake/check_tidy.cmake")
set_tests_properties(checks/tidy PROPERTIES COST 30)
tessera_check(readme ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_readme.cmake")
tessera_check(readme_selftest ${CMAKE_COMMAND} -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/readme_selftest"
              -P "${PROJECT_SOURCE_DIR}/cmake/check_readme_selftest.cmake")

# By which launches bench/compare.py judges.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  tessera_check(launches_selftest "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/bench/launches_selftest.py")
else()
  tessera_check(launches_selftest ${CMAKE_COMMAND} -E echo "SKIPPED: there is no Python")
endif()

# What bench/peers/torchrec_plan.py makes of TorchRec's plans; the peers are in a Python of their own.
set(peers_python "${PROJECT_SOURCE_DIR}/build/peers/bin/python")
if(NOT EXISTS "${peers_python}" AND Python3_FOUND)
  set(peers_python "${Python3_EXECUTABLE}")
endif()
if(EXISTS "${peers_python}")
  tessera_check(torchrec_plan_selftest "${peers_python}" -B "${PROJECT_SOURCE_DIR}/bench/peers/torchrec_plan.py" --selftest)
else()
  tessera_check(torchrec_plan_selftest ${CMAKE_COMMAND} -E echo "SKIPPED: there is no Python")
endif()

# The library of instances and bodies, by the objects of an example.
if(TARGET compose AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT TESSERA_CHECKED)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  add_test(NAME checks/compiled COMMAND sh cmake/check_compiled.sh $<TARGET_FILE:tessera_compiled> $<TARGET_OBJECTS:compose> "${CMAKE_CXX_COMPILER}" ${flags}
           WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" COMMAND_EXPAND_LISTS)
  set_tests_properties(checks/compiled PROPERTIES LABELS checks SKIP_REGULAR_EXPRESSION "SKIPPED:")
endif()

# What must not compile: wrong policies, executions without a back end.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/expected_failures/*.cpp")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  tessera_check(expected_failures_${name} ${CMAKE_COMMAND} -D "SOURCE=${source}" -D "COMPILER=${CMAKE_CXX_COMPILER}"
                -D "INCLUDES=${PROJECT_SOURCE_DIR}/include" -D "SYSTEM_INCLUDES=$<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>"
                -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/expected_failures" -P "${PROJECT_SOURCE_DIR}/cmake/check_expected_failures.cmake")
endforeach()
tessera_check(expected_failures_selftest ${CMAKE_COMMAND} -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/expected_failures_selftest"
              -D "COMPILER=${CMAKE_CXX_COMPILER}" -P "${PROJECT_SOURCE_DIR}/cmake/check_expected_failures_selftest.cmake")

# Every header compiles alone. Part of the build, so that the compiler's message is where a developer looks.
include(${PROJECT_SOURCE_DIR}/cmake/header_check.cmake)
tessera_check(headers ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target tessera_header_check)
set_tests_properties(checks/headers PROPERTIES RUN_SERIAL ON TIMEOUT 1800)  # two builds of one folder at once would corrupt it

# Every way into another project; the umbrellas once with every compiler at hand.
function(tessera_check_consumer name)
  tessera_check(consumer_${name} ${CMAKE_COMMAND} ${ARGN} -D "ROOT=${PROJECT_SOURCE_DIR}" -D "BUILD=${PROJECT_BINARY_DIR}"
                -D "GENERATOR=${CMAKE_GENERATOR}" -D "VENDOR_DIR=${TESSERA_VENDOR_DIR}"
                -D "EIGEN_INSTALLED=${Eigen3_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_consumer.cmake")
  # Some compile the umbrella: minutes, should the machine be busy.
  set_tests_properties(checks/consumer_${name} PROPERTIES TIMEOUT 600 COST 50)
endfunction()
foreach(way IN ITEMS find_package fetch_content add_subdirectory)
  set(compiled "")
  if(way STREQUAL "find_package" AND TESSERA_COMPILED AND NOT TESSERA_CHECKED)
    set(compiled "-DCOMPILED=${CMAKE_CXX_FLAGS} -O2")
  endif()
  tessera_check_consumer(${way} -D WAY=${way} -D FILES=OFF -D SMALL=ON "${compiled}" -D "COMPILER=${CMAKE_CXX_COMPILER}")
endforeach()
# An Arrow that was found in build/arrow is in no consumer's reach.
set(arrow_dir "${TESSERA_ARROW_DIR}")
if(NOT arrow_dir AND NOT Arrow_DIR AND EXISTS "${PROJECT_SOURCE_DIR}/build/arrow")
  set(arrow_dir "${PROJECT_SOURCE_DIR}/build/arrow")
endif()
tessera_check_consumer(files -D WAY=find_package -D FILES=ON -D BLAS=$<TARGET_EXISTS:tessera::blas> -D DNNL=$<TARGET_EXISTS:tessera::dnnl>
                       -D MPI=$<TARGET_EXISTS:tessera::mpi>
                       -D PARQUET=$<TARGET_EXISTS:tessera::parquet> -D "ARROW_DIR=${arrow_dir}"
                       -D "COMPILER=${CMAKE_CXX_COMPILER}")
if(TESSERA_CUDA)
  set(cuda_compiler "")
  if(TARGET tessera::cuda AND CMAKE_CUDA_COMPILER)
    set(cuda_compiler "${CMAKE_CUDA_COMPILER}")
  endif()
  foreach(way IN ITEMS find_package add_subdirectory)
    tessera_check_consumer(cuda_${way} -D WAY=${way} -D FILES=OFF -D CUDA=ON -D SMALL=$<STREQUAL:${way},add_subdirectory> -D "CUDA_COMPILER=${cuda_compiler}"
                           -D "CUDA_ARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES}" -D "COMPILER=${CMAKE_CXX_COMPILER}")
  endforeach()
endif()
find_program(TESSERA_CLANGXX NAMES clang++ clang++-14)
mark_as_advanced(TESSERA_CLANGXX)
if(TESSERA_CLANGXX AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # One unit with the umbrella: that several link is shown above.
  tessera_check_consumer(clang -D WAY=add_subdirectory -D FILES=ON -D SMALL=ON -D "COMPILER=${TESSERA_CLANGXX}")
endif()

tessera_check(vendor ${CMAKE_COMMAND} -D "ROOT=${PROJECT_SOURCE_DIR}" -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/vendor" -D "GENERATOR=${CMAKE_GENERATOR}"
              -D "VENDOR_DIR=${TESSERA_VENDOR_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/check_vendor.cmake")
