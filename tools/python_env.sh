# Makes the Python environment of the checkout. Sourced by check.sh and quickstart.sh:
#
#   . tools/python_env.sh
#   make_environment default    # or: colab
#   "$PYTHON" …                 # the environment's Python
#
#   stack    environment   Python  TensorFlow  versions
#   default  .venv         3.11    2.15        tools/constraints/default.txt
#   colab    .venv-colab   3.13    2.20        tools/constraints/colab.txt
#
# Made once, then again only when setup.cfg, pyproject.toml or the constraints have changed.
# TFRL_PYTHON names a Python that is to be used instead of the one found.

# The status of a check that was skipped because its Python is missing, as automake has it.
readonly SKIPPED=77

say() { printf '%s\n' "$*"; }

# elapsed START: the seconds since START (a value of $SECONDS) as M:SS.
elapsed() { printf '%d:%02d' $(((SECONDS - $1) / 60)) $(((SECONDS - $1) % 60)); }

# is_python VERSION PROGRAM: does PROGRAM run, and is it that Python? (A pyenv shim may do neither.)
is_python() {
  [ "$("$2" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]
}

# find_python VERSION: prints the path of the first such Python, or fails.
find_python() {
  local candidate
  if [ -n "${TFRL_PYTHON:-}" ]; then
    is_python "$1" "$TFRL_PYTHON" && say "$TFRL_PYTHON"
    return
  fi
  while IFS= read -r candidate; do
    if is_python "$1" "$candidate"; then
      say "$candidate"
      return 0
    fi
  done < <(
    type -aP "python$1" python3 python
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1.*/bin/python$1"
    compgen -G "$HOME/.local/share/uv/python/cpython-$1.*/bin/python$1"
  )
  return 1
}

# fingerprint STACK: changes whenever what would be installed changes, or where (a moved checkout).
fingerprint() {
  "$PYTHON" -c '
import hashlib, os, pathlib, sys
digest = hashlib.sha256(f"{sys.version} {os.getcwd()}".encode())
for name in sys.argv[1:]:
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())
' setup.cfg pyproject.toml tools/constraints/common.txt "tools/constraints/$1.txt"
}

# pip_setting NAME: what pip is told by its variable or its file, or nothing.
pip_setting() {
  local variable="PIP_$(tr a-z- A-Z_ <<<"$1")"
  say "${!variable:-$("$PYTHON" -m pip config get "global.$1" 2>/dev/null)}"
}

# uv_install WORDS…: `pip install WORDS` by uv, which takes a third of the time. It is told what pip
# is told, since it does not read that by itself.
uv_install() {
  local setting name value
  local -A names=(
    [index-url]=UV_DEFAULT_INDEX [extra-index-url]=UV_INDEX [find-links]=UV_FIND_LINKS
    [cert]=SSL_CERT_FILE
  )
  for setting in "${!names[@]}"; do
    name=${names[$setting]} value="$(pip_setting "$setting")"
    [ -n "$value" ] && [ -z "${!name:-}" ] && local -x "$name=$value"
  done
  local -x UV_INDEX_STRATEGY=unsafe-best-match # the best version of all indexes, as pip has it
  "$PYTHON" -m uv --no-progress pip install --python "$PYTHON" "$@"
}

# install STACK DIRECTORY: installs the checkout and all it needs, with the tools' words in a file.
# Where uv cannot, pip does it. Nothing is compiled to bytecode before it is imported.
install() {
  local pip=("$PYTHON" -m pip --disable-pip-version-check install --no-compile)
  local log="$2/install.log"
  local constraints="tools/constraints/$1.txt"
  local words
  {
    "${pip[@]}" -c "$constraints" uv
    words=(-c "$constraints" -e '.[dev]')
    uv_install "${words[@]}" || "${pip[@]}" "${words[@]}"
  } >"$log" 2>&1 </dev/null || { explain_failure "$log" && return 1; }
  case "$1" in
    # A mypy that takes half of the time asks for newer typing-extensions than TF-Agents allows, and
    # does without.
    default) words=(mypy mypy-extensions ast-serialize librt pathspec) ;;
    # TF-Agents' own requirements cannot be met there; setup.cfg lists what it imports.
    colab) words=(tf-agents) ;;
  esac
  words=(--no-deps -c "$constraints" "${words[@]}")
  { uv_install "${words[@]}" || "${pip[@]}" "${words[@]}"; } >>"$log" 2>&1 </dev/null ||
    { explain_failure "$log" && return 1; }
}

explain_failure() {
  tail -n 20 "$1" >&2
  say "error: pip could not install the dependencies; its whole output is in $1." \
    "Is the package index reachable? Then run the same command again." >&2
}

# make_environment STACK: makes or updates the environment, and sets PYTHON; INSTALLED says whether
# it installed anything.
# Returns $SKIPPED where colab's Python is missing, 1 for any other failure.
make_environment() {
  local start=$SECONDS version directory base
  INSTALLED=no
  case "$1" in
    default) version=3.11 directory=.venv ;;
    colab) version=3.13 directory=.venv-colab ;;
    *) say "error: unknown stack '$1'; expected default or colab." >&2 && return 1 ;;
  esac
  PYTHON="$PWD/$directory/bin/python"
  if ! is_python "$version" "$PYTHON"; then
    if ! base="$(find_python "$version")"; then
      if [ -n "${TFRL_PYTHON:-}" ]; then
        say "TFRL_PYTHON=$TFRL_PYTHON is not a Python $version; name one that is, or unset it" >&2
      else
        say "no python$version found (searched PATH, pyenv and uv); install Python $version," \
          "or name one: TFRL_PYTHON=/path/to/python$version" >&2
      fi
      [ "$1" = colab ] && return "$SKIPPED"
      return 1
    fi
    say "[0:00] making $directory with $base"
    if ! "$base" -m venv --clear "$directory"; then
      say "error: $base cannot make a virtual environment; install its venv module" \
        "(Debian, Ubuntu: python$version-venv), or name another: TFRL_PYTHON=…" >&2
      return 1
    fi
  fi
  local stamp="$directory/installed" wanted
  wanted="$(fingerprint "$1")" || return 1
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return 0
  say "[$(elapsed "$start")] installing the dependencies of the $1 stack (a minute, once)"
  rm -f "$stamp"
  install "$1" "$directory" || return 1
  say "$wanted" >"$stamp"
  INSTALLED=yes
  say "[$(elapsed "$start")] $directory is ready"
}
