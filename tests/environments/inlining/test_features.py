"""Features worked by hand over one small module, with its history."""

from __future__ import annotations

import contextlib

from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.compilers.compilation import CallSite
from environments.inlining.features import DERIVED_FEATURES, FeatureTracker, feature_names
from tests.environments.inlining.small_modules import HAND_WORKED, write_module

# A leaf is local, once is linkonce_odr (see small_modules.HAND_WORKED). The third site, which LLVM
# would inline, has no name before its decision: what needs one is -1. That site is refused here, so
# caller keeps three calls. The callee of the fifth, caller, has had three of its own sites seen.
HISTORY = {
    # call site:              1   2   3   4   5
    # callee:              leaf leaf once leaf caller
    # caller:            caller caller caller other other
    # decision:               1   0   0   0   1
    "inlining_default":     [ 0,  0,  1,  0,  0],
    "callee_is_local":      [ 1,  1, -1,  1,  0],
    "callee_is_linkonce":   [ 0,  0, -1,  0,  0],
    "callee_is_droppable":  [ 1,  1, -1,  1,  0],
    "caller_is_local":      [ 0,  0, -1,  0,  0],
    "caller_is_linkonce":   [ 0,  0, -1,  0,  0],
    "callee_is_caller":     [ 0,  0, -1,  0,  0],
    "callee_sites_seen":    [ 0,  1, -1,  2,  0],
    "callee_sites_inlined": [ 0,  1, -1,  1,  0],
    "callee_sites_refused": [ 0,  0, -1,  1,  0],
    # leaf is used three times; LLVM's own count stays 3. caller may be called from outside.
    "callee_undecided_users": [3, 2, -1, 1, 1],
    "callee_is_last_use":   [ 0,  0, -1,  0,  0],
    "callee_inlined_into":  [ 0,  0, -1,  0,  1],
    "caller_sites_seen":    [ 0,  1, -1,  0,  1],
    "caller_sites_inlined": [ 0,  1, -1,  0,  0],
    "decisions_so_far":     [ 0,  1,  2,  3,  4],
    "inlined_so_far":       [ 0,  1,  1,  1,  1],
}  # fmt: skip
DECISIONS = [1, 0, 0, 0, 1]


def walk(compiler, module, decisions) -> dict[str, list[int]]:
    with contextlib.closing(CompileEpisode(compiler, module)) as episode:
        for decision in decisions:
            assert episode.next_row() is not None
            episode.decide(decision)
        while episode.next_row() is not None:
            episode.decide(0)
        columns = episode.result().features.T.tolist()
    return dict(zip(feature_names(compiler.announced), columns, strict=True))


def test_history_and_linkage_worked_by_hand(compiler, tmp_path):
    columns = walk(compiler, write_module(tmp_path, "module", HAND_WORKED, text=True), DECISIONS)
    assert {*HISTORY, "caller_growth"} == set(DERIVED_FEATURES) <= set(columns)
    for name, expected in HISTORY.items():
        assert columns[name][: len(DECISIONS)] == expected, name


OBSERVED = ("callee_users", "caller_basic_block_count", "callee_basic_block_count")


def site(
    users: int,
    blocks: int = 1,
    callee: str | None = "f",
    caller: str | None = "g",
    callee_blocks: int = 1,
) -> CallSite:
    return CallSite((users, blocks, callee_blocks), False, callee, caller)


def test_without_names_there_is_no_history_but_the_counts():
    tracker = FeatureTracker(OBSERVED)
    for number in range(3):
        values = tracker.observe(site(2, 1, None, None), {})
        features = dict(zip(tracker.names, values, strict=True))
        assert features["callee_sites_seen"] == features["caller_growth"] == -1
        assert features["callee_is_local"] == features["callee_is_caller"] == -1
        assert features["decisions_so_far"] == number
        tracker.record(1, "f")


def column(name, sites):
    """Return a feature of call sites that follow each other, before any is decided."""
    tracker = FeatureTracker(OBSERVED)
    place = tracker.names.index(name)
    return [tracker.observe(seen, {})[place] for seen in sites]


def test_blocks_that_llvm_does_not_tell_are_those_of_the_callee_as_a_caller():
    sites = [
        site(1, 4, "leaf", "f", callee_blocks=-1),
        site(1, 6, "leaf", "f", callee_blocks=-1),
        site(1, 9, "f", "g", callee_blocks=-1),
        site(1, 9, "f", "g", callee_blocks=5),
        site(1, 9, None, None, callee_blocks=-1),
    ]
    assert column("callee_basic_block_count", sites) == [-1, -1, 6, 5, -1]


def test_growth_of_the_caller():
    assert column("caller_growth", [site(1, blocks) for blocks in (4, 4, 9)]) == [0, 0, 5]


def test_values_are_kept_within_32_bits():
    high, low = (FeatureTracker(OBSERVED).observe(site(users), {}) for users in (2**40, -(2**40)))
    assert (max(high), min(low)) == (2**31 - 1, -(2**31))


def test_the_last_use_of_a_function_that_goes_then():
    tracker = FeatureTracker(OBSERVED)
    last = tracker.names.index("callee_is_last_use")
    linkage = {"f": "internal", "h": "linkonce_odr", "x": "external"}
    assert tracker.observe(site(2), linkage)[last] == 0
    tracker.record(1, "f")
    # LLVM still says 2, or counts anew; of h 1 is for other modules, for which x stays.
    sites = (site(2), site(1), site(2, callee="h"), site(2, callee="x"))
    assert [tracker.observe(seen, linkage)[last] for seen in sites] == [1, 1, 1, 0]
