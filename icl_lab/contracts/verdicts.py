"""Contracts run on parts: which parts have one, which choices of a part are tried, and what was found."""

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from icl_lab import normalizers, tasks
from icl_lab.errors import BadValue
from icl_lab.option_values import finite, write
from icl_lab.registry import Registry

Check = Callable[[str], None]
AROUND = ("softmax", "lssa")  # the rules that a wrapper is checked around


@dataclass(frozen=True)
class Family:
    """The registries of one contract, and how a choice is built to see whether its options go together."""

    contract: str
    registries: tuple[Registry, ...]
    build: Callable[[str], object]

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of the contract."""
        found: tuple[Check, ...] = importlib.import_module(f"icl_lab.contracts.{self.contract}").CHECKS
        return found


@dataclass(frozen=True)
class Verdict:
    """How one check of one part ended, over all its choices; ``failed`` is empty where it passed."""

    part: str
    check: str
    choices: int
    failed: str = ""


def families() -> list[Family]:
    """Returns the families of parts that have a contract."""
    from icl_lab.contracts.normalizers import build as build_rule

    return [
        Family("normalizers", (normalizers.registry, normalizers.wrappers), build_rule),
        Family("tasks", (tasks.registry,), tasks.build),
    ]


def verdicts(family: Family, registry: Registry, name: str, chosen: str = "") -> Iterator[Verdict]:
    """Runs the contract on a part: on one choice, or with its defaults and every combination of its finite options."""
    tried = [chosen] if chosen else list(choices(family, registry, name))
    for check in family.checks:
        failed = next((f"{choice}: {reason}" for choice in tried if (reason := _reason(check, choice))), "")
        yield Verdict(chosen or name, check.__name__.replace("_", " "), len(tried), failed)


def choices(family: Family, registry: Registry, name: str) -> Iterator[str]:
    """Yields a part with its defaults, and with every combination of the options that have finitely many values.

    A combination that the part itself refuses is left out, and so is one that spells out a default.
    """
    options = registry.options(name)
    values = {key: found for key, option in options.items() if (found := finite(option.annotation))}
    defaults = {f"{key}={write(option.default)}" for key, option in options.items()}
    for picked in itertools.product(*(["", *found] for found in values.values())):
        given = [f"{key}={value}" for key, value in zip(values, picked, strict=True) if value]
        if defaults & set(given):
            continue
        part = name + (":" + ",".join(given) if given else "")
        for choice in [f"{rule}+{part}" for rule in AROUND] if registry is normalizers.wrappers else [part]:
            try:
                family.build(choice)
            except BadValue:
                if not given:
                    yield choice  # its defaults have to work: the checks say what is wrong
                continue
            except Exception:  # a fault of the part, for the checks to report
                pass
            yield choice


def _reason(check: Check, choice: str) -> str:
    """Why a check failed, in one line; empty where it passed."""
    try:
        check(choice)
    except Exception as error:  # any error of the part is a finding, not a reason to stop
        first: Iterable[str] = str(error).splitlines() or [""]
        kind = "" if isinstance(error, AssertionError | BadValue) else f"{type(error).__name__}: "
        return f"{kind}{next(iter(first))}"
    return ""
