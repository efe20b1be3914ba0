"""How a prompt is written down."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.extras.prompted.question import FORMATS
from icl_lab.extras.prompted.speech import PromptText, Speech, speech, spoken
from icl_lab.extras.prompted.study import writer

LENGTH = 24  # at which every task has a prompt


def sent(built, form, prompt, t, digits=2, instruct=True):
    words = speech(built)
    return FORMATS[form](words, words.tell(prompt, t, writer(digits)), instruct)


def written(task, form, t, numbers, digits=2, instruct=True):
    built = tasks.build(task)
    prompt = built.prompt_of(numbers, **({"a": 2.0, "b": 1.0} if task == "linear" else {}))
    return sent(built, form, prompt, t, digits, instruct)


def test_a_conversation_shows_inputs_and_labels_in_turn():
    messages = written("every", "chat", 4, [1, -2, 3])["messages"]
    assert [each["role"] for each in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [each["content"] for each in messages[1:]] == ["1.00", "True", "-2.00", "False", "3.00"]
    assert messages[0]["content"].endswith("Reply with the answer alone: False or True.")
    bare = written("every", "chat", 4, [1, -2, 3], instruct=False)["messages"]
    assert bare[0] == {"role": "user", "content": "1.00"}


def test_a_text_goes_on_with_lines():
    text = "Input: 0.5\nOutput: 2.0\n\nInput: -1.0\nOutput: -1.0\n\nInput: 3.0\nOutput:"
    assert written("linear", "plain", 4, [0.5, -1, 3], digits=1, instruct=False) == {"prompt": text, "stop": ["\n"]}


@pytest.mark.parametrize(("value", "digits", "text"), [(0.5, 2, "0.50"), (-0.004, 2, "-0.00"), (2.6, 0, "3")])
def test_numbers_keep_so_many_decimals(value, digits, text):
    assert writer(digits)(value) == text


def test_labels_that_are_hidden_are_not_said():
    built = tasks.build("every:balance=half,labels=hidden")
    prompt = built.sample(stream(0, "x"), 1, 4)
    text = "".join(str(sent(built, form, prompt, 6, instruct=False)) for form in FORMATS)
    assert "True" not in text
    assert "False" not in text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("task", spoken())
def test_tasks_are_written_without_their_answers(task, form):
    """The question is there, and what comes after it in the prompt changes nothing of what is sent."""
    built = tasks.build(task)
    prompt, other = built.sample(stream(0, "x"), 1, LENGTH), built.sample(stream(1, "x"), 1, LENGTH)
    t = int(prompt.scored[0].nonzero().min())
    tokens = torch.cat((prompt.tokens[:, : t + 1], other.tokens[:, t + 1 :]), 1)
    cut = type(prompt)(tokens, other.targets, prompt.scored)
    assert sent(built, form, prompt, t, 3) == sent(built, form, cut, t, 3)
    assert sent(built, form, prompt, t, 3) != sent(built, form, other, t, 3)


@pytest.mark.parametrize("task", spoken())
def test_every_choice_is_heard_as_itself(task):
    """Its outputs have no error where it is right, and one where it is not."""
    built = tasks.build(task)
    told = speech(built)
    if not told.choices:
        assert torch.equal(told.outputs("2.5", built.outputs), torch.tensor([2.5]))
        return
    assert len(set(told.choices)) == len(told.choices)
    prompt = built.sample(stream(0, "x"), 64, LENGTH)
    t = [int(scored.nonzero().max()) for scored in prompt.scored]
    for choice in told.choices:
        outputs = torch.zeros(*prompt.targets.shape, built.outputs)
        outputs[torch.arange(64), t] = told.outputs(choice, built.outputs)
        errors = built.errors(outputs, prompt)
        for one, at, own in zip(prompt.pieces(1), t, errors, strict=True):
            right = told.right(one, at, str) == choice
            assert own[~own.isnan()][-1] == (0 if right else 1)


def test_an_own_task_is_put_into_words(own_parts):
    Own = type("Own", (tasks.registry.part("mean-value"),), {})
    tasks.registry.add("own-mean")(Own)
    assert "own-mean" in spoken()  # a subclass has the words of its base
    speech.register(Own, lambda task: Speech("Say it.", lambda prompt, t, number: PromptText((), "?")))
    made = tasks.build("own-mean")
    assert speech(made).says == "Say it."
    assert speech(tasks.build("mean-value")).says != "Say it."
    prompt = made.sample(stream(0, "x"), 1, 3)
    assert sent(made, "plain", prompt, 2, instruct=False)["prompt"].startswith("Input: ?")


def test_a_task_without_words_is_refused_by_name():
    with pytest.raises(BadValue, match="markov has not been put into words; these have: every, flip-flop, linear"):
        speech(tasks.build("markov"))


def test_the_words_of_a_task_are_whole_sentences():
    for task in spoken():
        told = speech(tasks.build(task))
        assert told.says.endswith(".")
        assert "  " not in told.says
        assert set(told.means) <= {*tasks.build(task).metric_labels, *tasks.build(task).views(*_drawn(task))}


def _drawn(task):
    built = tasks.build(task)
    prompt = built.sample(stream(0, "x"), 2, LENGTH)
    return built.errors(torch.zeros(*prompt.targets.shape, built.outputs), prompt), prompt


def after_first(words):
    """What stood right after the last word where it stood first."""
    return words[words.index(words[-1]) + 1]


def items(told):
    return [*(item for item, _ in told.shown), told.query]


def last_written(words):
    return [bit for word, bit in zip(words[::2], words[1::2], strict=False) if word == "w"][-1]


READERS = {
    "recall": lambda told: after_first(told.query.split()),
    "needle": lambda told: after_first(told.query.split()),
    "flip-flop": lambda told: last_written(told.query.split()),
    "maximum": lambda told: max(items(told), key=lambda item: float(item.split()[1])).split()[0],
    "every": lambda told: str(all(float(x) > 0 for x in items(told))),
    "some": lambda told: str(any(float(x) > 0 for x in items(told))),
}


@pytest.mark.parametrize("task", READERS)
def test_who_reads_the_words_as_they_are_meant_answers_right(task):
    built = tasks.build(task)
    for one in built.sample(stream(0, "x"), 32, LENGTH).pieces(1):
        t = int(one.scored[0].nonzero().max())
        told = speech(built).tell(one, t, lambda value: f"{value:.9f}")
        assert READERS[task](told) == speech(built).right(one, t, str)
