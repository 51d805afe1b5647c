#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# From a bare machine to a trained model in one command; `help` lists them. POSIX sh, safe to repeat, stops at the first failure with its cause.
# shellcheck disable=SC2086  # lists of package names are split on purpose
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

build_packages="g++ cmake ninja-build libeigen3-dev nlohmann-json3-dev doctest-dev libcli11-dev libbenchmark-dev"
arrow_version=26.0.1
fuzz_packages="clang libclang-rt-14-dev"
ci_compilers="g++-11 clang-16"
compilers="$ci_compilers g++-12 clang-14 g++-aarch64-linux-gnu qemu-user-static"
ziglang_version=0.17.1
ci_packages="$fuzz_packages ccache clang-format-14 clang-tidy-14 libopenblas-dev libdnnl-dev openmpi-bin libopenmpi-dev"

started_in=$PWD
step="starting"
scratch=""
ticker=""
finish() {
  status=$?
  [ -z "$scratch" ] || rm -rf "$scratch"
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
  [ "$status" -eq 0 ] || echo "bootstrap: failed while $step" >&2
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

begin() {
  step=$1
  echo "bootstrap: $step"
}

fail() {
  echo "bootstrap: $1" >&2
  exit 1
}

usage() {
  cat <<'EOF'
usage: sh cmake/bootstrap.sh COMMAND

  deps [ci|compilers]
                   install what is missing to build and test; Apache Arrow goes into build/arrow, by Python's pip. ci: also ccache, clang, its sanitizers,
                   clang-format and clang-tidy, a BLAS, oneDNN, Open MPI, and of other compilers g++ 11 and clang 16, where apt has them. compilers: also what
                   cmake/check_compilers.sh asks for, clang 22 into build/ziglang, by pip
  quickstart       deps, configure, build the example trainer, train it on the data that comes with the source
  test             deps, configure, build, run all tests
  bench [--smoke]  deps, configure, build, run all benchmarks (--smoke: on small inputs, for an instant, to see that they run, in build/smoke)
  compare [...]    deps, configure, build, then run the works beside their peers: PyTorch, FBGEMM, Arrow and others, which it installs into
                   build/peers (about 6 GB). --only NAME, --json FILE and what else bench/compare.py takes; writes build/compare.md and .svg
  fuzz [SECONDS] [NAME...]
                   deps with clang, configure, build, then replay the inputs of tests/fuzz/corpus and fuzz for so many seconds in all (3600), all
                   programs or those named; what they find is kept in build/fuzz/findings, what they learn in build/fuzz/work
  docs             deps with Doxygen, configure, make the reference of all public names in build/release/docs/html
  vendor DIR       unpack the dependencies into DIR, Apache Arrow among them where pip can get it, for a build without network or packages, on a
                   machine of the same kind of processor
  help             this text

Builds in build/release, but for fuzz and --smoke. Packages are installed on Debian and its derivatives, by apt-get, as root or through sudo.
EOF
}

installed() {
  [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
}

can_be_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Package lists are fetched only when apt does not know the packages, or no longer finds their files.
apt_install() {
  can_be_root || fail "this needs root, and sudo cannot be used here; as root, run: apt-get update && apt-get install -y --no-install-recommends $*"
  if apt-get install --simulate --no-install-recommends "$@" >/dev/null 2>&1; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" && return
  fi
  begin "updating the package lists"
  as_root apt-get update
  begin "installing $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

deps() {
  begin "looking for what is missing"
  if ! command -v apt-get >/dev/null 2>&1; then
    for tool in c++ cmake ninja; do
      command -v "$tool" >/dev/null 2>&1 ||
        fail "no $tool, and no apt-get to install it; install the equivalents of these Debian packages: $build_packages"
    done
    echo "bootstrap: no apt-get here; should a library be missing, the configuration will name it"
    return
  fi
  missing=""
  for package in "$@"; do
    installed "$package" || missing="$missing $package"
  done
  if [ -z "$missing" ]; then
    echo "bootstrap: nothing is missing"
    return
  fi
  begin "installing$missing"
  apt_install $missing
}

# Of these packages those that apt has: systems differ in their compilers.
deps_where_known() {
  command -v apt-get >/dev/null 2>&1 || return 0
  sort_known "$@"
  if [ -n "$unknown" ] && can_be_root; then # the lists may be old
    begin "updating the package lists"
    as_root apt-get update
    sort_known "$@"
  fi
  [ -z "$unknown" ] || echo "bootstrap: apt does not have$unknown"
  [ -z "$known" ] || deps $known
}

sort_known() {
  known=""
  unknown=""
  for package in "$@"; do
    if installed "$package" || apt-cache show "$package" >/dev/null 2>&1; then known="$known $package"; else unknown="$unknown $package"; fi
  done
}

# pip_into FOLDER NAME VERSION: a wheel, as a whole or not at all; false where there is none.
pip_into() {
  rm -rf "$1" "$1.new"
  if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
    apt_install python3-pip
  fi
  if PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --no-deps --only-binary :all: --target "$1.new" "$2==$3"; then
    echo "$3" >"$1.new/version"
    mv "$1.new" "$1"
  else
    rm -rf "$1.new"
    return 1
  fi
}

# For cmake/check_compilers.sh: the wheel has clang with libc++ and a C library.
ziglang() {
  folder=$root/build/ziglang
  [ "$(cat "$folder/version" 2>/dev/null)" != "$ziglang_version" ] || return 0
  begin "installing ziglang $ziglang_version into $folder"
  pip_into "$folder" ziglang "$ziglang_version" || echo "bootstrap: no ziglang here; cmake/check_compilers.sh does without"
}

# For tessera::parquet: the wheel has Arrow's headers and libraries. What else is built does without, so this is no reason to fail.
arrow() {
  folder=$root/build/arrow
  [ "$(cat "$folder/version" 2>/dev/null)" != "$arrow_version" ] || return 0
  begin "installing Apache Arrow $arrow_version into $folder"
  pip_into "$folder" pyarrow "$arrow_version" || echo "bootstrap: no Apache Arrow here; what needs tessera::parquet is skipped"
}

# Not more compilers at once than cores: each takes up to three gigabytes.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$cores}"
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$cores}"

configure() {
  begin "configuring build/release"
  cmake --preset release "$@"
}

build() {
  begin "building build/release"
  cmake --build --preset release "$@"
}

# A compiler may be silent for minutes. Not one sleep of many seconds: it would outlive us, and keep what we print open.
say_that_it_compiles() {
  seconds=0
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    seconds=$((seconds + 1))
    [ $((seconds % 15)) -ne 0 ] || echo "bootstrap: compiling for $seconds s"
  done
}

quickstart() {
  deps $build_packages
  configure
  say_that_it_compiles &
  ticker=$!
  build --target train_ctr
  kill "$ticker" 2>/dev/null || true
  ticker=""
  begin "training on examples/data/adult"
  build/release/examples/train_ctr --train examples/data/adult/train.tsv --test examples/data/adult/test.tsv
}

test_all() {
  deps $build_packages
  arrow
  configure
  build
  begin "testing build/release"
  ctest --preset release
}

docs() {
  deps $build_packages doxygen
  configure
  build --target docs
}

build_bench() {
  deps $build_packages "$@"
  arrow
  configure -DTESSERA_BUILD_BENCH=ON
  build --target tessera_benchmarks
}

# run_bench FOLDER OPTION...: all benchmarks of a build.
run_bench() {
  folder=$1
  shift
  found=false
  for program in "$folder"/bench/*_bench; do
    [ -x "$program" ] || continue
    found=true
    begin "running $program"
    status=0
    "$program" "$@" || status=$?
    case $status in
      0) ;;
      77) echo "bootstrap: skipped $program" ;; # a CUDA program without a GPU
      *) exit "$status" ;;
    esac
  done
  [ "$found" = true ] || echo "bootstrap: there is no benchmark"
}

bench() {
  build_bench libopenblas-dev libdnnl-dev
  run_bench build/release
}

# Nothing is measured, so nothing is optimised.
smoke() {
  deps $build_packages libopenblas-dev libdnnl-dev
  arrow
  begin "building build/smoke"
  cmake --preset release -B build/smoke -DTESSERA_BUILD_BENCH=ON -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF \
    -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" -DCMAKE_CUDA_FLAGS_RELEASE="-O0 -DNDEBUG"
  cmake --build build/smoke --target tessera_benchmarks
  TESSERA_BENCH_SMOKE=1 run_bench build/smoke --benchmark_min_time=0.001
}

compare() {
  build_bench python3-venv python3-dev libdnnl-dev
  begin "installing the peers into build/peers"
  build/peers/bin/python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear build/peers
  build/peers/bin/python -m pip install --quiet --requirement bench/peers/requirements.txt
  # TorchRec asks for FBGEMM's package for GPUs, where that for CPUs does.
  build/peers/bin/python -m pip install --quiet --no-deps --requirement bench/peers/requirements_alone.txt
  begin "comparing"
  rm -f build/compare.md
  # Files that the caller names are relative to where the caller stands.
  (cd "$started_in" && "$root/build/peers/bin/python" "$root/bench/compare.py" --markdown "$root/build/compare.md" --svg "$root/build/compare.svg" "$@")
  [ ! -e build/compare.md ] || cat build/compare.md # the caller may have named another file
}

# fuzz_one NAME SECONDS: replays the corpus, then fuzzes; false when there is a finding. What was printed is in build/fuzz/NAME.log.
fuzz_one() {
  program=build/fuzz/tests/fuzz/$1_fuzz
  corpus=tests/fuzz/corpus/$1
  log=build/fuzz/$1.log
  limits="-max_len=4096 -timeout=60 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/findings/$1- -print_final_stats=1"
  [ ! -e "$corpus.dict" ] || limits="$limits -dict=$corpus.dict"
  mkdir -p "build/fuzz/work/$1"
  begin "replaying $corpus"
  "$program" $limits -runs=0 "$corpus" >"$log" 2>&1 || return
  begin "fuzzing $1 for $2 seconds"
  "$program" $limits -max_total_time="$2" "build/fuzz/work/$1" "$corpus" >"$log" 2>&1
}

fuzz() {
  seconds=3600
  case ${1:-} in
    '' | *[!0-9]*) ;;
    *)
      seconds=$1
      shift
      ;;
  esac
  deps $build_packages $fuzz_packages
  arrow
  begin "configuring build/fuzz"
  cmake --preset fuzz
  begin "building build/fuzz"
  cmake --build --preset fuzz
  if [ $# -eq 0 ]; then
    for program in tests/fuzz/*_fuzz.cpp; do
      program=${program##*/}
      program=${program%_fuzz.cpp}
      [ ! -x "build/fuzz/tests/fuzz/${program}_fuzz" ] || set -- "$@" "$program"
    done
  fi
  for name in "$@"; do
    [ -x "build/fuzz/tests/fuzz/${name}_fuzz" ] || fail "there is no fuzz program $name"
  done
  each=$((seconds / $#))
  [ "$each" -gt 0 ] || each=1 # to libFuzzer, 0 is for ever
  mkdir -p build/fuzz/findings
  [ ! -w /dev/shm ] || export TMPDIR=/dev/shm # on a disk, programs that write files are ten times slower
  table=$(printf '%-12s %12s %10s %8s  %s' program executions 'a second' seconds finding)
  status=0
  for name in "$@"; do
    began=$(date +%s)
    finding=none
    if ! fuzz_one "$name" "$each"; then
      status=1
      tail -n 60 "build/fuzz/$name.log"
      finding=$(sed -n 's/.*Test unit written to //p' "build/fuzz/$name.log" | tail -n 1)
      finding=${finding:-"see build/fuzz/$name.log"}
    fi
    took=$(($(date +%s) - began))
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log")
    table="$table
$(printf '%-12s %12d %10d %8d  %s' "$name" "${executions:-0}" $((${executions:-0} / (took > 0 ? took : 1))) "$took" "$finding")"
  done
  printf '\n%s\n' "$table"
  step="fuzzing: a finding is run again by build/fuzz/tests/fuzz/NAME_fuzz FILE"
  return "$status"
}

# Else apt, run by root, warns that its own user cannot write to our folder.
download="apt-get -o APT::Sandbox::User=root download"

# vendor_one NAME PACKAGE FOLDER INTO PART...: the PARTs of FOLDER in the package become DIR/NAME/INTO/PART.
vendor_one() {
  name=$1
  package=$2
  folder=$3
  into=$target/$name/$4
  shift 4
  begin "unpacking $package into $target/$name"
  from=""
  if ! installed "$package" || [ ! -e "$folder/$1" ]; then
    scratch=$(mktemp -d)
    if ! (cd "$scratch" && $download "$package"); then
      can_be_root || fail "apt-get cannot download it; as root, run: apt-get update"
      as_root apt-get update
      (cd "$scratch" && $download "$package")
    fi
    dpkg-deb -x "$scratch"/*.deb "$scratch/files"
    version=$(dpkg-deb -f "$scratch"/*.deb Version)
    from="$scratch/files"
  else
    version=$(dpkg-query -W -f='${Version}' "$package")
  fi
  mkdir -p "$into"
  for part in "$@"; do
    rm -rf "${into:?}/$part"
    cp -RL "$from$folder/$part" "$into/"
  done
  # Some slim images leave out all documentation, licences included.
  licence="$from/usr/share/doc/$package/copyright"
  [ ! -e "$licence" ] || cp -L "$licence" "$target/$name/copyright"
  echo "$package $version" >"$target/$name/version"
  [ -z "$scratch" ] || rm -rf "$scratch"
  scratch=""
}

# What is compiled and linked with, of the wheel.
vendor_arrow() {
  arrow
  [ -e "$root/build/arrow/version" ] || return 0
  begin "copying Apache Arrow $arrow_version into $target/arrow"
  rm -rf "$target/arrow"
  mkdir -p "$target/arrow/pyarrow"
  cp "$root/build/arrow/version" "$target/arrow/"
  cp -RL "$root"/build/arrow/pyarrow/include "$root"/build/arrow/pyarrow/libarrow.so.* "$root"/build/arrow/pyarrow/libparquet.so.* "$target/arrow/pyarrow/"
  cp -RL "$root"/build/arrow/pyarrow-*.dist-info "$target/arrow/" # its licences
}

vendor() {
  begin "creating $1"
  mkdir -p "$1"
  target=$(CDPATH='' cd -- "$1" && pwd)
  command -v dpkg-deb >/dev/null 2>&1 || fail "the dependencies are unpacked from Debian packages, but dpkg-deb is not here"
  vendor_one eigen libeigen3-dev /usr/include/eigen3 include Eigen unsupported
  vendor_one json nlohmann-json3-dev /usr/include include nlohmann
  vendor_one doctest doctest-dev /usr/include include doctest
  vendor_one cli11 libcli11-dev /usr/include include CLI
  # The one that is compiled: for machines of this kind of processor, with a C library of this age or younger.
  libraries=/usr/lib/$(uname -m)-linux-gnu
  vendor_one benchmark libbenchmark-dev /usr/include include benchmark
  vendor_one benchmark libbenchmark1debian "$libraries" lib libbenchmark.so.1debian
  vendor_one benchmark libbenchmark-dev "$libraries" lib libbenchmark_main.a
  vendor_arrow
  echo "bootstrap: done; configure with -DTESSERA_VENDOR_DIR=\"$target\""
}

command=${1:-help}
[ $# -eq 0 ] || shift
case "$command:$#:${1:-}" in
  help:0:* | --help:0:* | -h:0:*) usage ;;
  deps:0:) deps $build_packages && arrow ;;
  deps:1:ci) deps $build_packages $ci_packages && deps_where_known $ci_compilers && arrow ;;
  deps:1:compilers) deps $build_packages && deps_where_known $compilers && arrow && ziglang ;;
  quickstart:0:) cd "$root" && quickstart ;;
  test:0:) cd "$root" && test_all ;;
  docs:0:) cd "$root" && docs ;;
  bench:0:) cd "$root" && bench ;;
  bench:1:--smoke) cd "$root" && smoke ;;
  fuzz:*) cd "$root" && fuzz "$@" ;;
  compare:*) cd "$root" && compare "$@" ;;
  vendor:1:?*) vendor "$1" ;;
  *)
    usage >&2
    step="reading the arguments"
    fail "do not know: $command $*"
    ;;
esac
