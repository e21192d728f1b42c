#!/usr/bin/env bash
# Runs everything that must pass: formatter, linter, types, tests, notebooks.
#
#   bash tools/check.sh [--stack default|colab] [--slow] [pytest arguments …]
#
# Makes the environment that it needs (tools/python_env.sh) and can be run again at any time. At most
# 15 minutes on two cores, the environment included; --slow adds the tests that take minutes each.
# Status: 0 all passed; 1 something failed; 77 nothing checked, because --stack colab was asked for
# and no Python 3.13 was found. The last line says what pytest said last.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. tools/python_env.sh

stack=default
# A process of pytest for each core, but no more than four: each needs 2 GiB.
workers="$(nproc)"
tests=(-n "$((workers < 4 ? workers : 4))" --dist worksteal)
while [ "$#" != 0 ]; do
  case "$1" in
    --stack) stack="${2:-}" && shift ;;
    --slow) tests+=(-m "") ;; # instead of setup.cfg's "not slow"
    *) break ;;
  esac
  shift
done
tests+=("$@")

make_environment "$stack"
status=$?
[ "$status" = "$SKIPPED" ] && say "check: nothing checked on the $stack stack" >&2
[ "$status" = 0 ] || exit "$status"

logs="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
failed=()
# run NAME COMMAND…: runs one check to its end; the others run whatever its outcome is.
run() {
  local name=$1 start=$SECONDS
  shift
  say "== $name"
  if "$@" </dev/null; then
    say "== $name: passed in $(elapsed "$start")"
  else
    failed+=("$name")
    say "== $name: FAILED after $(elapsed "$start")"
  fi
}

run_tests() {
  say "pytest $*"
  "$PYTHON" -m pytest "$@" | tee "$logs/tests"
  return "${PIPESTATUS[0]}"
}

show_types() {
  wait "$types"
  local status=$?
  cat "$logs/types"
  return "$status"
}

run formatter "$PYTHON" -m ruff format --check
run linter "$PYTHON" -m ruff check
# The types take minutes of one core, so they are checked while the tests run.
export MYPY_CACHE_DIR=".mypy_cache/$stack" # the stacks have different NumPys
"$PYTHON" -m mypy >"$logs/types" 2>&1 </dev/null &
types=$!
# Threads for each core in each of these processes would only get into each other's way.
export OMP_NUM_THREADS=1
run tests run_tests "${tests[@]}"
run types show_types

closing="$(tail -n 1 "$logs/tests" | sed -E 's/^=+ //; s/ =+$//')"
if [ "${#failed[@]}" != 0 ]; then
  say "check: FAILED on the $stack stack (${failed[*]}): $closing"
  exit 1
fi
say "check: passed on the $stack stack: $closing"
