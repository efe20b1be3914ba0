"""Bounds on files from elsewhere, and the names that they may give."""

import os
import socket
import tomllib

import pytest

from icl_lab.base import foreign


def test_a_regular_file_is_read_within_its_bound(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to("a")
    assert foreign.read(tmp_path / "b", 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes, at most 4 are read"):
        foreign.read(tmp_path / "a", 4)


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        for name in ("pipe", "door", "/dev/zero", "/dev/stdin"):
            with pytest.raises(OSError, match="pipe or a device"):
                foreign.read(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        foreign.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 65, "nested"),
        ("x = " + "[{a=" * 33, "nested"),
        ("a" + ".a" * 33 + " = 1", "dotted"),
        ("[[" + '"a" . ' * 33 + "a]]", "dotted"),
        ("x = {" + "'a'." * 33 + "a = 1}", "dotted"),
        ('"' * 100_001, None),  # each of these would take minutes were it looked at from each of its characters
        ('"\\' * 100_000, None),
        ("'''" * 100_001, None),
        ('"""' + '\\"' * 100_000, None),
    ],
)
def test_text_is_bounded_before_it_is_parsed(text, why):
    if why is None:
        assert foreign.shallow(text.encode()) == text
    else:
        with pytest.raises(ValueError, match=why):
            foreign.shallow(text.encode())


def test_what_is_quoted_nests_nothing():
    text = "\n".join(
        (
            'a = "' + "[." * 99 + '\\"[["  # ' + "[." * 99,
            "b = '" + "{." * 99 + "'",
            'c = """' + '[." ""' * 99 + '"""',
            "d = '''" + "[.'" * 99 + "'''",
            "e = [" + "1.5, " * 99 + "]",
        )
    )
    assert len(tomllib.loads(foreign.shallow(text.encode()))["e"]) == 99
    assert foreign.shallow(b"\xef\xbb\xbf{}") == "{}"
    with pytest.raises(ValueError, match="utf-8"):
        foreign.shallow(b"\xff")
    with pytest.raises(ValueError, match="bytes, at most"):
        foreign.shallow(bytes(foreign.MOST_TEXT + 1))


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "/a", "a\\b", "C:a", "a\n", " a", "a\0", "\u202ea"])
def test_a_name_that_leads_elsewhere_is_not_plain(name):
    assert not foreign.is_plain(name)
    assert not foreign.is_key(f"{name}/ssa/lite-01234567/seed-0")


def test_runs_have_plain_names():
    assert foreign.is_plain("swap-ssa-n=2")
    assert foreign.is_key("every-balance=half/ssa+rope/lite-01234567/seed-10")
    for key in ("linear/ssa/lite-01234567/seed-01", "linear/ssa/lite-01234567", "a/b/c/d/seed-0", "a/b/c/seed--1"):
        assert not foreign.is_key(key)
