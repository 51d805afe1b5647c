#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# On a machine with a GPU: builds the CUDA programs, tests them, looks for accesses out of bounds and for races, measures. Ends in the time it is
# given, goes on when a stage fails, and prints a short summary last. POSIX sh; installs nothing, needs no network.
set -u

usage() {
  cat <<'END'
usage: sh cmake/gpu_run.sh FOLDER [STAGE...]

  build      configure and build tests and benchmarks in build/release
  test       every CUDA test
  memcheck   compute-sanitizer --tool memcheck over the test programs
  racecheck  the same with --tool racecheck
  compare    benchmarks beside their ceilings and PyTorch

All of them unless named. FOLDER gets build.log, test.log, memcheck.log, racecheck.log, compare.log, compare.json, cuda.md and summary.txt.

TESSERA_GPU_MINUTES       for all stages together: 10 unless set
TESSERA_VENDOR_DIR        what `bootstrap.sh vendor` unpacked: the folder vendor, if there is one, unless set
TESSERA_GPU_ARCHITECTURE  of which GPU: 90, Hopper, unless set
TESSERA_COMMIT            of the sources, where their repository is not here
TESSERA_BENCH_SMOKE       set: measure small shapes for an instant, to see that all runs
END
}

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
case ${1:-} in
  '' | -*)
    usage
    [ "${1:-}" = --help ] && exit 0
    exit 2
    ;;
esac
mkdir -p "$1" && out=$(CDPATH='' cd -- "$1" && pwd) || exit 2
shift
[ $# -gt 0 ] || set -- build test memcheck racecheck compare
for stage in "$@"; do
  case $stage in
    build | test | memcheck | racecheck | compare) ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done
cd "$root" || exit 2

vendor=${TESSERA_VENDOR_DIR:-}
[ -n "$vendor" ] || [ ! -d vendor ] || vendor=$root/vendor
end=$(($(date +%s) + ${TESSERA_GPU_MINUTES:-10} * 60))
left() {
  seconds=$((end - $(date +%s)))
  [ "$seconds" -gt 5 ] || seconds=5
  echo "$seconds"
}
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 4)
PATH=$PATH:/usr/local/cuda/bin
summary=$out/summary.txt
: >"$summary"
say() { echo "$*" | tee -a "$summary"; }

# limited SECONDS COMMAND...: stopped then, with what it started.
limited() {
  seconds=$1
  shift
  timeout --kill-after=5 "$seconds" "$@"
}

# Called by their names below.
# shellcheck disable=SC2317
build() {
  generator=Ninja
  go_on="-k 0"
  if ! command -v ninja >/dev/null 2>&1; then
    generator="Unix Makefiles"
    go_on=-k
  fi
  # Warnings of compilers that we have not seen shall not stop this.
  limited "$(left)" cmake --preset release -G "$generator" -DTESSERA_CUDA=ON -DTESSERA_GPU=ON -DTESSERA_BUILD_BENCH=ON -DTESSERA_BUILD_CHECKS=OFF \
    -DTESSERA_WERROR=OFF -DTESSERA_BLAS=OFF -DTESSERA_DNNL=OFF ${vendor:+"-DTESSERA_VENDOR_DIR=$vendor"} \
    ${TESSERA_GPU_ARCHITECTURE:+"-DCMAKE_CUDA_ARCHITECTURES=$TESSERA_GPU_ARCHITECTURE"} || return
  # Benchmarks first: they take longest, one file each. Other programs are built when one is not.
  # shellcheck disable=SC2086
  limited "$(left)" cmake --build build/release --parallel "$cores" --target tessera_cuda_benchmarks tessera_cuda_programs -- $go_on || return
  sh cmake/check_kernels.sh build/release/tests/tessera_*_cuda_tests build/release/bench/*_cuda_bench
}

run_tests() {
  limited "$(left)" ctest --preset release --label-regex cuda --parallel 4
}

# sanitize TOOL: all test programs at once, each until its share of the time is over: what it then found counts.
sanitize() {
  command -v compute-sanitizer >/dev/null 2>&1 || { echo "there is no compute-sanitizer" && return 1; }
  share=$(($(left) / 3))
  # Tests provoke errors of calls, which are no accesses.
  quiet=
  [ "$1" = memcheck ] && quiet="--report-api-errors no"
  logs=$(mktemp -d)
  for program in build/release/tests/tessera_*_cuda_tests; do
    [ -x "$program" ] || { echo "$program was not built" && return 1; }
    (
      # shellcheck disable=SC2086
      limited "$share" compute-sanitizer --tool "$1" $quiet --error-exitcode 99 "$program"
      echo "$program: $1 returned $?"
    ) >"$logs/${program##*/}" 2>&1 &
  done
  wait
  cat "$logs"/*
  bad=$(cat "$logs"/* | grep -E ": $1 returned [0-9]+$" | grep -vcE "returned (0|77|124)$")
  rm -rf "$logs"
  [ "$bad" -eq 0 ]
}

# shellcheck disable=SC2317
compare() {
  # shellcheck disable=SC2086
  limited "$(left)" python3 -B bench/compare.py --device cuda --launches 2 --json "$out/compare.json" --markdown "$out/cuda.md" \
    ${TESSERA_BENCH_SMOKE:+--smoke}
}

# What a stage's log says in short.
short() {
  case $1 in
    build) grep -E "error|FAILED|warning: " "$out/build.log" | head -n 12 ;;
    test) grep -E "tests passed|\*\*\*(Failed|Timeout|Skipped|Exception)|No tests were found" "$out/test.log" | tail -n 20 ;;
    memcheck | racecheck) grep -E "(SUMMARY|returned [0-9]+$|there is no |not built|[sS]kipped)" "$out/$1.log" | tail -n 12 ;;
    compare)
      grep -E "^compare: .*(aimed|failed|no )|SKIPPED" "$out/compare.log" | sort -u | tail -n 8
      [ ! -f "$out/cuda.md" ] || sed -n '/^| work/,/^$/p' "$out/cuda.md"
      ;;
  esac
}

say "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
say "$(nvcc --version 2>/dev/null | tail -n 1 || true), commit $(git describe --always --dirty --exclude='*' 2>/dev/null || echo "${TESSERA_COMMIT:-unknown}")"
worst=0
for stage in "$@"; do
  started=$(date +%s)
  echo "gpu_run: $stage, $(left) s left"
  case $stage in
    test) run_tests >"$out/$stage.log" 2>&1 ;;
    memcheck | racecheck) sanitize "$stage" >"$out/$stage.log" 2>&1 ;;
    *) "$stage" >"$out/$stage.log" 2>&1 ;;
  esac
  status=$?
  case $status in
    0) result="done" ;;
    77) result=skipped ;;
    124 | 137) result="out of time" ;;
    *) result="FAILED ($status)" ;;
  esac
  [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || worst=1
  echo "$stage: $result, $(($(date +%s) - started)) s" >>"$summary"
  short "$stage" >>"$summary" 2>/dev/null
done
echo
cat "$summary"
exit "$worst"
