"""The driver's side of a run that is done elsewhere: it holds the lock, sends what there is, and writes what comes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from icl_lab.errors import Diverged
from icl_lab.files import write
from icl_lab.runs import manifest, reuse
from icl_lab.runs.run import TRAINED, Run
from icl_lab.workers import folder, imports
from icl_lab.workers.protocol import inside


@dataclass(frozen=True)
class RunFiles:
    """The files of one run. Unless ``tested``, a trained model completes it."""

    run: Run
    tested: bool
    say: Callable[[str], object]

    @contextmanager
    def held(self, stopping: Callable[[], bool]) -> Iterator[bool]:
        """Holds the run's lock; says False where another process has finished the run."""
        with self.run.locked(self.say, stopping):
            needed = not self.complete()
            if needed:
                # As in a training here: the model of a run that was trained alike is taken over.
                with suppress(Diverged):  # it is only tested, as a model that answers nothing
                    self.run.begin()
                    if not self.run.trained:
                        reuse.weights(self.run, self.say)
            yield needed

    def parcels(self) -> Iterator[tuple[str, bytes, Mapping[str, Any]]]:
        """Yields the parts from outside, then what there is of the run, here or in the evidence."""
        yield from imports.parcels()
        kept = self.run.kept
        if kept is not None and self.run.trained:
            # Without its specification, which is written here once anything is.
            yield from ((name, data, {}) for name, data in kept.files().items() if name != "spec.json")
            return
        for name in folder.names(self.run.folder):
            if "/" not in name or (self.run.folder / name).parent == self.run.place:
                yield name, (self.run.folder / name).read_bytes(), {}

    def take(self, name: str, data: bytes) -> None:
        """Writes a file into the run's folder."""
        if name == manifest.NAME and self.run.kept is not None:  # the model is the evidence's, and is not copied here
            data = manifest.without(data, TRAINED)
        write(self.run.folder / inside(name), data)

    def drop(self, names: Iterable[str]) -> None:
        """Removes what the worker has no more: checkpoints, once the model is there."""
        for name in names:
            (self.run.folder / inside(name)).unlink(missing_ok=True)

    def complete(self) -> bool:
        """Whether the run is finished, or trained where no more is wanted."""
        return self.run.finished if self.tested else self.run.trained or bool(self.run.diverged)
