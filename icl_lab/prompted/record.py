"""Record of answers: a JSON line for each question asked, in a file that is only added to.

The first line is the identity of the study. A last line that a killed process left half written is dropped; a line that
is damaged otherwise, by its checksum, is an error. One process at a time adds to a file.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
from filelock import FileLock, Timeout

from icl_lab.errors import RunFailed
from icl_lab.files import CHECKSUM, line_fields, signed_line, unwritable, writing
from icl_lab.prompted.question import PromptQuestion

KIND, VERSION = "icl_lab prompted", 1


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcome of a question: the answer, or why there is none (``failed``).

    ``model`` is the name that the server gave, ``finish`` why the answer ended, ``read`` and ``wrote`` tokens
    (``estimated``: not counted by the server), ``retries`` requests beyond the first. ``scores`` stand in records of
    earlier versions.
    """

    key: str
    sha: str
    said: str = ""
    scores: list[float] = []
    failed: str = ""
    model: str = ""
    finish: str = ""
    read: int = 0
    wrote: int = 0
    estimated: bool = False
    seconds: float = 0.0
    sent: dict[str, Any] = {}
    retries: int = 0


class Record:
    """The answers of one study (``identity``) by key, read from a file; none where there is no file.

    ``attempts`` counts requests, failed ones included. Raises ``RunFailed`` where the file is of another study or a
    line is damaged.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self.identity = path, dict(identity)
        self._file: BinaryIO | None = None
        self._load()

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Locks the file for this process and reads it anew; ``RunFailed`` where another process has it."""
        with writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.path.with_name(f".{self.path.name}.lock")).acquire(timeout=0)
        except Timeout:
            raise RunFailed(f"another process is asking for {self.path}: wait for it, or stop it.") from None
        except OSError as error:
            raise unwritable(self.path, error) from error
        with lock:
            whole = self._load()
            with writing(self.path):
                self._file = self.path.open("ab")
                self._file.truncate(whole)
            try:
                if not whole:
                    self._write(self._head())
                yield self
            finally:
                self._file.close()
                self._file = None

    def answer(self, question: PromptQuestion) -> Reply | None:
        """Returns the answer to a question, if there is one.

        Raises ``RunFailed`` where it was given to other text than would be sent today.
        """
        found = self.answers.get(question.key)
        if found and found.sha != question.sha:
            raise RunFailed(
                f"{self.path}: the answer to {question.key} was given to other words than this version sends; "
                "move the file away to ask anew."
            )
        return found

    def add(self, reply: Reply) -> None:
        """Adds a reply, and returns when it is on the disk."""
        self._write({name: value for name, value in msgspec.to_builtins(reply).items() if value not in ("", [], {}, 0)})
        self._count(reply)

    def lines(self, keys: set[str]) -> bytes:
        """Returns a record of these answers alone, sorted by key."""
        found = (msgspec.to_builtins(self.answers[key]) for key in sorted(keys & set(self.answers)))
        # Files of a study stay as they were: retries are written only where there were any.
        kept = ({n: value for n, value in line.items() if n != "retries" or value} for line in found)
        return b"".join(json.dumps(line, sort_keys=True).encode() + b"\n" for line in (self._head(), *kept))

    def _head(self) -> dict[str, Any]:
        return {"record": KIND, "version": VERSION, "question": self.identity}

    def _load(self) -> int:
        """Reads the file anew; returns how many bytes of it are whole lines."""
        self.answers: dict[str, Reply] = {}
        self.attempts = self.tokens = 0
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise RunFailed(f"{self.path} cannot be read: {error.strerror or error}.") from error
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                fields = line_fields(line)
                fields.pop(CHECKSUM, None)  # files of earlier versions have none
                if number == 1:
                    self._check(fields)
                else:
                    self._count(msgspec.convert(fields, Reply))
            except ValueError as error:
                if number == 1:
                    raise RunFailed(f"{self.path} is no record of prompted questions; move it away.") from None
                raise RunFailed(f"{self.path}, line {number}, is damaged: {error}; move the file away.") from None
        return whole

    def _check(self, head: Mapping[str, object]) -> None:
        theirs = head.get("question")
        if head != {"record": KIND, "version": VERSION, "question": theirs} or not isinstance(theirs, dict):
            raise ValueError("another kind of file")
        if theirs != self.identity:
            other = sorted(name for name in {*theirs, *self.identity} if theirs.get(name) != self.identity.get(name))
            raise RunFailed(f"{self.path} is the record of another question (its {', '.join(other)}); move it away.")

    def _count(self, reply: Reply) -> None:
        self.attempts += 1 + reply.retries
        self.tokens += reply.read + reply.wrote
        if not reply.failed:
            self.answers[reply.key] = reply

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            raise RuntimeError("a record is added to only while it is held")
        with writing(self.path):
            self._file.write(signed_line(line))
            self._file.flush()
            os.fsync(self._file.fileno())
