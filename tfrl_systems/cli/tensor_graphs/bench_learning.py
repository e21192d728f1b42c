"""What acting and learning cost on one model, for `tfrl bench tensor_graphs`."""

from __future__ import annotations

import argparse
import functools

from tfrl_systems.cli import online
from tfrl_systems.cli.cpu_time import timed_ms
from tfrl_systems.cli.settings import parse_settings
from tfrl_systems.cli.tensor_graphs.learning import MakeRunner
from tfrl_systems.cli.tensor_graphs.train import Training
from tfrl_systems.cli.train import settings_on_graphs
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor

NUM_GRAPHS = 32
_AGENT = "ppo"
# The first update traces its function.
_NUM_UPDATES = 3


def measure_learning(options: argparse.Namespace, model: str) -> tuple[list[float], list[float]]:
    """Times an untrained policy, and PPO's updates from what it met.

    Args:
      options: of the command line: rules, objective, dimensions and seed.
      model: that one episode of `NUM_GRAPHS` steps rewrites.

    Returns:
      Milliseconds of CPU time: of the policy, once for each graph; and of each update from all
      graphs, with the settings of `tfrl train`.
    """
    values = parse_settings([f"max_steps={NUM_GRAPHS}"], settings_on_graphs(_AGENT))
    about = {**vars(options), "models": (model,), "agent": _AGENT}
    training = Training.of(argparse.Namespace(**about), values)
    environment = training.problem.make_environment()
    specs = environment.time_step_spec(), environment.action_spec()
    agent = online.make_agent(_AGENT, training.agent_config, *specs)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = MakeRunner(training.problem, actor, 1)()
    data = variables.to_bytes(agent.collect_policy.variables(), 0)
    runner.load(data)
    experience = runner.run(Chunk(0, 0))
    actor.load(data)
    policy_ms = []
    for step in range(experience.num_steps):
        seen = {name: array[:, step] for name, array in experience.trajectory.observation.items()}
        policy_ms.append(timed_ms(functools.partial(actor.network.parameters, seen))[0])
    update = functools.partial(agent.train, experience.with_usual_length().trajectory)
    update()
    return policy_ms, [timed_ms(update)[0] for _ in range(_NUM_UPDATES)]
