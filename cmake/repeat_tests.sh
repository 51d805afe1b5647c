#!/bin/sh
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# sh cmake/repeat_tests.sh N [REGEX [FOLDER]]: runs the short tests of a build N times, those whose names match REGEX, each round with another seed for
# all that draw one. Short are those that declare no `// ctest-cost`. FOLDER is build/release unless it is named. Goes on after a failure; the table at
# the end names each test that failed, in how many rounds, and a seed to repeat the first of them with.
set -eu

case ${1:-} in
  '' | *[!0-9]*)
    echo "usage: sh cmake/repeat_tests.sh N [REGEX [FOLDER]]" >&2
    exit 2
    ;;
esac
[ $# -le 3 ] || {
  echo "usage: sh cmake/repeat_tests.sh N [REGEX [FOLDER]]" >&2
  exit 2
}
rounds=$1
pattern=${2:-.}
folder=${3:-$(dirname -- "$0")/../build/release}
[ -f "$folder/CTestTestfile.cmake" ] || {
  echo "repeat_tests: $folder is no build with tests; cmake/bootstrap.sh test makes build/release" >&2
  exit 2
}
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$cores}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Seeds of two calls differ, too.
first=$(($(date +%s) * 1000))
failures=$scratch/failures
: >"$failures"
round=1
while [ "$round" -le "$rounds" ]; do
  seed=$((first + round))
  status=0
  TESSERA_TEST_SEED=$seed ctest --test-dir "$folder" --output-on-failure --no-tests=error --timeout 600 -R "$pattern" -LE '^(long|checks)$' \
    -E '^examples/|/no_unclaimed_case$' >"$scratch/log" 2>&1 || status=$?
  # `The following tests FAILED:`, then lines `3 - core/scan (Failed)`
  failed=$(sed -n '/^The following tests FAILED:/,$s,^[[:space:]]*[0-9]* - \([^ ]*\) (.*,\1,p' "$scratch/log")
  if [ "$status" -ne 0 ]; then
    cat "$scratch/log"
    [ -n "$failed" ] || exit "$status"
  fi
  for test in $failed; do echo "$test $seed" >>"$failures"; done
  echo "repeat_tests: round $round of $rounds, seed $seed: $(sed -n 's/ tests failed out of / of /p' "$scratch/log")"
  round=$((round + 1))
done
[ -s "$failures" ] || exit 0
echo
awk -v folder="$folder" -v rounds="$rounds" '{ if (!($1 in times)) seed[$1] = $2; ++times[$1] }
  END { for (test in times) printf "%s failed in %d rounds of %d: TESSERA_TEST_SEED=%s ctest --test-dir \"%s\" --output-on-failure -R \"^%s$\"\n", test, times[test], rounds, seed[test], folder, test }' \
  "$failures" | sort
exit 1
