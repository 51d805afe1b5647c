# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.22)

# cmake -D WORK=<scratch folder> -P check_layers_selftest.cmake
# A check that never fails proves nothing: each rule is shown a small tree that breaks it, and must name the breach.

set(head "// SPDX-FileCopyrightText: Tessera contributors\n// SPDX-License-Identifier: Apache-2.0\n#pragma once\n")

# tree(<case> [<header> <text> | RAW <path> <text>]...): a tree of its own; headers get the SPDX lines and #pragma once, raw files nothing.
function(tree case)
  set(root "${WORK}/${case}")
  file(REMOVE_RECURSE "${root}")
  set(arguments ${ARGN})
  while(arguments)
    list(POP_FRONT arguments path)
    if(path STREQUAL "RAW")
      list(POP_FRONT arguments path text)
      file(WRITE "${root}/${path}" "${text}")
    else()
      list(POP_FRONT arguments text)
      file(WRITE "${root}/include/tessera/${path}" "${head}${text}\n")
    endif()
  endwhile()
  execute_process(COMMAND ${CMAKE_COMMAND} -D "ROOT=${root}" -P "${CMAKE_CURRENT_LIST_DIR}/check_layers.cmake"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(status ${status} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# breaks(<expected message> <case> ...): the check refuses the tree, for that reason and no other.
function(breaks expected case)
  tree(${case} ${ARGN})
  string(REGEX MATCHALL "(include|tests)[^\n]*: [^\n]*" found "${output}")
  list(LENGTH found count)
  string(FIND "${output}" "${expected}" position)
  if(status EQUAL 0 OR position LESS 0 OR NOT count EQUAL 1)
    message(SEND_ERROR "${case}: expected one breach, `${expected}`, but the check said (status ${status}):\n${output}")
  endif()
endfunction()

tree(good
     core/config.hpp "#ifdef __CUDACC__\n#endif"
     core/a.hpp "#include <tessera/core/config.hpp>"
     tensor/b.hpp "#include <vector>\n\n#include <tessera/core/a.hpp>"
     tensor/b.cuh "#include <cuda_runtime.h>\n\n#include <tessera/tensor/b.hpp>"
     files/json.hpp "#include <nlohmann/json.hpp>"
     nn/gemm_eigen.hpp "#include <Eigen/Core>\n#include <tessera/tensor/b.hpp>"
     cluster/c.hpp "#include <Eigen/Core>"
     train/d.hpp "#include <tessera/files/json.hpp>\n#include <tessera/nn/gemm_eigen.hpp>"
     tensor.hpp "#include <tessera/tensor/b.hpp>"
     lookups.hpp "#include <tessera/core/a.hpp>"
     files.hpp "#include <tessera/files/json.hpp>"
     tessera.hpp "#include <tessera/tensor.hpp>"
     tessera_files.hpp "#include <tessera/tessera.hpp>\n#include <tessera/train/d.hpp>"
     tessera.cuh "#include <tessera/tensor/b.cuh>"
     RAW tests/core/a_test.cpp "// SPDX-FileCopyrightText: Tessera contributors\n// SPDX-License-Identifier: Apache-2.0\n")
if(NOT status EQUAL 0)
  message(SEND_ERROR "a good tree is refused:\n${output}")
endif()

breaks("core/ is below tensor/ and includes <tessera/tensor/b.hpp>" upward
       core/a.hpp "#include <tessera/tensor/b.hpp>" tensor/b.hpp "")
breaks("core/ is below tensor/ and includes <tessera/tensor/b.cuh>" upward_cuh
       core/a.cuh "#include <tessera/tensor/b.cuh>" tensor/b.cuh "")
breaks("embed/ includes its sibling nn/" sibling embed/a.hpp "#include <tessera/nn/b.hpp>" nn/b.hpp "")
breaks("data/ is below synth/ and includes <tessera/synth/b.hpp>" synth data/a.hpp "#include <tessera/synth/b.hpp>" synth/b.hpp "")
breaks("tower/ includes its sibling plan/" upper_sibling tower/a.hpp "  #  include <tessera/plan/b.hpp>" plan/b.hpp "")
breaks("an include cycle lies among: core/a.hpp, core/b.hpp, core/c.hpp" cycle
       core/a.hpp "#include <tessera/core/b.hpp>" core/b.hpp "#include <tessera/core/c.hpp>"
       core/c.hpp "#include <tessera/core/a.hpp>" core/d.hpp "")
breaks("includes the umbrella <tessera/tessera.hpp>" umbrella core/a.hpp "#include <tessera/tessera.hpp>" tessera.hpp "")
breaks("includes the umbrella <tessera/core.hpp>" folder_umbrella tensor/a.hpp "#include <tessera/core.hpp>" core.hpp "")
breaks("includes the umbrella <tessera/lookups.hpp>" small_umbrella train/a.hpp "#include <tessera/lookups.hpp>" lookups.hpp "")
breaks("include/tessera/lookups.hpp: reaches nlohmann-json through its includes" json_small_umbrella
       files/j.hpp "#include <nlohmann/json.hpp>" lookups.hpp "#include <tessera/files/j.hpp>")
breaks("is in no known folder and is no umbrella" unknown_umbrella small.hpp "")
breaks("is an umbrella and includes <tessera/synth/a.hpp>" synth_umbrella tessera.hpp "#include <tessera/synth/a.hpp>" synth/a.hpp "")
breaks("is a .hpp and includes <tessera/core/b.cuh>" cuh core/a.hpp "#include <tessera/core/b.cuh>" core/b.cuh "")
breaks("is a .hpp and includes <cuda_runtime.h>" cuda_runtime core/a.hpp "#include <cuda_runtime.h>")
breaks("is a .hpp and includes <cuda/std/span>" cuda_std core/a.hpp "#include <cuda/std/span>")
breaks("is a .hpp and includes <cub/cub.cuh>" cub core/a.hpp "#include <cub/cub.cuh>")
breaks("is a .hpp and includes <thrust/sort.h>" thrust core/a.hpp "#include <thrust/sort.h>")
breaks("uses __CUDACC__, which only core/config.hpp may" cudacc core/a.hpp "#ifdef __CUDACC__\n#endif")
breaks("joins namespaces in one line" joined_namespace core/a.hpp "namespace tessera::inner {\n}")
set(spdx "// SPDX-FileCopyrightText: Tessera contributors\n// SPDX-License-Identifier: Apache-2.0\n")
set(own_bodies "#if !TESSERA_COMPILED\n#include <tessera/core/a.ipp>\n#endif")
set(of_a "#include <tessera/core/a.hpp>")
set(built RAW compiled/core.cpp "${spdx}#include <tessera/core/a.ipp>\n")
tree(bodies core/a.hpp "${own_bodies}" core/a.ipp "${of_a}\nTESSERA_INLINE void f() {\n}" ${built})
if(NOT status EQUAL 0)
  message(SEND_ERROR "a good tree with bodies is refused:\n${output}")
endif()
breaks("includes the bodies of another header, <tessera/core/a.ipp>" bodies_of_another
       core/a.hpp "${own_bodies}" core/a.ipp "${of_a}" core/b.hpp "#include <tessera/core/a.ipp>" ${built})
breaks("include/tessera/core/a.ipp: includes something beside its header" bodies_include
       core/a.hpp "${own_bodies}" core/b.hpp " " core/a.ipp "${of_a}\n#include <tessera/core/b.hpp>" ${built})
breaks("include/tessera/core/a.ipp: is not what its header includes where" bodies_alone core/a.hpp "#include <tessera/core/a.ipp>" core/a.ipp "${of_a}" ${built})
breaks("include/tessera/core/a.ipp: defines something without TESSERA_INLINE" bodies_inline
       core/a.hpp "${own_bodies}" core/a.ipp "${of_a}\nvoid f() {\n}" ${built})
breaks("include/tessera/core/a.ipp: is in 0 files of compiled/, and must be in one" bodies_unbuilt core/a.hpp "${own_bodies}" core/a.ipp "${of_a}")
breaks("include/tessera/core/a.ipp: is in 2 files of compiled/, and must be in one" bodies_twice
       core/a.hpp "${own_bodies}" core/a.ipp "${of_a}" ${built} RAW compiled/b.cpp "${spdx}#include <tessera/core/a.ipp>\n")
breaks("includes Eigen, which only" eigen nn/linear.hpp "#include <Eigen/Dense>")
breaks("is a .cuh and reaches Eigen through its includes" eigen_cuh
       nn/gemm_eigen.hpp "#include <Eigen/Core>" nn/linear.hpp "#include <tessera/nn/gemm_eigen.hpp>"
       nn/linear.cuh "#include <tessera/nn/linear.hpp>")
breaks("include/tessera/tessera.cuh: is a .cuh and reaches Eigen through its includes" eigen_umbrella
       nn/gemm_eigen.hpp "#include <Eigen/Core>" tessera.hpp "#include <tessera/nn/gemm_eigen.hpp>"
       tessera.cuh "#include <tessera/tessera.hpp>")
breaks("includes nlohmann-json, which only files/ may" json train/a.hpp "#include <nlohmann/json.hpp>")
breaks("include/tessera/data/a.hpp: reaches nlohmann-json through its includes" json_reached
       files/j.hpp "#include <nlohmann/json.hpp>" data/a.hpp "#include <tessera/files/j.hpp>")
breaks("include/tessera/tessera.hpp: reaches nlohmann-json through its includes" json_umbrella
       files/j.hpp "#include <nlohmann/json.hpp>" tessera.hpp "#include <tessera/files/j.hpp>")
breaks("includes \"b.hpp\", which is spelled <tessera/...>" quoted core/a.hpp "#include \"b.hpp\"" core/b.hpp "")
breaks("includes <tessera/core/none.hpp>, which does not exist" missing core/a.hpp "#include <tessera/core/none.hpp>")
breaks("is in no known folder and is no umbrella" folder misc/a.hpp "")
breaks("has no #pragma once" pragma RAW include/tessera/core/a.hpp
       "// SPDX-FileCopyrightText: Tessera contributors\n// SPDX-License-Identifier: Apache-2.0\n")
breaks("include/tessera/core/a.hpp: does not begin with the two SPDX lines" spdx RAW include/tessera/core/a.hpp "#pragma once\n")
breaks("tests/core/a_test.cpp: does not begin with the two SPDX lines" spdx_test RAW tests/core/a_test.cpp "int x = 0\n")
breaks("tests/core/a_test.cu: does not begin with the two SPDX lines" spdx_cuda_test RAW tests/core/a_test.cu "int x = 0\n")
