"""A number hidden in a text, asked for at its end (arXiv 2501.19399, Section 3.3)."""

import re
from dataclasses import dataclass

import torch

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.extras.language.model import LanguageModel
from icl_lab.tasks.texts.corpus import Corpus

DIGITS = 7
CITIES = (
    *("Amsterdam", "Athens", "Bangkok", "Beijing", "Berlin", "Bogota", "Brussels", "Budapest", "Cairo", "Chicago"),
    *("Dakar", "Delhi", "Dublin", "Hanoi", "Helsinki", "Istanbul", "Jakarta", "Lagos", "Lima", "Lisbon", "London"),
    *("Madrid", "Manila", "Moscow", "Nairobi", "Osaka", "Oslo", "Paris", "Prague", "Quito", "Rome", "Seoul", "Sydney"),
    *("Tokyo", "Toronto", "Vienna", "Warsaw", "Zurich"),
)


@dataclass(frozen=True)
class Hidden:
    """A text of tokens that ends with the question, the number that is asked for, and where its digits stand."""

    tokens: list[int]
    number: str
    digits: range


def hidden(language: LanguageModel, corpus: Corpus, context: int, depth: float, sample: int) -> Hidden:
    """Hide ``The special magic CITY number is: 1234567.`` at ``depth`` percent of a text of ``context`` tokens.

    City, number and text are drawn by their address (sample), so that every normalizer, depth and context meets the
    same.
    Raises ``BadValue`` where the sentence and the question do not fit.
    """
    rng = stream(0, "needle", sample)
    city = CITIES[int(torch.randint(len(CITIES), (1,), generator=rng))]
    number = str(int(torch.randint(10 ** (DIGITS - 1), 10**DIGITS, (1,), generator=rng)))
    said = f"The special magic {city} number is:"
    before, needle = language.ids(f"\n{said}"), language.ids(f"\n{said} {number}.\n")
    question = language.ids(f"\n{said}")
    room = context - len(needle) - len(question) - len(language.start)
    if room < 1:
        least = context - room + 1
        raise BadValue(f"the needle and its question take {least - 1} tokens: a context has at least {least}.")
    hay = corpus.windows("held-out", rng, 1, room - 1)[0].tolist()
    at = round(depth / 100 * len(hay))
    first = len(language.start) + at + len(before)
    tokens = [*language.start, *hay[:at], *needle, *hay[at:], *question]
    end = len(language.start) + at + len(language.ids(f"\n{said} {number}"))
    return Hidden(tokens, number, range(first, end))


@torch.no_grad()
def answer(language: LanguageModel, hide: Hidden) -> str:
    """Greedy continuation, token by token; the end of the text is never chosen."""
    ids = torch.tensor([hide.tokens], device=language.device)
    ends = language.model.generation_config.eos_token_id
    never = ends if isinstance(ends, list) else [] if ends is None else [ends]
    made = language.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=DIGITS + 3,
        do_sample=False,
        suppress_tokens=never or None,
        pad_token_id=never[0] if never else 0,
    )
    said: str = language.tokenizer.decode(made[0, ids.shape[1] :].tolist())
    return said


def right(said: str, number: str) -> bool:
    """True if the first number that was said is the one, all digits."""
    found = re.match(r"\D*(\d+)", said)
    return found is not None and found[1] == number


@torch.no_grad()
def head_scores(language: LanguageModel, hide: Hidden) -> list[list[float]]:
    """The needle score of each head, by layer: the weight of the last token on the digits of the hidden number."""
    ids = torch.tensor([hide.tokens], device=language.device)
    read = language.model(input_ids=ids[:, :-1], use_cache=True)
    word = "cache" if "cache" in read else "past_key_values"  # its name up to transformers 5.23
    made = language.model(input_ids=ids[:, -1:], **{word: read[word]}, use_cache=True, output_attentions=True)
    span = slice(hide.digits.start, hide.digits.stop)
    return [weights[0, :, -1, span].sum(-1).tolist() for weights in made.attentions]
