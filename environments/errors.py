"""Errors that a user can mend, and the record that stands for the result of a failed job."""

from __future__ import annotations

import dataclasses


class UserError(Exception):
    """A mistake or a circumstance that the user can mend.

    Its message is one line that says what was expected, what was found and what to do; the command
    line prints it without a traceback and exits with status 1.
    """


@dataclasses.dataclass(frozen=True)
class Failure:
    """Takes the place of a result if one of many jobs failed and the others go on.

    Attributes:
      name: name of the job, such as a module or a chunk of episodes.
      message: one line with the name and the reason why the job failed the last time.
    """

    name: str
    message: str


class UsageError(UserError):
    """A call that asks for something that does not exist; the message may have several lines.

    The command line exits with status 2, as for any wrong usage.
    """


def one_line(error: BaseException) -> str:
    """Return an exception's message in one line, with its type unless it is a UserError."""
    words = " ".join(str(error).split())
    if isinstance(error, UserError) and words:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
