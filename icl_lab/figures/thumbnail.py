"""A picture made small enough to stand in a list."""

import io
from pathlib import Path

from PIL import Image, UnidentifiedImageError

MOST_PIXELS = 40_000_000  # of a picture that is opened for this


def thumbnail(path: Path, width: int = 176, height: int = 120) -> bytes | None:
    """Returns a PNG that fits ``width`` times ``height`` pixels; None where the file is no picture that can be read."""
    try:
        with Image.open(path) as picture, io.BytesIO() as file:
            if picture.width * picture.height > MOST_PIXELS:
                return None
            small = picture.convert("RGB")
            small.thumbnail((width, height))
            small.quantize(64).save(file, "png", optimize=True)
            return file.getvalue()
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError):  # what a damaged picture can raise
        return None
