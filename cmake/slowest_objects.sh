#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# sh cmake/slowest_objects.sh FOLDER [COUNT]: seconds that the slowest objects of a build by Ninja took when they were last compiled, ten unless COUNT says
# otherwise; first those of all objects together. Elapsed time: what else ran at the time shows.
set -eu

[ $# -ge 1 ] && [ -f "$1/.ninja_log" ] || {
  echo "usage: sh cmake/slowest_objects.sh FOLDER [COUNT], where FOLDER has a .ninja_log" >&2
  exit 2
}
times=$(awk -F '\t' '$4 ~ /\.(o|ptx)$/ { seconds[$4] = ($2 - $1) / 1000 } END { for (object in seconds) printf "%8.1f %s\n", seconds[object], object }' "$1/.ninja_log")
echo "$times" | awk '{ sum += $1 } END { printf "%8.1f all %d objects\n", sum, NR }'
echo "$times" | sort -rn | head -n "${2:-10}"
