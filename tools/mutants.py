"""Plant small errors in files of the packages, and see which of them their tests do not notice.

    python -m tools.mutants environments/contexts.py tfrl_systems/episodes.py --count 20 --seed 0
    python -m tools.mutants --count 60 --seed 41

Draws places of five kinds, from all of both packages if no file is named. Changes one after another
in a copy of the checkout, and runs the tests that mirror the file (`tools.changed_tests`), or those
that --tests names:

  sign      + for -, or - for +
  bound     < for <=, > for >=, or the reverse; 1 added to a 0, 1 or 2
  copy      x.copy(), list(x), dict(x) or np.array(x) becomes x
  argument  the first two positional arguments of a call swapped
  check     a guard that is never true

A mutant is caught if a test that passes without it fails or hangs. The exit status is 1 if some
are not caught. Not each of those tells of a missing test: some changes make no difference.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from environments.errors import UserError
from tools.changed_tests import ROOT, tests_of
from tools.running import exit_status

COPIED = ("environments", "tfrl_systems", "tools", "tests", "setup.cfg", "pyproject.toml",
          "README.md", "CONTRIBUTING.md", "LICENSE", "notebooks")  # fmt: skip
PACKAGES = ("environments", "tfrl_systems")
_SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}  # fmt: skip
_COPIES = ("list", "dict", "np.array", "copy.copy", "copy.deepcopy")
_SYMMETRIC = ("max", "min")  # to swap their arguments changes nothing


class Mutant(NamedTuple):
    """A changed file: where it was changed, what stands there now, and all of its text."""

    path: str
    line: int
    kind: str
    change: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.change}"


def places(source: str) -> list[int]:
    """Return the numbers of a file's nodes, in the order of `ast.walk`, that have a mutant."""
    tree = ast.parse(source)
    types = {
        id(part)
        for parent in ast.walk(tree)
        for name in ("annotation", "returns")
        if isinstance(annotation := getattr(parent, name, None), ast.AST)
        for part in ast.walk(annotation)
    }
    return [
        number
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in types and _changed(node) is not None
    ]


def plant(path: str, source: str, number: int) -> Mutant:
    """Return the mutant of one place."""
    tree = ast.parse(source)
    node: Any = list(ast.walk(tree))[number]
    changed = _changed(node)
    assert changed is not None
    kind, new = changed
    change = f"{ast.unparse(node)[:60]!r} -> {ast.unparse(new)[:60]!r}"
    text = ast.unparse(ast.fix_missing_locations(_Replacement(node, new).visit(tree)))
    return Mutant(path, node.lineno, kind, change, text)


class _Replacement(ast.NodeTransformer):
    """Puts a node in the place of another one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """See `NodeTransformer`."""
        return self._new if node is self._old else self.generic_visit(node)


def _changed(node: Any) -> tuple[str, ast.AST] | None:
    """Return the kind of a node's mutant and what stands in its place; None if it has none."""
    new = copy.copy(node)
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            new.op = _SWAPPED[type(node.op)]()
            return None if _is_sequence(node.left) or _is_sequence(node.right) else ("sign", new)
        case ast.AugAssign(op=ast.Add() | ast.Sub()):
            new.op = _SWAPPED[type(node.op)]()
            return None if _is_sequence(node.value) else ("sign", new)
        case ast.Compare(ops=[operator]) if type(operator) in _SWAPPED:
            new.ops = [_SWAPPED[type(operator)]()]
            return "bound", new
        case ast.Constant(value=0 | 1 | 2) if type(node.value) is int:
            return "bound", ast.Constant(value=node.value + 1)
        case ast.Call(func=ast.Attribute(value, attr="copy"), args=[], keywords=[]):
            return "copy", value
        case ast.Call(func, [argument], []) if ast.unparse(func) in _COPIES:
            return None if isinstance(argument, ast.Starred) else ("copy", argument)
        case ast.Call(func, [first, second, *others]) if ast.unparse(func) not in _SYMMETRIC:
            if isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
                return None
            new.args = [second, first, *others]
            return None if ast.dump(first) == ast.dump(second) else ("argument", new)
        case ast.If(body=[*_, ast.Raise() | ast.Return()]):
            new.test = ast.Constant(value=False)
            return "check", new
    return None


def _is_sequence(node: Any) -> bool:
    """Return whether `+` joins sequences here, as far as the source tells."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def is_caught(checkout: pathlib.Path, mutant: Mutant, tests: Sequence[str], limit_s: float) -> bool:
    """Return whether the tests notice a mutant in a copy of the checkout."""
    path = checkout / mutant.path
    right = path.read_text(encoding="utf-8")
    path.write_text(mutant.text, encoding="utf-8")
    try:
        return not passes(checkout, tests, limit_s)
    finally:
        path.write_text(right, encoding="utf-8")


def passes(checkout: pathlib.Path, tests: Sequence[str], limit_s: float) -> bool:
    """Return whether tests pass within a time."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    # Python takes what it compiled for a file's if size and second are the same, as a mutant's are.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def draw(files: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants of each file; without files, so many of both packages in all."""
    generator = random.Random(seed)
    named = files or sorted(
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in named}
    pools = [[(name, number) for number in places(texts[name])] for name in named]
    if not files:
        pools = [sum(pools, [])]
    chosen = [place for pool in pools for place in generator.sample(pool, min(count, len(pool)))]
    return [plant(name, texts[name], number) for name, number in sorted(chosen)]


def run(options: argparse.Namespace) -> None:
    """Try the mutants; raise UserError if some are not caught."""
    drawn = draw(options.files, options.count, options.seed)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        checkout = pathlib.Path(scratch)
        for name in COPIED:
            copy_fn: Any = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy_fn(ROOT / name, checkout / name)
        for name in dict.fromkeys(mutant.path for mutant in drawn):
            own = sorted(tests_of(pathlib.PurePath(name), ROOT))
            tests = options.tests or [str(path.relative_to(ROOT)) for path in own]
            if not passes(checkout, tests, options.limit):
                raise UserError(f"{name}: expected tests that pass, found {' '.join(tests)}")
            for mutant in (mutant for mutant in drawn if mutant.path == name):
                caught = is_caught(checkout, mutant, tests, options.limit)
                missed += not caught
                print("caught  " if caught else "SURVIVED", mutant, flush=True)
    if missed:
        raise UserError(f"{missed} of {len(drawn)} errors were not noticed")


def main() -> int:
    """Run the tool; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="relative to the checkout")
    parser.add_argument(
        "--count", type=int, default=20, help="for each file, or in all (default: 20)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the places (default: 0)")
    parser.add_argument("--tests", action="append", metavar="PATH", help="instead of the mirror")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a run of tests")
    return exit_status(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
