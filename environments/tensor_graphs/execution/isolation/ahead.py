"""Outputs in float64 that another process computes while this one searches.

For a large model they take seconds. They do not depend on candidates, so they can be had before the
first one is there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Arrays, Model
from environments.tensor_graphs.execution.isolation.remote import content_of, model_process


class Ahead:
    """Outputs in float64 that are being computed.

    Args:
      model: the model.
      learned: types of values that no inference knows (`onnx_io.read`).
      trials: the inputs.
      seconds: no further outputs are computed once these have taken so long.
    """

    def __init__(
        self,
        model: Model,
        learned: Sequence[onnx.ValueInfoProto],
        trials: Sequence[Arrays],
        seconds: float,
    ) -> None:
        self.trials = trials
        self._process = model_process()
        request = {
            "do": "exact",
            "model": content_of(model),
            "learned": [value.SerializeToString() for value in learned],
            "trials": [dict(inputs) for inputs in trials],
            "seconds": seconds,
        }
        # Large inputs are taken only once the process is up, which takes a while.
        self._sending = threading.Thread(target=self._send, args=(request,), daemon=True)
        self._sending.start()

    def _send(self, request: Mapping[str, Any]) -> None:
        # `collect` meets the error too.
        with contextlib.suppress(UserError):
            self._process.send(**request)

    def collect(self) -> tuple[list[dict[str, np.ndarray] | None], float]:
        """Wait for the outputs of each trial, None where they are not known; may be called once.

        Returns:
          The outputs, and the seconds that they took.

        Raises:
          UserError: the process failed.
        """
        try:
            self._sending.join()
            answer = self._process.answer()
        finally:
            self._process.kill()
        return answer["outputs"], answer["seconds"]
