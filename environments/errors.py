"""Errors that a user can mend, and what stands for a result that could not be had."""

from __future__ import annotations

import dataclasses


class UserError(Exception):
    """A mistake or a circumstance that the user can mend.

    Its message is one line that says what was expected, what was found and what to do; the command
    line prints it without a traceback and exits with status 1.
    """


@dataclasses.dataclass(frozen=True)
class Failure:
    """Stands in the place of a result, where one of many jobs failed and the others go on.

    Attributes:
      name: of the job: a module, a chunk of episodes.
      message: one line: the name, and why it failed the last time.
    """

    name: str
    message: str


class UsageError(UserError):
    """A call that asks for something that there is not; the message may have several lines.

    The command line exits with status 2, as for any wrong usage.
    """
