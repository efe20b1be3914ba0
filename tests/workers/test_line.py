"""The worker's end of the line: what it hears, and how it notices that nobody is there."""

import json
import os

import pytest

from icl_lab.errors import RunFailed
from icl_lab.workers.line import Line
from icl_lab.workers.protocol import line, parcel

RARELY = 1000.0  # seconds between two signs of life


class Ends:
    """A line, and the driver's ends of it."""

    def __init__(self, beat):
        (source, self.feed), (self.told, sink) = os.pipe(), os.pipe()
        self.line, self._own = Line(source, sink, beat), (source, sink)
        self.open = {self.feed, self.told, source, sink}

    def close(self, number):
        self.open.discard(number)
        os.close(number)


@pytest.fixture
def ends():
    made = []

    def make(beat=RARELY):
        made.append(Ends(beat))
        return made[-1]

    yield make
    for each in made:
        each.line.end("done")
        # The driver's ends first: a writer that is stuck ends by that. With its own end closed under it, it would go on
        # writing into whatever has the same number next.
        for number in {each.feed, each.told} & each.open:
            each.close(number)
        each.line._writer.join(10)
        for number in tuple(each.open):
            each.close(number)


def test_orders_come_with_files(ends):
    far = ends()
    whole = [line(alive=True), line(spec={}, remote=True), *parcel("a", b"1\n2"), line(go=True)]
    os.write(far.feed, b"".join(whole))
    orders, files = far.line.orders()
    assert orders == {"spec": {}, "remote": True}
    assert [(message.told["file"], message.data) for message in files] == [("a", b"1\n2")]


def test_orders_that_need_no_files_begin_at_once(ends):
    near = ends()
    os.write(near.feed, line(spec={"attn": "ssa"}))
    assert near.line.orders() == ({"spec": {"attn": "ssa"}}, [])


def test_a_driver_that_leaves_before_its_orders(ends):
    far = ends()
    far.close(far.feed)
    with pytest.raises(RunFailed, match="no orders came"):
        far.line.orders()


def test_what_the_driver_says_is_heard(ends):
    far = ends()
    far.line.listen(RARELY)
    os.write(far.feed, line(got="checkpoint.pt") + line(stop=True))
    assert far.line.stopped.wait(10)
    assert set(far.line.got) == {"checkpoint.pt"}


def test_the_end_of_what_the_driver_says_is_its_end(ends):
    far = ends()
    far.line.listen(RARELY)
    far.close(far.feed)
    assert far.line.stopped.wait(10)


def test_a_driver_that_does_not_read_any_more_is_gone(ends):
    far = ends(beat=0.05)
    far.close(far.told)
    assert far.line.stopped.wait(10)


def test_behind_a_cut_network_nothing_is_waited_for(ends):
    """Writes get stuck, and no end of anything is read: only the silence tells, and the worker leaves."""
    far = ends(beat=0.05)
    far.line.listen(0.3)
    far.line.send("model.safetensors", bytes(1 << 20))  # more than a pipe holds
    assert far.line.stopped.wait(10)
    far.line.end("stopped")


def test_signs_of_life_come_between(ends):
    far = ends(beat=0.01)
    heard = b""
    while heard.count(b"\n") < 5:
        heard += os.read(far.told, 100)
    assert {json.dumps(json.loads(text)) for text in heard.splitlines()[:5]} == {'{"alive": true}'}
