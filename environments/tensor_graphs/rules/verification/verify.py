"""Is a rule right? Exact identity testing over random shapes and attributes, and floating point.

An instance fixes shapes and attributes; then both sides are functions of the elements. They are
computed at a random point of the field of integers modulo p = 2³¹ - 1, in which sums, products,
quotients and means are exact and all other functions have no meaning but their arguments
(`operators.field`). Two different rational functions of degree d would agree there with a
probability of at most d / p (Schwartz and Zippel), so agreement is a proof for these shapes and
attributes but for that error. In each of many instances there is a new point, and a new meaning of
the functions. The thesis verifies with small tensors too (section 3.1: up to 4×4×4×4).

Both sides are computed in floating point as well, at points that the field knows nothing of: zeros,
ties, numbers of different magnitude. Where the source has a number, the target must have the same.
A rule that needs more than the field has, Relu(2·x) = 2·Relu(x) say, can only be shown like this;
it takes more instances, and `Verdict.how` says so.

What is not a number may differ: a rule is right all the same, and `nonfinite` marks it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.operators.field import PRIME, Field
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rules.language.expressions import Term
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.language.terms import holds
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer
from environments.tensor_graphs.rules.verification.nonfinite import nonfinite_change
from environments.tensor_graphs.rules.verification.points import FINITE, make_point

_TOLERANCE = 2e-6
_TOLERANCE_32 = 1e-4
_EXTRA_FACTOR = 4
_ROUNDINGS = 16
_MOST_NOISY = 1e3
_MAX_SHOWN = 300


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What verification found.

    Attributes:
      is_right: whether the rule may be used.
      how: how it was shown, or what is wrong with it; one line.
      num_instances: how many instances were looked at.
      counterexample: an instance in which it is wrong; empty when none was found.
      nonfinite_change: an instance in which it changes NaN or infinity, as `nonfinite` defines it;
        empty when none was found.
    """

    is_right: bool
    how: str
    num_instances: int
    counterexample: str = ""
    nonfinite_change: str = ""

    def mark(self, rule: Rule) -> Rule:
        """Returns the rule with what was found out about it."""
        return dataclasses.replace(
            rule, verified_by=self.how, may_change_nonfinite=bool(self.nonfinite_change)
        )


def verify(rule: Rule, num_instances: int = 100, seed: int = 0) -> Verdict:
    """Tests a rule.

    Args:
      rule: its conditions are taken into account; its restrictions are not, but for which tensors
        are constants, when NaN and infinity are looked at.
      num_instances: shapes and attributes to test it with.
      seed: of all that is random.
    """
    drawer = InstanceDrawer(rule, seed)
    rng, nonfinite_rng = (np.random.default_rng([seed, stream]) for stream in (1, 4))
    degree, num_compared, change = 1, 0, ""
    is_exact = True
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
            if problem:
                example = f"{instance}: {problem}"[:_MAX_SHOWN]
                return Verdict(False, f"wrong for {example}", count, example)
            if not change and (found := nonfinite_change(instance, rule.constants, nonfinite_rng)):
                change = f"{instance}: {found}"[:_MAX_SHOWN]
    if not num_compared:
        return Verdict(False, "its source never had a finite value", count)
    return Verdict(True, _how(is_exact, count, degree), count, nonfinite_change=change)


def needs(rule: Rule, condition: Term, num_instances: int = 2000, seed: int = 0) -> str | None:
    """An instance that shows why a rule has a condition.

    Args:
      rule: a rule.
      condition: one of its conditions.
      num_instances: how many instances of the rule without the condition to look at.
      seed: of all that is random.

    Returns:
      An instance in which the rule would apply without the condition, and be wrong; None if there
      is none among those that were looked at.
    """
    kept = tuple(one for one in rule.conditions if one != condition)
    drawer = InstanceDrawer(dataclasses.replace(rule, conditions=kept), seed)
    rng = np.random.default_rng([seed, 2])
    count = 0
    while count < num_instances:
        instances = drawer.draw_round()
        if not instances:
            return None
        for instance in instances:
            count += 1
            if holds(condition, instance.bindings):
                continue
            problem, _ = _float_problem(instance, rng, count)
            if problem:
                return f"{instance}: {problem}"[:_MAX_SHOWN]
    return None


def problem_in(instance: Instance, rng: np.random.Generator, count: int = 0) -> str:
    """How source and target differ in an instance; empty if they agree."""
    if not _differs_in_field(instance, rng, count):
        return _float_problem(instance, rng, count)[0]
    # The field may have too little meaning; numbers decide.
    problems = (_float_problem(instance, rng, one)[0] for one in range(2 * len(FINITE)))
    return next((one for one in problems if one), "")


def _how(is_exact: bool, count: int, degree: int) -> str:
    if is_exact:
        return (
            f"identity testing modulo 2^31-1 in {count} instances, error below "
            f"{degree / PRIME:.0e} in each; floating point in {count}"
        )
    return f"floating point in {count} instances"


def _differs_in_field(instance: Instance, rng: np.random.Generator, key: int) -> bool:
    if not any(one.dtype in FLOAT_TYPES for one in instance.given.values()):
        return False
    field = Field(key)
    given = make_point(instance, rng, field.random, field.embed)
    with np.errstate(all="ignore"):
        found = instance.computation.run(given, field)
    return any(not np.array_equal(one, other) for one, other in instance.outputs(found))


def _float_problem(instance: Instance, rng: np.random.Generator, count: int) -> tuple[str, int]:
    """How the sides differ in floating point, and how many numbers were compared."""
    given = make_point(instance, rng, FINITE[count % len(FINITE)])
    problem, compared = _compare(instance, given, _TOLERANCE)
    if not problem and count % len(FINITE) == 0:
        single = {name: _narrowed(one) for name, one in given.items()}
        problem, _ = _compare(instance, single, _TOLERANCE_32)
    return problem, compared


def _narrowed(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _compare(instance: Instance, given: dict[str, np.ndarray], tolerance: float) -> tuple[str, int]:
    with np.errstate(all="ignore"):
        found = instance.computation.run(given, FLOATS)
    noise = _noise(found)
    compared = 0
    for number, (old, new) in enumerate(instance.outputs(found)):
        if old.shape != new.shape:
            return f"output {number} has shape {new.shape} instead of {old.shape}", compared
        is_number = np.isfinite(old)
        if np.issubdtype(old.dtype, np.signedinteger):
            is_number = old != np.iinfo(old.dtype).min  # What no number is larger than.
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


def _noise(found: list[tuple[np.ndarray, ...]]) -> float:
    """What rounding may leave where numbers cancel each other: 1 + erf(x) far below zero, say."""
    numbers = [one for several in found for one in several if one.dtype.kind == "f" and one.size]
    if not numbers:
        return 0.0
    largest = max(
        float(np.max(np.abs(one), where=np.isfinite(one), initial=0.0)) for one in numbers
    )
    epsilon = max(float(np.finfo(one.dtype).eps) for one in numbers)
    return _ROUNDINGS * epsilon * min(largest, _MOST_NOISY)


_PRODUCTS = frozenset({"Mul", "Div", "MatMul", "Gemm", "Conv", "ConvTranspose"})


def _degree(instance: Instance) -> int:
    """A bound of the degree of all that is computed; a function's is that of its argument."""
    degrees: list[int] = []
    for step in instance.computation.steps:
        given = [degrees[one[0]] for one in step.inputs if one is not None]
        if not step.op:
            degrees.append(1 if step.name else 0)
        elif step.op in _PRODUCTS:
            degrees.append(sum(given))
        elif step.op.endswith("Normalization"):
            degrees.append(4 * sum(given))
        elif step.op == "Pow":
            degrees.append(64 * max(given))
        else:
            degrees.append(max(given, default=0))
    return max(1, sum(degrees))


def verify_all(
    rules: Sequence[Rule],
    num_instances: int,
    seeds: Sequence[int] = (0,),
    num_jobs: int = 1,
    progress_fn: Callable[[], None] = lambda: None,
) -> dict[str, Verdict]:
    """Tests rules, each with all seeds or until it is found wrong.

    Args:
      rules: of different names.
      num_instances: how many instances of a rule are looked at with each seed.
      seeds: one for each time that a rule is tested.
      num_jobs: number of processes; with one, everything happens in this.
      progress_fn: called after each rule.

    Returns:
      Verdicts by name, in the order of the rules. `num_instances` is that of all seeds together.
    """
    found: dict[str, Verdict] = {}
    jobs = [(rule, num_instances, tuple(seeds)) for rule in rules]
    for rule, verdict in zip(rules, _mapped(jobs, num_jobs), strict=True):
        found[rule.name] = verdict
        progress_fn()
    return found


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
    count, how, change = 0, "", ""
    for seed in seeds:
        verdict = verify(rule, num_instances, seed)
        count += verdict.num_instances
        if not verdict.is_right:
            return Verdict(False, f"{verdict.how} (seed {seed})", count, verdict.counterexample)
        how, change = how or verdict.how, change or verdict.nonfinite_change
    if len(seeds) > 1:
        how += f"; with each of {len(seeds)} seeds"
    return Verdict(True, how, count, nonfinite_change=change)
