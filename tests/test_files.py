"""Temporary files of writers that are gone are removed by the next writer; those of one at work are not."""

import multiprocessing
import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from icl_lab.base import files


def wait(path, ready):
    """Write a file and a folder beside their places, and stays there."""
    replace = os.replace

    def stay(*words):
        ready.set()
        time.sleep(60)
        replace(*words)

    os.replace = stay
    with files.staging(path.parent, f".{path.name}-staged-") as staged:
        (staged / "inside").write_text("x")
        files.publish(path, b"theirs")


@pytest.fixture
def writer(tmp_path):
    """A process that stands between writing a file and moving it to its place."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=wait, args=(tmp_path / "table.md", ready))
    process.start()
    assert ready.wait(30)
    yield process
    process.kill()
    process.join()


def left(folder):
    return sorted(path.name.rpartition("-")[0] for path in folder.iterdir() if path.name.startswith("."))


def test_what_a_killed_writer_leaves_goes_with_the_next_write(tmp_path, writer):
    assert left(tmp_path) == [".table.md", ".table.md-staged"]
    files.publish(tmp_path / "table.md", b"ours")
    with files.staging(tmp_path, ".table.md-staged-"):
        pass
    assert left(tmp_path) == [".table.md", ".table.md-staged"]  # its writer is at work
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    files.publish(tmp_path / "another.md", b"ours")
    assert len(left(tmp_path)) == 2  # of another file
    files.publish(tmp_path / "table.md", b"ours")
    with files.staging(tmp_path, ".table.md-staged-"):
        pass
    assert left(tmp_path) == []
    assert (tmp_path / "table.md").read_bytes() == b"ours"


def test_names_with_signs_of_patterns_are_names(tmp_path):
    (tmp_path / ".a[b]*-left").write_text("")
    (tmp_path / ".ab-left").write_text("")
    files.publish(tmp_path / "a[b]*", b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ab-left", "a[b]*"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    """As ``/dev/null`` does, which whoever is root would have lost."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    files.write(pipe, b"a table")
    reader.join(timeout=30)
    assert read == [b"a table"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    ("path", "is_special"), [("/dev/null", True), ("/dev/stdout", True), ("/dev/shm/a.csv", False), ("a.csv", False)]
)
def test_devices_are_told_from_files(path, is_special, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").touch()
    assert files.special(Path(path)) is is_special
    assert not files.special(Path("new.csv"))
