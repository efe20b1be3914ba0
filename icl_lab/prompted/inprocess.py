"""A language model on disk as an engine: choices are scored by log-probability, numbers decoded token by token."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icl_lab.errors import BadValue
from icl_lab.language.disk import OnDisk
from icl_lab.language.model import LanguageModel
from icl_lab.language.model import read as read_model
from icl_lab.prompted.asking import Engine, Failure
from icl_lab.prompted.question import PromptQuestion, RequestText
from icl_lab.prompted.record import Reply
from icl_lab.prompted.study import PromptedStudy


@contextmanager
def local_engine(study: PromptedStudy, device: torch.device) -> Iterator[Engine]:
    """Reads a study's model from disk, with another normalizer in its attention where that was asked for."""
    language, ask = read_model(study.options.model, device), study.options
    made = InProcess(language, ask.model, temperature=ask.temperature, answer_tokens=study.answer_tokens)
    if not ask.attn:
        yield made
        return
    with language.ruled(ask.attn, language.trained):
        yield made


class InProcess:
    """Engine that asks a model of transformers, in this process, one question at a time.

    Where there are choices, the answer is the one of the greatest log-probability, the sum over its tokens and the
    token that ends an answer: with it no choice is favoured for being the beginning of another. Otherwise, and for
    lists, the model goes on token by token: the likeliest at temperature 0, else drawn by the address of the question.
    """

    parallel = 1

    def __init__(self, language: LanguageModel, place: str, *, temperature: float, answer_tokens: int) -> None:
        self.language, self._place = language, Path(place)
        self._temperature, self._answer_tokens = temperature, answer_tokens
        self._tokenizer: Any = None

    def most_tokens(self, question: PromptQuestion) -> int:
        """Returns an upper bound of the tokens of the question and its answer."""
        return question.sent.most_tokens + question.count * self._answer_tokens

    async def ask(self, question: PromptQuestion, retries: int = 0) -> Reply:
        """Answers a question; raises ``Failure`` where the model has no places for it, which no retry helps."""
        began = time.monotonic()
        prompt = self._prompt(question.sent)
        if question.choices and not question.listed:
            scores = self._scored(prompt, question)
            said, wrote = question.choices[max(range(len(scores)), key=scores.__getitem__)], 0
        else:
            scores, (said, wrote) = [], self._said(prompt, question)
        return Reply(
            key=question.key,
            sha=question.sha,
            said=said,
            scores=scores,
            model=self.language.name,
            read=len(prompt),
            wrote=wrote,
            seconds=round(time.monotonic() - began, 3),
            sent=question.sent.fields,
        )

    async def close(self) -> None:
        """Has no connections."""

    def _prompt(self, sent: RequestText) -> list[int]:
        """The tokens of what is sent; raises ``BadValue`` for a conversation where the model has no form for one."""
        if sent.completion:
            return [*self.language.start, *self.language.ids(sent.completion)]
        if self._tokenizer is None:
            self._tokenizer = chat_tokenizer(self._place)
        messages = sent.fields["messages"]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.language.ids(text)

    @property
    def _ends(self) -> list[int]:
        ids = self.language.model.generation_config.eos_token_id
        return ids if isinstance(ids, list) else [] if ids is None else [ids]

    def _fits(self, tokens: int) -> None:
        try:
            self.language.check_length(tokens)
        except BadValue as error:
            raise Failure(str(error)) from None

    @torch.no_grad()
    def _scored(self, prompt: Sequence[int], question: PromptQuestion) -> list[float]:
        """The log-probability of each choice, with what ends an answer."""
        sent = question.sent
        end = self.language.ids(sent.stop[0]) if sent.stop else self._ends[:1]
        rows = [[*self.language.ids(sent.before + choice), *end] for choice in question.choices]
        most = max(map(len, rows))
        self._fits(len(prompt) + most)
        ids = torch.tensor([[*prompt, *row, *[0] * (most - len(row))] for row in rows], device=self.language.device)
        logits = self.language.model(input_ids=ids, use_cache=False).logits[:, len(prompt) - 1 : -1].float()
        each = logits.log_softmax(2).gather(2, ids[:, len(prompt) :].unsqueeze(2)).squeeze(2)
        real = torch.tensor([[at < len(row) for at in range(most)] for row in rows], device=each.device)
        total: Tensor = torch.where(real, each, 0.0).sum(1)
        return [round(value, 6) for value in total.tolist()]

    @torch.no_grad()
    def _said(self, prompt: Sequence[int], question: PromptQuestion) -> tuple[str, int]:
        """The model's text up to its stop, and the number of its tokens."""
        from transformers import StoppingCriteriaList

        most = question.count * self._answer_tokens
        self._fits(len(prompt) + most)
        ids = torch.tensor([prompt], device=self.language.device)

        def ended(all_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
            said = self.language.tokenizer.decode(all_ids[0, len(prompt) :].tolist()).lstrip()
            return torch.tensor([any(stop in said for stop in question.sent.stop)], device=all_ids.device)

        drawn = {"do_sample": True, "temperature": self._temperature, "top_k": 0} if self._temperature else {}
        with torch.random.fork_rng():
            torch.manual_seed(question.seed)
            made = self.language.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=most,
                pad_token_id=(self._ends or [0])[0],
                stopping_criteria=StoppingCriteriaList([ended]),
                **({"do_sample": False} | drawn),
            )
        new = [token for token in made[0, len(prompt) :].tolist() if token not in self._ends]
        said: str = self.language.tokenizer.decode(new)
        return said, len(new)


def chat_tokenizer(place: Path) -> Any:
    """Returns the tokenizer that writes conversations; raises ``BadValue`` where it has no form for them."""
    from transformers import AutoTokenizer

    disk = OnDisk(place)
    try:
        made = AutoTokenizer.from_pretrained(disk.folder, local_files_only=True, **disk.more)
    except Exception as error:  # of many kinds, and all mean that there is none
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadValue(f"{place} has no tokenizer that writes conversations: {line}") from None
    if not made.chat_template:
        raise BadValue(f"{place} has no template for conversations: it is no assistant; take --format plain.")
    return made
