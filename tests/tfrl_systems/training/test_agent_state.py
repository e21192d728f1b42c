"""The state of an agent in files."""

from __future__ import annotations

import pytest
import tensorflow as tf

from environments.errors import UserError
from tfrl_systems.training.agent_state import AgentState


class Agent(tf.Module):
    """Makes a variable in its first step, as some optimizers do."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(1.0)
        self.momentum = None

    def step(self):
        if self.momentum is None:
            self.momentum = tf.Variable(0.0)
        self.momentum.assign_add(1.0)
        self.weight.assign_sub(self.momentum)


@pytest.fixture
def agent():
    return Agent()


def test_each_save_writes_the_values_of_its_time(agent, tmp_path):
    """Each step takes 1 more than the one before it: 1, 0, -2. The momentum counts the steps."""
    state = AgentState(agent)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        state.save(tmp_path / str(number))
        agent.step()
    for number, weight in enumerate((1, 0, -2)):
        restored = Agent()
        if number:
            restored.step()
        AgentState(restored).restore(tmp_path / str(number))
        assert float(restored.weight) == weight
        assert number == 0 or float(restored.momentum) == number


@pytest.mark.parametrize("content", [b"", None], ids=["cut", "gone"])
def test_a_damaged_state_is_an_error_of_one_line(agent, tmp_path, content):
    AgentState(agent).save(tmp_path)
    for path in tmp_path.glob("state.*"):
        path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match="expected the state of this agent, found: .*; remove"):
        AgentState(agent).restore(tmp_path)
