"""The plan of runs: every name resolved and checked before the first run begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.base.registry import Choice
from icl_lab.execute.where import Where
from icl_lab.runs import command, environment, presets
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import check_swap, resolve
from icl_lab.runs.store import Store

OF_NORMALIZER = "attn."  # before an option of normalizers, as a field of a grid


@dataclass(frozen=True)
class RunPlan:
    """Normalizers on a task at a preset, from some training seeds; with ``swap`` also tested with that one in them.

    ``settings`` are those of ``--set``, ``draws=paper`` for the published test set, and ``rates=own`` for the best
    rates of each normalizer's stored curve (``comparison/rates.py``) in place of those of the preset. ``grid`` names
    fields with several values each: every combination is one more set of settings. ``attn.n`` there is the option n of
    the normalizers that take it; the others are the same in each.
    """

    task: str
    attns: Sequence[str]
    preset: str = "lite"
    settings: Sequence[str] = ()
    seeds: Sequence[int] = (0,)
    swap: str = ""
    grid: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        changed = {_name(text) for text in self.settings}
        for name in (name for name in changed if name.startswith(OF_NORMALIZER)):
            option = name.removeprefix(OF_NORMALIZER)
            form = f"{Choice.parse(next(iter(self.attns), 'ssa')).name}:{option}=VALUE"
            raise BadValue(f"{name} is an option of a normalizer: say --attn {form}, or --grid {name}=VALUE,VALUE.")
        for name, values in self.grid.items():
            if len(set(values)) < 2:
                raise BadValue(f"--grid {name}: a grid takes two or more values, got {', '.join(values) or 'none'}.")
            if name in changed:
                raise BadValue(f"{name} is both set and in the grid: give one of --set and --grid.")

    @property
    def cells(self) -> list[dict[str, str]]:
        """Combinations of the values of the grid; one without settings where there is no grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def at(self, cell: Mapping[str, str]) -> "RunPlan":
        """Return the plan of one combination: fields are set, and options given to the normalizers that take them.

        Raises ``BadValue`` where none takes an option.
        """
        attns, settings = [*self.attns], [*self.settings]
        for name, value in cell.items():
            if not name.startswith(OF_NORMALIZER):
                settings.append(f"{name}={value}")
                continue
            option = name.removeprefix(OF_NORMALIZER)
            if not any(_takes(attn, option) for attn in attns):
                raise BadValue(f"--grid {name}: none of {', '.join(self.attns)} takes an option '{option}'.")
            attns = [_given(attn, option, value) if _takes(attn, option) else attn for attn in attns]
        return replace(self, attns=attns, settings=settings, grid={})

    @property
    def draws(self) -> str:
        """Test set: ours, or the published one."""
        return self._said("draws", "ours")

    @property
    def rates(self) -> str:
        """Learning rates: shared, or own. Raises ``BadValue`` for another word."""
        if (said := self._said("rates", "shared")) not in ("shared", "own"):
            raise BadValue(f"rates are shared or own, got '{said}'.")
        return said

    @property
    def changes(self) -> list[str]:
        """Settings of the specification."""
        return [text for text in self.settings if _name(text) not in ("draws", "rates")]

    def _said(self, name: str, usual: str) -> str:
        return next((text.partition("=")[2].strip() for text in reversed(self.settings) if _name(text) == name), usual)

    def runs(self, store: Store) -> list[Run]:
        """Return the runs in a store, there or not.

        Raises ``LabError`` on names that are unknown or do not fit; it names the import of a stored run that had them.
        """
        if not self.attns:
            raise BadValue("no normalizer is named.")
        if self.grid:
            return [run for _, runs in self.by_cell(store) for run in runs]
        more = self.preset, self.changes, self.draws
        try:
            # The other normalizer must fit the model as well, and is called by its one spelling.
            tests = ["", resolve(self.task, self.swap, *more).attn] if self.swap else [""]
            specs = {spec.hash: spec for spec in (resolve(self.task, attn, *more) for attn in self.attns)}
        except UnknownName as error:
            raise environment.explain_missing(error, store.root) from None
        if self.rates == "own":
            from icl_lab.comparison import rates  # a sweep needs no curves

            rates.check_code([*specs.values()], store)
            specs = {spec.hash: spec for spec in rates.own([*specs.values()], store)}
        for spec in specs.values():
            check_swap(spec, self.swap)
        return [store.run(spec, seed, rule) for spec in specs.values() for seed in self.seeds for rule in tests]

    def by_cell(self, store: Store) -> list[tuple[dict[str, str], list[Run]]]:
        """Return each combination of the grid with its runs; raises ``BadValue`` where two have the same runs."""
        runs_of = [(cell, self.at(cell).runs(store)) for cell in self.cells]
        first = dict[frozenset[str], dict[str, str]]()
        for cell, runs in runs_of:
            if (other := first.setdefault(frozenset(str(run.place) for run in runs), cell)) is not cell:
                twice = " and ".join(", ".join(map("=".join, each.items())) for each in (other, cell))
                raise BadValue(f"--grid: {twice} are one specification; each value is named once.")
        return runs_of

    def command(self, verb: str, where: Where, **more: str | bool | Sequence[str]) -> str:
        """Return the command line that does the same."""
        draws = "" if self.draws == "ours" else self.draws
        own = "" if self.rates == "shared" else self.rates
        grid = [f"{name}={','.join(values)}" for name, values in self.grid.items()]
        said = {"grid": grid, "swap": self.swap, "draws": draws, "rates": own, **more, "force": where.force}
        said["retrain"] = where.retrain
        seeds = max(self.seeds) + 1
        if verb == "sweep" and len(self.seeds) == 1 and seeds > 1:
            seeds, said = 1, {"seed": str(self.seeds[0]), **said}
        return command.trains(verb, self.task, self.attns, self.preset, self.changes, seeds, where.root, **said)


def stored(task: str, attn: str, size: str, seed: int, lab: Lab) -> Run:
    """Return the stored run of that name; without a hash that of the preset as it is, or the only other one there is.

    Raises ``UnknownName`` with the stored names.
    """
    preset, _, digits = size.partition("-")
    presets.named(preset)
    asked = (tasks.pinned(task), normalizers.canonical(attn), preset)
    named = [run for run in lab.store.runs(lab.say) if (run.spec.task, run.spec.attn, run.spec.preset) == asked]
    there = [run for run in named if run.seed == seed]
    chosen = digits or resolve(task, attn, preset).hash
    found = [run for run in there if run.spec.hash == chosen] or ([] if digits or len(there) > 1 else there)
    if not found and (seeds := sorted(run.seed for run in named if run.spec.hash == chosen)):
        listed_seeds = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
        raise BadValue(f"{task}/{attn}/{size} has no stored run of seed {seed}; there: {listed_seeds}.")
    if not found:
        known = {run.spec.name for run in lab.store.runs(lab.say)}
        same = {each for each in known if each.startswith(f"{asked[0]}/{asked[1]}/")}
        near = same or {each for each in known if each.startswith(f"{asked[0]}/")} or known
        raise UnknownName("stored run", f"{task}/{attn}/{size}, seed {seed}", near)
    return found[0]


def _takes(attn: str, option: str) -> bool:
    return option in normalizers.registry.options(Choice.parse(attn.partition("+")[0]).name)


def _given(attn: str, option: str, value: str) -> str:
    """A choice with an option of its normalizer; the wrappers around it keep theirs."""
    first, plus, around = attn.partition("+")
    choice = Choice.parse(first)
    others = tuple((key, known) for key, known in choice.options if key != option)
    return f"{replace(choice, options=(*others, (option, value)))}{plus}{around}"


def _name(setting: str) -> str:
    return setting.partition("=")[0].strip()
