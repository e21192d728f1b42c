"""BC-Max with exploration: our variant of Algorithm 4, and by settings the printed one.

T. V. Marinov, A. Agarwal, M. Trofin: Scalable RL for Systems via Offline Imitation from Multiple
Baselines (2024), Algorithms 1-4 and D.2-D.4. Each iteration

1. explores around the policy of the previous iteration, or, in the first iteration, around the
   default (`exploration/explore.py`);
2. takes for each context the best episode that any policy or exploration has met (the oracle);
3. fits a policy to both kinds of label (`labels.py`), and chooses by playing validation contexts
   the margin below which this policy keeps the default's action (`margins.py`);
4. makes the greedy version of this policy, with the margin to explore around, a baseline.

The result is the policy that did best on the validation contexts. Algorithm 4 instead is

    --set around=all --set flip_share=0.1 --set bucketed_by=first --set advantage=false
    --set scoped=false --set margins=

where the paper does not say which share it took for T. It departs from the print in this:

* The first iteration does not explore. Algorithm 4 calls π̂_l both what explores in iteration l and
  what is learned from that; D.2 says that π_1 is cloned first, and that the policy that was learned
  last explores.
* The contexts are the same in all iterations, as D.2 has it; Algorithm 4 samples them anew.
* Episodes of earlier iterations stay in the oracle. A policy is deterministic, so those of the
  policies would be the same; those of explorations are more than Algorithm 4 has at hand.

With --set explore=false as well, it is Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

from environments.errors import UserError
from environments.inlining.heuristics import Policy
from tfrl_systems.agents import bc_max
from tfrl_systems.settings import LATER
from tfrl_systems.systems.inlining.imitation import cloning
from tfrl_systems.systems.inlining.imitation.comparison import Comparison, saving_percent
from tfrl_systems.systems.inlining.imitation.decision_problem import (
    Exploration,
    InliningProblem,
    Outcome,
)
from tfrl_systems.systems.inlining.imitation.labels import (
    Labels,
    advantage_labels,
    best_per_context,
    imitation_labels,
)
from tfrl_systems.systems.inlining.imitation.margins import Judge
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_policy import DecisionPolicy, to_numpy
from tfrl_systems.systems.inlining.policy.votes import NEVER

CONTEXT_WEIGHTS = ("buckets", "hedge")
AROUND = ("last", "all")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the loop.

    Attributes:
      iterations: number of iterations, N of Algorithm 4.
      baselines: policies to begin with, by name or directory; the first is the default, against
        which all others are measured.
      explore: try other actions; without it, policies are played as they are.
      around: policies to explore around: the "last" alone, or "all" so far (Algorithm 4).
      flip_share: explore as Algorithm 3 prints it, with at most this share of the decisions of the
        first baseline's episode as T, rounded up; 0 to try each action by itself.
      advantage: learn from each explored action's own Δcost.
      imitation: learn from the best episode of each context; without it, from the default's
        episode, so that the policy knows what to do where nothing was explored.
      scoped: explore and depart from the default only where the problem's scope feature says that
        this carries over to other groups; elsewhere take the default's action.
      imitation_scale: factor of the weights of imitated actions, to balance them against explored
        actions, whose weights are min(clip_cost, 3 + |Δcost|).
      context_weights: how contexts of different sizes count in imitation: "buckets" gives each
        power of two the same weight (D.3); "hedge" begins with that, and shifts towards those that
        the learned policies left large (D.4).
      bucketed_by: costs that divide contexts into buckets: of the "best" episode so far, so that a
        context may move to another bucket; or of the "first" baselines' best episode, as D.3 has
        it.
      hedge_eta: step size of Hedge, η.
      imitation_rows: the most imitated actions; if there are more, they are drawn at random.
      clip_cost: the greatest weight of an explored action; see imitation_scale.
      margins: candidates for the margin, in logits; none for the likelier action everywhere, as
        the paper has it, so that nothing is chosen by playing.
      max_loss_percent: by how much a chosen policy may make any validation group worse than the
        default does.
      seed: decides all randomness.
    """

    iterations: int = dataclasses.field(default=2, metadata={"minimum": 1})
    baselines: tuple[str, ...] = ("default", "cost<-5", "cost<-20", "cost<-35")
    explore: bool = True
    around: str = dataclasses.field(default="last", metadata=LATER)
    flip_share: float = dataclasses.field(default=0.0, metadata=LATER)
    advantage: bool = True
    imitation: bool = True
    scoped: bool = True
    imitation_scale: float = 0.02
    context_weights: str = "buckets"
    bucketed_by: str = dataclasses.field(default="best", metadata=LATER)
    hedge_eta: float = 1.0
    imitation_rows: int = 15_000
    clip_cost: float = 100.0
    margins: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
    max_loss_percent: float = 0.0
    seed: int = 0


class BcMaxLoop:
    """The BC-Max loop. An iteration is `collect` and then `fit`, or `adopt` in a resumed run.

    Args:
      problem: contexts to learn on.
      validation: contexts to choose the margins on; no policy is fitted to them.
      config: settings of the loop.
      cloning_config: settings of the policy that each iteration fits; the loop itself sets its
        margin, seed, baseline feature and scope feature.

    Attributes:
      learned: the last policy with its cautious margins; None before the first iteration.
      bolds: the policies of all iterations, with the margins to explore around.
      policy: `learned` for TensorFlow; None if it was adopted.
      explored: comparison of the policy that the last iteration explored around with the default.
      validated: comparison of `learned` with the default on the validation contexts.
    """

    policy: DecisionPolicy | None = None
    learned: CallSitePolicy | None = None
    explored: Comparison
    validated: Comparison

    def __init__(
        self,
        problem: InliningProblem,
        validation: InliningProblem,
        config: Config,
        cloning_config: cloning.Config,
    ) -> None:
        self._problem = problem
        self._config = config
        self._cloning_config = dataclasses.replace(
            cloning_config,
            baseline_feature=problem.baseline_feature,
            scope_feature=problem.scope_feature,
            seed=config.seed,
        )
        self._judge = Judge(validation, config.margins, config.max_loss_percent)
        self._explorations: list[Exploration] = []
        self._learned: list[list[Outcome]] = []
        self._pool: list[list[Outcome]] = []
        self.bolds: list[CallSitePolicy] = []
        self._number = 0

    @property
    def environment_steps(self) -> int:
        """Return the number of decisions in the episodes kept for learning, without trials."""
        return sum(len(outcome.actions) for outcomes in self._pool for outcome in outcomes)

    def collect(self) -> dict[str, Any]:
        """Explore around the policy, in the first iteration around the default.

        Returns:
          What the iteration's record says of the explored policy. `oracle_cost` is the cost of the
          best episodes known, `changed` the share of the decisions that differ from the default's,
          `worse` the number of contexts that cost more than with the default, and `flips` the
          number of explored actions with a known Δcost, in all iterations so far.
        """
        self._number += 1
        started_s = time.monotonic()
        baselines = self._config.baselines
        if self._number == 1:
            self._pool = [
                self._problem.play(self._problem.baseline(name), name) for name in baselines
            ]
        policies = [*map(self._problem.baseline, baselines), *self.bolds]
        policy = self.bolds[-1] if self.bolds else policies[0]
        label = f"iteration {self._number}, {policy.name}"
        # Algorithm 3 asks what a learned policy is unsure of.
        if self._config.explore and (self.bolds or not self._config.flip_share):
            base = self._explore(policy, label)
            for earlier in policies if self._config.around == "all" else ():
                if earlier is not policy:
                    self._explore(earlier, f"{label}, around {earlier.name}")
        else:
            base = self._problem.play(policy, label)
            self._pool.append(base)
        if self.bolds:
            self._learned.append(base)
        self.explored = comparison = Comparison.of(self._problem, base, self._pool[0])
        best = best_per_context(self._pool)
        of_default = {outcome.context for outcome in self._pool[0]}
        oracle_cost = sum(
            best[outcome.context].cost for outcome in base if outcome.context in of_default
        )
        default_cost = float(comparison.default_costs.sum())
        return {
            "number": self._number,
            "policy": policy.name,
            "contexts": len(comparison.groups),
            "default_cost": default_cost,
            "policy_cost": float(comparison.costs.sum()),
            "oracle_cost": float(oracle_cost),
            "changed": comparison.changed,
            "worse": comparison.worse,
            "flips": sum(len(exploration.steps) for exploration in self._explorations),
            "policy_saving_percent": comparison.saving_percent,
            "oracle_saving_percent": saving_percent(default_cost, oracle_cost),
            "collecting_s": time.monotonic() - started_s,
        }

    def adopt(self, learned: CallSitePolicy, bold: CallSitePolicy) -> None:
        """Take the policy that this iteration fitted before the run was interrupted."""
        self.learned = learned
        self.bolds.append(bold)

    def fit(self) -> dict[str, Any]:
        """Fit a policy to all labels, and choose its margins.

        Returns:
          What the iteration's record says of the new policy. `agreement` is the weighted share of
          the labels whose action it takes. For margins and `score` see `margins`.

        Raises:
          UserError: no context can be played, or nothing was found to learn from.
        """
        started_s = time.monotonic()
        names, outside = self._problem.feature_names, not self._config.scoped
        features, actions, weights, _ = self.labels()
        self.policy = cloning.fit(self._cloning_config, names, features, actions, weights)
        self.policy.set_margins(0.0, 0.0 if outside else NEVER)
        loss, agreement = cloning.loss_and_agreement(self.policy, names, features, actions, weights)
        fitted_s = time.monotonic()
        name = f"learned-{self._number}"
        judged, self.validated, bold = self._judge.choose(
            to_numpy(self.policy, name), name, outside=outside
        )
        self.bolds.append(bold)
        self.learned = judged.policy
        self.policy.set_margins(self.learned.margin, self.learned.outside_margin)
        return {
            "rows": len(actions),
            "loss": loss,
            "agreement": agreement,
            "margin": self.learned.margin,
            "outside_margin": self.learned.outside_margin,
            "bold_margin": bold.margin,
            "bold_outside_margin": bold.outside_margin,
            "score": judged.score,
            "images": list(judged.images),
            "learned": name,
            "training_s": fitted_s - started_s,
            "validating_s": time.monotonic() - fitted_s,
        }

    def labels(self) -> Labels:
        """Return all rows that the next fit learns from."""
        config, group_of = self._config, self._problem.group_of
        parts = []
        if config.advantage and self._explorations:
            parts.append(advantage_labels(self._explorations, group_of, config.clip_cost))
        best = best_per_context(self._pool if config.imitation else self._pool[:1])
        if not best:
            raise UserError(
                "bc_max: expected contexts that can be played, found that all failed; see why above"
            )
        weights = self._context_weights(best)
        parts.append(
            imitation_labels(
                best, weights, group_of, config.imitation_scale, config.imitation_rows, config.seed
            )
        )
        labels = Labels.concatenate(parts)
        if not len(labels.actions):
            raise UserError(
                "bc_max: expected decisions to learn from, found none; use contexts in which there "
                "is something to decide"
            )
        if not (config.scoped and self._problem.scope_feature):
            return labels
        scope = self._problem.feature_names.index(self._problem.scope_feature)
        inside = labels.features[:, scope] == 1
        return labels.where(inside) if inside.any() else labels

    def _context_weights(self, best: Mapping[str, Outcome]) -> dict[str, float]:
        """Return the weight of each context in imitation, given the best episodes.

        A context in which a learned policy could not be played counts as if it had done its best.
        """
        costs = {name: best[name].cost for name in sorted(best)}
        first = best_per_context(self._pool[: len(self._config.baselines)])
        by_first = self._config.bucketed_by == "first"
        sizes = [first[name].cost if by_first else cost for name, cost in costs.items()]
        played = [
            {outcome.context: outcome.cost for outcome in outcomes} for outcomes in self._learned
        ]
        weights = bc_max.context_weights(
            self._config.context_weights,
            sizes,
            [[costs_of.get(name, costs[name]) for name in costs] for costs_of in played],
            self._config.hedge_eta,
        )
        return dict(zip(costs, weights, strict=True))

    def _explore(self, policy: Policy, label: str) -> list[Outcome]:
        config, max_flips = self._config, None
        explorer = self.bolds[-1] if self.bolds else None
        if config.flip_share:
            max_flips = {
                outcome.context: math.ceil(config.flip_share * len(outcome.actions))
                for outcome in self._pool[0]
            }
        explorations = self._problem.explore(policy, explorer, label, config.scoped, max_flips)
        self._explorations += explorations
        base = [exploration.base for exploration in explorations]
        self._pool += [base, [exploration.best for exploration in explorations]]
        return base
