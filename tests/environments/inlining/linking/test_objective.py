"""What objects are worth in the image that they are linked into, on modules known by heart."""

from __future__ import annotations

import math

import pytest

from environments.errors import UserError
from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import WriteObject
from environments.inlining.compilers.object_size import read_function_bytes
from environments.inlining.exploration.explore import ExplorationConfig, explore
from environments.inlining.heuristics import Constant, Default
from environments.inlining.linking.objective import OBJECT, Counted, make_objective, read_counted
from tests.environments.inlining.linking.conftest import one_of_two, sizes_of, write_project

IMAGE = read_counted("image")


def test_the_costs_of_a_project_add_up_to_what_a_linker_keeps(compiler, project):
    (_, first), (_, two) = defaults = sizes_of(compiler, project)
    ((key, shared_bytes, _),) = first.groups.tolist()
    assert two.groups.tolist() == first.groups.tolist()
    objective = make_objective(IMAGE, defaults)
    costs = [objective.cost("p", size) for size in (first, two)]
    # Each is charged half of the function that both hold, with its entry in .eh_frame.
    assert costs == [size.text_bytes - shared_bytes / 2 for size in (first, two)]
    assert sum(costs) == first.text_bytes + two.text_bytes - shared_bytes
    # In another project nobody is known to hold it.
    assert objective.cost("other", first) == first.text_bytes
    between = make_objective(Counted("between", 1.0), defaults).cost("p", first)
    assert between == pytest.approx(first.text_bytes - shared_bytes * (1 - 1 / math.sqrt(2)))
    of_object = make_objective(read_counted("object"), defaults)
    assert of_object.cost("p", first) == OBJECT.cost("p", first)
    assert objective.digest("p") != objective.digest("other") == OBJECT.digest("p")


def test_a_sample_of_a_project_stands_for_all_its_sources(compiler, project):
    (_, first), _ = defaults = sizes_of(compiler, project)
    ((_, shared_bytes, _),) = first.groups.tolist()
    # Two of four sources: of the function's other holders there are two, where one was seen.
    of_four = make_objective(IMAGE, defaults, num_sources={"p": 4, "q": 9})
    assert of_four.cost("p", first) == pytest.approx(first.text_bytes - shared_bytes * 2 / 3)
    for num_sources in ({"p": 2}, {"p": 1}, {}):
        whole = make_objective(IMAGE, defaults, num_sources=num_sources)
        assert whole.cost("p", first) == first.text_bytes - shared_bytes / 2


def test_what_is_not_code_can_count_less(compiler, project):
    (_, first), _ = defaults = sizes_of(compiler, project)
    ((key, shared_bytes, shared_code),) = first.groups.tolist()
    assert 0 < shared_code < shared_bytes
    code = make_objective(read_counted("code"), defaults)
    assert code.cost("p", first) == first.exec_bytes - shared_code / 2
    half = make_objective(Counted("object", 0.5), defaults)
    assert half.cost("p", first) == (first.exec_bytes + first.text_bytes) / 2
    by_function = read_function_bytes(compiler.compile_plain(project[0]).data, {key: 0.5}, 0.0)
    assert by_function["shared"] == shared_code / 2
    digests = {objective.digest("p") for objective in (code, half, OBJECT)}
    assert len(digests) == 3


def test_what_of_an_object_counts_is_a_word_or_a_weight():
    assert read_counted("image") == ("image", 1) and read_counted("object") == ("object", 1)
    assert read_counted("code") == read_counted("0") == ("image", 0)
    assert read_counted("0.25") == ("image", 0.25)
    for name in ("file", "1.5", "-1", "nan", ""):
        with pytest.raises(UserError, match="objective: expected image, object, code, or a number"):
            read_counted(name)
    with pytest.raises(UserError, match="expected one of image, between, object, found 'file'"):
        make_objective(Counted("file", 1.0), [])


def test_policies_make_other_objects_and_the_default_the_plain_one(compiler, project, tmp_path):
    plain = WriteObject(Default(), tmp_path / "plain").run(compiler, project[0])
    assert plain.read_bytes() == compiler.compile_plain(project[0]).data
    never = WriteObject(Constant(0), tmp_path / "never").run(compiler, project[0])
    assert never.read_bytes() and never.parent != plain.parent


def test_exploration_counts_what_is_saved_in_the_image(compiler, tmp_path):
    """Inlining the only call of @shared drops a copy, of which each object is charged half."""
    irs = {name: one_of_two(0, name).replace(" noinline", "") for name in ("one", "two")}
    modules = write_project(tmp_path, irs)
    objective = make_objective(IMAGE, sizes_of(compiler, modules))
    base = compile_under(Default(), compiler, modules[0])
    shared_bytes = read_function_bytes(base.data)["shared"]
    assert objective.cost("p", base.size) == base.size.text_bytes - shared_bytes / 2
    assert read_function_bytes(base.data, objective.of_project("p"))["shared"] == shared_bytes / 2
    config = ExplorationConfig(flips_per_round=1)
    task = (compiler, modules[0], Default(), TrajectoryStore(), config)
    in_object, in_image = (
        explore(*task, objective=counted).deltas for counted in (OBJECT, objective)
    )
    assert in_image[0] - in_object[0] == shared_bytes / 2
