"""The smallest functions that can be asked for."""

from __future__ import annotations


def test_one_coordinate_is_the_least(tfrl):
    """Of which none is given: there is nothing to learn but one number."""
    words = ("evaluate", "learn_to_optimize", "--policy", "constant", "--function", "sphere")
    least = tfrl(*words, "--judge", "values", "--dimensions", 1, "--free", 0, "--json")
    assert least.status == 0
    assert least.json["policies"][0]["policy"] == "constant"
    for flag, number in (("--dimensions", 0), ("--free", -1)):
        refused = tfrl(*words, flag, number)
        assert refused.status == 2 and flag in refused.err
