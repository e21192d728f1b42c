"""Errors that a user can mend."""

from __future__ import annotations


class UserError(Exception):
    """A mistake or a circumstance that the user can mend.

    Its message is one line that says what was expected, what was found and what to do; the command
    line prints it without a traceback and exits with status 1.
    """
