#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# sh syntax_only.sh COMPILER ARGUMENT...: as CMake's launcher of a compiler, reads the source and leaves an empty object, which nothing may link.
set -eu
"$@" -fsyntax-only
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then
    : >"$2"
    exit
  fi
  shift
done
