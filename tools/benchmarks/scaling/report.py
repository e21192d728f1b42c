"""The tables of `python -m tools.benchmarks.scaling`, in Markdown."""

from __future__ import annotations

from typing import Any

from tools.benchmarks.shared import markdown_table


def markdown(found: dict[str, Any]) -> str:
    """Return all tables, with the command that made them."""
    pools = found["pools"]
    parts = [
        f"`{found['command']}`, commit {found['commit']}, {found['processors']} processors, load "
        f"{found['busy']:.1f}.",
        _costs(pools),
        _nodes(found["node_recovery"]),
        _scaling(pools),
        _beyond(found["chunks"]),
    ]
    return "\n\n".join(parts)


def _costs(pools: dict[str, Any]) -> str:
    rows = [["start of 2 workers, s", *(f"{one['start_s']:.1f}" for one in pools.values())]]
    for size in next(iter(pools.values()))["overhead"]:
        for field, what in (
            ("wall_ms", "between two jobs"),
            ("head_ms", "processor time of the head"),
            ("engine_ms", "processor time of Ray's own processes"),
        ):
            cells = [f"{one['overhead'][size][field]:.2f}" for one in pools.values()]
            rows.append([f"{what}, results of {size:,} bytes, ms a job", *cells])
    for field, what in (("median_s", "median"), ("max_s", "longest")):
        cells = [f"{one['recovery'][field]:.2f}" for one in pools.values()]
        rows.append([f"until a lost worker's job is at work again, {what}, s", *cells])
    return markdown_table(["", *pools], rows)


def _nodes(recovery: dict[str, float]) -> str:
    median_s, max_s = recovery["median_s"], recovery["max_s"]
    return (
        f"A lost node's job is at work again after {median_s:.1f} s (median), at most {max_s:.1f}."
    )


def _scaling(pools: dict[str, Any]) -> str:
    kinds = [(kind, how) for kind in pools for how in ("measured", "simulated")]
    workers = next(iter(pools.values()))["scaling"]
    rows = [
        [str(number), *(f"{pools[kind]['scaling'][number][how]:.3f}" for kind, how in kinds)]
        for number in workers
    ]
    return markdown_table(
        ["workers; share of their time in jobs of 0.2 s", *(f"{a}, {b}" for a, b in kinds)], rows
    )


def _beyond(chunks: dict[str, Any]) -> str:
    rows = []
    for system, one in chunks.items():
        cells = [
            f"{one['job_s'] * 1e3:.1f}",
            f"{one['result_bytes'] / 1e3:.0f}",
            f"{one['data_bytes'] / 1e3:.0f}",
            f"{one['head_ms']:.2f}",
        ]
        for beyond in one["beyond"].values():
            cells.append(
                f"{beyond['efficiency']:.2f} ({beyond['limit']}, {beyond['broadcast_s']:.2f})"
            )
        rows.append([system, *cells])
    numbers = next(iter(chunks.values()))["beyond"]
    header = [
        "chunks of",
        "ms each",
        "kB of a result",
        "kB of a broadcast",
        "head, ms each",
        *(f"{number:,} workers" for number in numbers),
    ]
    return markdown_table(header, rows)
