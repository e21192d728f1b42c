"""Settings are declared once: options, `--set` and keyword arguments come from the dataclass."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from environments.errors import UsageError
from tfrl_systems import settings
from tfrl_systems.settings import option


def even(text: str) -> int:
    if int(text) % 2:
        raise ValueError(text)
    return int(text)


@dataclasses.dataclass(frozen=True)
class Base:
    """What others share.

    Attributes:
      rate: how fast,
        in units of nothing.
    """

    rate: float = 0.5


@dataclasses.dataclass(frozen=True)
class Problem(Base):
    """What is decided on.

    Attributes:
      sizes: of the parts.
      place: where; anywhere by default.
      legs: how many.
      loud: whether it makes noise.
      seed: of chance.
    """

    sizes: tuple[int, ...] = option((1, 2), flag="--size", metavar="N")
    place: pathlib.Path | None = None
    legs: int = option(4, minimum=1, parse=even, expected="an even number")
    loud: bool = True
    seed: int = 0


def test_a_field_is_explained_by_the_docstring_of_its_class_and_of_those_before_it():
    explained = {field.name: field.explanation for field in settings.fields_of(Problem)}
    assert explained["rate"] == "how fast, in units of nothing."
    assert explained["sizes"] == "of the parts."
    assert all(explained.values())


@pytest.mark.parametrize(
    "values, expected",
    [
        ({}, Problem()),
        ({"rate": "0.25", "loud": "no"}, Problem(rate=0.25, loud=False)),
        ({"sizes": "3, 4,5"}, Problem(sizes=(3, 4, 5))),
        ({"sizes": ""}, Problem(sizes=())),
        ({"sizes": (7,), "place": "a/b"}, Problem(sizes=(7,), place=pathlib.Path("a/b"))),
        ({"legs": "6"}, Problem(legs=6)),
    ],
)
def test_text_is_parsed_by_the_type_of_the_field(values, expected):
    assert settings.with_values({"problem": Problem()}, values) == {"problem": expected}


@pytest.mark.parametrize(
    "values, message",
    [
        ({"speed": 1}, "expected one of the fields below, found 'speed'"),
        ({"seed": 1}, "expected one of the fields below, found 'seed'"),
        ({"rate": "nan"}, "--set rate: expected a finite number, found nan; the default is 0.5"),
        ({"legs": "0"}, "--set legs: expected a whole number from 1 to 2147483647, found 0"),
        ({"sizes": "1,-1"}, "--set sizes: expected a whole number from 0 to 2147483647, found -1"),
        ({"sizes": f"{1 << 40}"}, "--set sizes: expected a whole number from 0"),
        ({"rate": "fast"}, "--set rate: expected a number, found 'fast'; the default is 0.5"),
        ({"sizes": "1,x"}, "expected a whole number or several, separated by commas, found '1,x'"),
        ({"loud": "maybe"}, "--set loud: expected true or false, found 'maybe'"),
        ({"legs": "3"}, "--set legs: expected an even number, found '3'"),
    ],
)
def test_mistakes_say_what_was_expected(values, message):
    with pytest.raises(UsageError, match=message):
        settings.with_values({"problem": Problem()}, values)


def test_keyword_arguments_have_to_be_fields():
    assert settings.make(Problem, {"rate": 1.0}) == Problem(rate=1.0)
    problem = settings.make(Problem, {"place": "a/b", "sizes": [3, 4]})
    assert problem == Problem(place=pathlib.Path("a/b"), sizes=(3, 4))
    with pytest.raises(UsageError, match="expected one of rate, sizes, .*; found 'size'"):
        settings.make(Problem, {"size": 1})


def test_a_field_that_came_later_is_told_of_if_it_is_set():
    """A run of before, whose run.json lacks it, is the same run as one with the default."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        size: int = 1
        kind: str = dataclasses.field(default="old", metadata=settings.LATER)

    assert settings.as_json({"agent": Config()}) == {"size": 1}
    assert settings.as_json({"agent": Config(kind="new")}) == {"size": 1, "kind": "new"}


def test_the_seed_is_set_wherever_there_is_one():
    groups = settings.with_seed({"a": Problem(), "b": Base()}, 7)
    assert groups == {"a": Problem(seed=7), "b": Base()}
