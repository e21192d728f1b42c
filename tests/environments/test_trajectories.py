"""Trajectories are written and read without loss; damaged and foreign files are one line."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from environments.trajectories import Trajectory, digest_of
from tests.environments.small_episodes import GOLDEN

TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=5)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(TEXT, parts, max_size=3),
    max_leaves=6,
)
DIGESTS = st.binary(min_size=8, max_size=8).map(bytes.hex)
ANY_FILE = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def trajectories(draw):
    num_steps = draw(st.integers(0, 4))
    vectors = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=3)
    kind = draw(st.sampled_from((st.integers(0, 2**63 - 1), vectors.map(tuple))))
    return Trajectory(
        system=draw(TEXT),
        settings=draw(st.dictionaries(TEXT, JSON, max_size=3)),
        context=draw(TEXT),
        digest=draw(TEXT),
        actions=tuple(draw(st.lists(kind, min_size=num_steps, max_size=num_steps))),
        rewards=tuple(draw(st.lists(NUMBERS, min_size=num_steps, max_size=num_steps))),
        observations=tuple(draw(st.lists(DIGESTS, min_size=num_steps + 1, max_size=num_steps + 1))),
        is_finished=draw(st.booleans()),
        info=draw(st.dictionaries(TEXT, TEXT | NUMBERS, max_size=3)),
        author=draw(TEXT),
        versions=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
    )


@ANY_FILE
@given(trajectory=trajectories())
def test_what_is_written_is_read(tmp_path, trajectory):
    path = tmp_path / "mine.json"
    trajectory = dataclasses.replace(
        trajectory, observations=("0123456789abcdef", *trajectory.observations[1:])
    )
    trajectory.save(path)
    assert Trajectory.load(path) == trajectory
    first = path.read_bytes()
    Trajectory.load(path).save(path)
    assert path.read_bytes() == first


@ANY_FILE
@given(data=st.data())
def test_any_other_value_is_refused_in_one_line_or_is_right(tmp_path, data):
    """Whatever stands in a field, no other error comes of it."""
    fields = json.loads((GOLDEN / "learn_to_optimize.json").read_text())
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(JSON)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(fields))
    try:
        trajectory = Trajectory.load(path)
    except UserError as error:
        assert "\n" not in str(error) and str(error).startswith(f"{path}: expected ")
        assert "; " in str(error)
    else:
        assert name in vars(trajectory) or name in ("finished", "version")


DAMAGES = [
    ("format", "chess", "expected a file of the format 'tfrl trajectory', found another one"),
    ("version", 2, "expected version 1 of the format, found 2"),
    ("system", 3, "expected system as text, found 3"),
    ("settings", [], "expected settings as an object"),
    ("context", "a\nb", "expected context as text"),
    ("actions", [True, 0, 0, 0], "expected actions as a list"),
    ("actions", [2**63, 0, 0, 0], "expected actions as a list"),
    ("actions", [0, [0.5], 0, 0], "expected actions as a list"),
    ("actions", [[0.1], [0.5], [0.5], [0.5]], "of lists of float32, found"),
    ("actions", [[1e300], [0.5], [0.5], [0.5]], "of lists of float32, found"),
    ("actions", [0, 0, 0], "expected 3 rewards of 3 actions, found 4"),
    ("rewards", [0, 0, 0, 10**400], "expected rewards as a list of finite numbers"),
    ("observations", ["0" * 16] * 4, "expected 5 observations of 4 actions, found 4"),
    ("observations", ["x" * 16] * 5, "expected observations as a list of 16 hexadecimal"),
    ("finished", 1, "expected finished as true or false, found 1"),
    ("info", {"cost": None}, "expected info as an object of text and finite numbers"),
    ("author", "a\x1b[2Jb", "expected author as text in one line"),
    ("versions", {"numpy": 2}, "expected versions as an object of text"),
    ("new", 1, 'found a difference: "new"'),
]


@pytest.mark.parametrize(("name", "value", "message"), DAMAGES)
def test_a_wrong_value_is_named(tmp_path, name, value, message):
    fields = json.loads((GOLDEN / "learn_to_optimize.json").read_text())
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**fields, name: value}))
    with pytest.raises(UserError, match=message) as caught:
        Trajectory.load(path)
    assert str(caught.value).endswith("; name a file that save_trajectory wrote")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON, found"),
        (b"\x80\x04K\x01.", "expected JSON, found"),  # a pickle
        (b"[" * 100_000, "expected JSON, found: values nested too deeply"),
        (b"[]", "expected a file of the format"),
        (b'{"format": "tfrl trajectory", "version": 1}', "expected the fields system, settings"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, content, message):
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        Trajectory.load(path)
    for place in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(UserError, match=f"{place}: expected a trajectory, found: "):
            Trajectory.load(place)


def test_infinite_numbers_in_disguise_are_refused(tmp_path):
    """Python's JSON reads 1e999 as infinity."""
    text = (GOLDEN / "learn_to_optimize.json").read_text()
    fields = json.loads(text)
    path = tmp_path / "other.json"
    path.write_text(text.replace(json.dumps(fields["rewards"][0]), "1e999", 1))
    with pytest.raises(UserError, match="expected rewards as a list of finite numbers"):
        Trajectory.load(path)


def test_what_could_not_be_read_is_not_written(tmp_path):
    trajectory = Trajectory.load(GOLDEN / "learn_to_optimize.json")
    path = tmp_path / "mine.json"
    for field, value in (
        ("author", "me\nand you"),
        ("rewards", (float("nan"),) * len(trajectory.rewards)),
        ("actions", ((float("inf"), 0.0),) * len(trajectory.actions)),
    ):
        damaged = dataclasses.replace(trajectory, **{field: value})
        with pytest.raises(UserError, match=f"expected {field} as .*; correct that"):
            damaged.save(path)
    assert not path.exists()
    # The sum of rewards is rounded once.
    assert dataclasses.replace(trajectory, rewards=(1e16, 1.0, -1e16, 0.0)).reward == 1


def test_the_digest_is_of_the_vector_and_the_mask():
    # sha256 of the 12 bytes of the vector, and of these and the 4 of the mask.
    vector, mask = np.array([0.5, -1, 0], np.float32), np.array([1], np.int32)
    assert digest_of(vector) == "d7eef6bf96282033"
    assert digest_of({"observation": vector, "mask": mask}) == "3c57c9939515e5db"
    assert digest_of({"observation": vector, "mask": 0 * mask}) != "3c57c9939515e5db"
