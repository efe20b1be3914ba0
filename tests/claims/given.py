"""Both sides of a claim given as numbers, for rules of verdicts: no run, no grid."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace

from icl_lab.claims import judge
from icl_lab.claims.schema import Claim, PrintedEffect, Quantity
from icl_lab.claims.sides import Sides, Training, Value

NOW, BEFORE = datetime(2027, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)


class GivenSides(Sides):
    """Sides ``a`` and ``b`` with a value for each seed; of trained models where ``models`` says so."""

    def __init__(self, left, right, scale="log-ratio", **fields):
        self.left, self.right, self.compared = left, right, scale
        self.seeds_of_table, self.shares, self.origins = range(most := max(len(left), len(right))), [None] * most, None
        self.resamples = [(None, None)] * most
        self.errors = [(math.nan, math.nan)] * most
        self.asked, self.largest, self.smallest = 0, math.inf, 0.0
        self.models, self.same, self.ends = False, False, [(BEFORE, BEFORE)] * most
        self.__dict__ |= fields
        self.experiment = SimpleNamespace(name="given", registered={}, rates="shared", printed=None, variants=[])
        self.task, self.preset = SimpleNamespace(headline="mse", trivial=()), "lite"

    def is_model(self, of):
        return self.models

    def spec(self, of):
        train = SimpleNamespace(rate=0.1, muon_rate=0.1, curriculum=SimpleNamespace(stop=41))
        positions = SimpleNamespace(positions="rotary")
        return SimpleNamespace(training="one" if self.same else of, train=train, model=positions, test=positions)

    def scale(self, claim):
        return self.compared

    def span(self, claim):
        return self.largest

    def step(self, claim, table):
        return self.smallest

    def prompts(self, claim):
        return self.asked

    def far(self, side):
        return True

    def compares_errors(self, claim):
        return False

    def variants_for(self, claims):
        return []

    def table(self, claim):
        log = math.log if self.compared == "log-ratio" else float
        columns = {}, {}
        for number, (values, column) in enumerate(zip((self.left, self.right), columns, strict=True)):
            for n, (seed, value) in enumerate(zip(self.seeds_of_table, values, strict=False)):
                unknown = ("", "") if self.models else None
                origin = unknown if self.origins is None else (str(self.origins[n]), "machine")
                trained = Training(self.shares[n], self.ends[n][number], origin)
                numbers = self.errors[n][number], self.resamples[n][number]
                column[seed] = Value(log(value), *numbers, training=trained)
        return columns


def claim(is_="below", right="b", **fields):
    """A claim that side ``a`` has that relation to side ``b``."""
    sides = Quantity("a", {"sigma_f": [1.0]}), Quantity(right, {"sigma_f": [1.0]})
    return Claim(statement="s", where="w", left=sides[0], is_=is_, right=sides[1], **fields)


def judged(about, left, right, scale="log-ratio", *, printed=math.nan, hours=math.nan, correlation=0.0, **fields):
    """The finding on a claim with these values; a ``printed`` effect is on its scale."""
    if not math.isnan(printed):
        kind = {"ratio": math.exp(printed)} if scale == "log-ratio" else {"difference": printed}
        about = Claim(**{name: getattr(about, name) for name in about.__struct_fields__ if name != "printed"},
                      printed=PrintedEffect("there", **kind))  # fmt: skip
    costs = SimpleNamespace(seed=lambda sides, claim: hours * 3600)
    return judge.judged(GivenSides(left, right, scale, **fields), about, correlation, costs)
