#!/usr/bin/env bash
# Runs everything that must pass: formatter, linter, types, tests.
#
#   bash tools/check.sh [--stack default|colab] [pytest arguments …]
#
# Makes the environment that it needs (tools/python_env.sh) and can be run again at any time.
# Status: 0 all passed; 1 something failed; 77 nothing checked, because --stack colab was asked for
# and no Python 3.13 was found.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. tools/python_env.sh

stack=default
if [ "${1:-}" = --stack ]; then
  stack="${2:-}"
  shift 2 || shift
fi

make_environment "$stack"
status=$?
[ "$status" = "$SKIPPED" ] && say "check: nothing checked on the $stack stack" >&2
[ "$status" = 0 ] || exit "$status"

failed=()
# run NAME COMMAND…: runs one check to its end; the others run whatever its outcome is.
run() {
  local name=$1 start=$SECONDS
  shift
  say "== $name: $*"
  if "$PYTHON" -m "$@" </dev/null; then
    say "== $name: passed in $(elapsed "$start")"
  else
    failed+=("$name")
    say "== $name: FAILED after $(elapsed "$start")"
  fi
}

run formatter ruff format --check
run linter ruff check
export MYPY_CACHE_DIR=".mypy_cache/$stack"  # the stacks have different NumPys
run types mypy
say "== tests: pytest $*"
"$PYTHON" -m pytest "$@" </dev/null || failed+=(tests)

if [ "${#failed[@]}" != 0 ]; then
  say "check: failed on the $stack stack: ${failed[*]}" >&2
  exit 1
fi
