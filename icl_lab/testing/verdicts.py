"""Contracts run on parts: parts with a contract, choices tried, and findings."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from icl_lab import analyses, normalizers, tasks
from icl_lab.base.errors import BadValue, LabError
from icl_lab.base.option_values import finite, write
from icl_lab.base.outside import ImportedFrom
from icl_lab.base.registry import Choice, Registry
from icl_lab.testing.analyses import CHECKS as OF_ANALYSES
from icl_lab.testing.normalizers import CHECKS as OF_NORMALIZERS
from icl_lab.testing.normalizers import build as build_rule
from icl_lab.testing.tasks import CHECKS as OF_TASKS

Check = Callable[[str], None]
AROUND = ("softmax", "lssa")  # the normalizers that a wrapper is checked around


@dataclass(frozen=True)
class PartFamily:
    """The registries and checks of one contract, and how a choice is built to see whether its options go together."""

    registries: tuple[Registry, ...]
    checks: tuple[Check, ...]
    build: Callable[[str], object]
    canonical: Callable[[str], object]


@dataclass(frozen=True)
class Part:
    """A registered part to be checked: with its defaults and all its finite options, or as one choice."""

    family: PartFamily
    registry: Registry
    name: str
    choice: str = ""

    @property
    def label(self) -> str:
        """The kind and the name, or the choice."""
        return f"{self.registry.kind} {self.choice or self.name}"


RULES = PartFamily((normalizers.registry, normalizers.wrappers), OF_NORMALIZERS, build_rule, normalizers.canonical)
ANALYSES = PartFamily((analyses.registry,), OF_ANALYSES, analyses.registry.build, analyses.registry.canonical)
TASKS = PartFamily((tasks.registry,), OF_TASKS, tasks.build, tasks.canonical)
FAMILIES = (RULES, ANALYSES, TASKS)


def called(text: str) -> Part | None:
    """Part that a choice names (of a normalizer in its wrappers, the last wrapper); None where it names none.

    Raises ``LabError`` where the name is known and the options are not.
    """
    for family in FAMILIES:
        alone = [(registry, Choice.parse(text).name) for registry in family.registries]
        for registry, name in normalizers.parts(text) if family is RULES else alone:
            if name not in registry.names():
                break
        else:
            family.canonical(text)
            if text != name and (refusal := _refusal(family, text)):
                raise refusal
            plain = text == name and registry is not normalizers.wrappers
            return Part(family, registry, name, "" if plain else text)
    return None


def brought(source: ImportedFrom) -> list[Part]:
    """Return everything that an import has registered."""
    return [
        Part(family, registry, name)
        for family in FAMILIES
        for registry in family.registries
        for name in registry.brought(source)
    ]


def verdicts(part: Part) -> Iterator[tuple[str, str]]:
    """Run the contract on a part: yields each check with the choice that failed it first and why, empty for none."""
    tried = [part.choice] if part.choice else list(choices(part))
    for check in part.family.checks:
        failed = next((f"{choice}: {reason}" for choice in tried if (reason := _reason(check, choice))), "")
        yield check.__name__.replace("_", " "), failed


def choices(part: Part) -> Iterator[str]:
    """Yield a part with its defaults, and with every combination of the options that have finitely many values.

    A combination that the part itself refuses is left out, and so is one that spells out a default. A wrapper is
    tried around some normalizers.
    """
    options = part.registry.options(part.name)
    values = {key: found for key, option in options.items() if (found := finite(option.annotation))}
    defaults = {f"{key}={write(option.default)}" for key, option in options.items()}
    for picked in itertools.product(*(["", *found] for found in values.values())):
        given = [f"{key}={value}" for key, value in zip(values, picked, strict=True) if value]
        if defaults & set(given):
            continue
        own = part.name + (":" + ",".join(given) if given else "")
        for choice in [f"{rule}+{own}" for rule in AROUND] if part.registry is normalizers.wrappers else [own]:
            if not given or _refusal(part.family, choice) is None:
                yield choice


def _refusal(family: PartFamily, choice: str) -> BadValue | None:
    """Objection of the part itself to these options; any other error is for the checks to report."""
    try:
        family.build(choice)
    except BadValue as refusal:
        return refusal
    except Exception:
        return None
    return None


def _reason(check: Check, choice: str) -> str:
    """Why a check failed, in one line; empty where it passed."""
    try:
        check(choice)
    except Exception as error:  # whatever a part raises is a finding, and the other checks go on
        first = (str(error).splitlines() or [""])[0]
        return first if isinstance(error, AssertionError | LabError) else f"{type(error).__name__}: {first}"
    return ""
