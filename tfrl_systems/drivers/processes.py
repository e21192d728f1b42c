"""What every pool of processes starts its workers with, and how their orphans are kept."""

from __future__ import annotations

import ctypes

_PR_SET_CHILD_SUBREAPER = 36

# Several workers share a machine: each uses one core, and never the GPU that the learner needs.
SINGLE_THREADED = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can still be found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
