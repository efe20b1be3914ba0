"""The file format: every byte comes back, and no altered one is read."""

import random

import pytest

from icl_lab.errors import RunFailed
from icl_lab.evidence import grids
from icl_lab.evidence.archive import Archive, Part, pack, part
from icl_lab.evidence.layer import Layer

FILES = {
    "lite-1/seed-0/spec.json": b"{}",
    "lite-1/seed-0/grid.csv": b"task,attn\nlinear,ssa\n",
    "lite-1/seed-0/errors.safetensors": bytes(range(256)) * 5 + b"abc",  # no multiple of four
    "lite-1/seed-0/empty.safetensors": b"",
    "lite-1/seed-0/heat-map.png": b"\x89PNG" + bytes(100),
}
GRID = b"""task,attn,preset,spec,seed,sigma,length,metric,value,stderr,count
linear,"a:b=1,c=2",lite,12345678,3,1,10,mse,0.00876,0.003,256
linear,reference:zero,lite,12345678,3,1,10,mse,2.1,0.1,256
linear,"a:b=1,c=2",lite,12345678,3,1,20,mse,1e-05,,0
"""


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "rule.pack"
    path.write_bytes(pack({name: part(data) for name, data in FILES.items()}))
    return path


def test_every_file_comes_back(packed):
    archive = Archive(packed)
    assert {name: archive.content(name) for name in archive.entries} == FILES
    assert pack(dict(reversed(archive.parts().items()))) == packed.read_bytes()


def test_a_truncated_archive_is_refused(packed):
    whole = packed.read_bytes()
    for length in (0, 5, 30, 60, 100, len(whole) // 2, len(whole) - 1):
        packed.write_bytes(whole[:length])
        with pytest.raises(RunFailed, match=r"rule\.pack is damaged"):
            Archive(packed)
    packed.write_bytes(whole + b"x")
    with pytest.raises(RunFailed, match=r"rule\.pack is damaged"):
        Archive(packed)


def test_any_flipped_bit_is_found(packed):
    whole, rng = packed.read_bytes(), random.Random(0)
    for place in sorted({*range(80), *(rng.randrange(len(whole)) for _ in range(200)), len(whole) - 1}):
        data = bytearray(whole)
        data[place] ^= 1 << rng.randrange(8)
        packed.write_bytes(data)

        def read_everything():
            archive = Archive(packed)
            return [archive.content(name) for name in archive.entries]

        with pytest.raises(RunFailed, match=r"rule\.pack is damaged"):
            read_everything()


def test_a_grid_is_split_without_loss():
    frame, own = grids.split(GRID)
    assert grids.join(frame, own) == GRID
    assert b"reference:zero" in frame
    assert b"0.00876" in own
    assert b"0.00876" not in frame
    assert b"2.1" not in own


def test_references_are_shared_by_other_rules_and_seeds():
    other = GRID.replace(b'"a:b=1,c=2"', b"ssa").replace(b"12345678,3", b"87654321,4").replace(b"0.00876", b"7.5")
    assert grids.split(other)[0] == grids.split(GRID)[0]
    assert grids.split(GRID.replace(b"2.1", b"2.2"))[0] != grids.split(GRID)[0]


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe", b"a,b\n", GRID[:-1], GRID.replace(b"\n", b"\r\n"), GRID + b"linear,ssa\n"]
)
def test_what_cannot_be_joined_exactly_is_not_split(text):
    assert grids.split(text) is None


def test_a_file_that_is_not_what_its_entry_says_is_refused(tmp_path):
    """A sound archive, made by a faulty writer: the checksum of the file itself is compared when it is read."""
    (tmp_path / "linear").mkdir()
    name = "lite-1/seed-0/history.csv"
    for wrong in (Part(b"abc", 3, "0" * 64), Part(b"abc", 4, part(b"abc").sha256)):
        (tmp_path / "linear" / "ssa.pack").write_bytes(pack({name: wrong}))
        with pytest.raises(RunFailed, match=r"history\.csv has another checksum"):
            Layer(tmp_path).read("linear/ssa/lite-1/seed-0", "history.csv")
