"""Learning-rate curves: train their runs, widen until each best has a bracket, and write the study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from icl_lab import normalizers, tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.base.tables import csv_text
from icl_lab.comparison import rates
from icl_lab.comparison.rates import Curve, muon
from icl_lab.execute.complete import complete
from icl_lab.execute.study import Made
from icl_lab.execute.where import Where
from icl_lab.runs import provenance, study_folder
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, resolve
from icl_lab.runs.study_folder import StudyRecord

KIND = "rates"
CurveRuns = Mapping[float, Sequence[Run]]  # runs of one curve, by factor


@dataclass(frozen=True)
class RatesPlan:
    """Normalizers and widths whose learning-rate curves are wanted; ``widths`` empty: the width of the preset."""

    task: str
    attns: Sequence[str]
    preset: str = "lite"
    settings: Sequence[str] = ()
    seeds: int = 2
    widths: Sequence[int] = ()
    factors: Sequence[float] = rates.FACTORS

    def specs(self) -> dict[str, RunSpec]:
        """Return the specification at factor 1 of each curve, by its label.

        Raises ``LabError`` on unknown names, a width that the heads do not divide, and fewer than three factors.
        """
        if len(set(self.factors)) < 3:
            given = ", ".join(f"{factor:g}" for factor in self.factors)
            raise BadValue(f"a best rate needs a worse one on each side: give at least three factors, got {given}.")
        edge = 2.0**rates.POWERS
        for factor in self.factors:
            if not 1 / edge <= factor <= edge or not rates.is_power(factor):
                raise BadValue(f"a factor of the rates is a power of 2 from 1/{edge:g} to {edge:g}, got {factor:g}.")
        if self.widths and any(setting.partition("=")[0].strip() == "model.width" for setting in self.settings):
            raise BadValue("model.width is both set and among the widths: give one of --set and --widths.")
        found = dict[str, RunSpec]()
        for width in self.widths or [0]:
            changes = [*self.settings, *([f"model.width={width}"] if width else [])]
            for attn in dict.fromkeys(map(normalizers.canonical, self.attns)):
                found[f"{attn}, width {width}" if width else attn] = resolve(self.task, attn, self.preset, changes)
        return found


def measure(plan: RatesPlan, lab: Lab, where: Where) -> Made:
    """Train and test the runs of all curves, add factors until each best has a bracket, and publish table and figure.

    Raises ``Unfinished`` where runs are left, and ``BadValue`` where every training of a normalizer diverged.
    """
    specs = plan.specs()
    factors = {label: sorted({*plan.factors}) for label in specs}
    runs = _runs(specs, factors, plan.seeds, lab)
    folder = _place(plan, runs, lab, where)
    while True:
        if not complete([*chain(*(group for each in runs.values() for group in each.values()))], lab, where):
            raise Unfinished(folder)
        where = replace(where, retrain=False)  # the runs of the first round are new by now
        curves = {label: rates.curve(spec, runs[label]) for label, spec in specs.items()}
        wider = {label: found for label, each in curves.items() if (found := each.wider())}
        if not wider:
            break
        for label, found in wider.items():
            more = " and ".join(f"{factor:g}" for factor in found)
            lab.say(f"{label}: the least error lies at an edge, so {more} times the rates is run too.")
            factors[label] = sorted({*factors[label], *found})
        runs = _runs(specs, factors, plan.seeds, lab)
    if lost := [label for label, each in curves.items() if each.lowest is None]:
        raise BadValue(f"every training of {'; '.join(lost)} diverged: take smaller rates (--set train.rate=...).")
    return _publish(plan, curves, runs, folder, lab)


def _runs(
    specs: Mapping[str, RunSpec], factors: Mapping[str, Sequence[float]], seeds: int, lab: Lab
) -> dict[str, CurveRuns]:
    numbers = range(rates.FIRST_SEED, rates.FIRST_SEED + seeds)

    def group(spec: RunSpec) -> list[Run]:
        return [lab.store.run(spec, seed) for seed in numbers]

    return {
        label: {factor: group(rates.tuning(spec, factor)) for factor in factors[label]} for label, spec in specs.items()
    }


def _record(plan: RatesPlan, runs: Mapping[str, CurveRuns], lab: Lab) -> StudyRecord:
    options = {"factors": plan.factors, "widths": plan.widths, "settings": plan.settings, "seeds": plan.seeds}
    options |= {"task": plan.task, "preset": plan.preset, "attns": [*map(normalizers.canonical, plan.attns)]}
    groups = {f"{label}, x{factor:g}": group for label, each in runs.items() for factor, group in each.items()}
    return StudyRecord.of(KIND, options, groups, lab.command)


def _place(plan: RatesPlan, runs: Mapping[str, CurveRuns], lab: Lab, where: Where) -> Path:
    record, root = _record(plan, runs, lab), own_studies(lab.store.root)
    folder = root / (where.name or record.usual_name())
    there = study_folder.read(folder) if folder.exists() else None
    # The same question has more runs once its curves were widened.
    same = there is not None and (there.kind, there.options) == (record.kind, record.options)
    return study_folder.place(record, root, where.name, force=where.force or same)


def _publish(
    plan: RatesPlan, curves: Mapping[str, Curve], runs: Mapping[str, CurveRuns], folder: Path, lab: Lab
) -> Made:
    metric = rates.measure(tasks.build(plan.task))
    lines = [
        f"# Learning rates: {plan.task}, preset {plan.preset}",
        "",
        f"{metric}, in training conditions, on prompts that no other test draws; tuning seeds "
        f"{rates.FIRST_SEED} to {rates.FIRST_SEED + plan.seeds - 1}. A factor multiplies the rates of the recipe.",
        "",
        *rates.table(curves),
        "",
        *(f"{label}: no best rate, since the error is least at an edge." for label, c in curves.items() if not c.best),
        *rates.cliff_words(curves),
        f"Made by {md.code(lab.command)}.",
        "",
    ]
    if other_code := provenance.words([run for each in runs.values() for group in each.values() for run in group]):
        lines += [other_code, ""]
    rows = [
        {
            "task": run.spec.task, "preset": run.spec.preset, "attn": run.spec.attn, "width": run.spec.model.width,
            "factor": factor, "rate": run.spec.train.rate, "muon_rate": muon(run.spec), "seed": run.seed,
            "error": error, "diverged": bool(run.diverged), "spec": run.spec.hash,
        }
        for label, each in runs.items() for factor, group in each.items()
        for run, error in zip(group, curves[label].errors[factor], strict=True)
    ]  # fmt: skip
    text = "\n".join(lines)
    lab.show(text)
    files = {"rates.csv": csv_text(list(rows[0]), rows), "table.md": text}
    names = study_folder.publish(_record(plan, runs, lab), folder, files, {KIND: rates.figure(curves, metric)})
    lab.tracked.study(folder, text)
    return Made(curves, text, folder, names)
