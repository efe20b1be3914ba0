"""Workers in threads of the test's own process: the real protocol and the real work, without waiting for Python."""

import os
import threading

import pytest

from icl_lab.workers.line import Line
from icl_lab.workers.work import finish, serve


class ThreadPipe:
    """A worker in a thread, behind two pipes; ``mute`` cuts what it says."""

    def __init__(self, beat):
        (self._source, self._feed), (self._told, self._sink) = os.pipe(), os.pipe()
        self.raised = []
        self._thread = threading.Thread(target=self._work, args=(beat,), daemon=True)
        self._thread.start()

    def _work(self, beat):
        try:
            serve(Line(self._source, self._sink, beat), lambda: False, lambda text: None, finish)
        except Exception as error:
            self.raised.append(error)
        os.close(self._sink)

    def read(self):
        return os.read(self._told, 1 << 16)

    def write(self, data):
        if self._feed is None:
            raise BrokenPipeError
        os.write(self._feed, data)

    def hang_up(self):
        feed, self._feed = self._feed, None
        if feed is not None:
            os.close(feed)

    def interrupt(self):
        return False

    def terminate(self):
        pass

    kill = terminate

    def wait(self, seconds):
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def code(self):
        return None

    def complaints(self):
        return [str(error) for error in self.raised]


class ThreadPlace:
    """Where such workers are started; ``pipes`` holds them."""

    name, at_once, remote, queues = "thread", 1, True, False

    def __init__(self, beat=3.0):
        self.beat, self.pipes = beat, []

    def start(self):
        self.pipes.append(ThreadPipe(self.beat))
        return self.pipes[-1]

    def close(self):
        pass


@pytest.fixture
def far():
    """A place whose workers share nothing with the driver."""
    return ThreadPlace()
