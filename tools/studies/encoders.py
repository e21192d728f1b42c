"""Studies of what the thesis's agent consists of: its GN block, its two policies, its masks."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrl_systems.settings import option
from tools.studies import graphs, learning, runtimes
from tools.studies.study import Record, Records, Study, Table, Trial, median

if TYPE_CHECKING:
    from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

CHANCE = "chance"
VARIANTS: dict[str, dict[str, Any]] = {
    "two_way": {},
    "full": {"graph_block": "full"},
    "pointer": {"head": "pointer"},
    "hierarchical": {"head": "hierarchical"},
    "two policies": {"head": "hierarchical", "two_policies": True},
    "no masks": {"masked": False},
    "no masks, two policies": {"masked": False, "two_policies": True},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoders(learning.Options):
    """What is compared.

    Attributes:
      models: a model to learn on; may be repeated.
      variants: how the networks are built; may be repeated.
      iterations: rounds of collecting and learning.
      episodes: episodes of an iteration.
      max_steps: steps of an episode.
      played: episodes that a policy draws in the end; so many by chance are compared with them.
      timed: whether decisions and updates of the first seed are timed, too.
    """

    agents: tuple[str, ...] = option(("ppo",), flag="--agent", metavar="NAME")
    seeds: int = option(3, metavar="N", minimum=1)
    models: tuple[str, ...] = option(("bert-tiny",), flag="--model", metavar="FILE|NAME")
    variants: tuple[str, ...] = option(
        ("two_way", "full"), flag="--variant", metavar="NAME", choices=tuple(VARIANTS)
    )
    iterations: int = option(10, metavar="N", minimum=1)
    episodes: int = option(8, metavar="N", minimum=1)
    max_steps: int = option(30, metavar="N", minimum=1)
    played: int = option(8, metavar="N", minimum=2)
    timed: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hierarchies(Encoders):
    """What is compared; see `Encoders`."""

    models: tuple[str, ...] = option(runtimes.THESIS_GRAPHS, flag="--model", metavar="FILE|NAME")
    variants: tuple[str, ...] = option(
        ("pointer", "hierarchical", "two policies"),
        flag="--variant", metavar="NAME", choices=tuple(VARIANTS),
    )  # fmt: skip
    timed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masks(Encoders):
    """What is compared; see `Encoders`."""

    variants: tuple[str, ...] = option(
        ("hierarchical", "no masks"), flag="--variant", metavar="NAME", choices=tuple(VARIANTS)
    )
    timed: bool = False


def _trials(options: Encoders) -> Iterator[Trial]:
    usual = {
        "num_chunks": options.episodes,
        "episodes_per_chunk": 1,
        "evaluate_every": options.iterations,
        "max_steps": options.max_steps,
    }
    # Seeds are the outer loop: a study that was stopped has the same seeds of all variants.
    for seed in range(options.seeds):
        for model in options.models:
            for agent in options.agents:
                for label in options.variants:
                    about = {
                        **{"system": graphs.SYSTEM, "agent": agent, "label": label, "seed": seed},
                        **{"model": model, "iterations": options.iterations},
                        "settings": {**usual, **VARIANTS[label], **options.assigned},
                        **{"played": options.played, "timed": options.timed and seed == 0},
                    }
                    yield Trial(graphs.slug(model, agent, label, f"seed-{seed}"), about)


class _Chance:
    """Draws what is listed, or without a list any pair of numbers, with equal chances."""

    def new_episode(self) -> _Chance:
        return self

    def remember(self, action: np.ndarray) -> None:
        """Do nothing after an action."""

    def parameters(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "action_mask" not in observation:
            masks = observation["location_masks"]
            counts, zeros = masks.sum(axis=-1), np.zeros(masks.shape[:2], np.float32)
            return {"rule_logits": zeros, "place_logits": masks[:, 0] * 0.0, "num_places": counts}
        is_allowed = observation["action_mask"]
        logits = np.where(is_allowed, np.float32(0), np.float32(-1e9))
        return {"logits": logits, "actions": observation["actions"]}


def _saved(policy: GraphPolicy, about: Record, numbers: range) -> list[float]:
    """Return by how many percent the cheapest graph of each episode differs from the model's."""
    from environments.tensor_graphs.model import Model
    from tfrl_systems.systems.tensor_graphs.problem import Problem, make_objective

    problem = Problem(models=(about["model"],), objective="analytic")
    model = Model.load(about["model"])
    rules, objective = problem.load_rules()[0], make_objective(problem.objective)
    environment = policy.make_environment(about["model"], model.graph, rules, objective)
    saved = []
    for number in numbers:
        for _ in policy.play(environment, number):
            pass
        info = environment.get_info()
        saved.append(100 * (info["best_cost_ms"] / info["start_cost_ms"] - 1))
    return saved


def _refused_percent(policy: GraphPolicy, about: Record) -> float:
    """Return how many percent of the actions that a policy draws without masks are refused."""
    from environments.tensor_graphs.settings import SIZES, Settings
    from tfrl_systems.policies import distributions
    from tfrl_systems.systems.tensor_graphs import learning as graph_learning
    from tfrl_systems.systems.tensor_graphs.problem import Problem

    names = (*SIZES, "max_steps", "may_stop", "constants")
    fields: dict[str, Any] = {name: policy.settings[name] for name in names}
    environment = graph_learning.make_environment(
        Problem(models=(about["model"],), objective="analytic"),
        Settings(masked=False, truncate=True, **fields),
    )
    generator, steps, refused = np.random.default_rng(about["seed"]), 0, 0
    for _ in range(about["played"]):
        step = environment.reset()
        while not step.is_last():
            seen = {name: array[np.newaxis] for name, array in step.observation.items()}
            (action,) = distributions.draw(policy.network.parameters(seen), generator)
            step = environment.step(action.astype(np.int32))
        info = environment.get_info()
        steps, refused = steps + info["steps"], refused + info["invalid_steps"]
    return 100 * refused / steps


def _timed(about: Record) -> dict[str, float]:
    """Return the CPU time of a decision and of an update, medians in ms."""
    from tfrl_systems import experiments
    from tfrl_systems.systems.tensor_graphs.benchmarks.learning import measure_learning
    from tfrl_systems.systems.tensor_graphs.problem import Problem

    problem = Problem(models=(about["model"],), objective="analytic")
    decisions, _, updates = measure_learning(
        experiments.find_system(graphs.SYSTEM), problem, about["model"], about["seed"],
        {**about["settings"], "num_chunks": 1},
    )  # fmt: skip
    return {"decision_ms": statistics.median(decisions), "update_ms": statistics.median(updates)}


def _measure(about: Record, workdir: pathlib.Path) -> Record:
    from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

    models = (about["model"],)
    path, figures = learning.trained(about, workdir, models=models, objective="analytic")
    policy = GraphPolicy.load(path, about["seed"])
    chance = GraphPolicy(_Chance(), policy.settings, about["seed"])
    masked = about["settings"].get("masked", True)
    # Episode 0 is the one of the likeliest actions.
    drawn = range(1, 1 + about["played"])
    likeliest, *others = _saved(policy, about, range(1 + about["played"]))
    return {
        **figures,
        **{"likeliest": likeliest, "drawn": others, "by_chance": _saved(chance, about, drawn)},
        "refused": None if masked else _refused_percent(policy, about),
        "refused_by_chance": None if masked else _refused_percent(chance, about),
        **(_timed(about) if about["timed"] else {}),
    }  # fmt: skip


def _rows(records: Records) -> Iterator[Record]:
    """Yield a row for each variant, and before them one for chance on the same model."""
    begun = set()
    refused = {record["model"]: record.get("refused_by_chance") for record in records}
    for record in records:
        about = {name: record[name] for name in ("model", "seed")}
        if tuple(about.values()) not in begun:
            begun.add(tuple(about.values()))
            drawn = record["by_chance"]
            yield {**about, "label": CHANCE, "drawn_mean": statistics.fmean(drawn),
                   "drawn_best": min(drawn), "refused": refused[about["model"]]}  # fmt: skip
        drawn = record["drawn"]
        yield {**record, "drawn_mean": statistics.fmean(drawn), "drawn_best": min(drawn)}


_COLUMNS = {
    "likeliest actions": median("likeliest", "{:.2f}%"),
    "mean of drawn episodes": median("drawn_mean", "{:.2f}%"),
    "best of them": median("drawn_best", "{:.2f}%"),
    "real steps": median("steps", "{:,.0f}"),
    "learned in s": median("learning_s", "{:.0f}"),
}
_TITLE = "Change of the estimated cost (analytic). Median (range) over seeds."
_table = functools.partial(Table, _TITLE, ("model", "label"), derive=_rows)

ENCODERS = Study(
    """The thesis's full GN block (Algorithm 2) beside our two-way messages.

The same PPO, head and number of real steps; the times are the CPU's, of a decision in NumPy and of
an update from the graphs of one episode.""",
    Encoders,
    _trials,
    _measure,
    [
        _table(
            {
                **_COLUMNS,
                "decision, ms": median("decision_ms", "{:.1f}"),
                "update, ms": median("update_ms", "{:,.0f}"),
            }
        )
    ],
)
HIERARCHIES = Study(
    """The thesis's two policies (3.2.3, 3.3) beside one of pairs and our pointer head.

On the five graphs of its table 4.1, from few real steps.""",
    Hierarchies,
    _trials,
    _measure,
    [_table(_COLUMNS)],
)
MASKS = Study(
    """What is learned from the reward -100 (3.2.4) in place of masks.

All policies are tried with masks in the end. Without them, some actions that they draw are
refused.""",
    Masks,
    _trials,
    _measure,
    [_table({**_COLUMNS, "refused without masks": median("refused", "{:.0f}%")})],
)
