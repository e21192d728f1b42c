"""Dreams of a finished run, beside real episodes that its world model has not seen."""

from __future__ import annotations

import pathlib

import tree
from tf_agents.trajectories.trajectory import Trajectory

from environments.errors import UsageError, UserError
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.experiments.records import find_system
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.training import online
from tfrl_systems.training.agent_state import AgentState
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.training_run import TrainingRun
from tfrl_systems.world_models.dream import DreamEnvironment


def dream(
    run: TrainingRun, workdir: pathlib.Path, seed: int
) -> tuple[Trajectory, DreamEnvironment]:
    """See `experiments.dream`."""
    record, iterations = find_system(run.system), run.settings["loop"].iterations
    with record.online_task(run, Collect.with_workers(1), Reporter()) as task:
        agent = online.make_agent(run, task)
        if run.how.collects != "dreams":
            raise UsageError(f"dream: expected a run of world_model, found one of {run.agent}")
        checkpoint = Workdir(workdir).load(iterations)
        if checkpoint is None:
            raise UserError(
                f"{workdir}: expected the checkpoint of iteration {iterations}, found none; let "
                "the run end, with --resume"
            )
        AgentState(agent).restore(checkpoint.directory)
        runner = task.make_runner(NumpyActor.from_policy(agent.collect_policy))()
        runner.load(variables.to_bytes(agent.collect_policy.variables(), iterations))
        # No iteration of the run has this number, so no random numbers are used twice.
        real = runner.run(Chunk(iterations, 0, seed)).trajectory
    num_steps = tree.flatten(real)[0].shape[1]
    return real, agent.dreams(real, num_steps, seed)
