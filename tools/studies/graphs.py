"""Studies of tensor_graphs: what searches and learned policies save of a model's cost."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from environments.tensor_graphs.search import Budget, Visited, replay
from environments.tensor_graphs.search.results import Step
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting, find_model
from tools.studies import learning
from tools.studies.study import Record, Records, Study, Table, Trial, median

SYSTEM = "tensor_graphs"
# The models of the thesis (table 4.1) and three more, in pairs of one kind of network. One policy
# for several models learns on the first of each pair. RepVGG's branches and LoRA's adapters are
# unlike any other model, so those two form a pair.
MODELS = ("bert-tiny", "bert-base", "resnet-18", "resnet-50",
          "repvgg-a0", "lora-transformer", "inception-v3", "squeezenet-1.1")  # fmt: skip
SEVERAL = MODELS[::2]
# Nothing in these is drawn by chance.
_SEARCHES = ("greedy", "taso", "regions")
# How a policy's directory is given to `experiments.evaluate`, with its rollouts; None for those
# of --rollouts. A led search has no rollouts of its own.
WAYS: dict[str, tuple[str, int | None]] = {
    "episode": ("{}", 1),
    "policy": ("{}", None),
    "led": ("regions:{}", None),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graphs(learning.Options):
    """Which policies learn, and what they are tried on.

    Attributes:
      agents: an agent that learns; may be repeated.
      policies: what is there already: a search, random, a policy's directory, or regions:DIR; may
        be repeated.
      models: a model to search, an ONNX file or a built-in name; may be repeated.
      learn_on: "own" for a policy of each model, "several" for one that learns on half of the
        models, or the name of a family, such as families for all of them; may be repeated.
      ways: how a policy that has learned is used: episode, policy or led; may be repeated.
      seconds: the most time on a model; may be repeated.
      expansions: the most rules that a search may apply.
      rollouts: episodes that a policy plays.
      objective: the cost to minimise.
    """

    policies: tuple[str, ...] = option((), flag="--policy", metavar="DIR|NAME")
    models: tuple[str, ...] = option(MODELS, flag="--model", metavar="FILE|NAME")
    learn_on: tuple[str, ...] = option(("own",), metavar="WHAT")
    ways: tuple[str, ...] = option(("policy",), flag="--way", metavar="NAME", choices=tuple(WAYS))
    seconds: tuple[float, ...] = option((60.0,), metavar="N", positive=True)
    expansions: int | None = option(None, metavar="N", minimum=1)
    rollouts: int = option(64, metavar="K", minimum=1)
    objective: str = option("onnxruntime", metavar="NAME")

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


def _lessons(what: str, models: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the models that each policy learns on."""
    if what == "own":
        yield from ((model,) for model in models)
    else:
        yield SEVERAL if what == "several" else (what,)


def _trials(options: Graphs) -> Iterator[Trial]:
    shared = {"system": SYSTEM, "seconds": options.seconds, "limits": options.limits}
    for policy in options.policies:
        about: dict[str, Any] = {
            **{**shared, "policy": policy, "policy_sha256": learning.digest_of(policy)},
            "ways": ("policy",),
        }
        kind = "led" if policy.startswith("regions:") else ""
        for model in options.models:
            for seed in range(1 if policy in _SEARCHES else options.seeds):
                name = slug(model, kind, policy, f"seed-{seed}")
                yield Trial(name, {**about, "models": (model,), "seed": seed})
    for agent in options.agents:
        for what in options.learn_on:
            for learned_on in _lessons(what, options.models):
                about = {
                    **{**shared, "agent": agent, "learned_on": learned_on, "ways": options.ways},
                    **{"iterations": options.iterations, "settings": options.assigned},
                    "models": learned_on if what == "own" else options.models,
                }
                for seed in range(options.seeds):
                    name = slug(agent, "-".join(map(slug, learned_on)), f"seed-{seed}")
                    yield Trial(name, {**about, "seed": seed})


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Train a policy, or take one or a search; return what it comes to on each model."""
    policy, figures = about.get("policy"), dict[str, Any]()
    if policy is None:
        learned_on, fitting = tuple(about["learned_on"]), dict(about)
        if about["iterations"] and len(learned_on) > 1:
            # Each model gets as many iterations as if a policy learned on it alone.
            fitting["iterations"] = about["iterations"] * len(learned_on)
        objective = about["limits"]["objective"]
        policy, figures = learning.trained(fitting, workdir, models=learned_on, objective=objective)
    plays = [
        {"way": way, "limit_s": limit_s, **_found_by(policy, model, way, limit_s, about)}
        for model in about["models"]
        for way in about["ways"]
        for limit_s in about["seconds"]
    ]
    return {**figures, "plays": plays}


def _found_by(policy: str, model: str, way: str, limit_s: float, about: Record) -> dict[str, Any]:
    """Return what a search or policy came to on a model."""
    form, rollouts = WAYS[way]
    limits = {**about["limits"], **({"rollouts": rollouts} if rollouts else {})}
    result = learning.evaluate(
        SYSTEM, [form.format(policy)], about["seed"], models=[model], seconds=limit_s, **limits
    )
    (evaluated,) = result["models"]
    (row,) = evaluated["policies"]
    return {
        "model": model,
        "percent": 100 * (row["estimated_ms_after"] / evaluated["estimated_ms_before"] - 1),
        **{name: row[name] for name in ("seconds", "expansions", "stopped", "steps")},
    }


def plays(records: Records) -> Iterator[Record]:
    """Yield a record for each play of a policy or search."""
    for record in records:
        names = record.get("learned_on")
        for play in record["plays"]:
            by = str(record.get("policy"))
            if names:
                own = "own" if names == [play["model"]] else f"learned on {', '.join(names)}"
                by = f"{record['agent']}, {own}, {play['way']}"
            yield {**play, "by": by}


def _likeliest(record: Record) -> float | None:
    """Return the change of the cost by an episode of likeliest steps, when training ended."""
    cost = record["last"].get("cost")
    return None if cost is None else 100 * (cost - 1)


GRAPHS = Study(
    """What searches and policies save of the estimated cost, on models known to them and on others.

    python -m tools.studies graphs --policy taso --policy regions --policy random -o runs/searches
    python -m tools.studies graphs --agent ppo --learn-on own --learn-on several -o runs/graphs

Each agent's policy learns on its own model, on several, or on a family of small random ones. A
policy plays --rollouts episodes, the first of its likeliest steps; led is our search led by a
policy; random draws all actions. --set says what else is compared, such as preset=thesis.""",
    Graphs,
    _trials,
    measure,
    [
        Table(
            "Change of the estimated cost, and rules applied, by seconds. Median (range) over "
            "seeds.",
            ("model", "by"),
            {
                "cost": median("percent", "{:.2f}%"),
                "expansions": median("expansions", "{:,.0f}"),
                "s": median("seconds", "{:.0f}"),
            },
            across="limit_s",
            derive=plays,
        ),
        Table(
            "What policies learned from. Median (range) over seeds.",
            ("agent", "learned_on"),
            {
                "likeliest steps": median(_likeliest, "{:.2f}%"),
                "real steps": median("steps", "{:,.0f}"),
                "s": median("learning_s", "{:.0f}"),
            },
            derive=lambda records: [record for record in records if "agent" in record],
        ),
    ],
)


# Built-in models that the policy in the installation was not trained on.
UNSEEN = ("bert-base", "lora-transformer", "nasrnn", "resnet-50", "resnext-50", "squeezenet-1.1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """What is tried, and on what.

    Attributes:
      models: an ONNX file or a built-in name; may be repeated.
      policies: the directory of a policy whose likeliest steps are taken; may be repeated.
      expansions: rules that the searches may apply.
    """

    models: tuple[str, ...] = option(UNSEEN, flag="--model", metavar="FILE|NAME")
    policies: tuple[str, ...] = option((str(shipped.DIRECTORY),), flag="--policy", metavar="DIR")
    expansions: int = option(250, metavar="N", minimum=1)


def _unmeasured(options: Unmeasured) -> Iterator[Trial]:
    for model in options.models:
        for policy in options.policies:
            about = {"model": model, "policy": policy, "expansions": options.expansions}
            about["policy_sha256"] = learning.digest_of(policy)
            yield Trial(slug(model, policy), about)


def measure_unmeasured(about: Record, workdir: pathlib.Path) -> Record:
    """Return the change of the measured cost, in percent, by each way that measured nothing."""
    name = about["model"]
    problem = GraphProblem.of(slug(name), find_model(name), Rewriting())
    by_formula, budget = problem.by_formula, Budget(expansions=about["expansions"])
    policy, began_s = GraphPolicy.load(about["policy"]), time.process_time()
    walked = by_formula.walk(policy, time.monotonic() + 60)
    walk_s = time.process_time() - began_s
    paths = {
        "removal": by_formula.search("removal", budget).path,
        "formula": by_formula.search("regions", budget).path,
        "policy": walked.path,
    }
    start = by_formula.with_objective(problem.objective).start

    def percent(path: tuple[Step, ...]) -> float:
        return 100 * (replay(Visited(start), path).cost_ms / start.cost_ms - 1)

    changes = {way: percent(path) for way, path in paths.items()}
    return {**changes, "cost_ms": start.cost_ms, "steps": len(walked.path), "walk_s": walk_s}


UNMEASURED = Study(
    """What is saved of the measured cost by ways that measure nothing themselves.

removal is what only removes computations, formula our search by costs that are worked out, policy
the likeliest steps of a policy that learned from measured costs and sees none.""",
    Unmeasured,
    _unmeasured,
    measure_unmeasured,
    [
        Table(
            "Change of the cost, as measured on this machine, by ways that measure nothing.",
            ("model",),
            {
                "cost, ms": median("cost_ms", "{:.2f}"),
                "removal": median("removal", "{:.2f}%"),
                "formula": median("formula", "{:.2f}%"),
                "policy": median("policy", "{:.2f}%"),
                "steps": median("steps", "{:.0f}"),
                "s": median("walk_s", "{:.1f}"),
            },
        )
    ],
)
