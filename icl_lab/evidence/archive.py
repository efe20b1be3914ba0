"""The file format of the evidence: many files in one, compressed without loss, with a checksum of every part.

    line "icl-lab evidence 1", SHA-256 of the index (32 bytes), its length (8 bytes), the index (JSON, xz), the segments

The index lists the segments in order, and for every file its segment, place, size and SHA-256. Text files share one
segment, because what they have in common is then stored once; every other file has a segment of its own, so that adding
a run leaves the bytes of the others as they are. Nothing in the file is without a checksum: any altered bit is found.
"""

import hashlib
import lzma
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from icl_lab.errors import RunFailed

MAGIC = b"icl-lab evidence 1\n"
HEAD = len(MAGIC) + 32 + 8
TEXT = (".json", ".csv", ".txt")
LANES = 4  # bytes of a float32


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of compressed bytes: ``text`` by xz, ``floats`` by deflate with the bytes of equal rank side by side."""

    kind: Literal["text", "floats", "stored"]
    size: int
    sha256: str


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the content of a file lies, and what the file must be once it is put together.

    ``start`` and ``length`` count the bytes of the unpacked segment; ``frame`` names what a grid shares with others.
    """

    segment: int
    start: int
    length: int
    size: int
    sha256: str
    frame: str = ""


class Part(msgspec.Struct, frozen=True):
    """What is put into an archive: content to be stored, and size and checksum of the file that it stands for."""

    content: bytes
    size: int
    sha256: str
    frame: str = ""


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    segments: list[Segment]
    files: dict[str, Entry]


class Archive:
    """An archive that was opened; its index is checked at once, each segment when something in it is asked for."""

    def __init__(self, path: Path) -> None:
        """Reads the index; raises ``RunFailed``, naming the file, if it is cut short or altered."""
        self.path = path
        try:
            self._data = path.read_bytes()
        except OSError as error:
            raise RunFailed(f"{path} cannot be read: {error.strerror or error}.") from error
        data, self._text = self._data, dict[int, bytes]()
        if data[: len(MAGIC)] != MAGIC:
            raise self.damaged("it does not begin as an archive of evidence does")
        length = int.from_bytes(data[HEAD - 8 : HEAD], "little")
        packed = data[HEAD : HEAD + length]
        if hashlib.sha256(packed).digest() != data[len(MAGIC) : HEAD - 8]:
            raise self.damaged("its index has another checksum")
        index = msgspec.json.decode(lzma.decompress(packed), type=_Index)
        self.entries, self._segments, self._places = index.files, index.segments, [HEAD + length]
        for segment in index.segments:
            self._places.append(self._places[-1] + segment.size)
        if self._places[-1] != len(data):
            raise self.damaged(f"it has {len(data):,} bytes and should have {self._places[-1]:,}")

    def damaged(self, why: str) -> RunFailed:
        """Returns the complaint about this file."""
        return RunFailed(f"{self.path} is damaged ({why}); take it from the repository again: git checkout {self.path}")

    def content(self, name: str) -> bytes:
        """Returns the stored content of a file; raises ``RunFailed`` if its segment is altered."""
        entry = self.entries[name]
        return self._unpacked(entry.segment)[entry.start : entry.start + entry.length]

    def parts(self) -> dict[str, Part]:
        """Returns everything that is in the archive, as ``pack`` takes it."""
        return {
            name: Part(self.content(name), entry.size, entry.sha256, entry.frame)
            for name, entry in self.entries.items()
        }

    def packed_size(self, name: str) -> int:
        """Returns the bytes that a file takes here; of text its share of the common segment."""
        entry = self.entries[name]
        segment = self._segments[entry.segment]
        whole = sum(each.length for each in self.entries.values() if each.segment == entry.segment)
        return round(segment.size * entry.length / max(1, whole))

    def _unpacked(self, number: int) -> bytes:
        if number in self._text:
            return self._text[number]
        segment, start = self._segments[number], self._places[number]
        packed = self._data[start : start + segment.size]
        if hashlib.sha256(packed).hexdigest() != segment.sha256:
            raise self.damaged(f"segment {number} has another checksum")
        if segment.kind == "floats":
            return _together(zlib.decompress(packed))
        if segment.kind == "text":
            self._text[number] = lzma.decompress(packed)
            return self._text[number]
        return packed


def pack(files: Mapping[str, Part]) -> bytes:
    """Returns the archive of these files; the same files give the same bytes, whatever their order."""
    text, segments, packed, entries = b"", list[Segment](), list[bytes](), dict[str, Entry]()
    # Equal names side by side: of files that resemble one another only the differences are stored.
    for name in sorted(files, key=lambda name: (Path(name).name, name)):
        part = files[name]
        if name.endswith(TEXT):
            entries[name] = Entry(0, len(text), len(part.content), part.size, part.sha256, part.frame)
            text += part.content
    _append("text", lzma.compress(text, preset=9 | lzma.PRESET_EXTREME), segments, packed)
    for name in sorted(set(files) - set(entries)):
        part = files[name]
        entries[name] = Entry(len(segments), 0, len(part.content), part.size, part.sha256, part.frame)
        if name.endswith(".safetensors"):
            _append("floats", zlib.compress(_apart(part.content), 9), segments, packed)
        else:
            _append("stored", part.content, segments, packed)
    index = lzma.compress(msgspec.json.encode(_Index(segments, entries), order="sorted"))
    head = MAGIC + hashlib.sha256(index).digest() + len(index).to_bytes(8, "little")
    return b"".join([head, index, *packed])


def part(data: bytes, content: bytes | None = None, frame: str = "") -> Part:
    """Returns a file as it is put into an archive; ``content`` is what is stored where that is not the file itself."""
    return Part(data if content is None else content, len(data), hashlib.sha256(data).hexdigest(), frame)


def _append(kind: Literal["text", "floats", "stored"], data: bytes, segments: list[Segment], all: list[bytes]) -> None:
    segments.append(Segment(kind, len(data), hashlib.sha256(data).hexdigest()))
    all.append(data)


def _apart(data: bytes) -> bytes:
    """Puts bytes of equal rank side by side: exponents compress well, the last bits of a mantissa not at all."""
    return b"".join(data[lane::LANES] for lane in range(LANES))


def _together(lanes: bytes) -> bytes:
    data, start = bytearray(len(lanes)), 0
    for lane in range(LANES):
        length = len(range(lane, len(lanes), LANES))
        data[lane::LANES] = lanes[start : start + length]
        start += length
    return bytes(data)
