"""Which stored run a page shows, and what stands on its maps."""

# Red, green and blue of the first map where keys are hidden.
HIDDEN_CORNER = """(m => {
  const [x, y] = [m.left + 5.7 * m.side, m.top + 0.4 * m.side].map(at => Math.round(at * devicePixelRatio));
  return [...document.querySelector("#maps canvas").getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3)];
})(maps[0])"""


def run_of(found, lab):
    """The run whose weights are those that the foot of the page names first."""
    sha = dict(found.runs[0].card)["weights (sha256)"]
    return next(run for run in lab.store.runs() if run.trained and run.env()["model_sha256"] == sha)


def words_of_map(number):
    """A script whose value is the words of a large map, its title first."""
    pen = "{ ...svgPen([]), text: (x, y, text) => words.push(text) }"
    return f"(words => (drawMap({pen}, maps[{number}]), words))([])"
