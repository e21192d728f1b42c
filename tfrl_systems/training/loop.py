"""Online training: collect with the current policy, learn from that experience, and repeat.

The loop is that of Mayer's thesis (Distributed Deep Reinforcement Learning for Learn-To-Optimize,
2023: 3.2.4, Algorithms 5.1 and 5.4), with collection in chunks (`drivers/`). Iteration i collects
the chunks (i, 0), (i, 1), … with the variables that iteration i - 1 left, and trains on all of them
together. The experience depends only on the seed, the iteration and the variables. So a run gives
the same result with any number of workers, and after it was killed and resumed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from tf_agents.agents import tf_agent

from environments.errors import Failure, UserError
from tfrl_systems.drivers.jobs import Chunk, Pool, PoolError
from tfrl_systems.drivers.trial_runner import TrialPool
from tfrl_systems.episodes import Collected, Experience
from tfrl_systems.policies import variables
from tfrl_systems.policies.policy_files import load_policy_json
from tfrl_systems.training.agent_state import AgentState, Remembering
from tfrl_systems.training.checkpoints import Checkpoint, Workdir
from tfrl_systems.training.curves import MAX_POINTS, Curves, write_settings
from tfrl_systems.training.entropy import mean_entropy
from tfrl_systems.training.pictures import Heatmap, Picture

# The parts that the time of an online run is divided into.
_PARTS = ("collecting", "broadcasting", "waiting", "training", "evaluating")
_FROM_1 = {"minimum": 1}
# The newest is what a resumed run begins with. If it is damaged, there is the one before it.
_NUM_CHECKPOINTS = 2

COUNTED = ("function_evaluations", "truth_evaluations")
"""How often the system's own function was evaluated, and how many of these found true minima."""

EvaluateFn = Callable[[bytes], Mapping[str, float | Picture]]
"""(all variables of the collect policy, as one buffer) -> figures by name, and pictures for
TensorBoard. Figures to minimise are named "cost", or "cost/…" if there are several. Those named
"steps", or "steps/…", count steps of the real environment. The figures in `COUNTED` are added up
over the run."""

SavePolicyFn = Callable[[pathlib.Path], None]
"""Writes the policy into a directory that does not exist yet."""

OnIteration = Callable[[Mapping[str, Any]], None]
"""Called after each iteration with its record."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the loop. The defaults suit no system in particular.

    Attributes:
      iterations: number of iterations; each collects and then learns.
      num_chunks: chunks that each iteration collects, and so the most workers that can be busy.
      episodes_per_chunk: episodes of a chunk, played side by side if the environment can do so.
        Results depend on this number, but not on the number of workers.
      max_failed_chunks: the most chunks of one iteration that may fail every time they are tried;
        the iteration then learns from the others.
      evaluate_every: iterations from one evaluation to the next; the last is always evaluated.
      checkpoint_every: iterations from one checkpoint to the next; the last is always saved.
      seed: decides all randomness.
    """

    iterations: int = dataclasses.field(default=100, metadata=_FROM_1)
    num_chunks: int = dataclasses.field(default=4, metadata=_FROM_1)
    episodes_per_chunk: int = dataclasses.field(default=16, metadata=_FROM_1)
    max_failed_chunks: int = 0
    evaluate_every: int = dataclasses.field(default=10, metadata=_FROM_1)
    checkpoint_every: int = dataclasses.field(default=10, metadata=_FROM_1)
    seed: int = 0

    @property
    def record_every(self) -> int:
        """Iterations from one point of the curves to the next.

        Every evaluation is a point; in runs with more than `MAX_POINTS`, every second, third, ….
        """
        num_evaluations = self.iterations // self.evaluate_every
        return self.evaluate_every * max(-(-num_evaluations // MAX_POINTS), 1)


class OnlineLoop:
    """The online loop; each call of `step` runs one iteration.

    Args:
      agent: the agent that learns; the runners get the variables of its collect policy.
      train_fn: trains the agent: (iteration from 0, what was collected) -> the agent's loss info.
      pool: collects the chunks.
      config: settings of the loop.
      counts_evaluation: whether steps of evaluations are counted too, because an agent is judged by
        how few real steps it needs.
      counts: what was counted before the loop.

    Attributes:
      iteration: number of finished iterations.
      environment_steps: number of steps; padding does not count.
      experience_sha256: digest of the experience of all iterations so far.
      counts: sums by name, of `COUNTED`; empty in systems that count nothing.
    """

    def __init__(
        self,
        agent: tf_agent.TFAgent,
        train_fn: Callable[[int, Any], tf_agent.LossInfo],
        pool: Pool[Chunk, Any] | TrialPool,
        config: Config,
        counts_evaluation: bool = False,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._agent = agent
        self._state = AgentState(agent)
        self._counts_evaluation = counts_evaluation
        self._train_fn = train_fn
        self._pool = pool
        self._config = config
        self._packer = variables.Packer(agent.collect_policy.variables())
        self.iteration = 0
        self.environment_steps = 0
        self.experience_sha256 = hashlib.sha256().hexdigest()
        self.counts = dict(counts or {})

    def variables(self) -> bytes:
        """Return all variables of the collect policy as they are now, in one buffer."""
        return self._packer.to_bytes(self.iteration)

    def step(self) -> dict[str, Any]:
        """Run one iteration, and return its record.

        Raises:
          UserError: the loss is not a finite number.
          PoolError: the pool cannot go on, or too many chunks failed.
        """
        before = self._pool.timings
        self._pool.broadcast(self.variables())
        experience, failures = self._collect()
        spent = self._pool.timings - before
        started_s = time.perf_counter()
        loss_info = self._train_fn(self.iteration, experience)
        loss = float(loss_info.loss)
        training_s = time.perf_counter() - started_s
        if not math.isfinite(loss):
            raise UserError(
                f"iteration {self.iteration + 1}: expected a finite loss, found {loss}; lower the "
                "learning rate (--set learning_rate=…) or scale the reward"
            )
        self.iteration += 1
        digest = hashlib.sha256((self.experience_sha256 + experience.sha256()).encode())
        self.experience_sha256 = digest.hexdigest()
        self.environment_steps += experience.num_steps
        self._count({"function_evaluations": experience.evaluations})
        return {
            "iteration": self.iteration,
            "environment_steps": self.environment_steps,
            "loss": loss,
            "losses": {name: float(part) for name, part in loss_info.extra._asdict().items()},
            "entropy": mean_entropy(experience) if isinstance(experience, Experience) else None,
            "mean_return": experience.mean_return,
            "steps_per_episode": experience.num_steps / experience.num_episodes,
            "seconds": {
                "collecting": spent.collecting_s,
                "broadcasting": spent.broadcasting_s,
                "waiting": spent.waiting_s,
                "training": training_s,
            },
            "failures": failures,
            "jobs_per_s": [worker.jobs_per_s for worker in spent.workers],
        }

    def evaluate(self, evaluate_fn: EvaluateFn, record: dict[str, Any]) -> None:
        """Evaluate the policy, and add what was found to the record of the iteration."""
        began_s = time.perf_counter()
        evaluation = dict(evaluate_fn(self.variables()))
        self._count({name: evaluation.pop(name) for name in COUNTED if name in evaluation})
        pictures = {name: value for name, value in evaluation.items() if isinstance(value, Picture)}
        if isinstance(self._agent, Remembering):
            tables = self._agent.tables()
            pictures |= {title: Heatmap.of(title, table) for title, table in tables.items()}
        figures = {
            name: value for name, value in evaluation.items() if not isinstance(value, Picture)
        }
        if self._counts_evaluation:
            steps = [value for name, value in figures.items() if name.partition("/")[0] == "steps"]
            self.environment_steps += round(sum(steps))
        record |= {"pictures": pictures, "evaluation": figures}
        record["environment_steps"] = self.environment_steps
        record["seconds"]["evaluating"] = time.perf_counter() - began_s

    def _count(self, counts: Mapping[str, Any]) -> None:
        for name, count in counts.items():
            if count:
                self.counts[name] = self.counts.get(name, 0) + round(count)

    def _collect(self) -> tuple[Collected, list[str]]:
        """Return the experience of an iteration's chunks, and the messages of failed chunks."""
        config = self._config
        earlier = self.iteration * config.num_chunks
        chunks = [
            Chunk(self.iteration, index, config.seed, earlier) for index in range(config.num_chunks)
        ]
        outcomes = self._pool.map(chunks)
        failures = [outcome.message for outcome in outcomes if isinstance(outcome, Failure)]
        if len(failures) > min(config.max_failed_chunks, len(chunks) - 1):
            raise PoolError(f"{len(failures)} of {len(chunks)} chunks failed: {failures[0]}")
        collected = [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
        joined = type(collected[0]).concatenate(collected)
        return joined, [*failures, *joined.messages]

    def save(self, directory: pathlib.Path) -> None:
        """Save all that a resumed run needs beside `record`."""
        self._state.save(directory)

    def record(self) -> dict[str, Any]:
        """Return the values that a resumed run needs beside the files that `save` writes."""
        return {
            "iteration": self.iteration,
            "environment_steps": self.environment_steps,
            "experience_sha256": self.experience_sha256,
            "counts": self.counts,
        }

    def report(self) -> dict[str, Any]:
        """Return what the agent has to tell at the end."""
        return dict(self._agent.report()) if isinstance(self._agent, Remembering) else {}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to the state in which `checkpoint` was saved.

        Raises:
          UserError: the checkpoint is of another agent, or damaged.
        """
        self._state.restore(checkpoint.directory)
        self.iteration = checkpoint.record["iteration"]
        self.environment_steps = checkpoint.record["environment_steps"]
        self.experience_sha256 = checkpoint.record["experience_sha256"]
        self.counts = dict(checkpoint.record.get("counts", {}))


def run_online(
    loop: OnlineLoop,
    config: Config,
    workdir: Workdir,
    evaluate_fn: EvaluateFn,
    save_policy_fn: SavePolicyFn,
    about: Mapping[str, Any],
    on_iteration: OnIteration,
) -> dict[str, Any]:
    """Train from the start, or continue from the last checkpoint that `workdir` holds.

    Args:
      loop: the loop, before its first iteration.
      config: settings of the loop.
      workdir: the run's directory.
      evaluate_fn: measures the policy, for the record and the curves only.
      save_policy_fn: writes the policy.
      about: fields for result.json: "environment" and "agent".
      on_iteration: called with the record of each iteration.

    Returns:
      The contents of result.json.
    """
    curves = Curves()
    seconds = dict.fromkeys(_PARTS, 0.0)
    checkpoint = workdir.load(workdir.last())
    if checkpoint is not None:
        loop.restore(checkpoint)
        curves = Curves(checkpoint.record["evaluations"], checkpoint.record["training"])
        seconds |= checkpoint.record["seconds"]
    save = functools.partial(_save, loop, config.iterations, save_policy_fn)
    write_settings(workdir.tensorboard, workdir.settings)
    while loop.iteration < config.iterations:
        record = loop.step()
        number, is_last = loop.iteration, loop.iteration == config.iterations
        if is_last or number % config.evaluate_every == 0:
            loop.evaluate(evaluate_fn, record)
        if is_last or number % config.record_every == 0:
            curves.add(record)
        seconds = {name: spent + record["seconds"].get(name, 0) for name, spent in seconds.items()}
        if is_last or number % config.checkpoint_every == 0:
            curves.write(workdir.tensorboard, number)
            workdir.save(number, save, {**loop.record(), **curves.record(), "seconds": seconds})
            workdir.prune(_NUM_CHECKPOINTS)
        on_iteration(record)
    saved = load_policy_json(workdir.checkpoint(config.iterations) / "policy")
    result = {
        **about,
        "seed": config.seed,
        "iterations": config.iterations,
        "environment_steps": loop.environment_steps,
        **loop.counts,
        "seconds": seconds,
        "experience_sha256": loop.experience_sha256,
        "policy_sha256": variables.sha256(loop.variables()),
        **curves.summary(),
        **({about["agent"]: report} if (report := loop.report()) else {}),
        "settings": dict(workdir.settings),
        "versions": saved["versions"],
    }
    workdir.finish(config.iterations, result)
    return result


def _save(
    loop: OnlineLoop, last: int, save_policy_fn: SavePolicyFn, directory: pathlib.Path
) -> None:
    """Save an iteration; with the last one, its policy too."""
    loop.save(directory)
    if loop.iteration == last:
        save_policy_fn(directory / "policy")
