"""The cases of each verb: `VERBS[name](seed, scratch)` makes them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping

from tools.benchmarks.bad_inputs.case import Case
from tools.benchmarks.bad_inputs.verbs import (
    bench,
    build,
    cache,
    corpus,
    corpus_build,
    doctor,
    evaluate,
    export,
    optimize,
    rules,
    train,
)

VERBS: Mapping[str, Callable[[int, pathlib.Path], list[Case]]] = {
    "rules generate": rules.generate,
    "rules verify": rules.verify,
    "rules import": rules.taken,
    "rules list": rules.listed,
    "corpus info": corpus.info,
    "corpus build": corpus_build.cases,
    "optimize": optimize.cases,
    "train": train.cases,
    "evaluate": evaluate.cases,
    "export": export.cases,
    "build": build.cases,
    "bench": bench.cases,
    "cache info": cache.info,
    "cache clear": cache.clear,
    "doctor": doctor.cases,
}
