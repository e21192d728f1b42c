"""Files that others wrote: what is wrong with them is said at once, and takes no memory."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

from environments import files
from environments.errors import UserError


def test_a_pipe_and_a_huge_file_are_refused_before_they_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files.read_bytes(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(OSError, match=r"4,398,046,511,104 bytes, more than 2,147,483,648"):
        files.read_bytes(tmp_path / "sparse")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": NaN}', "{", '{"a": "\xff"}'])
def test_what_is_no_json_is_a_value_error(tmp_path, text):
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError):
        files.read_json(tmp_path / "bad.json")


def test_arrays_that_declare_more_than_they_hold_take_no_memory(tmp_path):
    """The header promises 8 TB; eight bytes follow it."""
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("weights.npy", header.getvalue() + bytes(8))
    with pytest.raises(ValueError, match=r"weights.npy: 136 bytes for the shape \[1000000000000\]"):
        files.read_arrays(tmp_path / "bad.npz")


def test_arrays_are_those_that_were_written(tmp_path):
    wanted = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.array(True), "c": np.zeros((0, 4))}
    np.savez_compressed(tmp_path / "good.npz", **wanted)
    arrays = files.read_arrays(tmp_path / "good.npz")
    assert list(arrays) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_a_file_replaces_files_only(tmp_path):
    """A pipe, or /dev/null, must not become a file."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="expected a file to write, found something else"):
        files.replace(tmp_path / "pipe", b"x")
    files.replace(tmp_path / "out", b"one")
    files.replace(tmp_path / "out", b"two")
    assert (tmp_path / "out").read_bytes() == b"two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pipe"]


def test_fields_have_their_types():
    fields = {"name": str, "count": int, "is_right": bool}
    assert files.misfit({"name": "a", "count": 3, "is_right": False, "more": None}, fields) == ""
    assert files.misfit({"count": True}, fields) == (
        "expected count as a whole number from 0 on, found true"
    )
    assert files.misfit({"name": "a\nb"}, fields) == 'expected name as text, found "a\\nb"'


def test_what_is_there_is_a_file_or_a_directory(tmp_path):
    """A name that no file can have is that of none."""
    (tmp_path / "file").write_text("")
    nothing = (tmp_path / "file" / "in", "n" * 300, "/".join("d" * 3000), "a\0b", "")
    answers = [
        (files.exists(path), files.is_directory(path), files.is_file(path))
        for path in (tmp_path, tmp_path / "file", *nothing)
    ]
    assert answers == [(True, True, False), (True, False, True), *[(False, False, False)] * 5]
