"""Many jobs at once: a supervisor of workers that loses none because another died.

A worker keeps or sends what it makes, so nothing is lost with it but the steps since its last checkpoint. A job whose
worker died, or fell silent, is done again by another, ``RETRIES`` times, wherever there is room; a job that fails with
a reason is not, since it would fail again. A place that starts no worker ``STRIKES`` times in a row, or only such of
another version, gets no more jobs.

Jobs are known by their number, so that two may have the same name. Whatever ends the supervisor, an error of its own or
a second Ctrl-C, ends its workers first.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from icl_lab.workers import attempt as attempts
from icl_lab.workers.attempt import Attempt
from icl_lab.workers.follow import LOOK, Follower
from icl_lab.workers.job import Ending, Job, Outcome, Standing
from icl_lab.workers.transport import Place

RETRIES = 2
STRIKES = 3
SILENCE = 60.0  # seconds without a word after which a worker is given up
PAUSE = 1.0  # seconds before a place that started no worker is tried again, times the strikes

Watch = Callable[[Sequence[Standing]], object]


def supervise(
    jobs: Sequence[Job],
    places: Sequence[Place],
    *,
    stopping: Callable[[], bool] = lambda: False,
    watch: Watch = lambda standings: None,
    say: Callable[[str], object] = lambda text: None,
    silence: float = SILENCE,
) -> list[Outcome]:
    """Does each job by a worker at one of the places, and returns how each ended, in the order of ``jobs``.

    ``watch`` is told where each job stands; a job that is still running has at least one step left. ``say`` is told
    what goes wrong on the way. When ``stopping()`` turns true, every worker is asked to stop at its next step, and jobs
    that have not begun are left. A worker that says nothing for ``silence`` seconds is given up.
    """
    crew = _Crew(jobs, places, say, silence)
    room = min(sum(place.at_once for place in places), len(jobs))
    # Every place has its turn, so that few jobs are spread.
    slots = [(place, turn) for turn in range(room) for place in places if turn < place.at_once]
    threads = [threading.Thread(target=crew.work, args=slot, daemon=True) for slot in slots[:room]]
    for thread in threads:
        thread.start()
    try:
        while not crew.errors and any(thread.is_alive() for thread in threads):
            watch(crew.standings)
            if stopping():
                crew.stop()
            next((thread for thread in threads if thread.is_alive()), threads[0]).join(LOOK)
        watch(crew.standings)
    finally:
        crew.end()
        for thread in threads:
            thread.join(attempts.GRACE)
        for place in places:
            place.close()
    if crew.errors:
        raise crew.errors[0]
    return [crew.outcome(number) for number in range(len(jobs))]


class _Crew:
    """The workers, and the threads' common book about them: outcomes by the number of a job."""

    def __init__(
        self, jobs: Sequence[Job], places: Sequence[Place], say: Callable[[str], object], silence: float
    ) -> None:
        self.jobs, self.say, self.silence = jobs, say, silence
        self.standings = [Standing(job.name, job.size) for job in jobs]
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._outcomes: dict[int, Outcome] = {}
        self._waiting = deque(range(len(jobs)))
        self._running: dict[int, Attempt] = {}
        self._strikes = [0] * len(places)
        self._left: dict[int, str] = {}  # places that get no more jobs, and why
        self._places = places
        self._change = threading.Condition()

    def outcome(self, number: int) -> Outcome:
        """Returns how a job ended."""
        left = "; ".join(self._left.values())
        tried = self.standings[number].attempts
        rest = Outcome(self.jobs[number], "stopped", "asked to stop" if tried else "not begun", tried)
        if len(self._left) == len(self._places):
            rest = Outcome(self.jobs[number], "failed", f"no place is left ({left})", tried)
        return self._outcomes.get(number, rest)

    def work(self, place: Place, slot: int) -> None:
        """Does jobs in a slot of a place until none is left; an error of the supervisor's own stops everything."""
        where = next(index for index, each in enumerate(self._places) if each is place)
        try:
            while (number := self._take(where)) is not None:
                self._settle(number, where, self._follow(number, place, slot))
        except BaseException as error:
            self.errors.append(error)
            self.stop()
        with self._change:
            self._change.notify_all()

    def stop(self) -> None:
        """Begins nothing more; whoever follows a worker asks it to stop."""
        self._stopped.set()
        with self._change:
            self._change.notify_all()

    def end(self) -> None:
        """Ends every worker that is left: asked first, killed where it does not listen."""
        self.stop()
        left = list(self._running.values())
        for attempt in left:
            attempt.pipe.terminate()
        deadline = time.monotonic() + attempts.GRACE
        for attempt in left:
            if not attempt.pipe.wait(max(0.0, deadline - time.monotonic())):
                attempt.abandon()

    def _take(self, where: int) -> int | None:
        """Waits for a job that a place may do; None where there is none and none may come back."""
        with self._change:
            while not self._stopped.is_set() and where not in self._left:
                if self._waiting:
                    number = self._waiting.popleft()
                    self.standings[number].state = "starting"
                    self.standings[number].place = self._places[where].name
                    return number
                if len(self._outcomes) == len(self.jobs):
                    return None
                self._change.wait(LOOK)
        return None

    def _follow(self, number: int, place: Place, slot: int) -> Ending:
        standing = self.standings[number]
        standing.attempts += 1

        def started(attempt: Attempt) -> None:
            self._running[number] = attempt

        try:
            return Follower(self.jobs[number], place, slot, standing, self._stopped, self.silence, started).follow()
        finally:
            self._running.pop(number, None)

    def _settle(self, number: int, where: int, ending: Ending) -> None:
        """Writes down how an attempt ended, and puts the job back where another is due."""
        place, standing, state = self._places[where], self.standings[number], ending.state
        with self._change:
            self._strikes[where] = self._strikes[where] + 1 if state == "unreached" else 0
            if state == "refused" or self._strikes[where] == STRIKES:
                self._left[where] = ending.reason if state == "refused" else f"{place.name}: {ending.reason}"
                self.say(f"no more runs at {place.name}: {ending.reason}")
            if state in ("refused", "unreached"):  # the place's fault, not the job's
                standing.attempts -= 1
            elif state != "lost":
                self._outcomes[number] = Outcome(self.jobs[number], state, ending.reason, standing.attempts)
            elif standing.attempts > RETRIES:
                self._outcomes[number] = Outcome(
                    self.jobs[number], "killed", _killed(ending, place, standing.attempts), standing.attempts
                )
            if number in self._outcomes:
                standing.state = self._outcomes[number].state
                standing.step = standing.size
            else:
                standing.state = "waiting"
                self._waiting.appendleft(number)
                if state == "lost":
                    at = "" if not place.remote else f" at {standing.place}"
                    self.say(f"lost: {standing.name}{at} ({ending.reason}); it goes on from its last checkpoint")
            self._change.notify_all()
        if state == "unreached":
            self._stopped.wait(PAUSE * self._strikes[where])


def _killed(ending: Ending, place: Place, times: int) -> str:
    if place.remote:
        return f"lost {times} times, last: {ending.reason}. The same command goes on from its last checkpoint"
    return (
        f"killed {times} times, last by {ending.reason}; where memory is short, fewer --jobs help. "
        "The same command goes on from its last checkpoint"
    )
