#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# Compilers that users have read the umbrellas, the headers of back ends whose libraries are here, and the examples with their parts: templates are
# instantiated, no code is made. All is one translation unit, since the examples share most of what they instantiate: about a minute of a processor for each
# compiler, and up to three gigabytes. So many run at once as CMAKE_BUILD_PARALLEL_LEVEL says, else one.
# shellcheck disable=SC2086  # lists of flags and names are split on purpose
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
script=$root/cmake/check_compilers.sh
compilers="g++-11 g++-12 clang++-14 clang++-16 ziglang aarch64-linux-gnu-g++"
cross=aarch64-linux-gnu-g++

usage() {
  cat <<EOF
usage: sh cmake/check_compilers.sh [--run-aarch64] [COMPILER...]

  COMPILER       which of them, by the name of its program; otherwise those that are installed of
                 $compilers
                 (ziglang: the clang with libc++ of Python's package ziglang, in build/ziglang or of python3)
  --run-aarch64  also compile 02_compose and short tests of core, tensor and embed by $cross, and run them under QEMU: minutes
EOF
}

fail() {
  echo "check_compilers: $1" >&2
  exit 1
}

# How to call a compiler by its name here; nothing where it is not installed.
program_of() {
  if [ "$1" != ziglang ]; then
    command -v "$1" || true
  elif [ -x "$root/build/ziglang/ziglang/zig" ]; then
    echo "$root/build/ziglang/ziglang/zig c++"
  elif python3 -m ziglang version >/dev/null 2>&1; then
    echo "python3 -m ziglang c++"
  fi
}

# Folder `include` of `folder`: what this machine has in /usr/include of our dependencies, and not the C library that lies beside them there. `flags`: what
# is found of Arrow and MPI. `targets`: which back ends.
find_dependencies() {
  mkdir "$folder/include"
  for path in /usr/include/nlohmann /usr/include/CLI /usr/include/doctest /usr/include/oneapi /usr/include/dnnl*.h* \
    "/usr/include/$(uname -m)-linux-gnu"/cblas*.h "/usr/include/$(uname -m)-linux-gnu"/openblas_config*.h; do
    [ ! -e "$path" ] || ln -s "$(readlink -f "$path")" "$folder/include/${path##*/}"
  done
  [ -e /usr/include/eigen3/Eigen ] || fail "no Eigen in /usr/include/eigen3"
  for name in nlohmann CLI; do
    [ -e "$folder/include/$name" ] || fail "no $name in /usr/include"
  done
  flags="-I$root/include -isystem /usr/include/eigen3 -isystem $folder/include"
  targets=""
  if [ -e "$root/build/arrow/pyarrow/include/parquet/file_reader.h" ]; then
    targets="$targets tessera::parquet"
    flags="$flags -DTESSERA_TRAIN_PARQUET -isystem $root/build/arrow/pyarrow/include"
  fi
  if incdirs=$(mpicxx --showme:incdirs 2>/dev/null); then
    targets="$targets tessera::mpi"
    flags="$flags -DTESSERA_TRAIN_MPI"
    for path in $incdirs; do flags="$flags -isystem $path"; done
  fi
  if [ -e "$folder/include/oneapi/dnnl/dnnl.hpp" ]; then
    targets="$targets tessera::dnnl"
    flags="$flags -DTESSERA_RECD_DNNL"
  fi
  [ ! -e "$folder/include/cblas.h" ] || targets="$targets tessera::blas"
}

has_target() {
  case " $targets " in
    *" $1 "*) ;;
    *) return 1 ;;
  esac
}

# The unit. Names of one main file are not those of another, so each is in a namespace, and what it includes comes before.
write_unit() {
  examples=""
  sources=""
  for file in "$root"/examples/*.cpp; do
    target=$(sed -n 's/^\/\/ example-target: *//p' "$file")
    if [ -z "$target" ] || has_target "$target"; then
      name=${file##*/}
      name=${name%.cpp}
      examples="$examples ${name#*_}"
      sources="$sources $file"
    fi
  done

  echo '#include <tessera/tessera_files.hpp>'
  tr -d ')' <"$root/cmake/optional_headers.cmake" | sed -n 's/^ *\(tessera\/[^ ]*\.hpp\) \(tessera::[a-z]*\)$/\1 \2/p' | while read -r header target; do
    ! has_target "$target" || echo "#include <$header>"
  done
  for file in "$root"/include/tessera/synth/*.hpp; do
    grep -q "^ *tessera/synth/${file##*/} " "$root/cmake/optional_headers.cmake" || echo "#include <tessera/synth/${file##*/}>"
  done

  parts=""
  for name in support $examples; do
    for file in "$root/examples/$name"/*.hpp; do
      [ ! -e "$file" ] || echo "#include \"$file\""
    done
    for file in "$root/examples/$name"/*.cpp; do
      [ ! -e "$file" ] || parts="$parts $file"
    done
  done
  cat $sources $parts | sed -n 's/^#include \(<.*>\).*/\1/p' | grep -v '^<tessera/' | sort -u | while read -r header; do
    printf '#if __has_include(%s)\n#include %s\n#endif\n' "$header" "$header"
  done
  for file in $parts; do echo "#include \"$file\""; done
  for file in $sources; do
    name=${file##*/}
    name=${name%.cpp}
    printf 'namespace example_%s {\n#include "%s"\n}\n' "$name" "$file"
  done
}

# By one compiler, as the parent has prepared it. Prints a line, after the compiler's messages where it fails.
check_one() {
  folder=$1
  name=$2
  program=$(program_of "$name")
  flags="-std=c++20 -Wall -Wextra -Wconversion -Wsign-conversion -Wpedantic -Werror -Wno-return-type $(cat "$folder/flags")" # a main in a namespace returns nothing
  if [ "$name" = ziglang ]; then
    flags="$flags -target $(uname -m)-linux-gnu -fno-sanitize=undefined -Wno-c2y-extensions" # Arrow's macros have __COUNTER__
  fi
  # The widest registers, for which there is code of its own.
  case $(uname -m):$name in
    x86_64:*-linux-gnu-*) ;;
    x86_64:ziglang) flags="$flags -mcpu=x86_64_v4" ;;
    x86_64:*) flags="$flags -march=x86-64-v4" ;;
  esac
  version=$($program --version | sed -n '1s/.* \([0-9][0-9.]*\).*/\1/p')
  began=$(date +%s)
  status=0
  if [ "$name" = ziglang ]; then
    # Its driver waits for an object, so the compiler is called as the driver says it would.
    export ZIG_GLOBAL_CACHE_DIR="$folder/zig" ZIG_LOCAL_CACHE_DIR="$folder/zig"
    mkdir -p "$folder/zig/tmp"
    command=$($program $flags -fsyntax-only '-###' "$folder/unit.cpp" 2>&1 | sed -n 's/^ *"/"/p')
    version="clang $version, libc++"
    { [ -n "$command" ] && eval "$command"; } >"$folder/$name.log" 2>&1 || status=$?
  else
    $program $flags -fsyntax-only "$folder/unit.cpp" >"$folder/$name.log" 2>&1 || status=$?
  fi
  if [ "$status" -ne 0 ]; then
    head -n 60 "$folder/$name.log"
    echo "check_compilers: $name ($version) does not compile what is above"
    return 1
  fi
  echo "$name ($version): umbrellas and examples, $(($(date +%s) - began)) s"
}

# compile_aarch64 NAME SOURCE...: NAME of these.
compile_aarch64() {
  program=$1
  shift
  for file in "$@"; do echo "#include \"$root/$file\""; done >"$folder/$program.cpp"
  $cross -std=c++20 -O1 -Wno-psabi -static -pthread -DTESSERA_TEST_FEW_TYPES "-I$root/tests/support" $flags "$folder/$program.cpp" -o "$folder/$program"
}

# Not here: tests that take QEMU more than some seconds, and those of limits that it does not set (thread_team, background_thread).
run_aarch64() {
  qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || fail "no QEMU: sh cmake/bootstrap.sh deps compilers"
  command -v $cross >/dev/null || fail "no $cross: sh cmake/bootstrap.sh deps compilers"
  began=$(date +%s)
  compile_aarch64 compose examples/02_compose.cpp
  "$qemu" "$folder/compose" >"$folder/compose.log"
  last=$(tail -n 1 "$folder/compose.log")
  case $last in
    "step 50 loss 0.1"*) echo "02_compose on aarch64: $last" ;;
    *) fail "02_compose on aarch64: $last" ;;
  esac
  for suite in "core $core_tests" "tensor $tensor_tests" "embed $embed_tests"; do
    set -- $suite
    part=$1
    shift
    files=""
    for test in "$@"; do files="$files tests/$part/${test}_test.cpp"; done
    compile_aarch64 "$part" tests/main.cpp $files
    "$qemu" "$folder/$part" >"$folder/$part.log" || {
      tail -n 60 "$folder/$part.log"
      fail "tests of $part fail on aarch64"
    }
    echo "$part on aarch64: $# files, $(sed -n 's/.*test cases: *\([0-9]*\).*/\1/p' "$folder/$part.log") cases passed"
  done
  echo "aarch64 compiled and run: $(($(date +%s) - began)) s"
}

core_tests="buffer call_site check_finite dlpack error exact_sum execution fixed_divisor for_each_index four_elements id_map linked_numbers memory
  memory_adaptors multiply_add optimizers optimizer_adaptors philox piece_list row_formats run_length_encode scan segmented_reduce select square_root
  streamed_copy types update_rules view"
tensor_tests="concat_vectors countable_sizes deduplicate expand inverse_keyed_jagged invalid_rows jagged jagged_softmax jagged_vectors key_groups
  keyed_jagged pool_segments rows_from slice_rows view_forms view_room"
embed_tests="admission dense_table hash_table hashed_row host_rows lookup_saved row_order row_slabs row_update table_bytes_report"

if [ "${1:-}" = --one ]; then
  check_one "$2" "$3"
  exit
fi
run=false
wanted=""
for argument in "$@"; do
  case $argument in
    --run-aarch64) run=true ;;
    -h | --help)
      usage
      exit
      ;;
    -*)
      usage >&2
      fail "do not know: $argument"
      ;;
    *) wanted="$wanted $argument" ;;
  esac
done
found=""
for name in ${wanted:-$compilers}; do
  if [ -n "$(program_of "$name")" ]; then
    found="$found $name"
  elif [ -n "$wanted" ]; then
    fail "$name is not installed"
  else
    echo "$name: not installed, skipped"
  fi
done
[ -n "$found" ] || fail "none of these compilers is installed: sh cmake/bootstrap.sh deps compilers"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
find_dependencies
echo "$flags" >"$folder/flags"
write_unit >"$folder/unit.cpp"
echo "back ends whose headers are read, too:${targets:- none}"
printf '%s\n' $found | xargs -n 1 -P "${CMAKE_BUILD_PARALLEL_LEVEL:-1}" sh "$script" --one "$folder" || fail "failed"
if [ "$run" = true ]; then run_aarch64; fi
