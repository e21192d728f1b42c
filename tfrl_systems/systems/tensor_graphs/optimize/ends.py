"""When each stage of a search ends, as a share of the seconds that are left when they begin."""

from __future__ import annotations

from typing import NamedTuple


class Ends(NamedTuple):
    """The ends of the stages of `searching`.

    Attributes:
      formula, operators, portable, search, singly: the ends, by stage; removal and the walk have
        what the search by formula has.
      least_formula: share of all seconds that the search by formula takes, however few are left: a
        busy machine may have spent all on starting the program. There the search has as much of the
        processor as on a quiet one, but not more seconds than removal.
    """

    formula: float
    operators: float
    portable: float
    search: float
    singly: float
    least_formula: float


_ON_ONE_THREAD = Ends(0.15, 0.45, 0.65, 0.85, 1.0, least_formula=0.3)
# The formula is that of one thread: on two, a Gemm of few rows takes twice as long, a Transpose
# three times. So there the time goes into measuring operators.
_ON_THREADS = Ends(0.05, 0.6, 0.7, 0.85, 1.0, least_formula=0.0)


def ends_on(threads: int) -> Ends:
    """Return the ends where each operator runs on so many threads."""
    return _ON_ONE_THREAD if threads == 1 else _ON_THREADS
