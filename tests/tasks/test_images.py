"""Images: patches, shifts and splits by hand, what is read from folders and files, and what is refused."""

import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs import estimate
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.tasks import pictures as reading
from icl_lab.tasks.images import translated
from icl_lab.testing.tasks import CHECKS

UP = np.arange(16, dtype=np.uint8).reshape(4, 4)
SD = 21.25**0.5  # of 0 .. 15, whose mean is 7.5
BLACK = -7.5 / SD


def stored(path, **arrays):
    """An .npz file of two classes: rising and falling 4 x 4 images."""
    x, y = np.stack([UP, UP[::-1, ::-1]]), np.array([0, 1])
    np.savez(path, **{"x_train": x, "y_train": y, "x_test": x, "y_test": y} | arrays)
    return path


def folder(place, classes=("cat", "dog"), count=6, size=(4, 4), mode="L", kind="png"):
    rng = np.random.default_rng(0)
    for name in classes:
        (place / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (*size[::-1], *([3] if mode == "RGB" else [])), dtype=np.uint8)
            Image.fromarray(pixels).save(place / name / f"{number}.{kind}")
    return place


@pytest.fixture
def four(tmp_path):
    """The task of the 4 x 4 images."""
    return tasks.build(f"images:folder={stored(tmp_path / 'four.npz')}")


def rising(task, prompts=16, **shift):
    """Images (b 4 4) of the rising class, in the units of the file, and the draws' prompt."""
    prompt = task.sample(stream(0, "images"), prompts, 4, **shift)
    images = torch.stack([task.picture(type(prompt)(*(part[at : at + 1] for part in parts(prompt))))[..., 0]
                          for at in range(prompts)])  # fmt: skip
    return images[prompt.targets[:, -1] == 0]


def parts(prompt):
    return prompt.tokens, prompt.targets, prompt.scored


def test_patches_stand_row_by_row_before_the_class_token(four):
    prompt = four.sample(stream(0, "images"), 2, 4)
    order = int(prompt.targets[1, -1] == 0)
    by_hand = torch.tensor([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
    torch.testing.assert_close(prompt.tokens[order, :4], (by_hand - 7.5) / SD)
    assert (prompt.tokens[:, 4] == 0).all()
    assert prompt.targets[:, -1].sort().values.tolist() == [0, 1]
    assert prompt.scored.tolist() == [[False, False, False, False, True]] * 2
    assert (four.grid, four.width, four.outputs, four.tokens(4), four.asked(4)) == ((2, 2), 4, 2, 5, [4])
    torch.testing.assert_close(rising(four)[0] * SD + 7.5, torch.from_numpy(UP).float())


def test_an_image_is_moved_left_right_up_and_down():
    moved = translated(torch.from_numpy(UP).expand(4, 1, 4, 4), torch.arange(4), 1)[:, 0]
    assert moved[0].tolist() == [[1, 2, 3, 0], [5, 6, 7, 0], [9, 10, 11, 0], [13, 14, 15, 0]]
    assert moved[1].tolist() == [[0, 0, 1, 2], [0, 4, 5, 6], [0, 8, 9, 10], [0, 12, 13, 14]]
    assert moved[2].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [0, 0, 0, 0]]
    assert moved[3].tolist() == [[0, 0, 0, 0], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    far = translated(torch.from_numpy(UP).expand(1, 1, 4, 4), torch.zeros(1, dtype=torch.long), 3)
    assert far[0, 0].tolist() == [[3, 0, 0, 0], [7, 0, 0, 0], [11, 0, 0, 0], [15, 0, 0, 0]]


def test_what_comes_in_is_black_and_every_way_is_drawn(four):
    images = rising(four, 200, translation=1.0)
    edges = torch.stack([images[:, :, 3], images[:, :, 0], images[:, 3], images[:, 0]])
    came = ((edges - BLACK).abs() < 1e-5).all(2).sum(1)
    assert (came > 10).all()  # of a hundred images a quarter each way
    assert came.sum() == len(images)


def test_contrast_multiplies_the_distance_from_the_mean(four):
    torch.testing.assert_close(rising(four, contrast=0.5)[0], 0.5 * (torch.from_numpy(UP) - 7.5) / SD)


@pytest.mark.slow
def test_noise_is_added_in_units_of_the_pixels(four):
    noise = rising(four, 2000, noise=2.0) - rising(four, 2000)
    assert noise.std().item() == pytest.approx(2, rel=0.03)
    assert noise.mean().item() == pytest.approx(0, abs=0.05)
    torch.testing.assert_close(rising(four, 2000, noise=4.0) - rising(four, 2000), 2 * noise, rtol=1e-3, atol=1e-5)


def test_channels_are_scaled_by_themselves_and_stand_in_turn(tmp_path):
    colours = np.stack([UP, np.full((4, 4), 9), UP.T], 2).astype(np.float64)
    path = stored(tmp_path / "x.npz", **{name: np.stack([colours] * 2) for name in ("x_train", "x_test")})
    task = tasks.build(f"images:folder={path},patch=4")
    first = task.sample(stream(0, "images"), 1, 1)
    assert (task.width, task.patches) == (48, 1)
    expected = (torch.from_numpy(np.stack([UP, UP.T])).float() - 7.5) / SD
    torch.testing.assert_close(first.tokens[0, 0].view(3, 4, 4)[[0, 2]], expected)
    assert (first.tokens[0, 0].view(3, 4, 4)[1] == 0).all()  # a channel of one number has no spread
    assert task.picture(first).shape == (4, 4, 3)


def test_digits_are_held_out_by_class_and_for_good():
    task = tasks.build("digits")
    (train, kinds), (held, others) = task.pictures.training, task.pictures.held_out
    assert (len(train), len(held)) == (1442, 355)
    every = torch.cat((train, held)).flatten(1)
    assert len(every.unique(dim=0)) == 1797  # disjoint, and no image stands twice
    counts = torch.bincount(torch.cat((kinds, others)))
    assert torch.bincount(others).tolist() == (counts // 5).tolist()
    assert task.pictures.sha[:12] == "65e5b4619795"
    assert others[:10].tolist() == [1, 3, 9, 2, 3, 7, 5, 3, 0, 2]  # the split of every stored run
    drawn = task.sample(stream(0, "x"), 2000, 16).tokens[:, :-1].flatten(1)
    tested = task.suites()[""].sample(stream(0, "x"), 2000, 16).tokens[:, :-1].flatten(1)
    assert not torch.cdist(drawn, tested).lt(1e-3).any()
    assert len(drawn.unique(dim=0)) == len(train)  # every image once before any twice
    assert (drawn.mean().item(), drawn.std().item()) == pytest.approx((0, 1), abs=0.02)


def test_references_by_hand(four):
    prompt = four.suites()[""].sample(stream(0, "x"), 32, 4)
    answers = {name: rule(prompt)[:, -1] for name, rule in four.references().items()}
    for name in ("1-nn", "nearest-mean"):  # training has the same two images
        assert torch.equal(answers[name].argmax(1).float(), prompt.targets[:, -1])
    torch.testing.assert_close(answers["majority"].softmax(1), torch.full((32, 2), 0.5))
    away = prompt.tokens.clone()
    away[:, :-1] *= 3
    shifted = replace(prompt, tokens=away)
    mean = four.references()["nearest-mean"](shifted)[0, -1]
    own, other = 2 * SD * 4 / SD, ((4 * 4 * SD) ** 2) ** 0.5 / SD  # |3x - x| and |3x + x| of a vector of length 4 sd
    torch.testing.assert_close(mean.sort().values, -torch.tensor([other, own]), rtol=1e-4, atol=1e-4)


def test_the_class_token_sees_and_moves_every_patch():
    for mask in ("causal", "full"):
        spec, task = resolve("digits", "sima", "smoke", [f"model.mask={mask}"]), tasks.build("digits")
        model, prompt = spec.untrained(task, 0), task.sample(stream(0, "x"), 2, 16)
        tokens = prompt.tokens.requires_grad_()
        found = model.trace(prompt.tokens.detach())["layers.0.weights"][:, :, -1]
        assert (found != 0).all()
        outputs = model(tokens, answers=task.answers)
        (gradient,) = torch.autograd.grad(task.loss(outputs, prompt), tokens)
        assert (gradient.abs().sum(2) > 0).all()
        assert isinstance(model, GPT2)


def test_the_class_and_the_patches_in_words(four):
    prompt = four.sample(stream(0, "x"), 1, 4)
    marks, truth = four.marks(prompt), int(prompt.targets[0, -1])
    assert [mark.role for mark in marks] == ["patch"] * 4 + ["class"]
    middle = [2.5, 4.5, 10.5, 12.5] if truth == 0 else [12.5, 10.5, 4.5, 2.5]
    assert [mark.value for mark in marks[:4]] == pytest.approx([(x - 7.5) / SD for x in middle])
    outputs = torch.zeros(1, 5, 2)
    outputs[0, 4, 1 - truth] = 1
    assert four.words(outputs, prompt, 4) == (str(1 - truth), str(truth))


@pytest.mark.parametrize(("mode", "kind", "width"), [("L", "png", 4), ("RGB", "png", 12), ("RGB", "jpeg", 12)])
def test_a_folder_of_folders_is_read(tmp_path, mode, kind, width):
    place = folder(tmp_path / "own", count=7, mode=mode, kind=kind)
    (place / "notes.txt").write_text("not a class")
    (place / "empty").mkdir()
    task = tasks.build(f"images:folder={place}")
    assert (task.width, task.outputs, task.pictures.classes) == (width, 2, ("cat", "dog"))
    assert [len(labels) for _, labels in (task.pictures.training, task.pictures.held_out)] == [12, 2]
    if kind == "png":
        own = {np.asarray(Image.open(path)).tobytes() for path in place.glob("cat/*.png")}
        images, labels = task.pictures.training
        assert {image.movedim(0, 2).numpy().tobytes() for image in images[labels == 0]} < own


@pytest.mark.parametrize(("mode", "channels"), [("RGBA", 3), ("LA", 3)])
def test_an_opaque_image_is_read_with_its_colours(tmp_path, mode, channels):
    place = folder(tmp_path / "own")
    Image.new(mode, (4, 4), (9, 9, 9, 255)[-len(mode) :]).save(place / "dog" / "9.png")
    assert tasks.build(f"images:folder={place}").pictures.shape == (channels, 4, 4)


def test_files_of_other_endings_are_counted(tmp_path):
    place = folder(tmp_path / "own")
    for name in ("cat/1.webp", "cat/2.WEBP", "dog/notes.txt", "dog/LICENSE", "dog/.hidden"):
        (place / name).write_bytes(b"x")
    (place / "dog" / "more").mkdir()
    words = "own: left out, neither .png nor .jpeg: 2 .webp, 1 file without an ending, 1 folder, 1 .txt"
    with pytest.warns(UserWarning, match=f"{words}$"):
        assert tasks.build(f"images:folder={place}").pictures.classes == ("cat", "dog")


def test_a_command_says_what_is_left_out_in_one_line(tmp_path, run, monkeypatch):
    place = folder(tmp_path / "own")
    (place / "dog" / "1.webp").write_bytes(b"x")
    monkeypatch.setattr(warnings, "formatwarning", None)
    with pytest.warns(UserWarning, match="left out") as said:
        run.ok("sweep", "--task", f"images:folder={place},patch=4", "--attn", "ssa", "--preset", "smoke", "--dry-run")
    lines = [warnings.formatwarning(each.message, each.category, each.filename, each.lineno) for each in said]
    assert lines == [f"icl-lab: {place}: left out, neither .png nor .jpeg: 1 .webp\n"]


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_an_image_is_turned_as_its_exif_says(tmp_path, kind):
    """Its SHA-256 is another one than where it was read as it is stored; without EXIF it is the same as ever."""
    place = folder(tmp_path / "own", size=(6, 4), kind=kind)
    before = tasks.build(f"images:folder={place}").pictures
    upright = np.full((4, 6), 40, np.uint8)
    upright[:, 3:] = 200
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a quarter to the right, when it is shown
    Image.fromarray(np.rot90(upright)).save(place / "dog" / f"9.{kind}", exif=exif)
    after = tasks.build(f"images:folder={place}").pictures
    assert after.shape == before.shape == (1, 4, 6)
    images = torch.cat([after.training[0], after.held_out[0]])[:, 0].float()
    assert min((image - torch.tensor(upright)).abs().max() for image in images) < 10
    files = hashlib.sha256()
    for path in sorted(place.glob("*/*")):
        data = path.read_bytes()
        files.update(f"{path.parent.name}/{path.name}/{len(data)}/".encode() + data)
    assert after.sha != files.hexdigest()
    (place / "dog" / f"9.{kind}").unlink()
    assert tasks.build(f"images:folder={place}").pictures.sha == before.sha


def test_images_of_ones_own_keep_the_contract(tmp_path):
    place = folder(tmp_path / "own", size=(6, 4))
    for check in CHECKS:
        check(f"images:folder={place}")


def test_two_versions_of_a_folder_are_two_tasks(tmp_path):
    place = folder(tmp_path / "own")
    first = tasks.pinned(f"images:folder={place}")
    assert first == tasks.pinned(first) == f"images:folder={place},sha={tasks.build(first).pictures.sha[:12]}"
    assert tasks.reads(first) == {str(place): tasks.build(first).pictures.sha}
    (place / "cat" / "0.png").rename(place / "cat" / "9.png")
    (place / "cat" / "more.jpg").write_bytes((place / "cat" / "1.png").read_bytes())
    assert tasks.pinned(f"images:folder={place}") != first
    with pytest.raises(BadValue, match="has changed: its SHA-256 begins with"):
        resolve(first, "softmax", "smoke")
    assert tasks.pinned("images") == "images"
    assert tasks.pinned("digits:patch=4") == "digits:patch=4"


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"
CAT, DOG, MORE = "cat", "dog", "dog/9.png"


def plain(*, size=(4, 4), mode="L", value=0, **saved):
    """Add an image to a folder."""
    return lambda place: Image.new(mode, size, value).save(place / MORE, **saved)


def data(whole):
    """Add a file of these bytes."""
    return lambda place: (place / MORE).write_bytes(whole)


def without(*names):
    """Take classes or images away."""

    def remove(place):
        for name in names:
            shutil.rmtree(place / name) if (place / name).is_dir() else (place / name).unlink()

    return remove


def half(place):
    data((place / "cat" / "0.png").read_bytes()[:50])(place)


def many_bits(place):
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(place / MORE)


def an_archive(place):
    shutil.rmtree(place)
    place.write_text("x")


def other_endings(place):
    for path in (place / "dog").iterdir():
        path.rename(path.with_suffix(".webp"))


def endless_bytes(place):
    with (place / MORE).open("wb") as file:
        file.truncate(reading.BYTES + 1)


def bomb(place):
    """A PNG of 20,000 x 20,000 pixels in a header, and next to nothing in it."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    parts = (head, b"IDAT" + zlib.compress(bytes(100)), b"IEND")
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    (place / MORE).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def bad_chunk(place):
    plain()(place)
    whole, chunk = (place / MORE).read_bytes(), b"iCCPabc"
    data(whole[:33] + struct.pack(">I", 3) + chunk + struct.pack(">I", zlib.crc32(chunk)))(place)


FOLDERS = {
    "no folder": (without(""), "There is no folder of images and no .npz file"),
    "no class": (without(*(f"{name}/{n}.png" for name in (CAT, DOG) for n in range(6))), "has images of 0 classes: it"),
    "one class": (without(DOG), "has images of 1 classes"),
    "few images": (without("dog/0.png", "dog/1.png"), "has 4 images of the class 'dog': it takes 5 or more"),
    "another size": (plain(size=(4, 6)), r"9.png has 6 x 4 pixels and .*0.png has 4 x 4: make them one size"),
    "half an image": (half, "9.png is no image that can be read"),
    "16 bits": (many_bits, "9.png has more than 8 bits a pixel"),
    "no archive": (an_archive, "is no .npz file that can be read"),
    "webp": (other_endings, "dog holds no .png and no .jpeg file, and the class would be left out: it has 6 .webp."),
    "postscript": (data(POSTSCRIPT), "neither PNG nor JPEG"),
    "gif": (plain(format="gif"), "neither PNG nor JPEG"),
    "a pipe": (lambda place: os.mkfifo(place / MORE), "pipe or a device"),
    "a device": (lambda place: (place / MORE).symlink_to("/dev/zero"), "pipe or a device"),
    "endless bytes": (endless_bytes, "at most 67,108,864 are read"),
    "a bomb": (bomb, "400,000,000 pixels|decompression bomb"),
    "a bad chunk": (bad_chunk, "no image that can be read"),
    "clear": (plain(mode="RGBA", value=(9, 9, 9, 0)), r"9\.png is no image that .* read: it has transparent pixels"),
    "nearly opaque": (plain(mode="RGBA", value=(9, 9, 9, 254)), "transparent pixels"),
    "clear grey": (plain(mode="LA", value=(9, 0)), "transparent pixels"),
    "a clear colour of a palette": (plain(mode="P", transparency=0), "transparent pixels"),
}


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
@pytest.mark.parametrize(("spoil", "words"), FOLDERS.values(), ids=FOLDERS)
def test_what_is_no_folder_of_images_is_one_line(tmp_path, monkeypatch, recwarn, spoil, words):
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: pytest.fail(f"a program was started: {words}"))
    spoil(folder(tmp_path / "own"))
    with pytest.raises(BadValue, match=words) as refused:
        resolve(f"images:folder={tmp_path / 'own'}", "softmax", "smoke")
    assert "\n" not in str(refused.value)
    assert not recwarn


def test_a_file_of_more_than_memory_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST", 100)
    for source in (stored(tmp_path / "x.npz"), folder(tmp_path / "own")):
        with pytest.raises(BadValue, match="held in memory, at most 100"):
            tasks.build(f"images:folder={source}").pictures  # noqa: B018


@pytest.mark.parametrize("choice", ["digits", "images", "digits:patch=4,part=held-out"])
def test_without_scikit_learn_runs_are_planned_and_none_is_drawn(monkeypatch, choice):
    spec = resolve(choice, "softmax", "smoke")
    known = estimate.size_of(spec), estimate.training_operations(spec), estimate.test_operations(spec)
    reading._digits.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    again = resolve(choice, "softmax", "smoke")
    assert again == spec
    assert (estimate.size_of(again), estimate.training_operations(again), estimate.test_operations(again)) == known
    with pytest.raises(BadValue, match=r"the digits come with scikit-learn: pip install 'icl_lab\[sklearn\]'"):
        tasks.build(choice).sample(stream(0, "test"), 1, tasks.build(choice).patches)


def test_who_lists_runs_opens_no_image(tmp_path, monkeypatch, run):
    spec = resolve(f"images:folder={folder(tmp_path / 'own')}", "softmax", "smoke")
    begun = Store(tmp_path / "results").run(spec, 0)
    begun.begin()
    (begun.folder / "grid.csv").write_text("")
    monkeypatch.setattr("icl_lab.tasks.images.pictures", lambda source: pytest.fail("an image was opened"))
    assert [each.spec for each in Store(tmp_path / "results").runs()] == [spec]
    out, _ = run.ok("list", "runs", "--results", str(tmp_path / "results"))
    assert spec.task in out


def member(data, compression=zipfile.ZIP_DEFLATED, name="x_train.npy"):
    """An archive of four arrays, one of which is these bytes."""
    file, arrays = io.BytesIO(), {"x": np.stack([UP, UP]), "y": np.array([0, 1])}
    with zipfile.ZipFile(file, "w") as archive:
        for each in ("x_train", "y_train", "x_test", "y_test"):
            array = io.BytesIO()
            np.save(array, arrays[each[0]])
            own = f"{each}.npy" == name
            archive.writestr(f"{each}.npy", data if own else array.getvalue(), compression if own else None)
    return file.getvalue()


def header(text, data=b""):
    text = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def bent(data, place, values):
    """Bytes with others in their place."""
    return data[:place] + values + data[place + len(values) :]


def with_method(number):
    """An archive whose last member says that it was packed by this method."""
    data = member(ARRAY, zipfile.ZIP_STORED)
    return bent(data, data.rindex(b"PK\x01\x02") + 10, struct.pack("<H", number))


SHAPE = "{{'descr': '{}', 'fortran_order': False, 'shape': {}}}"
ARRAY = header(SHAPE.format("|u1", "(2, 4, 4)"), bytes(range(32)))
DAMAGES = {
    "no magic": member(b"nothing of numpy"),
    "no bytes": member(b""),
    "half a magic": member(b"\x93NUM"),
    "a shape of 10^30": member(header(SHAPE.format("|u1", f"({10**30}, 4, 4)"))),
    "a shape of 10^14": member(header(SHAPE.format("|u1", f"({10**14}, 4, 4)"))),
    "a negative shape": member(header(SHAPE.format("|u1", "(-2, 4, 4)"))),
    "a header of brackets": member(header("(" * 5000)),
    "a header without an end": member(header("{'descr': '''")),
    "a header of no words": member(header("")),
    "an unknown type": member(header(SHAPE.format("|z9", "(2, 4, 4)"))),
    "objects": member(header(SHAPE.format("|O", "(2, 4, 4)"))),
    "text": member(header(SHAPE.format("<U4", "(2, 4, 4)"), bytes(512))),
    "too few numbers": member(ARRAY[:-5]),
    "bent deflate": bent(member(ARRAY), member(ARRAY).index(b"x_train.npy") + 11, b"\xff" * 8),
    "bzip2 that is none": with_method(12),
    "lzma that is none": with_method(14),
    "a method of nobody": with_method(77),
    "encrypted": bent(member(ARRAY), member(ARRAY).rindex(b"PK\x01\x02") + 8, struct.pack("<H", 1)),
    "no archive": b"PK\x03\x04 and nothing after it",
}


LARGE = np.stack([UP, UP]).astype(float)
LARGE[0, 0, 0] = 1e300
ARRAYS = {
    r"x_train of .* is float64 \(2, 16\): images are": {"x_train": np.zeros((2, 16))},
    "x_test of .* images are finite numbers": {"x_test": np.full((2, 4, 4), np.nan)},
    "x_train of .* images are finite numbers": {"x_train": np.zeros((2, 0, 4))},
    "no .npz file that can be read: Object arrays": {"x_train": np.array([None, "x"])},
    r"\(1, 4, 4\) and \(1, 4, 6\): make them one": {"x_test": np.zeros((2, 4, 6))},
    "labels are whole numbers, one for each image": {"y_train": np.array([0, 1, 1])},
    "labels are whole numbers": {"y_train": np.array([0.0, 1.0])},
    "y_test of .* has the label 2, those of y_train end at 1": {"y_test": np.array([[0], [2]])},
    "labels from -1 to 0: they are from 0 to 9,999": {"y_train": np.array([0, -1])},
    "labels from 0 to 10000": {"y_train": np.array([0, 10_000])},
    "x_train of .* too large for single precision": {"x_train": LARGE},
    "x_test of .* too large for single precision": {"x_test": LARGE},
    "one class: it takes two or more": {"y_train": np.array([0, 0]), "y_test": np.array([0, 0])},
}
FILES = {words: (lambda path, arrays=arrays: stored(path, **arrays), words) for words, arrays in ARRAYS.items()}
FILES |= {name: (lambda path, whole=whole: path.write_bytes(whole), r"x\.npz") for name, whole in DAMAGES.items()}
FILES["three arrays missing"] = (
    lambda path: np.savez(path, x_train=np.zeros((2, 4, 4)), labels=[0, 1]),
    "lacks y_train, x_test, y_test: it takes x_train, y_train, x_test, y_test",
)


@pytest.mark.parametrize(("write", "words"), FILES.values(), ids=FILES)
def test_what_is_no_such_file_is_one_line(tmp_path, recwarn, write, words):
    write(tmp_path / "x.npz")
    with pytest.raises(BadValue, match=words) as refused:
        resolve(f"images:folder={tmp_path / 'x.npz'}", "softmax", "smoke")
    assert "\n" not in str(refused.value)
    assert not recwarn


def test_images_written_over_are_read_again(tmp_path):
    """One file in the same folder, of the same size in bytes and with the time of the old one."""
    place = folder(tmp_path / "own")
    choice = f"images:folder={place}"
    before, file = tasks.build(choice).pictures, place / "cat" / "0.png"
    was, data = file.stat(), file.read_bytes()
    other = folder(tmp_path / "other") / "dog" / "3.png"
    file.write_bytes(other.read_bytes())
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    after = tasks.build(choice).pictures
    assert file.stat().st_size == was.st_size
    assert file.read_bytes() != data
    assert after.sha != before.sha
    seen = {tuple(image.flatten().tolist()) for part in (after.training, after.held_out) for image in part[0]}
    assert tuple(np.asarray(Image.open(other)).flatten().tolist()) in seen
