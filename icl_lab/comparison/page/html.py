"""The page of a comparison: one self-contained file, readable at any width and in both colour schemes."""

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import jinja2

from icl_lab.base.registry import filename
from icl_lab.base.terms import explained
from icl_lab.comparison.page import facts as known
from icl_lab.comparison.page import words
from icl_lab.comparison.page.facts import Facts
from icl_lab.comparison.page.figures import Picture
from icl_lab.comparison.page.tables import READING, Section, seeds_table, table
from icl_lab.comparison.statistics import COVERAGE, ONE_SEED
from icl_lab.comparison.study import PairedGrids
from icl_lab.figures.base import encode
from icl_lab.runs.spec import RunSpec


def html(
    study: PairedGrids,
    spec: RunSpec,
    drawn: Mapping[str, Picture],
    command: str,
    origin: str,
    sections: Sequence[Section] = (),
    title: str = "",
    *,
    facts: Mapping[str, Sequence[Facts]] | None = None,
    files: Mapping[str, str] | None = None,
) -> str:
    """Return one self-contained page: no further files, no requests, readable on a phone.

    ``files`` are offered as downloads, by name, as they are.
    """
    numbers = table(study, spec)
    return render(
        "comparison.html",
        title=title or f"{spec.task}: {_few(list(study.grids))}",
        finding=words.finding(study),
        conditions=words.conditions(study, spec),
        terms=explained(
            " ".join([words.conditions(study, spec), *numbers.head, *(row.cells[0] for row in numbers.rows)])
        ),
        setup=known.setup(study, spec, facts or {}),
        reading=[
            ONE_SEED.capitalize() + "." if study.seeds == 1 else COVERAGE,
            words.PROMPTS[bool(study.errors)],
            *READING,
            *(f"{rule}: {reason}." for rule, reason in study.not_learned.items()),
        ],
        table=numbers,
        single=seeds_table(study),
        seeds=study.seeds,
        sections=sections,
        figures=[
            {
                "anchor": name,
                "title": picture.title,
                "caption": picture.caption,
                "wide": _png(picture, narrow=False),
                "narrow": _png(picture, narrow=True),
            }
            for name, picture in drawn.items()
        ],
        formulas=known.formulas(study, facts or {}),
        downloads=[
            {"name": f"{filename(spec.task)}-{name}", "link": _link(name, content)}
            for name, content in (files or {}).items()
        ],
        command=command,
        origin=origin,
    )


def render(template: str, **fields: object) -> str:
    """Return a page from a file in ``templates``; its fields are written as text, never as markup."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("icl_lab"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.tests["in_axis"] = lambda name, along: str(name).startswith(along)
    return environment.get_template(template).render(**fields)


def _png(picture: Picture, narrow: bool) -> str:
    return base64.b64encode(encode(picture.narrow, "png") if narrow else picture.wide_png).decode()


def _link(name: str, content: str) -> str:
    kind = "text/csv" if name.endswith(".csv") else "text/markdown"
    # Most of a table needs no quoting: a third less than base64.
    return f"data:{kind};charset=utf-8,{quote(content, safe=' ,.:;=+-_()[]/*|')}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:3])} and {len(names) - 3} more normalizers"
