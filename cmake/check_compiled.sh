#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# What tessera::compiled promises. An object that was compiled against it asks for no symbol of ours that the library lacks, and holds little of what it has;
# every list of instances that a header declares is in it; and objects that were compiled otherwise do not link, for a reason that can be read.
# usage: sh cmake/check_compiled.sh LIBRARY OBJECT COMPILER [FLAG...], from the source folder
set -u

[ $# -ge 3 ] || {
  echo "usage: sh cmake/check_compiled.sh LIBRARY OBJECT COMPILER [FLAG...]" >&2
  exit 2
}
library=$1
object=$2
compiler=$3
shift 3
for tool in nm size c++filt join; do
  command -v "$tool" >/dev/null || {
    echo "SKIPPED: there is no $tool"
    exit 0
  }
done
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
LC_ALL=C
export LC_ALL
bad=0
complain() {
  echo "check_compiled: $1"
  bad=1
}

nm --defined-only "$library" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[TWVRDBu]$/ {print $3}' | sort -u >"$folder/held"
[ -s "$folder/held" ] || complain "$library has no symbols"
nm --undefined-only "$object" | awk '{print $NF}' | grep 'N7tessera' | sort -u >"$folder/asked"
[ -s "$folder/asked" ] || complain "$object asks for nothing of the library"
comm -23 "$folder/asked" "$folder/held" >"$folder/missing"
[ ! -s "$folder/missing" ] || complain "the library lacks: $(c++filt <"$folder/missing")"

# Sizes are hexadecimal, and not every awk reads them.
nm --defined-only --print-size "$object" | awk 'NF == 4 && $3 ~ /^[TWVu]$/ {print $4, $2}' | sort | join - "$folder/held" | grep 'N7tessera' >"$folder/twice"
twice=0
while read -r _ size; do twice=$((twice + 0x$size)); done <"$folder/twice"
all=$(size "$object" | awk 'NR == 2 {print $1}')
echo "check_compiled: $((twice * 100 / all)) % of the code of $object is in the library too"
[ $((twice * 4)) -lt "$all" ] || complain "$twice of $all bytes of $object are in the library too"

sed -n 's/^#define \(TESSERA_INSTANCES\{0,1\}_OF_[A-Z0-9_]*\)(.*/\1/p' $(find include -name '*.hpp') | sort -u >"$folder/lists"
[ -s "$folder/lists" ] || complain "no header has a list of instances"
while read -r list; do
  grep -qE "$list(\(template\)|, template\))" compiled/*.cpp || grep -qE "$list, how" $(find include -name '*.hpp') || complain "$list is in no file of compiled/"
done <"$folder/lists"

# links FOLDER OPTION...: whether a program so compiled links with the library; its message is in FOLDER/message.
links() {
  headers=$1
  shift
  printf '#include <tessera/core/config.hpp>\nint main() {}\n' >"$folder/main.cpp"
  "$compiler" -std=c++20 "$@" -DTESSERA_COMPILED=1 -I "$headers" "$folder/main.cpp" "$library" -o "$folder/program" >"$folder/message" 2>&1
}
refused() {
  what=$1
  shift
  if links "$@"; then
    complain "a program of $what links"
  elif ! grep -q compiled_as_version_ "$folder/message"; then
    complain "a program of $what does not link, and nothing says why: $(cat "$folder/message")"
  fi
}
links include "$@" || complain "a program that is compiled alike does not link: $(cat "$folder/message")"
refused "a checked build" include "$@" -DTESSERA_CHECKED=1
has_sse4() {
  "$compiler" "$@" -dM -E -x c++ /dev/null 2>/dev/null | grep -q __SSE4_2__
}
if "$compiler" -march=x86-64 -E -x c++ /dev/null >/dev/null 2>&1 && has_sse4 "$@" && ! has_sse4 "$@" -march=x86-64; then
  refused "another processor" include "$@" -march=x86-64
fi
mkdir -p "$folder/other/tessera/core"
sed 's/^#define TESSERA_VERSION_MINOR .*/#define TESSERA_VERSION_MINOR 999/' include/tessera/core/config.hpp >"$folder/other/tessera/core/config.hpp"
refused "another version" "$folder/other" "$@"
exit $bad
