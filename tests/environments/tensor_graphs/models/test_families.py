"""Members of families are valid models that run, differ, and are worth rewriting."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.models import families
from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.exporter import Exporter
from environments.tensor_graphs.models.families.transformers import draw_design
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import Budget, search
from tests.environments.tensor_graphs.test_models import run_randomly


@pytest.mark.parametrize("name", families.members("families", 0, 4))
def test_a_member_is_a_valid_model_that_runs(name):
    model = models.make(name)
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    for output, value in zip(model.graph.output, run_randomly(model), strict=True):
        assert list(value.shape) == [size.dim_value for size in output.type.tensor_type.shape.dim]
        assert 0.01 < value.std() < 100
    assert all(node.op != "Opaque" for node in onnx_io.read(model).nodes.values())


@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_name_decides_everything(family):
    first, again, others_weights = (models.make(f"{family}:3", seed=seed) for seed in (0, 0, 1))
    assert first.SerializeToString() == again.SerializeToString()
    assert first.graph.node == others_weights.graph.node
    assert list(first.graph.initializer) != list(others_weights.graph.initializer)
    graphs = {hash(onnx_io.read(models.make(name))) for name in families.members(family, 0, 8)}
    assert len(graphs) == 8


@pytest.mark.parametrize("family", families.FAMILIES)
def test_rewriting_pays(family):
    """A short search gains on half or more of the first members."""
    engine = Engine(rule_files.load(), AnalyticObjective())
    gains = []
    for name in families.members(family, 0, 4):
        start = engine.start(onnx_io.read(models.make(name)))
        result = search(start, "regions", Budget(expansions=60))
        gains.append(1 - result.best.cost_ms / start.cost_ms)
    assert sum(gain > 0.01 for gain in gains) >= 2, gains


def test_spellings_compute_the_same():
    """gelu(x) = x (1 + erf(x / sqrt 2)) / 2, with the factor 1/2 at three places."""
    spellings = []
    for kind in ("first", "inside", "last"):
        build = Builder("gelu", 0, 1, 14)
        export = Exporter(build, np.random.default_rng(0))
        export.spelling.gelu = kind
        y = export.activate("gelu", build.input("x", [1, 4]))
        spellings.append(build.finish(y=(y, [1, 4])))
    assert len({str(model.graph.node) for model in spellings}) == 3
    for model in spellings[:2]:
        np.testing.assert_allclose(*map(run_randomly, (model, spellings[2])), rtol=1e-5)


def test_no_design_is_the_one_of_bert():
    designs = [draw_design(np.random.default_rng(seed)) for seed in range(300)]
    assert {design.order for design in designs} == {"before", "after", "beside"}
    assert not any((design.order, design.activation) == ("after", "gelu") for design in designs)


def test_names():
    assert models.is_built_in("transformers:7") and models.is_built_in("bert-base")
    for name in ("transformers", "families", "transformers:", "transformers:07", "lstm:7", "7"):
        assert not models.is_built_in(name)
    assert families.named("families") == families.FAMILIES
    assert families.named("branches") == ("branches",) and families.named("bert-base") == ()
    assert families.members("branches", 5, 2) == ("branches:5", "branches:6")
    with pytest.raises(UserError, match="no model 'lstm:7'.*transformers:7.*recurrent"):
        models.make("lstm:7")
