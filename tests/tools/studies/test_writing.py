"""Tables and curves, worked by hand."""

from __future__ import annotations

from tools.studies import writing
from tools.studies.study import Table, first, mean, median, total, values_of

RECORDS = [
    {"model": "a", "way": "x", "cost": 1.0, "text": "one | two"},
    {"model": "a", "way": "x", "cost": 2.0},
    {"model": "a", "way": "x", "cost": 6.0},
    {"model": "a", "way": "y", "cost": None},
    {"model": "b", "way": "x", "cost": 5.0},
]


def test_rows_cells_and_ranges():
    columns = {"median": median("cost"), "mean": mean("cost", "{:.1f}"), "sum": total("cost")}
    table = Table("Costs.", ("model", "way"), {**columns, "text": first("text")}, label="who")
    assert writing.to_markdown(table, RECORDS).splitlines() == [
        "Costs.",
        "",
        "| who | median | mean | sum | text |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a, x | 2.00 (1.00..6.00) | 3.0 (1.0..6.0) | 9.0 | one / two |",
        "| a, y |  |  | 0 |  |",
        "| b, x | 5.00 | 5.0 | 5.0 |  |",
    ]


def test_a_column_for_each_value():
    table = Table("", ("model",), {"": first("cost"), "n": total(lambda record: 1)}, across="way")
    *_, header, _, a, b = writing.to_markdown(table, RECORDS).splitlines()
    assert header == "|  | x | x: n | y | y: n |"
    assert (a, b) == ("| a | 1.0 | 3 |  | 1 |", "| b | 5.0 | 1 |  |  |")
    table = Table("", ("m",), {"n": total("n")}, derive=lambda records: [{"m": 1, "n": 2}] * 3)
    assert writing.to_markdown(table, RECORDS).endswith("| 1 | 6 |"), "what is derived"


def test_values_that_are_missing_do_not_count():
    assert values_of(RECORDS, "cost") == [1.0, 2.0, 6.0, 5.0]
    assert values_of(RECORDS, lambda record: record.get("text")) == ["one | two"]
