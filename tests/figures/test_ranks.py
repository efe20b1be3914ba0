"""Ranked trials: of very many, the same share of each normalizer."""

from icl_lab.figures import ranks

OUTCOMES = ("wrong", "first only", "all right")


def drawn(count):
    """How many trials each of two panels shows, and what stands below them; every third trial ends each way."""
    scores, ends = [1 - place / count for place in range(count)], [place % 3 for place in range(count)]
    trials = {"softmax": (scores, ends), "ssa": (scores[: count // 2], ends[: count // 2])}
    figure = ranks.needles(dict.fromkeys(trials, scores[:5]), trials, OUTCOMES, title="t")
    panels = [axes for axes in figure.axes if "trials" in axes.get_xlabel()]
    return [sum(len(line.get_xdata()) for line in axes.lines) for axes in panels], panels[0].get_xlabel()


def test_few_trials_are_all_shown():
    assert drawn(ranks.SHOWN) == ([600, 300], "trials, best first")


def test_of_many_trials_every_so_and_so_many_th_is_shown():
    assert drawn(4 * ranks.SHOWN + 1) == ([481, 240], "trials, best first (one in 5 is shown)")
