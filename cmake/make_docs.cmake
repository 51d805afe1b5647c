# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D ROOT=<source folder> -D DOXYGEN=<program> -D OUT=<folder> -P make_docs.cmake
# Makes the reference in OUT/html, and fails when a public name is undocumented. These need no contract of their own:
# - members of the names below, which a concept, or what all containers have in common, says once for all its models;
# - the `state` of a policy and the `factors` of an optimizer, which their concepts say;
# - data members, whose names say what they are, with their units; types within a class; destructors, copies, comparisons; deduction guides and
#   specialisations of a variable.

# Containers and views; owners of memory.
set(said_once data size empty begin end view columns stride bytes bytes_for capacity_bytes clear)
# Layers and models; files.
list(APPEND said_once width layers input_width output_width path)
# memory_resource, thread_team, gemm_policy, metric
list(APPEND said_once allocate deallocate run workspace multiply samples merge add value)
# optimizer_policy, learning rates and other function objects
list(APPEND said_once check begin_row update gradient_of "operator.*")
# row_scale of each element
list(APPEND said_once extent of covering for_values write_to nearest stochastic)
# row_store, and the views of its rows for kernels
list(APPEND said_once options dim rows row state steps set_steps slot_bound state_layout locate locate_new find holds id_of in_range begin_batch device_rows host_rows
     execution_concept)
# admission and eviction, and what tables tell of theirs
list(APPEND said_once admits admitted saved_rows save restore victim reserve inserted used removed for_each prefetch eviction_policy admission_policy clock
     admission_name eviction_name)
# sample_source
list(APPEND said_once schema block_count first_row read)
# id_transform and bucket_policy
list(APPEND said_once place of_key)
# embedding_source
list(APPEND said_once outputs finish begin_backward finish_backward gradients apply predict prepare parts groups blocks parameter_count parameters)

foreach(needed IN ITEMS ROOT DOXYGEN OUT)
  if(NOT ${needed})
    message(FATAL_ERROR "make_docs: -D ${needed}=… is missing")
  endif()
endforeach()
file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}")
execute_process(COMMAND ${CMAKE_COMMAND} -E env "TESSERA_DOCS_DIR=${OUT}" "${DOXYGEN}" docs/Doxyfile WORKING_DIRECTORY "${ROOT}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "make_docs: ${DOXYGEN} failed")
endif()

list(JOIN said_once "|" said_once)
file(STRINGS "${OUT}/warnings.txt" lines)
set(wrong "")
set(count 0)
foreach(line IN LISTS lines)
  string(REPLACE "${ROOT}/" "" line "${line}")
  if(line MATCHES "warning: Member (.*) \\((variable|typedef|friend|function|enumvalue)\\) of (class|struct|union) ([^ ].*) is not documented")
    set(member "${CMAKE_MATCH_1}")
    set(kind "${CMAKE_MATCH_2}")
    string(REGEX REPLACE "<.*" "" class "${CMAKE_MATCH_4}")
    string(REGEX REPLACE ".*::" "" class "${class}")
    string(REGEX REPLACE " +$" "" class "${class}")
    string(REGEX REPLACE "\\(.*" "" name "${member}")
    string(REGEX REPLACE ".*[ *&]" "" name "${name}")
    if(kind MATCHES "variable|typedef|friend" OR name MATCHES "^(${said_once})$" OR member MATCHES "operator|^ *~| = *(default|delete)")
      continue()
    endif()
    if(name STREQUAL class AND member MATCHES "\\((.*)${class}( <[^>]*>)? *(const *)?&&?")
      continue()
    endif()
  elseif(line MATCHES "warning: Compound .*::(state|factors) is not documented")
    continue()
  elseif(line MATCHES "warning: Member (.*\\).*->.* \\(function\\)|[^ ]+< .* \\(variable\\)) of namespace")
    continue()
  endif()
  math(EXPR count "${count} + 1")
  string(APPEND wrong "  ${line}\n")
endforeach()

# Doxygen does not warn of concepts.
file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/include/*.hpp" "${ROOT}/include/*.cuh")
foreach(header IN LISTS headers)
  file(READ "${ROOT}/${header}" text)
  if(NOT text MATCHES "\nconcept ")
    continue()
  endif()
  foreach(special IN ITEMS "[" "]" ";")
    string(REPLACE "${special}" " " text "${text}")
  endforeach()
  string(REPLACE "\n" ";" lines "${text}")
  set(documented OFF)
  set(is_detail OFF)
  foreach(line IN LISTS lines)
    if(line MATCHES "namespace detail( {)?$")
      string(FIND "${line}" "}" closing)
      set(is_detail OFF)
      if(closing EQUAL -1)
        set(is_detail ON)
      endif()
    elseif(line MATCHES "^///")
      set(documented ON)
    elseif(line MATCHES "^(template| *requires)")
      continue()
    elseif(line MATCHES "^concept ([a-z_0-9]+)" AND NOT documented AND NOT is_detail)
      math(EXPR count "${count} + 1")
      string(APPEND wrong "  ${header}: warning: Concept ${CMAKE_MATCH_1} is not documented\n")
    else()
      set(documented OFF)
    endif()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "make_docs: undocumented public names, or comments that Doxygen refuses (${count}):\n${wrong}")
endif()
message(STATUS "make_docs: ${OUT}/html/index.html")
