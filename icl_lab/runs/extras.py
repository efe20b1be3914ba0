"""The extras of the package: purpose, requirements, and missing packages."""

import importlib.metadata
import re
import tomllib
from collections.abc import Mapping

from icl_lab.base.version import PACKAGE

PROJECT = PACKAGE.parent / "pyproject.toml"
# What needs an extra; a test holds these to the extras that the package declares.
PURPOSES = {
    "hf": "normalizers inside Hugging Face models: `icl_lab.transformers`, `icl-lab lm`, `export-hf`",
    "ray": "`--engine ray` of every command that takes `--jobs`",
    "track": "`--track trackio` and `--track tensorboard` of every command that trains",
    "notebook": "the notebooks of `docs/tutorials/`, and `grid.to_xarray()`",
    "sklearn": "decision trees and boosting as references (`regression:function=tree,trees=greedy`), images of digits",
    "docs": "`make docs`",
    "dev": "`make test` and `make check`",
}


def requirements() -> dict[str, list[str]]:
    """Return the packages that each extra adds, as declared by the checkout or by the installed package."""
    if PROJECT.exists():
        declared = tomllib.loads(PROJECT.read_text(encoding="utf-8")).get("project", {})
        if declared.get("name") == "icl_lab":
            return _whole(declared.get("optional-dependencies", {}))
    try:
        metadata = importlib.metadata.metadata("icl_lab")
    except importlib.metadata.PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {extra: [] for extra in metadata.get_all("Provides-Extra") or []}
    for line in metadata.get_all("Requires-Dist") or []:
        package, _, marker = line.partition(";")
        if extra := re.search(r"""extra == ['"]([\w-]+)['"]""", marker):
            packages[extra[1]].append(package.strip())
    return _whole(packages)


def missing(needs: list[str]) -> list[str]:
    """Return those of these packages that are not installed."""
    return [need for need in needs if not installed(_name(need))]


def installed(name: str) -> bool:
    """True if a package is installed, under the name that it is installed by."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _whole(declared: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The extras, those within one another written out."""
    packages: dict[str, list[str]] = {}
    for extra, needs in declared.items():
        packages[extra] = []
        for need in needs:
            inside = re.fullmatch(r"icl[_-]lab\[([\w,\s-]+)\]", need)
            names = inside[1].split(",") if inside else []
            packages[extra] += [line for name in names for line in declared.get(name.strip(), [])] if inside else [need]
    return packages


def _name(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[(]", requirement.strip(), maxsplit=1)[0]
