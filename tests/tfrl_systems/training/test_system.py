"""What every system does if it says nothing else."""

from __future__ import annotations

from tfrl_systems.training.system import System


def test_the_outcome_of_a_run_is_the_mean_over_its_last_tenth():
    evaluation = {"last": {"mse": 90.0}, "last_tenth": {"mse": 97.5, "steps": 2.0}}
    expected = "mse 97.5, steps 2 (mean over the last tenth of the iterations)"
    assert System().outcome({"evaluation": evaluation}) == ("evaluation", expected)
