from __future__ import annotations

import pytest

import environments
from environments.errors import UserError


def test_an_unknown_environment_is_named():
    with pytest.raises(UserError, match="expected one of inlining.*, found 'chess'"):
        environments.make("chess")
