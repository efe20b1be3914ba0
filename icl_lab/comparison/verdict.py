"""Verdict on a claim, and what later training seeds say of it: the texts that stand in files and on pages."""

from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on a claim; those that decide it come first."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"
    ONE_SEED = "one seed"
    NOT_LEARNED = "not learned"
    NOTHING_TO_JUDGE = "nothing to judge"
    NOT_RUN = "not run"

    @property
    def decided(self) -> bool:
        """True if no further seed changes it."""
        return self in (Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.NO_DIFFERENCE)

    @property
    def tested(self) -> bool:
        """True if its p value is that of a test, so that it has a false discovery rate."""
        return self.decided or self is Verdict.INCONCLUSIVE

    @property
    def open(self) -> bool:
        """True if further seeds may decide it."""
        return self in (Verdict.INCONCLUSIVE, Verdict.ONE_SEED, Verdict.NOT_RUN)


class Replicated(StrEnum):
    """Result of comparing a verdict with the training seeds that came after it."""

    BORNE_OUT = "borne out"
    NOT_BORNE_OUT = "not borne out"
    SPOKEN_AGAINST = "spoken against"
