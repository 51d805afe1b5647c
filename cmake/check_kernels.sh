#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# nvcc reads a source twice, for the host and for the GPU. Where the second reading drops what the first keeps, a program links, and its launch
# fails with "invalid device function". Each kernel that the host's code of these programs can launch must be one that they register.
# usage: sh cmake/check_kernels.sh PROGRAM...
set -u

[ $# -gt 0 ] || {
  echo "usage: sh cmake/check_kernels.sh PROGRAM..." >&2
  exit 2
}
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
LC_ALL=C
export LC_ALL
bad=0
for program in "$@"; do
  # A local symbol has a letter more in its name than the kernel that it stands for. Of nvcc's wrapper of a launch, which the compiler may leave a function
  # of its own, the name ends alike, so a letter must stand before the name's length.
  nm "$program" | awk '$2 ~ /^[TtWw]$/ {print $3}' | grep -E '^_ZN7tessera.*[a-zL]10run_kernelI' | grep -v '\.' | sed 's/L10run_kernelI/10run_kernelI/' |
    c++filt | sed 's/>(.*/>/' | sort -u >"$folder/host"
  objcopy -O binary --only-section=.rodata "$program" "$folder/rodata" || exit 2
  strings -a -n 8 "$folder/rodata" | grep -E '^_ZN7tessera[A-Za-z0-9_]*[a-zL]10run_kernelI[A-Za-z0-9_]*$' | sed 's/L10run_kernelI/10run_kernelI/' | c++filt |
    sed 's/>(.*/>/' | sort -u >"$folder/registered"
  [ -s "$folder/host" ] || {
    echo "check_kernels: $program has no kernels"
    bad=1
  }
  comm -23 "$folder/host" "$folder/registered" >"$folder/missing"
  if [ -s "$folder/missing" ]; then
    echo "check_kernels: $program launches what it does not register:"
    sed 's/^/  /' "$folder/missing"
    bad=1
  fi
done
exit $bad
