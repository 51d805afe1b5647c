// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/scan.cuh>

// What a consumer of CUDA gets from CMake, in little: its headers and CUB's.
int main() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ? 77 : 0;
}
