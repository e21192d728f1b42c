#!/usr/bin/env bash
# Runs what must pass before a commit: formatter, linter, types, tests.
#
#   bash tools/check.sh [--fast | --ci | --slow] [--stack default|colab] [pytest arguments …]
#
# Makes the environment that it needs (tools/python_env.sh) and can be run again at any time. Eight
# minutes on two cores.
#   --fast   formatter, linter, types, and the tests of the files that differ from the main branch, in
#            two minutes: for the hour of work
#   --stack  colab: Python 3.13 and TensorFlow 2.20, with the tests that tools/second_stack.txt names
#   --ci     also the dear tests, as CI does: whole ways from training to use, and an older clang;
#            on the second stack only the notebooks, in an empty environment
#   --slow   also those that take minutes each, and small runs of studies
# Status: 0 all passed; 1 something failed; 77 nothing checked, because --stack colab was asked for
# and no Python 3.13 was found. At the end it says what took how long; the last line says what pytest
# said last.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. tools/python_env.sh

stack=default
fast="" ci=""
# A process of pytest for each core, but no more than four: each needs 2 GiB. One more than there are
# cores takes a seventh more time: they get into each other's way, and each imports TensorFlow.
workers="$(nproc)"
tests=(-n "$((workers < 4 ? workers : 4))" --dist worksteal)
while [ "$#" != 0 ]; do
  case "$1" in
    --fast) fast=yes ;;
    --stack) stack="${2:-}" && shift ;;
    --ci) ci=yes ;;
    --slow) tests+=(-m "") ;;
    *) break ;;
  esac
  shift
done

if [ -n "$ci" ]; then # instead of setup.cfg's "not slow and not ci"
  if [ "$stack" = colab ]; then marks="not ci or colab"; else marks="not colab"; fi
  tests+=(-m "not slow and ($marks)")
fi

logs="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
failed=()
# took NAME START: notes for the table at the end how long a phase took.
took() {
  printf '  %-24s %s\n' "$1" "$(elapsed "$2")" >>"$logs/phases"
}

start=$SECONDS
make_environment "$stack"
status=$?
[ "$status" = "$SKIPPED" ] && say "check: nothing checked on the $stack stack" >&2
[ "$status" = 0 ] || exit "$status"
took environment "$start"

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
  took "$name" "$start"
}

run_tests() {
  say "pytest $*"
  "$PYTHON" -m pytest "$@" | tee "$logs/tests"
  return "${PIPESTATUS[0]}"
}

check_types() {
  "$PYTHON" -m mypy && "$PYTHON" -m tools.notebook_scripts "$logs" &&
    "$PYTHON" -m mypy "$logs"/*_notebook.py
}

show_types() {
  wait "$types"
  local status=$?
  cat "$logs/types"
  return "$status"
}

# Threads for each core in each of these processes would only get into each other's way.
export OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
# oneDNN makes kernels for the sizes that it meets; networks as small as those of tests never repay it.
export TF_ENABLE_ONEDNN_OPTS=0
# Some hundred processes would compile all that they import, each for itself.
unset PYTHONDONTWRITEBYTECODE
types=""
if [ "$stack" = default ]; then
  run formatter "$PYTHON" -m ruff format --check
  run linter "$PYTHON" -m ruff check
  # The types take a minute of one core, so they are checked while the tests run.
  check_types >"$logs/types" 2>&1 </dev/null &
  types=$!
fi
if [ "$#" != 0 ]; then
  tests+=("$@")
elif [ -n "$fast" ]; then
  mapfile -t changed < <("$PYTHON" -m tools.changed_tests)
  tests+=(-m "not slow" "${changed[@]}")
elif [ "$stack" = colab ]; then
  mapfile -t listed < <(sed -E 's/ *#.*//; /^$/d' tools/second_stack.txt)
  tests+=("${listed[@]}")
fi
# Otherwise the processes of pytest would all begin by compiling the same (tests/conftest.py).
[ "$INSTALLED" = yes ] && export NO_BYTECODE=1
if [ -n "$fast" ] && [ "$#" = 0 ] && [ "${#changed[@]}" = 0 ]; then
  say "no test file belongs to what differs from the main branch" >"$logs/tests"
else
  run tests run_tests "${tests[@]}"
fi
[ -n "$types" ] && run "types, beside the tests" show_types

closing="$(tail -n 1 "$logs/tests" | sed -E 's/^=+ //; s/ =+$//')"
say "== $stack stack, minutes:seconds"
cat "$logs/phases"
if [ "${#failed[@]}" != 0 ]; then
  say "check: FAILED on the $stack stack (${failed[*]}): $closing"
  exit 1
fi
say "check: passed on the $stack stack: $closing"
