"""Every agent on every system: it learns, or one line says why not.

Inlining and tensor graphs are learned in the tests of the command line, which has models and
corpora for it.
"""

from __future__ import annotations

import pytest

from environments.errors import UsageError
from tfrl_systems import experiments
from tfrl_systems.agents.table import AGENTS
from tfrl_systems.experiments import find_system, plan, system_names

REFUSED = {
    ("inlining", "world_model"): "whose policy remembers the episode",
}
# Settings that learn a bowl in seconds.
QUICK = {
    "ppo": {"iterations": 40, "episodes_per_chunk": 16},
    "reinforce": {"iterations": 80, "episodes_per_chunk": 16},
    "es": {"iterations": 40, "num_chunks": 8, "episodes_per_chunk": 16},
    "bc_max": {"iterations": 4, "episodes_per_chunk": 32},
    "world_model": {
        **{"iterations": 2, "episodes_per_chunk": 16, "memory_size": 16, "head_size": 64},
        **{"num_dreams": 256, "dream_updates": 60, "fit_updates": 100, "fit_episodes": 64},
        "num_members": 1,
    },
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("system", system_names())
def test_an_agent_fits_or_one_line_says_why_not(system, agent):
    reason = REFUSED.get((system, agent), "")
    why_not = find_system(system).why_not(agent)
    assert reason in why_not and bool(reason) == bool(why_not)
    assert "\n" not in why_not
    if why_not:
        with pytest.raises(UsageError, match=f"{system}: expected an agent"):
            plan(system, agent=agent)


@pytest.mark.parametrize(
    "agent",
    [
        *(agent for agent in QUICK if agent != "world_model"),
        pytest.param("world_model", marks=pytest.mark.slow),
    ],
)
def test_agents_that_learn_online_beat_chance_at_a_bowl_that_moves(agent, tmp_path):
    """The constant that is best for all c is no bowl's bottom, so it must look at c."""
    run = experiments.train(
        "learn_to_optimize",
        agent=agent,
        function="shifted_sphere",
        workdir=tmp_path / "run",
        settings={"evaluate_every": 60, "hidden_sizes": (16,), **QUICK[agent]},
        reporter=experiments.Reporter(),
    )
    evaluation = experiments.evaluate(
        "learn_to_optimize", policies=[run.policy, "constant", "random"], function="shifted_sphere"
    )
    learned, constant, chance = (policy["mse"] for policy in evaluation["policies"])
    assert learned < constant < chance
