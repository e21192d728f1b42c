"""Prints the tests of the files that differ from the main branch, for `tools/check.sh --fast`.

  python -m tools.changed_tests [BASE]

A test of `x/y.py` is `tests/x/test_y.py`. Where there is none of that name, all tests of the folder
`tests/x/` are taken, or of the nearest folder above it that has some. A helper of tests stands for
the tests that import it, and a `conftest.py` for those beside it.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parent.parent
TESTED = ("environments", "tfrl_systems", "tools")


def git_lines(*words: str) -> list[str]:
    """Return what git prints, a line each; none if it fails."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(base: str) -> list[str]:
    """Return paths that differ from where this branch left `base`, with what git does not know."""
    forks = git_lines("merge-base", "HEAD", base) or ["HEAD"]
    untracked = git_lines("ls-files", "--others", "--exclude-standard")
    return sorted({*git_lines("diff", "--name-only", forks[0]), *untracked})


def tests_of(path: pathlib.PurePath, root: pathlib.Path) -> Iterable[pathlib.Path]:
    """Yield the test files of one file of a checkout."""
    if path.suffix == ".ipynb":
        yield root / "tests" / "test_notebooks.py"
    if path.suffix != ".py":
        return
    if path.name.startswith("test_"):
        yield from (root / path,) if (root / path).exists() else ()
    elif path.name == "conftest.py":
        yield from (root / path).parent.glob("test_*.py")
    elif path.parts[0] == "tests":
        yield from _importers(".".join(path.with_suffix("").parts), root)
    elif path.parts[0] in TESTED:
        folder = root / "tests" / path.parent
        own = folder / f"test_{path.name}"
        while not own.exists() and not any(folder.glob("test_*.py")):
            folder = folder.parent
        yield from (own,) if own.exists() else folder.glob("test_*.py")


def _importers(module: str, root: pathlib.Path) -> Iterable[pathlib.Path]:
    """Yield the test files that import a helper, as `import a.b` or `from a import b`."""
    package, _, name = module.rpartition(".")
    imports = re.compile(
        rf"import {module}\b|from {module} import|from {package} import .*\b{name}\b"
    )
    for test in (root / "tests").rglob("test_*.py"):
        if imports.search(test.read_text(encoding="utf-8")):
            yield test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "base", nargs="?", help="a branch or commit (default: origin/main, or main without it)"
    )
    base = parser.parse_args().base or (
        "origin/main" if git_lines("rev-parse", "--verify", "-q", "origin/main") else "main"
    )
    paths = (pathlib.PurePath(path) for path in changed_files(base))
    for test in sorted({test for path in paths for test in tests_of(path, ROOT)}):
        print(test.relative_to(ROOT))


if __name__ == "__main__":
    main()
