"""Verify rules: exact identity testing over random shapes and attributes, and floating point.

An instance fixes shapes and attributes, so both sides are functions of the elements. They are
computed at a random point of the field of integers modulo p = 2³¹ - 1. Sums, products, quotients
and means are exact there; all other functions are uninterpreted (`operators.field`). Two different
rational functions of degree d agree at a random point with a probability of at most d / p
(Schwartz and Zippel). So agreement is a proof for these shapes and attributes, up to that error.
Each of many instances has a new point and new uninterpreted functions. The thesis verifies with
small tensors too (section 3.1: up to 4×4×4×4). TASO, whose generator it takes, also
proves its rules with a theorem prover ("Cost-based Optimisation" in 2.1.1), from axioms that people
wrote. We test instead, because most of our operators have no such axioms.

Both sides are also computed in floating point, at points that mean nothing to the field: zeros,
ties, numbers of different magnitude. Where the source has a finite number, the target must have the
same. Some rules need properties that the field lacks, for instance Relu(2·x) = 2·Relu(x). They can
only be shown in floating point; this takes more instances, and `Verdict.how` says so.

What is right in floating point may still have flaws, which become marks of the rule: it may change
values that are NaN or infinite (`nonfinite`), lose digits where large numbers cancel (`digits`), or
be wrong for integers and truth values (`type_trials`).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT
from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.operators.field import PRIME, Field
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rules.language.expressions import Term
from environments.tensor_graphs.rules.language.rule import FLOAT, GROUPS, Rule
from environments.tensor_graphs.rules.language.terms import holds
from environments.tensor_graphs.rules.verification.digits import digit_loss
from environments.tensor_graphs.rules.verification.instances import (
    FLOATS_ONLY,
    Instance,
    InstanceDrawer,
)
from environments.tensor_graphs.rules.verification.nonfinite import nonfinite_change
from environments.tensor_graphs.rules.verification.points import FINITE, make_point, single
from environments.tensor_graphs.rules.verification.type_trials import TypeTrials

_TOLERANCE = 2e-6
_TOLERANCE_32 = 1e-4
_EXTRA_FACTOR = 4
_ROUNDINGS = 16
_MOST_NOISY = 1e3
_MAX_SHOWN = 300
_SETTINGS_PER_INSTANCE = 2


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of verifying a rule.

    Attributes:
      how: how the rule was shown to be right, or what is wrong with it; one line.
      nonfinite_change: an instance in which the rule changes NaN or infinity, as `nonfinite`
        defines it; empty if none was found.
      digit_loss: an instance in which the rule loses digits, as `digits` defines it; empty if none
        was found.
      types: the groups of element types that the rule is right for.
    """

    is_right: bool
    how: str
    num_instances: int
    nonfinite_change: str = ""
    digit_loss: str = ""
    types: tuple[str, ...] = (FLOAT,)

    def mark(self, rule: Rule) -> Rule:
        """Return the rule with the results of its verification."""
        verification = {
            "verified_by": self.how,
            "may_change_nonfinite": bool(self.nonfinite_change),
            "may_lose_digits": bool(self.digit_loss),
            "types": self.types,
        }
        return rule.as_verified(verification)


class _Marks:
    """What a rule may change although it is right as arithmetic, as far as instances show it."""

    def __init__(self, rule: Rule, drawer: InstanceDrawer, seed: int) -> None:
        self.nonfinite_change = self.digit_loss = ""
        self._constants = rule.constants
        self._literals = drawer.literals
        # A stream for each kind of test: one more draw in one of them leaves the others alone, and
        # so all that was verified before.
        self._nonfinite_rng, self._digits_rng, types_rng = (
            np.random.default_rng([seed, stream]) for stream in (4, 5, 6)
        )
        self.trials = TypeTrials(rule, drawer, types_rng)

    def add(self, instance: Instance) -> None:
        """Look at an instance to which the rule applies."""
        self.trials.test(instance)
        if not self.nonfinite_change:
            change = nonfinite_change(instance, self._constants, self._nonfinite_rng)
            self.nonfinite_change = change and f"{instance}: {change}"[:_MAX_SHOWN]
        for _ in range(_SETTINGS_PER_INSTANCE):
            if self.digit_loss:
                break
            loss = digit_loss(instance, self._literals, self._digits_rng)
            self.digit_loss = loss and f"{instance}: {loss}"[:_MAX_SHOWN]


def verify(rule: Rule, num_instances: int = 100, seed: int = 0) -> Verdict:
    """Test a rule in random instances. Those of floating point decide whether it is right at all.

    The rule's conditions restrict the instances; its restrictions do not. They only say which
    tensors are constants, for the test of NaN and infinity. Four times as many instances are tested
    once the field cannot show that the rule is right.
    """
    drawer = InstanceDrawer(rule, seed, FLOATS_ONLY)
    rng, marks = np.random.default_rng([seed, 1]), _Marks(rule, drawer, seed)
    degree, num_compared, is_exact = 1, 0, True
    count, wanted = 0, num_instances
    while count < wanted:
        instances = drawer.draw_round()
        if not instances:
            return Verdict(False, f"it applied to {count} of {count + 1} random instances", count)
        for instance in instances[: wanted - count]:
            if is_exact:
                degree = max(degree, _degree(instance))
                if _differs_in_field(instance, rng, key=count):
                    is_exact = False
                    wanted = _EXTRA_FACTOR * num_instances
            problem, compared = _float_problem(instance, rng, count)
            num_compared += compared
            count += 1
            if not problem:
                marks.add(instance)
            if problem or marks.trials.problem_of_floats:
                example = marks.trials.problem_of_floats or f"{instance}: {problem}"
                return Verdict(False, f"wrong for {example[:_MAX_SHOWN]}", count)
    if not num_compared:
        return Verdict(False, "its source never had a finite value", count)
    how = f"floating point in {count}"
    if is_exact:
        how = (
            f"identity testing modulo 2^31-1 in {count} instances, error below "
            f"{degree / PRIME:.0e} in each; {how}"
        )
    else:
        how += " instances"
    types = marks.trials.types
    return Verdict(True, how, count, marks.nonfinite_change, marks.digit_loss, types)


def needs(rule: Rule, condition: Term, num_instances: int = 2000, seed: int = 0) -> bool:
    """Return whether the rule without the condition would be wrong in an instance."""
    others = tuple(term for term in rule.conditions if term != condition)
    drawer = InstanceDrawer(dataclasses.replace(rule, conditions=others), seed)
    rng = np.random.default_rng([seed, 2])
    count = 0
    while count < num_instances:
        instances = drawer.draw_round()
        if not instances:
            return False
        for instance in instances:
            count += 1
            if holds(condition, instance.bindings):
                continue
            problem, _ = _float_problem(instance, rng, count)
            if problem:
                return True
    return False


def problem_in(instance: Instance, rng: np.random.Generator, count: int = 0) -> str:
    """Describe how source and target differ in an instance; return "" if they agree."""
    if not _differs_in_field(instance, rng, count):
        return _float_problem(instance, rng, count)[0]
    # The rule may need properties that the field lacks, so floating-point numbers decide.
    problems = (_float_problem(instance, rng, number)[0] for number in range(2 * len(FINITE)))
    return next((problem for problem in problems if problem), "")


def _differs_in_field(instance: Instance, rng: np.random.Generator, key: int) -> bool:
    if not any(tensor.dtype in FLOAT_TYPES for tensor in instance.inputs.values()):
        return False
    field = Field(key)
    point = make_point(instance, rng, field.random, field.embed)
    values = instance.computation.run(point, field)
    return any(not np.array_equal(source, target) for source, target in instance.outputs(values))


def _float_problem(instance: Instance, rng: np.random.Generator, count: int) -> tuple[str, int]:
    """Return how the sides differ in floating point, and how many numbers were compared."""
    point = make_point(instance, rng, FINITE[count % len(FINITE)])
    problem, compared = _compare(instance, point, _TOLERANCE)
    if not problem and count % len(FINITE) == 0:
        narrow = {name: single(array) for name, array in point.items()}
        problem, _ = _compare(instance, narrow, _TOLERANCE_32)
    return problem, compared


def _compare(instance: Instance, point: dict[str, np.ndarray], tolerance: float) -> tuple[str, int]:
    values = instance.computation.run(point, FLOATS)
    noise = _noise(values)
    compared = 0
    for number, (old, new) in enumerate(instance.outputs(values)):
        if old.shape != new.shape:
            return f"output {number} has shape {new.shape} instead of {old.shape}", compared
        is_number = np.isfinite(old)
        if np.issubdtype(old.dtype, np.signedinteger):
            is_number = old != np.iinfo(old.dtype).min  # It stands for -inf: see `Floats.max`.
        compared += int(np.count_nonzero(is_number))
        scale = float(np.max(np.abs(old, where=is_number, out=np.zeros(old.shape)), initial=0.0))
        with np.errstate(all="ignore"):
            error = np.abs(old.astype(np.float64) - new.astype(np.float64))
        wrong = is_number & ~(error <= tolerance * scale + noise)
        if np.any(wrong):
            place = tuple(np.argwhere(wrong)[0])
            what = f"output {number} is {new[place]:.6g} instead of {old[place]:.6g}"
            return what, compared
    return "", compared


def _noise(values: list[tuple[np.ndarray, ...]]) -> float:
    """Return the error that rounding may leave if numbers cancel, as in 1 + erf(x) far below 0."""
    numbers = [
        array for several in values for array in several if array.dtype.kind == "f" and array.size
    ]
    if not numbers:
        return 0.0
    largest = max(
        float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0)) for array in numbers
    )
    epsilon = max(float(np.finfo(array.dtype).eps) for array in numbers)
    return _ROUNDINGS * epsilon * min(largest, _MOST_NOISY)


_PRODUCTS = frozenset({"Mul", "Div", "MatMul", "Gemm", "Conv", "ConvTranspose"})


def _degree(instance: Instance) -> int:
    """Return a bound on the degree of all values; a function has the degree of its argument."""
    degrees: list[int] = []
    for step in instance.computation.steps:
        degrees_of_inputs = [degrees[ref.node] for ref in step.inputs if ref is not None]
        if step.op in (INPUT, CONSTANT):
            degrees.append(int(step.op == INPUT))
        elif step.op in _PRODUCTS:
            degrees.append(sum(degrees_of_inputs))
        elif step.op.endswith("Normalization"):
            degrees.append(4 * sum(degrees_of_inputs))
        elif step.op == "Pow":
            degrees.append(64 * max(degrees_of_inputs))
        else:
            degrees.append(max(degrees_of_inputs, default=0))
    return max(1, sum(degrees))


def verify_all(
    rules: Sequence[Rule],
    num_instances: int,
    seeds: Sequence[int] = (0,),
    num_jobs: int = 1,
    progress_fn: Callable[[], None] = lambda: None,
) -> dict[str, Verdict]:
    """Test rules of different names, each with all seeds or until it is found wrong.

    With one job everything runs in this process. `progress_fn` is called after each rule.

    Returns:
      Verdicts by name, in the order of the rules. Their `num_instances` counts all seeds together.
    """
    verdicts: dict[str, Verdict] = {}
    jobs = [(rule, num_instances, tuple(seeds)) for rule in rules]
    for rule, verdict in zip(rules, _mapped(jobs, num_jobs), strict=True):
        verdicts[rule.name] = verdict
        progress_fn()
    return verdicts


def _mapped(jobs: Sequence[tuple[Rule, int, tuple[int, ...]]], num_jobs: int) -> Iterator[Verdict]:
    if num_jobs == 1:
        yield from map(_verified, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_jobs, mp_context=context) as pool:
        try:
            yield from pool.map(_verified, jobs)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _verified(job: tuple[Rule, int, tuple[int, ...]]) -> Verdict:
    rule, num_instances, seeds = job
    count, how, change, loss = 0, "", "", ""
    types: tuple[str, ...] = GROUPS
    for seed in seeds:
        verdict = verify(rule, num_instances, seed)
        count += verdict.num_instances
        if not verdict.is_right:
            return Verdict(False, f"{verdict.how} (seed {seed})", count)
        how, change = how or verdict.how, change or verdict.nonfinite_change
        loss = loss or verdict.digit_loss
        types = tuple(group for group in types if group in verdict.types)
    if len(seeds) > 1:
        how += f"; with each of {len(seeds)} seeds"
    return Verdict(True, how, count, change, loss, types)
