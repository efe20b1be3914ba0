"""Which stored run a page shows."""


def run_of(found, lab):
    """The run whose weights are those that the foot of the page names first."""
    sha = dict(found.runs[0].card)["weights (sha256)"]
    return next(run for run in lab.store.runs() if run.trained and run.env()["model_sha256"] == sha)
