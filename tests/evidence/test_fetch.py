"""Evidence of a release: taken from an archive whole, or not at all."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile

import pytest

from docs import release as releases
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import checkout_hint, sha256
from icl_lab.base.version import VERSION
from icl_lab.execute import where as places
from icl_lab.runs.evidence import archive as archives
from icl_lab.runs.evidence import release
from icl_lab.runs.evidence.archive import Archive, ArchivePart, PartFile
from tests.cases import few

TOP = f"icl_lab-evidence-{VERSION}"
LINE = "the repository's runs"
COMPARE = ["compare", "--task", "linear", "--attn", "softmax,ssa", "--dry-run"]


def index(tmp_path, *parts):
    archives._write_index(tmp_path / "index", list(parts))
    return (tmp_path / "index" / "index.json").read_bytes()


def packed(files, kind=tarfile.REGTYPE, link=""):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, link
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue())


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A foreign folder and an empty data folder, as an installed copy has them."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ICL_LAB_EVIDENCE")
    monkeypatch.setattr(archives, "PACKAGE", tmp_path / "site" / "icl_lab")
    monkeypatch.setattr(places, "UNSAID", [*places.UNSAID])
    return tmp_path / "data" / "icl_lab"


@pytest.fixture
def archive(tmp_path):
    """An archive of a table and a study, with its checksum beside it."""
    part = ArchivePart("0001-aa", "", {}, {"cells.parquet": PartFile(hashlib.sha256(b"cells").hexdigest())})
    names = {"evidence/index.json": index(tmp_path, part), "evidence/0001-aa/cells.parquet": b"cells", "a/b.csv": b"1"}
    return written(tmp_path, packed({f"{TOP}/{name}": data for name, data in names.items()}))


def written(folder, data, name="archive.tar.gz"):
    (folder / name).write_bytes(data)
    (folder / f"{name}.sha256").write_text(f"{sha256(data)}  {name}\n")
    return folder / name


def test_a_fetched_archive_is_found_last(archive, installed, run, monkeypatch, tmp_path):
    code, out, _ = run("evidence", "fetch", "--from", str(archive))
    root = installed / VERSION / "evidence"
    assert (code, out) == (0, f"wrote {root}: 0 runs\n")
    assert Archive.find() == Archive(root)
    assert (root / "0001-aa" / "cells.parquet").read_bytes() == b"cells"
    assert (root.parent / "a" / "b.csv").read_bytes() == b"1"
    assert "icl-lab evidence fetch" in checkout_hint(root / "index.json")
    beside = tmp_path / "site" / "results" / "evidence"
    beside.mkdir(parents=True)
    assert Archive.find() == Archive(beside)
    (tmp_path / "here" / "results" / "evidence").mkdir(parents=True)
    assert Archive.find() == Archive(archives.PLACE)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(archive.parent))
    assert Archive.find() == Archive(archive.parent)


def test_a_second_fetch_replaces_the_first(archive, installed, tmp_path):
    root = release.fetch(archive)
    (root / "0001-aa" / "cells.parquet").write_bytes(b"damaged")
    (root / "old.csv").touch()
    assert release.fetch(archive) == root
    assert (root / "0001-aa" / "cells.parquet").read_bytes() == b"cells"
    assert not (root / "old.csv").exists()
    assert {path.name for path in installed.iterdir()} == {VERSION, archives.LOCK}


@pytest.mark.slow
def test_two_at_once_leave_one_whole_copy(archive, installed, tmp_path):
    line = f"from icl_lab.runs.evidence.release import fetch; from pathlib import Path; fetch(Path({str(archive)!r}))"
    both = [subprocess.Popen([sys.executable, "-c", line], env=os.environ) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert {path.name for path in installed.iterdir()} == {VERSION, archives.LOCK}
    assert (installed / VERSION / "evidence" / "0001-aa" / "cells.parquet").read_bytes() == b"cells"


def bad_archives(tmp_path):
    """Archives that are refused, with the reason that is said."""
    good, other = f"{TOP}/evidence/index.json", "icl_lab-evidence-0.0.1/evidence/index.json"
    part = ArchivePart("p", "", {}, {"cells.parquet": PartFile("0" * 64)})
    text = index(tmp_path)
    yield packed({good: text})[:-20], "it was cut short"
    yield packed({other: text}), f"'icl_lab-evidence-0.0.1', not '{TOP}'"
    yield packed({good: text, f"{TOP}/../../x": b""}), "is no plain name"
    yield packed({good: text, f"/{TOP}/x": b""}), f"'', not '{TOP}'"
    yield packed({good: text, f"{TOP}/.profile": b""}), "is no plain name"
    yield packed({good: text, f"{TOP}/a\\..\\x": b""}), "is no plain name"
    yield packed({f"{TOP}/x": b""}, tarfile.SYMTYPE, "/etc/passwd"), "is no plain file"
    yield packed({f"{TOP}/x": b""}, tarfile.LNKTYPE, f"{TOP}/y"), "is no plain file"
    yield packed({f"{TOP}/x": b""}, tarfile.FIFOTYPE), "is no plain file"
    yield packed({f"{TOP}/x": b""}, tarfile.GNUTYPE_SPARSE), "is no plain file"
    yield gzip.compress(bytes(release.MOST + 1)), "holds more than"
    yield b"no archive", "incorrect header"
    yield gzip.compress(b"no tar"), "is not the evidence"
    yield packed({f"{TOP}/x": b""}), "is not the evidence"
    yield packed({good: text.replace(b"seal", b"sael")}), "index.json is damaged or edited"
    yield packed({good: index(tmp_path, part)}), "evidence/p/cells.parquet is damaged"


def test_a_hostile_or_damaged_archive_leaves_nothing(archive, installed, run, tmp_path):
    before = release.fetch(archive)
    there = sorted(path for path in tmp_path.rglob("*") if installed in path.parents)
    for number, (data, reason) in enumerate(bad_archives(tmp_path)):
        file = written(tmp_path, data, f"bad{number}.tar.gz")
        out, err = run.failed("evidence", "fetch", "--from", str(file))
        assert not out
        assert err.count("\n") == 1
        assert reason in err
        assert sorted(path for path in tmp_path.rglob("*") if installed in path.parents) == there
    assert (before / "0001-aa" / "cells.parquet").read_bytes() == b"cells"


def test_a_size_below_zero_is_refused(installed, tmp_path):
    """A number of base 256 may be negative, with which readers of tar have gone round in circles."""
    raw = bytearray(gzip.decompress(packed({f"{TOP}/x": b""})))
    raw[124:136] = b"\xff" * 11 + b"\x00"  # -256
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    with pytest.raises(RunFailed, match="is no plain file"):
        release.fetch(written(tmp_path, gzip.compress(bytes(raw))))


def test_a_checksum_is_given_or_built_in_or_beside_the_file(archive, installed, run, tmp_path, monkeypatch):
    fetch, right = ["evidence", "fetch", "--from", str(archive)], sha256(archive.read_bytes())
    assert f"has SHA-256 {right}, not {'0' * 64}" in run.failed(*fetch, "--sha256", "0" * 64)[1]
    assert "64 hexadecimal digits" in run.refused(*fetch, "--sha256", "abc")[1]
    beside = archive.with_name(f"{archive.name}.sha256")
    beside.write_text("no sum\n")
    assert "holds no SHA-256" in run.failed(*fetch)[1]
    beside.unlink()
    assert f"{beside} cannot be read: No such file or directory, nor is there a --sha256." in run.failed(*fetch)[1]
    monkeypatch.setattr(release, "BUILT", tmp_path / "evidence.txt")
    release.BUILT.write_text(f"{'1' * 64}  {archive.name}\n")
    assert f"not {'1' * 64}" in run.failed(*fetch)[1]
    assert not (installed / VERSION).exists()
    assert run(*fetch, "--sha256", right)[0] == 0
    assert [run("evidence", "fetch", "--from", str(place))[0] for place in (tmp_path, tmp_path / "none")] == [1, 2]


def test_a_data_folder_that_cannot_be_written_is_said(archive, installed, run):
    installed.parent.write_text("a file")
    _, err = run.failed("evidence", "fetch", "--from", str(archive))
    assert err.count("\n") == 1
    assert "cannot be written" in err


def test_without_a_file_it_comes_from_the_address_of_the_package(archive, installed, run, monkeypatch, tmp_path):
    assert "name the archive with --from FILE" in run.refused("evidence", "fetch")[1]
    monkeypatch.setattr(release, "BUILT", tmp_path / "evidence.txt")
    release.BUILT.write_text(f"{sha256(archive.read_bytes())}  http://127.0.0.1:9/{archive.name}\n")
    assert run("evidence", "fetch")[0] == 2  # https alone
    release.BUILT.write_text(release.BUILT.read_text().replace("http:", "https:"))
    _, err = run.failed("evidence", "fetch")
    assert err.count("\n") == 1
    assert "cannot be read: [Errno 111]" in err
    asked = []

    def urlopen(address, timeout):
        asked.append(address)
        return archive.open("rb")

    monkeypatch.setattr(release.urllib.request, "urlopen", urlopen)
    assert run("evidence", "fetch")[0] == 0
    assert asked == [f"https://127.0.0.1:9/{archive.name}"]
    assert (installed / VERSION / "evidence" / "0001-aa" / "cells.parquet").read_bytes() == b"cells"


def test_its_absence_is_said_once(archive, installed, run):
    _, err = run.ok("list", "runs")
    assert err.count(LINE) == 1
    assert "icl-lab evidence fetch" in err
    assert LINE not in run("claims", "ssa-table1")[2]  # in the same process


@pytest.mark.parametrize("words", few(1, [COMPARE, ["claims"]]))
def test_its_absence_is_not_said_where_nobody_misses_it(archive, installed, run, words, monkeypatch):
    assert run(*words)[2].count(LINE) == 1
    unsaid = ["unsaid: the repository's runs"]
    monkeypatch.setattr(places, "UNSAID", unsaid)
    if words[0] == "compare":
        assert LINE not in run(*words, "--no-evidence")[2]
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    assert LINE not in run(*words)[2]
    monkeypatch.delenv("ICL_LAB_EVIDENCE")
    release.fetch(archive)
    assert LINE not in run(*words)[2]
    assert len(unsaid) == 1


def test_runs_are_never_added_to_what_was_fetched(archive, installed, run):
    root = release.fetch(archive)
    before = (root / "index.json").read_bytes()
    archives.PLACE.parent.mkdir()
    assert run("evidence", "add")[0] == 0
    assert (root / "index.json").read_bytes() == before
    assert archives.PLACE.is_dir()


def test_a_release_packs_what_git_holds_and_nothing_else(tmp_path):
    root = tmp_path / "repository"
    for name in ("results/evidence/index.json", "results/evidence/.lock", "results/own.csv", "results/ü 1.csv", "x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "x", "results/evidence", "results/ü 1.csv"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    data = releases.packed(root)
    os.utime(root / "results" / "evidence" / "index.json", (1, 1))
    assert releases.packed(root) == data
    files = release._unpacked(data)
    assert files == {name: f"results/{name}".encode() for name in ("evidence/index.json", "ü 1.csv")}
    (root / "results" / "ü 1.csv").write_text("changed")
    with pytest.raises(SystemExit, match="commit it first"):
        releases.packed(root)
