"""Studies of learn_to_optimize: how near learned optimisers come to the minima."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any, ClassVar

from tfrl_systems.settings import option
from tools.studies import functions, learning
from tools.studies.study import (
    Record,
    Study,
    Table,
    Trial,
    mean,
    median,
)

SYSTEM = "learn_to_optimize"
SAMPLER_NAMES = ("random", "latin_hypercube", "uncertainty", "heterogeneous")
RANDOM = "random"
# Title -> function, number of coordinates, number of free ones.
FUNCTIONS = {
    "shifted Ackley": ("shifted_ackley", 2, 1),
    "Ackley": ("ackley", 2, 1),
    "Rosenbrock": ("rosenbrock", 2, 1),
    "sphere": ("sphere", 2, 1),
    "rotated Rosenbrock": ("rotated_rosenbrock", 2, 1),
    "rotated Rosenbrock, n = 10, k = 3": ("rotated_rosenbrock", 10, 3),
    "wandering": (f"{functions.__name__}:wandering", 2, 1),
    "rotated": (f"{functions.__name__}:rotated", 3, 1),
    "arm": (f"{functions.__name__}:arm", 5, 1),
}
# What the thesis compares samplers on, and the sphere, on which it only measures times.
SAMPLED = ("Ackley", "Rosenbrock", "sphere")
UNTUNED = ("wandering", "rotated")


def trial(title: str, agent: str, seed: int, **more: object) -> Trial:
    """Return the trial of an agent, or of a baseline, on a function."""
    words = [title.replace(" = ", "").replace(",", ""), agent]
    if more.get("sampler", RANDOM) != RANDOM:
        words.append(str(more["sampler"]))
    name = "-".join("-".join(word.split()) for word in words)
    about = {"system": SYSTEM, "title": title, "agent": agent, "seed": seed, **more}
    return Trial(f"{name}-seed-{seed}", about)


def _figure(title: str) -> str:
    """Return the name of the error of a function: that of logarithms where values are large."""
    return "msle" if FUNCTIONS[title][0].endswith("rosenbrock") else "mse"


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Train an agent, or take a baseline, and return its error.

    `error` is the MSLE where values span several orders of magnitude, else the MSE: of a training
    the mean over its last tenth, of a baseline and of `polished` answers at the end.
    """
    function, dimensions, free = FUNCTIONS[about["title"]]
    problem = {"function": function, "dimensions": dimensions, "free": free}
    figure = _figure(about["title"])

    def answered(policy: str, polish: int) -> Record:
        evaluated = learning.evaluate(SYSTEM, [policy], about["seed"], polish=polish, **problem)
        return evaluated["policies"][0]

    if about.get("is_baseline"):
        return {"error": answered(about["agent"], 0)[figure]}
    sampler = about.get("sampler", RANDOM)
    policy, figures = learning.trained(about, workdir, sampler=sampler, **problem)
    if about.get("polish"):
        answers = {
            name: answered(policy, polish) for name, polish in {"error": 0, "polished": 10}.items()
        }
        return {**figures, **{name: row[figure] for name, row in answers.items()}}
    return {**figures, "error": figures["last_tenth"][figure]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned(learning.Options):
    """What is compared.

    Attributes:
      functions: a function to minimise, by default those of the thesis and shifted Ackley, whose
        minimum moves with c; may be repeated.
      samplers: how start points are drawn; may be repeated.
    """

    functions: tuple[str, ...] = option(
        tuple(FUNCTIONS)[:6], flag="--function", metavar="NAME", choices=tuple(FUNCTIONS)
    )
    agents: tuple[str, ...] = option(("ppo",), flag="--agent", metavar="NAME")
    samplers: tuple[str, ...] = option((RANDOM,), flag="--sampler", metavar="NAME")

    judge: ClassVar = "truth"

    @property
    def assigned(self) -> dict[str, Any]:
        """Settings of all agents."""
        return {"judge": self.judge, **super().assigned}


def trials(options: Learned, **more: Any) -> Iterator[Trial]:
    shared = {"iterations": options.iterations, "settings": options.assigned, **more}
    for title in options.functions:
        for agent in options.agents:
            for sampler in options.samplers:
                for seed in range(options.seeds):
                    yield trial(title, agent, seed, sampler=sampler, **shared)


def _beside_baselines(options: Learned) -> Iterator[Trial]:
    for title in options.functions:
        _, dimensions, free = FUNCTIONS[title]
        for name in ("constant", RANDOM, "scipy", *(["cma"] if dimensions - free > 1 else [])):
            for seed in range(options.seeds if name == RANDOM else 1):
                yield trial(title, name, seed, is_baseline=True)
        yield from trials(dataclasses.replace(options, functions=(title,)))


QUALITY = Study(
    """How near learned optimisers come to the minima, beside answers that need no policy.

The baselines are one constant for all c, a random x, scipy's minimiser and CMA-ES, both anew for
each c. BC-Max (--agent bc_max) is shown the minima; the other agents have to find them.""",
    Learned,
    _beside_baselines,
    measure,
    [
        Table(
            "Error against the true minimum, mean over the last tenth of the training: MSLE of "
            "Rosenbrock's functions, else MSE. Mean (range) over seeds.",
            ("title",),
            {"": mean("error", "{:.2g}")},
            across="agent",
            label="function",
        )
    ],
)


# Episodes of an iteration -> settings, iterations. The thesis's three drivers play 10 episodes each
# (Table 4.3), so that a Latin hypercube of 10 intervals is whole; the others are the usual ones.
SIZES = {
    30: ({"num_chunks": 3, "episodes_per_chunk": 10, "num_strata": 10}, 5000),
    1024: ({"num_chunks": 4, "episodes_per_chunk": 256}, 1000),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samplers(Learned):
    """Which ways to draw start points are compared: all.

    Attributes:
      episodes: episodes of an iteration, 30 as in the thesis, or 1024; may be repeated.
      iterations: by default 5,000 of 30 episodes, as in the thesis, and 1,000 of 1,024.
    """

    functions: tuple[str, ...] = option(SAMPLED, flag="--function", metavar="NAME")
    samplers: tuple[str, ...] = option(SAMPLER_NAMES, flag="--sampler", metavar="NAME")
    episodes: tuple[int, ...] = option(tuple(SIZES), metavar="N", choices=tuple(SIZES))

    @property
    def assigned(self) -> dict[str, Any]:
        """All samplers get the same class of policies, the one that uncertainty sampling needs."""
        return {"state_dependent_std": True, **super().assigned}


def _samplings(options: Samplers) -> Iterator[Trial]:
    for size in options.episodes:
        settings, iterations = SIZES[size]
        sampled = {
            "iterations": options.iterations or iterations,
            "settings": {**settings, "evaluate_every": 10, **options.assigned},
            "episodes": size,
        }
        for planned in trials(options, **sampled):
            yield Trial(f"{size}-{planned.name}", planned.about)


def _converging(about: Record, workdir: pathlib.Path) -> Record:
    """Return what Table 6.2 of the thesis shows of a training, of its first and last fifth."""
    measured = measure(about, workdir)
    errors = [evaluation[_figure(about["title"])] for evaluation in measured["curve"]]
    fifth = max(len(errors) // 5, 1)
    parts = {"first": errors[:fifth], "last": errors[-fifth:]}
    spread = {f"{name}_variance": statistics.pvariance(part) for name, part in parts.items()}
    means = {name: statistics.fmean(part) for name, part in parts.items()}
    return {**measured, **means, **spread}


SAMPLERS = Study(
    """Errors by the way in which start points are drawn (thesis, 6.3: Tables 6.2 and 6.3).

Errors are of the policies after every tenth iteration; their mean and variance over the first and
the last fifth of the training are those of the first and last 1,000 of the thesis's 5,000
iterations. All policies are of the same class. The thesis shows the best of three runs, this all
seeds.""",
    Samplers,
    _samplings,
    _converging,
    [
        Table(
            "MSLE of Rosenbrock, else MSE. Mean (range) over seeds.",
            ("episodes", "title", "agent", "sampler"),
            {
                "first fifth, mean": mean("first", "{:.2g}"),
                "first fifth, variance": mean("first_variance", "{:.2g}"),
                "last fifth, mean": mean("last", "{:.2g}"),
                "last fifth, variance": mean("last_variance", "{:.2g}"),
            },
            label="episodes, function, agent, sampler",
        ),
    ],
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unseen(Learned):
    """What learns functions that nobody tuned on."""

    functions: tuple[str, ...] = option(UNTUNED, flag="--function", metavar="NAME")
    agents: tuple[str, ...] = option(
        ("ppo", "reinforce", "es", "bc_max"), flag="--agent", metavar="NAME"
    )
    judge: ClassVar = "values"


UNSEEN = Study(
    """Learned optimisers of functions that nobody tuned on, alone and polished.

The functions are those of `tools/studies/functions.py`; polished answers take at most ten more
evaluations each.""",
    Unseen,
    functools.partial(trials, polish=True),
    measure,
    [
        Table(
            "MSE with the usual settings. Median (range) over seeds.",
            ("title", "agent"),
            {
                "policy": median("error", "{:.2g}"),
                "with ten more evaluations": median("polished", "{:.2g}"),
                "s": mean("learning_s", "{:.0f}"),
            },
        )
    ],
)
