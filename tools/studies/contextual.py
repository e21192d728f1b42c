"""What is learned of f(x; c) from few evaluations, beside minimisers that share no policy.

CMA-ES divides them among the c that are judged, and knows nothing of other c. BoTorch
(M. Balandat et al.: BoTorch, 2020) models f over (x, c) by its usual Gaussian process. It asks in
20 batches for the greatest expected improvement at random c, and answers by the least expected
value, which no network has to learn.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from environments.learn_to_optimize import references
from environments.learn_to_optimize.functions import Objective
from tfrl_systems.settings import option
from tfrl_systems.systems.learn_to_optimize import judging
from tfrl_systems.systems.learn_to_optimize.problem import Function
from tools.studies import learning
from tools.studies.learn_to_optimize import FUNCTIONS, SYSTEM, UNTUNED, Learned, trials
from tools.studies.study import Record, Study, Table, Trial, median

_NUM_BATCHES = 20


def cma(objective: Objective, free: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """Return for judged c [M, k] the best x [M, n - k] that CMA-ES evaluated for each."""
    from cma import CMAEvolutionStrategy

    num_tuned, share = objective.num_tuned, evaluations // len(free)
    # CMA-ES needs two coordinates, so a single one gets one beside it that counts for nothing.
    start = np.zeros(max(num_tuned, 2))
    answers = []
    for place, c in enumerate(free):
        options = {"bounds": [-1, 1], "verbose": -9, "seed": 1 + seed * len(free) + place}
        strategy = CMAEvolutionStrategy(start, 0.5, options)
        points, values = np.zeros((0, num_tuned)), np.zeros(0)
        while len(values) < share and not strategy.stop():
            proposals = strategy.ask()
            batch = np.array(proposals)[: share - len(values), :num_tuned]
            points = np.concatenate([points, batch])
            values = np.concatenate([values, objective(objective.join(batch, c))])
            if len(batch) == len(proposals):
                strategy.tell(proposals, values[-len(proposals) :].tolist())
        answers.append(points[values.argmin()])
    return np.array(answers)


def botorch(objective: Objective, free: np.ndarray, evaluations: int, seed: int) -> np.ndarray:
    """Return for judged c [M, k] the x [M, n - k] of BoTorch's least expected values."""
    import torch
    from botorch.acquisition import LogExpectedImprovement, PosteriorMean
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from botorch.optim import optimize_acqf
    from gpytorch import settings
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    generator, columns = np.random.default_rng(seed), objective.dimensions
    num_tuned = objective.num_tuned
    box = torch.tensor([[-1.0] * columns, [1.0] * columns], dtype=torch.double)

    def model_of(points: np.ndarray, values: np.ndarray) -> Any:
        pairs = torch.tensor(points), torch.tensor(-values)[:, None]
        model = SingleTaskGP(*pairs, outcome_transform=Standardize(1))
        likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 100}})
        return model

    def best(acquisition: Any, c: np.ndarray, num_samples: int) -> np.ndarray:
        fixed = {num_tuned + place: float(value) for place, value in enumerate(c)}
        sizes = {"q": 1, "num_restarts": 4, "raw_samples": num_samples}
        row, _ = optimize_acqf(
            acquisition, box, **sizes, fixed_features=fixed, options={"maxiter": 40}
        )
        return np.asarray(row[0].detach())

    engine = torch.quasirandom.SobolEngine(columns, scramble=True, seed=seed)
    points = 2 * engine.draw(max(20, 5 * columns), dtype=torch.double).numpy() - 1
    values = objective(points)
    while len(values) < evaluations:
        model = model_of(points, values)
        count = min(-(-evaluations // _NUM_BATCHES), evaluations - len(values))
        batch = []
        for c in generator.uniform(-1, 1, (count, columns - num_tuned)):
            drawn = generator.uniform(-1, 1, (256, num_tuned))
            tried = np.concatenate([drawn, points[:, :num_tuned]])
            rows = torch.tensor(objective.join(tried, c))
            with torch.no_grad(), settings.skip_posterior_variances():
                highest = model.posterior(rows).mean.max()
            batch.append(best(LogExpectedImprovement(model, best_f=highest), c, 64))
        points = np.concatenate([points, np.array(batch)])
        values = np.concatenate([values, objective(np.array(batch))])
    mean = PosteriorMean(model_of(points, values))
    return np.array([best(mean, c, 256)[:num_tuned] for c in free])


# What minimises without an agent, by the name of its package.
PEERS = {"cma": cma, "botorch": botorch}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Few(Learned):
    """What learns from few evaluations.

    Attributes:
      functions: a function to minimise; may be repeated.
      agents: an agent, or cma or botorch, which minimise without one; may be repeated.
      evaluations: how often a function is evaluated at most; may be repeated.
    """

    functions: tuple[str, ...] = option(
        ("shifted Ackley", "rotated Rosenbrock", *UNTUNED, "arm"), flag="--function", metavar="NAME"
    )
    agents: tuple[str, ...] = option(
        ("surrogate", "ppo", "es", "world_model", *PEERS), flag="--agent", metavar="NAME"
    )
    evaluations: tuple[int, ...] = option((200,), metavar="N", minimum=100)


def _from_few(options: Few) -> Iterator[Trial]:
    """Yield the trials of each number of evaluations; methods that lack a package are left out."""
    agents = [
        name for name in options.agents if name not in PEERS or importlib.util.find_spec(name)
    ]
    for name in set(options.agents) - set(agents):
        print(f"{name}: no rows without the package {name}; pip install {name}", file=sys.stderr)
    for evaluations in options.evaluations:
        for planned in trials(dataclasses.replace(options, agents=tuple(agents))):
            about = {**planned.about, "evaluations": evaluations}
            yield Trial(f"{evaluations}-{planned.name}", about)


def _few_settings(agent: str, evaluations: int) -> dict[str, Any]:
    """Return settings by which an agent evaluates so often at most, and is judged once by values.

    An iteration of episodes is 48 evaluations: 16 episodes of three, or half as many for ES, which
    plays each twice. Where values cannot be scaled by 256 others, rewards are their differences.
    """
    if agent == "surrogate":
        return {"evaluations": evaluations, "judge": "model"}
    scaling = {} if evaluations > 500 else {"reward": "difference", "reference": "old"}
    iterations = (evaluations - (0 if scaling else 256) - 21) // 48
    chunks = {"num_chunks": 4, "episodes_per_chunk": 2 if agent == "es" else 4}
    return {
        **scaling,
        **chunks,
        "judge": "values",
        "iterations": iterations,
        "evaluate_every": iterations,
    }


def _measure_few(about: Record, workdir: pathlib.Path) -> Record:
    """Return the errors of answers and how often the function was evaluated for them."""
    function, dimensions, free = FUNCTIONS[about["title"]]
    problem: dict[str, Any] = {"function": function, "dimensions": dimensions, "free": free}
    agent, evaluations, began_s = about["agent"], about["evaluations"], time.process_time()
    if agent in PEERS:
        objective = Function(**problem).make_objective()
        judged = references.reference_points(free)
        x = PEERS[agent](objective, judged, evaluations, about["seed"])
        counted = objective.evaluations.count
        spent_s = time.process_time() - began_s
        errors = judging.judge(objective, x, judged, "truth")
    else:
        few = _few_settings(agent, evaluations)
        planned = {**about, "iterations": few.pop("iterations", None)}
        planned["settings"] = {**about["settings"], **few}
        policy, figures = learning.trained(planned, workdir, **problem)
        counted, spent_s = figures["evaluations"], time.process_time() - began_s
        (errors,) = learning.evaluate(SYSTEM, [policy], about["seed"], **problem)["policies"]
    return {
        "counted": counted,
        "cpu_s": spent_s,
        **{name: errors[name] for name in ("regret", "mse")},
    }


FEW_EVALUATIONS = Study(
    """What is learned from few evaluations of a function, which the function counts.

Answers are judged at 21 c. CMA-ES is told them, the others are not.""",
    Few,
    _from_few,
    _measure_few,
    [
        Table(
            "Regret, the mean value beyond the least, and MSE. Median (range) over seeds.",
            ("title", "evaluations", "agent"),
            {
                "seeds": lambda records: str(len(records)),
                "regret": median("regret", "{:.2g}"),
                "MSE": median("mse", "{:.2g}"),
                "evaluated": median("counted", "{:,.0f}"),
                "s": median("cpu_s", "{:.0f}"),
            },
            label="function, evaluations, method",
        )
    ],
)
