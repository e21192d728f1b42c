"""The doctor tries things for real, and says so when one does not work."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from environments.errors import UserError
from tfrl_systems.systems.inlining import doctor


@pytest.mark.ci
def test_this_machine_works(tfrl, tmp_path):
    ran = tfrl("doctor", "--cache", tmp_path / "compiles.db", "--json")
    assert ran.status == 0 and ran.json["works"] is True
    assert ran.json["versions"].keys() >= {"python", "tensorflow", "tf-agents", "llvmlite"}
    checks = {check["name"]: check for check in ran.json["checks"]}
    assert "decisions" in checks["embedded LLVM"]["found"]
    assert "are read, written and run" in checks["ONNX"]["found"]
    assert all(check["works"] for check in checks.values() if check["needed"])
    if importlib.util.find_spec("ray"):
        assert "--collect ray works" in checks["Ray"]["found"]


def test_what_does_not_work_comes_with_a_remedy(tfrl, tmp_path, monkeypatch):
    def fail(*_):
        raise UserError("expected an object, found none")

    monkeypatch.setattr(doctor, "run_policy", fail)
    # As if Ray were not installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("tfrl_systems.drivers.ray_pool")]:
        monkeypatch.delitem(sys.modules, name)
    ran = tfrl("doctor", "--cache", tmp_path / "compiles.db")
    assert ran.status == 1
    assert any(line.startswith("FAILS  embedded LLVM") for line in ran.out.splitlines())
    assert "-> install it: pip install 'tfrl-systems[ray]'" in ran.out
    assert "-> install it again" in ran.out and ran.out.rstrip().endswith("see FAILS above")
