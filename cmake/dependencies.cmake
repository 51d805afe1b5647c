# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# One way to find a dependency: installed, else in TESSERA_VENDOR_DIR, else downloaded if TESSERA_FETCH_DEPENDENCIES asks for it.
# A download nobody asked for would surprise, so it is off by default; the message then says what to install.
#
# tessera_dependency(<name> [REQUIRED]) defines the dependency's own imported target, or does nothing if it is not found and not REQUIRED.

# Each line: name, package and least version, target, header that shows it is there, its include folder in its repository, repository, tag, Debian package.
set(tessera_dependency_eigen
    Eigen3 3.4 Eigen3::Eigen Eigen/Core . https://gitlab.com/libeigen/eigen.git 3.4.0 libeigen3-dev)
set(tessera_dependency_json
    nlohmann_json 3.11 nlohmann_json::nlohmann_json nlohmann/json.hpp include https://github.com/nlohmann/json.git v3.11.3 nlohmann-json3-dev)
set(tessera_dependency_doctest
    doctest 2.4.9 doctest::doctest doctest/doctest.h . https://github.com/doctest/doctest.git v2.4.11 doctest-dev)
set(tessera_dependency_cli11
    CLI11 2.1 CLI11::CLI11 CLI/CLI.hpp include https://github.com/CLIUtils/CLI11.git v2.3.2 libcli11-dev)
set(tessera_dependency_benchmark
    benchmark 1.7 benchmark::benchmark benchmark/benchmark.h include https://github.com/google/benchmark.git v1.7.1 libbenchmark-dev)

function(tessera_dependency name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "REQUIRED" "" "")
  set(fields ${tessera_dependency_${name}})
  list(POP_FRONT fields package version target header include_folder repository tag debian)
  if(TARGET ${target})
    return()
  endif()

  find_package(${package} ${version} CONFIG QUIET)
  if(TARGET ${target})
    return()
  endif()

  set(vendored "${TESSERA_VENDOR_DIR}/${name}/include")
  if(TESSERA_VENDOR_DIR AND EXISTS "${vendored}/${header}")
    message(STATUS "tessera: ${package} from ${vendored}")
    tessera_header_target(${target} "${vendored}")
    if(name STREQUAL "benchmark")
      set(folder "${TESSERA_VENDOR_DIR}/${name}/lib")
      file(GLOB libraries "${folder}/*")
      find_package(Threads REQUIRED)
      target_link_libraries(${target} INTERFACE ${libraries} Threads::Threads)
      target_link_options(${target} INTERFACE "LINKER:-rpath,${folder}")
      add_library(benchmark::benchmark_main ALIAS ${target})
    endif()
    return()
  endif()

  # A source folder given by hand is no download: it needs no further switch.
  string(TOUPPER "tessera_${name}" upper)
  if(TESSERA_FETCH_DEPENDENCIES OR FETCHCONTENT_SOURCE_DIR_${upper})
    include(FetchContent)
    if(name STREQUAL "benchmark")
      # The one that must be compiled; benchmarks are built top-level only, so its options reach no consumer.
      set(BENCHMARK_ENABLE_TESTING OFF)
      set(BENCHMARK_ENABLE_INSTALL OFF)
      set(BENCHMARK_INSTALL_DOCS OFF)
      set(BENCHMARK_ENABLE_WERROR OFF)
      set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
      FetchContent_Declare(tessera_${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON)
      FetchContent_MakeAvailable(tessera_${name})
    else()
      # Headers only: SOURCE_SUBDIR names a folder without CMakeLists.txt, so the dependency's own targets, tests and options stay out.
      FetchContent_Declare(tessera_${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON SOURCE_SUBDIR no-cmake)
      FetchContent_MakeAvailable(tessera_${name})
      if(NOT EXISTS "${tessera_${name}_SOURCE_DIR}/${include_folder}/${header}")
        message(FATAL_ERROR "tessera: ${tessera_${name}_SOURCE_DIR} holds no ${include_folder}/${header}")
      endif()
      tessera_header_target(${target} "${tessera_${name}_SOURCE_DIR}/${include_folder}")
    endif()
    return()
  endif()

  set(advice "${package} ${version} or newer was not found: install it (Debian: apt-get install ${debian}), or set TESSERA_VENDOR_DIR, or allow "
             "a download with -DTESSERA_FETCH_DEPENDENCIES=ON")
  string(CONCAT advice ${advice})
  if(arg_REQUIRED)
    message(FATAL_ERROR "tessera: ${advice}")
  endif()
  message(STATUS "tessera: ${advice}")
endfunction()

# Imported, so that compilers treat its headers as system headers and an export names it as an installed one.
function(tessera_header_target target include_dir)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} INTERFACE "${include_dir}")
endfunction()
