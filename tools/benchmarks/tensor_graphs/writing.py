"""The tables of `tensor_graph_tables.py` as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.rewards import SYMBOLS
from tools.benchmarks.shared import markdown_table
from tools.benchmarks.tensor_graphs.cases import CHANCE, SEARCHES, slug
from tools.benchmarks.tensor_graphs.report import BASELINE, MOST_STEPS
from tools.benchmarks.tensor_graphs.times import ORIGINAL
from tools.benchmarks.tensor_graphs.walks import FIGURES, MEASURED

Table = Mapping[str, Any]
Parts = Iterator[str]

NOTHING = "–"
TITLES = {
    "cost_ms": "estimate",
    "bytes_moved": "bytes moved",
    "flops": "operations",
    "num_kernels": "kernels",
    MEASURED: "measured",
}
_MIB = 1 << 20


def to_markdown(table: Table) -> str:
    """Format all tables, each with the command and the seeds that made it."""
    seeds = ", ".join(map(str, table["seeds"])) or "none yet"
    made = (
        f"`{table['command']}` at commit {table['commit']}; seeds of policies {seeds}, of models "
        "and searches 0."
    )
    written = (_quality, _times, _correlations, _rewards, _substitutions, _memory, _generalisation)
    parts = [
        f"Medians (and range) over the seeds. Processors: {table['processors']}; trainings at the "
        f"same time: {table['jobs']}."
    ]
    for write in written:
        found = list(write(table))
        parts += [*found, made] if found else []
    return "\n\n".join(parts) + "\n"


def _quality(table: Table) -> Parts:
    methods = [*SEARCHES, CHANCE, *table["agents"]]
    yield (
        "**Figures 4.1 and 4.3, estimated.** Cost of each model, and by how much it changes: by "
        f"searches of at most {table['seconds']:g} s, and by the best of {table['rollouts']} "
        "episodes of a policy that learned on the model. *Chance* is a policy that learned "
        f"nothing; for each of {table['agents'][0]} one takes as many steps."
    )
    rows = [
        [
            slug(row["model"]),
            f"{row['start_cost_ms']:.4g} ms",
            *(change(row["methods"].get(name)) for name in methods),
        ]
        for row in table["quality"]
    ]
    yield markdown_table(["model", ORIGINAL, *methods], rows)
    yield "Rules that were applied to find it, and seconds:"
    rows = [
        [slug(row["model"]), *(_work(row["work"].get(name)) for name in methods)]
        for row in table["quality"]
    ]
    yield markdown_table(["model", *methods], rows)
    lines = [_verdict(agent, one) for agent, one in table["verdicts"].items()]
    lines += [_steps(one) for one in table["training"] if one["runs"]]
    yield "\n".join(lines)


def _work(found: Table | None) -> str:
    if found is None:
        return NOTHING
    return f"{found['expansions']:,.0f} ({found['seconds']:.1f} s)"


def _verdict(agent: str, found: Table) -> str:
    lower = found["percent_lower"]
    text = (
        f"- {agent}: not worse than {BASELINE} on {len(found['not_worse'])} of {found['models']} "
        f"models, lower on {len(lower)}"
    )
    if not lower:
        return f"{text}."
    each = ", ".join(f"{slug(model)} {value:.2f}%" for model, value in lower.items())
    return f"{text}, by {found['median_percent_lower']:.2f}% in the median ({each})."


def _steps(found: Table) -> str:
    steps, seconds = found["environment_steps"], found["seconds"]
    most = "within" if steps["max"] <= MOST_STEPS else "more than"
    return (
        f"- {found['agent']}, {found['iterations']:,} iterations, runs: {found['runs']}; "
        f"{steps['median']:,.0f} real steps of the environment each, {steps['max']:,.0f} at most, "
        f"{most} the {MOST_STEPS:,} that are a tenth of the thesis's; {seconds['median']:,.0f} s "
        "each."
    )


def change(found: Mapping[str, float] | None) -> str:
    """Format a spread of ratios as changes in percent."""
    if found is None:
        return NOTHING
    median, low, high = (100 * (found[name] - 1) for name in ("median", "min", "max"))
    text = f"{median:+.2f}%"
    return text if low == high else f"{text} ({low:+.2f}..{high:+.2f})"


def _times(table: Table) -> Parts:
    by_model = [one for one in table["times"] if one["methods"]]
    if not by_model:
        return
    yield (
        "**Figures 4.1 and 4.3, measured.** End to end on one thread. *original*: time at each "
        "level over that of a model nothing is done to. The others: over the original's at the "
        "same level; of policies the one of the median estimate. In brackets intervals of 95%; "
        "*A/A* is the widest one of two copies of the original, which no gain can be told from."
    )
    # The original model is not compared with itself at the first level.
    levels = max((list(each) for one in by_model for each in one["methods"].values()), key=len)
    rows = [
        [
            f"{slug(one['model'])}, {method}",
            *(_ratio(found.get(level)) for level in levels),
            _widest([each["same"] for each in found.values()]),
        ]
        for one in by_model
        for method, found in one["methods"].items()
    ]
    yield markdown_table(["model", *levels, "A/A"], rows)
    if table["differing"]:
        yield f"Outputs differ by more than is allowed: {', '.join(table['differing'])}."


def _ratio(found: Table | None) -> str:
    if found is None:
        return NOTHING
    one = found["ratio"]
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def _widest(found: Sequence[Table]) -> str:
    return f"[{min(one['low'] for one in found):.3f}, {max(one['high'] for one in found):.3f}]"


def _correlations(table: Table) -> Parts:
    if not table["correlations"]:
        return
    yield (
        "**Figure 4.5.** Rank correlations (Spearman) of graphs that random rules lead to: of the "
        "estimated time, and, for a sample, of the time that was measured end to end."
    )
    others = FIGURES[1:]
    header = ["model", "graphs", *(f"estimate ~ {TITLES[name]}" for name in others), "sample"]
    header += [f"measured ~ {TITLES[name]}" for name in FIGURES]
    rows = []
    for one in table["correlations"]:
        of = one["spearman"]
        rows.append(
            [
                slug(one["model"]),
                str(one["graphs"]),
                *(_number(of[FIGURES[0]][name]) for name in others),
                str(one["measured"]),
                *(_number(of[MEASURED][name]) for name in FIGURES),
            ]
        )
    yield markdown_table(header, rows)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _rewards(table: Table) -> Parts:
    found = table["rewards"]
    rows = [one for one in found["rows"] if one["runs"]]
    if not rows:
        return
    yield (
        f"**Figure 4.6.** What {found['agent']} comes to on {slug(found['model'])} with other "
        "rewards: change of the estimated cost by the best episode."
    )
    cells = [
        [one["reward"], _meaning(one["reward"]), change(one["ratio"]), str(one["runs"])]
        for one in rows
    ]
    yield markdown_table(["reward", "", "cost", "runs"], cells)


def _meaning(symbol: str) -> str:
    name, alpha, beta = SYMBOLS.get(symbol, (symbol, 1.0, 0.0))
    words = name.replace("_", " ")
    return f"{words}, α = {alpha:g}, β = {beta:g}" if name == "runtime_and_memory" else words


def _substitutions(table: Table) -> Parts:
    counts = {model: found for model, found in table["substitutions"].items() if found}
    rules = sorted({rule for found in counts.values() for rule in found})
    if not rules:
        return
    yield (
        f"**Figure 4.11.** How often the best episode of {table['agents'][0]} applies each rule, "
        "mean of the seeds. Rules that are never used are left out."
    )
    rows = [[rule, *(_count(counts[model].get(rule)) for model in counts)] for rule in rules]
    yield markdown_table(["rule", *map(slug, counts)], rows)


def _count(value: float | None) -> str:
    return f"{value:.3g}" if value else ""


def _memory(table: Table) -> Parts:
    captions = {
        "memory": "**Table 4.2, optimising.** The most memory, in MiB, that a process takes in "
        f"which `tfrl evaluate` reads a model (*{ORIGINAL}*) and optimises it.",
        "inference_memory": "**Table 4.2, running.** The most memory, in MiB, that a process takes "
        "in which onnxruntime runs a model.",
    }
    for name, caption in captions.items():
        by_model = [one for one in table[name] if one["methods"]]
        methods = list(dict.fromkeys(method for one in by_model for method in one["methods"]))
        if by_model:
            yield caption
            yield markdown_table(
                ["model", *methods],
                [
                    [slug(one["model"]), *(_mib(one["methods"].get(method)) for method in methods)]
                    for one in by_model
                ],
            )


def _mib(value: int | None) -> str:
    return NOTHING if value is None else f"{value / _MIB:,.0f}"


def _generalisation(table: Table) -> Parts:
    found = table["generalisation"]
    if found["mean"] is None:
        return
    trained_on = ", ".join(map(slug, found["trained_on"]))
    yield (
        f"**Generalisation.** One policy of {found['agent']} for {trained_on}, "
        f"used on models that it never saw ({found['environment_steps']['median']:,.0f} real "
        "steps): gain of estimated cost, and share of the gain of policies that learned on the "
        "model itself. *Disguised*: with the model's nodes in random order and all names changed. "
        "*Chance*: as above."
    )
    rows = []
    for row in [*found["rows"], {"model": "mean", **found["mean"]}]:
        rows.append(
            [
                slug(row["model"]),
                *(_gain(row[name]) for name in ("own", "general")),
                _share(row["general_share"]),
                _gain(row["disguised"]),
                _share(row["disguised_share"]),
                _gain(row[CHANCE]),
                _share(row["chance_share"]),
            ]
        )
    yield markdown_table(
        ["model", "own policy", "one for several", "share", "disguised", "share", CHANCE, "share"],
        rows,
    )


def _gain(found: Table | None) -> str:
    return NOTHING if found is None else f"{100 * found['median']:.2f}%"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}%"
