"""Plays saved trajectories again, and ranks those that replay to the same."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from environments import files, replays
from environments.errors import UserError, one_line
from environments.trajectories import Trajectory
from tfrl_systems.experiments.records import find_system, system_names
from tfrl_systems.reporting import Reporter, format_table

# What contexts are drawn from. A trajectory names its own, so these do not tell two apart.
_OF_DRAWING = frozenset({"corpus", "models", "sampler", "seed"})

Row = dict[str, Any]


def replay(
    paths: Sequence[pathlib.Path], overrides: Mapping[str, Any], reporter: Reporter
) -> dict[str, Any]:
    """Play trajectories again; see `experiments.replay`."""
    loaded = {path: _load(path) for path in _files_of(paths)}
    _check_names(overrides, loaded.values())
    advance = reporter.task("replays", len(loaded)) if len(loaded) > 1 else lambda count: None
    rows = []
    for path, trajectory in loaded.items():
        rows.append(_replay(path, trajectory, overrides))
        advance(1)
    for group in _groups(rows):
        rewards = [row["reward"] for row in group]
        for row in group:
            row["rank"] = rewards.index(row["reward"]) + 1
    return {"trajectories": rows}


def replay_table(result: Mapping[str, Any]) -> str:
    """Format what `replay` returned: a line for one trajectory, else a table for each context."""
    rows = result["trajectories"]
    if len(rows) == 1:
        return _line(rows[0])
    parts = [_board(group) for group in _groups(rows)]
    unranked = [_line(row) for row in rows if row["rank"] is None]
    if unranked:
        parts.append("\n".join(["not ranked", *(f"  {line}" for line in unranked)]))
    return "\n\n".join(parts)


def _files_of(paths: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Yield the files, and those of directories.

    Raises:
      UserError: there is no such file, or none in a directory.
    """
    for path in paths:
        if not files.is_directory(path):
            if not files.exists(path):
                raise UserError(f"{path}: expected a trajectory, found no such file; correct it")
            yield path
            continue
        members = sorted(path.glob("*.json"))
        if not members:
            raise UserError(f"{path}: expected trajectories, found no .json file; name another")
        yield from members


def _load(path: pathlib.Path) -> Trajectory | UserError:
    """Return the trajectory, or why it cannot be read."""
    try:
        return Trajectory.load(path)
    except UserError as error:
        return error


def _check_names(overrides: Mapping[str, Any], loaded: Collection[Trajectory | UserError]) -> None:
    """Check that each setting to replace is one of a trajectory.

    Raises:
      UserError: one is not.
    """
    trajectories = [entry for entry in loaded if isinstance(entry, Trajectory)]
    names = sorted({name for trajectory in trajectories for name in trajectory.settings})
    unknown = sorted(set(overrides) - set(names))
    if unknown and trajectories:
        raise UserError(
            f"expected settings of these trajectories ({', '.join(names)}), found "
            f"{', '.join(unknown)}; leave that out"
        )


def _replay(
    path: pathlib.Path, trajectory: Trajectory | UserError, overrides: Mapping[str, Any]
) -> Row:
    row: Row = {
        "path": str(path), "environment": "", "context": "", "digest": "", "settings": {},
        "author": "", "reward": None, "steps": None, "finished": None, "result": {},
        "rank": None, "equal": False, "difference": "",
    }  # fmt: skip
    try:
        if isinstance(trajectory, UserError):
            raise trajectory
        row |= _facts(trajectory)
        replaced = {name: value for name, value in overrides.items() if name in trajectory.settings}
        difference = replays.replay(trajectory, **replaced)
    except UserError as error:
        row["difference"] = one_line(error)
        return row
    row["equal"] = difference is None
    row["difference"] = str(difference or "")
    return row


def _facts(trajectory: Trajectory) -> Row:
    result = {}
    if trajectory.system in system_names():
        names = find_system(trajectory.system).result_fields
        result = {name: trajectory.info[name] for name in names if name in trajectory.info}
    settings = {
        name: value for name, value in trajectory.settings.items() if name not in _OF_DRAWING
    }
    return {
        "environment": trajectory.system,
        "context": trajectory.context,
        "digest": trajectory.digest,
        "settings": settings,
        "author": trajectory.author,
        "reward": trajectory.reward,
        "steps": len(trajectory.actions),
        "finished": trajectory.is_finished,
        "result": result,
    }


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows that can be ranked: those of each context together, the best ones first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["equal"] and row["finished"]:
            parts = (row["environment"], row["context"], row["digest"], row["settings"])
            groups.setdefault(json.dumps(parts, sort_keys=True), []).append(row)
    return [
        sorted(group, key=lambda row: (-row["reward"], row["author"], row["path"]))
        for _, group in sorted(groups.items())
    ]


def _board(group: Sequence[Row]) -> str:
    """Format the table of one context."""
    first = group[0]
    settings = "".join(
        f", {_word(name)}={_word(value)}" for name, value in first["settings"].items()
    )
    names = list(dict.fromkeys(name for row in group for name in row["result"]))
    header = ["author", "rank", "reward", *names, "steps", "replay", "file"]
    lines = [
        [
            row["author"] or "-",
            str(row["rank"]),
            f"{row['reward']:.6g}",
            *(_word(row["result"].get(name, "-")) for name in names),
            str(row["steps"]),
            "equal",
            row["path"],
        ]
        for row in group
    ]
    return f"{first['environment']}, {first['context']}{settings}\n{format_table(header, lines)}"


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    # A file may hold characters that would move a terminal's cursor.
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _line(row: Row) -> str:
    """Format one trajectory and its outcome."""
    if row["difference"]:
        is_named = row["difference"].startswith(row["path"])
        return row["difference"] if is_named else f"{row['path']}: {row['difference']}"
    end = "" if row["finished"] else ", the episode did not end"
    return f"{row['path']}: equal, {row['steps']} steps, reward {row['reward']:.6g}{end}"
