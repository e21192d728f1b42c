"""Options of the command line are made from the fields of a dataclass."""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib

import pytest

from tests.tfrl_systems.test_settings import Problem
from tfrl_systems import settings
from tfrl_systems.experiments.arguments import add_fields, read_fields
from tfrl_systems.settings import option


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


@pytest.mark.parametrize(
    "kind, words, message",
    [
        # What looks like an option is no value.
        (Below, ["--bounds", "--rate", "1"], "expected one argument"),
        (Below, ["--bounds", "-b"], "expected one argument"),
        (Below, ["-5x", "-q"], "unrecognized arguments"),
        (Problem, ["--legs", "0"], "expected a whole number from 1 on, found '0'"),
        (Problem, ["--rate", "fast"], "expected a number, found 'fast'"),
    ],
)
def test_a_wrong_option_is_wrong_usage(kind, words, message, capsys):
    parser = argparse.ArgumentParser()
    add_fields(parser, kind)
    with pytest.raises(SystemExit) as end:
        parser.parse_args(words)
    assert end.value.code == 2 and message in capsys.readouterr().err
