"""Messages and files over a stream of bytes: whole in whatever pieces they come, and never mistaken."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.errors import RunFailed
from icl_lab.workers.protocol import Decoder, Message, inside, line, parcel

TOLD = [{"hello": {"torch": "2.13.0"}}, {"step": 50}, {"end": "done", "reason": ""}]


def stream(data=b"weights\n{}\n\0"):
    """A login script's greeting, three messages, and a file before the last of them."""
    head, file, tail = b"Welcome to gpu1!\n[1]\n", b"".join(parcel("a/model", data)), line(**TOLD[2])
    return head + line(**TOLD[0]) + line(**TOLD[1]) + file + tail


@given(st.binary(max_size=200), st.lists(st.integers(0, 600), max_size=8))
def test_messages_are_the_same_in_any_pieces(data, cuts):
    whole, decoder, found = stream(data), Decoder(), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    for start, stop in pairwise(edges):
        found += decoder.feed(whole[start:stop])
    assert [message.noise for message in found[:2]] == ["Welcome to gpu1!", "[1]"]
    assert [found[2].told, found[3].told, found[5].told] == TOLD
    assert (found[4].told["file"], found[4].data) == ("a/model", data)
    assert len(found) == 6


def test_a_large_file_is_whole():
    data = bytes(range(256)) * 20_000
    (message,) = Decoder().feed(b"".join(parcel("m", data)))
    assert message.data == data


def test_a_file_with_other_bytes_is_refused():
    whole = b"".join(parcel("grid.csv", b"1,2,3"))
    with pytest.raises(RunFailed, match=r"grid\.csv came with other bytes"):
        list(Decoder().feed(whole[:-1] + b"4"))


@pytest.mark.parametrize(
    "head", [{"file": "a"}, {"file": "a", "size": -1, "sha256": ""}, {"file": 3, "size": 1, "sha256": ""}]
)
def test_a_head_that_makes_no_sense_is_noise(head):
    (message,) = Decoder().feed(json.dumps(head).encode() + b"\n")
    assert message == Message({}, noise=json.dumps(head))


@pytest.mark.parametrize("name", ["../grid.csv", "/etc/passwd", ".lock", "swap/../../x", "", "swap/.hidden"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name):
    with pytest.raises(RunFailed, match="no name inside"):
        inside(name)
    assert inside("swap-ssmax/grid.csv") == "swap-ssmax/grid.csv"
