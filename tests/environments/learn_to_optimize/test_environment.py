from __future__ import annotations

import math

import numpy as np
import pytest
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.functions import FUNCTIONS
from environments.learn_to_optimize.samplers import make_samplers, random
from environments.learn_to_optimize.settings import Settings
from environments.testing import EnvironmentContractTest


class TestContract(EnvironmentContractTest):
    def make_environment(self, seed):
        return LearnToOptimizeEnvironment("rosenbrock", seed=seed)


class TestContractOfOtherSettings(EnvironmentContractTest):
    def make_environment(self, seed):
        return LearnToOptimizeEnvironment(
            "rotated_ackley",
            dimensions=6,
            free=2,
            sampler="latin_hypercube",
            settings=Settings(episode_length=5, reward="scaled", discount=0.5),
            seed=seed,
        )


def starts_at(*points):
    """A sampler that draws these points, in turn."""
    remaining = iter(points)
    return lambda generator, count: np.array([next(remaining) for _ in range(count)])


def play(environment, *actions):
    return [environment.reset()] + [
        environment.step(np.array(action, np.float32)) for action in actions
    ]


@pytest.mark.parametrize(
    ("free", "action", "state", "reward"),
    [
        # Eq. 3.1: s' = a, at which f is 26.2144 · (0 + 0.0625 + 0) = 1.6384.
        (0, (0, 0.25, 0), (0, 0.25, 0), 9.8304 - 1.6384),
        # Eq. 3.2: s' = (a_1, a_2, s_3), 26.2144 · (0 + 0.0625 + 0.0625) = 3.2768.
        (1, (0, 0.25), (0, 0.25, 0.25), 9.8304 - 3.2768),
        # s' = (a_1, s_2, s_3), 26.2144 · (1 + 0.0625 + 0.0625) = 29.4912: a worse point.
        (2, (-1,), (-1, -0.25, 0.25), 9.8304 - 29.4912),
    ],
)
def test_the_decision_process_of_the_thesis_by_hand(free, action, state, reward):
    """Sphere in three dimensions, 5.12² = 26.2144 in the box, from s = (0.5, -0.25, 0.25).

    f(s) = 26.2144 · (0.25 + 0.0625 + 0.0625) = 9.8304, and r(s, s') = f(s) - f(s').
    """
    start = (0.5, -0.25, 0.25)
    environment = LearnToOptimizeEnvironment("sphere", 3, free, sampler=starts_at(start))
    first, then = play(environment, action)
    assert first.observation.tolist() == list(start)
    assert then.observation.tolist() == list(state)
    assert then.reward == pytest.approx(reward)


def test_an_optimizer_of_the_thesis_is_a_policy():
    """Algorithm 3.1 of Mayer's thesis by hand: x_i = x_{i-1} + Δx until the stopping condition.

    Its optimize() is one episode, where the action is x_{i-1} + Δx and the condition is the length
    of 3. Signs are those of a minimisation; the thesis prints arg max and +γ ∇f. Here
    Δx = -γ ∇f = -γ · 2 · 26.2144 x; with γ = 1 / 104.8576 that is -x / 2.
    """
    environment = LearnToOptimizeEnvironment(
        "sphere", settings=Settings(episode_length=3), sampler=starts_at((0.75, 0))
    )
    time_step, xs, total = environment.reset(), [], 0.0
    while True:
        xs.append(float(time_step.observation[0]))
        total += float(time_step.reward)
        if time_step.is_last():
            break
        time_step = environment.step(
            np.array([xs[-1] - 2 * 26.2144 * xs[-1] / 104.8576], np.float32)
        )
    assert xs == pytest.approx([0.75, 0.375, 0.1875, 0.09375])
    # The rewards come to what the optimizer gains: f(x_0) - f(x_3).
    assert total == pytest.approx(26.2144 * (xs[0] ** 2 - xs[3] ** 2), rel=1e-5)


def test_one_episode_by_hand():
    """Sphere from (x, c) = (0.5, -0.25): in its own units (2.56, -1.28), and 5.12 x 0.25 = 1.28.

    f is 6.5536 + 1.6384 = 8.192, then at x = 0.25 1.6384 + 1.6384, then at x = 0 1.6384.
    """
    environment = LearnToOptimizeEnvironment("sphere", sampler=starts_at((0.5, -0.25)))
    first, middle, last = play(environment, [0.25], [0])
    assert [step.observation.tolist() for step in (first, middle, last)] == [
        [0.5, -0.25],
        [0.25, -0.25],
        [0, -0.25],
    ]
    assert [int(step.step_type) for step in (first, middle, last)] == [0, 1, 2]
    assert [float(step.reward) for step in (first, middle, last)] == pytest.approx(
        [0, 8.192 - 3.2768, 3.2768 - 1.6384]
    )
    assert [float(step.discount) for step in (first, middle, last)] == [1, 1, 0]
    assert environment.get_info() == {
        "context": "0.5 -0.25",
        "cost": pytest.approx(1.6384),
        "start_cost": pytest.approx(8.192),
    }
    discounted = LearnToOptimizeEnvironment(
        "sphere", settings=Settings(episode_length=3, discount=0.25)
    )
    steps = play(discounted, [0], [0], [0])
    assert [float(step.discount) for step in steps] == [1, 0.25, 0.25, 0]


def test_other_rewards_by_hand():
    """Sphere from x = 0.5 to 0.25 at c = 0: f is 6.5536, then 1.6384."""

    def reward(kind):
        environment = LearnToOptimizeEnvironment(
            "sphere", settings=Settings(reward=kind), sampler=starts_at((0.5, 0))
        )
        return float(play(environment, [0.25])[1].reward)

    assert reward("log1p") == pytest.approx(math.log(7.5536) - math.log(2.6384))
    # The variance of z^2, z uniform in [-5.12, 5.12], is 5.12^4 (1/5 - 1/9) for each of the two.
    spread = math.sqrt(2 * 5.12**4 * (1 / 5 - 1 / 9))
    assert reward("scaled") == pytest.approx((6.5536 - 1.6384) / spread, rel=0.1)


def test_rewards_beside_the_mean_by_hand():
    """Whatever the old point was. The mean of z^2, z uniform in [-5.12, 5.12], is 5.12^2 / 3."""

    def rewards(kind):
        starts = starts_at((0.5, 0), (-1, 0))
        environment = LearnToOptimizeEnvironment(
            "sphere",
            settings=Settings(reward=kind, reference="mean"),
            sampler=starts,
            batch_size=2,
        )
        return play(environment, [[0.25], [0]], [[0], [0]])[1:]

    first, second = (step.reward for step in rewards("difference"))
    mean = 2 * 5.12**2 / 3
    assert first[1] - first[0] == pytest.approx(1.6384)
    assert first[1] == pytest.approx(mean, rel=0.1)
    assert second.tolist() == [first[1], first[1]]
    spread = math.sqrt(2 * 5.12**4 * (1 / 5 - 1 / 9))
    assert rewards("scaled")[0].reward[1] == pytest.approx(mean / spread, rel=0.1)
    assert rewards("log1p")[0].reward[1] == pytest.approx(math.log(mean), rel=0.1)


def test_an_action_outside_of_the_box_is_clipped():
    environment = LearnToOptimizeEnvironment("ackley", 3, 1, batch_size=3)
    action = np.tile(np.float32([-1.5, np.inf]), (3, 1))
    passed = action.copy()
    assert (play(environment, action)[1].observation[:, :2] == [-1, 1]).all()
    assert np.array_equal(action, passed)


@pytest.mark.parametrize(
    "name, sampler",
    [
        *((name, "random") for name in FUNCTIONS),
        *(("sphere", sampler) for sampler in ("latin_hypercube", "uncertainty")),
    ],
)
def test_a_batch_is_as_many_single_episodes(name, sampler):
    def make(batch_size):
        (drawing,) = make_samplers(sampler, 3, num_strata=4, entropy_fn=lambda rows: rows[:, 2])
        return LearnToOptimizeEnvironment(
            name, 3, 1, Settings(episode_length=3), sampler=drawing, batch_size=batch_size, seed=11
        )

    batched, single = make(8), make(None)
    assert batched.batched and batched.batch_size == 8 and not single.batched
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (2, 3, 8, 2)).astype(np.float32)
    for batch in actions:
        together = play(batched, *batch)
        infos = batched.get_info()
        for row in range(8):
            for all_rows, step in zip(together, play(single, *batch[:, row]), strict=True):
                assert np.array_equal(all_rows.observation[row], step.observation)
                assert all_rows.step_type[row] == step.step_type
                assert all_rows.discount[row] == step.discount
                assert all_rows.reward[row] == pytest.approx(step.reward, rel=1e-5, abs=1e-5)
            info = single.get_info()
            written = " ".join(str(np.float32(value)) for value in infos["context"][row])
            assert info["context"] == written
            assert info["cost"] == pytest.approx(infos["cost"][row], rel=1e-12)
            assert info["start_cost"] == pytest.approx(infos["start_cost"][row], rel=1e-12)


def test_the_leaves_of_a_batch_have_the_types_of_the_specs():
    environment = LearnToOptimizeEnvironment("sphere", 3, 1, batch_size=3)
    spec = environment.time_step_spec()
    assert environment.action_spec().shape == (2,)
    for step in play(environment, np.zeros((3, 2)), np.zeros((3, 2))):
        assert isinstance(step, ts.TimeStep)
        for field in ("step_type", "reward", "discount", "observation"):
            leaf, expected = getattr(step, field), getattr(spec, field)
            assert leaf.shape == (3, *expected.shape) and leaf.dtype == expected.dtype, field


def test_the_latin_hypercube_of_a_batch_has_an_interval_for_each_episode():
    environment = LearnToOptimizeEnvironment("sphere", batch_size=30, sampler="latin_hypercube")
    for _ in range(2):
        starts = environment.reset().observation
        for column in np.floor((starts + 1) / 2 * 30).T:
            assert sorted(column) == list(range(30))


def test_the_entropy_function_is_asked_where_the_sampler_is_uncertainty():
    environment = LearnToOptimizeEnvironment(
        "sphere", sampler="uncertainty", entropy_fn=lambda rows: -np.abs(rows[:, 1]), batch_size=50
    )
    # The least |c| of 64 is below 0.15 but for one case in 30,000.
    assert np.abs(environment.reset().observation[:, 1]).max() < 0.15


FAILING = """
    import numpy as np
    def cost(points):
        if (points[:, 0] > 0.9).any():
            raise RuntimeError("too hot")
        return points[:, 0] ** 2
"""


def test_a_function_that_fails_can_be_tried_again(write):
    environment = LearnToOptimizeEnvironment(
        f"{write(FAILING)}:cost", batch_size=2, sampler=starts_at(*[(0.5, 0.25)] * 4)
    )

    def act(x):
        return environment.step(np.full((2, 1), x, np.float32))

    def act_where_it_fails():
        message = r"expected a value at x = \(1\), c = \(0.25\), found RuntimeError: too hot"
        with pytest.raises(UserError, match=message):
            act(1)

    environment.reset()
    act_where_it_fails()
    # From (0.5)^2 to 0, as if the failed step had not been.
    assert np.all(act(0).reward == np.float32(0.25))
    act_where_it_fails()
    assert np.all(environment.reset().step_type == 0)
    assert np.all(act(0).step_type == 1) and np.all(act(0.5).step_type == 2)


def test_actions_and_points_of_another_shape():
    environment = LearnToOptimizeEnvironment("ackley", 3, 1, batch_size=4)
    environment.reset()
    with pytest.raises(ValueError, match=r"expected shape \(4, 2\) .*, found \(2,\)"):
        environment.step(np.zeros(2, np.float32))
    environment = LearnToOptimizeEnvironment("ackley", sampler=random(3), batch_size=4)
    with pytest.raises(ValueError, match=r"expected points \(4, 2\), found \(4, 3\)"):
        environment.reset()


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"batch_size": 0}, "batch_size: expected 1 or more, or None, found 0"),
        (
            {"settings": Settings(episode_length=0)},
            "episode_length: expected 1 step or more, found 0",
        ),
        (
            {"settings": Settings(reward="log")},
            "reward: expected one of auto, difference, log1p, scaled, found 'log'",
        ),
        (
            {"settings": Settings(reference="new")},
            "reference: expected one of old, mean, found 'new'",
        ),
        ({"settings": Settings(discount=1.5)}, "discount: expected 0 to 1, found 1.5"),
        ({"sampler": "heterogeneous"}, "found heterogeneous, which is several; make an environ"),
    ],
)
def test_wrong_settings(wrong, message):
    with pytest.raises(UserError, match=message):
        LearnToOptimizeEnvironment(**wrong)
