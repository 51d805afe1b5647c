# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# tessera_find_cudatoolkit(<out>) looks for the CUDA Toolkit and defines the imported target tessera::cudatoolkit: its runtime, the folder of its
# headers with CUB and Thrust, and C++20 for CUDA sources. <out> becomes empty, or says what is missing and what to install. Also part of the
# installed package. No language is enabled: the project whose sources are CUDA does that, before or after.
#
# Which toolkit: that of the project's CUDA compiler, else CUDAToolkit_ROOT, the nvcc in PATH, /usr/local/cuda.
function(tessera_find_cudatoolkit out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET tessera::cudatoolkit)
    return()
  endif()
  find_package(CUDAToolkit 12.4 QUIET)
  if(NOT TARGET CUDA::cudart)
    set(${out} "no CUDA Toolkit of version 12.4 or newer was found: install one, or say where it is with CUDAToolkit_ROOT" PARENT_SCOPE)
    return()
  endif()

  add_library(tessera::cudatoolkit INTERFACE IMPORTED)
  target_link_libraries(tessera::cudatoolkit INTERFACE CUDA::cudart)
  # CMake before 3.26 does not know nvcc's flag for C++20. Later ones give it themselves to a target whose CUDA_STANDARD is 20 or more.
  target_compile_options(tessera::cudatoolkit INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:$<$<NOT:$<COMPILE_FEATURES:cuda_std_20>>:-std=c++20>>")
endfunction()
