"""Tasks with modules that go wrong, or that look around; workers import this file to do them."""

from __future__ import annotations

import os
import signal
import sys

from environments.errors import UserError
from environments.inlining.collection.tasks import Play


class LookAround(Play):
    """The process that compiles, and which of some Python modules it has."""

    def run(self, compiler, module):
        super().run(compiler, module)
        heavy = ("tensorflow", "tf_agents", "tfrl_systems.cli", "rich", "scipy")
        return [os.getpid(), *(name for name in heavy if name in sys.modules)]

    def recall(self, module_store):
        return None

    def keep(self, module_store, result):
        pass


class Deadly(Play):
    """Kills its process in one module."""

    def run(self, compiler, module):
        if module.name == "beta/more.cc":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(compiler, module)


class Unwell(Play):
    """Finds what only the user can mend."""

    def run(self, compiler, module):
        raise UserError("temporary files: expected room, found none")
