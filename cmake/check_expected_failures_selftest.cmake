# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D WORK=<scratch folder> -D COMPILER=<compiler> -P check_expected_failures_selftest.cmake
# Shows the check of expected failures good and bad sources.

file(REMOVE_RECURSE "${WORK}")

function(expect text is_good expected)
  file(WRITE "${WORK}/source.cpp" "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} -D "SOURCE=${WORK}/source.cpp" -D "COMPILER=${COMPILER}"
                          -P "${CMAKE_CURRENT_LIST_DIR}/check_expected_failures.cmake"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(FIND "${output}" "${expected}" position)
  if(position LESS 0 OR (is_good AND NOT status EQUAL 0) OR (NOT is_good AND status EQUAL 0))
    message(SEND_ERROR "expected `${expected}`, the check said (status ${status}):\n${output}\nfor:\n${text}")
  endif()
endfunction()

set(refused "static_assert(CASE != 1, \"no; never\");  // says: no; never\n")
expect("${refused}" YES "1 cases are refused")
expect("${refused}#if CASE != 2  // says: left_out\nint left_out;\n#endif\nint* user = &left_out;\n" YES "2 cases are refused")
expect("#if CASE == 1\nint a = b;\n#endif\n" NO "names no case")
expect("int a = b;\n${refused}" NO "with CASE=0 must compile")
expect("#if CASE == 1  // says: no\n#endif\n" NO "with CASE=1 must not compile")
expect("static_assert(CASE != 1, \"left\");  // says: right\n" NO "does not say `right`")
expect("${refused}#if CASE == 1\nint a = b;\nint c = d;\nint e = f;\nint g = h;\n#endif\n" NO "5 errors")
