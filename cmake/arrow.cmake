# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_arrow(<out>) looks for Apache Arrow C++ with its Parquet, 19 or newer, and defines the imported target tessera::arrow. <out> becomes empty,
# or says what is missing and what to install. Also part of the installed package.
#
# Which Arrow: TESSERA_ARROW_DIR, a folder that has a `pyarrow` in it, where that is given; else the targets that the project has already; else the packages
# Arrow and Parquet, by CMAKE_PREFIX_PATH; else the pyarrow in TESSERA_VENDOR_DIR; else that which `cmake/bootstrap.sh deps` puts into build/arrow of the
# source tree. A pyarrow wheel has all of Arrow's headers and libraries, and no Python is needed to use them.
function(tessera_find_arrow out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::arrow)
    return()
  endif()
  set(least 19)
  set(advice "say `sh cmake/bootstrap.sh deps`, or install Apache Arrow with Parquet, ${least} or newer, and say where with CMAKE_PREFIX_PATH, or give "
             "TESSERA_ARROW_DIR a folder made by `python3 -m pip install --no-deps --target FOLDER pyarrow`")
  string(CONCAT advice ${advice})

  set(TESSERA_ARROW_DIR "" CACHE PATH "Folder of the pyarrow whose headers and libraries are used")
  set(folder "${TESSERA_ARROW_DIR}")
  if(NOT folder)
    tessera_take_arrow_targets()
    if(NOT TARGET tessera::arrow)
      find_package(Arrow ${least} CONFIG QUIET)
      if(Arrow_FOUND)
        find_package(Parquet CONFIG QUIET)
      endif()
      tessera_take_arrow_targets()
    endif()
    if(TARGET tessera::arrow)
      return()
    endif()
    set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../build/arrow")
    if(TESSERA_VENDOR_DIR AND EXISTS "${TESSERA_VENDOR_DIR}/arrow/pyarrow")
      set(folder "${TESSERA_VENDOR_DIR}/arrow")
    endif()
  endif()

  set(include "${folder}/pyarrow/include")
  if(NOT EXISTS "${include}/parquet/file_reader.h")
    set(${out} "no Apache Arrow with Parquet was found: ${advice}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${include}/arrow/util/config.h" line REGEX "^#define ARROW_VERSION_MAJOR ")
  string(REGEX REPLACE "[^0-9]" "" major "${line}")
  file(STRINGS "${include}/arrow/util/config.h" line REGEX "^#define ARROW_SO_VERSION ")
  string(REGEX REPLACE "[^0-9]" "" soversion "${line}")
  get_filename_component(include "${include}" ABSOLUTE)
  get_filename_component(libraries "${folder}/pyarrow" ABSOLUTE)
  set(arrow "${libraries}/libarrow.so.${soversion}")
  set(parquet "${libraries}/libparquet.so.${soversion}")
  if(major LESS least OR NOT EXISTS "${arrow}" OR NOT EXISTS "${parquet}")
    set(${out} "the pyarrow in ${folder} is of version ${major}, or without its libraries: ${advice}" PARENT_SCOPE)
    return()
  endif()

  # A wheel may be for another machine or C++ library.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_FLAGS "${CMAKE_CXX20_STANDARD_COMPILE_OPTION}")
  set(CMAKE_REQUIRED_INCLUDES "${include}")
  set(CMAKE_REQUIRED_LIBRARIES "${parquet}" "${arrow}")
  check_cxx_source_compiles("#include <parquet/file_reader.h>
    int main() { return parquet::ParquetFileReader::OpenFile(\"\") == nullptr; }" TESSERA_ARROW_LINKS)
  if(NOT TESSERA_ARROW_LINKS)
    set(${out} "a program with ${parquet} does not link: ${advice}" PARENT_SCOPE)
    return()
  endif()

  add_library(tessera::arrow INTERFACE IMPORTED)
  target_include_directories(tessera::arrow INTERFACE "${include}")
  target_link_libraries(tessera::arrow INTERFACE "${parquet}" "${arrow}")
  target_link_options(tessera::arrow INTERFACE "LINKER:-rpath,${libraries}")
endfunction()

macro(tessera_take_arrow_targets)
  foreach(kind IN ITEMS shared static)
    if(TARGET Parquet::parquet_${kind} AND TARGET Arrow::arrow_${kind} AND NOT TARGET tessera::arrow)
      add_library(tessera::arrow INTERFACE IMPORTED)
      target_link_libraries(tessera::arrow INTERFACE Parquet::parquet_${kind} Arrow::arrow_${kind})
    endif()
  endforeach()
endmacro()
