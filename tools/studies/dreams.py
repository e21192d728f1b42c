"""Studies of world models: what is learned in dreams, beside learning from real steps alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from environments.tensor_graphs import rewards
from tfrl_systems.experiments.arguments import read_assignments
from tfrl_systems.settings import option
from tools.studies import graphs, learning
from tools.studies.study import Picture, Record, Records, Study, Table, Trial, mean, median

# Fits are the dear part of the sweep, and the thesis's model learns from steps of chance, however
# many come at once: three iterations' steps between two fits.
_HOT = {
    f"{temperature:g}": (
        "world_model",
        {"preset": "thesis", "num_chunks": 12, "temperature": temperature},
    )
    for temperature in (0.1, 0.5, 0.75, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "PPO": ("ppo", {}),
    "world model": ("world_model", {}),
    "thesis": ("world_model", {"preset": "thesis"}),
    **{name: ("ppo", {"reward": name}) for name in rewards.SYMBOLS},
    **_HOT,
}
# What TensorBoard shows of a run -> what the thesis calls it.
_CURVES = {
    "mean_return": "reward of real episodes (figs. 4.4, 4.10)",
    "cost": "cost by likeliest actions, over the model's own (fig. 4.6)",
    "loss": "loss (fig. 4.10)",
    "mixture": "world model's log-likelihood loss (fig. 4.8)",
    "dreamed_return": "reward of dreams (fig. 4.9)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dreams:
    """What learns from few real steps.

    Attributes:
      models: a model to learn on; may be repeated.
      variants: what learns: PPO, PPO with the thesis's rewards R1 to R5, "world model", or one of
        its variants; may be repeated.
      iterations: of 240 real steps, 4 episodes of 60.
      evaluate_every: iterations from one point of the curves to the next; 0 for the last alone.
      measure_every: measure the reward of every so many steps; 0 to estimate all of them.
      measure_seconds: seconds to measure what one episode's graph takes; 0 not to.
      objective: the cost to minimise.
      rollouts: episodes that a policy plays in the end.
      settings: FIELD=VALUE as for tfrl train, of the variants that have the field; may be repeated.
      seeds: how many seeds: 0, 1, …
    """

    models: tuple[str, ...] = option(("bert-tiny",), flag="--model", metavar="NAME")
    variants: tuple[str, ...] = option(
        ("PPO", "world model"), flag="--variant", metavar="NAME", choices=tuple(VARIANTS)
    )
    iterations: int = option(12, metavar="N", minimum=1)
    evaluate_every: int = option(0, metavar="N", minimum=0)
    measure_every: int = option(0, metavar="N", minimum=0)
    measure_seconds: float = 0.0
    objective: str = option("analytic", metavar="NAME")
    rollouts: int = option(64, metavar="K", minimum=1)
    settings: tuple[str, ...] = option((), flag="--set", metavar="FIELD=VALUE")
    seeds: int = option(5, metavar="N", minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Temperatures(Dreams):
    """What learns from few real steps.

    Attributes:
      iterations: of 720 real steps, 12 episodes of 60.
    """

    variants: tuple[str, ...] = option(tuple(_HOT), flag="--variant", metavar="NAME")
    iterations: int = option(4, metavar="N", minimum=1)


def _trials(options: Dreams) -> Iterator[Trial]:
    evaluate_every = options.evaluate_every or options.iterations
    usual = {"evaluate_every": evaluate_every, "episodes_per_chunk": 1}
    if options.measure_every:
        usual["measure_every"] = options.measure_every
    assigned = read_assignments(options.settings)
    for model in options.models:
        for label in options.variants:
            agent, settings = VARIANTS[label]
            settings = settings | learning.known_settings(graphs.SYSTEM, agent, assigned)
            about = {
                **{"system": graphs.SYSTEM, "agent": agent, "label": label},
                **{"learned_on": [model], "models": [model], "ways": ["policy"], "limit_s": 600.0},
                "iterations": options.iterations,
                "settings": {**usual, **settings},
                "measure_seconds": options.measure_seconds,
                "limits": {"rollouts": options.rollouts, "objective": options.objective},
            }
            for seed in range(options.seeds):
                yield Trial(graphs.slug(model, label, f"seed-{seed}"), {**about, "seed": seed})


def _with_costs(records: Records) -> Iterator[Record]:
    for record in records:
        world_model = record["world_model"] or {}
        (best,) = (play["percent"] for play in record["plays"] if play["way"] == "policy")
        measured: Record = next((play for play in record["plays"] if play["way"] == "measured"), {})
        yield {
            **{name: measured.get(name) for name in ("ratio", "ratio_off", "memory")},
            **{"label": record["label"], "model": record["learned_on"][0], "best": best},
            **{"steps": record["steps"], "learning_s": record["learning_s"]},
            "likeliest": 100 * (record["last"]["cost"] - 1),
            "dreamed_return": world_model.get("dreamed_return"),
        }


def _points(records: Records) -> Iterator[Record]:
    for record in records:
        about = {"model": record["learned_on"][0], "label": record["label"]}
        for name, figure in _CURVES.items():
            for iteration, value in record["training"].get(name, ()):
                names = {"panel": f"{about['model']}: {figure}", "line": record["label"]}
                yield {**about, **names, "figure": figure, "iteration": iteration, "value": value}


_COLUMNS = {
    "real steps": median("steps", "{:,.0f}"),
    "likeliest actions": median("likeliest", "{:.2f}%"),
    "rollouts": median("best", "{:.2f}%"),
    **graphs.MEASURED,
    "s": median("learning_s", "{:.0f}"),
}

DREAMS = Study(
    """World models beside PPO, at equal real steps (chapter 4 of the thesis).

With --evaluate-every 1 there are curves (figs. 4.4, 4.6 and 4.8 to 4.10). With --measure-seconds 20
the graph that the policy comes to in one episode is measured (figs. 4.3 and 4.7, table 4.2). The
thesis learns for 500 to 4,000 epochs on a GPU; a study here takes a handful of iterations on a CPU,
so its curves are the beginning of those. Rewards R1 to R5 are those of `rewards`, with PPO: no
NO-OP before the last step, rewards scaled by their own spread.
With --objective onnxruntime --measure-every 20 --measure-seconds 20 some rewards are measured, each
for about a second, and so is what the policy comes to.""",
    Dreams,
    _trials,
    graphs.measure,
    [
        Table(
            "Change of the estimated cost from equal real steps. Median (range) over seeds.",
            ("model", "label"),
            _COLUMNS,
            derive=_with_costs,
        ),
        Table(
            "Curves, by iteration. Mean (range) over seeds. Rewards are in percent of what the "
            "model's own graph costs and moves, so they need no scaling to compare.",
            ("model", "label", "figure"),
            {"": mean("value", "{:.3g}")},
            across="iteration",
            derive=_points,
        ),
        graphs.RULES,
    ],
    [Picture("dreams", "value", _points)],
)
TEMPERATURES = Study(
    """Temperatures of dreams (table 4.3 of the thesis), with the thesis's preset.

"Dreamed return" stands for the thesis's world-model score, "likeliest actions" for its real score:
both are percent of the cost of the model's own graph. bert-tiny stands for its BERT.""",
    Temperatures,
    _trials,
    graphs.measure,
    [
        Table(
            "What dreams promised, and what the policy came to in reality.",
            ("label",),
            {"dreamed return": median("dreamed_return"), **_COLUMNS},
            derive=_with_costs,
            label="τ",
        )
    ],
)
