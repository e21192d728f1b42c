"""Places of source files where a small error can be planted; see `tools/mutants.py`.

The file is changed by offsets, so that the rest of it stays byte for byte.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

KINDS = ("sign", "bound", "copy", "argument", "check")
_SWAPPED = {b"+": b"-", b"-": b"+", b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">"}
# Between an operand and the operator behind it: what closes the operand, and comments.
_OPERATOR = re.compile(rb"(?:[\s\\)]|#[^\n]*)*([<>]=?|[-+])")
_COPIES = ("copy.copy", "copy.deepcopy", "dict", "list", "np.array")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SYMMETRIC = ("max", "min")  # to swap their arguments changes nothing


class Mutant(NamedTuple):
    """A change of one place of a source file.

    Attributes:
      path: the file, relative to its checkout.
      line: of the place's first character; from 1.
      column: of that character, in bytes; from 0.
      kind: one of `KINDS`.
      after: the new text.
      before: the text that it replaces.
      start: where that begins in the file, in bytes.
      statement: first and last line of the statement around it, without its body.
      runs_at_import: whether it is outside of all functions.
    """

    path: str
    line: int
    column: int
    kind: str
    after: str
    before: str
    start: int
    statement: tuple[int, int]
    runs_at_import: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.before!r} -> {self.after!r}"

    @property
    def lines(self) -> tuple[int, int]:
        """Return the first and the last line of the place."""
        return self.line, self.line + self.before.count("\n")

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        end = self.start + len(self.before.encode())
        assert source[self.start : end] == self.before.encode()
        return source[: self.start] + self.after.encode() + source[end:]


class _Place(NamedTuple):
    statement: tuple[int, int] = (1, 1)
    in_function: bool = False
    in_test: bool = False


_Span = tuple[int, int]
_Edit = tuple[str, _Span, str]  # kind, bytes that are replaced, new text


class Source:
    """A source file, in which places to change are looked for.

    Args:
      path: relative to its checkout.
      content: as it is in the file, in UTF-8.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self._path, self._content = path, content
        lengths = map(len, content.splitlines(keepends=True))
        self._line_starts = list(itertools.accumulate(lengths, initial=0))

    def mutants(self) -> list[Mutant]:
        """Return all mutants of the file."""
        mutants: list[Mutant] = []
        self._visit(ast.parse(self._content), _Place(), mutants)
        return mutants

    def _visit(self, node: ast.AST, place: _Place, mutants: list[Mutant]) -> None:
        # Before Python 3.12 the positions inside of f-strings are wrong.
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.JoinedStr) or is_for_types:
            return
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last_line = body[0].lineno - 1 if body else node.end_lineno
            place = _Place((node.lineno, max(node.lineno, last_line or 0)), place.in_function)
        for kind, span, after in self._edits(node, place):
            mutants.append(self._mutant(kind, span, after, place))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            inner = place
            if name == "body" and isinstance(node, _FUNCTIONS):
                inner = place._replace(in_function=True)
            elif name == "test" and isinstance(node, ast.If):
                inner = place._replace(in_test=True)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and child._fields:
                    self._visit(child, inner, mutants)

    def _mutant(self, kind: str, span: _Span, after: str, place: _Place) -> Mutant:
        start, end = span
        before = self._content[start:end].decode()
        line = bisect.bisect(self._line_starts, start)
        column, at_import = start - self._line_starts[line - 1], not place.in_function
        return Mutant(
            self._path, line, column, kind, after, before, start, place.statement, at_import
        )

    def _edits(self, node: ast.AST, place: _Place) -> Iterator[_Edit]:
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                if not (_is_sequence(left) or _is_sequence(right)):
                    yield "sign", *self._with_operator_swapped(node, left)
            case ast.AugAssign(target, ast.Add() | ast.Sub(), value) if not _is_sequence(value):
                yield "sign", *self._with_operator_swapped(node, target)
            case ast.UnaryOp(ast.USub()):
                yield "sign", self._span(node), self._text(node)[1:].lstrip()
            case ast.UnaryOp(ast.Not()) if place.in_test:
                yield "check", self._span(node), f"({self._text(node)[3:].strip()})"
            case ast.Compare(left, operators, comparators):
                operands = [left, *comparators]
                for operator, operand in zip(operators, operands, strict=False):
                    if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                        yield "bound", *self._with_operator_swapped(node, operand)
                yield from self._increments(node, operands)
            case ast.Subscript(_, index):
                yield from self._increments(node, _bounds(index))
            case ast.Call():
                yield from self._edits_of_call(node)
            case ast.If():
                yield from self._edits_of_if(node)

    def _edits_of_call(self, call: ast.Call) -> Iterator[_Edit]:
        name = _name(call.func)
        if name == "range":
            yield from self._increments(call, call.args)
        match call:
            case ast.Call(ast.Attribute(attr="copy"), [], []):
                start, end = self._span(call.func)
                copied = self._content[start:end].decode().removesuffix("copy").rstrip()
                yield "copy", self._span(call), copied.removesuffix(".").rstrip()
            case ast.Call(_, [argument], []) if name in _COPIES:
                if not isinstance(argument, ast.Starred):
                    yield "copy", self._span(call), f"({self._text(argument)})"
            case ast.Call(_, [first, second, *_]) if name not in _SYMMETRIC:
                yield from self._swap_arguments(first, second)

    def _swap_arguments(self, first: ast.expr, second: ast.expr) -> Iterator[_Edit]:
        # A yield needs its parentheses, which are not part of the argument's text.
        unmovable = (ast.Starred, ast.Yield, ast.YieldFrom)
        if isinstance(first, unmovable) or isinstance(second, unmovable):
            return
        first_text, second_text = self._text(first), self._text(second)
        if first_text != second_text:
            (start, first_end), (second_start, end) = self._span(first), self._span(second)
            between = self._content[first_end:second_start].decode()
            yield "argument", (start, end), f"{second_text}{between}{first_text}"

    def _edits_of_if(self, statement: ast.If) -> Iterator[_Edit]:
        for child in statement.body:
            if isinstance(child, ast.Raise) and child.exc is not None:
                yield "check", self._span(child), "pass"
        if len(statement.body) == 1 and isinstance(statement.body[0], ast.Return | ast.Continue):
            yield "check", self._span(statement.test), "False"

    def _increments(self, node: ast.AST, operands: Iterable[ast.AST | None]) -> Iterator[_Edit]:
        for operand in operands:
            if not isinstance(operand, ast.Constant) or type(operand.value) is not int:
                continue  # not even True, which equals 1
            if operand.value in (0, 1, 2):
                new_text = str(operand.value + 1).encode()
                yield "bound", *self._with(node, self._span(operand), new_text)

    def _with_operator_swapped(self, node: ast.AST, operand: ast.AST) -> tuple[_Span, str]:
        match = _OPERATOR.match(self._content, self._span(operand)[1])
        assert match, f"{self._path}: no operator in {self._text(node)!r}"
        return self._with(node, match.span(1), _SWAPPED[match[1]])

    def _with(self, node: ast.AST, span: _Span, new_text: bytes) -> tuple[_Span, str]:
        start, end = self._span(node)
        text = self._content[start : span[0]] + new_text + self._content[span[1] : end]
        return (start, end), text.decode()

    def _span(self, node: Any) -> _Span:
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._content[start:end].decode()


def _is_sequence(node: ast.AST) -> bool:
    """Return whether `+` joins sequences here, as far as the source tells."""
    match node:
        case ast.Constant(value):
            return isinstance(value, str | bytes)
        case ast.BinOp(left, ast.Add(), right):
            return _is_sequence(left) or _is_sequence(right)
    return isinstance(node, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple)


def _name(function: ast.AST) -> str:
    match function:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name(module), name):
            return f"{module}.{name}"
    return ""


def _bounds(index: ast.AST) -> Iterator[ast.AST | None]:
    match index:
        case ast.Tuple(elements):
            for element in elements:
                yield from _bounds(element)
        case ast.Slice(lower, upper):
            yield from (lower, upper)
        case _:
            yield index


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants, of each kind as many; the first kinds get one more if it does not come out."""
    ordered, generator, drawn = sorted(mutants), random.Random(seed), []
    for number, kind in enumerate(KINDS):
        places = [mutant for mutant in ordered if mutant.kind == kind]
        share = count // len(KINDS) + (number < count % len(KINDS))
        drawn += generator.sample(places, min(share, len(places)))
    return drawn


def relocate(mutant: Mutant, source: bytes, old_source: bytes) -> Mutant | None:
    """Find a mutant's place in another version of its file.

    Args:
      mutant: a mutant of `source`.
      source: the file that it was found in.
      old_source: the other version.

    Returns:
      The mutant of the other version; None if its lines and their neighbours are not there, or not
      as often.
    """
    lines, old_lines = (text.splitlines(keepends=True) for text in (source, old_source))
    first = max(0, mutant.line - 2)
    block = lines[first : mutant.lines[1] + 1]
    positions, old_positions = _positions(lines, block), _positions(old_lines, block)
    if len(positions) != len(old_positions):
        return None
    old_first = old_positions[positions.index(first)]
    shift = old_first - first
    return mutant._replace(
        line=mutant.line + shift,
        start=mutant.start + sum(map(len, old_lines[:old_first])) - sum(map(len, lines[:first])),
        statement=(mutant.statement[0] + shift, mutant.statement[1] + shift),
    )


def _positions(lines: Sequence[bytes], block: Sequence[bytes]) -> list[int]:
    return [at for at in range(len(lines)) if lines[at : at + len(block)] == block]
