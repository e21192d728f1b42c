"""The contract of an environment, as a test class to inherit.

It follows `dm_env.test_utils.EnvironmentTestMixin`. Inherit the class and override one method::

    class TestCatch(EnvironmentContractTest):
        def make_environment(self, seed):
            return CatchEnvironment(seed=seed)

The contract is TF-Agents' for a `PyEnvironment`, and this project's on top of it: an environment is
determined by its seed and its actions, describes the last ended episode in `get_info()`, and can be
reset and closed at any time. If a rule is broken, the message begins with the rule's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tf_agents.environments import py_environment, utils
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

Episode = tuple[list[ts.TimeStep], Mapping[str, Any]]


class EnvironmentContractTest:
    """Tests of the contract; inherit it and override `make_environment`.

    pytest and unittest find the tests by their names.

    Attributes:
      num_episodes: number of episodes that each test plays.
      max_steps: a longer episode breaks the contract.
    """

    num_episodes = 2
    max_steps = 10_000

    def make_environment(self, seed: int) -> py_environment.PyEnvironment:
        """Return a new environment whose contexts and random events are determined by `seed`."""
        raise NotImplementedError

    def test_specs_are_unbatched_array_specs(self) -> None:
        """Every leaf of the specs is an ArraySpec, and the environment is not batched."""
        with self.make_environment(seed=0) as environment:
            rule = "specs-unbatched: the environment must not be batched"
            _check(environment.batch_size in (None, 0) and not environment.batched, rule)
            specs = (environment.time_step_spec(), environment.action_spec())
            for spec in _leaves(specs):
                is_spec = isinstance(spec, array_spec.ArraySpec)
                _check(is_spec, f"specs-arrays: expected ArraySpec, found {spec!r}")

    def test_tf_agents_validates_it(self) -> None:
        """TF-Agents' own check passes: random episodes have time steps as specified."""
        with self.make_environment(seed=0) as environment:
            try:
                utils.validate_py_environment(environment, episodes=self.num_episodes)
            except ValueError as error:
                raise AssertionError(f"tf-agents-valid: {error}") from error

    def test_episodes_follow_the_protocol(self) -> None:
        """FIRST, any number of MID, LAST; rewards are finite; discounts lie in [0, 1]."""
        with self.make_environment(seed=0) as environment:
            for steps, _ in self._play(environment, self.num_episodes):
                first, *middle, last = steps
                _check(bool(first.is_first()), "first-step: an episode must begin with FIRST")
                _check(bool(last.is_last()), "last-step: an episode must end with LAST")
                for step in middle:
                    _check(bool(step.is_mid()), "middle-steps: only MID between FIRST and LAST")
                rule = f"first-reward: expected reward 0 with FIRST, found {first.reward}"
                _check(bool(np.all(first.reward == 0)), rule)
                rule = f"last-discount: expected discount 0 with LAST, found {last.discount}"
                _check(bool(np.all(last.discount == 0)), rule)
                for step in steps:
                    rule = f"finite-reward: expected a finite reward, found {step.reward}"
                    _check(bool(np.all(np.isfinite(step.reward))), rule)
                    rule = f"discount-range: expected a discount in [0, 1], found {step.discount}"
                    _check(bool(np.all((step.discount >= 0) & (step.discount <= 1))), rule)

    def test_step_begins_an_episode_where_none_is(self) -> None:
        """Before `reset` and after LAST, `step` ignores its action and returns FIRST."""
        with self.make_environment(seed=0) as environment:
            actions = self._actions(environment)
            rule = "step-before-reset: a step before the first reset must return FIRST"
            _check(bool(environment.step(next(actions)).is_first()), rule)
            while not environment.current_time_step().is_last():
                environment.step(next(actions))
            rule = "step-after-last: the step after LAST must return FIRST"
            _check(bool(environment.step(next(actions)).is_first()), rule)

    def test_reset_in_the_middle_of_an_episode(self) -> None:
        """`reset` ends an episode at any point, and the next episode is complete."""
        with self.make_environment(seed=0) as environment:
            environment.reset()
            environment.step(next(self._actions(environment)))
            rule = "reset-mid-episode: reset must return FIRST at any point"
            _check(bool(environment.reset().is_first()), rule)
            steps, _ = next(self._play(environment, 1))
            _check(bool(steps[-1].is_last()), "reset-mid-episode: the next episode must end")

    def test_seed_and_actions_determine_everything(self) -> None:
        """Two environments with one seed return the same steps for the same actions."""
        with self.make_environment(seed=3) as left, self.make_environment(seed=3) as right:
            played = list(self._play(left, self.num_episodes))
            played_too = list(self._play(right, self.num_episodes))
        for (steps, info), (steps_too, info_too) in zip(played, played_too, strict=True):
            rule = f"same-length: one seed gave episodes of {len(steps)} and {len(steps_too)} steps"
            _check(len(steps) == len(steps_too), rule)
            for number, pair in enumerate(zip(steps, steps_too, strict=True)):
                rule = f"same-steps: one seed gave two different time steps {number}"
                _check(_equal(*pair), rule)
            rule = f"same-info: one seed gave {info} and {info_too}"
            _check(info == info_too, rule)

    def test_seeding_begins_anew(self) -> None:
        """After `seed` and `reset` an environment behaves like a new one with that seed.

        Workers rely on this: a worker plays all of its chunks in one environment.
        """
        with self.make_environment(seed=3) as fresh, self.make_environment(seed=4) as seeded:
            list(self._play(seeded, 1))
            seeded.seed(3)
            played, played_too = (list(self._play(each, 1)) for each in (fresh, seeded))
            rule = "seed-again: seed must make everything as in a new environment with that seed"
            _check(_equal(played[0][0], played_too[0][0]), rule)
            _check(played[0][1] == played_too[0][1], rule)

    def test_time_steps_stay_as_they_were(self) -> None:
        """A returned time step does not change when the environment takes further steps."""
        with self.make_environment(seed=0) as environment:
            actions = self._actions(environment)
            returned = environment.reset()
            copies = [np.array(leaf, copy=True) for leaf in _leaves(returned)]
            for _ in range(3):
                environment.step(next(actions))
            unchanged = all(
                np.array_equal(old, new) for old, new in zip(copies, _leaves(returned), strict=True)
            )
            _check(unchanged, "no-aliasing: a time step changed after it was returned")

    def test_info_tells_of_the_ended_episode(self) -> None:
        """`get_info()` is a dict: `context` is a string, all other values are finite numbers."""
        with self.make_environment(seed=0) as environment:
            infos = [info for _, info in self._play(environment, self.num_episodes)]
            for info in infos:
                rule = f"info-dict: expected a dict after an episode, found {info!r}"
                _check(isinstance(info, Mapping), rule)
                rule = f"info-context: expected a string under 'context', found {info!r}"
                _check(isinstance(info.get("context"), str), rule)
                for name in set(info) - {"context"}:
                    rule = f"info-numbers: expected a finite number, found {name}={info[name]!r}"
                    _check(_is_finite(info[name]), rule)
                rule = "info-keys: every episode's info must have the same keys"
                _check(set(info) == set(infos[0]), rule)
            before = dict(environment.get_info())
            environment.reset()
            rule = "info-stays: info is that of the ended episode until another one ends"
            _check(environment.get_info() == before, rule)

    def test_a_fork_goes_its_own_way(self) -> None:
        """An environment that has `fork` copies itself in the middle of an episode.

        The copy gives the same time steps for the same actions, and neither disturbs the other.
        """
        with self.make_environment(seed=0) as environment:
            if not hasattr(environment, "fork"):
                return
            environment.reset()
            actions = self._actions(environment)
            if not environment.current_time_step().is_last():
                environment.step(next(actions))
            first, second = (environment.fork() for _ in range(2))
            rest = [next(actions) for _ in range(5)]
            played = [[fork.step(action) for action in rest] for fork in (first, second)]
            played.append([environment.step(action) for action in rest])
            for fork in (first, second):
                fork.close()
            rule = "fork-same: a fork must give the same time steps for the same actions"
            _check(all(_equal(steps, played[0]) for steps in played), rule)

    def test_close_at_any_time(self) -> None:
        """`close` works before and during an episode, and a second time."""
        untouched = self.make_environment(seed=0)
        in_episode = self.make_environment(seed=0)
        in_episode.reset()
        for environment in (untouched, in_episode):
            for _ in range(2):
                try:
                    environment.close()
                except Exception as error:
                    raise AssertionError(f"close-any-time: close raised {error!r}") from error

    def _actions(self, environment: py_environment.PyEnvironment) -> Iterator[Any]:
        """Yield random actions, the same for every environment with this action spec."""
        generator = np.random.RandomState(7)
        while True:
            yield array_spec.sample_spec_nest(environment.action_spec(), generator)

    def _play(
        self, environment: py_environment.PyEnvironment, num_episodes: int
    ) -> Iterator[Episode]:
        actions = self._actions(environment)
        for _ in range(num_episodes):
            steps = [environment.reset()]
            while not steps[-1].is_last():
                rule = f"ends: an episode must end within {self.max_steps} steps"
                _check(len(steps) <= self.max_steps, rule)
                steps.append(environment.step(next(actions)))
            yield steps, environment.get_info()


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)


def _leaves(nest: Any) -> list[Any]:
    """Return the leaves of nested tuples, lists and dicts, in a fixed order."""
    if isinstance(nest, Mapping):
        return [leaf for key in sorted(nest) for leaf in _leaves(nest[key])]
    if isinstance(nest, tuple | list):
        return [leaf for part in nest for leaf in _leaves(part)]
    return [nest]


def _equal(left: Any, right: Any) -> bool:
    pairs = zip(_leaves(left), _leaves(right), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
