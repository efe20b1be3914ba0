"""Labelled images as tensors: the digits of scikit-learn, a folder or an .npz file, and which of them are held out."""

import hashlib
import importlib.util
import io
import lzma
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, first_line
from icl_lab.base.rng import stream

EACH = 5  # of a class: one in this number of images is held out, where no file says which
KINDS = (".png", ".jpg", ".jpeg")
DECODERS = ("PNG", "JPEG")  # others start programs (PostScript), whatever a file is called
MOST = 2**31  # numbers of all images: they are held in memory
TURNED = range(2, 9)  # EXIF orientations of an image that is stored mirrored or turned
ALPHA = ("RGBA", "LA", "PA")
PIXELS = 2**24  # of an image
BYTES = 2**26  # of its file
# All that Pillow raises on bytes that are not an image, and numpy and zipfile on those that are not an archive.
MISFIT = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, SyntaxError, EOFError),
    *(NotImplementedError, RuntimeError, MemoryError, Image.DecompressionBombError),
    *(struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tokenize.TokenError),
)
CLASSES = 10_000
HALVES = ("train", "test")  # of an .npz file
DIGITS = "the digits of scikit-learn"

Labelled = tuple[Tensor, Tensor]  # images (n c h w) as they are stored, labels (n)


@dataclass(frozen=True)
class Pictures:
    """Images of a training and a held-out part, all of one size, with the names of their classes."""

    name: str
    sha: str  # SHA-256 of the bytes read
    classes: tuple[str, ...]
    training: Labelled
    held_out: Labelled

    def part(self, name: str) -> Labelled:
        """Return the images of ``train`` or ``held-out``."""
        return self.training if name == "train" else self.held_out

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        c, h, w = self.training[0].shape[1:]
        return c, h, w

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel over the training images, (c 1 1)."""
        found = [torch.std_mean(self.training[0][:, channel].float(), correction=0) for channel in range(self.shape[0])]
        sd, mean = torch.tensor(found).view(-1, 2, 1, 1).unbind(1)
        return mean, sd.where(sd > 0, 1)  # a channel of one number alone is 0 everywhere

    def scaled(self, images: Tensor) -> Tensor:
        """Images (b c h w) as they are stored -> each channel with mean 0 and standard deviation 1 in training."""
        mean, sd = self._moments
        return (images.float() - mean) / sd


def pictures(source: str) -> Pictures:
    """Read a folder with a folder of images for each class, or an .npz file; the digits from an empty name.

    Read again only where a folder or a file has changed. Warns of files that are left out because of their
    ending. Raises ``BadValue`` on what cannot be read, on a class that would be left out with its files, on images of
    different sizes, on classes of too few images, and on labels that training does not have.
    """
    return _pictures(source, _state(source)) if source else _digits()


def _state(source: str) -> tuple[object, ...]:
    """Path, and name, change and size of all that lies there; nothing where it cannot be asked: the reader says so."""
    try:
        place = Path(source)
        inside = sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
        found = [(each, each.stat()) for folder in inside for each in (folder, *sorted(folder.iterdir()))]
        # Of a file that is written over the time may be kept (rsync), not that of its change.
        return (
            str(place.absolute()),
            *((each, at.st_ctime_ns, at.st_size) for each, at in [(place, place.stat()), *found]),
        )
    except (OSError, ValueError):
        return ()


@lru_cache(maxsize=4)
def _pictures(source: str, state: tuple[object, ...]) -> Pictures:
    try:
        place = Path(source)
        if place.is_dir():
            return _folder(place)
        if place.is_file():
            return _npz(place)
    except (OSError, ValueError) as error:
        raise BadValue(f"{source} cannot be read: {first_line(error)}.") from None
    raise BadValue(f"There is no folder of images and no .npz file '{source}' here.")


@lru_cache(maxsize=1)
def _digits() -> Pictures:
    if importlib.util.find_spec("sklearn") is None:
        raise BadValue("the digits come with scikit-learn: pip install 'icl_lab[sklearn]'.")
    from sklearn.datasets import load_digits

    read = load_digits()
    images, labels = read.images.astype(np.uint8)[:, None], read.target.astype(np.int64)
    sha = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    return _split(DIGITS, sha, [str(name) for name in read.target_names], images, labels)


def _folder(place: Path) -> Pictures:
    found, left = list[tuple[str, list[Path]]](), Counter[str]()
    for folder in (each for each in sorted(place.iterdir()) if each.is_dir() and not each.name.startswith(".")):
        there = sorted(folder.iterdir())
        inside = [each for each in there if each.suffix.lower() in KINDS]
        # Hidden files are the system's.
        others = Counter(
            _kind(each) for each in there if each.suffix.lower() not in KINDS and not each.name.startswith(".")
        )
        if others and not inside:
            raise BadValue(
                f"{folder} holds no .png and no .jpeg file, and the class would be left out: it has {_counted(others)}."
            )
        left += others
        found += [(folder.name, inside)] * bool(inside)
    if left:
        warnings.warn(f"{place}: left out, neither .png nor .jpeg: {_counted(left)}", stacklevel=2)
    if len(found) < 2:
        raise BadValue(
            f"{place} has images of {len(found)} classes: it takes two folders or more, one a class, "
            "with .png or .jpeg files in them."
        )
    every = [(label, path) for label, (_, inside) in enumerate(found) for path in inside]
    digest, read = hashlib.sha256(), list[Image.Image]()
    for label, path in every:
        data = foreign.read(path, BYTES)
        digest.update(f"{found[label][0]}/{path.name}/{len(data)}/".encode() + data)
        image, turned = _image(path, data, len(every))
        read.append(image)
        if turned:  # runs that saw it as it is stored are others
            digest.update(b"/turned")
        if read[-1].size != read[0].size:
            (w, h), (columns, rows) = read[-1].size, read[0].size
            raise BadValue(f"{path} has {h} x {w} pixels and {every[0][1]} has {rows} x {columns}: make them one size.")
    grey = all(image.mode in ("1", "L") for image in read)
    arrays = [np.asarray(image.convert("L" if grey else "RGB")).reshape(*image.size[::-1], -1) for image in read]
    images = np.ascontiguousarray(np.stack(arrays).transpose(0, 3, 1, 2))
    labels = np.array([label for label, _ in every])
    return _split(str(place), digest.hexdigest(), [name for name, _ in found], images, labels)


def _kind(path: Path) -> str:
    """The ending of a file, or that it is a folder."""
    return "folder" if path.is_dir() else path.suffix.lower() or "file without an ending"


def _counted(kinds: Counter[str]) -> str:
    """Return the number of each kind, the most frequent first.

    >>> _counted(Counter({".webp": 3, ".txt": 1}))
    '3 .webp, 1 .txt'
    """
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _image(path: Path, data: bytes, count: int) -> tuple[Image.Image, bool]:
    """One of ``count`` images, upright, and whether its EXIF orientation had to turn it for that.

    Raises ``BadValue`` where it is not a PNG or JPEG, or all would take too much memory.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # refused below
            image: Image.Image = Image.open(io.BytesIO(data), formats=DECODERS)
        if (pixels := image.width * image.height) > min(PIXELS, MOST // (3 * count)):
            raise ValueError(
                f"it has {pixels:,} pixels, at most {PIXELS:,} are read; all {count:,} images are held in memory, "
                f"at most {MOST:,} numbers"
            )
        image.load()
        veiled = image.mode in ALPHA or "transparency" in image.info
        if veiled and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
            raise ValueError("it has transparent pixels: save it on the background that is to be seen")
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in TURNED
        image = ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise BadValue(f"{path} is no image that can be read: it is neither PNG nor JPEG.") from None
    except MISFIT as error:
        raise BadValue(f"{path} is no image that can be read: {first_line(error)}.") from None
    if image.mode.startswith(("I", "F")):
        raise BadValue(f"{path} has more than 8 bits a pixel: save it with 8.")
    return image, turned


def _npz(place: Path) -> Pictures:
    names = [f"{array}_{half}" for half in HALVES for array in ("x", "y")]
    try:
        with zipfile.ZipFile(place) as archive:
            size = sum(each.file_size for each in archive.infolist())
        if size > MOST:
            raise BadValue(f"{place} holds {size:,} bytes; images are held in memory, at most {MOST:,}.")
        data = foreign.read(place, MOST)
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            if missing := [name for name in names if name not in stored]:
                raise BadValue(f"{place} lacks {', '.join(missing)}: it takes {', '.join(names)}.")
            arrays = {name: np.asanyarray(stored[name]) for name in names}
    except MISFIT as error:
        raise BadValue(f"{place} is no .npz file that can be read: {first_line(error)}.") from None
    training, held_out = (_labelled(place, half, arrays[f"x_{half}"], arrays[f"y_{half}"]) for half in HALVES)
    if training[0].shape[1:] != held_out[0].shape[1:]:
        shapes = " and ".join(str(tuple(images.shape[1:])) for images, _ in (training, held_out))
        raise BadValue(f"x_train and x_test of {place} have images (channels, rows, columns) {shapes}: make them one.")
    classes = int(training[1].max()) + 1
    if (label := int(held_out[1].max())) >= classes:
        raise BadValue(
            f"y_test of {place} has the label {label}, those of y_train end at {classes - 1}: no output is its."
        )
    if classes < 2:
        raise BadValue(f"{place} has images of one class: it takes two or more, of which a model tells which it sees.")
    sha = hashlib.sha256(data).hexdigest()
    return Pictures(str(place), sha, tuple(map(str, range(classes))), training, held_out)


def _labelled(place: Path, half: str, x: np.ndarray, y: np.ndarray) -> Labelled:
    """Images (n h w) or (n h w c), labels (n) or (n 1) of an .npz file; raises ``BadValue`` where they are none."""
    if x.ndim not in (3, 4) or 0 in x.shape or x.dtype.kind not in "uif" or not np.isfinite(x).all():
        raise BadValue(f"x_{half} of {place} is {x.dtype} {x.shape}: images are finite numbers (n h w) or (n h w c).")
    if y.shape not in ((len(x),), (len(x), 1)) or y.dtype.kind not in "ui":
        raise BadValue(f"y_{half} of {place} is {y.dtype} {y.shape}: labels are whole numbers, one for each image.")
    if y.min() < 0 or y.max() >= CLASSES:
        raise BadValue(
            f"y_{half} of {place} has labels from {y.min()} to {y.max()}: they are from 0 to {CLASSES - 1:,}."
        )
    x = x.reshape(*x.shape[:3], -1).transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # refused in words
        x = np.ascontiguousarray(x, np.uint8 if x.dtype == np.uint8 else np.float32)
    if not np.isfinite(x).all():
        raise BadValue(f"x_{half} of {place} has numbers that are too large for single precision.")
    return torch.from_numpy(x), torch.from_numpy(y.reshape(-1).astype(np.int64))


def _split(name: str, sha: str, classes: Sequence[str], images: np.ndarray, labels: np.ndarray) -> Pictures:
    """Hold out the last of every ``EACH`` images of a class, in an order that is drawn once and for all."""
    counts = np.bincount(labels)
    if counts.min() < EACH:
        least = int(counts.argmin())
        raise BadValue(
            f"{name} has {counts[least]} images of the class '{classes[least]}': it takes {EACH} or more, "
            f"of which one in {EACH} is held out."
        )
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    order = torch.randperm(len(y), generator=stream(0, "images", "held-out"))
    held = torch.zeros(len(y), dtype=torch.bool)
    for label in range(len(classes)):
        held[order[y[order] == label][EACH - 1 :: EACH]] = True
    return Pictures(name, sha, tuple(classes), (x[~held], y[~held]), (x[held], y[held]))
