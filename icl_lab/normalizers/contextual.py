"""The fourth road: rules that read the tokens themselves, what the projections of queries, keys and values read.

Axis letters: b prompts, h heads, t tokens, d head width, w model width (h d).
"""

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from icl_lab.errors import BadValue
from icl_lab.normalizers.base import Normalizer


class Contextual(Normalizer):
    """Reads the tokens x (b t w) beside queries and keys; row t of x is the token of query t and of key t.

    A model calls ``given(x)`` in each pass and asks what it returns for weights and outputs. Queries and keys are those
    of the same tokens: with a cache of keys there would be tokens that nobody kept.
    """

    weights_read: bool = True  # the weights hang on the tokens; else only the output does

    def given(self, x: Tensor) -> "Given":
        """The rule with the tokens x (b t w) of one pass."""
        return Given(self, x)

    @abstractmethod
    def weights_of(self, x: Tensor, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """As ``weights``, of the tokens x (b t w), too."""

    def attend_of(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """As ``attend``, of the tokens x (b t w), too."""
        return self.output_of(x, self.weights_of(x, q, k, visible) @ v)

    def output_of(self, x: Tensor, o: Tensor) -> Tensor:
        """As ``output``, of the tokens x (b t w), too."""
        return o

    def weights(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        raise BadValue(self._unread())

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        raise BadValue(self._unread())

    def output(self, o: Tensor) -> Tensor:
        raise BadValue(self._unread())

    def _unread(self) -> str:
        return f"{self.title} reads the tokens of a model, not only queries and keys: it cannot be asked without them."

    @property
    def title(self) -> str:
        """The name under which it is registered, for a line to a user."""
        return f"'{getattr(self, 'registered', type(self).__name__)}'"


@dataclass(frozen=True)
class Given:
    """A rule with the tokens x (b t w) of one pass: ``weights``, ``attend`` and ``output`` as of any other rule."""

    rule: Contextual
    x: Tensor

    def weights(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """q (b h t d), k (b h t d), visible bool -> weights (b h t t).

        Fewer queries than keys, as with a cache, are only for rules whose weights do not read the tokens; x is then
        that of the queries. Raises ``BadValue`` for all others.
        """
        self._same(q, k)
        return self.rule.weights_of(self.x, q, k, visible)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """q, k, v (b h t d), visible bool -> (b h t d)."""
        self._same(q, k)
        return self.rule.attend_of(self.x, q, k, v, visible)

    def output(self, o: Tensor) -> Tensor:
        """What is made of ``weights @ v``, (b h t d) -> (b h t d)."""
        return self.rule.output_of(self.x, o)

    def _same(self, q: Tensor, k: Tensor) -> None:
        if self.rule.weights_read and q.shape[-2] != k.shape[-2]:
            raise BadValue(
                f"{self.rule.title} reads the tokens of all keys, and a KV cache keeps only keys and values."
            )


def needs_tokens(rule: Normalizer) -> bool:
    """Whether a rule has no weights without the tokens of a model."""
    return isinstance(rule, Contextual) and rule.weights_read


def told(rule: Normalizer, x: Tensor) -> Normalizer | Given:
    """Returns what weighs keys in this pass: a rule that reads the tokens x (b t w) with them, any other as it is."""
    return rule.given(x) if isinstance(rule, Contextual) else rule
