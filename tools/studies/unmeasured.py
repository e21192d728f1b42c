"""What can be saved of a model's cost before any of its operators is measured."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Iterator

from environments.tensor_graphs.search import Budget, Visited, replay
from environments.tensor_graphs.search.results import Step
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting, find_model
from tools.studies import learning
from tools.studies.graphs import slug
from tools.studies.study import Record, Study, Table, Trial, median

# Built-in models that the policy in the installation was not trained on.
MODELS = ("bert-base", "lora-transformer", "nasrnn", "resnet-50", "resnext-50", "squeezenet-1.1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """What is tried, and on what.

    Attributes:
      models: an ONNX file or a built-in name; may be repeated.
      policies: the directory of a policy whose likeliest steps are taken; may be repeated.
      expansions: rules that the searches may apply.
    """

    models: tuple[str, ...] = option(MODELS, flag="--model", metavar="FILE|NAME")
    policies: tuple[str, ...] = option((str(shipped.DIRECTORY),), flag="--policy", metavar="DIR")
    expansions: int = option(250, metavar="N", minimum=1)


def _trials(options: Unmeasured) -> Iterator[Trial]:
    for model in options.models:
        for policy in options.policies:
            about = {"model": model, "policy": policy, "expansions": options.expansions}
            about["policy_sha256"] = learning.digest_of(policy)
            yield Trial(slug(model, policy), about)


def measure(about: Record, workdir: pathlib.Path) -> Record:
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
    _trials,
    measure,
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
