"""Many rules are verified at once, by several processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator, Sequence

from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis.verify import Verdict, verify


def verify_all(
    rules: Sequence[Substitution],
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


def _mapped(
    jobs: Sequence[tuple[Substitution, int, tuple[int, ...]]], num_jobs: int
) -> Iterator[Verdict]:
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


def _verified(job: tuple[Substitution, int, tuple[int, ...]]) -> Verdict:
    rule, num_instances, seeds = job
    count, how = 0, ""
    for seed in seeds:
        verdict = verify(rule, num_instances, seed)
        count += verdict.num_instances
        if not verdict.is_right:
            return Verdict(False, f"{verdict.how} (seed {seed})", count, verdict.counterexample)
        how = how or verdict.how
    if len(seeds) > 1:
        how += f"; with each of {len(seeds)} seeds"
    return Verdict(True, how, count)
