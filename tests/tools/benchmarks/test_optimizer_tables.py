"""The table of learned optimisers, and the functions that it is made with."""

from __future__ import annotations

import numpy as np
import pytest

from tools.benchmarks import optimizer_tables, wandering

pytestmark = pytest.mark.study


def test_the_functions_are_nought_at_their_minimum_alone():
    c = np.linspace(-1, 1, 9)
    x = 0.45 * np.sin(2.5 * c + 0.3) + 0.2 * c**2
    assert np.all(np.abs(x) < 1)
    np.testing.assert_allclose(wandering.wandering(np.stack([x, c], 1)), 0, atol=1e-12)
    u, v = 0.5 * np.cos(1.5 * c), -0.4 * c
    np.testing.assert_allclose(wandering.rotated(np.stack([u, v, c], 1)), 0, atol=1e-12)
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    assert wandering.rotated(points).min() > 0 and wandering.wandering(points[:, :2]).min() > 0


def test_a_tiny_run_is_kept_and_put_into_the_table(tmp_path, capsys):
    arguments = ["--output", str(tmp_path), "--agents", "es", "--seeds", "1", "--iterations", "2"]
    options = optimizer_tables.parse_arguments(arguments)
    optimizer_tables.run(options)
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "| wandering, es |" in text and "| rotated, es |" in text
    before = (tmp_path / "es-rotated-0.json").read_bytes()
    optimizer_tables.run(options)
    assert (tmp_path / "es-rotated-0.json").read_bytes() == before


def test_the_table_by_hand():
    found = [
        {"function": "f", "agent": "ppo", "mse_0": mse, "mse_10": mse / 10, "seconds": 2.0}
        for mse in (0.1, 0.3, 0.2)
    ]
    assert "| f, ppo | 0.2 (0.1..0.3) | 0.02 (0.01..0.03) | 2 |" in optimizer_tables.table(found)


def test_mistakes(capsys):
    with pytest.raises(SystemExit):
        optimizer_tables.parse_arguments(["--output", "x", "--agents", "world_model"])
    assert "expected some of ppo,reinforce,es,bc_max" in capsys.readouterr().err
