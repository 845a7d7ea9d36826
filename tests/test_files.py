"""Files are written as a whole or not at all, also with several writers."""

import multiprocessing
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_trl.files import (
    begin_checkpoint,
    checkpoints,
    finish_checkpoint,
    last_whole_checkpoint,
    missing_part,
    write_atomically,
)


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    """The disk is full in the middle of the second write, as far as the process can tell."""
    path = tmp_path / "file"

    def write_twice():
        write_atomically(b"old", path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, resource.RLIM_INFINITY))
        write_atomically(b"new and longer", path)

    writer = multiprocessing.get_context("fork").Process(target=write_twice)
    writer.start()
    writer.join()
    assert writer.exitcode != 0
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Who comes last wins, as a whole."""
    path, contents = tmp_path / "new" / "folder" / "file", [bytes([i]) * 2**16 for i in range(4)]

    def write_often(content):
        for _ in range(100):
            write_atomically(content, path)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write_often, contents))
    assert path.read_bytes() in contents
    assert list(path.parent.iterdir()) == [path]


def test_the_newest_checkpoint_has_the_highest_number(tmp_path):
    """As a number: in the order of names, 9 comes after 10 and 100."""
    for step in (100, 9, 10, 1000):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "model").write_text("weights")
        if step < 1000:
            finish_checkpoint(folder)
    (tmp_path / "checkpoint-best").mkdir()
    assert list(checkpoints(tmp_path)) == [9, 10, 100, 1000]
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-100"


def test_a_checkpoint_has_the_files_of_its_folders(tmp_path):
    """As of a second adapter. A file may be empty."""
    weights = tmp_path / "ref" / "adapter"
    weights.parent.mkdir()
    weights.write_text("weights")
    (tmp_path / "latest").touch()
    finish_checkpoint(tmp_path)
    assert missing_part(tmp_path) is None
    assert missing_part(tmp_path, {"of_another_node": 7}) == "of_another_node is missing"
    weights.write_text("longer weights")
    assert missing_part(tmp_path) == "ref/adapter has 14 of 7 bytes"
    weights.unlink()
    assert missing_part(tmp_path) == "ref/adapter is missing"


def test_a_checkpoint_that_is_being_replaced_is_not_whole(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "model").write_text("weights")
    finish_checkpoint(tmp_path)
    monkeypatch.setattr("shutil.rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        begin_checkpoint(tmp_path)
    assert missing_part(tmp_path) is not None
