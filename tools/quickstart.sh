#!/usr/bin/env bash
# From a fresh clone to a smaller library in a minute or two, and to an inlining policy that was
# trained here, with its table, in a quarter of an hour on two cores.
#
#   bash tools/quickstart.sh
#
# Needs Python 3.11 and a package index, no root and no system package. Everything is written to
# .venv and runs/. It can be interrupted and run again: what is done is not done twice, and the
# training resumes where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/python_env.sh

readonly FIRST=runs/first CORPUS=runs/corpus WORKDIR=runs/quickstart STAGES=6

# stage N TITLE COMMAND…: runs one stage, with the time since the start before and after it.
stage() {
  local number=$1 title=$2
  shift 2
  say "[$(elapsed 0)] $number/$STAGES $title"
  if ! "$@"; then
    say "error: stage $number ($title) did not finish; its own message is above." \
      "Run the same command again to go on from here: bash tools/quickstart.sh" >&2
    exit 1
  fi
}

# One library, which the policy in the installation was not trained on.
smaller_library() {
  [ -d "$FIRST/all" ] || "$PYTHON" -m tools.fetch_corpus -o "$FIRST" --project zxing
  "$TFRL" evaluate inlining --policy shipped --corpus "$FIRST/all" --link
}

get_corpus() {
  local pins=tools/corpus_projects.json
  if cmp -s "$pins" "$CORPUS/made_from.json"; then
    say "       already in $CORPUS"
    return
  fi
  # Few sources of each project, to end in time.
  "$PYTHON" -m tools.fetch_corpus -o "$CORPUS" --language c++ --sources 10 &&
    cp "$pins" "$CORPUS/made_from.json"
}

train() {
  if [ -f "$WORKDIR/result.json" ]; then
    say "       already in $WORKDIR (remove it to train anew)"
    return
  fi
  # Less exploration and fewer margins than by default. With nothing to resume, --resume starts
  # from the beginning.
  "$TFRL" train inlining --agent bc_max --corpus "$CORPUS/train" \
    --validation "$CORPUS/validation" --workdir "$WORKDIR" --seed 0 --resume \
    --set max_bitcode_bytes=200000 --set "baselines=default,cost<-20" --set margins=0.5,1,2,5
}

evaluate() {
  "$TFRL" evaluate inlining --policy "$WORKDIR/policy" --policy default \
    --corpus "$CORPUS/heldout" --link
}

# Needs cmake, lld and a clang with headers; without them it says what to install, and all else is
# done.
build_twice() {
  local command=("$PYTHON" -m tools.studies ladder --policy "$WORKDIR/policy" --project zxing)
  command+=(--rung gc-icf --way policy -o runs/ladder)
  if ! "${command[@]}" 2> runs/ladder.log; then
    say "       left out, it is optional: $(sed -n '$ s/^error: //p' runs/ladder.log)"
    say "       once that is there: ${command[*]}"
  fi
}

stage 1 "Python environment (.venv)" make_environment default
TFRL="$(dirname "$PYTHON")/tfrl"
stage 2 "a first library made smaller, by the policy in the installation" smaller_library
stage 3 "open-source corpus: download, check, compile" get_corpus
stage 4 "train an inlining policy (BC-Max)" train
stage 5 "evaluate on projects that it was not trained on" evaluate
stage 6 "optional: build one of them twice, plainly and with the policy inside clang" build_twice

cat <<END

[$(elapsed 0)] done
  policy       $WORKDIR/policy
  curves       .venv/bin/tensorboard --logdir $WORKDIR/tensorboard
  your build   .venv/bin/tfrl build --policy $WORKDIR/policy -- cmake --build BUILD_DIRECTORY
  your code    .venv/bin/tfrl corpus build DIRECTORY_OR_compile_commands.json -o runs/mine
               .venv/bin/tfrl evaluate inlining --policy $WORKDIR/policy --corpus runs/mine
END
