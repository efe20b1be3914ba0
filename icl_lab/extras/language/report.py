"""Results on a language model: grids, tables and pictures."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from icl_lab.analyses.findings import mean_rows
from icl_lab.base import markdown as md
from icl_lab.base.grid import Grid
from icl_lab.comparison.statistics import wilson
from icl_lab.extras.language import needle
from icl_lab.extras.language.study import REFERENCES, Answers, LanguageQuestion, Needles, Row
from icl_lab.figures import lines
from icl_lab.tasks.texts.corpus import Corpus


def grids(question: LanguageQuestion, answers: Answers, corpus: Corpus) -> dict[str, Grid]:
    """The numbers as grids: ``loss`` by tokens read and its ``ends``; ``needle`` and ``heads`` (scores) if asked."""
    who = {"task": corpus.name, "preset": Path(question.model).name, "spec": corpus.sha[:8], "seed": 0}
    steps, ends = [], []
    for name, nats in answers.losses.items():
        for tokens, chosen in answers.places.steps.items():
            steps += mean_rows({"nats": nats[:, chosen].mean(1)}, attn=name, tokens=tokens)
        bits = nats.mean(1) / (math.log(2) * corpus.bytes_a_token)
        ends += mean_rows({**answers.places.ends(nats), "bits-per-byte": bits}, attn=name)
    made = {"loss": Grid.of(steps, ["tokens"], **who), "ends": Grid.of(ends, [], **who)}
    if answers.needles:
        made["needle"] = Grid.of(answers.needles, ["context", "depth"], **who)
        made["heads"] = Grid.of(answers.heads, ["layer", "head", "context", "depth"], **who)
    return made


def table(question: LanguageQuestion, answers: Answers, corpus: Corpus) -> list[str]:
    """Results as lines of Markdown."""
    first = question.attns[0]
    shown = list(answers.places.steps)[-1::-4][::-1]
    bits = math.log(2) * corpus.bytes_a_token
    text = [
        f"Loss in nats per token: {question.windows} windows of {question.length:,} tokens of the held-out "
        f"parts of {corpus.name}, {corpus.bytes_a_token:.2f} bytes a token. All take {question.near:,} tokens for "
        "the length of training. A column of numbers is the half octave of tokens up to there. The difference is to "
        f"{first}, paired over windows, with 1.96 standard errors: windows overlap, so the true ones are larger.",
        "",
    ]
    rows = []
    for name, nats in answers.losses.items():
        cells = [f"{nats[:, answers.places.steps[tokens]].mean():.3f}" for tokens in shown]
        mean = nats.mean(1)
        apart = "" if name == first else _difference(mean - answers.losses[first].mean(1))
        rows.append([f"`{name}`", *cells, f"{mean.mean():.4f}", apart, f"{mean.mean() / bits:.3f}"])
    columns = ["normalizer", *(f"{tokens:g}" for tokens in shown), "all", "difference", "bits per byte"]
    text += md.table(columns, rows)
    if question.needles:
        text += ["", *_needle_table(question.attns, question.needles, answers)]
    return text


def figures(question: LanguageQuestion, answers: Answers, corpus: Corpus) -> dict[str, Figure]:
    """Loss over the tokens read, and where they were asked for needles over the context."""
    steps = answers.places.steps
    means = {name: [nats[:, at].mean().item() for at in steps.values()] for name, nats in answers.losses.items()}
    title = f"{Path(question.model).name}: {corpus.name}"
    rivals = partial(lines.rivals, title=title, log=False, mark=question.near)
    rules = {name: [[value] for value in line] for name, line in means.items() if name not in REFERENCES}
    known = {name.removeprefix("reference:"): line for name, line in means.items() if name in REFERENCES}
    drawn = {"loss": rivals(list(steps), rules, known, axis="tokens read", label="loss in nats per token")}
    if question.needles and len(question.needles.contexts) > 1:
        wrong = {
            attn: [[_share(answers.needles, attn, context)] for context in question.needles.contexts]
            for attn in question.attns
        }
        contexts = question.needles.contexts
        drawn["needle"] = rivals(contexts, wrong, {}, axis="tokens of context", label="needles missed")
    return drawn


def _needle_table(attns: Sequence[str], asked: Needles, answers: Answers) -> list[str]:
    cells, rows = asked.samples * len(asked.depths), []
    text = [
        f"Needles missed: a number of {needle.DIGITS} digits hidden at {', '.join(f'{d:g}' for d in asked.depths)} "
        f"percent of the context, {cells} texts for each context, with the 95 % interval of Wilson; all digits must be "
        "right. Best head: the greatest weight of the last token on the digits, mean over texts.",
        "",
    ]
    for attn in attns:
        shares = [_share(answers.needles, attn, context) for context in asked.contexts]
        ends = [wilson(round(share * cells), cells) for share in shares]
        missed = [md.interval(share, *each, ".2f") for share, each in zip(shares, ends, strict=True)]
        scores: dict[tuple[int, int], list[float]] = {}
        for each in answers.heads:
            if each["attn"] == attn:
                scores.setdefault((each["layer"], each["head"]), []).append(each["value"])
        (layer, head), values = max(scores.items(), key=lambda item: sum(item[1]))
        rows.append([f"`{attn}`", *missed, f"{layer}.{head}: {sum(values) / len(values):.2f}"])
    return text + md.table(["normalizer", *(f"{context:,} tokens" for context in asked.contexts), "best head"], rows)


def _share(rows: Sequence[Row], attn: str, context: int) -> float:
    values = [row["value"] for row in rows if row["attn"] == attn and row["context"] == context]
    return float(sum(values) / len(values))


def _difference(values: Tensor) -> str:
    """The mean of paired differences (b) with 1.96 standard errors."""
    if not bool(values.isfinite().all()):
        return "not finite"
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{values.mean().item():+.4f} ± {1.96 * error:.4f}".replace("-", "−")
