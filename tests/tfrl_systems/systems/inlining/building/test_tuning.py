"""Which margin is best, worked by hand; `cli/test_build_tune.py` builds trees."""

from __future__ import annotations

import pytest

from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.systems.inlining.building.margins import PLAIN, Margin
from tfrl_systems.systems.inlining.building.tuning import Trial, choose, margins_to_try
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy

OWN, SMALL, LARGE = Margin(0.5, is_own=True), Margin(0.0), Margin(3.0)


def trial(margin: Margin, *images: tuple[int, int]) -> Trial:
    """Images by (code, unwind tables); nothing is read-only, and the file does not count."""
    return Trial(
        margin,
        {
            str(number): {
                "text_bytes": text,
                "unwind_bytes": unwind,
                "rodata_bytes": 0,
                "file_bytes": 999 if margin == LARGE else 1,
            }
            for number, (text, unwind) in enumerate(images)
        },
    )


@pytest.mark.parametrize(
    ("own", "small", "large", "plain", "best"),
    [
        # The total over all images decides: 15 + 6 = 21, 20, 19 and 22.
        ([(10, 5), (6, 0)], [(10, 5), (5, 0)], [(9, 5), (5, 0)], [(11, 5), (6, 0)], LARGE),
        # LARGE has the least total, 17, but its second image is larger than plain's: 7 > 6.
        ([(10, 5), (6, 0)], [(10, 5), (5, 0)], [(5, 5), (7, 0)], [(11, 5), (6, 0)], SMALL),
        # Of equals the own margin, then plain.
        ([(10, 6)], [(11, 5)], [(11, 5)], [(11, 5)], OWN),
        ([(12, 5)], [(11, 5)], [(11, 5)], [(11, 5)], PLAIN),
        # More code is a loss, however much the tables shrink.
        ([(12, 0)], [(11, 4)], [(11, 5)], [(11, 5)], SMALL),
        ([(12, 5)], [(13, 5)], [(14, 5)], [(11, 5)], PLAIN),
    ],
)
def test_the_smallest_without_a_larger_image_is_best(own, small, large, plain, best):
    margins = (OWN, SMALL, LARGE, PLAIN)
    trials = [
        trial(margin, *images)
        for margin, images in zip(margins, (own, small, large, plain), strict=True)
    ]
    assert choose(trials).margin == best


def test_margins_near_the_policys_own_are_tried():
    policy = to_numpy(decision_rows.trained())
    for own, near in ((0.5, [0.0, 1.5, 3.0]), (5.0, [2.5, 4.0, 5.5]), (128.0, [2.5, 4.0, 5.5])):
        tried = margins_to_try(policy.with_margins(own))
        assert tried == [Margin(own, is_own=True), *map(Margin, near), PLAIN]
    assert len(margins_to_try(policy.with_margins(4.0))) == 4  # one of the near ones is its own
