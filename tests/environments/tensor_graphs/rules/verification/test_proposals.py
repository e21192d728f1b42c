"""Proposals of shapes where the choices before leave none that fit."""

from __future__ import annotations

import random

from environments.tensor_graphs.rules.verification.draws import Draw, Use
from environments.tensor_graphs.rules.verification.proposals import propose


def test_a_convolution_without_groups():
    # An earlier convolution of 1 channel by a weight of 2 has 1 // 2 = 0 groups. So has this one,
    # and its weight has no channels: what does not fit is refused later.
    draw = Draw(random.Random(0))
    use = Use("Conv", draw, [(2, 3, 4, 4), None], (True, True), {"group": 0}, {}, {})
    propose(use)
    assert use.shapes[1] is not None and use.shapes[1][:2] == (0, 3)
