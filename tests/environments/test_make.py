from __future__ import annotations

import subprocess
import sys

import pytest

import environments
from environments.errors import UserError

HEAVY = ("tensorflow", "tf_agents", "llvmlite", "sklearn")


def test_importing_environments_brings_nothing_heavy():
    code = f"import environments, sys; sys.exit(' '.join({set(HEAVY)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_an_unknown_environment_is_named():
    with pytest.raises(UserError, match="expected one of inlining.*, found 'chess'"):
        environments.make("chess")
