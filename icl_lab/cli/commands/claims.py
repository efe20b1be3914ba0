"""Commands about published results: do them again, and say what held."""

from pathlib import Path
from typing import Any

import click

from icl_lab.cli.hints import then
from icl_lab.cli.launch import Order, complete, laboratory
from icl_lab.cli.options import (
    beside_option,
    crowd_options,
    experiments_option,
    read_option,
    results_option,
    seeds_option,
    style_option,
    tell,
    typed,
    where_options,
)
from icl_lab.cli.output import out
from icl_lab.cli.progress import say
from icl_lab.cli.until_decided import budget_option, decide, until_decided_option
from icl_lab.errors import BadValue, UnknownName
from icl_lab.markdown import listed


@click.command()
@click.argument("name")
@where_options
@crowd_options
@seeds_option
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this one beside the baseline, and the claims about them; may be given again.",
)
@click.option("--overlay", is_flag=True, help="Show rows of doubtful columns a second time, moved, and say so.")
@beside_option
@experiments_option
@click.option("--force", is_flag=True, help="Repeat runs that are finished.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@until_decided_option
@budget_option
def experiment(
    name: str,
    preset: str,
    settings: tuple[str, ...],
    results: Path,
    device: str,
    threads: int | None,
    evidence: bool | None,
    allow_large: bool,
    seeds: int,
    variants: tuple[str, ...],
    overlay: bool,
    beside: tuple[Path, ...],
    files: Path,
    until_decided: bool,
    budget: float | None,
    **order: Any,
) -> None:
    """Do a published table or figure again: train what is missing, and write ours beside the printed numbers.

    With --until-decided seeds are added in the steps at which claims are looked at (3, 5, 8, 12, .. 64), to the sides
    of claims that are open, until all are decided or the time of --budget is up; the same command goes on.
    """
    from icl_lab.analyses.publish import written
    from icl_lab.comparison import outside
    from icl_lab.launch.experiment import UntilDecided, carry_out
    from icl_lab.papers import experiment, study

    how = Order.of(order | {"device": device, "threads": threads})
    whole = experiment.load(name, experiment.place(files))
    asked_of = experiment.only(whole, variants) if variants else whole
    chosen, left_out = experiment.fitting(asked_of, preset, settings)
    lab = laboratory(results, device, threads, evidence, allow_large)
    for line in left_out:
        say(line)
    if budget is not None and not until_decided:
        raise click.UsageError("--budget is the time of --until-decided: add that.")
    if until_decided:
        refused = {"--seeds": seeds > 1, "--set": settings, "--overlay": overlay, "--beside": beside}
        refused |= {"--force": how.force, "--shard": how.shard[1] > 1}
        if wrong := [option for option, given in refused.items() if given]:
            raise click.UsageError(f"--until-decided gives the claims as they are seeds: leave out {listed(wrong)}.")
        decide(UntilDecided(name, chosen, preset, experiment.place(files), lab), how, budget or 3600.0)
        return
    if beside and chosen.question() is not None:
        raise BadValue(f"--beside: {name} asks its models with {chosen.analysis}, which prompted models have not met.")
    others = outside.read(beside, chosen.spec(chosen.variants[0], preset, settings).task) if beside else []
    asked = study.Order(Path(name).stem, preset, settings, overlay, others)
    anew = how.force or evidence is False  # in a checkout the repository's studies are those of the folder
    finish = lambda runs, tested: complete(runs, lab, how, tested=tested)  # noqa: E731
    done = carry_out(chosen, asked, seeds, lab, finish, anew=anew, force=how.force)
    if done.text is None:
        if how.dry_run:
            say(f"would write {done.folder}")
        return
    out(done.text)
    out(f"wrote {done.folder}: {', '.join(written(done.folder))}")
    out(f"next: {then('claims')}   (what held and what did not, over all experiments)")


@click.command()
@click.option("--preset", help="Only at this scale.  [default: the largest that decides a claim]")
@click.option("--all", "every", is_flag=True, help="At every scale at which there are runs.")
@read_option
@experiments_option
@click.option("--record", is_flag=True, help="Judge all claims anew, at all scales, and write the repository's record.")
def claims(preset: str | None, every: bool, results: Path, files: Path, record: bool) -> None:
    """Print what each experiment claims and what was seen, once at the largest scale that decides it; trains nothing.

    Verdicts of the repository's runs are read from results/claims.csv; others are judged now.
    """
    from icl_lab.evidence.archive import Archive
    from icl_lab.files import write
    from icl_lab.papers import experiment, ledger, registration
    from icl_lab.papers import record as records
    from icl_lab.runs.presets import PRESETS
    from icl_lab.runs.store import Store

    if preset is not None and (every or preset not in PRESETS):
        raise (
            click.UsageError("--preset names one scale: leave out --all.")
            if every
            else UnknownName("preset", preset, PRESETS)
        )
    store, place = Store(results, Archive.find()), experiment.place(files)
    if record:
        write(place / registration.NAME, registration.table(place).encode())
        out(f"wrote {place / registration.NAME}")
        for name, text in records.written(place, store).items():
            write(results / name, text.encode())
            out(f"wrote {results / name}")
        return
    rows, remarks = records.everything(place, store, [preset] if preset else list(PRESETS))
    shown = rows if every else ledger.strongest(rows)
    for name in dict.fromkeys(row["experiment"] for row in shown):
        made = experiment.load(name, place)
        title, *lines = ledger.lines(made, [row for row in shown if row["experiment"] == name])
        for line in (f"{name}: {title}", *lines, *remarks.get(name, ())):
            out(line)
    theory = [row for row in shown if row["theory"]]
    out(f"{ledger.tally_of(row for row in shown if not row['theory'])}.")
    if theory:
        out(f"Theory (bounds and identities, no training): {ledger.tally_of(theory)}.")
    if not every and len(rows) > len(shown):
        out(f"next: {then('claims', {'--all': ['True']})}   (at all scales; shown is the largest that decides)")


@click.command()
@click.option("--preset", default="lite", show_default=True, help="The scale of the runs.")
@click.option("--task", default="linear", show_default=True, help="The task of the deviants.")
@results_option
@style_option
def tradeoff(preset: str, task: str, results: Path) -> None:
    """Set retrieval far out against robustness to a deviant, for all rules of which both are stored; trains nothing."""
    from icl_lab import tasks
    from icl_lab.evidence.archive import Archive, own_studies
    from icl_lab.papers import tradeoff as study
    from icl_lab.runs.store import Store

    task = tasks.canonical(task)
    points = study.gather(Store(results, Archive.find()), preset, task, say)
    folder = own_studies(results) / f"tradeoff-{preset}"
    text, files = study.publish(points, folder, preset, task, typed())
    tell(text, folder, files, "tradeoff.png")
