"""What a user's function is made of: a digest that changes when the function may have changed.

It covers the function's module and all modules beside it that are imported from there, also inside
functions. For a function of an installed package it covers the whole package. A function of a
notebook or script (`__main__`) has no module that others could read: its digest covers its code and
what that refers to. Data that a function reads are not covered.
"""

from __future__ import annotations

import ast
import hashlib
import pathlib
import re
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MAIN = "__main__"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(function: Callable[..., Any], module: types.ModuleType) -> str | None:
    """Return the digest of a function that was loaded from a module; None if it has no source."""
    if module.__name__ == MAIN:
        return _sha256(_parts(function, set()))
    file = pathlib.Path(module.__file__ or "")
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    if not file.is_file() or len(file.parents) <= depth:
        return None
    root = file.parents[depth]
    try:
        paths = sorted(_files(root, module.__name__))
        return _sha256(
            part
            for path in paths
            for part in (str(path.relative_to(root)).encode(), path.read_bytes())
        )
    except (OSError, SyntaxError, ValueError):
        return None


def _sha256(parts: Iterator[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(b"%d " % len(part) + part)
    return total.hexdigest()


def _files(root: pathlib.Path, name: str) -> set[pathlib.Path]:
    """Return the files below a directory that make up a module."""
    if any(root == pathlib.Path(place) for place in sysconfig.get_paths().values()):
        top = root / name.partition(".")[0]
        return set(top.rglob("*.py")) if top.is_dir() else {top.with_suffix(".py")}
    files: set[pathlib.Path] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if not module:
            continue
        # The packages around a module are imported with it.
        waiting.append(module.rpartition(".")[0])
        place = root.joinpath(*module.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file() and path not in files:
                files.add(path)
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                waiting += _imports(path, package)
    return files


def _imports(path: pathlib.Path, package: str) -> Iterator[str]:
    """Yield the names of modules that a file in a package may import."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) + 1 - node.level]
            around = [*parts, *filter(None, [node.module])] if node.level else [str(node.module)]
            base = ".".join(filter(None, around))
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _parts(value: Any, seen: set[int]) -> Iterator[bytes]:
    """Yield what a value of a notebook is made of."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, types.MethodType):
        yield from _parts(value.__func__, seen)
        yield from _parts(value.__self__, seen)
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value, seen)
    elif isinstance(value, types.ModuleType):
        yield value.__name__.encode()
        place = pathlib.Path(getattr(value, "__file__", None) or "/")
        if place.is_relative_to(pathlib.Path.cwd()):
            yield (digest(_parts, value) or "").encode()
    elif isinstance(value, type) and value.__module__ == MAIN:
        for name, part in sorted(vars(value).items()):
            if isinstance(part, types.FunctionType | type):
                yield name.encode()
                yield from _parts(part, seen)
    elif type(value).__module__ == MAIN:
        yield from _parts(type(value), seen)
        for name, part in sorted(getattr(value, "__dict__", {}).items()):
            yield name.encode()
            yield from _parts(part, seen)
    else:
        # Arrays show all their numbers nowhere else; of most objects the text tells them apart.
        yield value.tobytes() if isinstance(value, np.ndarray) else b""
        yield _ADDRESS.sub("", repr(value)).encode()


def _parts_of_function(function: types.FunctionType, seen: set[int]) -> Iterator[bytes]:
    names: set[str] = set()
    codes = [function.__code__]
    for code in codes:  # it grows: functions within the function
        yield code.co_code
        names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                codes.append(constant)
            else:
                yield repr(constant).encode()
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    referred = [function.__globals__[name] for name in sorted(names & {*function.__globals__})]
    for value in (function.__defaults__, function.__kwdefaults__, *cells, *referred):
        yield from _parts(value, seen)
