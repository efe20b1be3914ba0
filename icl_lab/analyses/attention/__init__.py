"""Attention maps of one or two trained models on one prompt, and of means over prompts, as a page."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from matplotlib.figure import Figure

from icl_lab import normalizers, tasks
from icl_lab.analyses import registry
from icl_lab.analyses.attention import maps, page, prompt, report
from icl_lab.analyses.attention.live import Exported, NotExportable, export_model, payload
from icl_lab.analyses.attention.maps import MOST, THIS, Frame, Maps, Plan, Reading, Seen, ShownModel
from icl_lab.analyses.attention.prompt import Asked, Window
from icl_lab.analyses.frame import AnalysisOf, TrainedModel, option
from icl_lab.base.errors import BadValue
from icl_lab.base.registry import filename
from icl_lab.runs import environment
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import HasPictures, TypedPrompts

OFFERED = "softmax average ssmax ssa lssa+reweight:p=15"


@dataclass(frozen=True)
class Layout:
    """Contents of the page of some runs: the prompt, the window, the means, and the normalizers as a folder's name."""

    asked: Asked
    window: Window
    plans: list[Plan]
    rules: str


@registry.add("attention")
@dataclass(frozen=True, kw_only=True)
class AttentionMaps(AnalysisOf[Reading, Seen, Seen]):
    """Show the attention of every head in a prompt, as a page.

    The page (attention.html) needs nothing beside it: all maps of one model, or of two side by side with their
    difference, what each answers, and means over many prompts along the axes of the test grid. Weights and scores of
    the prompt are the model's own, to the last bit; weights.csv holds them all.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {}
    title: ClassVar[str] = "attention"
    most: ClassVar[int | None] = 2
    kinds: ClassVar[Sequence[str]] = ("png", "svg", "pdf")
    layout: ClassVar[Layout | None] = None  # no option: set on the copy that is prepared for some runs

    prompt: str = option(dataclasses.MISSING, "Numbers such as 1,-2,3,70, or random:sigma=10,length=20,seed=1.")
    function: str = option("", "The function behind typed numbers, e.g. 1,0.  [default: drawn]")
    layers: str = option("", "Layers to show, from 0, e.g. 0,1.  [default: all]")
    heads: str = option("", "Heads to show, from 0.  [default: all]")
    last: int | None = option(None, "Show only the last queries.  [default: all]", least=1)
    means: int = option(64, f"Prompts of the means, at most {MOST}; 0: none.", least=0, most=MOST)
    live: int = option(500_000, "Numbers of models that the page may carry, to compute; 0: none.", least=0, later=True)
    offer: str = option(
        OFFERED, "Normalizers that the page lets a reader put in, between spaces; all: every one.", later=True
    )

    @property
    def tag(self) -> str:
        return f"{self.layout.rules}-{self.layout.asked.slug}" if self.layout else ""

    def check(self, spec: RunSpec) -> None:
        if not spec.model.attention:
            raise BadValue(f"{spec.attn} is a model without attention: it has no maps.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        self._offered()
        made = dataclasses.replace(self)
        object.__setattr__(made, "layout", self._laid(runs))
        return made

    def measure(self, trained: TrainedModel) -> Reading:
        """Let the model read the prompt, and the prompts of the means."""
        layout = self._laid([trained.run])

        def watch(prompt: Prompt) -> Maps:
            rows = layout.window.rows(prompt.tokens.shape[1])
            return maps.attention_maps(
                trained.model, prompt, layout.window.layers, layout.window.heads, rows, trained.lab.device
            )

        seen = watch(layout.asked.prompt)
        found = []
        steps = len(layout.plans) + len(self._offered()) + 2
        for number, plan in enumerate(layout.plans, 1):
            trained.tick(number, steps)
            drawn = maps.mean_prompts(trained.task, plan, self.means)
            found.append((maps.mean_marks(trained.task, drawn), watch(drawn)))
        learned: dict[tuple[str, int], list[float]] = {}
        for key, value in trained.model.learned().items():  # "s 0.1": by name, layer and head
            name, place = key.split(" ")
            learned.setdefault((name, int(place.partition(".")[0])), []).append(value)
        answers = wording.answered(trained.task, seen.outputs, layout.asked.prompt)
        live = self._exported(trained, lambda done: trained.tick(len(layout.plans) + 1 + done, steps))
        return Reading(seen, answers, found, learned, live)

    def collect(self, answers: Sequence[tuple[TrainedModel, Reading]]) -> Seen:
        """Put the maps of all models into frames: the prompt, then the means."""
        runs, readings = [trained.run for trained, _ in answers], [reading for _, reading in answers]
        layout, first = self._laid(runs), runs[0].spec
        task, marks = tasks.build(first.task), wording.marks(tasks.build(first.task), layout.asked.prompt)
        frames = [Frame(THIS, 0.0, marks, [reading.maps for reading in readings])]
        for number, plan in enumerate(layout.plans):
            each = [reading.means[number] for reading in readings]
            frames.append(Frame(plan.axis, plan.value, each[0][0], [found for _, found in each]))
        shown = [
            ShownModel(name, run.name, run.seed, card(run), reading.learned, reading.answers)
            for name, run, reading in zip(maps.names(runs), runs, readings, strict=True)
        ]
        notes = [f"Trained on prompts of up to {first.train.longest} examples; this one has {layout.asked.length}."]
        if self.means and not layout.plans:
            notes.append("Means over prompts are left out: with them the page would hold too many cells.")
        computes, why = payload.lay(task, layout.asked, readings, layout.window, self.live)
        notes += [why] if why else []
        notes += payload.left_out(readings)
        return Seen(
            layout.asked,
            layout.window,
            shown,
            frames,
            self.means,
            notes,
            answers[0][0].lab.command,
            first.task,
            {frame.axis: task.axis_label(frame.axis).words for frame in frames if frame.axis != THIS},
            task.reach(**first.train.shift) if isinstance(task, TypedPrompts) else {},
            computes,
            (task.picture(layout.asked.prompt), task.grid) if isinstance(task, HasPictures) else None,
        )

    def table(self, found: Seen) -> list[str]:
        return report.table(found)

    def figures(self, found: Seen, title: str) -> Mapping[str, Figure]:
        """All maps of the prompt; of an image what each head's last query weighs, over it."""
        drawn = {"attention": report.figure(found, title)}
        return drawn | ({"image": report.over_image(found, title)} if found.image else {})

    def finding(self, found: Seen) -> str:
        return report.finding(found)

    def files(self, found: Seen) -> dict[str, str | bytes]:
        return {"attention.html": page.page(found, environment.origin())} | report.files(found)

    def read(self, folder: Path) -> None:
        """Maps are not read back: no claim is about them."""

    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> None:
        """Maps are not made again."""

    def _offered(self) -> list[str]:
        names = normalizers.names() if self.offer == "all" else self.offer.split()
        return list(dict.fromkeys(normalizers.canonical(name) for name in names)) if self.live else []

    def _exported(self, trained: TrainedModel, tick: Callable[[int], object]) -> Exported | str:
        size = trained.model.parameter_count()
        if not self.live or size > self.live:
            return payload.too_large(size, self.live) if self.live else ""
        try:
            return export_model(trained.model, self._offered(), tick)
        except NotExportable as why:
            return str(why)

    def _laid(self, runs: Sequence[Run]) -> Layout:
        if self.layout is not None:
            return self.layout
        asked = prompt.read(self.prompt, runs[0].spec, self.function)
        shown = prompt.choose(runs, asked, self.layers, self.heads, self.last)
        plans = maps.planned(runs, asked, shown) if self.means else []
        rules = "-".join(filename(run.name) + f"-seed-{run.seed}" * (run.seed > 0) for run in runs)
        return Layout(asked, shown, plans, rules)


def card(run: Run) -> list[tuple[str, str]]:
    """Footer of the page on a run."""
    spec = run.spec
    return [
        ("run", f"{spec.task} / {spec.attn} / {spec.preset}-{spec.hash} / seed {run.seed}"),
        ("weights (sha256)", str(run.env()["model_sha256"])),
        ("normalizer", run.name),
        ("positions", spec.test.positions or spec.model.positions),
        ("trained", f"{spec.train.steps:,} steps, prompts of up to {spec.train.longest} examples"),
    ]
