"""Which claims the findings open with: for each paper those that its title rests on, and our controls of them."""

from collections.abc import Sequence

from icl_lab.errors import UnknownName
from icl_lab.papers.ledger import Row, strongest

# Experiment -> statements of its claims, in the order in which they are shown.
HEADLINES: dict[str, tuple[str, ...]] = {
    "ssa-table1": (
        "SSA errs less than softmax in training conditions too",
        "SSA errs less than softmax far from training",
        "Far from training a softmax model is better than three nearest neighbours",
    ),
    "ssa-table5": ("SSA suffers less than softmax from a deviant input",),
    "saturation-linear": (
        "The changed attention causes the error: putting the calm attention back heals softmax in part",
    ),
    "saturation-norm-in": ("With a norm after the read-in a large query turns fewer of softmax's answers wrong",),
    "regression-norm-in": ("With a norm after the read-in softmax errs more on wider functions",),
    "ssa-depth": ("With 6 layers SSA errs less than softmax far from training",),
    "ssa-table6": ("Two layers with four heads err as much as printed, at sigma 10",),
    "ssa-figure1": (
        "Softmax has boundary values: its answers to 9x and 10x stop below those of least squares",
        "SSA's answers reach further than softmax's before they stop",
    ),
    "ssa-figure9": ("Models that only attend have boundary values: their answers stop below those of least squares",),
    "ssmax-figure2": ("A logarithm of n explains the learned factor better than n itself",),
    "ssmax-figure6": ("SSMax finds more needles than softmax far beyond the training length",),
    "needle-positions": ("With the raised base SSMax finds more needles far out than softmax",),
    "text-ssmax-figure5": ("Swapped in after training, SSMax has a lower loss beyond it",),
    "text-lssa-table4": (
        "Trained with the steep re-weighting LSSA has nearly the same loss at 8 training lengths as at one",
    ),
    "lssa-reweight": ("Re-weighting softmax with p = 3, without training, finds more needles far out",),
    "maximum-dispersion": (
        "With more items than in training softmax errs more",
        "The adaptive temperature at test lessens it",
    ),
    "temperature-inputs": (
        "In inputs three and ten times as wide as in training a temperature of 2 errs less than that of training",
    ),
    "flip-flop-glitches": ("Softmax errs more where 98 in 100 instructions are ignored than in training, at 80",),
    "text-recency": (
        "Beyond the training length stick-breaking attention has a lower loss than softmax",
        "Beyond the training length a forgetting transformer has a lower loss than softmax",
    ),
    "poster-task3": ("SSMax finds more letters than softmax at eight times the training length",),
}


def chosen(rows: Sequence[Row]) -> list[Row]:
    """Returns the headline claims, each at the largest scale that has a verdict.

    Raises ``UnknownName`` where an experiment no longer makes a claim that is named here.
    """
    found = {(row["experiment"], row["claim"]): row for row in strongest(rows)}
    wanted = [(name, statement) for name, statements in HEADLINES.items() for statement in statements]
    for name, statement in wanted:
        if (name, statement) not in found:
            raise UnknownName(f"claim of {name}", statement, [text for of, text in found if of == name])
    return [found[key] for key in wanted]
