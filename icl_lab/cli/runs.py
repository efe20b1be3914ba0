"""The runs of a results folder, one line per specification: its changes to the preset, and the state of each seed."""

from collections.abc import Callable, Iterator

from icl_lab import tasks
from icl_lab.base.errors import RunFailed
from icl_lab.base.progress import Tick, silent
from icl_lab.base.registry import Choice
from icl_lab.execute.progress import counted
from icl_lab.runs import provenance
from icl_lab.runs.command import differences
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store
from icl_lab.runs.summary import attention_words, bound_words, unlearned

NEWEST = 20  # specifications that are listed unless all are asked for


def listing(
    store: Store, say: Callable[[str], object], long: bool = False, tick: Tick = silent, *, whole: bool = True
) -> Iterator[str]:
    """Yield the lines for ``list runs``: specifications of one preset differ in the end of the line.

    Unless ``whole``, the newest 20. ``say`` reports folders that cannot be read. With ``long`` a line per seed follows:
    the bound of its answers, the statistics of attention at the last step, and whether it has learned nothing.
    """
    found: dict[str, list[Run]] = {}
    for run in store.runs(say):
        found.setdefault(str(run.folder.parent), []).append(run)
    shown = list(found.values()) if whole else sorted(found.values(), key=_written, reverse=True)[:NEWEST]
    specs = [runs[0].spec for runs in shown]
    wide = [max(map(len, names), default=0) for names in ([s.task for s in specs], [s.attn for s in specs])]
    for runs in counted(shown, "reading runs", tick):
        spec, states = runs[0].spec, dict[str, list[int]]()
        for run in sorted(runs, key=lambda run: run.seed):
            states.setdefault(state(run), []).append(run.seed)
        told = "; ".join(f"{_list(seeds)} {word}" for word, seeds in states.items())
        what = f"{spec.task:{wide[0]}}  {spec.attn:{wide[1]}}  {runs[0].folder.parent.name:16}  {told}"
        # The preset of a user's images is known once they are opened, and a listing opens none.
        closed = "folder" in dict(Choice.parse(spec.task).options)
        differs = f"(from {spec.preset}: not known with its images unopened)" if closed else " ".join(differences(spec))
        yield "  ".join([what, *filter(None, [differs])])
        for run in sorted(runs, key=lambda run: run.seed) if long else ():
            words = bound_words(run), attention_words(_history(run)), unlearned_words(run)
            yield f"    seed {run.seed}: {'; '.join(filter(None, words))}"


def _history(run: Run) -> list[dict[str, float]]:
    """The history of a run; empty where it has none that can be read, which the listing says of damaged runs."""
    try:
        return run.history() if "history.csv" in run.files else []
    except RunFailed:
        return []


def _written(runs: list[Run]) -> float:
    """Time at which the newest of these runs was written; 0 of the repository's."""
    return max((run.folder.stat().st_mtime for run in runs if run.folder.exists()), default=0.0)


def unlearned_words(run: Run) -> str:
    """Reason why a run counts as not learned; empty where it counts as learned, or where that is unknown."""
    try:
        return unlearned([run.grid()], tasks.build(run.spec.task), run.spec) if run.finished else ""
    except RunFailed:
        return "damaged (see icl-lab verify)"


def state(run: Run) -> str:
    """State of a run: finished, trained, or the step of its checkpoint; and its tests with other normalizers."""
    swaps = [path.parent.name.removeprefix("swap-") for path in sorted(run.folder.glob("swap-*/grid.csv"))]
    try:
        lost, made = bool(run.diverged), provenance.of(run)
    except RunFailed:
        return "damaged (see icl-lab verify)"
    if run.copied:
        begun = "evidence"
    elif lost:
        begun = "diverged"
    elif run.finished:
        begun = "finished"
    else:
        begun = "trained" if run.trained else f"at step {run.checkpoint_step} of {run.spec.train.steps}"
    return begun + (f", tested with {', '.join(swaps)}" if swaps else "") + (f", {made}" if made else "")


def _list(seeds: list[int]) -> str:
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if whole else ", ".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {text}"
