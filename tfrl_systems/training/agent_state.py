"""The state of an agent in files: all its variables, and what else it keeps."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf
from tf_agents.agents import tf_agent

from environments.errors import UserError

_NAME = "state"


@runtime_checkable
class Remembering(Protocol):
    """An agent that keeps more than variables, and has more to tell than its loss."""

    def save(self, directory: pathlib.Path) -> None:
        """Write into a directory what a resumed run needs beside the variables."""

    def restore(self, directory: pathlib.Path) -> None:
        """Read what `save` wrote."""

    def report(self) -> Mapping[str, Any]:
        """Return an entry of result.json, which is named like the agent."""

    def tables(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Return pictures for TensorBoard: title -> column -> row -> number."""


class AgentState:
    """Saves and restores an agent, as often as a run of any length needs.

    Args:
      agent: the agent.
    """

    def __init__(self, agent: tf_agent.TFAgent) -> None:
        self._agent = agent
        self._variables: list[Any] = []
        self._write_fn: Any = None

    def save(self, directory: pathlib.Path) -> None:
        """Write the agent's state into a directory.

        Raises:
          tf.errors.OpError: the directory cannot be written into.
        """
        self._writer()(tf.constant(str(directory / _NAME)))
        if isinstance(self._agent, Remembering):
            self._agent.save(directory)

    def restore(self, directory: pathlib.Path) -> None:
        """Return the agent to the state that `save` wrote into a directory.

        Raises:
          UserError: it is of another agent, or damaged.
        """
        path = directory / _NAME
        try:
            status = tf.train.Checkpoint(agent=self._agent).read(str(path))
            status.assert_existing_objects_matched()
        except (AssertionError, IndexError, ValueError, tf.errors.OpError) as error:
            raise UserError(
                f"{path}: expected the state of this agent, found: {str(error).splitlines()[0]}; "
                f"remove {directory} to go on from the checkpoint before it"
            ) from error
        if isinstance(self._agent, Remembering):
            self._agent.restore(directory)

    def _writer(self) -> Callable[[tf.Tensor], Any]:
        """Return the function that writes all variables under a path.

        It is traced, so that no tensors are made in Python (see `networks.array_function`). It
        knows the variables that were there when it was traced. So it is traced anew when there are
        others: an optimizer may make its own in its first step.
        """
        parts = tf.train.TrackableView(self._agent).descendants()
        variables = [part.ref() for part in parts if isinstance(part, tf.Variable)]
        if self._write_fn is None or variables != self._variables:
            write_fn = tf.function(tf.train.Checkpoint(agent=self._agent).write, autograph=False)
            self._write_fn = write_fn.get_concrete_function(tf.TensorSpec([], tf.string))
            self._variables = variables
        return self._write_fn
