"""Atomic replacement of files; `test_archive` has its failures while a model is written."""

import errno

import pytest

from ggmflow.storage.replace import TEMPORARY, replacing, write_text


def test_the_target_appears_only_at_the_end(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with replacing(path) as temporary:
        with open(temporary, "w") as file:
            file.write("new")
        assert path.read_text() == "old"
        (beside,) = set(tmp_path.iterdir()) - {path}
        assert beside.name.startswith(TEMPORARY) and beside.suffix == ".csv"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_an_error_in_the_block_changes_nothing(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half"), replacing(path) as temporary:
        with open(temporary, "w") as file:
            file.write("half")
        raise RuntimeError("half is written")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_error_of_a_full_disk_names_the_target(tmp_path):
    path = tmp_path / "table.csv"
    with pytest.raises(OSError, match="No space left") as caught, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(path) and not list(tmp_path.iterdir())


def test_line_ends_of_a_text_are_not_changed(tmp_path):
    write_text(tmp_path / "text", "ä\r\nb\n\r")
    assert (tmp_path / "text").read_bytes() == "ä\r\nb\n\r".encode()
