# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D WORK=<scratch folder> -P check_readme_selftest.cmake
# Shows the README check good and bad blocks, and numbers of what is unproven.

file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/a.cpp" "int main() {\n  int a[2] = {1, 2};\n\n  if (a[0]) {\n    return '\\n';\n  }\n}\n")

function(expect text expected)
  file(WRITE "${WORK}/README.md" "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} -D "ROOT=${WORK}" -P "${CMAKE_CURRENT_LIST_DIR}/check_readme.cmake"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(FIND "${output}" "${expected}" position)
  if(position LESS 0 OR (expected MATCHES "^README" AND status EQUAL 0) OR (NOT expected MATCHES "^README" AND NOT status EQUAL 0))
    message(SEND_ERROR "expected `${expected}`, the check said (status ${status}):\n${output}\nfor:\n${text}")
  endif()
endfunction()

set(from "<!-- from: a.cpp -->\n")
expect("text\n```sh\nls\n```\n" "no cpp block")
expect("${from}```cpp\nint a[2] = {1, 2};\n\nif (a[0]) {\n  return '\\n';\n}\n```\n" "1 blocks of README.md and docs/ are compiled code")
expect("${from}\n```cpp\n    return '\\n';\n```\n${from}```cpp\nint main() {\n```\n" "2 blocks of README.md and docs/ are compiled code")
expect("```cpp\nint main() {\n```\n" "README.md:1: no `<!-- from")
expect("${from}\nother text\n```cpp\nint main() {\n```\n" "README.md:4: no `<!-- from")
expect("<!-- from: b.cpp -->\n```cpp\nint main() {\n```\n" "README.md:2: b.cpp is no source file here")
expect("${from}```cpp\nint a[2] = {1, 3};\n```\n" "README.md:2: the block is not in a.cpp")
expect("${from}```cpp\nint a[2] = {1, 2};\nif (a[0]) {\n```\n" "README.md:2: the block is not in a.cpp")
expect("${from}```cpp\nif (a[0]) {\nreturn '\\n';\n```\n" "README.md:2: the block is not in a.cpp")
expect("${from}```c++\nint b;\n```\n" "README.md:2: the block is not in a.cpp")

set(block "${from}```cpp\nint main() {\n```\n")
set(kernel "struct first_kernel {  // unproven\n};\ntemplate <>\nstruct scan_impl<cuda_exec> {  // unproven\n};\nstruct proven_kernel {\n};\n")
file(WRITE "${WORK}/include/a.cuh" "${kernel}")
expect("${block}On a GPU: **2 unproven**.\n" "1 blocks of README.md")
expect("${block}On a GPU: **3 unproven**.\n" "README.md: it says `**3 unproven**`, but list_unproven.cmake counts 2")
expect("${block}On a GPU.\n" "README.md: it says `**0 unproven**`, but list_unproven.cmake counts 2")
file(WRITE "${WORK}/include/b.hpp" "struct\nother {  // unproven\n};\n")
expect("${block}On a GPU: **2 unproven**.\n" "README.md: nothing to compare with")
file(WRITE "${WORK}/include/b.hpp" "struct other {  // unproven\n};\n")
expect("${block}On a GPU: **3 unproven**.\n" "1 blocks of README.md")
execute_process(COMMAND ${CMAKE_COMMAND} -D "ROOT=${WORK}" -P "${CMAKE_CURRENT_LIST_DIR}/list_unproven.cmake" OUTPUT_VARIABLE output)
if(NOT output STREQUAL "include/a.cuh: first_kernel\ninclude/a.cuh: scan_impl<cuda_exec>\ninclude/b.hpp: other\n3 unproven\n")
  message(SEND_ERROR "list_unproven.cmake says:\n${output}")
endif()
