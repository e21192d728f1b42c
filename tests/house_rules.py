"""Reads Python sources without importing them and finds what breaks the rules of the house.

`test_imports.py` applies it to all files. A rule is a function from a Source to the violations in
it; `house_drawing` says who may import whom.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence

from tests.house_drawing import (
    ARROWS,
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    PICKLERS,
    PICKLING_ALLOWED,
    PRINTING_ALLOWED,
    SCRIPTS,
    SHARED_MODULES,
    SYSTEM_ARROWS,
    SYSTEMS,
    TENSORFLOW_ALLOWED,
    TENSORFLOW_ALLOWED_IN,
    TENSORFLOW_PACKAGES,
    TOP_ROOMS,
)

# What the rules look at.
_READ = (ast.Import, ast.ImportFrom, ast.Call, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Violation:
    """One broken rule, printed as FILE:LINE: RULE."""

    path: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported name, absolute and dotted, as deep as the statement says."""

    name: str
    line: int

    def is_within(self, *modules: str) -> bool:
        return any(self.name == module or self.name.startswith(module + ".") for module in modules)


@dataclasses.dataclass(frozen=True)
class Source:
    """A Python file: its path relative to the checkout, with slashes, and its text."""

    path: str
    text: str

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Imports, calls and functions, in the order of `ast.walk`; the rest of a tree is large."""
        tree = ast.parse(self.text, self.path)
        return tuple(node for node in ast.walk(tree) if isinstance(node, _READ))

    @property
    def module(self) -> str:
        """The dotted name of the file, e.g. environments.inlining for its __init__.py."""
        parts = pathlib.PurePosixPath(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import, wherever it stands: at the top, in a function, by import_module("…")."""
        return tuple(self._find_imports())

    def _find_imports(self) -> Iterator[Import]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._absolute(node)
                yield from (Import(f"{origin}.{alias.name}", node.lineno) for alias in node.names)
            elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield Import(first.value, node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.path.endswith("/__init__.py")
        package = self.module.split(".")
        package = package[: len(package) - node.level + is_package]
        return ".".join([*package, node.module] if node.module else package)


def _called(call: ast.Call) -> str:
    """The last name of what is called: import_module for importlib.import_module(…)."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _dotted(expression: ast.expr) -> str:
    """A name with its dots, as os.system; for other expressions what has no name is left out."""
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""


def _second(module: str) -> str:
    """The second component of a dotted name, or "": the system or the room."""
    return (module.split(".") + [""])[1]


def environments_import_no_learning(source: Source) -> Iterator[Violation]:
    if source.path.startswith("environments/"):
        for target in source.imports:
            if target.is_within("tfrl_systems"):
                rule = f"environments never imports tfrl_systems (here {target.name})"
                yield Violation(source.path, target.line, rule)


def _system_of(module: str) -> str:
    package, _, rest = module.removeprefix("tfrl_systems.").partition(".")
    name = rest.partition(".")[0]
    return name if package in ("environments", "systems") and name in SYSTEMS else ""


def systems_are_strangers(source: Source) -> Iterator[Violation]:
    own = _system_of(source.module)
    for target in source.imports if own else ():
        owner = _system_of(target.name)
        if owner and owner != own:
            rule = f"the systems never import each other ({own} imports {target.name})"
            yield Violation(source.path, target.line, rule)


def environments_import_only_tf_types(source: Source) -> Iterator[Violation]:
    if source.path.startswith("environments/"):
        names = TENSORFLOW_ALLOWED + TENSORFLOW_ALLOWED_IN.get(source.path, ())
        for target in source.imports:
            if target.is_within(*TENSORFLOW_PACKAGES) and not target.is_within(*names):
                allowed = ", ".join(names)
                rule = f"environments imports {target.name}; of TensorFlow's world only {allowed}"
                yield Violation(source.path, target.line, rule)


def rooms_follow_the_arrows(source: Source) -> Iterator[Violation]:
    if not source.path.startswith("tfrl_systems/"):
        return
    room = _second(source.module)
    if room and room not in ARROWS:
        yield Violation(source.path, 1, f"room {room} of tfrl_systems has no entry in ARROWS")
    for target in source.imports:
        owner = _second(target.name)
        allowed = {room, *ARROWS.get(room, ())}
        if target.is_within("tfrl_systems") and owner in ARROWS and owner not in allowed:
            name = room or "tfrl_systems itself"
            rule = f"{name} never imports {owner}: against the arrows (ARROWS)"
            yield Violation(source.path, target.line, rule)


def system_rooms_follow_the_arrows(source: Source) -> Iterator[Violation]:
    system, room = _system_and_room(source.module)
    if not room:
        return
    arrows = SYSTEM_ARROWS[system]
    if room not in arrows:
        yield Violation(source.path, 1, f"room {room} of {system} has no entry in SYSTEM_ARROWS")
        return
    for target in source.imports:
        other_system, owner = _system_and_room(target.name)
        if other_system == system and owner and owner not in {room, *arrows[room]}:
            rule = f"{room} never imports {owner}: against the arrows (SYSTEM_ARROWS)"
            yield Violation(source.path, target.line, rule)


def _system_and_room(module: str) -> tuple[str, str]:
    """The system that a module belongs to, and its room.

    Both are "" outside the systems of SYSTEM_ARROWS; the room is "" for a package's own file.
    """
    package, system, *parts = (*module.split("."), "")
    if package != "environments" or system not in SYSTEM_ARROWS:
        return "", ""
    has_rooms_inside = any(room.startswith(f"{parts[0]}.") for room in SYSTEM_ARROWS[system])
    depth = 2 if has_rooms_inside else 1
    return system, ".".join(parts[:depth]) if len(parts) > depth else ""


def only_the_top_rooms_import_both(source: Source) -> Iterator[Violation]:
    if source.path.startswith("tfrl_systems/") and _second(source.module) not in TOP_ROOMS:
        for target in source.imports:
            if target.is_within("environments") and not target.is_within(*SHARED_MODULES):
                rule = f"only systems, experiments and cli import environments (here {target.name})"
                yield Violation(source.path, target.line, rule)


def scripts_import_no_command_line(source: Source) -> Iterator[Violation]:
    """Scripts call `experiments`, as users' own do. Inside the packages the arrows forbid it."""
    if source.path.startswith(SCRIPTS):
        for target in source.imports:
            if target.is_within("tfrl_systems.cli"):
                rule = f"only cli imports cli (here {target.name}); call tfrl_systems.experiments"
                yield Violation(source.path, target.line, rule)


def files_are_short(source: Source) -> Iterator[Violation]:
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        rule = f"a file has at most {MAX_FILE_LINES} lines; this one has {lines}"
        yield Violation(source.path, lines, rule)


def functions_are_short(source: Source) -> Iterator[Violation]:
    """Counts a function's lines from `def` to its end, without its docstring."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _num_lines(node)
            if ast.get_docstring(node, clean=False) is not None:
                lines -= _num_lines(node.body[0])
            if lines > MAX_FUNCTION_LINES:
                rule = f"a function has at most {MAX_FUNCTION_LINES} lines beside its docstring; "
                yield Violation(source.path, node.lineno, f"{rule}{node.name} has {lines}")


def _num_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def calls_are_clean(source: Source) -> Iterator[Violation]:
    """No print outside cli and tools, no shell, no pickled arrays."""
    for call in source.nodes:
        if not isinstance(call, ast.Call):
            continue
        called = _dotted(call.func)
        if called == "print" and not source.path.startswith(PRINTING_ALLOWED):
            yield Violation(source.path, call.lineno, "no print outside cli/ and tools/")
        if called in ("os.system", "os.popen"):
            yield Violation(source.path, call.lineno, "no shell: os.system, os.popen")
        for keyword in call.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("allow_pickle", "shell") and is_true:
                yield Violation(source.path, call.lineno, f"no {keyword.arg}=True")


def nothing_is_pickled(source: Source) -> Iterator[Violation]:
    if source.path in PICKLING_ALLOWED:
        return
    for target in source.imports:
        if target.is_within(*PICKLERS):
            yield Violation(source.path, target.line, f"no pickle ({target.name})")


RULES = (
    environments_import_no_learning,
    systems_are_strangers,
    environments_import_only_tf_types,
    rooms_follow_the_arrows,
    system_rooms_follow_the_arrows,
    only_the_top_rooms_import_both,
    scripts_import_no_command_line,
    files_are_short,
    functions_are_short,
    calls_are_clean,
    nothing_is_pickled,
)


def import_cycle(sources: Sequence[Source]) -> list[str]:
    """One cycle of modules that import each other, first module last again; [] if there is none.

    Imports inside functions count: putting one there hides a cycle and does not remove it.
    """
    modules = {source.module for source in sources}
    edges = {
        source.module: sorted(
            {_longest_prefix(link.name, modules) for link in source.imports} - {source.module, ""}
        )
        for source in sources
    }
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for imported in edges[module]:
                if cycle := visit(imported, [*path, module]):
                    return cycle
            done.add(module)
        return []

    return next((cycle for module in sorted(modules) if (cycle := visit(module, []))), [])


def _longest_prefix(name: str, modules: set[str]) -> str:
    """The module that an imported name lives in, or "" for one that is not ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
