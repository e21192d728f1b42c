"""Studies of tensor_graphs: what searches and learned policies save of a model's estimated cost."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from tfrl_systems.settings import option
from tools.studies import learning
from tools.studies.study import Picture, Record, Records, Study, Table, Trial, curves, median

SYSTEM = "tensor_graphs"
# The models of the thesis (table 4.1) and three more, in pairs of one kind of network. One policy
# for several models learns on the first of each pair. RepVGG's branches and LoRA's adapters are
# unlike any other model, so those two form a pair.
MODELS = ("bert-tiny", "bert-base", "resnet-18", "resnet-50",
          "repvgg-a0", "lora-transformer", "inception-v3", "squeezenet-1.1")  # fmt: skip
SEVERAL = MODELS[::2]
_SEARCHES = ("greedy", "taso", "regions")
# How a policy's directory is given to `experiments.evaluate`, with its rollouts; None for those
# of --rollouts. A led search has no rollouts of its own.
WAYS: dict[str, tuple[str, int | None]] = {
    "episode": ("{}", 1),
    "policy": ("{}", None),
    "led": ("regions:{}", None),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searches:
    """How searches are compared.

    Attributes:
      models: a model to search, an ONNX file or a built-in name; may be repeated.
      policies: a search, a policy's directory, or regions:DIR; may be repeated.
      seconds: seconds for a search; may be repeated.
      expansions: the most rules that a search may apply.
      rollouts: episodes of a policy.
      objective: the cost to minimise.
      seeds: how many seeds of what is drawn by chance.
    """

    models: tuple[str, ...] = option(MODELS, flag="--model", metavar="FILE|NAME")
    policies: tuple[str, ...] = option(_SEARCHES, flag="--policy", metavar="DIR|NAME")
    seconds: tuple[float, ...] = option((60.0,), metavar="N", positive=True)
    expansions: int | None = option(None, metavar="N", minimum=1)
    rollouts: int = option(64, metavar="K", minimum=1)
    objective: str = option("onnxruntime", metavar="NAME")
    seeds: int = option(1, metavar="N", minimum=1)

    @property
    def limits(self) -> dict[str, Any]:
        """What bounds and guides each search, as JSON values."""
        return {
            "rollouts": self.rollouts,
            "objective": self.objective,
            "expansions": self.expansions,
        }


def slug(*names: object) -> str:
    """Return names in one that a file may have; of paths only the last part, of policies two."""
    parts = [
        "-".join(pathlib.PurePath(str(name).removeprefix("regions:")).parts[-2:]) for name in names
    ]
    return "-".join(part.removesuffix(".onnx").replace(" ", "-") for part in parts if part)


def found_by(
    policy: str, model: str, seed: int, limits: Record, seconds: float, rollouts: int | None = None
) -> dict[str, Any]:
    """Return what a search or policy came to on a model."""
    result = learning.evaluate(
        SYSTEM,
        [policy],
        seed,
        models=[model],
        seconds=seconds,
        **{**limits, **({"rollouts": rollouts} if rollouts else {})},
    )
    (evaluated,) = result["models"]
    (row,) = evaluated["policies"]
    return {
        "model": model,
        "percent": 100 * (row["estimated_ms_after"] / evaluated["estimated_ms_before"] - 1),
        **{name: row[name] for name in ("seconds", "expansions", "stopped")},
        "steps_of_path": row["steps"],
    }


def _of_searches(options: Searches) -> Iterator[Trial]:
    for model in options.models:
        for policy in options.policies:
            digest = learning.digest_of(policy)
            for seconds in options.seconds:
                for seed in range(options.seeds if policy not in _SEARCHES else 1):
                    about = {"model": model, "policy": policy, "seed": seed, "limit_s": seconds}
                    kind = "led" if policy.startswith("regions:") else ""
                    name = slug(model, kind, policy, f"{seconds:g}s", seed)
                    yield Trial(name, {**about, "policy_sha256": digest, "limits": options.limits})


def _measure_search(about: Record, _: pathlib.Path) -> Record:
    names = ("policy", "model", "seed", "limits", "limit_s")
    return found_by(*(about[name] for name in names))


_FOUND = {
    "cost": median("percent", "{:.2f}%"),
    "expansions": median("expansions", "{:,.0f}"),
    "s": median("seconds", "{:.0f}"),
}
SEARCHES = Study(
    """What searches and policies that are there already save of the estimated cost.

A policy plays --rollouts episodes, the first of its likeliest steps; regions:DIR is our search led
by a policy; random draws all actions.""",
    Searches,
    _of_searches,
    _measure_search,
    [
        Table(
            "Change of the estimated cost, by seconds for a search. Median (range) over seeds.",
            ("model", "policy"),
            _FOUND,
            across="limit_s",
        )
    ],
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graphs(learning.Options):
    """Which policies learn, and what they are tried on.

    Attributes:
      models: a model to try policies on, an ONNX file or a built-in name; may be repeated.
      learn_on: "own" for a policy of each model, "several" for one that learns on half of the
        models, or the name of a family, such as families for all of them; may be repeated.
      ways: how a policy is used: episode, policy or led; may be repeated.
      seconds: the most time for a policy on a model.
      rollouts: episodes that a policy plays.
      objective: the cost to minimise.
    """

    agents: tuple[str, ...] = option(("ppo",), flag="--agent", metavar="NAME")
    models: tuple[str, ...] = option(MODELS, flag="--model", metavar="FILE|NAME")
    learn_on: tuple[str, ...] = option(("own",), metavar="WHAT")
    ways: tuple[str, ...] = option(("policy",), flag="--way", metavar="NAME", choices=tuple(WAYS))
    seconds: float = option(60.0, metavar="N", positive=True)
    rollouts: int = option(64, metavar="K", minimum=1)
    objective: str = option("onnxruntime", metavar="NAME")


def _lessons(what: str, models: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the models that each policy learns on."""
    if what == "own":
        yield from ((model,) for model in models)
    else:
        yield SEVERAL if what == "several" else (what,)


def _of_graphs(options: Graphs) -> Iterator[Trial]:
    shared = {
        "system": SYSTEM,
        "iterations": options.iterations,
        "ways": options.ways,
        "limit_s": options.seconds,
        "limits": {"rollouts": options.rollouts, "objective": options.objective},
    }
    for agent in options.agents:
        for what in options.learn_on:
            for learned_on in _lessons(what, options.models):
                about = {
                    **shared,
                    **{"agent": agent, "settings": options.assigned, "learned_on": learned_on},
                    "models": learned_on if what == "own" else options.models,
                }
                for seed in range(options.seeds):
                    name = slug(agent, "-".join(map(slug, learned_on)), f"seed-{seed}")
                    yield Trial(name, {**about, "seed": seed})


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Train a policy, and return what it comes to on each model in each way."""
    objective = about["limits"]["objective"]
    learned_on = tuple(about["learned_on"])
    fitting = dict(about)
    if about["iterations"] and len(learned_on) > 1:
        # Each model gets as many iterations as if a policy learned on it alone.
        fitting["iterations"] = about["iterations"] * len(learned_on)
    policy, figures = learning.trained(fitting, workdir, models=learned_on, objective=objective)
    plays = []
    for model in about["models"]:
        for way in about["ways"]:
            form, rollouts = WAYS[way]
            limits = (about["limits"], about["limit_s"], rollouts)
            play = found_by(form.format(policy), model, about["seed"], *limits)
            plays.append({**play, "way": way})
    return {**figures, "plays": plays}


def plays(records: Records) -> Iterator[Record]:
    """Yield a record for each play of a policy."""
    for record in records:
        shared = {name: field for name, field in record.items() if name != "plays"}
        names = record["learned_on"]
        for play in record["plays"]:
            kind = play["model"] if names == [play["model"]] else ", ".join(names)
            own = "own" if kind == play["model"] else f"learned on {kind}"
            yield {**shared, **play, "by": f"{record['agent']}, {own}, {play['way']}"}


def _likeliest(record: Record) -> float | None:
    """Return the change of the cost by an episode of likeliest steps, when training ended."""
    cost = record["last"].get("cost")
    return None if cost is None else 100 * (cost - 1)


GRAPHS = Study(
    """What learned policies save of the estimated cost, on their own models and on others.

Each policy learns on its own model, on several, or on a family of small random ones. Chance and
searches are in the study `searches`.""",
    Graphs,
    _of_graphs,
    measure,
    [
        Table(
            "Change of the estimated cost, and steps tried. Median (range) over seeds.",
            ("model", "by"),
            {
                **_FOUND,
                "likeliest steps": median(_likeliest, "{:.2f}%"),
                "real steps learned from": median("steps", "{:,.0f}"),
                "learned in s": median("learning_s", "{:.0f}"),
            },
            derive=plays,
        )
    ],
    [Picture("graphs", "cost by likeliest actions", curves("learned_on", "agent"))],
)
