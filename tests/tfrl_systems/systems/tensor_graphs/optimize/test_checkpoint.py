"""A search is found again where it was left, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from environments.tensor_graphs.search import search
from tests.environments.tensor_graphs.search.fakes import LAYER, chain, start_of
from tfrl_systems.systems.tensor_graphs.optimize.checkpoint import Checkpoint


@pytest.fixture
def saved(tmp_path):
    """What a search has found, its checkpoint, and the file."""
    start, file = start_of(chain(*LAYER)), tmp_path / "search.json"
    result, checkpoint = search(start, "regions"), Checkpoint(file, "regions", start)
    checkpoint.save(result.candidates[0], result.expansions)
    return result, checkpoint, file


def test_what_was_saved_is_read(saved):
    result, checkpoint, file = saved
    progress = checkpoint.read()
    assert (progress.best.path, progress.best.state.graph) == (result.path, result.best.graph)
    assert result.path and progress.expansions == result.expansions
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "spoil, expected",
    [
        (lambda text: "{", "expected a search to resume"),
        (lambda text: "[]", "expected a search to resume"),
        (lambda text: json.dumps({**json.loads(text), "start": "00"}), "of another"),
        (lambda text: text.replace("neg_relu", "other"), "no match of other"),
    ],
)
def test_a_file_of_another_search_is_refused(saved, spoil, expected):
    _, checkpoint, file = saved
    file.write_text(spoil(file.read_text()))
    with pytest.raises(UserError, match=expected):
        checkpoint.read()
