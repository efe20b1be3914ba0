"""Freed memory is kept: a process that allocates the same again takes no new pages from the system."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from icl_lab.runs import allocator

COUNT = """
import resource, sys, torch
from icl_lab.runs import allocator
if sys.argv[1] == "keep":
    assert allocator.keep_freed()
for _ in range(4):
    torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)  # 64 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
GLIBC = platform.libc_ver()[0] == "glibc"


def faults(how):
    bare = {name: value for name, value in os.environ.items() if name not in allocator.OWN}
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, env=bare)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not GLIBC, reason="the C library is not glibc")
def test_tensors_are_made_of_kept_pages():
    as_it_is = faults("as it is")
    assert as_it_is > 20 * 20  # huge pages of 2 MiB at the most, else 16,384 pages each
    assert faults("keep") < as_it_is / 2


def test_who_sets_the_allocator_has_the_last_word(monkeypatch):
    for name in allocator.OWN:
        monkeypatch.setenv(name, "x")
        assert not allocator.keep_freed()
        monkeypatch.delenv(name)


@pytest.mark.parametrize("lacks", [OSError("none"), AttributeError("mallopt")])
def test_other_c_libraries_are_left_alone(monkeypatch, lacks):
    def library(name):
        raise lacks

    monkeypatch.setattr(allocator.ctypes, "CDLL", library)
    assert not allocator.keep_freed()
    allocator.give_back()


def test_freed_memory_is_given_back(monkeypatch):
    trimmed = []
    library = SimpleNamespace(malloc_trim=trimmed.append)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(allocator.sys, "platform", "linux")
    allocator.give_back()
    assert trimmed == [0]  # no byte is kept at the end of the heap


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    monkeypatch.setattr(allocator.ctypes, "CDLL", None)  # which would fail
    assert not allocator.keep_freed()
    allocator.give_back()
