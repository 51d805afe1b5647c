# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D WORK=<scratch folder> -P check_umbrellas_selftest.cmake
# Shows the check of umbrellas a small tree that is right, and breaks each rule in it once.

# tree(<case> [<path> <text>]...): the good tree, with these files in place of its own.
function(tree case)
  set(root "${WORK}/${case}")
  file(REMOVE_RECURSE "${root}")
  set(arguments
      include/tessera/core/a.hpp "" include/tessera/core/b.hpp "#include <tessera/core/a.hpp>"
      include/tessera/files/j.hpp "#include <nlohmann/json.hpp>" include/tessera/files/p.hpp ""
      include/tessera/data/parquet_log.hpp "" include/tessera/data/p.hpp "#include <tessera/files/p.hpp>" include/tessera/data/d_file.hpp ""
      include/tessera/train/t.hpp "" include/tessera/train/k.hpp "#include <tessera/files/j.hpp>"
      include/tessera/synth/s.hpp "" include/tessera/core/a.cuh "" include/tessera/comm/nccl_communicator.cuh ""
      include/tessera/core.hpp "#include <tessera/core/a.hpp>\n#include <tessera/core/b.hpp>"
      include/tessera/files.hpp "#include <tessera/files/j.hpp>\n#include <tessera/files/p.hpp>"
      include/tessera/data.hpp "#include <tessera/data/p.hpp>"
      include/tessera/train.hpp "#include <tessera/train/t.hpp>"
      include/tessera/lookups.hpp "#include <tessera/core/a.hpp>"
      include/tessera/local_model.hpp "#include <tessera/lookups.hpp>\n#include <tessera/train/t.hpp>"
      include/tessera/tessera.hpp "#include <tessera/core.hpp>\n#include <tessera/data.hpp>\n#include <tessera/train.hpp>"
      include/tessera/tessera_files.hpp
      "#include <tessera/data/d_file.hpp>\n#include <tessera/files.hpp>\n#include <tessera/tessera.hpp>\n#include <tessera/train/k.hpp>"
      include/tessera/tessera_parquet.hpp "#include <tessera/data/parquet_log.hpp>\n#include <tessera/tessera.hpp>"
      include/tessera/tessera.cuh "#include <tessera/core/a.cuh>"
      examples/01_a.cpp "#include <tessera/core.hpp>" examples/a/b.hpp "#include <tessera/lookups.hpp>"
      examples/08_sessions.cpp "#include <tessera/tessera_files.hpp>"
      ${ARGN})
  while(arguments)
    list(POP_FRONT arguments path text)
    file(WRITE "${root}/${path}" "${text}\n")
  endwhile()
  execute_process(COMMAND ${CMAKE_COMMAND} -D "ROOT=${root}" -P "${CMAKE_CURRENT_LIST_DIR}/check_umbrellas.cmake"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(status ${status} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# breaks(<expected message> <case> ...): the check refuses the tree, for that reason and no other.
function(breaks expected case)
  tree(${case} ${ARGN})
  string(REGEX MATCHALL "(include|examples)/[^\n]*: [^\n]*" found "${output}")
  list(LENGTH found count)
  string(FIND "${output}" "${expected}" position)
  if(status EQUAL 0 OR position LESS 0 OR NOT count EQUAL 1)
    message(SEND_ERROR "${case}: expected one breach, `${expected}`, but the check said (status ${status}):\n${output}")
  endif()
endfunction()

tree(good)
if(NOT status EQUAL 0)
  message(SEND_ERROR "a good tree is refused:\n${output}")
endif()

breaks("core.hpp: does not include <tessera/core/c.hpp>" missing include/tessera/core/c.hpp "")
breaks("train.hpp: does not include <tessera/train/t.hpp>" empty include/tessera/train.hpp "")
breaks("core.hpp: includes <tessera/data/p.hpp>, but" other_folder
       include/tessera/core.hpp "#include <tessera/core/a.hpp>\n#include <tessera/core/b.hpp>\n#include <tessera/data/p.hpp>")
breaks("core.hpp: includes <tessera/core/a.hpp> twice" twice
       include/tessera/core.hpp "#include <tessera/core/a.hpp>\n#include <tessera/core/b.hpp>\n#include <tessera/core/a.hpp>")
breaks("train.hpp: includes <tessera/train/k.hpp>, but" json include/tessera/train.hpp "#include <tessera/train/k.hpp>\n#include <tessera/train/t.hpp>")
breaks("data.hpp: includes <tessera/data/d_file.hpp>, but" file include/tessera/data.hpp "#include <tessera/data/d_file.hpp>\n#include <tessera/data/p.hpp>")
breaks("data.hpp: includes <tessera/data/parquet_log.hpp>, but" optional
       include/tessera/data.hpp "#include <tessera/data/p.hpp>\n#include <tessera/data/parquet_log.hpp>")
breaks("files.hpp: does not include <tessera/files/j.hpp>" files include/tessera/files.hpp "#include <tessera/files/p.hpp>")
breaks("tessera_files.hpp: does not include <tessera/train/l.hpp>" json_missing include/tessera/train/l.hpp "#include <tessera/train/k.hpp>")
breaks("tessera.hpp: does not include <tessera/data.hpp>" folder_missing
       include/tessera/tessera.hpp "#include <tessera/core.hpp>\n#include <tessera/train.hpp>")
breaks("tessera.hpp: includes <tessera/files.hpp>, but" files_in_all
       include/tessera/tessera.hpp "#include <tessera/core.hpp>\n#include <tessera/data.hpp>\n#include <tessera/files.hpp>\n#include <tessera/train.hpp>")
breaks("tessera_parquet.hpp: does not include <tessera/data/parquet_log.hpp>" parquet include/tessera/tessera_parquet.hpp "#include <tessera/tessera.hpp>")
breaks("tessera.cuh: does not include <tessera/train/t.cuh>" cuda include/tessera/train/t.cuh "")
breaks("tessera.cuh: includes <tessera/comm/nccl_communicator.cuh>, but" nccl
       include/tessera/tessera.cuh "#include <tessera/comm/nccl_communicator.cuh>\n#include <tessera/core/a.cuh>")
breaks("lookups.hpp: is missing" small_missing include/tessera/lookups.hpp "")
breaks("lookups.hpp: includes <tessera/train/k.hpp>, which needs nlohmann-json" small_json include/tessera/lookups.hpp "#include <tessera/train/k.hpp>")
breaks("lookups.hpp: includes <tessera/data/parquet_log.hpp>, which needs what" small_optional
       include/tessera/lookups.hpp "#include <tessera/data/parquet_log.hpp>")
breaks("lookups.hpp: is small and includes <tessera/core.hpp>" small_large include/tessera/lookups.hpp "#include <tessera/core.hpp>")
breaks("examples/a/b.hpp: includes the large umbrella" example examples/a/b.hpp "#include <tessera/tessera.hpp>")
breaks("examples/01_a.cpp: includes the large umbrella" example_files examples/01_a.cpp "#include <tessera/tessera_files.hpp>")
breaks("examples/08_sessions.cpp: shows the large umbrella" example_of_all examples/08_sessions.cpp "")
