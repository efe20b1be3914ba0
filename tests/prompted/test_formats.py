"""How a prompt is written down."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.errors import BadValue, UnknownName
from icl_lab.prompted.formats import FORMATS, Writer, named
from icl_lab.prompted.speech import PromptText, Speech, speech, spoken, sure
from icl_lab.prompted.study import PromptedOptions, PromptedStudy
from icl_lab.rng import stream


def written(task, form, t, numbers, digits=2, instruct=True, examples=()):
    built = tasks.build(task)
    prompt = built.prompt_of(numbers, **({"a": 2.0, "b": 1.0} if task == "linear" else {}))
    return Writer(speech(built), named(form), digits, instruct, examples).sent(prompt, t)


def test_a_conversation_shows_inputs_and_labels_in_turn():
    sent = written("every", "chat", 4, [1, -2, 3])
    roles = [role for role, _ in sent.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [said for _, said in sent.messages[1:]] == ["1.00", "True", "-2.00", "False", "3.00"]
    assert sent.messages[0][1].endswith("Reply with the answer alone: False or True.")
    assert written("every", "chat", 4, [1, -2, 3], instruct=False).messages[0] == ("user", "1.00")


def test_a_text_goes_on_with_lines():
    sent = written("linear", "plain", 4, [0.5, -1, 3], digits=1, instruct=False)
    assert sent.completion == "Input: 0.5\nOutput: 2.0\n\nInput: -1.0\nOutput: -1.0\n\nInput: 3.0\nOutput:"
    assert (sent.before, sent.stop) == (" ", ("\n",))


def test_the_published_layout_is_a_list_under_worked_examples():
    sent = written("linear", "published", 4, [0.5, -1, 3], examples=[("1, 3, 2", "5")])
    system, user = sent.messages
    assert user == ("user", "CONTEXT: [0.5, 2.0, -1.0, -1.0, 3.0]")
    assert "Example 1:\nCONTEXT: [1, 3, 2]\n#Answer: 5" in system[1]
    assert system[1].endswith("Reply with the number alone.")


def test_the_published_layout_asks_for_all_truth_values_and_shows_none():
    sent = written("every", "published", 4, [1, -2, 3])
    assert sent.messages[1] == ("user", "CONTEXT: [1.0, -2.0, 3.0]")
    made = PromptedStudy(PromptedOptions("every", "m", preset="smoke", form="published")).writer(2)
    assert len(made.examples) == 5
    for shown, answer in made.examples:
        assert answer.count(",") == shown.count(",") == speech(tasks.build("every")).worked - 1
        assert set(answer.strip("[]").split(", ")) <= {"True", "False"}


@pytest.mark.parametrize(
    ("form", "value", "digits", "text"),
    [
        ("chat", 0.5, 2, "0.50"),
        ("chat", -0.004, 2, "-0.00"),
        ("plain", 2.6, 0, "3"),
        ("published", 0.5, 2, "0.5"),
        ("published", 1.234, 2, "1.23"),
        ("published", -2.6, 0, "-3"),
    ],
)
def test_numbers_keep_so_many_decimals(form, value, digits, text):
    assert named(form).number(value, digits) == text


def test_labels_that_are_hidden_are_not_said():
    built = tasks.build("every:balance=half,labels=hidden")
    prompt = built.sample(stream(0, "x"), 1, 4)
    for form in FORMATS:
        text = Writer(speech(built), named(form), 2, instruct=False).sent(prompt, 6).whole
        assert "True" not in text
        assert "False" not in text


def test_unknown_formats_are_refused():
    with pytest.raises(UnknownName, match="published"):
        named("poem")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("task", spoken())
def test_every_task_is_written_in_every_format_without_its_answer(task, form):
    """The question is there, and what comes after it in the prompt changes nothing of what is sent."""
    built = tasks.build(task)
    length = max(speech(built).worked, 8)
    prompt, other = built.sample(stream(0, "x"), 1, length), built.sample(stream(1, "x"), 1, length)
    t = int(prompt.scored[0].nonzero().min())
    writer = Writer(speech(built), named(form), 3)
    cut = type(prompt)(
        torch.cat((prompt.tokens[:, : t + 1], other.tokens[:, t + 1 :]), 1), other.targets, prompt.scored
    )
    assert writer.sent(prompt, t) == writer.sent(cut, t)
    assert writer.sent(prompt, t) != writer.sent(other, t)


@pytest.mark.parametrize("task", spoken())
def test_every_choice_is_heard_as_itself(task):
    """Its outputs have no error where it is right, and one where it is not."""
    built = tasks.build(task)
    told = speech(built)
    if not told.choices:
        assert torch.equal(told.outputs(torch.tensor([2.5]), built.outputs), torch.tensor([2.5]))
        return
    assert len(set(told.choices)) == len(told.choices)
    prompt = built.sample(stream(0, "x"), 64, max(told.worked, 8))
    t = [int(scored.nonzero().max()) for scored in prompt.scored]
    for choice in told.choices:
        outputs = torch.zeros(*prompt.targets.shape, built.outputs)
        outputs[torch.arange(64), t] = told.outputs(sure(told.choices, choice), built.outputs)
        errors = built.errors(outputs, prompt)
        for number, at in enumerate(t):
            one = type(prompt)(*(p[number : number + 1] for p in (prompt.tokens, prompt.targets, prompt.scored)))
            right = told.right(one, at, str) == choice
            last = errors[number][~errors[number].isnan()][-1]
            assert last == (0 if right else 1)


def test_a_task_of_ones_own_is_put_into_words_by_registering_them(own_parts):
    Own = type("Own", (tasks.registry.part("mean-value"),), {})
    tasks.registry.add("own-mean")(Own)
    assert "own-mean" in spoken()  # a subclass has the words of its base
    speech.register(Own, lambda task: Speech("Say it.", lambda prompt, t, number: PromptText((), "?"), worked=3))
    made = tasks.build("own-mean")
    assert speech(made).says == "Say it."
    assert speech(tasks.build("mean-value")).says != "Say it."
    prompt = made.sample(stream(0, "x"), 1, 3)
    assert Writer(speech(made), named("plain"), 2, instruct=False).sent(prompt, 2).completion.startswith("Input: ?")


def test_a_task_without_words_is_refused_with_those_that_have_them():
    with pytest.raises(BadValue, match="markov has not been put into words; these have: every, flip-flop, linear"):
        speech(tasks.build("markov"))


def test_the_words_of_a_task_are_whole_sentences():
    for task in spoken():
        told = speech(tasks.build(task))
        assert told.says.endswith(".")
        assert "  " not in told.says + told.lists
        assert set(told.means) <= {*tasks.build(task).metric_labels, *tasks.build(task).views(*_drawn(task))}


def _drawn(task):
    built = tasks.build(task)
    prompt = built.sample(stream(0, "x"), 2, max(speech(built).worked, 8))
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
    prompt = built.sample(stream(0, "x"), 32, max(speech(built).worked, 8))
    for number in range(32):
        one = type(prompt)(*(p[number : number + 1] for p in (prompt.tokens, prompt.targets, prompt.scored)))
        t = int(one.scored[0].nonzero().max())
        told = speech(built).tell(one, t, lambda value: f"{value:.9f}")
        assert READERS[task](told) == speech(built).right(one, t, str)
