"""What rules are generated from: each operator is of use in the worlds of its vocabulary."""

from __future__ import annotations

from operator import attrgetter

import pytest

from environments.tensor_graphs.rules.generation.enumerate import Enumeration
from environments.tensor_graphs.rules.generation.taso_operators import TASO
from environments.tensor_graphs.rules.generation.vocabularies import VOCABULARIES


@pytest.mark.parametrize("vocabulary", [*VOCABULARIES, *TASO], ids=attrgetter("name"))
def test_each_move_has_values(vocabulary):
    """A move whose shapes or attributes fit no world would be enumerated for nothing."""
    worlds = vocabulary.worlds(0)
    for move in vocabulary.moves:
        assert Enumeration(worlds, vocabulary.leaves, [move], 1).num_expressions > 0, move
