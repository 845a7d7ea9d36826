"""Files are written as a whole or not at all, also with several writers."""

import multiprocessing
import resource
from concurrent.futures import ThreadPoolExecutor

from delta_trl.files import write_atomically


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


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Who comes last wins, as a whole."""
    path, contents = tmp_path / "file", [bytes([i]) * 2**16 for i in range(4)]

    def write_often(content):
        for _ in range(100):
            write_atomically(content, path)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write_often, contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
