"""BC-Max with exploration: the loop of Algorithm 4.

T. V. Marinov, A. Agarwal, M. Trofin: Scalable RL for Systems via Offline Imitation from Multiple
Baselines (2024), Algorithms 1-4 and D.2-D.4. Each iteration

1. explores around the policy of the previous iteration (Algorithm 3), or, in the first iteration,
   around the default;
2. takes for each context the best episode that any policy or exploration has met (the oracle);
3. fits a policy to both kinds of label (`labels.py`), and chooses by playing validation contexts
   the margin below which this policy keeps the default's action (`selection.py`);
4. makes the greedy version of this policy a baseline of the next iteration.

The result is the policy that did best on the validation contexts.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.errors import UserError
from tfrl_systems.agents import bc_max
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.agent import labelled_experience
from tfrl_systems.systems.inlining.imitation.comparison import Comparison, saving_percent
from tfrl_systems.systems.inlining.imitation.labels import (
    Labels,
    advantage_labels,
    imitation_labels,
)
from tfrl_systems.systems.inlining.imitation.margins import Chosen, Judge
from tfrl_systems.systems.inlining.imitation.outcomes import (
    DecisionProblem,
    Exploration,
    Outcome,
    Policy,
    best_per_context,
    decision_specs,
)
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy
from tfrl_systems.systems.inlining.policy.votes import NEVER
from tfrl_systems.systems.inlining.warm_start import clone_default

CONTEXT_WEIGHTS = ("buckets", "hedge")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the loop.

    Attributes:
      iterations: number of iterations, N of Algorithm 4.
      baselines: policies to begin with, by name or directory; the first is the default, against
        which all others are measured.
      explore: try other actions (Algorithm 3); without it, the loop is the paper's Algorithm 1.
      advantage: learn from each explored action's own Δcost.
      imitation: learn from the best episode of each context; without it, from the default's
        episode, so that the policy knows what to do where nothing was explored.
      scoped: explore and depart from the default only where the problem's scope feature says that
        this carries over to other groups; elsewhere take the default's action.
      imitation_scale: factor of the weights of imitated actions, to balance them against explored
        actions, whose weights are min(clip_cost, 3 + |Δcost|).
      context_weights: how contexts of different sizes count in imitation: "buckets" gives each
        order of magnitude the same weight (D.3); "hedge" begins with that, and shifts towards those
        that the learned policies left large (D.4).
      hedge_eta: step size of Hedge, η.
      imitation_rows: the most imitated actions; if there are more, they are drawn at random.
      clip_cost: the greatest weight of an explored action; see imitation_scale.
      margins: candidates for the margin, in logits.
      max_loss_percent: by how much a chosen policy may make any validation group worse than the
        default does.
      seed: decides all randomness.
    """

    iterations: int = dataclasses.field(default=2, metadata={"minimum": 1})
    baselines: tuple[str, ...] = ("default", "cost<-5", "cost<-20", "cost<-35")
    explore: bool = True
    advantage: bool = True
    imitation: bool = True
    scoped: bool = True
    imitation_scale: float = 0.02
    context_weights: str = "buckets"
    hedge_eta: float = 1.0
    imitation_rows: int = 15_000
    clip_cost: float = 100.0
    margins: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
    max_loss_percent: float = 0.1
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Iteration:
    """The results of one iteration. Costs are sums over the contexts.

    Attributes:
      number: number of the iteration, from 1.
      policy: name of the policy that was explored around.
      contexts: number of contexts in which both that policy and the default could be played.
      default_cost: cost of the default.
      policy_cost: cost of that policy.
      oracle_cost: cost of the best episode known in each context.
      changed: share of that policy's decisions that differ from the default's.
      worse: number of contexts in which that policy costs more than the default.
      flips: number of explored actions with a known Δcost, in all iterations so far.
      rows: number of labelled rows that the new policy was fitted to.
      loss: loss of that fit.
      agreement: weighted share of the rows whose action the new policy takes.
      cloned: share of the contexts in which a clone of the default makes all of the default's
        decisions (the paper's bc_0); measured in the first iteration, else NaN.
      margin: cautious margin of the new policy; see `selection`.
      outside_margin: the same outside the scope.
      bold_margin: bold margin of the new policy.
      bold_outside_margin: the same outside the scope.
      score: how good the new policy is on the validation contexts; see `selection.score`.
      collecting_s: seconds spent exploring.
      training_s: seconds spent fitting.
      validating_s: seconds spent on the validation contexts.
    """

    number: int
    policy: str
    contexts: int
    default_cost: float
    policy_cost: float
    oracle_cost: float
    changed: float
    worse: int
    flips: int
    rows: int
    loss: float
    agreement: float
    cloned: float
    margin: float
    outside_margin: float
    bold_margin: float
    bold_outside_margin: float
    score: float
    collecting_s: float
    training_s: float
    validating_s: float

    @property
    def policy_saving_percent(self) -> float:
        """Return the saving of the explored policy over the default, in percent."""
        return saving_percent(self.default_cost, self.policy_cost)

    @property
    def oracle_saving_percent(self) -> float:
        """Return the saving of the oracle over the default, in percent."""
        return saving_percent(self.default_cost, self.oracle_cost)


class BcMaxLoop:
    """The BC-Max loop; each call of `step` runs one iteration.

    Args:
      problem: contexts to learn on.
      validation: contexts to choose the margins on; no policy is fitted to them.
      config: settings of the loop.
      agent_config: settings of the agent that each iteration fits; the loop itself sets its margin,
        seed, baseline feature and scope feature.

    Attributes:
      learned: the last policy with its cautious margins; None before the first iteration.
      bold: the same policy with the margins to explore around.
      agent: the agent that made this policy; None if the policy was handed to `step`.
      chosen: how both do on the validation contexts; None likewise.
      explored: comparison of the policy that the last iteration explored around with the default.
    """

    def __init__(
        self,
        problem: DecisionProblem,
        validation: DecisionProblem,
        config: Config,
        agent_config: decision_agent.Config,
    ) -> None:
        self._problem = problem
        self._config = config
        self._agent_config = dataclasses.replace(
            agent_config,
            baseline_feature=problem.baseline_feature,
            scope_feature=problem.scope_feature,
            seed=config.seed,
        )
        self._judge = Judge(
            validation, config.margins, config.max_loss_percent, problem.scope_feature
        )
        self._group_of = dict(zip(problem.contexts, problem.groups, strict=True))
        self._explorations: list[Exploration] = []
        self._learned: list[list[Outcome]] = []
        self._pool: list[list[Outcome]] = []
        self._number = 0
        self.learned: CallSitePolicy | None = None
        self.agent: Any = None
        self.bold: CallSitePolicy | None = None
        self.chosen: Chosen | None = None
        self.explored: Comparison | None = None

    def step(self, before: tuple[CallSitePolicy, CallSitePolicy] | None = None) -> Iteration:
        """Run one iteration.

        Args:
          before: `learned` and `bold` as this iteration left them before the run was interrupted,
            to be used instead of fitting a policy; None to fit one.

        Returns:
          The results of the iteration.

        Raises:
          UserError: no context can be played, or nothing was found to learn from.
        """
        self._number += 1
        started_s = time.monotonic()
        if self._number == 1:
            for name in self._config.baselines:
                self._pool.append(self._problem.play(self._problem.baseline(name), name))
        policy = self.bold or self._problem.baseline(self._config.baselines[0])
        base = self._collect(policy)
        if self.bold is not None:
            self._learned.append(base)
        collected_s = time.monotonic()
        labels = self.labels()
        cloned = float("nan")
        if self._number == 1 and before is None:
            names = self._problem.feature_names
            everywhere = dataclasses.replace(self._agent_config, scope_feature="")
            _, cloned = clone_default(self._pool[0], names, everywhere)
        fit = self._fit(labels) if before is None else self._adopt(*before)
        return Iteration(
            number=self._number,
            policy=policy.name,
            **self._costs(base),
            flips=sum(len(exploration.steps) for exploration in self._explorations),
            rows=len(labels.actions),
            cloned=cloned,
            **fit,
            collecting_s=collected_s - started_s,
            training_s=time.monotonic() - collected_s - fit["validating_s"],
        )

    @property
    def environment_steps(self) -> int:
        """Return the number of decisions in the episodes kept for learning, without trials."""
        return sum(len(outcome.actions) for outcomes in self._pool for outcome in outcomes)

    def labels(self) -> Labels:
        """Return all rows that the next fit learns from."""
        parts = []
        if self._config.advantage and self._explorations:
            parts.append(
                advantage_labels(self._explorations, self._group_of, clip=self._config.clip_cost)
            )
        pool = self._pool if self._config.imitation else self._pool[:1]
        best = best_per_context(pool)
        if not best:
            raise UserError(
                "bc_max: expected contexts that can be played, found that all failed; see why above"
            )
        contexts = sorted(best)
        weights = self._context_weights([best[context].cost for context in contexts], contexts)
        parts.append(
            imitation_labels(
                best,
                dict(zip(contexts, weights, strict=True)),
                self._group_of,
                self._config.imitation_scale,
                self._config.imitation_rows,
                self._config.seed,
            )
        )
        if not any(len(part.actions) for part in parts):
            raise UserError(
                "bc_max: expected decisions to learn from, found none; use contexts in which there "
                "is something to decide"
            )
        labels = Labels.concatenate(parts)
        return self._in_scope(labels) if self._config.scoped else labels

    def _context_weights(self, costs: Sequence[float], contexts: Sequence[str]) -> np.ndarray:
        """Return the weight of each context in imitation; `costs` are those of the best episodes.

        A context in which a learned policy could not be played counts as if it had done its best.
        """
        if self._config.context_weights == "buckets":
            return bc_max.bucket_weights(costs)
        best = dict(zip(contexts, costs, strict=True))
        played = [
            best | {outcome.context: outcome.cost for outcome in outcomes}
            for outcomes in self._learned
        ]
        learned = [[costs_of[context] for context in contexts] for costs_of in played]
        return bc_max.hedge_weights(costs, learned, self._config.hedge_eta)

    def _in_scope(self, labels: Labels) -> Labels:
        """Return the rows in which a policy may depart from the default; all rows if none are."""
        scope = self._problem.scope_feature
        if not scope:
            return labels
        inside = labels.features[:, self._problem.feature_names.index(scope)] == 1
        return labels.where(inside) if inside.any() else labels

    def _collect(self, policy: Policy) -> list[Outcome]:
        label = f"iteration {self._number}, {policy.name}"
        if not self._config.explore:
            outcomes = self._problem.play(policy, label)
            self._pool.append(outcomes)
            return outcomes
        certainty_fn = None
        if self.bold is not None:
            # It refers to the policy alone, because it may be sent to other processes.
            certainty_fn = functools.partial(self.bold.certainty, self._problem.feature_names)
        explorations = self._problem.explore(policy, certainty_fn, label, self._config.scoped)
        self._explorations += explorations
        self._pool.append([exploration.base for exploration in explorations])
        self._pool.append([exploration.best for exploration in explorations])
        return [exploration.base for exploration in explorations]

    def _adopt(self, learned: CallSitePolicy, bold: CallSitePolicy) -> dict[str, Any]:
        """Use a policy that was fitted earlier; return the same fields as `_fit`."""
        self.learned, self.bold, self.agent, self.chosen = learned, bold, None, None
        unknown = float("nan")
        return {
            **self._margins(),
            "score": unknown,
            "loss": unknown,
            "agreement": unknown,
            "validating_s": 0.0,
        }

    def _fit(self, labels: Labels) -> dict[str, Any]:
        """Fit a policy; return the fields of `Iteration` that describe the fit."""
        self.agent, loss_info = self._make_agent(labels)
        name = f"learned-{self._number}"
        fitted_s = time.monotonic()
        self.chosen = self._judge.choose(
            to_numpy(self.agent.policy, name), name, outside=not self._config.scoped
        )
        self.learned, self.bold = self.chosen.cautious.policy, self.chosen.bold.policy
        self.agent.set_margins(self.learned.margin, self.learned.outside_margin)
        return {
            **self._margins(),
            "score": self.chosen.cautious.score,
            "loss": float(loss_info.loss),
            "agreement": float(loss_info.extra.agreement),
            "validating_s": time.monotonic() - fitted_s,
        }

    def _margins(self) -> dict[str, float]:
        assert self.learned is not None and self.bold is not None
        return {
            "margin": self.learned.margin,
            "outside_margin": self.learned.outside_margin,
            "bold_margin": self.bold.margin,
            "bold_outside_margin": self.bold.outside_margin,
        }

    def _make_agent(self, labels: Labels) -> tuple[Any, Any]:
        """Fit an agent without margins; return it with its loss."""
        names = self._problem.feature_names
        agent = decision_agent.make_agent(self._agent_config, *decision_specs(names))
        agent.set_margins(0.0, NEVER if self._config.scoped else 0.0)
        experience, weights = labelled_experience(
            names, labels.features, labels.actions, labels.weights
        )
        return agent, agent.train(experience, weights)

    def _costs(self, base: Sequence[Outcome]) -> dict[str, Any]:
        """Return the fields of `Iteration` that describe the explored policy's episodes."""
        best = best_per_context(self._pool)
        self.explored = comparison = Comparison.of(self._problem, base, self._pool[0])
        default_contexts = {outcome.context for outcome in self._pool[0]}
        met = [
            best[outcome.context].cost for outcome in base if outcome.context in default_contexts
        ]
        return {
            "contexts": len(comparison.groups),
            "default_cost": float(comparison.default_costs.sum()),
            "policy_cost": float(comparison.costs.sum()),
            "oracle_cost": float(sum(met)),
            "changed": comparison.changed,
            "worse": comparison.worse,
        }
