"""Never larger than plain: a tree is built with several margins, and the best one stays.

The sizes are those of the linked images. Each build after the first writes again what the build
before it wrote: those files are moved aside, COMMAND is run, and they come back if it fails.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import UsageError, UserError
from environments.inlining.heuristics import Policy
from environments.inlining.linking.images import LOADED_PARTS, PARTS
from environments.inlining.plugin.steering import Compile
from tfrl_systems.reporting import Reporter, format_table, percent
from tfrl_systems.systems.inlining.building import margins
from tfrl_systems.systems.inlining.building.margins import PLAIN, Margin
from tfrl_systems.systems.inlining.building.set_aside import set_aside
from tfrl_systems.systems.inlining.building.trees_on_disk import Made, directories_of

# From a policy's own margin, in logits. Most of these are more cautious: the margin was chosen on
# other projects.
_OFFSETS = (-0.5, 1.0, 2.5)
# A policy that hardly ever departs is also tried with margins by which it would.
_LARGEST_BASE = 3.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of the command: what its clangs told, what it wrote, and the report of it."""

    compiles: Sequence[Compile]
    changes: Made
    report: dict[str, Any]

    @property
    def written(self) -> list[str]:
        """Objects that may depend on the policy, and images, in this order."""
        return [*self.changes.objects, *self.changes.unsigned, *self.changes.new_images]


BuildFn = Callable[[Margin, Reporter], Outcome]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A margin and the images that it makes: their sizes in bytes, by path."""

    margin: Margin
    images: Mapping[str, Mapping[str, int]]

    def size(self, *parts: str) -> int:
        """Return the sum of some parts over all images."""
        return sum(image[part] for image in self.images.values() for part in parts or LOADED_PARTS)

    def larger_than(self, plain: Trial) -> list[str]:
        """Return the images of which the code, or all that counts, is larger than in a plain build.

        People who build without unwind tables, or share them, gain by the code alone.
        """
        larger = []
        for path, image in self.images.items():
            changes = [image[part] - plain.images[path][part] for part in LOADED_PARTS]
            if changes[0] > 0 or sum(changes) > 0:
                larger.append(path)
        return larger


def tune(
    policy: Policy, command: Sequence[str], build_fn: BuildFn, reporter: Reporter
) -> dict[str, Any]:
    """Build a tree with several margins, and leave the best; write it to `margins.FILE`.

    If a build fails, or does not write again what was moved aside, the tree stays as the build
    before left it.

    Returns:
      What `tfrl build --json` prints, with "tuning".

    Raises:
      UsageError: the policy has no margin.
      UserError: what was written cannot be moved aside.
    """
    choices = margins_to_try(policy)
    tree = _Tree(build_fn, reporter, len(choices) + 1)
    trials = []
    for margin in choices:
        if not tree.build(margin):
            break
        trials.append(tree.trial)
    # It comes last, so that there is none if a build before it failed.
    plain = next((trial for trial in trials if trial.margin.is_plain), None)
    best = None if plain is None else choose(trials)
    path = ""
    if (
        plain is not None
        and best is not None
        and (tree.margin == best.margin or tree.build(best.margin))
    ):
        if tree.trial.images == best.images:
            path = _write(policy, command, best, plain, tree)
        else:
            tree.problem = f"built twice with the margin {best.margin}, images have other sizes"
    if tree.problem:
        reporter.say(f"--tune: {tree.problem}")
    tuning = {
        "file": path,
        "reason": tree.problem,
        "tried": [_entry(trial, plain, is_best=bool(path) and trial is best) for trial in trials],
    }
    return {**tree.report, "tuning": tuning}


class _Tree:
    """What is on disk.

    Attributes:
      margin: what it was built with.
      report: what `tfrl build --json` prints of it; the status is the last command's.
      problem: why it cannot be built with the next margin; "" if it can.
    """

    def __init__(self, build_fn: BuildFn, reporter: Reporter, most_builds: int) -> None:
        self.margin = PLAIN
        self.report: dict[str, Any] = {}
        self.problem = ""
        self._build_fn = build_fn
        self._reporter = reporter
        self._most_builds = most_builds
        self._num_builds = 0
        self._written: list[str] = []
        self._images: list[str] = []

    def build(self, margin: Margin) -> bool:
        """Build it with a margin; return whether it can go on."""
        self._num_builds += 1
        self._reporter.say(
            f"--tune: build {self._num_builds} of at most {self._most_builds}, margin {margin}"
        )
        is_first = self._num_builds == 1
        with set_aside(self._written) as give_up:
            # What the first build says of clangs holds for all.
            outcome = self._build_fn(margin, self._reporter if is_first else Reporter())
            self.problem = self._problem(outcome, margin)
            if not self.problem:
                give_up()
        if is_first or not self.problem:
            self.margin, self.report, self._written = margin, outcome.report, outcome.written
        else:
            self.problem += f"; the tree is as the margin {self.margin} made it"
            self.report = {**self.report, "status": outcome.report["status"]}
        if is_first:
            self._images = outcome.changes.new_images
        return not self.problem

    @property
    def trial(self) -> Trial:
        """The images of the first build, as they are now."""
        images = {image["path"]: image for image in self.report["images"]}
        return Trial(
            self.margin,
            {path: {part: images[path][part] for part in PARTS} for path in self._images},
        )

    def _problem(self, outcome: Outcome, margin: Margin) -> str:
        """Return why there is no way on after a build; "" if there is."""
        if status := outcome.report["status"]:
            return f"the command ended with status {status} under the margin {margin}"
        if missing := sorted(set(self._written) - set(outcome.written)):
            return f"expected the command to write {missing[0]} again, found that it did not"
        if lost := margins.why_lost(margin, outcome.compiles):
            return lost
        if self._num_builds > 1:
            is_new = bool(outcome.compiles or outcome.changes.objects)
            return "" if is_new else "expected the command to compile again, found that it did not"
        if all(compile_.reason for compile_ in outcome.compiles):
            return "no compile was steered, so all margins make the same"
        if not outcome.changes.new_images:
            return "expected the command to link an image, found none whose size could be compared"
        return ""


def margins_to_try(policy: Policy) -> list[Margin]:
    """Return the policy's own margin, others near it, and plain LLVM.

    Raises:
      UsageError: it has no margin.
    """
    own = margins.own_margin(policy)
    if own.logit is None:
        raise UsageError(
            f"--tune: expected a policy that bc_max learned, found {policy.name}, which has no "
            "margin; leave --tune out, or name the directory of a learned policy"
        )
    base = min(max(own.logit, -_LARGEST_BASE), _LARGEST_BASE)
    near = [Margin(base + offset) for offset in _OFFSETS if base + offset != own.logit]
    return [own, *near, PLAIN]


def choose(trials: Sequence[Trial]) -> Trial:
    """Return the smallest of which no image is larger than the plain one; of equals the own margin.

    Args:
      trials: with the same images; a plain one is among them, which is the second of equals.
    """
    (plain,) = (trial for trial in trials if trial.margin.is_plain)
    return min(
        (trial for trial in trials if not trial.larger_than(plain)),
        key=lambda trial: (trial.size(), not trial.margin.is_own, not trial.margin.is_plain),
    )


def _write(policy: Policy, command: Sequence[str], best: Trial, plain: Trial, tree: _Tree) -> str:
    """Write the best margin where later builds look for it; return the path, "" if that fails."""
    paths = [pathlib.Path(path).absolute() for path in best.images]
    directories = [
        directory
        for directory in directories_of(command)
        if all(path.is_relative_to(directory) for path in paths)
    ]
    sizes = {"image_bytes": best.size(), "plain_image_bytes": plain.size()}
    try:
        return margins.write(directories[-1], policy, best.margin, sizes)
    except (IndexError, UserError) as error:
        tree.problem = f"the margin {best.margin} is best, and later builds will not know: {error}"
        return ""


def _entry(trial: Trial, plain: Trial | None, is_best: bool) -> dict[str, Any]:
    """Return a trial as `tfrl build --json` prints it."""
    return {
        "margin": trial.margin.logit,
        "own": trial.margin.is_own,
        **{part: trial.size(part) for part in PARTS},
        "larger": [] if plain is None else trial.larger_than(plain),
        "is_best": is_best,
    }


def to_text(tuning: Mapping[str, Any]) -> str:
    """Return what was tried for a reader, as a table; "" if nothing was."""
    totals = [sum(entry[part] for part in LOADED_PARTS) for entry in tuning["tried"]]
    plain = next(
        (
            total
            for total, entry in zip(totals, tuning["tried"], strict=True)
            if entry["margin"] is None
        ),
        0,
    )
    rows = []
    for total, entry in zip(totals, tuning["tried"], strict=True):
        larger = entry["larger"]
        note = "best" if entry["is_best"] else f"larger: {larger[0]}" if larger else ""
        tables = entry["unwind_bytes"] + entry["rodata_bytes"]
        sizes = [f"{size:,}" for size in (entry["text_bytes"], tables, entry["file_bytes"])]
        name = str(Margin(entry["margin"], entry["own"]))
        rows.append([name, *sizes, percent(total, plain), note])
    if not rows:
        return ""
    header = ["margin", "code", "tables + read-only", "file", "change", ""]
    table = format_table(header, rows)
    return f"{table}\nwritten to {tuning['file']}" if tuning["file"] else table
