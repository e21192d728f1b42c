"""Studies of world models: what is learned in dreams, beside learning from real steps alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tfrl_systems.settings import option
from tools.studies import graphs
from tools.studies.study import Record, Records, Study, Table, Trial, median

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
    **_HOT,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dreams:
    """What learns from few real steps.

    Attributes:
      models: a model to learn on; may be repeated.
      variants: what learns: PPO, "world model", or one of its variants; may be repeated.
      iterations: of 240 real steps, 4 episodes of 60.
      measure_every: measure the reward of every so many steps; 0 to estimate all of them.
      measure_seconds: seconds to measure what one episode's graph takes; 0 not to.
      objective: the cost to minimise.
      seeds: how many seeds: 0, 1, …
    """

    models: tuple[str, ...] = option(("bert-tiny",), flag="--model", metavar="NAME")
    variants: tuple[str, ...] = option(
        ("PPO", "world model"), flag="--variant", metavar="NAME", choices=tuple(VARIANTS)
    )
    iterations: int = option(12, metavar="N", minimum=1)
    measure_every: int = option(0, metavar="N", minimum=0)
    measure_seconds: float = 0.0
    objective: str = option("analytic", metavar="NAME")
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
    usual = {"evaluate_every": options.iterations, "episodes_per_chunk": 1}
    if options.measure_every:
        usual["measure_every"] = options.measure_every
    for model in options.models:
        for label in options.variants:
            agent, settings = VARIANTS[label]
            about = {
                **{"system": graphs.SYSTEM, "agent": agent, "label": label},
                **{"learned_on": [model], "models": [model], "ways": ["policy"], "limit_s": 600.0},
                "iterations": options.iterations,
                "settings": {**usual, **settings},
                "measure_seconds": options.measure_seconds,
                "limits": {"rollouts": 64, "objective": options.objective},
            }
            for seed in range(options.seeds):
                yield Trial(graphs.slug(model, label, f"seed-{seed}"), {**about, "seed": seed})


def _with_costs(records: Records) -> Iterator[Record]:
    for record in records:
        world_model = record["world_model"] or {}
        (best,) = (play["percent"] for play in record["plays"] if play["way"] == "policy")
        ratios = [play["ratio"] for play in record["plays"] if play["way"] == "measured"]
        yield {
            **{"label": record["label"], "model": record["learned_on"][0], "best": best},
            **{"steps": record["steps"], "learning_s": record["learning_s"]},
            "likeliest": 100 * (record["last"]["cost"] - 1),
            "dreamed_return": world_model.get("dreamed_return"),
            "ratio": ratios[0] if ratios else None,
        }


_COLUMNS = {
    "real steps": median("steps", "{:,.0f}"),
    "likeliest actions": median("likeliest", "{:.2f}%"),
    "64 rollouts": median("best", "{:.2f}%"),
    "measured": median("ratio", "{:.3f}"),
    "s": median("learning_s", "{:.0f}"),
}

DREAMS = Study(
    """World models beside PPO, at equal real steps (section 4.3.3 of the thesis).

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
        )
    ],
)
TEMPERATURES = Study(
    """Temperatures of dreams (table 4.3 of the thesis), with the thesis's preset.""",
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
