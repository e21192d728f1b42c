"""Settings are declared once: options, `--set` and keyword arguments come from the dataclass."""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib

import pytest

from environments.errors import UsageError
from tfrl_systems import settings
from tfrl_systems.experiments.arguments import add_fields, read_fields
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
        ({"legs": -2}, "--set legs: expected a whole number from 1 to 2147483647, found -2"),
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


def test_the_seed_is_set_wherever_there_is_one():
    groups = settings.with_seed({"a": Problem(), "b": Base()}, 7)
    assert groups == {"a": Problem(seed=7), "b": Base()}


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], Problem()),
        (["--size", "8", "--size", "9", "--no-loud"], Problem(sizes=(8, 9), loud=False)),
        (["--place", "here", "--rate", "2.0"], Problem(place=pathlib.Path("here"), rate=2.0)),
    ],
)
def test_options_make_the_dataclass_and_the_dataclass_its_options(words, expected):
    parser = argparse.ArgumentParser()
    add_fields(parser, Problem)
    problem = settings.make(Problem, read_fields(parser.parse_args(words), Problem))
    assert problem == expected
    assert sorted(settings.as_options(problem)) == sorted(words)


def pair(text: str) -> tuple[float, float]:
    low, high = map(float, text.split(","))
    return low, high


@dataclasses.dataclass(frozen=True)
class Below:
    """What may lie below zero.

    Attributes:
      bounds: two numbers.
      rate: one number.
    """

    bounds: tuple[float, float] | None = option(None, parse=pair, expected="two numbers")
    rate: float = 0.5


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize(
    "option_name, text, expected",
    [
        ("--bounds", "-5,5", (-5, 5)),
        ("--bounds", "-.5,5", (-0.5, 5)),
        ("--bounds", "-1e-3,-1e-4", (-1e-3, -1e-4)),
        ("--bounds", "-inf,-5", (-math.inf, -5)),
        ("--rate", "-1e-3", -1e-3),
        ("--rate", "-Infinity", -math.inf),
        ("--rate", "-.5", -0.5),
    ],
)
def test_a_value_may_begin_with_a_minus(option_name, text, expected, is_joined):
    parser = argparse.ArgumentParser()
    add_fields(parser, Below)
    words = [f"{option_name}={text}"] if is_joined else [option_name, text]
    assert getattr(parser.parse_args(words), option_name.strip("-")) == expected


@pytest.mark.parametrize("words", [["--bounds", "--rate", "1"], ["--bounds", "-b"], ["-5x", "-q"]])
def test_what_looks_like_an_option_is_no_value(words, capsys):
    parser = argparse.ArgumentParser()
    add_fields(parser, Below)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--legs", "0"], "expected a whole number from 1 on, found '0'"),
        (["--rate", "fast"], "expected a number, found 'fast'"),
    ],
)
def test_a_wrong_option_is_wrong_usage(words, message, capsys):
    parser = argparse.ArgumentParser()
    add_fields(parser, Problem)
    with pytest.raises(SystemExit) as end:
        parser.parse_args(words)
    assert end.value.code == 2 and message in capsys.readouterr().err
