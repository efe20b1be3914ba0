"""The numbers that normalizers learn, as histories and models name them: ``s 0.1`` is s of layer 0, head 1."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Place(NamedTuple):
    """A learned number: its name in the formula, its layer and its head."""

    name: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.name} {self.layer}.{self.head}"


def places(keys: Iterable[str]) -> Iterator[tuple[str, Place]]:
    """Yield the keys of learned parameters, each with its name, layer and head.

    >>> [(key, *place) for key, place in places(["step", "loss", "s 0.1"])]
    [('s 0.1', 's', 0, 1)]
    """
    for key in keys:
        name, space, place = key.rpartition(" ")
        if space:
            layer, _, head = place.partition(".")
            yield key, Place(name, int(layer), int(head))
